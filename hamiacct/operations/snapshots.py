"""Full lists: the truth for one kind at its version, behind guards (decisions 7, 8, 33).

A list comes whole (`apply`) or in pages (`begin`, `apply_page`, `finish`); either way nothing but the
identities of its items is kept in memory beside its text and one page. The items are applied page by page
like events. A last transaction, during which nobody applies events of the kind, marks the version, so that
older news of objects the list did not hold are stale from then on; what it did not hold is ended after that.

A list that stops half-way has told the truth about the items it held and ended nothing; the next one makes
it whole. Several may be on their way at once: the one with the highest version wins.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.db import InterfaceError, InternalError, OperationalError, transaction

from hamiacct import config, models
from hamiacct.accounting.errors import (
    AccountingError,
    Malformed,
    OlderThanApplied,
    Overtaken,
    SnapshotRefused,
    TooManyAbsent,
)
from hamiacct.accounting.words import EventType, Kind, Outcome
from hamiacct.kube import manifests
from hamiacct.kube.manifests import Envelope, ListBody
from hamiacct.operations import bulk, kinds, locks, streams, watching
from hamiacct.operations.inbox import Rejected
from hamiacct.operations.kinds import Known
from hamiacct.operations.streams import Seen, Stream

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_ITEMS = 500
FEW = 20
SHARE_PERCENT = 20
NOBODY: frozenset[str] = frozenset()
# A refusal, or a database that is away or busy: nothing is wrong with any item.
NOT_OF_AN_ITEM = (AccountingError, OperationalError, InterfaceError, InternalError)


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """What a list changed, or would change. `would_end` counts what it does not hold and the guard counts."""

    kind: Kind
    version: int | None
    added: int
    changed: int
    unchanged: int
    ended: int
    would_end: int
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class PageCounts:
    """What one page changed; the places of `rejected` count from the start of the list."""

    added: int
    changed: int
    unchanged: int
    rejected: tuple[Rejected, ...]


@dataclass(slots=True)
class Listing:
    """A list on its way: what it is of, and what it has shown so far.

    `seen` are ids. `ends_nothing` where it held something that may be anything, or is not what it is said
    to be. `rejected` are the items that could not be read.
    """

    kind: Kind
    version: int | None
    history: int
    namespace: str = ""
    seen: set[str] = field(default_factory=set)
    items: int = 0
    ends_nothing: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    rejected: list[Rejected] = field(default_factory=list)


class _Item(NamedTuple):
    """An item whose envelope could be read, with its place in the list."""

    place: int
    id: str
    envelope: Envelope


class _Whole(NamedTuple):
    """An item with what of it is read here."""

    item: _Item
    manifest: dict[str, object]


class _Read(NamedTuple):
    """Items as far as they could be read."""

    items: list[_Item]
    rejected: list[Rejected]


class _Done(NamedTuple):
    """What became of the items of a page, once that is committed."""

    counts: Counter[str]
    rejected: list[Rejected]


# --- in pages ------------------------------------------------------------------------------------


def begin(kind: Kind, version: int, *, new_history: bool = False, holder: str = "") -> Listing:
    """Begins a list of the whole cluster at this version. OlderThanApplied where newer news are applied.

    With `new_history` a history begins (decision 8), in the transaction in which `holder` is seen to hold
    the watcher's lease; LeaseLost where it does not: a list it was paused with may be of any age.
    """
    if new_history:
        history = _begin_history(kind, holder)
    else:
        stream = streams.of_kind(kind)
        _check_version(version, stream.applied_version)
        history = stream.history
    listing = Listing(kind, version, history)
    _announce(listing)
    return listing


def apply_page(
    listing: Listing, items: Sequence[object], *, seen: Iterable[str] = (), at: datetime
) -> PageCounts:
    """Applies the items of one page like events, in one transaction.

    `seen` are the ids (`kinds.identity`) of items that nobody needs to store; "" is an item without one.
    Overtaken where a newer list or a new history came in between: then this one must begin anew. After any
    other failure the same page may be applied again.
    """
    read = _read(listing, items)
    for id_ in seen:
        _see(listing, id_)
    done = _apply_items(listing, _whole(listing, read.items, items, first=listing.items), at=at)
    rejected = (*read.rejected, *done.rejected)
    listing.items += len(items)
    listing.counts += done.counts
    listing.rejected += rejected
    return PageCounts(done.counts["added"], done.counts["changed"], done.counts["unchanged"], rejected)


def finish(listing: Listing, *, confirmed: frozenset[str] | None = None, at: datetime) -> SnapshotResult:
    """Ends what no page of the list held. TooManyAbsent where that is too much to believe (decision 33).

    `confirmed` are the `absent` of an earlier complete list that was refused: what this list lacks too is
    believed, and the guard counts the others alone, which may have gone since. Overtaken as in `apply_page`.
    """
    if listing.ends_nothing:
        log.warning("a list of %s held something without an identity, so it ends nothing", listing.kind)
    absent = _sweep(
        listing, lambda absent, known: _check_share(absent, known, None, confirmed or NOBODY), at=at
    )
    return _result(listing, absent)


# --- whole ---------------------------------------------------------------------------------------


def apply(
    body: ListBody,
    *,
    namespace: str = "",
    confirm: int | None = None,
    dry_run: bool = False,
    new_history: bool = False,
    complete: bool = False,
    at: datetime,
) -> SnapshotResult:
    """Makes the books equal a full list (decisions 7, 8, 33). SnapshotRefused where a guard stops it.

    `confirm` is the number of charged pods that may end; `dry_run` only counts; `complete` declares
    the books complete afterwards. A list that is refused changes nothing.
    """
    kind = Kind(body.kind)
    if kind is Kind.NODE and namespace:
        raise Malformed("nodes are in no namespace: their list is of the whole cluster", "/query/namespace")
    stream = streams.of_kind(kind)
    listing = Listing(kind, body.version, stream.history, namespace)
    items, rejected = _read(listing, body.items)
    listing.rejected += rejected
    if listing.version is None and items:
        listing.version = max(item.envelope.resource_version for item in items)
    _check_wholeness(listing, body, new_history)
    if not new_history and listing.version is not None:
        _check_version(listing.version, _applied_version(listing, stream))
    known = kinds.BOOKS[kind].living(namespace)
    absent = _absent(listing, known, stream.history, new_history)
    if dry_run:
        _only_count(listing, items, body, absent, new_history, at=at)
        return _result(listing, absent)
    _check_share(absent, known, confirm)
    if new_history:
        listing.history = _begin_history(kind)
    _announce(listing)
    ordered = sorted(items, key=lambda item: (item.envelope.namespace, item.envelope.name))
    for page in _pages(ordered):
        done = _apply_items(listing, _whole(listing, page, body.items), at=at)
        listing.counts += done.counts
        listing.rejected += done.rejected
    # Of what was judged, the list's own items may have replaced some by now.
    judged = frozenset(one.id for one in absent)

    def check(absent: Sequence[Known], known: Iterable[Known]) -> None:
        if not judged.issuperset(one.id for one in absent):
            _check_share(absent, known, confirm)

    _sweep(listing, check, at=at)
    if complete:
        declare_complete(at=at)
    return _result(listing, absent)


def declare_complete(*, at: datetime) -> None:
    """The books are complete from now on, fed by events alone (decision 25)."""
    models.Feed.objects.update(declared_complete_at=at)


def _check_wholeness(listing: Listing, body: ListBody, new_history: bool) -> None:
    """Refuses half lists, and histories begun by a list that cannot begin one."""
    more = body.meta.get("remainingItemCount")
    if body.meta.get("continue") or (more is not None and more != 0):
        raise SnapshotRefused(
            "the list is only a part: it has a continue token or remaining items", remaining=more
        )
    if new_history and (body.version is None or listing.namespace):
        raise SnapshotRefused("only a list of the whole cluster with a version of its own begins a history")


def _only_count(
    listing: Listing,
    items: Sequence[_Item],
    body: ListBody,
    absent: Sequence[Known],
    new_history: bool,
    *,
    at: datetime,
) -> None:
    """Counts what the list would change; nothing is written, nothing is locked."""
    books = kinds.BOOKS[listing.kind]
    listing.counts["ended"] = len(absent)
    for page in _pages(items):
        by_id = {one.id: one for one in books.among([item.id for item in page])}
        for item, manifest in _whole(listing, page, body.items):
            mine = by_id.get(item.id)
            is_old = mine is not None and not new_history and mine.history == listing.history
            if is_old and mine is not None and item.envelope.resource_version <= mine.resource_version:
                listing.counts["unchanged"] += 1
                continue
            try:
                books.parse(manifest, at)
            except Malformed as fault:
                listing.rejected.append(_rejected(item.place, fault, fault.pointer))
                continue
            listing.counts["changed" if mine is not None and mine.is_alive else "added"] += 1


# --- what both are made of -----------------------------------------------------------------------


def _announce(listing: Listing) -> None:
    """Older lists are refused from here on, and a hold that is bound from here on is newer than this one."""
    if listing.version is not None:
        streams.advance(listing.kind, [listing.version])


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), PAGE_ITEMS):
        yield items[start : start + PAGE_ITEMS]


def _read(listing: Listing, objects: Sequence[object]) -> _Read:
    """The next items of the list by identity. One that cannot be read but has an identity counts as seen."""
    books = kinds.BOOKS[listing.kind]
    items: list[_Item] = []
    rejected: list[Rejected] = []
    for place, manifest in enumerate(objects, start=listing.items):
        if isinstance(manifest, dict) and "kind" not in manifest:  # the API server leaves it out in lists
            manifest = {**manifest, "kind": listing.kind.value}
        try:
            envelope = manifests.envelope({"type": EventType.MODIFIED, "object": manifest})
            if envelope.kind != listing.kind:
                raise Malformed(f"a list of {listing.kind}s must hold no {envelope.kind}", "/object/kind")
        except Malformed as fault:
            rejected.append(_rejected(place, fault, fault.pointer.removeprefix("/object")))
            _see(listing, kinds.identity(listing.kind, manifest))
            continue
        id_ = books.id_of(envelope)
        _see(listing, id_)
        if listing.namespace and envelope.namespace != listing.namespace:
            detail = f"is in {envelope.namespace}, the list is of {listing.namespace} alone"
            rejected.append(_rejected(place, Malformed(detail), "/metadata/namespace"))
            listing.ends_nothing = True  # so it is not the list of this namespace that it is said to be
            continue
        items.append(_Item(place, id_, envelope))
    return _Read(items, rejected)


def _whole(listing: Listing, items: Sequence[_Item], objects: Sequence[Any], first: int = 0) -> list[_Whole]:
    """These items with what is kept of them; the list's objects begin with the one at place `first`."""
    vendors = config.vendors()
    return [
        _Whole(item, manifests.keep(listing.kind, objects[item.place - first], vendors)) for item in items
    ]


def _see(listing: Listing, id_: str) -> None:
    """The list holds this one. Without an identity it may be any of those that seem absent."""
    if id_:
        listing.seen.add(id_)
    else:
        listing.ends_nothing = True


def _rejected(place: int, fault: Malformed, pointer: str) -> Rejected:
    return Rejected(place, fault.code, f"/items/{place}{pointer}", fault.detail)


def _apply_items(listing: Listing, items: Sequence[_Whole], *, at: datetime) -> _Done:
    """Applies one page of items. What meets a fault of ours is left out, and told."""
    try:
        return _apply_together(listing, items, at=at)
    except Exception as fault:  # whatever it is, the list would come again with the same item in it
        if isinstance(fault, NOT_OF_AN_ITEM) and not bulk.is_too_much(fault):
            raise
        if len(items) > 1:
            done = [_apply_items(listing, [item], at=at) for item in items]
            counts = sum((one.counts for one in done), Counter())
            return _Done(counts, [rejected for one in done for rejected in one.rejected])
        [(item, _)] = items
        log.exception("%s %s of a list could not be applied", listing.kind, item.id)
        detail = "a fault in this service, told in its log"
        return _Done(Counter(), [Rejected(item.place, "internal-error", f"/items/{item.place}", detail)])


def _apply_together(listing: Listing, items: Sequence[_Whole], *, at: datetime) -> _Done:
    """Applies the items in one transaction."""
    done = _Done(Counter(), [])
    if not items:
        return done
    books = kinds.BOOKS[listing.kind]
    with transaction.atomic():
        bulk.plan_anew()
        locks.share_stream(listing.kind)
        stream = _stream_of(listing)
        alive = {one.id for one in books.among([one.item.id for one in items]) if one.is_alive}
        verdicts = books.apply([_seen(listing, *one) for one in items], stream, at=at)
        applied = []
        for (item, _), verdict in zip(items, verdicts, strict=True):
            if verdict.outcome is Outcome.REFUSED:
                done.rejected.append(_rejected(item.place, Malformed(verdict.detail), ""))
            elif verdict.outcome is Outcome.APPLIED:
                done.counts["changed" if item.id in alive else "added"] += 1
                applied.append(item.envelope.resource_version)
            else:
                done.counts["unchanged"] += 1
        streams.advance(listing.kind, applied)
    return done


def _seen(listing: Listing, item: _Item, manifest: dict[str, object]) -> Seen:
    return Seen(
        EventType.MODIFIED,
        item.envelope.uid,
        item.envelope.namespace,
        item.envelope.name,
        item.envelope.resource_version,
        listing.history,
        manifest,
        list_version=listing.version or 0,
    )


def _sweep(
    listing: Listing, check: Callable[[Sequence[Known], Iterable[Known]], None], *, at: datetime
) -> Sequence[Known]:
    """Marks the list's version and ends what it did not hold, page by page; answers what that was.

    The version is marked while nobody applies events of the kind: from here on older news of objects the
    list did not hold are stale. If the ending is cut short, the next list ends the rest. `check` is the
    guard: it raises where too much would end.
    """
    if listing.version is None:
        return ()
    books = kinds.BOOKS[listing.kind]
    with transaction.atomic():
        locks.be_patient()
        locks.close_stream(listing.kind)
        _stream_of(listing)
        known = books.living(listing.namespace)
        absent = _absent(listing, known, listing.history, False)
        check(absent, known)
        if not listing.ends_nothing:
            streams.mark_listed(listing.kind, listing.namespace, listing.version, at=at)
    for page in _pages([one.id for one in absent]):
        with transaction.atomic():
            bulk.plan_anew()
            locks.share_stream(listing.kind)
            ended = books.end(page, listing.version, _stream_of(listing), at)
        listing.counts["ended"] += ended
    return absent


def _begin_history(kind: Kind, holder: str | None = None) -> int:
    """Begins a history, if `holder` (None: whoever) holds the watcher's lease; answers its number.

    The lease is looked at last, for whoever waits with its row in hand keeps its holder from renewing it.
    """
    with transaction.atomic():
        locks.be_patient()
        locks.close_stream(kind)
        if holder is not None:
            watching.check_lease(holder)
        streams.begin_history(kind)
        return streams.of_kind(kind).history


def _stream_of(listing: Listing) -> Stream:
    """The stream as it is now. Overtaken where this list is no news any more."""
    stream = streams.of_kind(listing.kind)
    if stream.history != listing.history:
        raise Overtaken("a new history began while the list came in")
    listed = stream.listed_version(listing.namespace)
    if listing.version is not None and listing.version < listed:
        raise Overtaken(
            f"a list of version {listed} was applied while this one of version {listing.version} came in",
            version=listing.version,
            applied_version=listed,
        )
    return stream


def _absent(listing: Listing, known: Iterable[Known], history: int, new_history: bool) -> list[Known]:
    """What lives in the books, is not in the list, and is not newer than it."""
    if listing.ends_nothing or listing.version is None:
        return []
    return [
        one
        for one in known
        if one.is_alive
        and one.id not in listing.seen
        and (new_history or one.history < history or one.resource_version <= listing.version)
    ]


def _applied_version(listing: Listing, stream: Stream) -> int:
    """The highest version applied in the list's scope."""
    if not listing.namespace:
        return stream.applied_version
    applied = kinds.BOOKS[listing.kind].applied_version(listing.namespace, stream.history)
    return max(applied, stream.listed_version(listing.namespace))


def _check_version(version: int, applied_version: int) -> None:
    """A list older than what is applied in its scope is refused (decision 8)."""
    if version < applied_version:
        raise OlderThanApplied(
            f"the list is of version {version}, {applied_version} is applied already; "
            "?history=new begins a new history after the cluster was restored",
            version=version,
            applied_version=applied_version,
        )


def _check_share(
    absent: Sequence[Known], known: Iterable[Known], confirm: int | None, believed: frozenset[str] = NOBODY
) -> None:
    """A list that would end too much is refused unless the number is confirmed (decision 33).

    Those `believed` already do not count against it.
    """
    would_end = sum(one.counts for one in absent)
    total = sum(one.counts for one in known)
    allowed = max(FEW, total * SHARE_PERCENT // 100)
    doubtful = sum(one.counts for one in absent if one.id not in believed)
    if doubtful > allowed and confirm != would_end:
        raise TooManyAbsent(
            f"the list would end {would_end} of {total}; more than {allowed} must be confirmed "
            f"with ?confirm={would_end}",
            absent=frozenset(one.id for one in absent),
            would_end=would_end,
            known=total,
            allowed=allowed,
        )


def _result(listing: Listing, absent: Iterable[Known]) -> SnapshotResult:
    return SnapshotResult(
        listing.kind,
        listing.version,
        listing.counts["added"],
        listing.counts["changed"],
        listing.counts["unchanged"],
        listing.counts["ended"],
        sum(one.counts for one in absent),
        tuple(sorted(listing.rejected, key=lambda one: one.index)),
    )

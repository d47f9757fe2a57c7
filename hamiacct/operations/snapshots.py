"""Full lists: the truth for one kind at its version, behind guards (decisions 7, 8, 33).

The items are applied page by page like events. A last transaction, during which nobody applies events
of the kind, ends what the list does not hold and marks the version, so that older news of objects the
list did not hold are stale from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from django.db import connection, transaction

from hamiacct import config, models
from hamiacct.accounting.errors import Malformed, SnapshotRefused
from hamiacct.accounting.words import EventType, Kind, Outcome, PodState, ReservationState
from hamiacct.kube import fields, manifests, registration
from hamiacct.kube.manifests import Envelope, ListBody
from hamiacct.operations import locks, node_events, pod_events, quota_events, streams
from hamiacct.operations.inbox import Rejected
from hamiacct.operations.pod_events import Verdict
from hamiacct.operations.streams import Seen, Stream
from hamiacct.queries.fleet import STANDING

PAGE_ITEMS = 500
FEW = 20
SHARE_PERCENT = 20
SWEEP_LOCK_TIMEOUT = "30s"


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
    """What one page changed; `rejected` places count from the start of the list."""

    added: int
    changed: int
    unchanged: int
    rejected: tuple[Rejected, ...]


@dataclass(slots=True)
class Listing:
    """A full list that comes in pages: what it is of, and the identities it has shown so far."""

    kind: Kind
    version: int
    seen: set[str] = field(default_factory=set)


def begin(kind: Kind, version: int, *, new_history: bool = False, holder: str = "", at: datetime) -> Listing:
    """Begins a list of the whole cluster at this version. OlderThanApplied where newer things are applied.

    With `new_history` a history begins (decision 8) in the transaction in which `holder` is seen to hold the
    watcher's lease; LeaseLost where it does not.
    """
    raise NotImplementedError


def apply_page(
    listing: Listing, items: Sequence[object], *, seen: Iterable[str] = (), at: datetime
) -> PageCounts:
    """Applies the items of one page like events, in a transaction of its own.

    `seen` are the identities (`identity`) of items that the list holds and nobody needs to store.
    SnapshotRefused where a newer list or history overtook this one: then it must start over.
    """
    raise NotImplementedError


def finish(listing: Listing, *, confirmed: frozenset[str] | None = None, at: datetime) -> SnapshotResult:
    """Ends what no page of the list held. TooManyAbsent where that is too much to believe (decision 33).

    `confirmed` are the absent ones of an earlier complete list that was refused: what both do not hold ends.
    """
    raise NotImplementedError


class _Known(NamedTuple):
    """An object of the kind that the books know; `counts` is whether the guard counts its end."""

    id: str
    is_alive: bool
    counts: bool
    resource_version: int
    history: int


class _Item(NamedTuple):
    """An item whose envelope could be read, with its place in the list."""

    place: int
    id: str
    envelope: Envelope
    manifest: dict[str, object]


class _Books(Protocol):
    """How one kind is known, locked, read, applied and ended."""

    def known(self, namespace: str) -> list[_Known]: ...
    def id_of(self, envelope: Envelope) -> str: ...
    def parse(self, manifest: dict[str, object], at: datetime) -> object: ...
    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]: ...
    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int: ...


class _Pods:
    """Pods, by UID. The guard counts the charged ones; no list ends a hold that is not bound before it."""

    def known(self, namespace: str) -> list[_Known]:
        pods = models.Pod.objects.filter(namespace=namespace) if namespace else models.Pod.objects.all()
        holds = models.Reservation.objects.filter(state__in=STANDING)
        bound = dict(holds.filter(state=ReservationState.BOUND).values_list("pod_uid", "bound_version"))
        endless = set(holds.values_list("pod_uid", flat=True)) - bound.keys()
        known = pods.values_list("uid", "ended_by", "state", "resource_version", "history")
        return [
            _Known(
                uid,
                not ended_by and uid not in endless,
                not ended_by and uid not in endless and state != PodState.UNSCHEDULED,
                max(version, bound.get(uid, 0)),
                history,
            )
            for uid, ended_by, state, version, history in known
        ]

    def id_of(self, envelope: Envelope) -> str:
        return envelope.uid

    def parse(self, manifest: dict[str, object], at: datetime) -> object:
        return manifests.pod_from_manifest(manifest, config.vendors())

    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]:
        locks.take(locks.Space.POD_NAME, {locks.name_key(one.namespace, one.name) for one in seen})
        return pod_events.apply(seen, stream, at=at)

    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int:
        names = models.Pod.objects.filter(uid__in=ids).values_list("namespace", "name")
        locks.take(locks.Space.POD_NAME, {locks.name_key(*name) for name in names})
        return pod_events.end_absent(ids, version, stream, at=at)


class _Nodes:
    """Nodes, by name."""

    def known(self, namespace: str) -> list[_Known]:
        known = models.Node.objects.values_list("name", "deleted", "resource_version", "history")
        return [
            _Known(name, not deleted, not deleted, version, history)
            for name, deleted, version, history in known
        ]

    def id_of(self, envelope: Envelope) -> str:
        return envelope.name

    def parse(self, manifest: dict[str, object], at: datetime) -> object:
        return registration.node_from_manifest(manifest, config.vendors(), at, config.handshake_zone())

    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]:
        locks.take(locks.Space.NODE, {one.name for one in seen})
        return node_events.apply(seen, stream, at=at)

    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int:
        locks.take(locks.Space.NODE, ids)
        return node_events.forget(ids, version, stream, at=at)


class _Quotas:
    """ResourceQuotas, by namespace and name."""

    def known(self, namespace: str) -> list[_Known]:
        quotas = models.ResourceQuota.objects.all()
        if namespace:
            quotas = quotas.filter(namespace=namespace)
        known = quotas.values_list("namespace", "name", "deleted", "resource_version", "history")
        return [
            _Known(locks.name_key(space, name), not deleted, not deleted, version, history)
            for space, name, deleted, version, history in known
        ]

    def id_of(self, envelope: Envelope) -> str:
        return locks.name_key(envelope.namespace, envelope.name)

    def parse(self, manifest: dict[str, object], at: datetime) -> object:
        return manifests.quota_from_manifest(manifest, config.vendors())

    def apply(self, seen: Sequence[Seen], stream: Stream, *, at: datetime) -> list[Verdict]:
        locks.take(locks.Space.NAMESPACE, {one.namespace for one in seen})
        return quota_events.apply(seen, stream, at=at)

    def end(self, ids: Sequence[str], version: int, stream: Stream, at: datetime) -> int:
        names = {tuple(id_.split("/", 1)) for id_ in ids}
        namespaces = {namespace for namespace, _ in names}
        locks.take(locks.Space.NAMESPACE, namespaces)
        rows = models.ResourceQuota.objects.filter(namespace__in=namespaces)
        chosen = [row.pk for row in rows if (row.namespace, row.name) in names]
        return quota_events.forget(chosen, version, stream, at=at)


_BOOKS: dict[Kind, _Books] = {Kind.POD: _Pods(), Kind.NODE: _Nodes(), Kind.QUOTA: _Quotas()}


@dataclass(frozen=True, slots=True)
class _List:
    """A list whose envelopes were read. `ends_nothing` where an item without an identity may be anything."""

    kind: Kind
    namespace: str
    version: int | None
    items: list[_Item]
    seen: set[str]
    ends_nothing: bool
    rejected: list[Rejected] = field(default_factory=list)


def apply(
    listing: ListBody,
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
    the books complete afterwards.
    """
    read = _read(listing, namespace)
    _check_wholeness(listing, read, new_history)
    if dry_run:
        return _only_count(read, new_history=new_history, at=at)
    return _apply(read, confirm=confirm, new_history=new_history, complete=complete, at=at)


def declare_complete(*, at: datetime) -> None:
    """The books are complete from now on, fed by events alone (decision 25)."""
    models.Feed.objects.update(declared_complete_at=at)


def _read(listing: ListBody, namespace: str) -> _List:
    """The items by identity. One that cannot be read but has an identity counts as seen."""
    kind = Kind(listing.kind)
    if kind is Kind.NODE and namespace:
        raise Malformed("nodes are in no namespace: their list is of the whole cluster", "/query/namespace")
    books = _BOOKS[kind]
    items: list[_Item] = []
    seen: set[str] = set()
    rejected: list[Rejected] = []
    ends_nothing = False
    for index, manifest in enumerate(listing.items):
        try:
            envelope = manifests.envelope({"type": EventType.MODIFIED, "object": manifest})
        except Malformed as fault:
            pointer = f"/items/{index}{fault.pointer.removeprefix('/object')}"
            rejected.append(Rejected(index, fault.code, pointer, fault.detail))
            identity = _identity_of_unreadable(kind, manifest)
            ends_nothing = ends_nothing or not identity
            seen.add(identity)
            continue
        identity = books.id_of(envelope)
        seen.add(identity)
        if namespace and envelope.namespace != namespace:
            detail = f"is in {envelope.namespace}, the list is of {namespace} alone"
            rejected.append(Rejected(index, Malformed.code, f"/items/{index}/metadata/namespace", detail))
            ends_nothing = True  # so it is not the list of this namespace that it is said to be
            continue
        items.append(_Item(index, identity, envelope, manifests.keep(kind, manifest, config.vendors())))
    version = listing.version
    if version is None and items:
        version = max(item.envelope.resource_version for item in items)
    return _List(kind, namespace, version, items, seen, ends_nothing, rejected)


def _identity_of_unreadable(kind: Kind, manifest: object) -> str:
    """The identity of an item whose envelope cannot be read, as far as it shows one; "" otherwise."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not isinstance(metadata, dict):
        return ""
    uid, name, namespace = metadata.get("uid"), metadata.get("name"), metadata.get("namespace")
    if kind is Kind.POD:
        return uid if isinstance(uid, str) else ""
    if not isinstance(name, str) or not name:
        return ""
    if kind is Kind.NODE:
        return name
    space = namespace if isinstance(namespace, str) and namespace else fields.DEFAULT_NAMESPACE
    return locks.name_key(space, name)


def _check_wholeness(listing: ListBody, read: _List, new_history: bool) -> None:
    """Refuses half lists, and histories begun by a list that cannot begin one."""
    more = listing.meta.get("remainingItemCount")
    if listing.meta.get("continue") or (more is not None and more != 0):
        raise SnapshotRefused(
            "the list is only a part: it has a continue token or remaining items", remaining=more
        )
    if new_history and (listing.version is None or read.namespace):
        raise SnapshotRefused("only a list of the whole cluster with a version of its own begins a history")


def _only_count(read: _List, *, new_history: bool, at: datetime) -> SnapshotResult:
    """What the list would change; nothing is written, nothing is locked, and only its age is judged."""
    books = _BOOKS[read.kind]
    known = books.known(read.namespace)
    stream = streams.of_kind(read.kind)
    if not new_history:
        _check_version(read, known, stream)
    absent = _absent(read, known, stream, new_history)
    counts: Counter[str] = Counter(ended=len(absent))
    by_id = {one.id: one for one in known}
    for item in read.items:
        mine = by_id.get(item.id)
        is_old = mine is not None and not new_history and mine.history == stream.history
        if is_old and mine is not None and item.envelope.resource_version <= mine.resource_version:
            counts["unchanged"] += 1
            continue
        try:
            books.parse(item.manifest, at)
        except Malformed as fault:
            read.rejected.append(
                Rejected(item.place, fault.code, f"/items/{item.place}{fault.pointer}", fault.detail)
            )
            continue
        counts["changed" if mine is not None and mine.is_alive else "added"] += 1
    return _result(read, counts, absent)


def _result(read: _List, counts: Counter[str], absent: Iterable[_Known]) -> SnapshotResult:
    return SnapshotResult(
        read.kind,
        read.version,
        counts["added"],
        counts["changed"],
        counts["unchanged"],
        counts["ended"],
        sum(one.counts for one in absent),
        tuple(sorted(read.rejected, key=lambda one: one.index)),
    )


def _apply(
    read: _List, *, confirm: int | None, new_history: bool, complete: bool, at: datetime
) -> SnapshotResult:
    known = _BOOKS[read.kind].known(read.namespace)
    stream = streams.of_kind(read.kind)
    if not new_history:
        _check_version(read, known, stream)
    absent = _absent(read, known, stream, new_history)
    _check_share(absent, known, confirm)
    if new_history:
        with transaction.atomic():
            locks.close_stream(read.kind)
            streams.begin_history(read.kind)
            stream = streams.of_kind(read.kind)
    counts: Counter[str] = Counter()
    alive = {one.id for one in known if one.is_alive}
    ordered = sorted(read.items, key=lambda item: (item.envelope.namespace, item.envelope.name))
    for start in range(0, len(ordered), PAGE_ITEMS):
        _apply_page(read, ordered[start : start + PAGE_ITEMS], stream, alive, counts, at=at)
    if read.version is not None:
        gone = _mark(read, stream, absent, confirm, at=at)
        counts["ended"] = sum(
            _end_page(read, gone[start : start + PAGE_ITEMS], stream, at=at)
            for start in range(0, len(gone), PAGE_ITEMS)
        )
    if complete:
        declare_complete(at=at)
    return _result(read, counts, absent)


def _apply_page(
    read: _List, page: Sequence[_Item], stream: Stream, alive: set[str], counts: Counter[str], *, at: datetime
) -> None:
    with transaction.atomic():
        locks.share_stream(read.kind)
        seen = [_seen(item, read, stream) for item in page]
        verdicts = _BOOKS[read.kind].apply(seen, stream, at=at)
        applied = []
        for item, verdict in zip(page, verdicts, strict=True):
            if verdict.outcome is Outcome.REFUSED:
                read.rejected.append(
                    Rejected(item.place, Malformed.code, f"/items/{item.place}", verdict.detail)
                )
            elif verdict.outcome is Outcome.APPLIED:
                counts["changed" if item.id in alive else "added"] += 1
                applied.append(item.envelope.resource_version)
            else:
                counts["unchanged"] += 1
        streams.advance(read.kind, applied)


def _seen(item: _Item, read: _List, stream: Stream) -> Seen:
    return Seen(
        EventType.MODIFIED,
        item.envelope.uid,
        item.envelope.namespace,
        item.envelope.name,
        item.envelope.resource_version,
        stream.history,
        item.manifest,
        list_version=read.version or 0,
    )


def _mark(
    read: _List, stream: Stream, judged: Iterable[_Known], confirm: int | None, *, at: datetime
) -> list[str]:
    """Marks the list's version while nobody applies events of the kind; answers what is to be ended.

    From here on older news of objects the list did not hold are stale. What is to be ended is ended page
    by page afterwards; if that is cut short, the same list sent again ends the rest. The guard looks again
    only if more would end than was `judged`: of those, the list's own items may have replaced some.
    """
    assert read.version is not None
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [SWEEP_LOCK_TIMEOUT])
        locks.close_stream(read.kind)
        known = _BOOKS[read.kind].known(read.namespace)
        absent = _absent(read, known, stream, False)
        if not {one.id for one in absent} <= {one.id for one in judged}:
            _check_share(absent, known, confirm)
        if not read.ends_nothing:
            streams.mark_listed(read.kind, read.namespace, read.version, at=at)
        streams.advance(read.kind, [read.version])
    return [one.id for one in absent]


def _end_page(read: _List, ids: Sequence[str], stream: Stream, *, at: datetime) -> int:
    """Ends those of the objects that nothing newer was heard of since; answers how many."""
    assert read.version is not None
    with transaction.atomic():
        locks.share_stream(read.kind)
        return _BOOKS[read.kind].end(ids, read.version, stream, at)


def _absent(read: _List, known: Iterable[_Known], stream: Stream, new_history: bool) -> list[_Known]:
    """What lives in the books, is not in the list, and is not newer than it."""
    if read.ends_nothing or read.version is None:
        return []
    return [
        one
        for one in known
        if one.is_alive
        and one.id not in read.seen
        and (new_history or one.history < stream.history or one.resource_version <= read.version)
    ]


def _check_version(read: _List, known: Iterable[_Known], stream: Stream) -> None:
    """A list older than what is applied in its scope is refused (decision 8)."""
    if read.version is None:
        return
    applied = stream.applied_version
    if read.namespace:
        applied = max((one.resource_version for one in known if one.history == stream.history), default=0)
        applied = max(applied, stream.listed_version(read.namespace))
    if read.version < applied:
        raise SnapshotRefused(
            f"the list is of version {read.version}, {applied} is applied already; "
            "?history=new begins a new history after the cluster was restored",
            version=read.version,
            applied_version=applied,
        )


def _check_share(absent: Iterable[_Known], known: Iterable[_Known], confirm: int | None) -> None:
    """A list that would end too much is refused unless the number is confirmed (decision 33)."""
    would_end = sum(one.counts for one in absent)
    total = sum(one.counts for one in known)
    allowed = max(FEW, total * SHARE_PERCENT // 100)
    if would_end > allowed and confirm != would_end:
        raise SnapshotRefused(
            f"the list would end {would_end} of {total}; more than {allowed} must be confirmed "
            f"with ?confirm={would_end}",
            would_end=would_end,
            known=total,
            allowed=allowed,
        )

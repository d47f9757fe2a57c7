"""The inbox: events are stored before they are answered, and applied one name at a time.

Whoever applies holds the lock of the names it works on, so a pod's events are never applied by two at
once, lowest version first among those waiting (decision 32). Applying an event and settling it are one
transaction: killed at any line, nothing is lost and nothing is doubled.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

import orjson
from django.db import OperationalError, transaction
from django.db.models import F, QuerySet

from hamiacct import announcements, config, models
from hamiacct.accounting.errors import Conflict, Malformed, NotFound
from hamiacct.accounting.words import EventState, EventType, Kind, Outcome
from hamiacct.kube import manifests
from hamiacct.operations import bulk, locks, node_events, pod_events, quota_events, streams
from hamiacct.operations.pod_events import Verdict
from hamiacct.operations.streams import Seen, Stream
from hamiacct.queries.statements import Statement

log = logging.getLogger(__name__)

# So many names are applied in one transaction, and of each as many events as leave it at most so many in all.
BATCH_NAMES = 500
BATCH_EVENTS = 2000
# Once so many bytes of objects are reached, the rest is for the next: few pods may name very many devices.
BATCH_BYTES = 4 * 2**20
# As far as a drain looks ahead, so that several find names of their own.
LOOK_AT_EVENTS = 4 * BATCH_NAMES
MAX_DETAIL = 1000
# Somebody else holds a lock for too long, or two waited for each other: nothing is wrong with the events.
BUSY_STATES = frozenset(("55P03", "40P01", "40001"))
KINDS = frozenset(kind.value for kind in Kind)
TYPES = {type_.value: type_ for type_ in EventType}


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event without a readable envelope: not stored. `pointer` points into the request."""

    index: int
    code: str
    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was taken. `stored` pairs the index in the call with the id of the stored event."""

    accepted: int
    ignored: int
    rejected: tuple[Rejected, ...]
    stored: tuple[tuple[int, int], ...]


class _Name(NamedTuple):
    """What a lock is taken for: a kind, and a namespaced name of it."""

    kind: str
    namespace: str
    name: str


def receive(events: Sequence[object], *, at: datetime) -> Receipt:
    """Stores watch events; one bad one never loses the others (decisions 11 and 32).

    Each event is the parsed JSON of `{"type": ..., "object": ...}`. Kinds nobody reads and bookmarks
    are ignored.
    """
    rejected: list[Rejected] = []
    indexes: list[int] = []
    stored: list[dict[str, object]] = []
    ignored = 0
    histories, vendors = streams.histories(), config.vendors()
    for index, event in enumerate(events):
        try:
            envelope = manifests.envelope(event)
        except Malformed as fault:
            pointer = f"/events/{index}{fault.pointer}"
            rejected.append(Rejected(index, fault.code, pointer, fault.detail))
            continue
        if envelope.kind not in KINDS or envelope.type == EventType.BOOKMARK:
            ignored += 1
            continue
        assert isinstance(event, dict)
        body = manifests.keep(envelope.kind, event["object"], vendors)
        stored.append({**envelope._asdict(), "history": histories[envelope.kind], "body": body})
        indexes.append(index)
    ids = [event_id for (event_id,) in _STORE.rows(at, bulk.text(stored))] if stored else []
    return Receipt(len(stored), ignored, tuple(rejected), tuple(zip(indexes, ids, strict=True)))


# Ids are drawn in the order of the call. A text of JSON is taken apart anew for every column; `jsonb` is not.
_STORE = Statement(
    "hamiacct_inbox_store",
    "timestamptz, jsonb",
    """
INSERT INTO hamiacct_event (received_at, kind, type, namespace, name, uid, resource_version, history, body,
    state, replayed, attempts, detail)
SELECT $1, kind, type, namespace, name, uid, resource_version, history, body, 'waiting', false, 0, ''
FROM jsonb_populate_recordset(NULL::hamiacct_event, $2)
RETURNING id
""",
)


def drain(*, at: datetime) -> int:
    """Applies what waits until nothing is left that can be applied now; answers how many it settled.

    Drains run side by side: what another holds is passed over for the names behind it. Those are waited
    for at the end: their events may have come after it looked.
    """
    settled = 0
    failed: set[_Name] = set()
    while True:
        names = [name for name in _waiting_names() if name not in failed]
        if not names:
            return settled
        chunks = [names[start : start + BATCH_NAMES] for start in range(0, len(names), BATCH_NAMES)]
        done = sum(_drain_names(chunk, failed, at=at, wait=False) for chunk in chunks)
        if not done and set(names) - failed:
            done = _drain_names(chunks[0], failed, at=at, wait=True)
        settled += done


def is_much() -> bool:
    """Whether more waits than one batch takes, so that another drain would find something to do."""
    return _by_age()[BATCH_NAMES:].exists()


def settle(event_ids: Sequence[int], *, at: datetime) -> bool:
    """Applies these events, and what waits for the same names, in the request (no broker).

    False where some still wait because the books were busy: they are applied by the next who tries.
    """
    failed: set[_Name] = set()
    for start in range(0, len(event_ids), BATCH_NAMES):
        chosen = _waiting().filter(pk__in=event_ids[start : start + BATCH_NAMES])
        done = 1
        while done:  # where a name has more events than a batch takes, the rest of them come next
            waiting = chosen.values_list("kind", "namespace", "name").distinct()
            names = {_Name(*name) for name in waiting} - failed
            done = _drain_names(sorted(names), failed, at=at, wait=True)
    return not failed or not _waiting().filter(pk__in=event_ids, attempts=0).exists()


def _waiting() -> QuerySet[models.Event]:
    return models.Event.objects.filter(state=EventState.WAITING)


def _by_age() -> QuerySet[models.Event]:
    """Those that wait longest first, those that failed before last; `attempts` leads to its index."""
    return _waiting().filter(attempts__gte=0).order_by("attempts", "id")


def _waiting_names() -> list[_Name]:
    """The names of the events that wait longest."""
    oldest = _by_age().values_list("kind", "namespace", "name")[:LOOK_AT_EVENTS]
    return [_Name(*name) for name in dict.fromkeys(oldest)]


def _drain_names(names: Iterable[_Name], failed: set[_Name], *, at: datetime, wait: bool) -> int:
    """Applies what waits for these names, nodes and quotas before pods; answers how many it settled."""
    names = list(names)
    return sum(
        _drain_batch(kind, [name for name in names if name.kind == kind], failed, at=at, wait=wait)
        for kind in (Kind.NODE, Kind.QUOTA, Kind.POD)
    )


def _drain_batch(kind: Kind, names: Sequence[_Name], failed: set[_Name], *, at: datetime, wait: bool) -> int:
    """One transaction for all the names of a kind.

    A name whose events cannot be applied because of a fault of ours is tried alone, then left waiting,
    so that it holds up nobody else.
    """
    if not names:
        return 0
    try:
        with transaction.atomic():
            return _drain_locked(kind, names, at=at, wait=wait)
    except OperationalError as fault:
        if getattr(fault.__cause__, "sqlstate", None) in BUSY_STATES:
            log.info("events of %d names wait for the next sweep: %s", len(names), fault)
            failed.update(names)
            return 0
        if not bulk.is_too_much(fault):
            raise
        return _drain_apart(kind, names, failed, fault, at=at, wait=wait)
    except Exception as fault:  # noqa: BLE001  # whatever it is, it must not hold up other names
        return _drain_apart(kind, names, failed, fault, at=at, wait=wait)


def _drain_apart(
    kind: Kind, names: Sequence[_Name], failed: set[_Name], fault: Exception, *, at: datetime, wait: bool
) -> int:
    """Each of the names by itself; what waits for a single one goes on waiting, with what was the matter."""
    if len(names) > 1:
        return sum(_drain_batch(kind, [name], failed, at=at, wait=wait) for name in names)
    log.error("events of %s %s/%s could not be applied", *names[0], exc_info=fault)
    failed.update(names)
    _waiting().filter(**names[0]._asdict()).update(
        attempts=F("attempts") + 1, detail=f"{type(fault).__name__}: {fault}"[:MAX_DETAIL]
    )
    return 0


def _drain_locked(kind: Kind, names: Sequence[_Name], *, at: datetime, wait: bool) -> int:
    """Applies and settles what waits for those of the names whose locks are to be had."""
    bulk.plan_anew()
    locks.share_stream(kind)
    work = _WORK[kind]
    by_key: dict[str, list[_Name]] = {}
    for name in names:
        by_key.setdefault(work.lock_key(name), []).append(name)
    if wait:
        locks.take(work.space, by_key)
        taken = set(by_key)
    else:
        taken = locks.take_free(work.space, by_key)
    events = _events_of(kind, [name for key in sorted(taken) for name in by_key[key]])
    if not events:
        return 0
    stream = streams.of_kind(kind)
    verdicts = work.apply(
        [event.seen for event in events], stream, at=at, settle=partial(_settle, events, at=at)
    )
    streams.advance(kind, _applied_versions(events, verdicts, stream))
    announcements.tell(announcements.events_settled, _settled(kind, events, verdicts))
    return len(events)


def _settled(
    kind: Kind, events: Sequence[_Waiting], verdicts: Sequence[Verdict]
) -> list[announcements.Settled]:
    """How many events came to what end; those of one call were stored at one moment."""
    ends = Counter(
        (verdict.outcome, event.received_at) for event, verdict in zip(events, verdicts, strict=True)
    )
    return [announcements.Settled(kind, *end, number) for end, number in ends.items()]


class _Work(NamedTuple):
    """What is locked for a name of a kind, and who applies its events.

    Who applies them says what became of them, to be settled, before it takes what all wait for: the locks
    of what is added to.
    """

    space: locks.Space
    lock_key: Callable[[_Name], str]
    apply: Callable[..., list[Verdict]]


_WORK: dict[Kind, _Work] = {
    Kind.POD: _Work(
        locks.Space.POD_NAME, lambda name: locks.name_key(name.namespace, name.name), pod_events.apply
    ),
    Kind.NODE: _Work(locks.Space.NODE, lambda name: name.name, node_events.apply),
    Kind.QUOTA: _Work(locks.Space.NAMESPACE, lambda name: name.namespace, quota_events.apply),
}


class _Waiting(NamedTuple):
    """An event whose name is locked."""

    id: int
    received_at: datetime
    seen: Seen


# Name by name, by the index: where much waits, all of it would be read for each batch otherwise.
_WAITING = Statement(
    "hamiacct_inbox_waiting",
    "text, jsonb, int, int",
    """
SELECT id, received_at, type, uid, namespace, name, resource_version, history, body, replayed
FROM (
    SELECT event.*, sum(octet_length(event.body)) OVER (
        ORDER BY event.namespace, event.name, event.resource_version, event.id ROWS UNBOUNDED PRECEDING
    ) - octet_length(event.body) AS bytes_before
    FROM jsonb_array_elements($2) AS key, LATERAL (
        SELECT id, received_at, type, uid, namespace, name, resource_version, history, body::text AS body,
            replayed
        FROM hamiacct_event
        WHERE state = 'waiting' AND kind = $1 AND namespace = key->>0 AND name = key->>1
        ORDER BY resource_version, id LIMIT $3) AS event
) AS sized
WHERE bytes_before < $4
ORDER BY namespace, name, resource_version, id
""",
)


def _events_of(kind: Kind, names: Sequence[_Name]) -> list[_Waiting]:
    """What waits for these names, per name by version, then by arrival; of many the first ones."""
    if not names:
        return []
    keys = list({(name.namespace, name.name) for name in names})
    return [
        _Waiting(
            event_id,
            received_at,
            Seen(
                TYPES[type_],
                uid,
                namespace,
                name,
                version,
                history,
                orjson.loads(body),
                replayed=replayed,
            ),
        )
        for event_id, received_at, type_, uid, namespace, name, version, history, body, replayed in (
            _WAITING.rows(kind.value, bulk.text(keys), max(1, BATCH_EVENTS // len(keys)), BATCH_BYTES)
        )
    ]


_SETTLE = Statement(
    "hamiacct_inbox_settle",
    "timestamptz, jsonb",
    """
UPDATE hamiacct_event
SET state = verdict->>1, rule = verdict->>2, detail = verdict->>3, settled_at = $1
FROM jsonb_array_elements($2) AS verdict
WHERE id = (verdict->>0)::bigint RETURNING 1
""",
)


def _settle(events: Sequence[_Waiting], verdicts: Sequence[Verdict], *, at: datetime) -> None:
    """Writes down what became of the events, in the transaction that applied them."""
    written = [
        (event.id, verdict.outcome, verdict.rule, verdict.detail)
        for event, verdict in zip(events, verdicts, strict=True)
    ]
    _SETTLE.rows(at, bulk.text(written))


def _applied_versions(events: Sequence[_Waiting], verdicts: Sequence[Verdict], stream: Stream) -> list[int]:
    return [
        event.seen.resource_version
        for event, verdict in zip(events, verdicts, strict=True)
        if verdict.outcome is Outcome.APPLIED and event.seen.history == stream.history
    ]


def replay(event_id: int, *, at: datetime) -> None:
    """Sends a refused event through again, exempt from staleness (decision 11).

    NotFound where there is no such event, Conflict where it was not refused.
    """
    _refused(event_id).update(state=EventState.WAITING, replayed=True, settled_at=None)
    settle([event_id], at=at)


def dismiss(event_id: int, *, at: datetime) -> None:
    """Lays a refused event aside for good; NotFound and Conflict as in `replay`."""
    _refused(event_id).update(state=EventState.DISMISSED, settled_at=at)


def _refused(event_id: int) -> QuerySet[models.Event]:
    found = models.Event.objects.filter(pk=event_id)
    refused = found.filter(state=EventState.REFUSED)
    if not refused.exists():
        if not found.exists():
            raise NotFound(f"no event {event_id}")
        raise Conflict(f"event {event_id} is not refused")
    return refused

"""What claims and releases read under their locks, and the rows they write: a few statements for any number.

A statement sees what was committed when it began, so what a lock keeps still is read by the statement after
the one that took the lock. What several of one transaction take and give back is followed in memory, on the
`Ground` that they share: so each is judged as if it had come after those before it had been committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from django.conf import settings
from django.db import connection

from hamiacct import config, models, rows
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.lifecycle import Decision
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import DeviceKey, Pod, QuotaFacts
from hamiacct.accounting.quota import selects
from hamiacct.accounting.words import ChargedAs, Kind, PodState, ReservationState, Rule, SubjectKind
from hamiacct.operations import locks
from hamiacct.operations.findings import UsedDevice
from hamiacct.operations.ledger import Entry, Locked, Place, Quota
from hamiacct.queries import fits, fleet, moments
from hamiacct.queries.moments import Moment, Own
from hamiacct.queries.statements import Asked, Statement, in_turn
from hamiacct.rows import DeviceRow

# --- the pods --------------------------------------------------------------------------------------

_NAMES = Statement(
    "hamiacct_claim_names",
    "text[]",
    "SELECT pod_uid, namespace, name FROM hamiacct_reservation WHERE pod_uid = ANY($1)",
)


def names_of(uids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The namespaces and names of pods that once had a hold; they are the same for ever."""
    return {uid: (namespace, name) for uid, namespace, name in _NAMES.rows(list(uids))} if uids else {}


class Hold(NamedTuple):
    """The last hold of a pod."""

    node: str
    state: ReservationState


@dataclass(frozen=True, slots=True)
class Known:
    """A pod under the lock of its name; `row` and `hold` are None where there is none.

    `own` is what the pod is charged now, `entries` the same as it is stored. `has_findings` says that
    something about it is odd.
    """

    row: models.Pod | None = None
    hold: Hold | None = None
    own: Own = moments.NOTHING_OWN
    entries: Mapping[DeviceKey, Entry] = field(default_factory=dict)
    has_findings: bool = False

    @property
    def is_held(self) -> bool:
        """Whether a hold stands."""
        return self.hold is not None and self.hold.state.stands


@dataclass(frozen=True, slots=True)
class Books:
    """The pods asked about, and how far the books can be relied on.

    `history` is the pods' history of versions. `seen` has neither quotas nor a pod of its own. `choice` is
    what candidates are chosen from, where that was asked; `now` the time, where a name was locked.
    """

    history: int
    pods: Mapping[str, Known]
    seen: Moment
    choice: Choice | None
    now: datetime | None


# In the order in which a model is made of a row.
_FIELDS = [field.attname for field in models.Pod._meta.concrete_fields]

_ENTRIES = """
    (SELECT json_agg(json_build_array(entry.pod_id, device.node, device.uuid, entry.vendor,
            entry.slots, entry.memory_mib, entry.cores, entry.core_set, entry.quota_cores))::text
        FROM hamiacct_usageentry AS entry JOIN hamiacct_device AS device ON device.id = entry.device_id
        WHERE entry.pod_id = ANY({uids}))
"""  # a column
# Whoever changes a pod holds the lock of its name; its rows are locked for those who only look at the clock.
_KNOWN = Statement(
    "hamiacct_claims_known",
    "text[], text, text, timestamptz",
    f"""
WITH pod AS MATERIALIZED (
    SELECT * FROM hamiacct_pod WHERE uid = ANY($1) ORDER BY uid FOR NO KEY UPDATE
), hold AS MATERIALIZED (
    SELECT pod_uid, node, state FROM hamiacct_reservation WHERE pod_uid = ANY($1)
    ORDER BY pod_uid FOR NO KEY UPDATE
)
SELECT
    (SELECT json_agg(json_build_array({", ".join(_FIELDS)}))::text FROM pod),
    (SELECT json_agg(json_build_array(pod_uid, node, state))::text FROM hold),
    {_ENTRIES.format(uids="$1")},
    (SELECT json_agg(DISTINCT subject)::text FROM hamiacct_finding
        WHERE subject_kind = $3 AND subject = ANY($1)),
    feed.history,
    {moments.RELIABILITY.format(at="$4")}
FROM hamiacct_feed AS feed WHERE feed.kind = $2
""",  # noqa: S608  # the columns are ours
)


def read(
    uids: Sequence[str],
    *,
    at: datetime,
    name: tuple[str, str] | None = None,
    namespaces: Collection[str] = (),
) -> Books:
    """The pods as the books have them, locked. The caller holds the locks of their names.

    Where there is one alone its `name` may be locked here. Where candidates are chosen for some of them,
    `namespaces` are those of all.
    """
    asked: list[Asked] = [locks.of_pod(*name)] if name else []
    asked.append((_KNOWN, (list(uids), Kind.POD.value, SubjectKind.POD.value, at)))
    since = fleet.followed()
    if namespaces:
        asked.append((_CHOICE, (sorted(namespaces), *since, fleet.vendors_of_sets())))
    answers = [row for (row,) in in_turn(*asked)]
    now = answers.pop(0)[-1] if name else None
    choice = Choice(since, answers.pop()) if namespaces else None
    pods, holds, entries, odd, history, *state = answers.pop()
    row_of = {
        values[0]: models.Pod.from_db(connection.alias, _FIELDS, values)
        for values in orjson.loads(pods or "[]")
    }
    hold_of = {uid: Hold(node, ReservationState(stands)) for uid, node, stands in orjson.loads(holds or "[]")}
    entries_of = _by_pod(entries)
    odd_uids = frozenset(orjson.loads(odd or "[]"))
    known = {}
    for uid in uids:
        row, mine = row_of.get(uid), entries_of.get(uid, {})
        own = _own_of(row, mine) if row is not None else moments.NOTHING_OWN
        known[uid] = Known(row, hold_of.get(uid), own, mine, uid in odd_uids)
    is_complete, waiting_since, has_due_holds, has_devices = state
    is_complete = settings.HAMIACCT.trust_events or bool(is_complete)
    seen = Moment(at, is_complete, waiting_since, has_due_holds, has_devices, (), moments.NOTHING_OWN)
    return Books(history, known, seen, choice, now)


def _by_pod(entries: str | None) -> dict[str, dict[DeviceKey, Entry]]:
    """What `_ENTRIES` answers."""
    found: dict[str, dict[DeviceKey, Entry]] = defaultdict(dict)
    for uid, node, uuid, vendor, *sizes, quota_cores in orjson.loads(entries or "[]"):
        found[uid][DeviceKey(node, uuid, vendor)] = Entry(Amount(*sizes), quota_cores)
    return found


def _own_of(row: models.Pod, entries: Mapping[DeviceKey, Entry]) -> Own:
    held = {key: entry.amount for key, entry in entries.items()}
    return Own(rows.quota_facts_of(row), Usage(held), _in_quotas(entries.items()))


def _in_quotas(entries: Iterable[tuple[DeviceKey, Entry]]) -> Usage[str]:
    """What quotas see of entries, by vendor."""
    found: dict[str, Amount] = {}
    for key, entry in entries:
        counted = Amount(0, entry.amount.memory_mib, entry.quota_cores)
        found[key.vendor] = found[key.vendor].plus(counted) if key.vendor in found else counted
    return Usage(found)


# --- what is chosen from -----------------------------------------------------------------------------

_CHOICE = Statement(
    "hamiacct_claims_choice",
    f"text[], {fleet.TAIL_TYPES}",
    f"""
SELECT
    (SELECT json_agg(json_build_array(quota.namespace, quota.name, quota.limits, quota.requirements,
            (SELECT json_object_agg(vendor, json_build_array(memory_mib, cores))
                FROM hamiacct_quotausage WHERE quota_id = quota.id)) ORDER BY quota.name)::text
        FROM hamiacct_resourcequota AS quota WHERE quota.namespace = ANY($1) AND NOT quota.deleted),
    {fleet.tail_columns(2)}
FROM hamiacct_ledgerhead AS head
""",  # noqa: S608  # the columns are ours
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What became of the fleet since two numbers, and the namespaces' quotas, as `_CHOICE` answers it."""

    since: tuple[int, int]
    row: Sequence[Any]

    def open(self) -> tuple[fleet.Offer, Ground]:
        """The whole fleet, and the quotas."""
        quotas, *tail = self.row
        offer = fleet.current(fleet.Tail.of(self.since, tail))
        return offer, Ground(offer.node, _by_namespace(orjson.loads(quotas or "[]")))


def _by_namespace(quotas: Iterable[Sequence[Any]]) -> dict[str, list[moments.Quota]]:
    found: dict[str, list[moments.Quota]] = defaultdict(list)
    for namespace, *quota in quotas:
        found[namespace].append(moments.quota_of(quota))
    return found


@dataclass(slots=True)
class Ground:
    """Nodes and quotas as those leave them who were here before: what the next one is judged on.

    `changed` are the nodes on which something was taken or given back.
    """

    node_of: Callable[[str], FitNode | None]
    quotas: dict[str, list[moments.Quota]]
    changed: dict[str, FitNode] = field(default_factory=dict)

    def node(self, name: str) -> FitNode | None:
        """A node as it is by now; None where there is none."""
        return self.changed.get(name) or self.node_of(name)

    def moment(self, seen: Moment, namespace: str, own: Own, tail: fleet.Tail | None = None) -> Moment:
        """The state of the books for one pod's question."""
        return replace(seen, quotas=tuple(self.quotas.get(namespace, ())), own=own, tail=tail)

    def move(self, namespace: str, own: Own, held: Held, facts: QuotaFacts) -> None:
        """A pod that was charged `own` is charged `held` from now on, and quotas see these facts of it."""
        entries: dict[DeviceKey, Entry] = {}
        for name in {key.node for key in (*own.held, *held)}:
            node = self.node(name)
            if node is None:
                continue
            totals = {device.uuid: device.total.cores for device in node.devices}
            for key, amount in held.items():
                if key.node == name:
                    vendor = config.vendor_by_key()[key.vendor]
                    entries[key] = Entry(amount, vendor.quota_cores_of(amount.cores, totals.get(key.uuid, 0)))
            self.changed[name] = fits.used_otherwise(fits.without(node, own.held), held, Amount.plus)
        if namespace in self.quotas:
            after = _in_quotas(entries.items())
            self.quotas[namespace] = [_moved(quota, own, after, facts) for quota in self.quotas[namespace]]


def _moved(quota: moments.Quota, own: Own, after: Usage[str], facts: QuotaFacts) -> moments.Quota:
    """The quota once a pod that counted as `own` counts as `after`."""
    gone = own.in_quotas if selects(quota.requirements, own.facts) else Usage[str]()
    come = after if selects(quota.requirements, facts) else Usage[str]()
    usage = dict(quota.usage)
    for vendor in {*gone, *come}:
        memory_mib, cores = usage.get(vendor, (0, 0))
        change = come[vendor].minus(gone[vendor])
        usage[vendor] = (memory_mib + change.memory_mib, cores + change.cores)
    return replace(quota, usage=usage)


# --- what is locked ----------------------------------------------------------------------------------

# The rows first, then the namespaces: the columns of an answer are computed from left to right. Devices that
# a pod holds are locked wherever they are; those of a node are offered only while it registers them.
_DEVICES = Statement(
    "hamiacct_claims_devices",
    "text[], text[], int, int[]",
    """
WITH device AS MATERIALIZED (
    SELECT node, id, uuid, vendor, slots_total, memory_mib_total, cores_total, slots_used, memory_mib_used,
        cores_used, index, "order", model, numa, mode, healthy, cordoned, mig_profiles, custom,
        registered, ever_registered
    FROM hamiacct_device WHERE id = ANY (ARRAY(
        SELECT id FROM hamiacct_device WHERE node = ANY($1) AND registered
        UNION
        SELECT device_id FROM hamiacct_usageentry WHERE pod_id = ANY($2)))
    ORDER BY node, uuid FOR NO KEY UPDATE
)
SELECT
    (SELECT json_agg(json_build_array(node, id, uuid, vendor, slots_total, memory_mib_total, cores_total,
        slots_used, memory_mib_used, cores_used, index, "order", model, numa, mode, healthy, cordoned,
        mig_profiles, custom, registered, ever_registered))::text FROM device),
    (SELECT count(pg_advisory_xact_lock($3, number)) FROM unnest($4) AS number)
""",
)

_REST = Statement(
    "hamiacct_claims_rest",
    "text[], text[], text[], text[]",
    f"""
WITH quota AS MATERIALIZED (
    SELECT id, namespace, name, limits, requirements FROM hamiacct_resourcequota
    WHERE namespace = ANY($2) AND NOT deleted ORDER BY namespace, name FOR NO KEY UPDATE
)
SELECT
    (SELECT json_agg(json_build_array(name, pair_scores, labels, annotations))::text
        FROM hamiacct_node WHERE name = ANY($1) AND NOT deleted),
    (SELECT json_agg(json_build_array(id, namespace, name, limits, requirements,
            (SELECT json_object_agg(vendor, json_build_array(memory_mib, cores))
                FROM hamiacct_quotausage WHERE quota_id = quota.id)) ORDER BY namespace, name)::text
        FROM quota),
    (SELECT json_agg(json_build_array(id, named))::text FROM (
        SELECT device.id, bit_or(entry.core_set) AS named
        FROM hamiacct_device AS device JOIN hamiacct_usageentry AS entry ON entry.device_id = device.id
        WHERE device.node = ANY($1) AND device.vendor = ANY($3) GROUP BY device.id) AS sets),
    {_ENTRIES.format(uids="$4")}
""",  # noqa: S608  # the columns are ours
)


@dataclass(frozen=True, slots=True)
class Offered:
    """Nodes whose devices are locked, with the quotas of locked namespaces; and the same for the ledger.

    The totals have the pods themselves in; `pods` are those that were known, as they stand now. `doubtful`
    are the nodes whose cards cannot be judged by their totals alone: what pods say of them is read for each
    pod, without it.
    """

    ground: Ground
    pods: Mapping[str, Known]
    doubtful: frozenset[str]
    locked: Locked


def lock(nodes: Collection[str], known: Mapping[str, Known], namespaces: Collection[str]) -> Offered:
    """The nodes as they are, what the pods hold, and the namespaces, locked in the order of decision 26."""
    held_by = sorted(uid for uid, one in known.items() if one.entries)
    asked = sorted({*nodes, *(key.node for one in known.values() for key in one.entries)})
    [(found, _)], [(alive, quotas, sets, entries)] = in_turn(
        (_DEVICES, (asked, held_by, *locks.numbers_of_namespaces(namespaces))),
        (_REST, (asked, sorted(namespaces), fleet.vendors_of_sets(), held_by)),
    )
    entries_of = _by_pod(entries)
    pods = {uid: _standing(one, entries_of.get(uid, {})) for uid, one in known.items()}
    stored = orjson.loads(found or "[]")
    used = {Place(one[0], one[2]): _used(one) for one in stored}
    devices = [DeviceRow(*one[:-2]) for one in stored if one[-2]]
    core_sets = dict(orjson.loads(sets or "[]"))
    by_node: dict[str, list[FitDevice]] = defaultdict(list)
    for one in sorted(devices, key=lambda one: (one.vendor, one.order, one.uuid)):
        by_node[one.node].append(rows.fit_device_of(one, core_sets.get(one.pk, 0)))
    fit_nodes = {
        name: FitNode(name, tuple(by_node.get(name, ())), *rest)
        for name, *rest in orjson.loads(alive or "[]")
    }
    stored_quotas = orjson.loads(quotas or "[]")
    ground = Ground(fit_nodes.get, _by_namespace(one[1:] for one in stored_quotas))
    doubtful = frozenset(name for name, node in fit_nodes.items() if fleet.needs_pods(node))
    return Offered(ground, pods, doubtful, Locked(used, _quotas_of(stored_quotas), _entries_of(pods)))


def _standing(known: Known, entries: Mapping[DeviceKey, Entry]) -> Known:
    """The pod with its entries as they are now that their devices are locked.

    Its name keeps its amounts still, but not how quotas count them: that is counted anew whenever a card is
    registered with another total, by whoever holds the card.
    """
    if known.row is None or entries == known.entries:
        return known
    return replace(known, own=_own_of(known.row, entries), entries=entries)


def _quotas_of(stored: Iterable[Sequence[Any]]) -> list[Quota]:
    found = ((one[0], one[1], moments.quota_of(one[2:])) for one in stored)
    return [
        Quota(quota_id, namespace, one.requirements, one.limits, one.usage)
        for quota_id, namespace, one in found
    ]


def _entries_of(known: Mapping[str, Known]) -> dict[str, Mapping[DeviceKey, Entry]]:
    return {uid: one.entries for uid, one in known.items() if one.entries}


def _used(stored: Sequence[Any]) -> UsedDevice:
    """A device as `_DEVICES` answers it, as the ledger sees it."""
    node, pk, uuid, _, *sizes = stored[:10]
    return UsedDevice(pk, node, uuid, stored[-2], stored[-1], *sizes)


# --- what is written -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """A hold, as it is stored: the placement on `node`, and what to write on the pod because of it."""

    pod_uid: str
    namespace: str
    name: str
    node: str
    state: ReservationState
    allocations: Mapping[str, Any]
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str]
    score: float
    expires_at: datetime


_TAKEN = Statement(
    "hamiacct_claims_taken",
    "timestamptz, int, json",
    f"""
WITH taken AS MATERIALIZED (
    SELECT * FROM json_to_recordset($3) AS taken(
        pod_uid text, namespace text, name text, node text, allocations jsonb, annotations jsonb,
        labels jsonb, score double precision, expires_at timestamptz, phase text, containers jsonb,
        priority_class text, active_deadline_seconds bigint, best_effort boolean,
        cross_namespace_affinity boolean, scheduler_name text, pod_labels jsonb, pod_annotations jsonb)
), pod AS (
    INSERT INTO hamiacct_pod (
        uid, namespace, name, phase, history, containers, priority_class, active_deadline_seconds,
        best_effort, cross_namespace_affinity, scheduler_name, labels, annotations, changed_at,
        state, rule, charged_as, node, vgpu_node, inits_released, resource_version, ended_by, ended_version,
        deletion_timestamp, allocations, bind_phase)
    SELECT pod_uid, namespace, name, phase, $2, containers, priority_class, active_deadline_seconds,
        best_effort, cross_namespace_affinity, scheduler_name, pod_labels, pod_annotations, $1,
        '{PodState.RESERVED}', '{Rule.RESERVED}', '{ChargedAs.HELD}', '', '', false, 0, '', 0, '', '{{}}', ''
    FROM taken
    ON CONFLICT (uid) DO UPDATE SET
        containers = excluded.containers, state = excluded.state, rule = excluded.rule,
        charged_as = excluded.charged_as, ended_by = '', ended_version = 0, ended_at = NULL,
        changed_at = excluded.changed_at
)
INSERT INTO hamiacct_reservation (
    pod_uid, namespace, name, node, state, allocations, annotations, labels, score,
    created_at, expires_at, changed_at, bound_version)
SELECT pod_uid, namespace, name, node, '{ReservationState.HELD}', allocations, annotations, labels, score,
    $1, expires_at, $1, 0
FROM taken
ON CONFLICT (pod_uid) DO UPDATE SET
    namespace = excluded.namespace, name = excluded.name, node = excluded.node, state = excluded.state,
    allocations = excluded.allocations, annotations = excluded.annotations, labels = excluded.labels,
    score = excluded.score, created_at = excluded.created_at, expires_at = excluded.expires_at,
    changed_at = excluded.changed_at, bound_version = 0
RETURNING true
""",  # noqa: S608  # the words are ours
)


def document_of(taken: Taken, pod: Pod, containers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A hold and the row of its pod, as `taken` writes them."""
    facts = pod.quota_facts
    return {
        "pod_uid": taken.pod_uid,
        "namespace": taken.namespace,
        "name": taken.name,
        "node": taken.node,
        "allocations": taken.allocations,
        "annotations": taken.annotations,
        "labels": taken.labels,
        "score": taken.score,
        "expires_at": taken.expires_at,
        "phase": pod.phase.value,
        "containers": containers,
        "priority_class": facts.priority_class,
        "active_deadline_seconds": facts.active_deadline_seconds,
        "best_effort": facts.best_effort,
        "cross_namespace_affinity": facts.cross_namespace_affinity,
        "scheduler_name": pod.scheduler_name,
        "pod_labels": dict(pod.labels),
        "pod_annotations": dict(pod.annotations),
    }


def taken(documents: Sequence[Mapping[str, Any]], *, history: int, at: datetime) -> Iterator[Asked]:
    """Writes the holds, and the rows of their pods.

    A pod the books have not heard of is at version 0, so that every event of it counts.
    """
    if documents:
        yield _TAKEN, (at, history, orjson.dumps(documents).decode())


_ENDED = Statement(
    "hamiacct_claims_ended",
    "timestamptz, text, json",
    """
WITH ended AS MATERIALIZED (
    SELECT * FROM json_to_recordset($3) AS ended(
        uid text, state text, rule text, charged_as text, inits_released boolean, allocations jsonb)
), pod AS (
    UPDATE hamiacct_pod AS pod SET state = ended.state, rule = ended.rule, charged_as = ended.charged_as,
        inits_released = ended.inits_released, allocations = ended.allocations, changed_at = $1
    FROM ended WHERE pod.uid = ended.uid
)
UPDATE hamiacct_reservation AS hold SET state = $2, changed_at = $1
FROM ended WHERE hold.pod_uid = ended.uid
RETURNING true
""",
)


def ended(decisions: Mapping[str, Decision], state: ReservationState, *, at: datetime) -> Iterator[Asked]:
    """Writes the ends of holds, and what became of their pods."""
    if decisions:
        documents = [
            {
                "uid": uid,
                "state": decision.state.value,
                "rule": decision.rule.value,
                "charged_as": decision.charge.charged_as.value,
                "inits_released": decision.charge.inits_released,
                "allocations": rows.allocations_json(decision.charge.allocations),
            }
            for uid, decision in sorted(decisions.items())
        ]
        yield _ENDED, (at, state.value, orjson.dumps(documents).decode())

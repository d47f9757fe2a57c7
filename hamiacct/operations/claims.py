"""What a claim reads under its locks, and the rows it writes: a few prepared statements, whatever is stored.

A statement sees what was committed when it began, so what a lock keeps still is read by the statement after
the one that took the lock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from hamiacct import models, rows
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.pods import Pod
from hamiacct.accounting.words import ChargedAs, Kind, PodState, ReservationState, Rule
from hamiacct.operations import locks
from hamiacct.operations.findings import UsedDevice
from hamiacct.operations.ledger import Locked, Place, Quota
from hamiacct.queries import fleet, moments
from hamiacct.queries.moments import Moment, Own
from hamiacct.queries.statements import Statement
from hamiacct.rows import DeviceRow

# --- the pod ---------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What the books know of the pod that asks."""

    namespace: str
    name: str
    node: str
    state: str
    ended_by: str
    resource_version: int
    containers: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Known:
    """A pod under the lock of its name; `row` and `hold_state` are None where there is none.

    `history` is the pods' history of versions, `own` what the pod is charged now.
    """

    history: int
    row: Row | None
    hold_state: ReservationState | None
    own: Own


_KNOWN = Statement(
    "hamiacct_claim_known",
    "text, text",
    """
WITH pod AS MATERIALIZED (
    SELECT * FROM hamiacct_pod WHERE uid = $1 FOR NO KEY UPDATE
), hold AS MATERIALIZED (
    SELECT state FROM hamiacct_reservation WHERE pod_uid = $1 FOR NO KEY UPDATE
)
SELECT
    (SELECT history FROM hamiacct_feed WHERE kind = $2),
    (SELECT json_build_array(namespace, name, node, state, ended_by, resource_version, containers)::text
        FROM pod),
    (SELECT state FROM hold),
    (SELECT json_build_array(
            priority_class, active_deadline_seconds, best_effort, cross_namespace_affinity,
            (SELECT json_agg(json_build_array(
                    device.node, device.uuid, entry.vendor,
                    entry.slots, entry.memory_mib, entry.cores, entry.core_set, entry.quota_cores))
                FROM hamiacct_usageentry AS entry
                    JOIN hamiacct_device AS device ON device.id = entry.device_id
                WHERE entry.pod_id = $1)
        )::text FROM pod)
""",
)


def known(pod_uid: str) -> Known:
    """The pod as the books have it, locked. The caller holds the lock of its name, so it changes no more."""
    history, row, hold_state, own = _KNOWN.row(pod_uid, Kind.POD.value)
    return Known(
        history,
        Row(*orjson.loads(row)) if row else None,
        ReservationState(hold_state) if hold_state else None,
        moments.own_of(orjson.loads(own)) if own else moments.NOTHING_OWN,
    )


# --- what is chosen from -----------------------------------------------------------------------------


# The rows first, then the namespace: the columns of an answer are computed from left to right.
_DEVICES = Statement(
    "hamiacct_claim_devices",
    "text[], int, int",
    """
WITH device AS MATERIALIZED (
    SELECT node, id, uuid, vendor, slots_total, memory_mib_total, cores_total, slots_used, memory_mib_used,
        cores_used, index, "order", model, numa, mode, healthy, cordoned, mig_profiles, custom
    FROM hamiacct_device WHERE node = ANY($1) AND registered
    ORDER BY node, uuid FOR NO KEY UPDATE
)
SELECT
    (SELECT json_agg(json_build_array(node, id, uuid, vendor, slots_total, memory_mib_total, cores_total,
        slots_used, memory_mib_used, cores_used, index, "order", model, numa, mode, healthy, cordoned,
        mig_profiles, custom))::text FROM device),
    pg_advisory_xact_lock($2, $3)
""",
)

_REST = Statement(
    "hamiacct_claim_rest",
    "text[], text, bigint[]",
    """
WITH quota AS MATERIALIZED (
    SELECT id, name, limits, requirements FROM hamiacct_resourcequota
    WHERE namespace = $2 AND NOT deleted ORDER BY namespace, name FOR NO KEY UPDATE
)
SELECT
    (SELECT json_agg(json_build_array(name, pair_scores, labels, annotations))::text
        FROM hamiacct_node WHERE name = ANY($1) AND NOT deleted),
    (SELECT json_agg(json_build_array(quota.id, quota.name, quota.limits, quota.requirements,
            (SELECT json_object_agg(vendor, json_build_array(memory_mib, cores))
                FROM hamiacct_quotausage WHERE quota_id = quota.id)) ORDER BY quota.name)::text
        FROM quota),
    (SELECT json_agg(json_build_array(device_id, named))::text FROM (
        SELECT device_id, bit_or(core_set) AS named
        FROM hamiacct_usageentry WHERE device_id = ANY($3) GROUP BY device_id) AS sets)
""",
)


@dataclass(frozen=True, slots=True)
class Offered:
    """Nodes whose devices are locked, by name, and what the quotas of a locked namespace hold."""

    nodes: Mapping[str, FitNode]
    seen: Moment
    locked: Locked


def offered(names: Collection[str], pod: Pod, own: Own, *, at: datetime) -> Offered:
    """The nodes as they are, and the pod's namespace, both locked in the order of decision 26.

    The totals have the pod itself in; what pods say of their cards (MIG places, tenants) is without it.
    """
    found, _ = _DEVICES.row(sorted(names), *locks.number_of_namespace(pod.namespace))
    devices = [DeviceRow(*one) for one in orjson.loads(found or "[]")]
    vendors_of_sets = fleet.vendors_of_sets()
    named = [one.pk for one in devices if one.vendor in vendors_of_sets]
    nodes, quotas, sets = _REST.row(sorted(names), pod.namespace, named)
    core_sets = dict(orjson.loads(sets or "[]"))
    by_node: dict[str, list[DeviceRow]] = {}
    for one in sorted(devices, key=lambda one: (one.vendor, one.order, one.uuid)):
        by_node.setdefault(one.node, []).append(one)
    alive = {
        name: FitNode(
            name,
            tuple(rows.fit_device_of(one, core_sets.get(one.pk, 0)) for one in by_node.get(name, ())),
            *rest,
        )
        for name, *rest in orjson.loads(nodes or "[]")
    }
    doubtful = [name for name, node in alive.items() if fleet.needs_pods(node)]
    if doubtful:
        alive |= {node.name: node for node in fleet.load(doubtful, apart_from=pod.uid)}
    ids_and_quotas = [(one[0], moments.quota_of(one[1:])) for one in orjson.loads(quotas or "[]")]
    seen = Moment(at, True, None, False, True, tuple(one for _, one in ids_and_quotas), own)
    return Offered(
        alive,
        seen,
        Locked(
            {Place(one.node, one.uuid): _used(one) for one in devices},
            [
                Quota(quota_id, pod.namespace, one.requirements, one.limits, one.usage)
                for quota_id, one in ids_and_quotas
            ],
        ),
    )


def _used(device: DeviceRow) -> UsedDevice:
    return UsedDevice(
        device.pk,
        device.node,
        device.uuid,
        True,  # only those are offered
        True,
        device.slots_total,
        device.memory_mib_total,
        device.cores_total,
        device.slots_used,
        device.memory_mib_used,
        device.cores_used,
    )


# --- what is written -----------------------------------------------------------------------------------

_HELD = Statement(
    "hamiacct_claim_held",
    "text, text, text, text, int, jsonb, text, bigint, boolean, boolean, text, jsonb, jsonb,"
    " timestamptz, timestamptz, text, jsonb, jsonb, jsonb, double precision",
    f"""
WITH pod AS (
    INSERT INTO hamiacct_pod (
        uid, namespace, name, phase, history, containers, priority_class, active_deadline_seconds,
        best_effort, cross_namespace_affinity, scheduler_name, labels, annotations, changed_at,
        state, rule, charged_as, node, vgpu_node, inits_released, resource_version, ended_by, ended_version,
        deletion_timestamp, allocations, bind_phase)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
        '{PodState.RESERVED}', '{Rule.RESERVED}', '{ChargedAs.HELD}', '', '', false, 0, '', 0, '', '{{}}', '')
    ON CONFLICT (uid) DO UPDATE SET
        containers = excluded.containers, state = excluded.state, rule = excluded.rule,
        charged_as = excluded.charged_as, ended_by = '', ended_version = 0, ended_at = NULL,
        changed_at = excluded.changed_at
)
INSERT INTO hamiacct_reservation (
    pod_uid, namespace, name, node, state, allocations, annotations, labels, score,
    created_at, expires_at, changed_at, bound_version)
VALUES ($1, $2, $3, $16, '{ReservationState.HELD}', $17, $18, $19, $20, $14, $15, $14, 0)
ON CONFLICT (pod_uid) DO UPDATE SET
    namespace = excluded.namespace, name = excluded.name, node = excluded.node, state = excluded.state,
    allocations = excluded.allocations, annotations = excluded.annotations, labels = excluded.labels,
    score = excluded.score, created_at = excluded.created_at, expires_at = excluded.expires_at,
    changed_at = excluded.changed_at, bound_version = 0
RETURNING true
""",  # noqa: S608  # the words are ours
)


def write(
    pod: Pod, hold: models.Reservation, containers: Sequence[Mapping[str, Any]], *, history: int
) -> None:
    """The hold, and the row of its pod.

    A pod the books have not heard of is at version 0, so that every event of it counts.
    """
    facts = pod.quota_facts
    _HELD.rows(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.phase.value,
        history,
        _json(containers),
        facts.priority_class,
        facts.active_deadline_seconds,
        facts.best_effort,
        facts.cross_namespace_affinity,
        pod.scheduler_name,
        _json(dict(pod.labels)),
        _json(dict(pod.annotations)),
        hold.changed_at,
        hold.expires_at,
        hold.node,
        _json(hold.allocations),
        _json(hold.annotations),
        _json(hold.labels),
        hold.score,
    )


def _json(value: object) -> str:
    return orjson.dumps(value).decode()

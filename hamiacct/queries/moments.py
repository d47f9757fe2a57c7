"""What a question needs to know beside the fleet, at one moment: read by one statement, in one snapshot.

No part of it is older than the last commit that could be seen when it was read, and no part is of another
moment than the rest. The rows it touches are those of the namespace's quotas, of the pod itself, and of
what the ledger says since this process last looked; none for each pod, event or line there ever was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from django.conf import settings

from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.pods import DeviceKey, Pod, QuotaFacts
from hamiacct.accounting.quota import ScopeRequirement
from hamiacct.queries import fleet, inbox
from hamiacct.queries.statements import Statement

# Events are numbered as they arrive, so the first that waits is the oldest; those that were tried before are
# few, and looked at one by one.
RELIABILITY = """
    (SELECT bool_and(listed_at IS NOT NULL OR declared_complete_at IS NOT NULL) FROM hamiacct_feed),
    LEAST(
        (SELECT received_at FROM hamiacct_event
            WHERE state = 'waiting' AND attempts = 0 ORDER BY id LIMIT 1),
        (SELECT min(received_at) FROM hamiacct_event WHERE state = 'waiting' AND attempts > 0)
    ),
    EXISTS (SELECT FROM hamiacct_reservation WHERE state = 'held' AND expires_at <= {at}),
    EXISTS (SELECT FROM hamiacct_device WHERE ever_registered)
"""
_STATE = f"""
SELECT
{RELIABILITY.format(at="$3")},
    (
        SELECT json_agg(
            json_build_array(
                quota.name,
                quota.limits,
                quota.requirements,
                (SELECT json_object_agg(vendor, json_build_array(memory_mib, cores))
                    FROM hamiacct_quotausage WHERE quota_id = quota.id)
            ) ORDER BY quota.name
        )::text
        FROM hamiacct_resourcequota AS quota WHERE quota.namespace = $1 AND NOT quota.deleted
    ),
    (
        SELECT json_build_array(
            pod.priority_class,
            pod.active_deadline_seconds,
            pod.best_effort,
            pod.cross_namespace_affinity,
            (
                SELECT json_agg(json_build_array(
                    device.node, device.uuid, entry.vendor,
                    entry.slots, entry.memory_mib, entry.cores, entry.core_set, entry.quota_cores
                ))
                FROM hamiacct_usageentry AS entry
                    JOIN hamiacct_device AS device ON device.id = entry.device_id
                WHERE entry.pod_id = pod.uid
            )
        )::text
        FROM hamiacct_pod AS pod WHERE pod.uid = $2
    )
"""  # noqa: S608  # the words are ours
_TYPES = "text, text, timestamptz"
_OF_QUOTAS = Statement("hamiacct_moment", _TYPES, _STATE)
_OF_FIT = Statement(
    "hamiacct_moment_and_tail",
    f"{_TYPES}, {fleet.TAIL_TYPES}",
    f"{_STATE}, {fleet.tail_columns(4)} FROM hamiacct_ledgerhead AS head",
)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota of the pod's namespace: its limits as stored, and what it counts by vendor."""

    name: str
    limits: Sequence[Mapping[str, Any]]
    requirements: tuple[ScopeRequirement, ...]
    usage: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Own:
    """What the pod itself is charged by now, on devices and by vendor in quotas, and how quotas select it."""

    facts: QuotaFacts
    held: Held
    in_quotas: Usage[str]


NOTHING_OWN = Own(QuotaFacts(), Held(), Usage())


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of the books for one pod's question. `own` is of a pod that is known, else it holds nothing.

    `tail` is what became of the fleet since this process last looked; None where nobody asked.
    """

    at: datetime
    is_complete: bool
    waiting_since: datetime | None
    has_due_holds: bool
    has_devices: bool
    quotas: tuple[Quota, ...]
    own: Own
    tail: fleet.Tail | None = None

    @property
    def doubt(self) -> str:
        """Why the books may not tell all (decision 25); "" where they do."""
        return inbox.doubt_of(self.is_complete, self.waiting_since, self.at)


def of_quotas(pod: Pod, *, at: datetime) -> Moment:
    """What a question about a pod's quotas needs."""
    return _moment(_OF_QUOTAS.row(pod.namespace, pod.uid, at), at, None)


def of_fit(pod: Pod, *, at: datetime) -> Moment:
    """The same, and what became of the fleet."""
    since = fleet.followed()
    row = _OF_FIT.row(pod.namespace, pod.uid, at, *since, fleet.vendors_of_sets())
    return _moment(row, at, fleet.Tail.of(since, row[6:]))


def _moment(row: Sequence[Any], at: datetime, tail: fleet.Tail | None) -> Moment:
    is_complete, waiting_since, has_due_holds, has_devices, quotas, own = row[:6]
    return Moment(
        at,
        settings.HAMIACCT.trust_events or bool(is_complete),
        waiting_since,
        has_due_holds,
        has_devices,
        tuple(map(quota_of, orjson.loads(quotas))) if quotas else (),
        own_of(orjson.loads(own)) if own else NOTHING_OWN,
        tail,
    )


def quota_of(stored: Sequence[Any]) -> Quota:
    """A quota as `_STATE` answers it."""
    name, limits, requirements, usage = stored
    conditions = tuple(
        ScopeRequirement(one["scope"], one["operator"], tuple(one["values"])) for one in requirements
    )
    return Quota(name, limits, conditions, usage or {})


def own_of(stored: Sequence[Any]) -> Own:
    """What a pod is charged, as `_STATE` answers it: its facts for quotas, then its entries."""
    *facts, entries = stored
    held: dict[DeviceKey, Amount] = {}
    in_quotas: dict[str, Amount] = {}
    for node, uuid, vendor, slots, memory_mib, cores, core_set, quota_cores in entries or ():
        held[DeviceKey(node, uuid, vendor)] = Amount(slots, memory_mib, cores, core_set)
        in_quotas[vendor] = in_quotas.get(vendor, Amount()).plus(Amount(0, memory_mib, quota_cores))
    return Own(QuotaFacts(*facts), Usage(held), Usage(in_quotas))

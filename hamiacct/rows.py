"""Rows to accounting types and back. Reads rows that are already loaded; writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hamiacct import models
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.devices import MigProfile, Placement
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.lifecycle import Charge, Hold
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.pods import (
    Allocation,
    Container,
    ContainerClass,
    DeviceKey,
    Phase,
    Pod,
    QuotaFacts,
    Row,
    Run,
)
from hamiacct.accounting.quota import ScopeRequirement
from hamiacct.accounting.words import ChargedAs, PodState, Rule


def amount_of(entry: models.UsageEntry) -> Amount:
    """What one usage entry holds."""
    return Amount(entry.slots, entry.memory_mib, entry.cores, entry.core_set)


def key_of(entry: models.UsageEntry) -> DeviceKey:
    """The device an entry is on; its `device` must be loaded."""
    return DeviceKey(entry.device.node, entry.device.uuid, entry.vendor)


def held_of(entries: Iterable[models.UsageEntry]) -> Held:
    """What the entries of one pod hold, by device."""
    return Usage({key_of(entry): amount_of(entry) for entry in entries})


@dataclass(slots=True)
class PodRow:
    """The columns of a pod under their names in `models.Pod` and in their order, for whoever writes many.

    A row that will be written changes; what is decided of it does not.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    vgpu_node: str = ""
    vgpu_time: int | None = None
    phase: str = ""
    state: str = PodState.UNSCHEDULED
    inits_released: bool = False
    charged_as: str = ChargedAs.NOTHING
    rule: str = Rule.UNCHANGED
    resource_version: int = 0
    history: int = 1
    ended_by: str = ""
    ended_version: int = 0
    ended_at: datetime | None = None
    deletion_timestamp: str = ""
    deletion_grace_seconds: int | None = None
    containers: list[dict[str, Any]] = field(default_factory=list)
    allocations: dict[str, Any] = field(default_factory=dict)
    priority_class: str | None = None
    active_deadline_seconds: int | None = None
    best_effort: bool = True
    cross_namespace_affinity: bool = False
    bind_phase: str = ""
    bind_time: int | None = None
    scheduler_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    changed_at: datetime | None = None
    look_again_at: datetime | None = None


def containers_json(containers: Sequence[Container]) -> list[dict[str, Any]]:
    """Containers as stored; their position is their place in the list."""
    return [
        {
            "name": container.name,
            "class": container.kind.value,
            "run": container.run.value,
            "limits": dict(container.limits),
            "requests": dict(container.requests),
            "privileged": container.privileged,
        }
        for container in containers
    ]


def containers_of(row: models.Pod | PodRow) -> tuple[Container, ...]:
    """The containers of a stored pod, in position order."""
    return tuple(
        Container(
            position,
            stored["name"],
            ContainerClass(stored["class"]),
            Run(stored["run"]),
            stored["limits"],
            stored["requests"],
            stored["privileged"],
        )
        for position, stored in enumerate(row.containers)
    )


def allocations_json(allocations: Mapping[str, Allocation]) -> dict[str, Any]:
    """Allocations as stored, by vendor key."""
    return {
        key: {
            "node": allocation.node,
            "groups": [[list(row) for row in rows] for rows in allocation.groups],
            "slots_per_row": allocation.slots_per_row,
            "text": allocation.text,
        }
        for key, allocation in allocations.items()
    }


def allocations_of(row: models.Pod | PodRow) -> dict[str, Allocation]:
    """The last good allocation per vendor of a stored pod."""
    return _allocations(row.allocations)


def _allocations(stored_by_vendor: Mapping[str, Any]) -> dict[str, Allocation]:
    return {
        key: Allocation(
            key,
            stored["node"],
            tuple(tuple(Row(*fields) for fields in rows) for rows in stored["groups"]),
            stored["slots_per_row"],
            stored["text"],
        )
        for key, stored in stored_by_vendor.items()
    }


def charge_of(row: models.Pod | PodRow, held: Held) -> Charge:
    """What the books hold for a stored pod whose entries are `held`."""
    return Charge(
        held,
        ChargedAs(row.charged_as),
        row.inits_released,
        allocations_of(row),
        Rule(row.ended_by) if row.ended_by else None,
    )


def pod_of(row: models.Pod | PodRow) -> Pod:
    """A stored pod as it was last seen, as far as it was kept."""
    return Pod(
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        resource_version=row.resource_version,
        containers=containers_of(row),
        node_name=row.node,
        vgpu_node=row.vgpu_node,
        vgpu_time=row.vgpu_time,
        phase=Phase(row.phase or Phase.PENDING),
        deletion_timestamp=row.deletion_timestamp,
        allocations=allocations_of(row),
        quota_facts=quota_facts_of(row),
        bind_phase=row.bind_phase,
        bind_time=row.bind_time,
        labels=row.labels,
        annotations=row.annotations,
    )


def hold_of(row: models.Reservation) -> Hold:
    """A stored reservation as what it holds."""
    return Hold(row.node, _allocations(row.allocations))


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """The columns of a device that a fit reads, under their names in `models.Device`."""

    node: str
    pk: int
    uuid: str
    vendor: str
    slots_total: int
    memory_mib_total: int
    cores_total: int
    slots_used: int
    memory_mib_used: int
    cores_used: int
    index: int
    order: int
    model: str
    numa: int
    mode: str
    healthy: bool
    cordoned: bool
    mig_profiles: list[dict[str, Any]]
    custom: dict[str, Any]


def used_of(row: models.Device | DeviceRow, core_set: int) -> Amount:
    """What is used of a device; `core_set` is the union of the named cores that are held."""
    return Amount(row.slots_used, row.memory_mib_used, row.cores_used, core_set)


def fit_device_of(row: models.Device | DeviceRow, core_set: int) -> FitDevice:
    """A registered device as a fit sees it; `core_set` is the union of the named cores that are held."""
    return FitDevice(
        uuid=row.uuid,
        vendor=row.vendor,
        total=Amount(row.slots_total, row.memory_mib_total, row.cores_total),
        used=used_of(row, core_set),
        index=row.index,
        order=row.order,
        model=row.model,
        numa=row.numa,
        mode=row.mode,
        healthy=row.healthy,
        cordoned=row.cordoned,
        mig_profiles=profiles_of(row.mig_profiles),
        custom=row.custom,
    )


def profiles_of(stored: Sequence[Mapping[str, Any]]) -> tuple[MigProfile, ...]:
    """The MIG profiles of a stored device."""
    return tuple(
        MigProfile(
            profile["name"],
            profile["memory_mib"],
            profile["cores"],
            profile["slice_count"],
            tuple(Placement(*place) for place in profile["placements"]),
        )
        for profile in stored
    )


def quota_facts_of(row: models.Pod | PodRow) -> QuotaFacts:
    """The fields of a stored pod that quota scopes look at."""
    return QuotaFacts(
        row.priority_class, row.active_deadline_seconds, row.best_effort, row.cross_namespace_affinity
    )


def requirements_of(row: models.ResourceQuota) -> tuple[ScopeRequirement, ...]:
    """The scope conditions of a stored quota."""
    return conditions_of(row.requirements)


def conditions_of(requirements: Iterable[Mapping[str, Any]]) -> tuple[ScopeRequirement, ...]:
    """Scope conditions as stored."""
    return tuple(
        ScopeRequirement(stored["scope"], stored["operator"], tuple(stored["values"]))
        for stored in requirements
    )

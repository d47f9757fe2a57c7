"""From a pod's allocation to what it holds: rows added per container, then folded (decisions 1, 2, 14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hamiacct.accounting.amounts import UNUSED, Amount, Usage
from hamiacct.accounting.footprint import Footprint, footprint_of, footprints
from hamiacct.accounting.pods import Allocation, Container, ContainerClass, DeviceKey, Groups, Row
from hamiacct.accounting.vendors import Vendor


class Layout(StrEnum):
    """How the groups of an allocation map to containers (decision 14)."""

    AUTO = "auto"
    POSITIONAL = "positional"
    APPS_ONLY = "apps-only"


Vendors = Mapping[str, Vendor]
Held = Usage[DeviceKey]


def device_uuid(uuid: str) -> str:
    """The device an allocation row names: the suffix `[t-p]` of old MIG uuids is ignored (decision 9)."""
    if uuid.endswith("]"):
        head, bracket, suffix = uuid.rpartition("[")
        template, dash, place = suffix[:-1].partition("-")
        if bracket and head and dash and template.isdecimal() and place.isdecimal():
            return head
    return uuid


def held_by_rows(rows: Iterable[Row], allocation: Allocation, vendor: Vendor) -> Held:
    """What the rows of one container hold: rows of one device are added, one slot each (decision 2)."""
    amounts: dict[DeviceKey, Amount] = {}
    for row in rows:
        key = DeviceKey(allocation.node, device_uuid(row.uuid), vendor.key)
        amount = vendor.amount_of(row, allocation.slots_per_row)
        amounts[key] = amounts[key].plus(amount) if key in amounts else amount
    return Usage(amounts) if amounts else UNUSED


def is_ambiguous(allocation: Allocation, containers: Sequence[Container]) -> bool:
    """Whether the text may be of the old layout: one group per app container in a pod with inits."""
    if len(allocation.groups) >= len(containers):  # one for each, as it is written now
        return False
    apps = sum(1 for container in containers if container.kind is ContainerClass.APP)
    return apps < len(containers) and len(allocation.groups) == apps and any(allocation.groups)


def _groups_by_position(groups: Groups, containers: Sequence[Container], layout: Layout) -> Groups:
    """One group per container. Missing groups are empty."""
    first = 0
    if layout is Layout.APPS_ONLY:
        first = sum(1 for container in containers if container.kind is not ContainerClass.APP)
    padded = ((),) * first + groups
    return padded[: len(containers)] + ((),) * (len(containers) - len(padded))


def readings(
    allocation: Allocation, containers: Sequence[Container], layout: Layout = Layout.AUTO
) -> tuple[Groups, ...]:
    """The groups by position: one reading, or two where the layout is ambiguous and nobody settled it."""
    if not is_ambiguous(allocation, containers):
        layouts: tuple[Layout, ...] = (Layout.POSITIONAL,)
    elif layout is Layout.AUTO:
        layouts = (Layout.POSITIONAL, Layout.APPS_ONLY)
    else:
        layouts = (layout,)
    return tuple(_groups_by_position(allocation.groups, containers, reading) for reading in layouts)


def footprint_of_allocation(
    allocation: Allocation, containers: Sequence[Container], vendor: Vendor, layout: Layout = Layout.AUTO
) -> Footprint[DeviceKey]:
    """The footprint of one vendor's allocation; of two readings, room enough for either."""
    first, *others = (
        footprint_of(
            [
                (container.kind, held_by_rows(rows, allocation, vendor))
                for container, rows in zip(containers, groups, strict=True)
            ]
        )
        for groups in readings(allocation, containers, layout)
    )
    for other in others:
        first = first.either(other)
    return first


def footprint_of_pod(
    containers: Sequence[Container],
    allocations: Mapping[str, Allocation],
    vendors: Vendors,
    layout: Layout = Layout.AUTO,
) -> Footprint[DeviceKey]:
    """The footprint of a whole pod, all vendors together; their devices are different keys."""
    footprint: Footprint[DeviceKey] = Footprint()
    for key, allocation in allocations.items():
        footprint = footprint.beside(footprint_of_allocation(allocation, containers, vendors[key], layout))
    return footprint


@dataclass(frozen=True, slots=True)
class Step:
    """One container of an explanation: what it uses, and the fold after it."""

    container: Container
    usage: Held
    footprint: Footprint[DeviceKey]


def steps_of_pod(
    containers: Sequence[Container],
    allocations: Mapping[str, Allocation],
    vendors: Vendors,
    layout: Layout = Layout.AUTO,
) -> tuple[Step, ...]:
    """The fold's own intermediate values, container by container.

    Where two readings of a layout compete, each container shows the larger of both and each
    footprint is room enough for either, as the charge is.
    """
    after: list[Footprint[DeviceKey]] = [Footprint() for _ in containers]
    used: list[Held] = [Usage() for _ in containers]
    for key, allocation in allocations.items():
        vendor_after: list[Footprint[DeviceKey]] = [Footprint() for _ in containers]
        vendor_used: list[Held] = [Usage() for _ in containers]
        for groups in readings(allocation, containers, layout):
            usages = [held_by_rows(rows, allocation, vendors[key]) for rows in groups]
            kinds = [container.kind for container in containers]
            for index, footprint in enumerate(footprints(zip(kinds, usages, strict=True))):
                vendor_after[index] = vendor_after[index].either(footprint)
                vendor_used[index] = vendor_used[index].peak(usages[index])
        after = [one.beside(other) for one, other in zip(after, vendor_after, strict=True)]
        used = [one.plus(other) for one, other in zip(used, vendor_used, strict=True)]
    return tuple(
        Step(container, usage, footprint)
        for container, usage, footprint in zip(containers, used, after, strict=True)
    )

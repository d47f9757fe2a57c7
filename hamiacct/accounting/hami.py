"""What HAMi books for a pod, by version: from the containers and rows our own charge is computed from (S4.7).

A version differs from the fold in three things and no more: what it takes each class of container for, what
it makes of several rows of one init container, and when it gives the inits back. So its number is the same
fold over containers that it misunderstands, and never a second formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.footprint import footprint_of
from hamiacct.accounting.holdings import Held, Layout, Vendors, device_uuid, readings
from hamiacct.accounting.pods import Allocation, Container, ContainerClass, DeviceKey, Row, Run
from hamiacct.accounting.vendors import CoresKind, Vendor

INIT, SIDECAR, APP = ContainerClass.INIT, ContainerClass.SIDECAR, ContainerClass.APP


class Formula(StrEnum):
    """The versions whose numbers differ: up to 2.9, 2.10, and since pull request 2723."""

    V2_8 = "2.8"
    V2_10 = "2.10"
    PR_2723 = "2723"


Released = Callable[[Sequence[Container], bool], bool]


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a version understands a pod: a class for each class, and whether the inits were given back.

    `is_released` gets the containers as last seen, and whether our own gate was ever open for them.
    """

    classes: Mapping[ContainerClass, ContainerClass]
    is_released: Released


def _never(containers: Sequence[Container], inits_released: bool) -> bool:
    return False


def _once_every_told_init_is_done(containers: Sequence[Container], inits_released: bool) -> bool:
    """HAMi's `AllInitContainersSucceeded`: sidecars count as inits, a missing status counts for nothing.

    It remembers that the inits were given back, and so do our books; but of a pod with sidecars ours may
    remember it where HAMi still waits for the sidecar to end. Such a pod is judged by what is seen now.
    """
    inits = [container for container in containers if container.kind is not APP]
    told = [container.run for container in inits if container.run is not Run.ABSENT]
    all_done = bool(told) and all(run is Run.SUCCEEDED for run in told)
    return all_done or (inits_released and all(container.kind is INIT for container in inits))


def _as_here(containers: Sequence[Container], inits_released: bool) -> bool:
    return inits_released


_READINGS: Mapping[Formula, _Reading] = {
    Formula.V2_8: _Reading({INIT: APP, SIDECAR: APP, APP: APP}, _never),
    Formula.V2_10: _Reading({INIT: INIT, SIDECAR: INIT, APP: APP}, _once_every_told_init_is_done),
    Formula.PR_2723: _Reading({INIT: INIT, SIDECAR: SIDECAR, APP: APP}, _as_here),
}


def booked(
    containers: Sequence[Container],
    allocations: Mapping[str, Allocation],
    vendors: Vendors,
    formula: Formula,
    *,
    inits_released: bool,
) -> Held:
    """What HAMi of this version books for a living pod, by device, in our units.

    HAMi always reads groups by position, has one slot a row whatever a vendor's annotation says, and takes
    masks of named cores for numbers; of such a number the bits are counted here. Its sums wrap at 32 bits;
    ours do not.
    """
    reading = _READINGS[formula]
    is_released = reading.is_released(containers, inits_released)
    kinds = [reading.classes[container.kind] for container in containers]
    total: Held = Usage()
    for key, allocation in allocations.items():
        (groups,) = readings(allocation, containers, Layout.POSITIONAL)
        steps = [
            (kind, _held(kind, rows, allocation.node, key)) for kind, rows in zip(kinds, groups, strict=True)
        ]
        footprint = footprint_of(steps)
        held = footprint.steady if is_released else footprint.effective
        total = total.plus(_in_our_units(held, vendors[key]))
    return total


def may_differ(vendor: Vendor) -> bool:
    """Whether a pod of apps alone may be counted otherwise: the vendor's rows mean more than they say."""
    return bool(vendor.slots_annotation) or vendor.cores_kind is CoresKind.SET


def _held(kind: ContainerClass, rows: Iterable[Row], node: str, vendor: str) -> Held:
    """The rows of one container: of an init the largest of those on one device (S4.3), else their sum."""
    amounts: dict[DeviceKey, Amount] = {}
    for row in rows:
        key = DeviceKey(node, device_uuid(row.uuid), vendor)
        amount = Amount(1, row.memory, row.cores)
        if key not in amounts:
            amounts[key] = amount
        else:
            amounts[key] = amounts[key].peak(amount) if kind is INIT else amounts[key].plus(amount)
    return Usage(amounts)


def _in_our_units(held: Held, vendor: Vendor) -> Held:
    """A number that was made of masks as how many cores it takes; every other as it is."""
    if vendor.cores_kind is not CoresKind.SET:
        return held
    return Usage({key: replace(held[key], cores=held[key].cores.bit_count()) for key in held})

"""MIG: where an instance goes on a card, and what stored allocations say of a card (semantics 6.7, 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hamiacct.accounting.devices import MigAllocation, MigProfile, Placement
from hamiacct.accounting.pods import Container, ContainerClass

MIG_MODE = "mig"
FROM_THE_TOP = ("1g.", "3g.")
"""Profiles that take the highest free start, so that the pairs below stay whole."""


class Instance(NamedTuple):
    """A profile at its place."""

    profile: MigProfile
    place: Placement


def overlap(one: Placement, other: Placement) -> bool:
    """Whether two half-open ranges of slices share one."""
    return one.start < other.start + other.size and other.start < one.start + one.size


def place(profile: MigProfile, occupied: Iterable[Placement]) -> Placement | None:
    """The place for one more instance of the profile; None where none is free."""
    taken = tuple(occupied)
    free = [spot for spot in profile.placements if not any(overlap(spot, other) for other in taken)]
    if not free:
        return None
    pick = max if profile.name.startswith(FROM_THE_TOP) else min
    return pick(free, key=lambda spot: (spot.start, spot.size))


def choose(
    profiles: Iterable[MigProfile],
    occupied: Collection[Placement],
    memory_mib: int,
    allows: Callable[[MigProfile], bool] = lambda profile: True,
) -> Instance | None:
    """The smallest profile with memory enough that is allowed and has a free place; None without one."""
    for profile in sorted(profiles, key=lambda one: (one.memory_mib, one.slice_count, one.name)):
        if profile.memory_mib < memory_mib or not allows(profile):
            continue
        spot = place(profile, occupied)
        if spot is not None:
            return Instance(profile, spot)
    return None


# --- what is stored ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tenant:
    """One stored pod on a node: the devices it holds, and its MIG allocations as far as they are readable."""

    uuids: frozenset[str]
    allocations: tuple[MigAllocation, ...] = ()


@dataclass(frozen=True, slots=True)
class CardState:
    """What stored allocations say of one card: whether it can be trusted, and what is occupied."""

    healthy: bool = True
    occupied: tuple[Placement, ...] = ()


def standing(
    allocations: Iterable[MigAllocation], containers: Sequence[Container], *, inits_released: bool
) -> tuple[MigAllocation, ...]:
    """The allocations that are still held: those of regular inits go with the shrink (G-20)."""
    if not inits_released:
        return tuple(allocations)
    gone = {container.position for container in containers if container.kind is ContainerClass.INIT}
    return tuple(allocation for allocation in allocations if allocation.container_index not in gone)


def card_states(modes: Mapping[str, str], tenants: Iterable[Tenant]) -> dict[str, CardState]:
    """The state of each card of a node, by uuid, from what is stored of its pods.

    `modes` holds the mode of every registered card. A MIG card that a pod holds without an allocation
    cannot be trusted; nor a card of another mode with one; an allocation for a card that is not on the
    node makes every MIG card of it doubtful.
    """
    occupied: dict[str, list[Placement]] = {uuid: [] for uuid in modes}
    doubtful: set[str] = set()
    for tenant in tenants:
        placed = {allocation.gpu_uuid for allocation in tenant.allocations}
        for allocation in tenant.allocations:
            occupied.setdefault(allocation.gpu_uuid, []).append(allocation.placement)
        doubtful |= {uuid for uuid in tenant.uuids - placed if modes.get(uuid) == MIG_MODE}
        doubtful |= {uuid for uuid in placed if uuid in modes and modes[uuid] != MIG_MODE}
        if placed - modes.keys():
            doubtful |= {uuid for uuid, mode in modes.items() if mode == MIG_MODE}
    return {uuid: CardState(uuid not in doubtful, tuple(occupied[uuid])) for uuid in modes}

"""The walk over a vendor's devices (semantics 6.2), and the rules that need no more than it.

NVIDIA, Cambricon, Hygon and Iluvatar use it whole; most others with other checks or another choice
among the devices that pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from hamiacct.accounting import mig, topology
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.devices import MigProfile
from hamiacct.accounting.fitting import checks
from hamiacct.accounting.fitting.checks import WHOLE_CARD, Checks, Look
from hamiacct.accounting.fitting.scene import Outcome, Pick, Picks, Refused, Scene
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.reasons import Reason


class Sized(NamedTuple):
    """What is asked of one device, and out of how many cores."""

    memory_mib: int
    cores: int
    cores_total: int


Sizing = Callable[[Scene, FitDevice], Sized]


def as_asked(scene: Scene, device: FitDevice) -> Sized:
    """The amount, or the percentage of this device's memory; more cores than a card has are a card's."""
    request = scene.request
    return Sized(
        request.memory_on(device.total.memory_mib), min(request.cores, WHOLE_CARD), device.total.cores
    )


@dataclass(frozen=True, slots=True)
class Walk:
    """Which checks a vendor makes before and after the NUMA rule, and how it sizes a request."""

    before: Checks = checks.BEFORE_NUMA
    after: Checks = checks.AFTER_NUMA
    sizing: Sizing = as_asked

    def look(self, scene: Scene, device: FitDevice, taken: Picks = ()) -> Look:
        """What would be asked of the device, after what was taken already."""
        sized = self.sizing(scene, device)
        instance = _instance(scene, device, sized.memory_mib, taken)
        memory_mib, cores = sized.memory_mib, sized.cores
        if instance is not None:
            memory_mib, cores = instance.profile.memory_mib, instance.profile.cores
        pick = scene.pick(device, memory_mib, cores, instance)
        return Look(scene, device, sized.memory_mib, sized.cores, sized.cores_total, taken, pick)


SHARED = Walk()


@dataclass
class Found:
    """What a walk came to. Mutable while it walks, and seen by no one before."""

    picks: list[Pick] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def refusal(self) -> Refused:
        """Every reason met; what was taken was not enough."""
        self.refused[Reason.TOO_FEW_TAKEN] += len(self.picks)
        return Refused({reason: count for reason, count in self.refused.items() if count})


def walk(scene: Scene, rule: Walk = SHARED, *, every: bool = False) -> Found:
    """Looks at the devices in their order until enough are taken, or at every one.

    A device is taken once, a MIG card as often as it has room. With numa-bind all that is taken lies on
    one NUMA node: at the next one, what was taken is put back, unless it is enough already. Where every
    device is looked at, quotas judge each as if it were the only one: the choice comes later (G-5).
    """
    found = Found()
    count = scene.request.count
    numa: int | None = None
    for device in scene.devices:
        while every or len(found.picks) < count:
            taken = tuple(pick for pick in found.picks if not every or pick.device is device)
            look = rule.look(scene, device, taken)
            reason = checks.first_reason(rule.before, look)
            if reason is None and scene.choice.numa_bind and device.numa != numa:
                if len(found.picks) >= count:
                    return found
                found.refused[Reason.NUMA] += len(found.picks)
                found.picks.clear()
                numa = device.numa
                look = rule.look(scene, device)
            reason = reason or checks.first_reason(rule.after, look)
            if reason is not None:
                found.refused[reason] += 1
                break
            found.picks.append(look.pick)
            if look.pick.instance is None:
                break
    return found


def take(scene: Scene, rule: Walk = SHARED) -> Outcome:
    """The first devices that pass; with the topology-aware policy the best linked of all that pass."""
    count = scene.request.count
    by_links = scene.option("topology") is True and scene.policy.is_topology_aware
    found = walk(scene, rule, every=by_links)
    if len(found.picks) < count:
        return found.refusal()
    if not by_links:
        return tuple(found.picks)
    uuids = [pick.device.uuid for pick in found.picks]
    ways = topology.by_preference(uuids, count, scene.node.pair_scores)
    return admitted(scene, found, ([found.picks[place] for place in way] for way in ways))


MAX_WAYS = 100
"""So many combinations are shown to the quotas; they differ only in which cards add to which peaks."""


def admitted(scene: Scene, found: Found, ways: Iterable[Sequence[Pick]]) -> Outcome:
    """The first of the ways that quotas admit; each of them is enough devices."""
    for way in islice(ways, MAX_WAYS):
        if scene.admits(way):
            return tuple(way)
    found.refused[Reason.QUOTA] += scene.request.count
    found.picks.clear()
    return found.refusal()


def take_in_order(scene: Scene, found: Found, preferred: Iterable[Pick]) -> Outcome:
    """The first of the preferred that quotas admit together."""
    picks: list[Pick] = []
    for pick in preferred:
        if len(picks) == scene.request.count:
            break
        if scene.admits((*picks, pick)):
            picks.append(pick)
        else:
            found.refused[Reason.QUOTA] += 1
    if len(picks) == scene.request.count:
        return tuple(picks)
    found.picks = picks
    return found.refusal()


def _instance(scene: Scene, device: FitDevice, memory_mib: int, taken: Picks) -> mig.Instance | None:
    """The MIG instance the request would get on the card; None on any other card, or where none has room."""
    if scene.option("mig") is not True or device.mode != mig.MIG_MODE:
        return None
    here = [pick for pick in taken if pick.device.uuid == device.uuid and pick.instance is not None]
    occupied = [*device.mig_in_use, *(pick.instance.place for pick in here if pick.instance)]
    free = device.free.minus(scene.taken_of(device, here))

    def has_room(profile: MigProfile) -> bool:
        return Amount(scene.slots_per_row, profile.memory_mib, profile.cores).fits_in(free)

    return mig.choose(device.mig_profiles, occupied, memory_mib, has_room)

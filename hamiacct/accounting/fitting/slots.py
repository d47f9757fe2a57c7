"""Biren and Vastai: a slot of a card, neither memory nor cores; Vastai's dies of one card stay together."""

from __future__ import annotations

from collections.abc import Iterable

from hamiacct.accounting.fitting import checks, groups, shared
from hamiacct.accounting.fitting.scene import Outcome, Placed, Scene
from hamiacct.accounting.fitting.shared import Sized
from hamiacct.accounting.offers import FitDevice

CARD = "AIC"
STRATEGY = "DeviceStrategy"


def _a_slot(scene: Scene, device: FitDevice) -> Sized:
    return Sized(0, 0, device.total.cores)


_WALK = shared.Walk(
    after=(checks.of_uuid, checks.has_slot, checks.mutex, checks.within_quota), sizing=_a_slot
)


def take(scene: Scene) -> Outcome:
    """The first cards with a free slot."""
    return shared.take(scene, _WALK)


def gives_dies(devices: Iterable[FitDevice]) -> bool:
    """Whether a node gives out the dies of its cards."""
    return any(device.custom.get(STRATEGY) == "die" for device in devices)


def take_dies(scene: Scene) -> Outcome:
    """As `take`; where dies are given out, several come from as few cards as can be."""
    if not gives_dies(scene.devices):
        return take(scene)
    found = shared.walk(scene, _WALK, every=True)
    if len(found.picks) < scene.request.count:
        return found.refusal()
    if scene.request.count == 1:
        return shared.take_in_order(scene, found, found.picks)
    return shared.take_in_order(scene, found, groups.biggest_first(found.picks, CARD))


def score_dies(placed: Placed) -> float:
    """How much of each container's dies lies on one card."""
    return groups.togetherness(placed.containers, CARD) if gives_dies(placed.before) else 0.0

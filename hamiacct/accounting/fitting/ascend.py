"""Ascend: soft split where the node offers it, chips of one network together, 910C in whole modules."""

from __future__ import annotations

from collections.abc import Sequence

from hamiacct.accounting.fitting import checks, groups, shared
from hamiacct.accounting.fitting.checks import WHOLE_CARD, Look
from hamiacct.accounting.fitting.scene import Outcome, Pick, Placed, Scene
from hamiacct.accounting.fitting.shared import Sized
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.policies import f32
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.vendors import Vendor

SOFT_SPLIT = "hami-core"
NETWORK = "NetworkID"
NETWORK_WEIGHT = 10
CHIPS_OF_MODULE = 2


def wants_soft_split(scene: Scene) -> bool:
    """Whether the pod names the mode in which cores are limited by software."""
    return scene.choice.mode == SOFT_SPLIT


def offers_soft_split(node: FitNode, vendor: Vendor) -> bool:
    """The node's own switch, else the configured one (semantics 2.4)."""
    switches = [node.annotations[key] for key in vendor.inventory.switches if key in node.annotations]
    return switches[0] == "true" if switches else vendor.request.get("soft_split") is True


def _of_mode(look: Look) -> Reason | None:
    scene = look.scene
    refused = wants_soft_split(scene) and not offers_soft_split(scene.node, scene.vendor)
    return Reason.MODE if refused else None


def _sized(scene: Scene, device: FitDevice) -> Sized:
    """Under soft split a card has 100 cores, whatever it registers."""
    sized = shared.as_asked(scene, device)
    return sized._replace(cores_total=WHOLE_CARD) if wants_soft_split(scene) else sized


_WALK = shared.Walk(before=(checks.healthy, checks.uncordoned, _of_mode), sizing=_sized)


def take(scene: Scene) -> Outcome:
    """The first chips that pass; several by modules or by networks, where the chip has them."""
    count = scene.request.count
    by_module = count > 1 and scene.vendor.word in _words(scene.option("modules"))
    by_network = has_networks(scene.vendor) and all(NETWORK in device.custom for device in scene.devices)
    if not (by_module or by_network):
        return shared.take(scene, _WALK)
    found = shared.walk(scene, _WALK, every=True)
    if by_module:
        modules = whole_modules(found.picks)
        found.refused[Reason.CUSTOM_RULE] += len(found.picks) - len(modules)
        found.picks = modules
    elif count > 1:
        found.picks = groups.biggest_first(found.picks, NETWORK)
    if len(found.picks) < count:
        return found.refusal()
    return shared.take_in_order(scene, found, found.picks)


def whole_modules(picks: Sequence[Pick]) -> list[Pick]:
    """The chips whose whole module is among the picks: an even index and the next, module by module."""
    modules: dict[int, list[Pick]] = {}
    for pick in picks:
        modules.setdefault(pick.device.index // CHIPS_OF_MODULE, []).append(pick)
    return [chip for chips in modules.values() if len(chips) == CHIPS_OF_MODULE for chip in chips]


def has_networks(vendor: Vendor) -> bool:
    """Whether the chip is one of those whose networks count."""
    return vendor.word.startswith(_words(vendor.fit.get("networks")))


def score_networks(placed: Placed) -> float:
    """How much of each container's chips lies on one network, times ten."""
    if not has_networks(placed.vendor):
        return 0.0
    return f32(groups.togetherness(placed.containers, NETWORK) * NETWORK_WEIGHT)


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, tuple | list) else ()

"""Metax' shared cards: classes and qualities of service that do not mix, links for whole cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

from hamiacct.accounting.fitting import checks, shared
from hamiacct.accounting.fitting.checks import WHOLE_CARD, Look
from hamiacct.accounting.fitting.scene import Outcome, Pick, Placed, Scene
from hamiacct.accounting.fitting.shared import Sized
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.policies import NodePolicy, f32
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.selectors import Choice

ONLINE = "online"
OFFLINE = "offline"
LINK_SCORE = 10
SCORE_WEIGHT = 10_000


def _app_class(choice: Choice) -> str:
    return choice.words.get("app_class", "")


def is_online(choice: Choice) -> bool:
    """Whether the pod serves users: it is given memory and no share of the cores."""
    return _app_class(choice) == ONLINE


def _sized(scene: Scene, device: FitDevice) -> Sized:
    request = scene.request
    cores = 0 if is_online(scene.choice) else min(request.cores, WHOLE_CARD)
    return Sized(request.memory_on(device.total.memory_mib), cores, device.total.cores)


def _healthy(look: Look) -> Reason | None:
    return None if look.device.healthy else Reason.SGPU_UNHEALTHY


def _of_class(look: Look) -> Reason | None:
    """Pods of a class share no card with pods of none, nor offline ones with online ones."""
    tenants = [*look.device.tenants]
    if look.scene.is_ours(look.device):
        tenants.append(_app_class(look.scene.choice))
    if look.device.used.slots == 0:
        return None
    asked = _app_class(look.scene.choice)
    classes = {tenant for tenant in tenants if tenant in (ONLINE, OFFLINE)}
    mixed = bool(classes) != (asked in (ONLINE, OFFLINE)) or (ONLINE in classes and asked == OFFLINE)
    return Reason.APP_CLASS if mixed else None


def _of_quality(look: Look) -> Reason | None:
    """A card in use keeps its quality of service; whole cards and online pods do not care."""
    scene, device = look.scene, look.device
    free_to_change = device.used.slots == 0 or scene.is_ours(device)
    if free_to_change or scene.request.cores == WHOLE_CARD or is_online(scene.choice):
        return None
    quality = device.custom.get("qosPolicy") or ""
    return None if quality in ("", scene.choice.words.get("qos_policy", "")) else Reason.QOS_POLICY


def _unless_online(check: checks.Check) -> checks.Check:
    return lambda look: None if is_online(look.scene.choice) else check(look)


_WALK = shared.Walk(
    before=(checks.of_type, _healthy, checks.uncordoned, _of_class, _of_quality),
    after=(
        checks.of_uuid,
        checks.has_slot,
        checks.mutex,
        checks.within_quota,
        checks.has_memory,
        *(_unless_online(check) for check in (checks.has_cores, checks.alone, checks.has_any_core)),
    ),
    sizing=_sized,
)


def take(scene: Scene) -> Outcome:
    """Of all that pass: by tenants for online pods, by links for whole cards, else in their order."""
    found = shared.walk(scene, _WALK, every=True)
    count = scene.request.count
    if len(found.picks) < count:
        return found.refusal()
    preferred = found.picks
    if is_online(scene.choice):
        preferred = sorted(found.picks, key=lambda pick: _crowding(pick.device))
    elif not _app_class(scene.choice) and scene.request.cores == WHOLE_CARD:
        preferred = by_links(found.picks, count)
    return shared.take_in_order(scene, found, preferred)


def _crowding(device: FitDevice) -> tuple[bool, int, int]:
    """Few online pods are best, cards with offline pods alone the last resort."""
    tenants = Counter(device.tenants)
    only_offline = tenants[ONLINE] == 0 and tenants[OFFLINE] > 0
    return only_offline, tenants[ONLINE], tenants[OFFLINE]


def link_zone(device: FitDevice) -> int:
    """The zone in which cards are linked to each other; 0 for a card without links."""
    zone = device.custom.get("linkZone")
    return zone if isinstance(zone, int) and zone > 0 else 0


def by_links(picks: Sequence[Pick], count: int) -> list[Pick]:
    """The smallest zone that is enough, else zone after zone, then the cards without links."""
    zones: dict[int, list[Pick]] = {}
    for pick in picks:
        zones.setdefault(link_zone(pick.device), []).append(pick)
    alone = zones.pop(0, [])
    linked = sorted(zones.values(), key=len)
    enough = [zone for zone in linked if len(zone) >= count][:1]
    return [*(pick for zone in (*enough, *linked) for pick in zone), *alone]


# --- scores --------------------------------------------------------------------------------------


def score(placed: Placed) -> float:
    """How well the node serves an online pod, or keeps links whole.

    It does not depend on the node policy: it is turned over where the lowest score wins.
    """
    weight = -SCORE_WEIGHT if placed.policy is NodePolicy.SPREAD else SCORE_WEIGHT
    taken = [pick for picks in placed.containers for pick in picks]
    if is_online(placed.choice):
        devices = {pick.device.uuid: pick.device for pick in taken}
        return f32(weight * sum(_crowd_score(device) for device in devices.values()))
    whole = [pick.device for pick in taken if pick.row.cores == WHOLE_CARD]
    if whole and placed.vendor.request.get("topology_aware") is True:
        return f32(weight * _link_balance(placed.before, whole))
    return 0.0


def _crowd_score(device: FitDevice) -> int:
    only_offline, online, offline = _crowding(device)
    return -100 * offline if only_offline else -20 * online - 2 * offline


def _link_balance(before: Sequence[FitDevice], taken: Sequence[FitDevice]) -> int:
    """Ten times the links taken, less the links that the choice breaks."""
    names = {device.uuid for device in taken}
    available = [device for device in before if device.used.slots == 0]
    rest = [device for device in available if device.uuid not in names]
    broken = _links(available) - _links(taken) - _links(rest)
    return 10 * _links(taken) - broken


def _links(devices: Iterable[FitDevice]) -> int:
    zones = [(device.uuid, link_zone(device)) for device in devices]
    return LINK_SCORE * sum(
        one[1] == other[1] != 0 and one[0] != other[0] for one, other in combinations(zones, 2)
    )

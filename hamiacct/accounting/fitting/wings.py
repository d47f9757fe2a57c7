"""Kunlunxin: two wings of four cards, fully linked inside; across, only opposite cards are linked.

Cards are told apart by their index, never by their place in a sorted list (G-35).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hamiacct.accounting.fitting import checks
from hamiacct.accounting.fitting.scene import Outcome, Placed, Refused, Scene
from hamiacct.accounting.fitting.shared import Sized, Walk
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.reasons import Reason

LEFT = frozenset(range(4))
RIGHT = frozenset(range(4, 8))
BOTH = LEFT | RIGHT
ACROSS: tuple[tuple[int, ...], ...] = ((0, 4), (1, 5), (2, 6), (3, 7))
SQUARES: tuple[tuple[int, ...], ...] = (
    (0, 1, 4, 5),
    (2, 3, 6, 7),
    (0, 2, 4, 6),
    (1, 3, 5, 7),
    (0, 3, 4, 7),
    (1, 2, 5, 6),
)
"""Two pairs of opposite cards: what four may be when no wing has four."""

PREFERRED_FREE = {1: (1, 3, 2, 4), 2: (2, 3, 4), 4: (4,)}
"""How many free cards the wing should have that so many are taken from, best first: odd ones leave pairs."""


def choose(free: frozenset[int], count: int) -> tuple[int, ...]:
    """The indexes of the cards to take; empty where the links allow none."""
    if count == len(BOTH):
        return tuple(sorted(BOTH)) if free >= BOTH else ()
    for wanted in PREFERRED_FREE.get(count, ()):
        for wing in (LEFT, RIGHT):
            if len(wing & free) == wanted:
                return tuple(sorted(wing & free))[:count]
    across = {2: ACROSS, 4: SQUARES}.get(count, ())
    return next((group for group in across if free >= set(group)), ())


Usable = Callable[[Scene, FitDevice], bool]


def _whole(scene: Scene, device: FitDevice) -> Sized:
    return Sized(device.total.memory_mib, device.total.cores, device.total.cores)


def _slice(scene: Scene, device: FitDevice) -> Sized:
    return Sized(scene.request.memory_on(device.total.memory_mib), scene.request.cores, device.total.cores)


def _same_slices(scene: Scene, device: FitDevice) -> bool:
    """A used card takes only slices of the size it has, while it has room for one."""
    used = device.used
    if used.slots == 0:
        return True
    asked = scene.request.memory_on(device.total.memory_mib)
    return used.memory_mib // used.slots == asked


def take_cards(scene: Scene) -> Outcome:
    """Whole, unused cards."""
    walk = Walk(before=_BEFORE, after=(), sizing=_whole)
    return _take(scene, walk, lambda _, device: device.used.slots == 0)


def take_slices(scene: Scene) -> Outcome:
    """Slices of cards, several of one size on each."""
    walk = Walk(before=_BEFORE, after=(checks.has_slot, checks.has_memory, checks.has_cores), sizing=_slice)
    return _take(scene, walk, _same_slices)


_BEFORE = (checks.healthy, checks.uncordoned, checks.of_uuid, checks.mutex)


def _take(scene: Scene, walk: Walk, usable: Usable) -> Outcome:
    refused: Counter[str] = Counter()
    looks = {}
    for device in scene.devices:
        look = walk.look(scene, device)
        reason = checks.first_reason(walk.before, look)
        if reason is not None:
            refused[reason] += 1
        elif usable(scene, device) and checks.first_reason(walk.after, look) is None:
            looks[device.index] = look
    chosen = choose(frozenset(looks), scene.request.count)
    if not chosen:
        refused[Reason.NUMA] += 1
        return Refused(refused)
    picks = tuple(looks[index].pick for index in chosen)
    if not scene.admits(picks):
        refused[Reason.QUOTA] += len(picks)
        return Refused(refused)
    return picks


# --- score ---------------------------------------------------------------------------------------


def _disorder(cards: frozenset[int]) -> int:
    """How far the wings are from being whole; a single card of a wing is the worst."""
    if not cards:
        return 1
    weights = {4: 0, 1: 2}
    return sum(weights.get(len(wing), 1) for wing in (cards & LEFT, cards - LEFT))


def score(placed: Placed) -> float:
    """3000, 2000, 1000 or 0: the more the pod's cards are in order against those in use, the better."""
    used = frozenset(device.index for device in placed.before if device.used.slots > 0)
    taken = frozenset(pick.device.index for picks in placed.containers for pick in picks)
    grades = {-1: 3000.0, 0: 2000.0, 1: 1000.0, 2: 0.0}
    return grades.get(_disorder(taken) - _disorder(used), 1000.0)

"""Devices that belong together: dies of a card, chips of a network (semantics 3.3, Vastai and Ascend)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from hamiacct.accounting.fitting.scene import Pick, Picks
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.policies import f32


def group_of(device: FitDevice, name: str) -> Hashable:
    """The group a device names in its register; None where it names none."""
    value = device.custom.get(name)
    if isinstance(value, float):
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def biggest_first(picks: Iterable[Pick], name: str) -> list[Pick]:
    """The picks, group by group, the group with the most of them first; ties in their order."""
    groups: dict[Hashable, list[Pick]] = {}
    for pick in picks:
        groups.setdefault(group_of(pick.device, name), []).append(pick)
    return [pick for group in sorted(groups.values(), key=len, reverse=True) for pick in group]


def togetherness(containers: Iterable[Picks], name: str) -> float:
    """The sum over containers of their biggest group's share; 0 where a device names no group."""
    score = 0.0
    for picks in containers:
        sizes: dict[Hashable, int] = {}
        for pick in picks:
            group = group_of(pick.device, name)
            if group is None:
                return 0.0
            sizes[group] = sizes.get(group, 0) + 1
        if sizes:
            score = f32(score + f32(max(sizes.values()) / len(picks)))
    return score

"""Choosing devices by the links between them (semantics 6.2, topology-aware)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

PairScores = Mapping[str, Mapping[str, int]]

MAX_COMBINATIONS = 20_000
"""Up to here every combination is looked at (16 devices have 12,870 halves); beyond, the first alone."""


def by_preference(uuids: Sequence[str], count: int, scores: PairScores) -> Iterator[tuple[int, ...]]:
    """The ways to take `count` of the devices, as places in the list, best first.

    One device: the lowest sum of scores to all others, so that the best links stay together. Several:
    the highest sum among themselves, each pair once. A missing score is 0; ties in the order of the list.
    """
    links = [[scores.get(one, {}).get(other, 0) for other in uuids] for one in uuids]
    if count == 1:
        sums = [sum(row) - row[place] for place, row in enumerate(links)]
        yield from ((place,) for place in sorted(range(len(uuids)), key=sums.__getitem__))
    elif not any(map(any, links)) or math.comb(len(uuids), count) > MAX_COMBINATIONS:
        yield from combinations(range(len(uuids)), count)
    else:
        ways = list(combinations(range(len(uuids)), count))
        yield from sorted(
            ways, key=lambda way: -sum(links[one][other] for one, other in combinations(way, 2))
        )

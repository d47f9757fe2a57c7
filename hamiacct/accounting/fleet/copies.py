"""Pods that are placed one after the other on each of some nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hamiacct.accounting.asks import UNLIMITED, Ask
from hamiacct.accounting.fleet.arrays import CORES, MEMORY, SLOTS, Numbers
from hamiacct.accounting.fleet.columns import Columns
from hamiacct.accounting.fleet.walk import Picked, Walk
from hamiacct.accounting.pods import ContainerClass


@dataclass
class Copies:
    """Pods that are placed one after the other on each of some nodes. Mutable while it counts."""

    columns: Columns
    ask: Ask
    places: Numbers

    def counts(self, at_most: int) -> Sequence[int | None]:
        """How many each node takes; None where the definition has to say."""
        counts = np.zeros(len(self.places), np.int64)
        used = self.columns.used[:, :, self.places]
        open_nodes = np.arange(len(self.places))
        for _ in range(at_most):
            if not len(open_nodes):
                break
            walk = Walk.over(self.columns, self.ask, UNLIMITED, self.places[open_nodes])
            walk.used, walk.picks, walk.tells = used[:, :, open_nodes], [], False
            walk.run()
            if walk.deferred.any():
                return [None] * len(self.places)
            takes = walk.alive
            open_nodes = open_nodes[takes]
            used[:, :, open_nodes] += self.charge(walk.picks, walk.used.shape)[:, :, takes]
            counts[open_nodes] += 1
        found: list[int] = counts.tolist()
        return found

    def charge(self, picks: Sequence[Picked], shape: tuple[int, ...]) -> Numbers:
        """What the books would charge for the picks, by card and node: the fold of `Footprint`."""
        steady, peak = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for picked in picks:
            held = np.zeros(shape, np.int64)
            held[SLOTS] = picked.taken
            held[MEMORY], held[CORES] = picked.taken * picked.memory_mib, picked.taken * picked.cores
            if self.ask.containers[picked.number].kind is ContainerClass.INIT:
                peak = np.maximum(peak, steady + held)
            else:
                steady = steady + held
        return np.maximum(peak, steady)

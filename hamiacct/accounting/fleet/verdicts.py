"""What is answered: placements, and refusals said once for all nodes that refuse alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hamiacct.accounting.fit import Misfit, Placement


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nodes that refuse for the same reasons, by name; what a `fit.Misfit` says, said once for all."""

    message: str
    reasons: Mapping[str, int]
    container: str
    position: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """The placements, best first, and why the other nodes refuse."""

    candidates: tuple[Placement, ...]
    refusals: tuple[Refusal, ...] = ()

    @cached_property
    def failed(self) -> tuple[Misfit, ...]:
        """One verdict per node that refuses, by name."""
        told = [
            Misfit(node, refusal.message, refusal.reasons, refusal.container, refusal.position)
            for refusal in self.refusals
            for node in refusal.nodes
        ]
        return tuple(sorted(told, key=lambda misfit: misfit.node))

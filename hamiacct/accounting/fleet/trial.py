"""One question: the nodes as they are judged, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hamiacct.accounting import fit
from hamiacct.accounting.asks import Ask, Room
from hamiacct.accounting.fit import Misfit, Placement, Verdict
from hamiacct.accounting.fleet import forms
from hamiacct.accounting.fleet.arrays import BLOCK_GROWTH, FIRST_BLOCK, Numbers
from hamiacct.accounting.fleet.columns import Columns
from hamiacct.accounting.fleet.drawing import drawn
from hamiacct.accounting.fleet.verdicts import Judgement, Refusal
from hamiacct.accounting.fleet.walk import Walk
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.reasons import Reason

Look = Callable[[Sequence[str]], Mapping[str, FitNode]]
"""What nodes of these names are like in truth; one that is not told is not there."""


@dataclass
class Unsure:
    """Nodes of which the columns know too little, and what they are like in truth, which is asked for some at
    once, when it is their turn."""

    columns: Columns
    places: Numbers
    look: Look
    expected: list[int] = field(default_factory=list)
    at_once: int = 1
    seen: dict[int, FitNode] = field(default_factory=dict)

    def expect(self, places: Numbers, wanted: int) -> None:
        """Those whose turn comes now, in order, until so many take the pod."""
        self.expected, self.at_once = places.tolist(), max(wanted, 1)

    def node(self, place: int) -> FitNode | None:
        """The node at a place as it is in truth; None for one that the columns know all of."""
        if place not in self.seen and place in self.expected:
            start = self.expected.index(place)
            places = self.expected[start : start + self.at_once]
            self.at_once *= 2
            names = [self.columns.names[one] for one in places]
            known = self.look(names)
            self.seen |= {
                one: known.get(name) or FitNode(name) for one, name in zip(places, names, strict=True)
            }
        return self.seen.get(place)


@dataclass
class Trial:
    """The nodes of one question as they are judged, and what was found. Mutable, seen by no one else.

    `wanted` is how many placements are still to be found; `judged` what the definition said, by place.
    """

    columns: Columns
    ask: Ask
    room: Room
    limit: int
    verdicts: bool
    wanted: int
    placements: list[Placement] = field(default_factory=list)
    misfits: dict[tuple[str, str, int], list[Misfit]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    judged: dict[int, Verdict] = field(default_factory=dict)
    unsure: Unsure | None = None

    @property
    def tries_all(self) -> bool:
        """Whether every node is judged: for its verdict, or where scores depend on what is chosen."""
        return self.verdicts or forms.adds_scores(self.ask)

    def run(self, places: Numbers | None) -> None:
        """Judges the nodes at these places: best first until enough take the pod, or all.

        Where best first finds none, all are judged once more, for why.
        """
        if not self.tries_all and self.wanted > 0:
            for block in self.blocks(places):
                self.try_best(block)
                if self.wanted <= 0:
                    return
            if self.unsure is not None:
                return
        if self.tries_all or not self.placements:
            self.judge(places)

    def blocks(self, places: Numbers | None) -> Iterator[Numbers]:
        """The places in blocks, best first: the first few without sorting all."""
        policy, size = self.ask.node_policy, FIRST_BLOCK
        if places is None:
            yield self.columns.best(policy)
            if len(self.columns) <= size:
                return
            order = self.columns.order(policy)
        else:
            keys = self.columns.keys(policy)[places]
            if len(keys) > size:
                first = np.argpartition(keys, size - 1)[:size]
                yield places[first[np.argsort(keys[first])]]
            order = places[np.argsort(keys)]
            if len(keys) <= size:
                yield order
                return
        while size < len(order):
            yield order[size : size * BLOCK_GROWTH]
            size *= BLOCK_GROWTH

    def try_best(self, places: Numbers) -> None:
        """Places the pod on the first of these nodes that take it; nothing is kept of the others."""
        walk = Walk.over(self.columns, self.ask, self.room, places)
        walk.tells = False
        if len(places) <= FIRST_BLOCK and forms.is_drawn(self.ask):
            walk.picks = []
        if self.unsure is None:
            walk.run()
        else:
            walk.unsure = are_unsure = np.isin(places, self.unsure.places)
            walk.run()
            walk.defer(are_unsure)
            self.unsure.expect(walk.places_of(walk.deferred & are_unsure), self.wanted)
        self.take(walk, walk.places_of(walk.alive | walk.deferred))

    def judge(self, places: Numbers | None) -> None:
        """Judges all of these nodes, and places the pod on the best that take it."""
        walk = Walk.over(self.columns, self.ask, self.room, places)
        walk.run()
        self.refusals.extend(walk.refusals)
        keys = self.columns.keys(self.ask.node_policy)
        open_places = walk.places_of(walk.alive | walk.deferred)
        if not walk.deferred.any() and self.wanted < len(open_places):
            best = np.argpartition(keys[open_places], self.wanted)[: self.wanted]
            open_places = open_places[best]
        self.take(walk, open_places[np.argsort(keys[open_places])])

    def take(self, walk: Walk, open_places: Numbers) -> None:
        """Places the pod on the first of these places, best first. Those that are doubtful are judged by the
        definition, all of them where all are to be judged."""
        doubtful = set(walk.places_of(walk.deferred).tolist())
        best_first: list[int] = open_places.tolist()
        sure = [place for place in best_first if place not in doubtful] if doubtful else best_first
        placements = drawn(walk, sure[: max(self.wanted, 0)])
        for place in best_first:
            if self.wanted <= 0 and not (self.tries_all and place in doubtful):
                if not doubtful:
                    return
                continue
            if place in placements:
                self.placements.append(placements[place])
                self.wanted -= 1
            elif self.place_at(place):
                self.wanted -= 1
            else:
                assert place in doubtful, "the columns took what the definition refuses"

    def place_at(self, place: int) -> bool:
        """Judges the node at a place by the definition, once."""
        if place not in self.judged:
            node = self.unsure.node(place) if self.unsure is not None else None
            self.judged[place] = fit.place(node or self.columns.at(place), self.ask, self.room)
        verdict = self.judged[place]
        if isinstance(verdict, Placement):
            self.placements.append(verdict)
        return isinstance(verdict, Placement)

    def place(self, node: FitNode) -> None:
        """Judges a node that is given by the definition."""
        verdict = fit.place(node, self.ask, self.room)
        if isinstance(verdict, Placement):
            self.placements.append(verdict)
        else:
            self.refuse(verdict)

    def refuse(self, misfit: Misfit) -> None:
        """Keeps a refusal of the definition's."""
        self.misfits.setdefault((misfit.message, misfit.container, misfit.position), []).append(misfit)

    def unregistered(self, names: Iterable[str]) -> None:
        """Nodes that nobody knows."""
        told = tuple(sorted(names))
        if told:
            reason = Reason.NODE_UNREGISTERED
            self.refusals.append(Refusal(reason, {reason: 1}, "", 0, told))

    def judgement(self) -> Judgement:
        """What was found."""
        best = fit.order_placements(self.placements, self.ask.node_policy)[: self.limit]
        if not self.verdicts and best:
            return Judgement(tuple(best))
        for verdict in self.judged.values():
            if isinstance(verdict, Misfit):
                self.refuse(verdict)
        one_by_one = [
            Refusal(
                group[0].message,
                group[0].reasons,
                group[0].container,
                group[0].position,
                tuple(sorted(misfit.node for misfit in group)),
            )
            for group in self.misfits.values()
        ]
        return Judgement(tuple(best), (*self.refusals, *one_by_one))

"""The fleet: columns that answer questions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from hamiacct.accounting.asks import UNLIMITED, Ask, Room
from hamiacct.accounting.fitting import rules
from hamiacct.accounting.fleet import forms
from hamiacct.accounting.fleet.arrays import BLOCK_GROWTH, FIRST_BLOCK, Numbers
from hamiacct.accounting.fleet.columns import Columns
from hamiacct.accounting.fleet.copies import Copies
from hamiacct.accounting.fleet.trial import Look, Trial, Unsure
from hamiacct.accounting.fleet.verdicts import Judgement
from hamiacct.accounting.fleet.walk import Walk
from hamiacct.accounting.offers import FitNode

MAX_GIVEN = 16
"""So many nodes are judged one by one; of more, columns are made."""


class Fleet(Columns):
    """Nodes as columns, and the questions about them."""

    def judge(
        self,
        ask: Ask,
        room: Room = UNLIMITED,
        nodes: Iterable[str] | None = None,
        *,
        limit: int = 1,
        verdicts: bool = False,
        instead: Iterable[FitNode] = (),
        unsure: Collection[str] = (),
        look: Look = lambda names: {},
    ) -> Judgement:
        """The best `limit` placements of the pod, and why nodes refuse it, as `fit.place` says of each.

        `nodes` are the names in question, all without it; those that are not known are unregistered.
        With `verdicts` every node that refuses is told. Without, nodes are tried best first until enough
        take the pod, and refusals are told only where none does: then all were tried.
        Nodes of `instead` are judged as they are given, in the place of the fleet's own of their names.
        Of nodes that are `unsure` the columns know no more than amounts, and nothing against a card that is
        not so; what they are like `look` tells. Where nodes are tried best first it is asked of those whose
        turn comes, and no refusal is told.
        """
        given = {node.name: node for node in instead}
        asked_for = None if nodes is None else frozenset(nodes := list(nodes))
        doubtful = [
            name
            for name in unsure
            if name not in given and name in self and (asked_for is None or name in asked_for)
        ]
        if doubtful and (verdicts or limit < 1 or forms.adds_scores(ask)):
            known = look(doubtful)
            given |= {name: known.get(name) or FitNode(name) for name in doubtful}
            doubtful = []
        if len(given) > MAX_GIVEN:
            fleet = self.with_nodes(given.values())
            return fleet.judge(ask, room, nodes, limit=limit, verdicts=verdicts, unsure=doubtful, look=look)
        asked = self.inventory.names.places.keys() if nodes is None else dict.fromkeys(nodes)
        trial = Trial(self, ask, room, max(limit, 0), verdicts, wanted=max(limit, 0))
        for name in given if nodes is None else (name for name in asked if name in given):
            trial.place(given[name])
        places = self._places(None if nodes is None else asked, given)
        if doubtful:
            at = self.inventory.names.places
            trial.unsure = Unsure(self, np.array([at[name] for name in doubtful], np.int64), look)
        if nodes is not None:
            trial.unregistered([name for name in asked if name not in self and name not in given])
        trial.run(places)
        return trial.judgement()

    # --- count -----------------------------------------------------------------------------------

    def limits(self, ask: Ask, room: Room, pods: int) -> bool:
        """Whether so many such pods may come to what the quotas leave, wherever they go.

        Of vendors with rules of their own they always may: what those make of a request is theirs to say.
        """
        of_each = Room({bound: left // max(pods, 1) for bound, left in room.left.items()})
        walk = Walk.over(self, ask, of_each, np.zeros(0, np.int64))
        return any(
            walk.is_limited(vendor, by_profiles=self.inventory.view(key).mig is not None)
            or (of_each.limits(key) and rules.rule_name(vendor) != rules.PLAIN)
            for key, vendor in ask.vendors.items()
        )

    def copies(self, ask: Ask, names: Sequence[str], at_most: int) -> Iterator[tuple[str, int | None]]:
        """How many such pods each node takes one after the other, at most so many, whatever quotas say.

        None where the definition has to count, and for nodes that are not here. Nodes are counted in blocks,
        each when its first is asked for: all of its nodes take one more pod together, until none does.
        """
        start, size = 0, FIRST_BLOCK
        while start < len(names):
            block = names[start : start + size]
            counted: dict[str, int | None] = {}
            if forms.is_drawn(ask):
                places = [place for name in block if (place := self._counted_at(name, ask)) is not None]
                counts = Copies(self, ask, np.array(places, np.int64)).counts(at_most)
                known = self.inventory.names.by_place
                counted = {known[place]: count for place, count in zip(places, counts, strict=True)}
            for name in block:
                yield name, counted.get(name)
            start, size = start + size, size * BLOCK_GROWTH

    def _counted_at(self, name: str, ask: Ask) -> int | None:
        """The place of a node whose copies the columns count; None where the definition has to."""
        place = self.inventory.names.places.get(name)
        if place is None or place in self.whole:
            return None
        masks = (self.inventory.view(key).mig for key in ask.vendors)
        return None if any(mig is not None and mig[:, place].any() for mig in masks) else place

    def first_taker(self, ask: Ask, room: Room, names: Sequence[str]) -> int:
        """The number of the first node that takes the pod, or of which the definition has to say.

        As many as there are nodes, where none is. Those that are not here take nothing.
        """
        known = self.inventory.names.places
        numbered = [(number, known[name]) for number, name in enumerate(names) if name in known]
        start, size = 0, FIRST_BLOCK
        while start < len(numbered):
            block = numbered[start : start + size]
            walk = Walk.over(self, ask, room, np.array([place for _, place in block], np.int64))
            walk.tells = False
            walk.run()
            found = np.flatnonzero(walk.alive | walk.deferred)
            if len(found):
                return block[int(found[0])][0]
            start, size = start + size, size * BLOCK_GROWTH
        return len(names)

    def _places(self, asked: Iterable[str] | None, given: Mapping[str, FitNode]) -> Numbers | None:
        """The places of the nodes to judge; None for all."""
        if asked is None and not given:
            return None
        known = self.inventory.names.places
        names = known if asked is None else asked
        found = [known[name] for name in names if name in known and name not in given]
        return np.array(found, np.int64)

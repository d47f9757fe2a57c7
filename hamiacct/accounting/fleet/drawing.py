"""Placements drawn from what a walk picked: on the nodes that are told, and on no others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hamiacct.accounting.amounts import UNUSED, Amount, Usage
from hamiacct.accounting.asks import Ask
from hamiacct.accounting.fit import Placement
from hamiacct.accounting.fleet import forms
from hamiacct.accounting.fleet.columns import Columns
from hamiacct.accounting.fleet.walk import Picked, Walk
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.pods import Allocation, DeviceKey, Row


def drawn(judged: Walk, places: Sequence[int]) -> dict[int, Placement]:
    """The placements on nodes that take the pod, by place; none where the definition has to draw them.

    Where the walk that judged them kept no picks, as one over many nodes does, these few are walked again.
    """
    columns, ask = judged.columns, judged.ask
    if not places or not forms.is_drawn(ask):
        return {}
    masks = [cards for key in ask.vendors if (cards := columns.inventory.view(key).mig) is not None]
    places = [
        place
        for place in places
        if place not in columns.whole and not any(cards[:, place].any() for cards in masks)
    ]
    if not places:
        return {}
    walk = judged
    if walk.picks is None or walk.places is None:
        walk = Walk.over(columns, ask, judged.room, np.array(places, np.int64))
        walk.picks, walk.tells = [], False
        walk.run()
    assert walk.picks is not None
    assert walk.places is not None
    numbers = {place: number for number, place in enumerate(walk.places.tolist())}
    places = [place for place in places if walk.alive[numbers[place]]]
    nodes = np.array([numbers[place] for place in places], np.int64)
    taken = [picked.on(nodes) for picked in walk.picks]
    return {
        place: _placement(columns, ask, place, [of_nodes[number] for of_nodes in taken], walk.picks)
        for number, place in enumerate(places)
    }


def _placement(
    columns: Columns,
    ask: Ask,
    place: int,
    taken: Sequence[Sequence[tuple[int, int, int]]],
    picks: Sequence[Picked],
) -> Placement:
    """The placement that picks on one node make; `taken` holds card, memory and cores, pick by pick."""
    inventory = columns.inventory
    name, uuids = inventory.names.by_place[place], inventory.uuids[place]
    groups: dict[str, list[tuple[Row, ...]]] = {key: [()] * len(ask.containers) for key in ask.vendors}
    held: list[Held] = [UNUSED] * len(ask.containers)
    used: set[int] = set()
    for rows, picked in zip(taken, picks, strict=True):
        key = picked.vendor.key
        used.update([card for card, _, _ in rows])
        groups[key][picked.number] = tuple(
            [Row(uuids[card], key, memory_mib, cores) for card, memory_mib, cores in rows]
        )
        holding: Held = Usage(
            [
                (DeviceKey(name, uuids[card], key), Amount(1, memory_mib, cores))
                for card, memory_mib, cores in rows
            ]
        )
        held[picked.number] = held[picked.number].plus(holding)
    footprint: Footprint[DeviceKey] = Footprint()
    for container, of_one in zip(ask.containers, held, strict=True):
        footprint = footprint.then(container.kind, of_one)
    cards = sorted(used)
    now = [Amount(*amount) for amount in columns.used[:, cards, place].T.tolist()]
    return Placement(
        name,
        {key: Allocation(key, name, tuple(of_vendor)) for key, of_vendor in groups.items()},
        footprint,
        float(columns.scores[place]),
        devices=inventory.devices(place, cards, now),
    )

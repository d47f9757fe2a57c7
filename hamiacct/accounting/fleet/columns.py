"""Nodes, what they registered and what is used of it, as columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Self

import numpy as np

from hamiacct.accounting import fit, policies
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.fleet.arrays import FIRST_BLOCK, MAX_CARDS, Floats, Numbers
from hamiacct.accounting.fleet.inventory import Inventory, Plan, Register
from hamiacct.accounting.fleet.scores import node_scores
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.policies import NodePolicy


@dataclass(frozen=True, eq=False)
class Columns:
    """Nodes, what they registered and what is used of it, as columns.

    A value: `with_usage` and `with_nodes` return another one and share what did not change, so threads
    may judge one while another is made. `used` is [3, cards, nodes]; nodes that the columns cannot hold,
    and those whose vendors give out named cores, are kept whole in `whole`, by place.
    """

    inventory: Inventory
    used: Numbers
    scores: Floats
    whole: Mapping[int, FitNode]
    _keys: dict[NodePolicy, Numbers] = field(default_factory=dict)
    _orders: dict[tuple[NodePolicy, bool], Numbers] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[FitNode]) -> Self:
        """The columns of these nodes; names are unique."""
        nothing = Inventory.empty()
        return cls(nothing, nothing.totals, np.zeros(0, np.float32), {}).with_nodes(tuple(nodes))

    @classmethod
    def of_register(cls, register: Register) -> Self:
        """The same of plain nodes that come as columns."""
        inventory, used = Inventory.of(register)
        columns = cls(inventory, used, np.zeros(len(register.names), np.float32), {})
        return columns._scored(np.arange(len(register.names)))

    def __len__(self) -> int:
        return len(self.inventory.uuids)

    def __contains__(self, name: object) -> bool:
        return name in self.inventory.names.places

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its nodes, in no order."""
        return self.inventory.names.by_place

    # --- change ----------------------------------------------------------------------------------

    def with_nodes(self, changed: Iterable[FitNode], gone: Collection[str] = ()) -> Self:
        """With these nodes new or replaced whole, and without those that are gone.

        Everything but usage changes in this way: inventory, health, cordons, labels, and also what MIG
        cards and tenants hold beside amounts.
        """
        latest = {node.name: node for node in changed}
        plan = self._plan(latest, gone)
        inventory, columns = self.inventory.with_nodes(latest, plan)
        used = plan.moved(self.used)
        used[:, columns[0], columns[1]] = columns[2:]
        whole = plan.kept(self.whole)
        for place, node in zip(plan.at, latest.values(), strict=True):
            if inventory.odd[place] or any(device.used.core_set for device in node.devices):
                whole[place] = node
        fleet = type(self)(inventory, used, plan.moved(self.scores), whole)
        return fleet._scored(np.array(plan.at, np.int64))

    def _plan(self, latest: Mapping[str, FitNode], gone: Collection[str]) -> Plan:
        known = self.inventory.names
        leave = {known.places[name] for name in gone if name in known.places and name not in latest}
        stay = np.arange(len(self))
        places = known.places
        if leave:
            stay = np.delete(stay, sorted(leave))
            places = {known.by_place[old]: place for place, old in enumerate(stay.tolist())}
        new = count(len(stay))
        at = tuple(places[name] if name in places else next(new) for name in latest)
        width = max((len(node.devices) for node in latest.values()), default=0)
        width = min(width, MAX_CARDS)
        return Plan(stay, at, max(width, len(self.inventory.kind)), next(new))

    def with_usage(self, rows: Iterable[tuple[str, str, Amount]]) -> tuple[Self, list[tuple[str, str]]]:
        """With what is now used of some devices (node, uuid, amount), and those devices that are not here."""
        inventory, places = self.inventory, self.inventory.names.places
        fresh: dict[int, dict[str, Amount]] = {}
        unknown = []
        for name, uuid, amount in rows:
            place = places.get(name, -1)
            if place >= 0 and uuid in inventory.uuids[place]:
                fresh.setdefault(place, {})[uuid] = amount
            else:
                unknown.append((name, uuid))
        whole = dict(self.whole)
        table = []
        for place, amounts in fresh.items():
            if place in whole or any(amount.core_set for amount in amounts.values()):
                whole[place] = _with_used(self.at(place), amounts)
            if not inventory.odd[place]:
                table += [
                    (inventory.uuids[place].index(uuid), place, now.slots, now.memory_mib, now.cores)
                    for uuid, now in amounts.items()
                ]
        used = self.used.copy()
        columns = np.array(table, np.int64).reshape(len(table), 5).T
        used[:, columns[0], columns[1]] = columns[2:]
        fleet = type(self)(inventory, used, self.scores.copy(), whole)
        return fleet._scored(np.array(list(fresh), np.int64)), unknown

    def _scored(self, places: Numbers) -> Self:
        """Itself, newly made, with the scores of these nodes."""
        used = self.used[:, :, places].sum(axis=1)
        totals = self.inventory.totals[:, :, places].sum(axis=1)
        self.scores[places] = node_scores(used, totals)
        for place in places[self.inventory.odd[places]].tolist():
            self.scores[place] = fit.base_score(self.whole[place].devices)
        return self

    # --- read ------------------------------------------------------------------------------------

    def node(self, name: str) -> FitNode | None:
        """A node as it is now; None where it is not known."""
        place = self.inventory.names.places.get(name)
        return None if place is None else self.at(place)

    def at(self, place: int) -> FitNode:
        """The node at a place, as it is now."""
        if place in self.whole:
            return self.whole[place]
        cards = len(self.inventory.uuids[place])
        return self.inventory.node(
            place, [Amount(*amount) for amount in self.used[:, :cards, place].T.tolist()]
        )

    def keys(self, policy: NodePolicy) -> Numbers:
        """One number per node: the smaller, the better; no two are equal."""
        if policy not in self._keys:
            bits = self.scores.view(np.int32).astype(np.int64)
            best_first = bits if policy is NodePolicy.SPREAD else np.int64(policies.INT64_MAX >> 32) - bits
            self._keys[policy] = best_first << 32 | self.inventory.names.rank
        return self._keys[policy]

    def best(self, policy: NodePolicy) -> Numbers:
        """The places of the first few nodes, best first; all are not sorted for them."""
        known = policy, False
        if known not in self._orders:
            keys = self.keys(policy)
            few = np.argpartition(keys, FIRST_BLOCK - 1)[:FIRST_BLOCK] if len(keys) > FIRST_BLOCK else None
            few = np.arange(len(keys)) if few is None else few
            self._orders[known] = few[np.argsort(keys[few])]
        return self._orders[known]

    def order(self, policy: NodePolicy) -> Numbers:
        """The places of all nodes, best first."""
        known = policy, True
        if known not in self._orders:
            self._orders[known] = np.argsort(self.keys(policy))
        return self._orders[known]


def _with_used(node: FitNode, used: Mapping[str, Amount]) -> FitNode:
    """The node with other usage of these devices."""
    devices = tuple(
        replace(device, used=used[device.uuid])
        if device.uuid in used and used[device.uuid] != device.used
        else device
        for device in node.devices
    )
    return replace(node, devices=devices)

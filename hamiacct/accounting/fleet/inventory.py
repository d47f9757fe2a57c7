"""What nodes registered. A node is a place in every column, its cards stand by preference among equals.

The columns tell all there is to most nodes, so nothing else is kept of those. Of a `peculiar` one, which says
more (links, labels, what only a vendor's own rule reads), the node is kept as it was registered, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.devices import MigProfile, Placement
from hamiacct.accounting.fleet.arrays import (
    CORES,
    MAX_CARDS,
    MAX_NUMA,
    MAX_TOTAL,
    MEMORY,
    SLOTS,
    Codes,
    Flags,
    Numbers,
)
from hamiacct.accounting.fleet.signatures import C_CORDONED, C_UNHEALTHY, NOT_OURS, PASSES
from hamiacct.accounting.mig import MIG_MODE
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.selectors import Choice

Smalls = NDArray[np.int32]


class Kind(NamedTuple):
    """What selectors, scores and MIG see of a card; every card refers to one by its number."""

    vendor: str
    model: str
    mode: str
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_in_use: tuple[Placement, ...] = ()

    @classmethod
    def of(cls, device: FitDevice) -> Kind:
        """The kind of a device."""
        in_use = tuple(sorted(device.mig_in_use)) if device.mode == MIG_MODE else ()
        return cls(device.vendor, device.model, device.mode, device.mig_profiles, in_use)


NO_CARD = Kind("", "", "")
MAX_KINDS = 1000
"""Beyond, those that no card has any more are forgotten."""


class View(NamedTuple):
    """One vendor's cards: `state` is NOT_OURS for all others, else what speaks against a card by itself."""

    state: Codes
    sound: Flags
    candidates: Numbers
    largest: Amount
    mig: Flags | None


@dataclass(frozen=True, eq=False)
class Names:
    """The nodes' names, by their place in the columns."""

    by_place: tuple[str, ...]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where each node is."""
        return {name: place for place, name in enumerate(self.by_place)}

    @cached_property
    def array(self) -> NDArray[np.object_]:
        """The names, to be taken by many places at once."""
        array = np.empty(len(self.by_place), np.object_)
        array[:] = self.by_place
        return array

    @cached_property
    def rank(self) -> Numbers:
        """Each node's number in the order of names."""
        rank = np.empty(len(self.by_place), np.int64)
        rank[sorted(range(len(self.by_place)), key=self.by_place.__getitem__)] = range(len(self.by_place))
        return rank


class Register(NamedTuple):
    """Plain nodes and their cards as flat columns, as a database has them: nothing is made for each card.

    `number` is how many cards each node has. Cards come node by node, by preference among equals; `kind` is
    a number in `kinds`, whose first is `NO_CARD`. Totals and usage have the dimensions in their first axis.
    """

    names: Sequence[str]
    number: Numbers
    uuids: Sequence[str]
    kinds: Sequence[Kind]
    kind: Numbers
    totals: Numbers
    used: Numbers
    indexes: Numbers
    orders: Numbers
    numa: Numbers
    healthy: Flags
    cordoned: Flags


@dataclass(frozen=True, eq=False)
class Inventory:
    """The columns. `odd` nodes have something that these cannot hold, and no cards in them."""

    names: Names
    uuids: tuple[tuple[str, ...], ...]
    peculiar: Mapping[int, FitNode]
    kinds: tuple[Kind, ...]
    totals: Numbers
    numa: Numbers
    kind: Smalls
    state: Codes
    index: Smalls
    order: Smalls
    odd: Flags
    _views: dict[str, View] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Inventory:
        """No nodes."""
        none = np.zeros((1, 0), np.int32)
        return cls(
            Names(()),
            (),
            {},
            (NO_CARD,),
            np.zeros((3, 1, 0), np.int64),
            np.zeros((1, 0), np.int64),
            none,
            np.zeros((1, 0), np.uint8),
            none,
            none,
            np.zeros(0, np.bool_),
        )

    @classmethod
    def of(cls, register: Register) -> tuple[Inventory, Numbers]:
        """The inventory of a register, and what is used of it."""
        number = register.number
        size, ends = len(number), np.cumsum(number)
        width = max(1, int(number.max(initial=0)))
        node = np.repeat(np.arange(size), number)
        card = np.arange(len(node)) - np.repeat(ends - number, number)

        def spread(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
            column = np.zeros((*values.shape[:-1], width, size), dtype)
            column[..., card, node] = values
            return column

        state = np.where(register.cordoned, C_CORDONED, PASSES)
        state = np.where(register.healthy, state, C_UNHEALTHY)
        starts = (ends - number).tolist()
        uuids = register.uuids
        inventory = cls(
            Names(tuple(register.names)),
            tuple(tuple(uuids[start:end]) for start, end in zip(starts, ends.tolist(), strict=True)),
            {},
            tuple(register.kinds),
            spread(register.totals, np.int64),
            spread(register.numa + 1, np.int64),
            spread(register.kind, np.int32),
            spread(state, np.uint8),
            spread(register.indexes, np.int32),
            spread(register.orders, np.int32),
            np.zeros(size, np.bool_),
        )
        return inventory, spread(register.used, np.int64)

    # --- one node --------------------------------------------------------------------------------

    def device(self, place: int, card: int, used: Amount) -> FitDevice:
        """A card as it was registered, with what is used of it."""
        uuid = self.uuids[place][card]
        if place in self.peculiar:
            known = next(one for one in self.peculiar[place].devices if one.uuid == uuid)
            return known if known.used == used else _using(known, used)
        kind, state = self.kinds[self.kind.item(card, place)], self.state.item(card, place)
        totals = self.totals
        return FitDevice(
            uuid,
            kind.vendor,
            Amount(
                totals.item(SLOTS, card, place),
                totals.item(MEMORY, card, place),
                totals.item(CORES, card, place),
            ),
            used,
            self.index.item(card, place),
            self.order.item(card, place),
            kind.model,
            self.numa.item(card, place) - 1,
            kind.mode,
            state != C_UNHEALTHY,
            state == C_CORDONED,
            kind.mig_profiles,
            kind.mig_in_use,
        )

    def devices(self, place: int, cards: Sequence[int], used: Sequence[Amount]) -> tuple[FitDevice, ...]:
        """Some of a node's cards as they were registered and in that order, with what is used of each."""
        devices = [self.device(place, card, amount) for card, amount in zip(cards, used, strict=True)]
        if place in self.peculiar:
            by_uuid = {device.uuid: device for device in devices}
            known = self.peculiar[place].devices
            return tuple(by_uuid[device.uuid] for device in known if device.uuid in by_uuid)
        return tuple(sorted(devices, key=register_order))

    def node(self, place: int, used: Sequence[Amount]) -> FitNode:
        """A node as it was registered, with what is used of each of its cards."""
        devices = self.devices(place, range(len(used)), used)
        known = self.peculiar.get(place)
        if known is None:
            return FitNode(self.names.by_place[place], devices)
        return FitNode(known.name, devices, known.pair_scores, known.labels, known.annotations)

    # --- all nodes -------------------------------------------------------------------------------

    @cached_property
    def unregistered(self) -> Flags:
        """Nodes without any device."""
        return np.array([not cards for cards in self.uuids], np.bool_)

    @cached_property
    def has_unregistered(self) -> bool:
        """Whether any node has no device."""
        return bool(self.unregistered.any())

    @cached_property
    def has_odd(self) -> bool:
        """Whether any node is odd."""
        return bool(self.odd.any())

    @cached_property
    def models(self) -> frozenset[str]:
        """The models of its cards, and some that it had."""
        return frozenset(kind.model for kind in self.kinds)

    @cached_property
    def places_of_uuids(self) -> Mapping[str, list[tuple[int, int]]]:
        """Where each uuid is, by card and node."""
        found: dict[str, list[tuple[int, int]]] = {}
        for place in np.flatnonzero(~self.odd).tolist():
            for card, uuid in enumerate(self.uuids[place]):
                found.setdefault(uuid, []).append((card, place))
        return found

    def view(self, vendor: str) -> View:
        """The cards of a vendor."""
        if vendor not in self._views:
            self._views[vendor] = self._seen(vendor)
        return self._views[vendor]

    def _seen(self, vendor: str) -> View:
        ours = np.array([kind.vendor == vendor and kind is not NO_CARD for kind in self.kinds])[self.kind]
        mig = np.array([kind.vendor == vendor and kind.mode == MIG_MODE for kind in self.kinds])
        largest = self.totals.max(axis=(1, 2), where=ours, initial=0)
        state = np.where(ours, self.state, np.uint8(NOT_OURS))
        return View(
            state,
            state == PASSES,
            ours.sum(axis=0),
            Amount(*largest.tolist()),
            mig[self.kind] if mig.any() else None,
        )

    def refused_by_type(self, choice: Choice) -> Flags | None:
        """Cards that type selectors or the mode keep out; None where nothing is chosen."""
        if choice.mode is None and not choice.use_types and not choice.nouse_types:
            return None
        refused = [
            not (choice.allows_type(kind.model) and choice.allows_mode(kind.mode)) for kind in self.kinds
        ]
        return np.array(refused)[self.kind]

    def refused_by_uuid(self, choice: Choice) -> Flags | None:
        """Cards that uuid selectors keep out; None where nothing is chosen."""
        if not choice.use_uuids and not choice.nouse_uuids:
            return None
        named = {uuid for members in choice.use_uuids for uuid in members} | choice.nouse_uuids
        refused = np.full(self.kind.shape, bool(choice.use_uuids))
        for uuid in named:
            for card, place in self.places_of_uuids.get(uuid, ()):
                refused[card, place] = not choice.allows_uuid(uuid)
        return refused

    # --- change ----------------------------------------------------------------------------------

    def with_nodes(self, latest: Mapping[str, FitNode], plan: Plan) -> tuple[Inventory, Numbers]:
        """The inventory with these nodes new or replaced, and without those that do not stay.

        Also what is used of the cards that are new or replaced: card, node and amount in columns.
        """
        cards = [_cards_of(node) for node in latest.values()]
        uuids = _merged(self.uuids, plan, [tuple(device.uuid for device in one) for one in cards])
        totals, numa = plan.moved(self.totals), plan.moved(self.numa)
        kind, state, odd = plan.moved(self.kind), plan.moved(self.state), plan.moved(self.odd)
        index, order = plan.moved(self.index), plan.moved(self.order)
        kinds = self._kinds_in_use(kind)
        peculiar = plan.kept(self.peculiar)
        numbers: list[int] = []
        for place, node, devices in zip(plan.at, latest.values(), cards, strict=True):
            if _is_odd(devices):
                odd[place] = True
            else:
                numbers += _numbers(place, devices, kinds)
            if odd[place] or _is_peculiar(node):
                peculiar[place] = node
        table = np.array(numbers, np.int64).reshape(-1, NUMBERS).T
        card, node_at = table[:2]
        totals[:, card, node_at] = table[2:5]
        for number, column in enumerate((numa, kind, state, index, order), 5):
            column[card, node_at] = table[number]
        names = self.names
        if not len(plan.stay) == plan.size == len(self.uuids):
            names = Names(_merged(names.by_place, plan, tuple(latest)))
        inventory = Inventory(
            names, uuids, peculiar, tuple(kinds), totals, numa, kind, state, index, order, odd
        )
        return inventory, table[[0, 1, 10, 11, 12]]

    def _kinds_in_use(self, kind: Smalls) -> dict[Kind, int]:
        """The kinds and their numbers; where they are many, those in use alone, numbered anew in `kind`."""
        kinds = self.kinds
        if len(kinds) > MAX_KINDS:
            numbers = np.union1d(kind, [0])
            kind[...] = np.searchsorted(numbers, kind)
            kinds = tuple(kinds[number] for number in numbers.tolist())
        return {known: number for number, known in enumerate(kinds)}


NUMBERS = 13


def _numbers(place: int, cards: Sequence[FitDevice], kinds: dict[Kind, int]) -> list[int]:
    """A node's cards, so many numbers for each; kinds not met before are added."""
    numbers: list[int] = []
    kind, number = NO_CARD, 0
    for card, device in enumerate(cards):
        total, used, state = device.total, device.used, PASSES
        if not device.healthy:
            state = C_UNHEALTHY
        elif device.cordoned:
            state = C_CORDONED
        if device.mode == MIG_MODE or kind[:4] != (
            device.vendor,
            device.model,
            device.mode,
            device.mig_profiles,
        ):
            kind = Kind.of(device)
            number = kinds.setdefault(kind, len(kinds))
        numbers += (card, place, total.slots, total.memory_mib, total.cores, device.numa + 1, number, state)
        numbers += (device.index, device.order, used.slots, used.memory_mib, used.cores)
    return numbers


class Plan(NamedTuple):
    """Where nodes go: the places of those that stay, where those that are new or replaced come, and the size.

    Replaced nodes keep their place and are cleared; places of new ones are at the end.
    """

    stay: Numbers
    at: tuple[int, ...]
    width: int
    size: int

    def moved(self, column: NDArray[Any]) -> NDArray[Any]:
        """A column, copied: nodes at their new places, nothing at those that are new or replaced."""
        if column.ndim == 1:
            moved = np.zeros(self.size, column.dtype)
            moved[: len(self.stay)] = column[self.stay]
        else:
            moved = np.zeros((*column.shape[:-2], self.width, self.size), column.dtype)
            moved[..., : column.shape[-2], : len(self.stay)] = column[..., self.stay]
        moved[..., np.array(self.at, np.int64)] = 0
        return moved

    def kept(self, nodes: Mapping[int, FitNode]) -> dict[int, FitNode]:
        """Nodes by their new places, without those that are replaced."""
        if not nodes:
            return {}
        replaced = set(self.at)
        return {
            place: nodes[old]
            for place, old in enumerate(self.stay.tolist())
            if old in nodes and place not in replaced
        }


Value = TypeVar("Value")


def _merged(values: Sequence[Value], plan: Plan, latest: Sequence[Value]) -> tuple[Value, ...]:
    """The values by place, as the plan moves them."""
    merged = [values[place] for place in plan.stay.tolist()]
    for place, value in zip(plan.at, latest, strict=True):
        merged[place : place + 1] = [value]
    return tuple(merged)


def _cards_of(node: FitNode) -> tuple[FitDevice, ...]:
    """The devices by preference among equals (decision 23)."""
    return tuple(
        sorted(node.devices, key=lambda device: (device.index, device.order, device.uuid), reverse=True)
    )


def register_order(device: FitDevice) -> tuple[str, int, str]:
    """Devices of a node in the order of their registers."""
    return device.vendor, device.order, device.uuid


def _is_odd(devices: Sequence[FitDevice]) -> bool:
    """Whether a node has what the columns cannot hold."""
    if len(devices) > MAX_CARDS or len({device.uuid for device in devices}) < len(devices):
        return True
    for device in devices:
        total = device.total
        within = 0 <= total.slots < MAX_TOTAL and 0 <= total.memory_mib < MAX_TOTAL
        within = within and 0 <= device.index < MAX_TOTAL and 0 <= device.order < MAX_TOTAL
        if not (within and 0 <= total.cores < MAX_TOTAL and -1 <= device.numa < MAX_NUMA - 1):
            return True
    return False


def _is_peculiar(node: FitNode) -> bool:
    """Whether the columns do not tell all there is to a node."""
    if node.pair_scores or node.labels or node.annotations or any(map(_is_peculiar_device, node.devices)):
        return True
    return tuple(sorted(node.devices, key=register_order)) != node.devices


def _is_peculiar_device(device: FitDevice) -> bool:
    if device.custom or device.tenants or (device.cordoned and not device.healthy):
        return True
    return bool(device.mig_in_use) and device.mig_in_use != Kind.of(device).mig_in_use


def _using(device: FitDevice, used: Amount) -> FitDevice:
    """A device with other usage."""
    return replace(device, used=used)

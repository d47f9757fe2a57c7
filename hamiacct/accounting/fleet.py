"""The same fit over columns: every node of a fleet at once. `fit.place` is the definition (semantics 6).

A column is an array of cards by nodes, so each check is one comparison of all cards of all nodes, and
the walk over containers is done by all nodes together. Three observations make it short:

* On a node that refuses, every card was looked at; on one that takes the pod, reasons are not told. So
  the order of cards matters only where a later container finds what was picked, where quotas are in
  reach, and with numa-bind.
* How often each reason was met on a node is one number, a few bits per reason: the sum over its cards.
  Nodes with the same number have the same message, which is written once.
* The score of a node does not depend on the pod, so the best are tried first.

What is not vectorised goes to `fit.place`, node by node: cards with MIG room, vendors with rules or
scores of their own, and what is named in `_Walk.is_plain`. The candidates that are told are drawn from the
columns, too, where the walk is the shared one (`_is_drawn`): its picks are all there is to a placement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hamiacct.accounting import fit, mig, policies
from hamiacct.accounting.amounts import UNUSED, Amount, Usage
from hamiacct.accounting.asks import UNLIMITED, Ask, ContainerAsk, Room
from hamiacct.accounting.devices import MigProfile
from hamiacct.accounting.devices import Placement as Place
from hamiacct.accounting.fit import Misfit, Placement
from hamiacct.accounting.fitting import ascend, rules
from hamiacct.accounting.fitting.checks import WHOLE_CARD
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.mig import MIG_MODE
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import Allocation, ContainerClass, DeviceKey, Row
from hamiacct.accounting.policies import By, NodePolicy
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.reasons import Reason, message
from hamiacct.accounting.requests import PERCENT_NOT_GIVEN, DeviceRequest
from hamiacct.accounting.selectors import Choice
from hamiacct.accounting.vendors import CoresKind, Vendor

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]

SLOTS, MEMORY, CORES = range(3)
"""The dimensions of an amount, in the first axis of totals and usage."""

MAX_CARDS = 31
"""Wider nodes are judged one by one: counts of reasons have five bits."""
MAX_TOTAL = 2**31
MAX_NUMA = 2**12
CARD_BITS = 6
"""Limits of what the columns hold; a node or an ask beyond them is judged one by one."""

MAX_GIVEN = 16
"""So many nodes are judged one by one; of more, columns are made."""

FIRST_BLOCK = 64
BLOCK_GROWTH = 8

# --- reasons as numbers --------------------------------------------------------------------------
# Of several checks that refuse a card the earliest counts; so the earlier, the larger its code.

PASSES, NOT_OURS = 1, 255
_CODES: Mapping[int, Reason] = {
    PASSES: Reason.TOO_FEW_TAKEN,
    2: Reason.CORES_EXHAUSTED,
    3: Reason.EXCLUSIVE,
    4: Reason.CORES,
    5: Reason.MEMORY,
    6: Reason.QUOTA,
    7: Reason.EXCLUSIVE,
    8: Reason.SLOTS,
    9: Reason.UUID,
    10: Reason.NUMA,
    11: Reason.TYPE,
    12: Reason.CORDONED,
    13: Reason.UNHEALTHY,
}
C_EXHAUSTED, C_ALONE, C_CORES, C_MEMORY, C_QUOTA, C_MUTEX, C_SLOTS, C_UUID = range(2, 10)
C_TYPE, C_CORDONED, C_UNHEALTHY = range(11, 14)
COUNT_BITS = 5
COUNT_MASK = 2**COUNT_BITS - 1
_SHARED = (Reason.NUMA, Reason.MIG)
_APART = [
    reason for reason in dict.fromkeys(_CODES.values()) if reason not in (*_SHARED, Reason.TOO_FEW_TAKEN)
]
_SHIFTS: dict[Reason, int] = {reason: COUNT_BITS * place for place, reason in enumerate(_APART)}
_SHIFTS |= dict.fromkeys(_SHARED, COUNT_BITS * len(_APART))
TAKEN_SHIFT = COUNT_BITS * (len(_APART) + 1)
MAX_TAKEN = 2 ** (63 - TAKEN_SHIFT) - 1
"""What was taken in vain has the bits on top, as MIG cards are taken many times. NUMA and MIG share theirs:
one is told by walks in order alone, the other by all the others."""
_ONE_OF = np.zeros(256, np.int64)
for _code, _reason in _CODES.items():
    _ONE_OF[_code] = 1 << _SHIFTS.get(_reason, TAKEN_SHIFT)


def _counts(signature: int, *, in_order: bool) -> dict[str, int]:
    """How often each reason was met, out of the one number."""
    untold = _SHARED[in_order]
    counts: dict[str, int] = {
        reason: signature >> shift & COUNT_MASK for reason, shift in _SHIFTS.items() if reason is not untold
    }
    counts[Reason.TOO_FEW_TAKEN] = signature >> TAKEN_SHIFT
    return {reason: count for reason, count in counts.items() if count}


# --- what is answered ----------------------------------------------------------------------------


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


# --- what nodes have -----------------------------------------------------------------------------


class _Kind(NamedTuple):
    """What selectors, scores and MIG see of a card; every card refers to one by its number."""

    vendor: str
    model: str
    mode: str
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_in_use: tuple[Place, ...] = ()

    @classmethod
    def of(cls, device: FitDevice) -> _Kind:
        """The kind of a device."""
        if device.mode != MIG_MODE:
            return cls(device.vendor, device.model, device.mode)
        in_use = tuple(sorted(device.mig_in_use))
        return cls(device.vendor, device.model, device.mode, device.mig_profiles, in_use)


_NO_CARD = _Kind("", "", "")
MAX_KINDS = 1000
"""Beyond, those that no card has any more are forgotten."""


class _View(NamedTuple):
    """One vendor's cards: `state` is NOT_OURS for all others, else what speaks against a card by itself."""

    state: Codes
    candidates: Numbers
    largest: Amount
    mig: Flags | None


@dataclass(frozen=True, eq=False)
class _Names:
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


@dataclass(frozen=True, eq=False)
class _Inventory:
    """What nodes registered. A node is a place in every column, its cards stand by preference among equals.

    `odd` nodes have something that the columns cannot hold, and no cards in them.
    """

    names: _Names
    nodes: tuple[FitNode, ...]
    cards: tuple[tuple[FitDevice, ...], ...]
    kinds: tuple[_Kind, ...]
    totals: Numbers
    numa: Numbers
    kind: NDArray[np.int32]
    state: Codes
    odd: Flags
    _views: dict[str, _View] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> _Inventory:
        """No nodes."""
        return cls(
            _Names(()),
            (),
            (),
            (_NO_CARD,),
            np.zeros((3, 1, 0), np.int64),
            np.zeros((1, 0), np.int64),
            np.zeros((1, 0), np.int32),
            np.zeros((1, 0), np.uint8),
            np.zeros(0, np.bool_),
        )

    @cached_property
    def unregistered(self) -> Flags:
        """Nodes without any device."""
        return np.array([not node.devices for node in self.nodes], np.bool_)

    @cached_property
    def uuids(self) -> Mapping[str, list[tuple[int, int]]]:
        """Where each uuid is, by card and node."""
        found: dict[str, list[tuple[int, int]]] = {}
        for place in np.flatnonzero(~self.odd).tolist():
            for card, device in enumerate(self.cards[place]):
                found.setdefault(device.uuid, []).append((card, place))
        return found

    def view(self, vendor: str) -> _View:
        """The cards of a vendor."""
        if vendor not in self._views:
            self._views[vendor] = self._seen(vendor)
        return self._views[vendor]

    def _seen(self, vendor: str) -> _View:
        ours = np.array([kind.vendor == vendor and kind is not _NO_CARD for kind in self.kinds])[self.kind]
        mig = np.array([kind.vendor == vendor and kind.mode == MIG_MODE for kind in self.kinds])
        largest = self.totals.max(axis=(1, 2), where=ours, initial=0)
        return _View(
            np.where(ours, self.state, np.uint8(NOT_OURS)),
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
            for card, place in self.uuids.get(uuid, ()):
                refused[card, place] = not choice.allows_uuid(uuid)
        return refused

    def with_nodes(self, latest: Mapping[str, FitNode], plan: _Plan) -> tuple[_Inventory, Numbers]:
        """The inventory with these nodes new or replaced, and without those that do not stay.

        Also what is used of the cards that are new or replaced: card, node and amount in columns.
        """
        nodes = _merged(self.nodes, plan, tuple(latest.values()))
        cards = _merged(self.cards, plan, tuple(map(_cards_of, latest.values())))
        totals, numa = plan.moved(self.totals), plan.moved(self.numa)
        kind, state, odd = plan.moved(self.kind), plan.moved(self.state), plan.moved(self.odd)
        kinds = self._kinds_in_use(kind)
        numbers: list[int] = []
        for place in plan.at:
            if _is_odd(cards[place]):
                odd[place] = True
            else:
                numbers += _numbers(place, cards[place], kinds)
        table = np.array(numbers, np.int64).reshape(-1, NUMBERS).T
        card, node = table[:2]
        totals[:, card, node] = table[2:5]
        numa[card, node], kind[card, node], state[card, node] = table[5:8]
        names = self.names
        if not len(plan.stay) == plan.size == len(self.nodes):
            names = _Names(tuple(node.name for node in nodes))
        inventory = _Inventory(names, nodes, cards, tuple(kinds), totals, numa, kind, state, odd)
        return inventory, table[[0, 1, 8, 9, 10]]

    def _kinds_in_use(self, kind: NDArray[np.int32]) -> dict[_Kind, int]:
        """The kinds and their numbers; where they are many, those in use alone, numbered anew in `kind`."""
        kinds = self.kinds
        if len(kinds) > MAX_KINDS:
            numbers = np.union1d(kind, [0])
            kind[...] = np.searchsorted(numbers, kind)
            kinds = tuple(kinds[number] for number in numbers.tolist())
        return {known: number for number, known in enumerate(kinds)}


NUMBERS = 11


def _numbers(place: int, cards: Sequence[FitDevice], kinds: dict[_Kind, int]) -> list[int]:
    """A node's cards, so many numbers for each; kinds not met before are added."""
    numbers: list[int] = []
    kind, number = _NO_CARD, 0
    for card, device in enumerate(cards):
        total, used, state = device.total, device.used, PASSES
        if not device.healthy:
            state = C_UNHEALTHY
        elif device.cordoned:
            state = C_CORDONED
        if device.mode == MIG_MODE or kind[:3] != (device.vendor, device.model, device.mode):
            kind = _Kind.of(device)
            number = kinds.setdefault(kind, len(kinds))
        numbers += (card, place, total.slots, total.memory_mib, total.cores, device.numa + 1, number, state)
        numbers += (used.slots, used.memory_mib, used.cores)
    return numbers


class _Plan(NamedTuple):
    """Where nodes go: the places of those that stay, where those that are new or replaced come, and the size.

    Replaced nodes keep their place and are cleared; places of new ones are at the end.
    """

    stay: NDArray[np.int64]
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


Value = TypeVar("Value")


def _merged(values: Sequence[Value], plan: _Plan, latest: Sequence[Value]) -> tuple[Value, ...]:
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


def _is_odd(devices: Sequence[FitDevice]) -> bool:
    """Whether a node has what the columns cannot hold."""
    if len(devices) > MAX_CARDS or len({device.uuid for device in devices}) < len(devices):
        return True
    for device in devices:
        total = device.total
        within = 0 <= total.slots < MAX_TOTAL and 0 <= total.memory_mib < MAX_TOTAL
        if not (within and 0 <= total.cores < MAX_TOTAL and -1 <= device.numa < MAX_NUMA - 1):
            return True
    return False


# --- the fleet -----------------------------------------------------------------------------------


def _f32(numbers: Numbers) -> Floats:
    """As `policies.f32`: by way of 64 bits."""
    return numbers.astype(np.float64).astype(np.float32)


def _share(part: Numbers, total: Numbers) -> Floats:
    """As `policies.share`; a total of 0 counts as 1, its scores are not used."""
    return _f32(part) / _f32(np.maximum(total, 1))


def node_scores(used: Numbers, totals: Numbers) -> Floats:
    """As `policies.node_score`, of amounts summed over the cards; dimensions by nodes."""
    parts = _share(used[SLOTS], totals[SLOTS]) + _share(used[CORES], totals[CORES])
    scores = np.float32(policies.SCALE) * (parts + _share(used[MEMORY], totals[MEMORY]))
    return np.where((totals != 0).all(axis=0), scores, np.float32(0))


def device_scores(used: Numbers, totals: Numbers, asked: Any, weights: policies.Weights) -> Floats:
    """As `policies.device_score`, of dimensions by whatever; of slots, so many requests are asked."""
    shares = _share(asked + used, totals)
    slot, memory, core = shares[SLOTS], shares[MEMORY], shares[CORES]
    if weights != policies.EVEN:
        slot = np.float32(policies.f32(weights.slot)) * slot
        memory = np.float32(policies.f32(weights.memory)) * memory
        core = np.float32(policies.f32(weights.core)) * core
    scores = np.float32(policies.SCALE) * ((slot + core) + memory)
    return np.where((totals != 0).all(axis=0), scores, np.float32(0))


@dataclass(frozen=True, eq=False)
class Fleet:
    """Nodes, what they registered and what is used of it, as columns.

    A value: `with_usage` and `with_nodes` return another one and share what did not change, so threads
    may judge one while another is made. `used` is [3, cards, nodes]; nodes that the columns cannot hold,
    and those whose vendors give out named cores, are kept whole in `whole`, by place.
    """

    _inventory: _Inventory
    _used: Numbers
    _scores: Floats
    _whole: Mapping[int, FitNode]

    @classmethod
    def of(cls, nodes: Iterable[FitNode]) -> Fleet:
        """The columns of these nodes; names are unique."""
        nothing = _Inventory.empty()
        fleet = cls(nothing, nothing.totals, np.zeros(0, np.float32), {})
        return fleet.with_nodes(tuple(nodes))

    def __len__(self) -> int:
        return len(self._inventory.nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._inventory.names.places

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its nodes, in no order."""
        return self._inventory.names.by_place

    # --- change ----------------------------------------------------------------------------------

    def with_nodes(self, changed: Iterable[FitNode], gone: Collection[str] = ()) -> Fleet:
        """With these nodes new or replaced whole, and without those that are gone.

        Everything but usage changes in this way: inventory, health, cordons, labels, and also what MIG
        cards and tenants hold beside amounts.
        """
        latest = {node.name: node for node in changed}
        plan = self._plan(latest, gone)
        inventory, columns = self._inventory.with_nodes(latest, plan)
        used = plan.moved(self._used)
        used[:, columns[0], columns[1]] = columns[2:]
        whole = {
            place: self._whole[old]
            for place, old in enumerate(plan.stay.tolist() if self._whole else ())
            if old in self._whole
        }
        for place, node in zip(plan.at, latest.values(), strict=True):
            whole.pop(place, None)
            if inventory.odd[place] or any(device.used.core_set for device in node.devices):
                whole[place] = node
        return _scored(Fleet(inventory, used, plan.moved(self._scores), whole), plan.at)

    def _plan(self, latest: Mapping[str, FitNode], gone: Collection[str]) -> _Plan:
        known = self._inventory.names
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
        return _Plan(stay, at, max(width, len(self._inventory.kind)), next(new))

    def with_usage(self, rows: Iterable[tuple[str, str, Amount]]) -> tuple[Fleet, list[tuple[str, str]]]:
        """With what is now used of some devices (node, uuid, amount), and those devices that are not here."""
        inventory, places = self._inventory, self._inventory.names.places
        fresh: dict[int, dict[str, Amount]] = {}
        unknown = []
        for name, uuid, amount in rows:
            place = places.get(name, -1)
            if place >= 0 and any(device.uuid == uuid for device in inventory.cards[place]):
                fresh.setdefault(place, {})[uuid] = amount
            else:
                unknown.append((name, uuid))
        whole = dict(self._whole)
        table = []
        for place, amounts in fresh.items():
            if place in whole or any(amount.core_set for amount in amounts.values()):
                whole[place] = _with_used(self._node(place), amounts)
            if not inventory.odd[place]:
                table += [
                    (card, place, now.slots, now.memory_mib, now.cores)
                    for card, device in enumerate(inventory.cards[place])
                    if (now := amounts.get(device.uuid)) is not None
                ]
        used = self._used.copy()
        columns = np.array(table, np.int64).reshape(len(table), 5).T
        used[:, columns[0], columns[1]] = columns[2:]
        return _scored(Fleet(inventory, used, self._scores.copy(), whole), tuple(fresh)), unknown

    # --- read ------------------------------------------------------------------------------------

    def node(self, name: str) -> FitNode | None:
        """A node as it is now; None where it is not known."""
        place = self._inventory.names.places.get(name)
        return None if place is None else self._node(place)

    def _node(self, place: int) -> FitNode:
        if place in self._whole:
            return self._whole[place]
        cards = self._inventory.cards[place]
        now = self._used[:, : len(cards), place].T.tolist()
        used = {device.uuid: Amount(*amount) for device, amount in zip(cards, now, strict=True)}
        return _with_used(self._inventory.nodes[place], used)

    def _keys(self, policy: NodePolicy) -> Numbers:
        """One number per node: the smaller, the better; no two are equal."""
        bits = self._scores.view(np.int32).astype(np.int64)
        best_first = bits if policy is NodePolicy.SPREAD else np.int64(policies.INT64_MAX >> 32) - bits
        return best_first << 32 | self._inventory.names.rank

    # --- judge -----------------------------------------------------------------------------------

    def judge(
        self,
        ask: Ask,
        room: Room = UNLIMITED,
        nodes: Iterable[str] | None = None,
        *,
        limit: int = 1,
        verdicts: bool = False,
        instead: Iterable[FitNode] = (),
    ) -> Judgement:
        """The best `limit` placements of the pod, and why nodes refuse it, as `fit.place` says of each.

        `nodes` are the names in question, all without it; those that are not known are unregistered.
        With `verdicts` every node that refuses is told. Without, nodes are tried best first until enough
        take the pod, and refusals are told only where none does: then all were tried.
        Nodes of `instead` are judged as they are given, in the place of the fleet's own of their names.
        """
        given = {node.name: node for node in instead}
        if len(given) > MAX_GIVEN:
            fleet = self.with_nodes(given.values())
            return fleet.judge(ask, room, nodes, limit=limit, verdicts=verdicts)
        asked = self._inventory.names.places.keys() if nodes is None else dict.fromkeys(nodes)
        trial = _Trial(self, ask, room, max(limit, 0), verdicts, wanted=max(limit, 0))
        for name in given if nodes is None else (name for name in asked if name in given):
            trial.place(given[name])
        places = self._places(None if nodes is None else asked, given)
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
        walk = _Walk.over(self, ask, of_each, np.zeros(0, np.int64))
        return any(
            walk.is_limited(vendor, by_profiles=self._inventory.view(key).mig is not None)
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
            if _is_drawn(ask):
                places = [place for name in block if (place := self._counted_at(name, ask)) is not None]
                counts = _Copies(self, ask, np.array(places, np.int64)).counts(at_most)
                known = self._inventory.names.by_place
                counted = {known[place]: count for place, count in zip(places, counts, strict=True)}
            for name in block:
                yield name, counted.get(name)
            start, size = start + size, size * BLOCK_GROWTH

    def _counted_at(self, name: str, ask: Ask) -> int | None:
        """The place of a node whose copies the columns count; None where the definition has to."""
        place = self._inventory.names.places.get(name)
        if place is None or place in self._whole:
            return None
        masks = (self._inventory.view(key).mig for key in ask.vendors)
        return None if any(mig is not None and mig[:, place].any() for mig in masks) else place

    def first_taker(self, ask: Ask, room: Room, names: Sequence[str]) -> int:
        """The number of the first node that takes the pod, or of which the definition has to say.

        As many as there are nodes, where none is. Those that are not here take nothing.
        """
        known = self._inventory.names.places
        numbered = [(number, known[name]) for number, name in enumerate(names) if name in known]
        start, size = 0, FIRST_BLOCK
        while start < len(numbered):
            block = numbered[start : start + size]
            walk = _Walk.over(self, ask, room, np.array([place for _, place in block], np.int64))
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
        known = self._inventory.names.places
        names = known if asked is None else asked
        found = [known[name] for name in names if name in known and name not in given]
        return np.array(found, np.int64)


def _with_used(node: FitNode, used: Mapping[str, Amount]) -> FitNode:
    """The node with other usage of these devices."""
    devices = tuple(
        replace(device, used=used[device.uuid])
        if device.uuid in used and used[device.uuid] != device.used
        else device
        for device in node.devices
    )
    return replace(node, devices=devices)


def _scored(fleet: Fleet, places: tuple[int, ...]) -> Fleet:
    """The new fleet, with the scores of these nodes."""
    at = np.array(places, np.int64)
    used = fleet._used[:, :, at].sum(axis=1)
    totals = fleet._inventory.totals[:, :, at].sum(axis=1)
    fleet._scores[at] = node_scores(used, totals)
    for place in at[fleet._inventory.odd[at]].tolist():
        fleet._scores[place] = fit.base_score(fleet._whole[place].devices)
    return fleet


# --- one question --------------------------------------------------------------------------------


@dataclass
class _Trial:
    """The nodes of one question as they are judged, and what was found. Mutable, seen by no one else."""

    fleet: Fleet
    ask: Ask
    room: Room
    limit: int
    verdicts: bool
    wanted: int
    placements: list[Placement] = field(default_factory=list)
    misfits: dict[tuple[str, str, int], list[Misfit]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def tries_all(self) -> bool:
        """Whether every node is judged: for its verdict, or where scores depend on what is chosen."""
        return self.verdicts or _adds_scores(self.ask)

    def run(self, places: Numbers | None) -> None:
        """Judges the nodes at these places: best first until enough take the pod, or all."""
        if self.tries_all:
            self.judge(places)
            return
        for block in self.blocks(places):
            self.judge(block)
            if self.wanted <= 0:
                return

    def blocks(self, places: Numbers | None) -> Iterator[Numbers]:
        """The places in blocks, best first: the first few without sorting all."""
        keys = self.fleet._keys(self.ask.node_policy)
        if places is not None:
            keys = keys[places]
        if len(keys) <= FIRST_BLOCK:
            yield np.arange(len(keys)) if places is None else places
            return
        size = FIRST_BLOCK
        first = np.argpartition(keys, size - 1)[:size]
        yield first if places is None else places[first]
        order = np.argsort(keys)
        while size < len(keys):
            block = order[size : size * BLOCK_GROWTH]
            yield block if places is None else places[block]
            size *= BLOCK_GROWTH

    def judge(self, places: Numbers | None) -> None:
        """Judges these nodes, and places the pod on the best that take it."""
        walk = _Walk.over(self.fleet, self.ask, self.room, places)
        is_small = places is not None and len(places) <= FIRST_BLOCK
        if is_small and self.wanted > 0 and _is_drawn(self.ask):
            walk.picks = []
        walk.run()
        self.refusals.extend(walk.refusals)
        keys = self.fleet._keys(self.ask.node_policy)
        open_places = walk.places_of(walk.alive | walk.deferred)
        doubtful = set(walk.places_of(walk.deferred).tolist())
        if not doubtful and self.wanted < len(open_places):
            best = np.argpartition(keys[open_places], self.wanted)[: self.wanted]
            open_places = open_places[best]
        best_first = open_places[np.argsort(keys[open_places])].tolist()
        sure = [place for place in best_first if place not in doubtful]
        drawn = _drawn(walk, sure[: max(self.wanted, 0)])
        for place in best_first:
            if self.wanted <= 0 and not (self.tries_all and place in doubtful):
                continue
            if place in drawn:
                self.placements.append(drawn[place])
                self.wanted -= 1
            elif self.place(self.fleet._node(place)):
                self.wanted -= 1
            else:
                assert place in doubtful, "the columns took what the definition refuses"

    def place(self, node: FitNode) -> bool:
        """Judges one node by the definition."""
        verdict = fit.place(node, self.ask, self.room)
        if isinstance(verdict, Placement):
            self.placements.append(verdict)
            return True
        key = (verdict.message, verdict.container, verdict.position)
        self.misfits.setdefault(key, []).append(verdict)
        return False

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


def _adds_scores(ask: Ask) -> bool:
    """Whether vendors add to a node's score what depends on the choice."""
    return any(map(_adds_score, ask.vendors.values()))


def _adds_score(vendor: Vendor) -> bool:
    score = vendor.fit.get("score")
    return bool(score) and not (score == "networks" and not ascend.has_networks(vendor))


class _Form(NamedTuple):
    """Which checks a rule makes beside health, cordons and uuids; its walk is the shared one."""

    by_type: bool = True
    has_slot: bool = True
    is_unused: bool = False
    has_memory: bool = True
    has_cores: bool = True
    is_whole: bool = True


_UNITS, _SLOTS = "units", "slots"
_FORMS: Mapping[str, _Form] = {
    rules.PLAIN: _Form(),
    "same-device": _Form(),
    "ascend": _Form(by_type=False),
    _UNITS: _Form(is_whole=False),
    _SLOTS: _Form(has_memory=False, has_cores=False, is_whole=False),
    "unused": _Form(has_slot=False, is_unused=True, has_cores=False, is_whole=False),
}
"""The rules that the columns know (`accounting.fitting`)."""


def _mig_places(kind: _Kind, free: Amount, memory_mib: int, count: int) -> int:
    """How many instances for so much memory, up to `count`, still have a place on a card."""
    occupied = list(kind.mig_in_use)
    for number in range(count):
        left = free

        def has_room(profile: MigProfile, left: Amount = left) -> bool:
            return Amount(1, profile.memory_mib, profile.cores).fits_in(left)

        instance = mig.choose(kind.mig_profiles, occupied, memory_mib, has_room)
        if instance is None:
            return number
        occupied.append(instance.place)
        free = free.minus(Amount(1, instance.profile.memory_mib, instance.profile.cores))
    return count


def _is_drawn(ask: Ask) -> bool:
    """Whether placements follow from what the walk picks: no rule of a vendor's own, links or scores."""
    by_links = ask.device_policy.is_topology_aware
    return all(
        rules.rule_name(vendor) == rules.PLAIN
        and not (by_links and vendor.fit.get("topology") is True)
        and not _adds_score(vendor)
        for vendor in ask.vendors.values()
    )


def _drawn(judged: _Walk, places: Sequence[int]) -> dict[int, Placement]:
    """The placements on nodes that take the pod, by place; none where the definition has to draw them.

    Where the walk that judged them kept no picks, as one over many nodes does, these few are walked again.
    """
    fleet, ask = judged.fleet, judged.ask
    if not _is_drawn(ask):
        return {}
    masks = [cards for key in ask.vendors if (cards := fleet._inventory.view(key).mig) is not None]
    places = [
        place
        for place in places
        if place not in fleet._whole and not any(cards[:, place].any() for cards in masks)
    ]
    if not places:
        return {}
    walk = judged
    if walk.picks is None or walk.places is None:
        walk = _Walk.over(fleet, ask, judged.room, np.array(places, np.int64))
        walk.picks = []
        walk.run()
    assert walk.picks is not None
    assert walk.places is not None
    taken = [picked.by_node() for picked in walk.picks]
    numbers = {place: number for number, place in enumerate(walk.places.tolist())}
    return {
        place: _placement(fleet, ask, place, [by_node[numbers[place]] for by_node in taken], walk.picks)
        for place in places
        if walk.alive[numbers[place]]
    }


def _placement(
    fleet: Fleet,
    ask: Ask,
    place: int,
    taken: Sequence[Sequence[tuple[int, int, int]]],
    picks: Sequence[_Picked],
) -> Placement:
    """The placement that picks on one node make; `taken` holds card, memory and cores, pick by pick."""
    name, cards = fleet._inventory.nodes[place].name, fleet._inventory.cards[place]
    groups: dict[str, list[tuple[Row, ...]]] = {key: [()] * len(ask.containers) for key in ask.vendors}
    held: list[Held] = [UNUSED] * len(ask.containers)
    used: set[int] = set()
    for rows, picked in zip(taken, picks, strict=True):
        key = picked.vendor.key
        used.update(card for card, _, _ in rows)
        groups[key][picked.number] = tuple(
            Row(cards[card].uuid, key, memory_mib, cores) for card, memory_mib, cores in rows
        )
        holding = {
            DeviceKey(name, cards[card].uuid, key): Amount(1, memory_mib, cores)
            for card, memory_mib, cores in rows
        }
        held[picked.number] = held[picked.number].plus(Usage(holding))
    footprint: Footprint[DeviceKey] = Footprint()
    for container, of_one in zip(ask.containers, held, strict=True):
        footprint = footprint.then(container.kind, of_one)
    now = fleet._used[:, sorted(used), place].T.tolist()
    as_used = {
        cards[card].uuid: replace(cards[card], used=Amount(*amount))
        for card, amount in zip(sorted(used), now, strict=True)
    }
    return Placement(
        name,
        {key: Allocation(key, name, tuple(of_vendor)) for key, of_vendor in groups.items()},
        footprint,
        float(fleet._scores[place]),
        devices=tuple(
            as_used[device.uuid] for device in fleet._inventory.nodes[place].devices if device.uuid in as_used
        ),
    )


class _Picked(NamedTuple):
    """What the request of a container took on each node: which cards, and in which order they were tried."""

    number: int
    vendor: Vendor
    taken: Flags
    keys: Numbers
    memory_mib: Any
    cores: Any

    def by_node(self) -> list[list[tuple[int, int, int]]]:
        """For each node card, memory and cores of every pick, in the order of the picks."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(self.taken.shape[1])]
        card, node = np.nonzero(self.taken)
        order = np.argsort(self.keys[card, node])
        card, node = card[order], node[order]
        memory_mib = np.broadcast_to(self.memory_mib, self.taken.shape)[card, node]
        cores = np.broadcast_to(self.cores, self.taken.shape)[card, node]
        for here, *pick in zip(
            node.tolist(), card.tolist(), memory_mib.tolist(), cores.tolist(), strict=True
        ):
            found[here].append(tuple(pick))
        return found


@dataclass
class _Copies:
    """Pods that are placed one after the other on each of some nodes. Mutable while it counts."""

    fleet: Fleet
    ask: Ask
    places: Numbers

    def counts(self, at_most: int) -> Sequence[int | None]:
        """How many each node takes; None where the definition has to say."""
        counts = np.zeros(len(self.places), np.int64)
        used = self.fleet._used[:, :, self.places]
        open_nodes = np.arange(len(self.places))
        for _ in range(at_most):
            if not len(open_nodes):
                break
            walk = _Walk.over(self.fleet, self.ask, UNLIMITED, self.places[open_nodes])
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

    def charge(self, picks: Sequence[_Picked], shape: tuple[int, ...]) -> Numbers:
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


class _Sizes(NamedTuple):
    """What is asked of every card: numbers for all, or columns where they depend on the card."""

    memory_mib: Any
    cores: Any


@dataclass
class _Walk:
    """The walk over the pod's containers, by all nodes at `places` together. Mutable while it walks.

    `used` is what nodes' pods and the pod's sidecars and apps so far hold, `steady` and `peak` are the
    pod's own memory and cores where its quotas may refuse; `number` is the container at hand. A node is
    `alive` while all containers so far fit, `deferred` where the definition has to say. `picks` are kept
    where placements are wanted of them; only where it `tells` are refusals.
    """

    fleet: Fleet
    ask: Ask
    room: Room
    places: Numbers | None
    totals: Numbers
    used: Numbers
    alive: Flags
    deferred: Flags
    number: int = 0
    steady: Numbers | None = None
    peak: Numbers | None = None
    refusals: list[Refusal] = field(default_factory=list)
    picks: list[_Picked] | None = None
    tells: bool = True
    limited: dict[tuple[str, bool], bool] = field(default_factory=dict)

    @classmethod
    def over(cls, fleet: Fleet, ask: Ask, room: Room, places: Numbers | None) -> _Walk:
        """Before the first container."""
        size = len(fleet) if places is None else len(places)
        walk = cls(
            fleet,
            ask,
            room,
            places,
            fleet._inventory.totals,
            fleet._used,
            np.ones(size, np.bool_),
            np.zeros(size, np.bool_),
        )
        walk.totals = walk.of(walk.totals)
        walk.used = walk.of(walk.used)
        return walk

    def of(self, column: NDArray[Any]) -> Any:
        """A column of the whole fleet, as far as it is looked at."""
        return column if self.places is None else column.take(self.places, axis=-1)

    def places_of(self, nodes: Flags) -> Numbers:
        """Where the marked nodes are in the fleet."""
        found = np.flatnonzero(nodes)
        return found if self.places is None else self.places[found]

    def run(self) -> None:
        """All containers, one after the other."""
        inventory = self.fleet._inventory
        self.refuse(self.of(inventory.unregistered), Reason.NODE_UNREGISTERED, None)
        self.defer(self.of(inventory.odd))
        for number, container in enumerate(self.ask.containers):
            self.number = number
            for request in container.requests:
                if not self.alive.any():
                    return
                self.take(container, request)
        if _adds_scores(self.ask):
            self.defer(self.alive)

    # --- verdicts --------------------------------------------------------------------------------

    def defer(self, nodes: Flags) -> None:
        """Leaves these nodes to the definition."""
        nodes = nodes & self.alive
        self.deferred |= nodes
        self.alive &= ~nodes

    def refuse(self, nodes: Flags, reason: Reason, container: ContainerAsk | None) -> None:
        """Refuses these nodes as a whole."""
        nodes = nodes & self.alive
        if nodes.any():
            self.alive &= ~nodes
            if self.tells:
                self.tell(self.places_of(nodes), reason, {reason: 1}, container)

    def refuse_counted(
        self,
        nodes: Flags,
        signatures: Numbers,
        candidates: Numbers,
        container: ContainerAsk,
        *,
        in_order: bool,
    ) -> None:
        """Refuses these nodes for what was counted on each, of so many candidates."""
        nodes = nodes & self.alive
        self.alive &= ~nodes
        if not self.tells:
            return
        for number in np.flatnonzero(np.bincount(candidates[nodes])).tolist():
            alike = nodes & (candidates == number)
            places = self.places_of(alike)
            different, which = np.unique(signatures[alike], return_inverse=True)
            ends = np.cumsum(np.bincount(which))
            groups = np.split(places[np.argsort(which, kind="stable")], ends[:-1])
            for signature, group in zip(different.tolist(), groups, strict=True):
                counts = _counts(signature, in_order=in_order)
                self.tell(group, message(counts, number), counts, container)

    def tell(
        self, places: Numbers, text: str, reasons: Mapping[str, int], container: ContainerAsk | None
    ) -> None:
        """Keeps a refusal of the nodes at these places."""
        names = self.fleet._inventory.names
        sorted_names = names.array[places[np.argsort(names.rank[places])]].tolist()
        name, position = (container.name, container.position) if container else ("", 0)
        self.refusals.append(Refusal(text, reasons, name, position, tuple(sorted_names)))

    # --- one request -----------------------------------------------------------------------------

    def take(self, container: ContainerAsk, request: DeviceRequest) -> None:
        """One request on every node that is left; see `fit._Walk.take`."""
        vendor = self.ask.vendors.get(request.vendor)
        if vendor is None:
            self.refuse(self.alive, Reason.UNKNOWN_TYPE, container)
            return
        view = self.fleet._inventory.view(vendor.key)
        candidates = self.of(view.candidates)
        self.refuse(candidates == 0, Reason.TOO_FEW_DEVICES, container)
        if not self.is_plain(container, vendor, request):
            self.defer(self.alive)
            return
        choice = self.ask.choice(vendor.key)
        mig_cards = self.mig_of(view, vendor, choice)
        too_few = candidates < request.count
        if mig_cards is not None:
            too_few &= ~mig_cards.any(axis=0)
        self.refuse(too_few, Reason.TOO_FEW_DEVICES, container)

        sizes = self.sizes_of(vendor, request)
        codes = self.codes(view, vendor, choice, sizes)
        matters_later = self.matters_later(vendor)
        taken: Flags | None = None
        if choice.numa_bind or self.is_limited(vendor):
            if mig_cards is not None:
                self.defer(np.asarray(mig_cards.any(axis=0)))
            picked, signatures, taken = self.in_order(container, vendor, request, sizes, codes)
            fits = picked >= request.count
            self.refuse_counted(~fits, signatures, candidates, container, in_order=True)
        else:
            signatures = _ONE_OF[codes].sum(axis=0)
            if mig_cards is not None and self.is_limited(vendor, by_profiles=True):
                self.defer(np.asarray(mig_cards.any(axis=0)))
            elif mig_cards is not None and matters_later:
                self.defer(np.asarray((mig_cards & (codes == PASSES)).any(axis=0)))
            elif mig_cards is not None:
                signatures += self.mig_places(mig_cards & (codes == PASSES), request, sizes)
            fits = signatures >> TAKEN_SHIFT >= request.count
            self.refuse_counted(~fits, signatures, candidates, container, in_order=False)
        if not matters_later and self.picks is None:
            return
        keys = self.order_keys(container, vendor)
        if taken is None:
            taken = self.first(keys, codes, request.count)
        if self.picks is not None:
            self.picks.append(_Picked(self.number, vendor, taken, keys, *sizes))
        if matters_later:
            self.then(container.kind, vendor, taken, sizes)

    def is_plain(self, container: ContainerAsk, vendor: Vendor, request: DeviceRequest) -> bool:
        """Whether the request is one of those that the columns answer."""
        rule = rules.rule_name(vendor)
        if rule not in _FORMS or _adds_score(vendor) or request.count < 1:
            return False
        choice = self.ask.choice(vendor.key)
        units = CoresKind.DEVICE_UNITS if rule == _UNITS else CoresKind.PERCENT
        asked = (request.memory_mib, request.memory_percent, request.cores)
        by_links = vendor.fit.get("topology") is True and self.ask.device_policy.is_topology_aware
        earlier = self.ask.containers[: self.number]
        modules = vendor.fit.get("modules")
        by_modules = isinstance(modules, tuple | list) and vendor.word in modules
        is_peculiar = (
            vendor.cores_kind is not units
            or sum(one.vendor == vendor.key for one in container.requests) > 1
            or (by_links and (self.matters_later(vendor) or self.is_limited(vendor) or choice.numa_bind))
            or (
                rule == "same-device"
                and any(one.vendor == vendor.key for other in earlier for one in other.requests)
            )
            or (rule == "ascend" and (choice.mode == ascend.SOFT_SPLIT or (request.count > 1 and by_modules)))
        )
        return not is_peculiar and min(asked) >= 0 and max(asked) < MAX_TOTAL

    def mig_places(self, cards: Flags, request: DeviceRequest, sizes: _Sizes) -> Any:
        """What MIG cards that pass add to the signatures: one for each further place, one for the last look.

        A card is looked at until it refuses; those alike are looked at once.
        """
        card, node = np.nonzero(cards)
        free = (self.totals - self.used)[:, card, node]
        memory_mib = np.broadcast_to(sizes.memory_mib, cards.shape)[card, node]
        kinds = self.of(self.fleet._inventory.kind)[card, node]
        looks = list(zip(kinds.tolist(), *free.tolist(), memory_mib.tolist(), strict=True))
        places = {
            look: _mig_places(
                self.fleet._inventory.kinds[look[0]], Amount(*look[1:4]), look[4], request.count
            )
            for look in dict.fromkeys(looks)
        }
        taken = np.zeros(cards.shape, np.int64)
        taken[card, node] = [places[look] for look in looks]
        total = taken.sum(axis=0)
        # Counts beyond the bits are of cards that nobody makes.
        self.defer(total + MAX_CARDS > MAX_TAKEN)
        looked = cards.sum(axis=0)
        return (np.minimum(total, MAX_TAKEN - MAX_CARDS) - looked << TAKEN_SHIFT) + (
            looked << _SHIFTS[Reason.MIG]
        )

    def mig_of(self, view: _View, vendor: Vendor, choice: Choice) -> Flags | None:
        """MIG cards that may serve several of a container's devices; None where there are none."""
        if view.mig is None or vendor.fit.get("mig") is not True or not choice.allows_mode(MIG_MODE):
            return None
        mig: Flags = self.of(view.mig)
        return mig

    def matters_later(self, vendor: Vendor) -> bool:
        """Whether a later container finds what this one picks, on the cards or in the quotas."""
        kind = self.ask.containers[self.number].kind
        after = self.ask.containers[self.number + 1 :]
        asked_again = any(request.vendor == vendor.key for other in after for request in other.requests)
        return asked_again and (kind is not ContainerClass.INIT or self.is_limited(vendor))

    def is_limited(self, vendor: Vendor, *, by_profiles: bool = False) -> bool:
        """Whether quotas can refuse at all: not where the pod stays below them wherever it goes.

        `by_profiles` is for MIG cards: their profiles may be of any size, up to all of a card.
        """
        if not self.room.limits(vendor.key):
            return False
        known = (vendor.key, by_profiles)
        if known not in self.limited:
            self.limited[known] = self.may_reach(vendor, by_profiles=by_profiles)
        return self.limited[known]

    def may_reach(self, vendor: Vendor, *, by_profiles: bool) -> bool:
        """Whether the pod may come to more than the quotas leave it, on the largest cards there are."""
        view = self.fleet._inventory.view(vendor.key)
        requests = [
            one for other in self.ask.containers for one in other.requests if one.vendor == vendor.key
        ]
        most = view.largest.memory_mib
        if by_profiles:
            count = sum(one.count for one in requests)
            memory_mib, cores = count * most, count * max(view.largest.cores, WHOLE_CARD)
        elif vendor.cores_kind is CoresKind.PERCENT:
            memory_mib = sum(one.count * one.memory_on(most) for one in requests)
            cores = sum(one.count * min(one.cores, WHOLE_CARD) for one in requests)
        else:
            memory_mib = sum(one.count * (one.memory_mib or most) for one in requests)
            cores = sum(one.count * WHOLE_CARD for one in requests)
        return not self.room.admits(vendor.key, memory_mib, cores)

    def sizes_of(self, vendor: Vendor, request: DeviceRequest) -> _Sizes:
        """What the request is on each card; see `shared.as_asked`, and `units.in_units` for AMD."""
        rule, total = rules.rule_name(vendor), self.totals
        cores = min(request.cores, WHOLE_CARD)
        if rule == _SLOTS:
            return _Sizes(0, 0)
        if rule == _UNITS:
            memory_mib: Any = request.memory_mib or total[MEMORY]
            if cores:
                return _Sizes(memory_mib, np.maximum(total[CORES] * cores // 100, 1))
            is_whole = (memory_mib >= total[MEMORY]) & (total[MEMORY] > 0)
            return _Sizes(memory_mib, total[CORES] * is_whole)
        if request.memory_mib > 0 or request.memory_percent == PERCENT_NOT_GIVEN:
            return _Sizes(request.memory_mib, cores)
        if request.memory_percent == 0:
            return _Sizes(total[MEMORY], cores)
        return _Sizes(total[MEMORY] * request.memory_percent // 100, cores)

    def codes(self, view: _View, vendor: Vendor, choice: Choice, sizes: _Sizes) -> Codes:
        """What speaks against each card, but quotas: the checks of semantics 6.2, the first that refuses."""
        inventory, form = self.fleet._inventory, _FORMS[rules.rule_name(vendor)]
        used_slots = self.used[SLOTS]
        free_cores = self.totals[CORES] - self.used[CORES]
        codes: Codes = self.of(view.state)

        def check(refused: Flags | None, code: int) -> None:
            nonlocal codes
            if refused is not None:
                codes = np.maximum(codes, refused.view(np.uint8) * np.uint8(code))

        by_type = inventory.refused_by_type(choice) if form.by_type else None
        by_uuid = inventory.refused_by_uuid(choice)
        check(None if by_type is None else self.of(by_type), C_TYPE)
        check(None if by_uuid is None else self.of(by_uuid), C_UUID)
        if form.has_slot:
            check(self.totals[SLOTS] - used_slots < 1, C_SLOTS)
        if form.is_unused or (form.has_slot and self.ask.device_policy.is_mutex):
            check(used_slots > 0, C_MUTEX)
        if form.has_memory:
            check(self.totals[MEMORY] - self.used[MEMORY] < sizes.memory_mib, C_MEMORY)
        if form.has_cores:
            check(free_cores < sizes.cores, C_CORES)
        if form.is_whole and sizes.cores == WHOLE_CARD:
            check((self.totals[CORES] == WHOLE_CARD) & (used_slots > 0), C_ALONE)
        if form.is_whole and sizes.cores == 0:
            check((self.totals[CORES] != 0) & (free_cores == 0), C_EXHAUSTED)
        return codes

    # --- order and picks -------------------------------------------------------------------------

    def scores(self, container: ContainerAsk) -> Floats:
        """The score of every card with the container's requests on it; see `policies.device_score`."""
        inventory, totals = self.fleet._inventory, self.totals
        asked: Any = None
        for request in container.requests:
            named = np.array([kind.model == request.vendor for kind in inventory.kinds])
            if not named.any():
                continue
            asked = np.zeros_like(self.used) if asked is None else asked
            counts = self.of(named[inventory.kind])
            memory: Any = request.memory_mib
            if request.memory_percent not in (0, PERCENT_NOT_GIVEN):
                memory = totals[MEMORY] * request.memory_percent // 100
            asked[SLOTS] += counts
            asked[MEMORY] += counts * memory
            asked[CORES] += counts * request.cores
        return device_scores(self.used, totals, 0 if asked is None else asked, self.ask.weights)

    def order_keys(self, container: ContainerAsk, vendor: Vendor) -> Numbers:
        """One number per card of a node: the smaller, the sooner it is tried; no two are equal."""
        keys = np.zeros(self.used.shape[1:], np.int64)
        for by, sign in self.ask.device_policy.keys(numa_bind=self.ask.choice(vendor.key).numa_bind):
            if by is By.SCORE:
                bits, values = 31, self.scores(container).view(np.int32).astype(np.int64)
            elif by is By.NUMA:
                bits, values = MAX_NUMA.bit_length() - 1, self.of(self.fleet._inventory.numa)
            else:
                bits, values = 40, self.used[SLOTS]
            keys = keys << bits | (values if sign < 0 else (1 << bits) - 1 - values)
        return keys << CARD_BITS | np.arange(len(keys))[:, np.newaxis]

    def first(self, keys: Numbers, codes: Codes, count: int) -> Flags:
        """The first `count` cards of each node that pass."""
        left = np.where(codes == PASSES, keys, policies.INT64_MAX)
        taken = np.zeros(codes.shape, np.bool_)
        for _ in range(min(count, len(codes))):
            best = left == left.min(axis=0)
            taken |= best
            left[best] = policies.INT64_MAX
        return taken & (codes == PASSES)

    def in_order(
        self, container: ContainerAsk, vendor: Vendor, request: DeviceRequest, sizes: _Sizes, codes: Codes
    ) -> tuple[Numbers, Numbers, Flags]:
        """The walk card by card, where it depends on what was taken: quotas and numa-bind.

        Returns how many cards were taken on each node, what was counted there, and which cards were taken.
        """
        keys = np.where(codes == NOT_OURS, policies.INT64_MAX, self.order_keys(container, vendor))
        order = np.argsort(keys, axis=0)
        codes = np.take_along_axis(codes, order, axis=0)
        numa = np.take_along_axis(self.of(self.fleet._inventory.numa), order, axis=0)
        before, growth = self.quota_terms(vendor, sizes)
        growth = np.take_along_axis(growth, order[np.newaxis], axis=1)
        binds = self.ask.choice(vendor.key).numa_bind
        is_limited = self.is_limited(vendor)

        size = codes.shape[1]
        signatures = np.zeros(size, np.int64)
        picked = np.zeros(size, np.int64)
        posted = before.copy()
        last_numa = np.full(size, -1, np.int64)
        taken = np.zeros(codes.shape, np.bool_)
        for step, code in enumerate(codes):
            tried = (picked < request.count) & (code != NOT_OURS)
            if binds:
                other = tried & (code < C_TYPE) & (numa[step] != last_numa)
                signatures += (picked * other) << _SHIFTS[Reason.NUMA]
                picked[other] = 0
                taken[:step, other] = False
                posted[:, other] = before[:, other]
                last_numa = np.where(other, numa[step], last_numa)
            if is_limited:
                refused = (code < C_QUOTA) & ~self.admits(vendor, posted + growth[:, step])
                code = np.where(refused, np.uint8(C_QUOTA), code)
            passes = tried & (code == PASSES)
            taken[step] = passes
            picked += passes
            posted += growth[:, step] * passes
            signatures += np.where(tried & ~passes, _ONE_OF[code], 0)
        signatures += picked << TAKEN_SHIFT
        by_card = np.zeros(taken.shape, np.bool_)
        np.put_along_axis(by_card, order, taken, axis=0)
        return picked, signatures, by_card

    def quota_terms(self, vendor: Vendor, sizes: _Sizes) -> tuple[Numbers, Numbers]:
        """Memory and cores that the pod so far comes to, and by how much each card would add to them.

        A device counts with the larger of peak and steady, whatever the container's class: what it
        takes stands on what sidecars and apps hold already.
        """
        ours = self.of(self.fleet._inventory.view(vendor.key).state) != NOT_OURS
        shape = self.used.shape[1:]
        steady = np.zeros((2, *shape), np.int64) if self.steady is None else self.steady
        peak = np.zeros((2, *shape), np.int64) if self.peak is None else self.peak
        held = np.empty((2, *shape), np.int64)
        held[0], held[1] = sizes.memory_mib, sizes.cores
        before = self.in_quota_units(vendor, np.maximum(peak, steady))
        after = self.in_quota_units(vendor, np.maximum(peak, steady + held))
        return (before * ours).sum(axis=1), after - before

    def in_quota_units(self, vendor: Vendor, amounts: Numbers) -> Numbers:
        """As `Vendor.quota_cores_of`, of memory and cores by card."""
        if vendor.cores_kind is not CoresKind.DEVICE_UNITS:
            return amounts
        total = self.totals[CORES]
        percent = -(-amounts[1] * 100 // np.maximum(total, 1))
        return np.stack((amounts[0], np.where(total > 0, percent, amounts[1])))

    def admits(self, vendor: Vendor, posted: Numbers) -> Flags:
        """As `Room.admits`, of memory and cores by node."""
        admitted = np.ones(posted.shape[1], np.bool_)
        for amount, dimension in zip(posted, (Dimension.MEMORY, Dimension.CORES), strict=True):
            left = self.room.left.get((vendor.key, dimension))
            if left is not None:
                admitted &= (amount <= 0) | (amount <= min(left, policies.INT64_MAX))
        return admitted

    def then(self, kind: ContainerClass, vendor: Vendor, taken: Flags, sizes: _Sizes) -> None:
        """After the container's request: the fold of `Footprint.then`, over columns."""
        held = np.empty_like(self.used)
        held[SLOTS], held[MEMORY], held[CORES] = taken, taken * sizes.memory_mib, taken * sizes.cores
        if self.is_limited(vendor):
            if self.steady is None or self.peak is None:
                self.steady = np.zeros((2, *taken.shape), np.int64)
                self.peak = np.zeros((2, *taken.shape), np.int64)
            if kind is ContainerClass.INIT:
                self.peak = np.maximum(self.peak, self.steady + held[MEMORY:])
            else:
                self.steady = self.steady + held[MEMORY:]
        if kind is not ContainerClass.INIT:
            self.used = self.used + held

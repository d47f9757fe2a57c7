"""One pod's walk over its containers, on many nodes together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamiacct.accounting import mig, policies
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import Ask, ContainerAsk, Room
from hamiacct.accounting.devices import MigProfile
from hamiacct.accounting.fitting import ascend, rules
from hamiacct.accounting.fitting.checks import WHOLE_CARD
from hamiacct.accounting.fleet import forms
from hamiacct.accounting.fleet.arrays import (
    CARD_BITS,
    CORES,
    MAX_CARDS,
    MAX_NUMA,
    MAX_TOTAL,
    MEMORY,
    SLOTS,
    Codes,
    Flags,
    Floats,
    Numbers,
)
from hamiacct.accounting.fleet.columns import Columns
from hamiacct.accounting.fleet.inventory import Kind, View
from hamiacct.accounting.fleet.scores import device_scores
from hamiacct.accounting.fleet.signatures import (
    C_ALONE,
    C_CORES,
    C_EXHAUSTED,
    C_MEMORY,
    C_MUTEX,
    C_QUOTA,
    C_SLOTS,
    C_TYPE,
    C_UUID,
    MAX_TAKEN,
    NOT_OURS,
    ONE_OF,
    PASSES,
    SHIFTS,
    TAKEN_SHIFT,
    counts_of,
)
from hamiacct.accounting.fleet.verdicts import Refusal
from hamiacct.accounting.mig import MIG_MODE
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.policies import By
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.reasons import Reason, message
from hamiacct.accounting.requests import PERCENT_NOT_GIVEN, DeviceRequest
from hamiacct.accounting.selectors import Choice
from hamiacct.accounting.vendors import CoresKind, Vendor


class Sizes(NamedTuple):
    """What is asked of every card: numbers for all, or columns where they depend on the card."""

    memory_mib: Any
    cores: Any


class Picked(NamedTuple):
    """What the request of a container took on each node: which cards, and in which order they were tried."""

    number: int
    vendor: Vendor
    taken: Flags
    keys: Numbers
    memory_mib: Any
    cores: Any

    def on(self, nodes: Numbers) -> list[list[tuple[int, int, int]]]:
        """For each of these nodes of the walk card, memory and cores of every pick, in their order."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(len(nodes))]
        card, which = np.nonzero(self.taken[:, nodes])
        node = nodes[which]
        order = np.argsort(self.keys[card, node])
        card, which, node = card[order], which[order], node[order]
        memory_mib = _at(self.memory_mib, card, node)
        cores = _at(self.cores, card, node)
        for here, *pick in zip(which.tolist(), card.tolist(), memory_mib, cores, strict=True):
            found[here].append((pick[0], pick[1], pick[2]))
        return found


def _at(sizes: Any, card: Numbers, node: Numbers) -> list[int]:
    """What is asked of these cards, of a number for all or of a column."""
    return sizes[card, node].tolist() if isinstance(sizes, np.ndarray) else [sizes] * len(card)


@dataclass
class Walk:
    """The walk over the pod's containers, by all nodes at `places` together. Mutable while it walks.

    `used` is what nodes' pods and the pod's sidecars and apps so far hold, `steady` and `peak` are the
    pod's own memory and cores where its quotas may refuse; `number` is the container at hand. A node is
    `alive` while all containers so far fit, `deferred` where the definition has to say. `picks` are kept
    where placements are wanted of them; only where it `tells` are refusals. Nodes that are `unsure` may have
    fewer places on MIG cards than the columns know of, and cards that are not to be trusted; none have more.
    """

    columns: Columns
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
    picks: list[Picked] | None = None
    tells: bool = True
    unsure: Flags | None = None
    limited: dict[tuple[str, bool], bool] = field(default_factory=dict)

    @classmethod
    def over(cls, columns: Columns, ask: Ask, room: Room, places: Numbers | None) -> Walk:
        """Before the first container."""
        size = len(columns) if places is None else len(places)
        totals, used = columns.inventory.totals, columns.used
        if places is not None:
            totals, used = totals.take(places, axis=-1), used.take(places, axis=-1)
        return cls(
            columns, ask, room, places, totals, used, np.ones(size, np.bool_), np.zeros(size, np.bool_)
        )

    def of(self, column: NDArray[Any]) -> Any:
        """A column of the whole fleet, as far as it is looked at."""
        return column if self.places is None else column.take(self.places, axis=-1)

    def places_of(self, nodes: Flags) -> Numbers:
        """Where the marked nodes are in the fleet."""
        found = np.flatnonzero(nodes)
        return found if self.places is None else self.places[found]

    def run(self) -> None:
        """All containers, one after the other."""
        inventory = self.columns.inventory
        if inventory.has_unregistered:
            self.refuse(self.of(inventory.unregistered), Reason.NODE_UNREGISTERED, None)
        if inventory.has_odd:
            self.defer(self.of(inventory.odd))
        for number, container in enumerate(self.ask.containers):
            self.number = number
            for request in container.requests:
                if not self.alive.any():
                    return
                self.take(container, request)
        if forms.adds_scores(self.ask):
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
                counts = counts_of(signature, in_order=in_order)
                self.tell(group, message(counts, number), counts, container)

    def tell(
        self, places: Numbers, text: str, reasons: Mapping[str, int], container: ContainerAsk | None
    ) -> None:
        """Keeps a refusal of the nodes at these places."""
        names = self.columns.inventory.names
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
        view = self.columns.inventory.view(vendor.key)
        if not self.is_plain(container, vendor, request):
            self.refuse(self.of(view.candidates) == 0, Reason.TOO_FEW_DEVICES, container)
            self.defer(self.alive)
            return
        choice = self.ask.choice(vendor.key)
        mig_cards = self.mig_of(view, vendor, choice)
        matters_later = self.matters_later(vendor)
        sizes = self.sizes_of(vendor, request)
        free = self.totals - self.used
        taken: Flags | None = None
        if self.tells or choice.numa_bind or self.is_limited(vendor):
            passes, taken = self.told(container, vendor, request, view, sizes, free, mig_cards)
        else:
            passes = self.passing(view, vendor, choice, sizes, free)
            self.defer_unsure(view, passes)
            enough = np.count_nonzero(passes, axis=0)
            if mig_cards is not None:
                enough = enough + self.more_of_mig(vendor, request, mig_cards, passes, sizes, free)[0]
            self.alive &= enough >= request.count
        if not matters_later and self.picks is None:
            return
        keys = self.order_keys(container, vendor)
        if taken is None:
            taken = self.first(keys, passes, request.count)
        if self.picks is not None:
            self.picks.append(Picked(self.number, vendor, taken, keys, *sizes))
        if matters_later:
            self.then(container.kind, vendor, taken, sizes)

    def told(
        self,
        container: ContainerAsk,
        vendor: Vendor,
        request: DeviceRequest,
        view: View,
        sizes: Sizes,
        free: Numbers,
        mig_cards: Flags | None,
    ) -> tuple[Flags, Flags | None]:
        """The cards that pass, with every reason counted on nodes where too few do; where the order of cards
        matters for that, also those that are taken."""
        choice = self.ask.choice(vendor.key)
        candidates = self.of(view.candidates)
        too_few = candidates < request.count
        if mig_cards is not None:
            too_few &= ~mig_cards.any(axis=0)
        self.refuse((candidates == 0) | too_few, Reason.TOO_FEW_DEVICES, container)
        codes = self.codes(view, vendor, choice, sizes, free)
        passes = codes == PASSES
        self.defer_unsure(view, None)
        if choice.numa_bind or self.is_limited(vendor):
            if mig_cards is not None:
                self.defer(np.asarray(mig_cards.any(axis=0)))
            picked, signatures, taken = self.in_order(container, vendor, request, sizes, codes)
            fits = picked >= request.count
            self.refuse_counted(~fits, signatures, candidates, container, in_order=True)
            return passes, taken
        signatures = ONE_OF[codes].sum(axis=0)
        if mig_cards is not None:
            more, looked = self.more_of_mig(vendor, request, mig_cards, passes, sizes, free)
            signatures = signatures + (more << TAKEN_SHIFT) + (looked << SHIFTS[Reason.MIG])
        fits = signatures >> TAKEN_SHIFT >= request.count
        self.refuse_counted(~fits, signatures, candidates, container, in_order=False)
        return passes, None

    def is_plain(self, container: ContainerAsk, vendor: Vendor, request: DeviceRequest) -> bool:
        """Whether the request is one of those that the columns answer."""
        rule = rules.rule_name(vendor)
        if rule not in forms.FORMS or forms.adds_score(vendor) or request.count < 1:
            return False
        choice = self.ask.choice(vendor.key)
        units = CoresKind.DEVICE_UNITS if rule == forms.UNITS else CoresKind.PERCENT
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

    def defer_unsure(self, view: View, passes: Flags | None) -> None:
        """Leaves nodes to the definition of which a MIG card counts, among those that pass (None: any), which
        in truth may not: what is picked instead of it decides about all that comes later."""
        if self.unsure is not None and view.mig is not None:
            mig_cards = self.of(view.mig)
            counts = mig_cards if passes is None else mig_cards & passes
            self.defer(np.asarray(counts.any(axis=0)) & self.unsure)

    def more_of_mig(
        self,
        vendor: Vendor,
        request: DeviceRequest,
        mig_cards: Flags,
        passes: Flags,
        sizes: Sizes,
        free: Numbers,
    ) -> tuple[Any, Any]:
        """How many more devices than one each the MIG cards of a node that pass stand for, and how many these
        are: each refuses once. Where more depends on them they are left to the definition."""
        if self.is_limited(vendor, by_profiles=True):
            self.defer(np.asarray(mig_cards.any(axis=0)))
            return 0, 0
        cards = mig_cards & passes
        if self.matters_later(vendor):
            self.defer(np.asarray(cards.any(axis=0)))
            return 0, 0
        return self.mig_places(cards, request, sizes, free)

    def mig_places(
        self, cards: Flags, request: DeviceRequest, sizes: Sizes, free: Numbers
    ) -> tuple[Numbers, Numbers]:
        """As above. A card is looked at until it refuses; those alike are looked at once."""
        card, node = np.nonzero(cards)
        memory_mib = np.broadcast_to(sizes.memory_mib, cards.shape)[card, node]
        kinds = self.of(self.columns.inventory.kind)[card, node]
        looks = list(zip(kinds.tolist(), *free[:, card, node].tolist(), memory_mib.tolist(), strict=True))
        places = {
            look: _mig_places(
                self.columns.inventory.kinds[look[0]], Amount(*look[1:4]), look[4], request.count
            )
            for look in dict.fromkeys(looks)
        }
        taken = np.zeros(cards.shape, np.int64)
        taken[card, node] = [places[look] for look in looks]
        total = taken.sum(axis=0)
        # Counts beyond the bits are of cards that nobody makes.
        self.defer(total + MAX_CARDS > MAX_TAKEN)
        looked = cards.sum(axis=0)
        return np.minimum(total, MAX_TAKEN - MAX_CARDS) - looked, looked

    def mig_of(self, view: View, vendor: Vendor, choice: Choice) -> Flags | None:
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
        view = self.columns.inventory.view(vendor.key)
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

    def sizes_of(self, vendor: Vendor, request: DeviceRequest) -> Sizes:
        """What the request is on each card; see `shared.as_asked`, and `units.in_units` for AMD."""
        rule, total = rules.rule_name(vendor), self.totals
        cores = min(request.cores, WHOLE_CARD)
        if rule == forms.SLOTS:
            return Sizes(0, 0)
        if rule == forms.UNITS:
            memory_mib: Any = request.memory_mib or total[MEMORY]
            if cores:
                return Sizes(memory_mib, np.maximum(total[CORES] * cores // 100, 1))
            is_whole = (memory_mib >= total[MEMORY]) & (total[MEMORY] > 0)
            return Sizes(memory_mib, total[CORES] * is_whole)
        if request.memory_mib > 0 or request.memory_percent == PERCENT_NOT_GIVEN:
            return Sizes(request.memory_mib, cores)
        if request.memory_percent == 0:
            return Sizes(total[MEMORY], cores)
        return Sizes(total[MEMORY] * request.memory_percent // 100, cores)

    def codes(self, view: View, vendor: Vendor, choice: Choice, sizes: Sizes, free: Numbers) -> Codes:
        """What speaks against each card, but quotas: the checks of semantics 6.2, the first that refuses."""
        codes: Codes = self.of(view.state)
        for refused, code in self.checks(vendor, choice, sizes, free):
            codes = np.maximum(codes, refused.view(np.uint8) * np.uint8(code))
        return codes

    def passing(self, view: View, vendor: Vendor, choice: Choice, sizes: Sizes, free: Numbers) -> Flags:
        """The cards that nothing speaks against: those whose code says so."""
        passes: Flags = self.of(view.sound)
        for refused, _ in self.checks(vendor, choice, sizes, free):
            passes = passes > refused
        return passes

    def checks(
        self, vendor: Vendor, choice: Choice, sizes: Sizes, free: Numbers
    ) -> Iterator[tuple[Flags, int]]:
        """The cards that each check of semantics 6.2 refuses, and its code; `free` is what they have left."""
        inventory, form = self.columns.inventory, forms.FORMS[rules.rule_name(vendor)]
        used_slots = self.used[SLOTS]
        by_type = inventory.refused_by_type(choice) if form.by_type else None
        by_uuid = inventory.refused_by_uuid(choice)
        if by_type is not None:
            yield self.of(by_type), C_TYPE
        if by_uuid is not None:
            yield self.of(by_uuid), C_UUID
        if form.has_slot:
            yield free[SLOTS] < 1, C_SLOTS
        if form.is_unused or (form.has_slot and self.ask.device_policy.is_mutex):
            yield used_slots > 0, C_MUTEX
        if form.has_memory:
            yield free[MEMORY] < sizes.memory_mib, C_MEMORY
        if form.has_cores:
            yield free[CORES] < sizes.cores, C_CORES
        # What is asked of cores is a number wherever this is looked at.
        if form.is_whole and sizes.cores == WHOLE_CARD:
            yield (self.totals[CORES] == WHOLE_CARD) & (used_slots > 0), C_ALONE
        if form.is_whole and sizes.cores == 0:
            yield (self.totals[CORES] != 0) & (free[CORES] == 0), C_EXHAUSTED

    # --- order and picks -------------------------------------------------------------------------

    def scores(self, container: ContainerAsk) -> Floats:
        """The score of every card with the container's requests on it; see `policies.device_score`."""
        inventory, totals = self.columns.inventory, self.totals
        asked: Any = None
        for request in container.requests:
            if request.vendor not in inventory.models:
                continue
            asked = np.zeros_like(self.used) if asked is None else asked
            counts = self.of(
                np.array([kind.model == request.vendor for kind in inventory.kinds])[inventory.kind]
            )
            memory: Any = request.memory_mib
            if request.memory_percent not in (0, PERCENT_NOT_GIVEN):
                memory = totals[MEMORY] * request.memory_percent // 100
            asked[SLOTS] += counts
            asked[MEMORY] += counts * memory
            asked[CORES] += counts * request.cores
        return device_scores(self.used, totals, asked, self.ask.weights)

    def order_keys(self, container: ContainerAsk, vendor: Vendor) -> Numbers:
        """One number per card of a node: the smaller, the sooner it is tried; no two are equal."""
        keys: Any = None
        for by, sign in self.ask.device_policy.keys(numa_bind=self.ask.choice(vendor.key).numa_bind):
            if by is By.SCORE:
                bits, values = 31, self.scores(container).view(np.int32).astype(np.int64)
            elif by is By.NUMA:
                bits, values = MAX_NUMA.bit_length() - 1, self.of(self.columns.inventory.numa)
            else:
                bits, values = 40, self.used[SLOTS]
            values = values if sign < 0 else (1 << bits) - 1 - values
            keys = values if keys is None else keys << bits | values
        return keys << CARD_BITS | np.arange(len(keys))[:, np.newaxis]

    def first(self, keys: Numbers, passes: Flags, count: int) -> Flags:
        """The first `count` cards of each node that pass."""
        left = np.where(passes, keys, policies.INT64_MAX)
        if count == 1:
            return (left == left.min(axis=0)) & passes
        taken = np.zeros(passes.shape, np.bool_)
        for _ in range(min(count, len(passes))):
            best = left == left.min(axis=0)
            taken |= best
            left[best] = policies.INT64_MAX
        return taken & passes

    def in_order(
        self, container: ContainerAsk, vendor: Vendor, request: DeviceRequest, sizes: Sizes, codes: Codes
    ) -> tuple[Numbers, Numbers, Flags]:
        """The walk card by card, where it depends on what was taken: quotas and numa-bind.

        Returns how many cards were taken on each node, what was counted there, and which cards were taken.
        """
        keys = np.where(codes == NOT_OURS, policies.INT64_MAX, self.order_keys(container, vendor))
        order = np.argsort(keys, axis=0)
        codes = np.take_along_axis(codes, order, axis=0)
        numa = np.take_along_axis(self.of(self.columns.inventory.numa), order, axis=0)
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
                signatures += (picked * other) << SHIFTS[Reason.NUMA]
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
            signatures += np.where(tried & ~passes, ONE_OF[code], 0)
        signatures += picked << TAKEN_SHIFT
        by_card = np.zeros(taken.shape, np.bool_)
        np.put_along_axis(by_card, order, taken, axis=0)
        return picked, signatures, by_card

    def quota_terms(self, vendor: Vendor, sizes: Sizes) -> tuple[Numbers, Numbers]:
        """Memory and cores that the pod so far comes to, and by how much each card would add to them.

        A device counts with the larger of peak and steady, whatever the container's class: what it
        takes stands on what sidecars and apps hold already.
        """
        ours = self.of(self.columns.inventory.view(vendor.key).state) != NOT_OURS
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

    def then(self, kind: ContainerClass, vendor: Vendor, taken: Flags, sizes: Sizes) -> None:
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


def _mig_places(kind: Kind, free: Amount, memory_mib: int, count: int) -> int:
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

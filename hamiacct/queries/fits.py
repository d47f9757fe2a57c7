"""Where a pod fits, how many more such pods do, and what its quotas leave it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType

from django.conf import settings

from hamiacct import config, models, rows
from hamiacct.accounting import admission, asks, devices, fit
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import Ask, Room
from hamiacct.accounting.errors import Unavailable
from hamiacct.accounting.fit import Misfit, Placement
from hamiacct.accounting.fleet import Judgement, Refusal
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import DeviceKey, Pod
from hamiacct.accounting.policies import device_policy_of, node_policy_of
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.reasons import Reason
from hamiacct.queries import fleet, moments
from hamiacct.queries.admission import standings
from hamiacct.queries.moments import Moment as Moment

MOST_PODS = 1000


@dataclass(frozen=True, slots=True)
class Question:
    """A pod as admission would leave it, and what it asks for."""

    pod: Pod
    ask: Ask


@dataclass(frozen=True)
class Fit:
    """Where the pod fits, best first, and why not elsewhere. A pod that asks for nothing fits everywhere."""

    candidates: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]
    fits: bool
    as_of: datetime

    @cached_property
    def failed(self) -> tuple[Misfit, ...]:
        """One verdict per node that refuses, by name; where all are told at once, `refusals` are shorter."""
        return Judgement((), self.refusals).failed

    @cached_property
    def reasons(self) -> dict[str, list[str]]:
        """The failed nodes, by each of their reasons."""
        return by_reason((refusal.reasons, refusal.nodes) for refusal in self.refusals)


def reasons_of(failed: Iterable[Misfit]) -> dict[str, list[str]]:
    """The nodes that refused, by each of their reasons."""
    return by_reason((misfit.reasons, (misfit.node,)) for misfit in failed)


def by_reason(refused: Iterable[tuple[Iterable[str], Iterable[str]]]) -> dict[str, list[str]]:
    """Nodes by reason as a mere text, of reasons and the nodes that gave them; each once."""
    found: dict[str, list[str]] = defaultdict(list)
    for reasons, nodes in refused:
        for reason in reasons:
            found[str(reason)] += nodes
    return {reason: sorted(found[reason]) for reason in sorted(found)}


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many more such pods fit, in all and per node."""

    count: int
    by_node: tuple[tuple[str, int], ...]
    as_of: datetime


def question_of(pod: Pod, *, node_policy: str | None = None, gpu_policy: str | None = None) -> Question:
    """The question a pod is (decision 19). Malformed for what cannot be read: requests, policies, weights.

    A policy given here stands in for the one of the pod's annotations.
    """
    vendors = config.vendors()
    found = admission.admitted(pod, vendors)
    read, requests = found.pod, found.requests
    defaults = asks.Defaults(
        node_policy_of(settings.HAMIACCT.node_policy), device_policy_of(settings.HAMIACCT.gpu_policy)
    )
    ask = asks.ask_of(read.containers, requests, read.annotations, vendors, defaults)
    if node_policy is not None:
        ask = replace(ask, node_policy=node_policy_of(node_policy, defaults.node_policy))
    if gpu_policy is not None:
        ask = replace(ask, device_policy=device_policy_of(gpu_policy, defaults.device_policy))
    return Question(read, ask)


def find(
    question: Question,
    *,
    nodes: Sequence[str] | None = None,
    limit: int = 5,
    verdicts: bool = True,
    at: datetime,
    seen: Moment | None = None,
) -> Fit:
    """Every feasible node up to `limit`, best first, and why not the others (decisions 22 to 25).

    `nodes` narrows the choice; one that is not known fails as unregistered. Unavailable where the books
    are not complete or too old, or no device was ever registered. `seen` is what `look` saw, where the
    caller has looked already.
    """
    if question.ask.is_empty:
        return Fit((), (), True, at)
    seen = seen or look(question, at=at)
    check(seen)
    return find_in(
        fleet.current(seen.tail), question, seen, nodes=nodes, limit=limit, verdicts=verdicts, at=at
    )


def find_in(
    offer: fleet.Offer,
    question: Question,
    seen: Moment,
    *,
    nodes: Sequence[str] | None,
    limit: int,
    verdicts: bool,
    at: datetime,
    changed: Mapping[str, FitNode] = MappingProxyType({}),
) -> Fit:
    """The same in a fleet that is given, but for the nodes that are `changed`."""
    instead = {**changed, **_given_back(offer, changed, question.pod.uid, seen.own.held)}
    judged = offer.fleet.judge(
        question.ask,
        room_for(question.pod, seen),
        nodes,
        limit=limit,
        verdicts=verdicts,
        instead=[node for name, node in instead.items() if nodes is None or name in nodes],
        unsure=offer.doubtful,
        look=offer.look,
    )
    refusals = judged.refusals if verdicts else ()
    return Fit(judged.candidates, refusals, bool(judged.candidates), at)


def look(question: Question, *, at: datetime) -> Moment:
    """What the question needs to know beside the fleet, and what became of that; one statement."""
    return moments.of_fit(question.pod, at=at)


def simulate(question: Question, nodes: Sequence[devices.Node], *, at: datetime) -> Fit:
    """The same over given Node objects: their inventory, with the stored usage of nodes we know.

    Nothing is stored. Every feasible node is answered (decision 31).
    """
    if question.ask.is_empty:
        return Fit((), (), True, at)
    names = [node.name for node in nodes]
    stored = {
        (row.node, row.uuid): rows.fit_device_of(row, 0)
        for row in models.Device.objects.filter(node__in=names)
    }
    for known in fleet.load(names, apart_from=question.pod.uid):
        stored |= {(known.name, device.uuid): device for device in known.devices}
    room, held = room_for(question.pod), held_by(question.pod.uid)
    verdicts = [fit.place(without(_as_offered(node, stored), held), question.ask, room) for node in nodes]
    placements = [verdict for verdict in verdicts if isinstance(verdict, Placement)]
    refusals = tuple(
        Refusal(verdict.message, verdict.reasons, verdict.container, verdict.position, (verdict.node,))
        for verdict in verdicts
        if isinstance(verdict, Misfit)
    )
    best = fit.order_placements(placements, question.ask.node_policy)
    return Fit(tuple(best), refusals, bool(best), at)


def capacity(
    question: Question,
    *,
    nodes: Sequence[str] | None = None,
    at_most: int = MOST_PODS,
    at: datetime,
    seen: Moment | None = None,
) -> Capacity:
    """How many more such pods fit, card by card, at most so many; nothing is stored.

    The pod itself, where it holds something already, gives nothing back. One that asks for nothing is
    limited by nothing.
    """
    if question.ask.is_empty:
        return Capacity(at_most, (), at)
    seen = seen or look(question, at=at)
    check(seen)
    room = room_for(question.pod, replace(seen, own=moments.NOTHING_OWN))
    offer = fleet.current(seen.tail)
    names = sorted(offer.fleet.names) if nodes is None else list(dict.fromkeys(nodes))
    counting = _Counting(offer, question.ask, room, at_most)
    if offer.fleet.limits(question.ask, room, at_most):
        counting.within_quotas(names)
    else:
        counting.apart(names)
    by_node = tuple((name, counting.counts.get(name, 0)) for name in names)
    return Capacity(sum(counting.counts.values()), by_node, at)


@dataclass(slots=True)
class _Counting:
    """Pods placed one after the other, node by node. `counts` holds the nodes that took some."""

    offer: fleet.Offer
    ask: Ask
    room: Room
    at_most: int
    counts: dict[str, int] = field(default_factory=dict)
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.at_most

    def apart(self, names: Sequence[str]) -> None:
        """Where no quota is in reach: what one node takes is nothing to the others."""
        for name, count in self.offer.fleet.copies(self.ask, names, self.at_most):
            if not self.left:
                return
            if count is None or name in self.offer.instead:
                self.fill(name)
            elif count:
                self.counts[name] = min(count, self.left)
                self.left -= self.counts[name]

    def within_quotas(self, names: Sequence[str]) -> None:
        """Where quotas are in reach: all up to the first that takes a pod are asked with the same room."""
        given = [number for number, name in enumerate(names) if name in self.offer.instead]
        start = 0
        while start < len(names) and self.left:
            number = start + self.offer.fleet.first_taker(self.ask, self.room, names[start:])
            number = min([number, *(one for one in given if one >= start)])
            if number < len(names):
                self.fill(names[number])
            start = number + 1

    def fill(self, name: str) -> None:
        """One node, by the definition, until it takes no more."""
        node = self.offer.node(name)
        while self.left:
            verdict = fit.place(node, self.ask, self.room)
            if isinstance(verdict, Misfit):
                return
            node, self.room = _after(node, verdict), _left_of(self.room, verdict, node)
            self.counts[name] = self.counts.get(name, 0) + 1
            self.left -= 1


def check_books(at: datetime) -> None:
    """Empty books are not free cards: Unavailable until they are complete and up to date (decision 25)."""
    check(moments.of_quotas(Pod("", "", "", 0, ()), at=at))


def check(seen: Moment) -> None:
    """Unavailable where the books cannot be relied on (decisions 24 and 25)."""
    if seen.doubt:
        raise Unavailable(f"the books are not complete or too old: {seen.doubt}")
    if not seen.has_devices:
        raise Unavailable("no device was ever registered")


def offers(pod_uid: str, nodes: Sequence[str] | None) -> list[FitNode]:
    """The nodes to choose from, by name, without what the pod itself holds already (decision 28)."""
    offer = fleet.current()
    instead = {**offer.instead, **_given_back(offer, {}, pod_uid, held_by(pod_uid))}
    names = sorted(offer.fleet.names) if nodes is None else dict.fromkeys(nodes)
    return [instead.get(name) or offer.node(name) for name in names]


def _given_back(
    offer: fleet.Offer, instead: Mapping[str, FitNode], pod_uid: str, held: Held
) -> dict[str, FitNode]:
    """The nodes the pod holds something on, by name, as if that were given back: its MIG places, too."""
    names = {key.node for key in held}
    told = names & offer.doubtful
    nodes = {name: instead.get(name) or offer.node(name) for name in names}
    nodes |= {node.name: node for node in fleet.load(told, apart_from=pod_uid)} if told else {}
    return {name: without(node, held) for name, node in nodes.items()}


def held_by(pod_uid: str) -> Held:
    """What a pod holds now, by device; nothing for one that is not known."""
    entries = models.UsageEntry.objects.filter(pod_id=pod_uid).select_related("device") if pod_uid else ()
    return rows.held_of(entries)


def without(node: FitNode, held: Held) -> FitNode:
    """The node with this usage taken out of its totals."""

    def given_back(used: Amount, amount: Amount) -> Amount:
        return replace(used.minus(amount), core_set=used.core_set & ~amount.core_set)

    return used_otherwise(node, held, given_back)


def used_otherwise(node: FitNode, held: Held, change: Callable[[Amount, Amount], Amount]) -> FitNode:
    """The node with what is used of its devices changed by what a pod holds of them."""
    mine = {key.uuid: amount for key, amount in held.items() if key.node == node.name}
    if not mine:
        return node
    devices = tuple(
        replace(device, used=change(device.used, mine[device.uuid])) if device.uuid in mine else device
        for device in node.devices
    )
    return replace(node, devices=devices)


def room_for(pod: Pod, seen: Moment | None = None) -> Room:
    """What every ResourceQuota that selects the pod leaves it, its own charge left out (decision 16).

    As `seen`; without it as it is now.
    """
    return Room.of((one.vendor, one.dimension, one.hard - one.used) for one in standings(pod, seen))


def _as_offered(node: devices.Node, stored: Mapping[tuple[str, str], FitDevice]) -> FitNode:
    """A Node object's inventory, with what is used of the devices we know."""

    def seen(device: devices.RegisteredDevice) -> FitDevice:
        known = stored.get((node.name, device.uuid))
        return FitDevice(
            uuid=device.uuid,
            vendor=device.vendor,
            total=Amount(device.slots, device.memory_mib, device.cores),
            used=known.used if known is not None else Amount(),
            index=device.index,
            order=device.order,
            model=device.model,
            numa=device.numa,
            mode=device.mode,
            healthy=device.healthy,
            cordoned=device.uuid in node.cordoned,
            mig_profiles=device.mig_profiles,
            mig_in_use=known.mig_in_use if known is not None else (),
            tenants=known.tenants if known is not None else (),
            custom=device.custom,
        )

    offered = tuple(seen(device) for one in node.registrations for device in one.devices)
    return FitNode(node.name, offered, node.pair_scores, node.labels, node.annotations)


def _after(node: FitNode, placement: Placement) -> FitNode:
    """The node with one more such pod on it."""
    charge = placement.charge
    places: dict[str, list[devices.Placement]] = defaultdict(list)
    for one in placement.mig_allocations:
        places[one.gpu_uuid].append(one.placement)

    def taken(device: FitDevice) -> FitDevice:
        amount = charge[DeviceKey(node.name, device.uuid, device.vendor)]
        in_use = (*device.mig_in_use, *places[device.uuid])
        return replace(device, used=device.used.plus(amount), mig_in_use=in_use)

    return replace(node, devices=tuple(taken(device) for device in node.devices))


def _left_of(room: Room, placement: Placement, node: FitNode) -> Room:
    """What the quotas leave after one more such pod."""
    if not room.left:
        return room
    totals = {device.uuid: device.total.cores for device in node.devices}
    left = dict(room.left)
    for key, amount in placement.charge.items():
        cores = config.vendor_by_key()[key.vendor].quota_cores_of(amount.cores, totals.get(key.uuid, 0))
        for dimension, taken in ((Dimension.MEMORY, amount.memory_mib), (Dimension.CORES, cores)):
            if (key.vendor, dimension) in left:
                left[key.vendor, dimension] -= taken
    return Room(left)


def is_about_quota(failed: Iterable[Misfit | Refusal]) -> bool:
    """Whether some node refused for its quota's sake."""
    return any(Reason.QUOTA in one.reasons for one in failed)

"""Does a pod fit on one node, and where: the readable definition (semantics 6).

The walk is the pod's own fold. Containers are placed in declaration order on what the node has free
less `footprint.steady`, which is what the pod's earlier sidecars and apps hold; a regular init sees the
same and leaves nothing behind but its part of the peak. The charge is `footprint.effective`, the value
that the books would compute of the rows. The first container that does not fit decides; nothing is
tried again.

Everything is a value: the same node, ask and room give the same answer, whoever asks. Readers of the
fleet ask it about a snapshot, and operations ask it again on the locked rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hamiacct.accounting import policies
from hamiacct.accounting.amounts import NOTHING, UNUSED, Amount
from hamiacct.accounting.asks import UNLIMITED, Ask, ContainerAsk, Room
from hamiacct.accounting.devices import MigAllocation
from hamiacct.accounting.devices import Placement as MigPlace
from hamiacct.accounting.fitting import rules
from hamiacct.accounting.fitting.scene import Picks, Placed, Refused, Scene
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.holdings import Held, held_by_rows
from hamiacct.accounting.mig import MIG_MODE
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import Allocation, ContainerClass, DeviceKey, Groups, Row
from hamiacct.accounting.policies import Asked, Load, Standing
from hamiacct.accounting.reasons import UNCOUNTED, Reason, message
from hamiacct.accounting.requests import PERCENT_NOT_GIVEN, DeviceRequest
from hamiacct.accounting.vendors import Vendor


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes on a node, and what that costs.

    `allocations` holds, per vendor asked, one group of rows per container position. `score` is what the
    node is ordered by. `mig_allocations` are the places of the rows that lie on MIG cards. `devices` are
    those the rows lie on, as the node registered them: vendors name them by more than their uuid.
    """

    node: str
    allocations: Mapping[str, Allocation]
    footprint: Footprint[DeviceKey]
    score: float
    mig_allocations: tuple[MigAllocation, ...] = ()
    devices: tuple[FitDevice, ...] = field(default=(), compare=False)

    @property
    def charge(self) -> Held:
        """What the books would charge, by device."""
        return self.footprint.effective


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why not: HAMi's message, how often each reason was met, and the container that found no room."""

    node: str
    message: str
    reasons: Mapping[str, int]
    container: str = ""
    position: int = 0


Verdict = Placement | Misfit
Claim = Mapping[str, Groups]
"""Per vendor, the rows that each position must get."""


def place(node: FitNode, ask: Ask, room: Room = UNLIMITED) -> Verdict:
    """The pod on this node, or why it does not fit; `room` is what its quotas leave it."""
    return _place(node, ask, room, None)


def verify(node: FitNode, ask: Ask, room: Room, claim: Claim) -> Verdict:
    """Exactly the claimed placement, judged like ours (decision 29); a Misfit where ours would not be it.

    Each container is offered the claimed devices alone, so everything that refuses a device refuses the
    claim: vendor, selectors, health, cordon, room. The rows that come of it must be the claimed ones.
    """
    verdict = _place(node, ask, room, claim)
    if isinstance(verdict, Misfit):
        return verdict
    for container in ask.containers:
        for vendor in {*verdict.allocations, *claim}:
            ours = _group(verdict.allocations[vendor].groups, container) if vendor in ask.vendors else ()
            claimed = _group(claim.get(vendor, ()), container)
            if sorted(ours) != sorted(row._replace(type=vendor) for row in claimed):
                return _misfit(node, container, Reason.CLAIM)
    extra = any(any(groups[len(ask.containers) :]) for groups in claim.values())
    return _misfit(node, ask.containers[-1], Reason.CLAIM) if extra else verdict


def _group(groups: Groups, container: ContainerAsk) -> tuple[Row, ...]:
    return groups[container.position] if container.position < len(groups) else ()


def _place(node: FitNode, ask: Ask, room: Room, claim: Claim | None) -> Verdict:
    if not node.devices:
        return Misfit(node.name, Reason.NODE_UNREGISTERED, {Reason.NODE_UNREGISTERED: 1})
    walk = _Walk.begin(node, ask, room)
    for container in ask.containers:
        picked: dict[str, Picks] = {}
        for request in container.requests:
            found = walk.take(container, request, claim)
            if isinstance(found, Misfit):
                return found
            picked[request.vendor] = found
        walk = walk.then(container, picked)
    return walk.placement()


@dataclass(frozen=True, slots=True)
class _Walk:
    """The pod as placed so far: the fold over the containers done, and what each of them picked."""

    node: FitNode
    ask: Ask
    room: Room
    slots_per_row: Mapping[str, int]
    footprint: Footprint[DeviceKey] = field(default_factory=Footprint)
    picked: tuple[Mapping[str, Picks], ...] = ()
    mig_in_use: Mapping[str, tuple[MigPlace, ...]] = field(default_factory=dict)

    @classmethod
    def begin(cls, node: FitNode, ask: Ask, room: Room) -> _Walk:
        """Before the first container."""
        requests = [request for container in ask.containers for request in container.requests]
        slots = {
            key: rules.slots_per_row(
                vendor,
                [request for request in requests if request.vendor == key],
                candidates(node, key),
            )
            for key, vendor in ask.vendors.items()
        }
        return cls(node, ask, room, slots)

    def take(self, container: ContainerAsk, request: DeviceRequest, claim: Claim | None) -> Picks | Misfit:
        """The devices for one request of a container, or why there are none."""
        vendor = self.ask.vendors.get(request.vendor)
        if vendor is None:
            return _misfit(self.node, container, Reason.UNKNOWN_TYPE)
        request = rules.resolved(vendor, request, candidates(self.node, vendor.key))
        scene = self.scene(container, vendor, request, claim)
        if request.count > len(scene.devices) and not may_share_mig(scene):
            return _misfit(self.node, container, Reason.TOO_FEW_DEVICES)
        found = rules.take(scene)
        if isinstance(found, Refused):
            assert found.reasons
            text = message(found.reasons, len(scene.devices))
            return Misfit(self.node.name, text, dict(found.reasons), container.name, container.position)
        assert len(found) == request.count
        return found

    def scene(
        self, container: ContainerAsk, vendor: Vendor, request: DeviceRequest, claim: Claim | None
    ) -> Scene:
        """The vendor's devices as the container finds them, best first."""
        choice = self.ask.choice(vendor.key)
        policy = self.ask.device_policy
        keys = policy.keys(numa_bind=choice.numa_bind)
        devices = [self.found(device) for device in candidates(self.node, vendor.key)]
        if claim is not None:
            claimed = {row.uuid for row in _group(claim.get(vendor.key, ()), container)}
            devices = [device for device in devices if device.uuid in claimed]

        def rank(device: FitDevice) -> tuple[object, ...]:
            score = score_of(device, container, self.ask.weights)
            standing = Standing(score, device.numa, device.used.slots, device.index, device.order)
            return *policies.ranked(standing, keys), device.uuid

        return Scene(
            node=self.node,
            vendor=vendor,
            choice=choice,
            policy=policy,
            kind=container.kind,
            request=request,
            devices=tuple(sorted(devices, key=rank, reverse=True)),
            footprint=self.footprint,
            placed=tuple(pick.row for picked in self.picked for pick in picked.get(vendor.key, ())),
            room=self.room,
            slots_per_row=self.slots_per_row[vendor.key],
        )

    def found(self, device: FitDevice) -> FitDevice:
        """A device with what the pod's sidecars and apps so far have taken of it."""
        taken = self.footprint.steady[DeviceKey(self.node.name, device.uuid, device.vendor)]
        in_use = self.mig_in_use.get(device.uuid, ())
        if taken is NOTHING and not in_use:
            return device
        return replace(device, used=device.used.plus(taken), mig_in_use=(*device.mig_in_use, *in_use))

    def then(self, container: ContainerAsk, picked: Mapping[str, Picks]) -> _Walk:
        """After a container that was placed. What a regular init took is given back, but for the peak."""
        held: Held = UNUSED
        for key, picks in picked.items():
            allocation = Allocation(key, self.node.name, (), self.slots_per_row[key])
            held = held.plus(held_by_rows((pick.row for pick in picks), allocation, self.ask.vendors[key]))
        in_use = dict(self.mig_in_use)
        if container.kind is not ContainerClass.INIT:
            for pick in (pick for picks in picked.values() for pick in picks):
                if pick.instance is not None:
                    uuid = pick.device.uuid
                    in_use[uuid] = (*in_use.get(uuid, ()), pick.instance.place)
        return replace(
            self,
            footprint=self.footprint.then(container.kind, held),
            picked=(*self.picked, picked),
            mig_in_use=in_use,
        )

    def placement(self) -> Placement:
        """The whole pod, placed."""
        allocations = {
            key: Allocation(
                key,
                self.node.name,
                tuple(tuple(pick.row for pick in picked.get(key, ())) for picked in self.picked),
                self.slots_per_row[key],
            )
            for key in self.ask.vendors
        }
        return Placement(
            self.node.name,
            allocations,
            self.footprint,
            self.score(),
            tuple(self.mig_allocations()),
            self.devices(),
        )

    def devices(self) -> tuple[FitDevice, ...]:
        """The devices that were picked, each once."""
        uuids = {pick.device.uuid for picked in self.picked for picks in picked.values() for pick in picks}
        return tuple(device for device in self.node.devices if device.uuid in uuids)

    def mig_allocations(self) -> list[MigAllocation]:
        """Where the rows on MIG cards lie, by position and number in the group."""
        return [
            MigAllocation(position, number, pick.device.uuid, pick.instance.profile.name, pick.instance.place)
            for position, picked in enumerate(self.picked)
            for picks in picked.values()
            for number, pick in enumerate(picks)
            if pick.instance is not None
        ]

    def score(self) -> float:
        """The node before the pod, and what the vendors add for the choice made."""
        added = 0.0
        for key, vendor in self.ask.vendors.items():
            placed = Placed(
                node=self.node,
                vendor=vendor,
                choice=self.ask.choice(key),
                policy=self.ask.node_policy,
                before=candidates(self.node, key),
                containers=tuple(picked[key] for picked in self.picked if picked.get(key)),
            )
            added = policies.f32(added + rules.score(placed))
        return policies.f32(base_score(self.node.devices) + added)


def candidates(node: FitNode, vendor: str) -> tuple[FitDevice, ...]:
    """The node's devices of a vendor; by its key, not by part of a name (G-28)."""
    return tuple(device for device in node.devices if device.vendor == vendor)


def may_share_mig(scene: Scene) -> bool:
    """Whether one card may serve several of the container's devices: MIG cards, if the mode allows them."""
    if scene.vendor.fit.get("mig") is not True or not scene.choice.allows_mode(MIG_MODE):
        return False
    return any(device.mode == MIG_MODE for device in scene.devices)


_NOTHING_ASKED = Asked()


def score_of(device: FitDevice, container: ContainerAsk, weights: policies.Weights) -> float:
    """The score of a device (6.3); requests count where its model is their vendor's key (G-24)."""
    asked = [request for request in container.requests if request.vendor == device.model]
    if not asked:
        return policies.device_score(_load(device.used), _load(device.total), _NOTHING_ASKED, weights)
    memory_mib = sum(_scored_memory(request, device.total.memory_mib) for request in asked)
    cores = sum(request.cores for request in asked)
    return policies.device_score(
        _load(device.used), _load(device.total), Asked(len(asked), memory_mib, cores), weights
    )


def _scored_memory(request: DeviceRequest, device_memory_mib: int) -> int:
    """A percentage is preferred over an amount here, unlike where memory is given (G-24)."""
    if request.memory_percent not in (0, PERCENT_NOT_GIVEN):
        return device_memory_mib * request.memory_percent // 100
    return request.memory_mib


def base_score(devices: Iterable[FitDevice]) -> float:
    """The score of a node before the pod: all its devices, all vendors together (6.5)."""
    used = total = NOTHING
    for device in devices:
        used = _sum(used, device.used)
        total = _sum(total, device.total)
    return policies.node_score(_load(used), _load(total))


def _sum(one: Amount, other: Amount) -> Amount:
    """Sizes alone: named cores of two devices are not the same cores."""
    return Amount(one.slots + other.slots, one.memory_mib + other.memory_mib, one.cores + other.cores)


def _load(amount: Amount) -> Load:
    return Load(amount.slots, amount.memory_mib, amount.cores)


def _misfit(node: FitNode, container: ContainerAsk, reason: Reason) -> Misfit:
    """A refusal of the node as a whole, told without numbers."""
    assert reason in UNCOUNTED
    return Misfit(node.name, reason, {reason: 1}, container.name, container.position)


def order_placements(placements: Iterable[Placement], policy: policies.NodePolicy) -> list[Placement]:
    """Best first; equal scores by node name (decision 23)."""
    by_node = {placement.node: placement for placement in placements}
    scores = [(node, placement.score) for node, placement in by_node.items()]
    return [by_node[node] for node in policies.order_nodes(scores, policy)]

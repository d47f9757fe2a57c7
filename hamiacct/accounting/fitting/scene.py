"""What a rule sees of a node when it places one container's request of one vendor, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hamiacct.accounting import mig
from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.asks import Room
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.holdings import Held, held_by_rows
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import Allocation, ContainerClass, DeviceKey, Row
from hamiacct.accounting.policies import DevicePolicy, NodePolicy
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.selectors import Choice
from hamiacct.accounting.vendors import Vendor


class Pick(NamedTuple):
    """One device taken for the container: the row that says so, and the instance on a MIG card."""

    device: FitDevice
    row: Row
    instance: mig.Instance | None = None


Picks = tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that found no room: how many times each reason was met."""

    reasons: Mapping[str, int]


Outcome = Picks | Refused


@dataclass(frozen=True, slots=True)
class Scene:
    """One request, and the devices of its vendor as the container would find them.

    `devices` are in the order in which they are tried, best first; their usage holds what the node's
    pods have and what this pod's earlier sidecars and apps take. `footprint` is the pod's so far and
    `placed` the rows of this vendor in it, of every earlier container. `slots_per_row` is what a row
    of the vendor takes in this pod.
    """

    node: FitNode
    vendor: Vendor
    choice: Choice
    policy: DevicePolicy
    kind: ContainerClass
    request: DeviceRequest
    devices: tuple[FitDevice, ...]
    footprint: Footprint[DeviceKey]
    placed: tuple[Row, ...]
    room: Room
    slots_per_row: int = 1

    def pick(
        self, device: FitDevice, memory_mib: int, cores: int, instance: mig.Instance | None = None
    ) -> Pick:
        """The device with the row that takes so much of it."""
        return Pick(device, Row(device.uuid, self.vendor.key, memory_mib, cores), instance)

    def amount_of(self, pick: Pick) -> Amount:
        """What a pick takes of its device."""
        return self.vendor.amount_of(pick.row, self.slots_per_row)

    def taken_of(self, device: FitDevice, picks: Sequence[Pick]) -> Amount:
        """What these picks take of one device together."""
        taken = NOTHING
        for pick in picks:
            if pick.device.uuid == device.uuid:
                taken = taken.plus(self.amount_of(pick))
        return taken

    def held_by(self, picks: Sequence[Pick]) -> Held:
        """What these picks hold, by device."""
        allocation = Allocation(self.vendor.key, self.node.name, (), self.slots_per_row)
        return held_by_rows((pick.row for pick in picks), allocation, self.vendor)

    def admits(self, picks: Sequence[Pick]) -> bool:
        """Whether the quotas admit the pod as placed so far with these picks (semantics 6.6, decision 18).

        The rows stand at their true positions, so it is the pod's footprint that is judged: per device,
        then added over devices.
        """
        if not self.room.limits(self.vendor.key):
            return True
        effective = self.footprint.then(self.kind, self.held_by(picks)).effective
        totals = {device.uuid: device.total.cores for device in self.devices}
        memory_mib = cores = 0
        for key in effective:
            if key.vendor == self.vendor.key:
                memory_mib += effective[key].memory_mib
                cores += self.vendor.quota_cores_of(effective[key].cores, totals.get(key.uuid, 0))
        return self.room.admits(self.vendor.key, memory_mib, cores)

    def is_ours(self, device: FitDevice) -> bool:
        """Whether an earlier sidecar or app of the same pod is on the device."""
        return DeviceKey(self.node.name, device.uuid, self.vendor.key) in self.footprint.steady

    def option(self, name: str) -> object:
        """A parameter of the vendor's fit table; None where it has none."""
        return self.vendor.fit.get(name)


@dataclass(frozen=True, slots=True)
class Placed:
    """What a vendor's score sees: its devices before the pod, and what each container took of them."""

    node: FitNode
    vendor: Vendor
    choice: Choice
    policy: NodePolicy
    before: tuple[FitDevice, ...]
    containers: tuple[Picks, ...]

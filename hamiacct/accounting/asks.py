"""What a pod asks for, read, and what its quotas leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hamiacct.accounting.pods import Container, ContainerClass
from hamiacct.accounting.policies import (
    EVEN,
    GPU_POLICY,
    NODE_POLICY,
    SPREAD,
    WEIGHTS,
    DevicePolicy,
    NodePolicy,
    Weights,
    device_policy_of,
    node_policy_of,
    weights_of,
)
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.selectors import ANYTHING, Choice, choice_of
from hamiacct.accounting.vendors import Vendor


@dataclass(frozen=True, slots=True)
class ContainerAsk:
    """What one container asks for at its position: at most one request per vendor, in the vendors' order."""

    position: int
    name: str
    kind: ContainerClass
    requests: tuple[DeviceRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A pod's question: its containers in position order, and how it wants devices and nodes chosen.

    `vendors` are those in play, `choices` what the pod's annotations say of each.
    """

    containers: tuple[ContainerAsk, ...]
    vendors: Mapping[str, Vendor]
    choices: Mapping[str, Choice] = field(default_factory=dict)
    device_policy: DevicePolicy = SPREAD
    node_policy: NodePolicy = NodePolicy.BINPACK
    weights: Weights = EVEN

    def choice(self, vendor: str) -> Choice:
        """What the pod says of a vendor's devices."""
        return self.choices.get(vendor, ANYTHING)

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing we manage."""
        return not any(container.requests for container in self.containers)


@dataclass(frozen=True, slots=True)
class Defaults:
    """The policies of pods that name none."""

    node_policy: NodePolicy = NodePolicy.BINPACK
    device_policy: DevicePolicy = SPREAD


DEFAULTS = Defaults()


def ask_of(
    containers: Sequence[Container],
    requests: Sequence[Sequence[DeviceRequest]],
    annotations: Mapping[str, str],
    vendors: Iterable[Vendor],
    defaults: Defaults = DEFAULTS,
) -> Ask:
    """The question of a pod whose requests are read (`accounting.rules.requests_of`), container by container.

    `vendors` is the whole table; a container's requests stand in its order and are placed in it.
    Raises Malformed for a policy nobody knows and for unreadable weights (decisions 21, 23).
    """
    asked = {request.vendor for of_one in requests for request in of_one}
    in_play = {vendor.key: vendor for vendor in vendors if vendor.key in asked}
    return Ask(
        containers=tuple(
            ContainerAsk(container.position, container.name, container.kind, tuple(of_one))
            for container, of_one in zip(containers, requests, strict=True)
        ),
        vendors=in_play,
        choices={key: choice_of(annotations, vendor) for key, vendor in in_play.items()},
        device_policy=device_policy_of(annotations.get(GPU_POLICY), defaults.device_policy),
        node_policy=node_policy_of(annotations.get(NODE_POLICY), defaults.node_policy),
        weights=weights_of(annotations.get(WEIGHTS)),
    )


Bound = tuple[str, Dimension]


@dataclass(frozen=True, slots=True)
class Room:
    """What the quotas that select the pod leave it, per vendor and dimension; no entry is no limit.

    Amounts are in the units usage is counted in (decision 17), cores in those quotas are judged in.
    They are what every quota leaves, the pod's own earlier charge or hold left out; one that is
    exceeded already leaves less than nothing.
    """

    left: Mapping[Bound, int] = field(default_factory=dict)

    @classmethod
    def of(cls, bounds: Iterable[tuple[str, Dimension, int]]) -> Room:
        """The room that several quotas leave together: the least of each (decision 16)."""
        left: dict[Bound, int] = {}
        for vendor, dimension, remaining in bounds:
            bound = (vendor, dimension)
            left[bound] = min(remaining, left.get(bound, remaining))
        return cls(left)

    def limits(self, vendor: str) -> bool:
        """Whether anything of the vendor is limited."""
        return (vendor, Dimension.MEMORY) in self.left or (vendor, Dimension.CORES) in self.left

    def admits(self, vendor: str, memory_mib: int, cores: int) -> bool:
        """Whether so much in all stays within every quota; only what is above 0 is judged."""
        asked = ((Dimension.MEMORY, memory_mib), (Dimension.CORES, cores))
        return all(
            amount <= self.left.get((vendor, dimension), amount) for dimension, amount in asked if amount > 0
        )


UNLIMITED = Room()

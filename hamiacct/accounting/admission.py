"""What admission makes of a pod, and when it refuses one before any quota is asked (semantics 5).

The steps follow HAMi's webhook in order and in words. The quota step is `accounting.quota`'s; between
the two stands only `Verdict.admitted`, the pod as it will be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hamiacct.accounting.errors import Malformed, UnreadableRequest
from hamiacct.accounting.pods import Container, ContainerClass, Pod
from hamiacct.accounting.policies import (
    GPU_POLICY,
    NODE_POLICY,
    WEIGHTS,
    device_policy_of,
    node_policy_of,
    weights_of,
)
from hamiacct.accounting.requests import Asked, DeviceRequest
from hamiacct.accounting.rules import concerned, requests_of, rule_of
from hamiacct.accounting.selectors import unreadable_booleans
from hamiacct.accounting.vendors import Vendor

DEFAULT_SCHEDULER = "default-scheduler"
OTHER_SCHEDULER = "pod already has different scheduler assigned"
NO_CONTAINERS = "pod has no containers"
NODE_ASSIGNED = "pod has node assigned"


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Whose pods these are: the name of our scheduler, and whether it takes over the default one's."""

    scheduler_name: str = "hami-scheduler"
    force_overwrite_default: bool = True

    def is_foreign(self, scheduler_name: str) -> bool:
        """Whether a pod with this scheduler belongs to somebody else."""
        if not scheduler_name or scheduler_name == self.scheduler_name:
            return False
        return scheduler_name != DEFAULT_SCHEDULER or not self.force_overwrite_default


@dataclass(frozen=True, slots=True)
class Change:
    """What is written into one container; values that it has already are among them."""

    position: int
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """A pod as admission leaves it, what was written for that, and what each container then asks.

    `annotations`, `runtime_class` and `scheduler_name` are those written; empty where nothing is.
    """

    pod: Pod
    requests: tuple[tuple[DeviceRequest, ...], ...]
    changes: tuple[Change, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""
    scheduler_name: str = ""
    has_device: bool = False

    @property
    def asks_for_something(self) -> bool:
        """Whether any container asks for a device that is managed here."""
        return self.has_device or any(self.requests)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Allowed or not, and why. `admitted` is None where a pod is let through unlooked at, or denied."""

    allowed: bool
    message: str = ""
    admitted: Admitted | None = None


def admitted(pod: Pod, vendors: Sequence[Vendor]) -> Admitted:
    """The pod as admission would leave it: counts, exclusive cores, rounded memory (decision 19).

    Every question reads pods so. Each step sees what the ones before it wrote. UnreadableRequest where a
    container asks for what nobody can grant (decision 21).
    """
    try:
        return _admitted(pod, vendors)
    except UnreadableRequest as refusal:
        refusal.pointer = _pointer(pod, refusal.position)
        raise


def _admitted(pod: Pod, vendors: Sequence[Vendor]) -> Admitted:
    annotations = dict(pod.annotations)
    containers: list[Container] = []
    asked: list[tuple[DeviceRequest, ...]] = []
    changes: list[Change] = []
    runtime_class = ""
    has_device = False
    for container in pod.containers:
        env: list[tuple[str, str]] = []
        limits: dict[str, str] = {}
        requests: dict[str, str] = {}
        near = concerned(container, vendors)
        for vendor in near:
            effect = rule_of(vendor).admit(Asked(container, vendor), annotations)
            limits |= effect.limits
            requests |= effect.requests
            env += effect.env
            annotations |= effect.annotations
            runtime_class = runtime_class or effect.runtime_class
            has_device = has_device or effect.has_device
        if limits or requests or env:
            changes.append(Change(container.position, limits, requests, tuple(env)))
        containers.append(_with(container, limits, requests))
        # What is written stands under the names of these vendors, too.
        asked.append(requests_of(containers[-1], near))
    return Admitted(
        replace(pod, containers=tuple(containers), annotations=annotations),
        tuple(asked),
        tuple(changes),
        {key: value for key, value in annotations.items() if pod.annotations.get(key) != value},
        runtime_class,
        "",
        has_device,
    )


def _with(container: Container, limits: Mapping[str, str], requests: Mapping[str, str]) -> Container:
    if not limits and not requests:
        return container
    return replace(
        container, limits={**container.limits, **limits}, requests={**container.requests, **requests}
    )


def _pointer(pod: Pod, position: int) -> str:
    """Where the container of a position stands in the manifest."""
    inits = sum(container.kind is not ContainerClass.APP for container in pod.containers)
    if position < inits:
        return f"/spec/initContainers/{position}/resources"
    return f"/spec/containers/{position - inits}/resources"


def judge(pod: Pod, vendors: Sequence[Vendor], scheduling: Scheduling) -> Verdict:
    """The steps before the quota. Malformed where what a container asks, or how the pod wants its devices
    chosen, cannot be read."""
    if all(container.kind is not ContainerClass.APP for container in pod.containers):
        return Verdict(False, NO_CONTAINERS)
    if scheduling.is_foreign(pod.scheduler_name):
        return Verdict(True, OTHER_SCHEDULER)
    found = admitted(pod, vendors)
    if not found.has_device:
        return Verdict(True, admitted=found)
    check_wishes(pod.annotations, vendors)
    for container in pod.containers:
        if container.privileged:
            return Verdict(False, f"container {container.name} is privileged")
    if scheduling.scheduler_name:
        if pod.node_name:
            return Verdict(False, NODE_ASSIGNED)
        named = replace(found.pod, scheduler_name=scheduling.scheduler_name)
        found = replace(found, pod=named, scheduler_name=scheduling.scheduler_name)
    return Verdict(True, admitted=found)


def check_wishes(annotations: Mapping[str, str], vendors: Sequence[Vendor]) -> None:
    """Malformed where the annotations want devices chosen in a way nobody knows (semantics 2.5)."""
    node_policy_of(annotations.get(NODE_POLICY))
    device_policy_of(annotations.get(GPU_POLICY))
    weights_of(annotations.get(WEIGHTS))
    for key in unreadable_booleans(annotations, vendors):
        raise Malformed(f"invalid {key} annotation: must be true or false")

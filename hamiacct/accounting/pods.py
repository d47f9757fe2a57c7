"""Pods as the books see them: containers by position, allocation rows, and what decides a charge.

Positions: group `i` of an allocation belongs to `spec.initContainers[i]` while `i` is below their
number, then to `spec.containers` (semantics 1.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ContainerClass(StrEnum):
    """The three classes of semantics 1.2."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Phase(StrEnum):
    """`status.phase`. An absent phase is Pending, as Kubernetes defaults it."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_terminal(self) -> bool:
        """Succeeded and Failed are final, whatever the reason."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


class Run(StrEnum):
    """What the status *of the same name* says of an init container; ABSENT where there is none."""

    ABSENT = "absent"
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Container:
    """One container at its position; `requests` and `limits` hold managed resources as written."""

    position: int
    name: str
    kind: ContainerClass
    run: Run = Run.ABSENT
    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False


class Row(NamedTuple):
    """One entry of an allocation text, as written: `uuid,type,memory,cores:`."""

    uuid: str
    type: str
    memory: int
    cores: int


Groups = tuple[tuple[Row, ...], ...]


class DeviceKey(NamedTuple):
    """A device is (node, uuid) (decision 9); `vendor` is the vendor key of the annotation that names it."""

    node: str
    uuid: str
    vendor: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """One vendor's allocation of a pod: where, and the rows by position.

    `groups` holds one tuple of rows per piece of the text, without the empty piece after the last
    `;`. `slots_per_row` differs from 1 for Enflame alone (decision 2). `text` is the annotation as it was.
    """

    vendor: str
    node: str
    groups: Groups
    slots_per_row: int = 1
    text: str = ""


class FaultCode(StrEnum):
    """Why an allocation annotation was not taken (decision 11)."""

    UNDECODABLE = "undecodable-annotation"
    VANISHED = "vanished-annotation"
    OUTSIDE_POD = "row-outside-pod"


@dataclass(frozen=True, slots=True)
class AnnotationFault:
    """An annotation that cannot be taken: which vendor's, which key, where and why."""

    vendor: str
    key: str
    offset: int
    reason: str
    code: FaultCode = FaultCode.UNDECODABLE


@dataclass(frozen=True, slots=True)
class QuotaFacts:
    """The fields of a pod that ResourceQuota scopes look at (decision 16)."""

    priority_class: str | None = None
    active_deadline_seconds: int | None = None
    best_effort: bool = True
    cross_namespace_affinity: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as one event or list item shows it.

    `allocations` holds, per vendor key, what could be decoded; `faults` the annotations that could
    not. `vgpu_node` is the annotation `hami.io/vgpu-node` ("" when absent), `node_name` is
    `spec.nodeName` ("" while unbound). `containers` are in position order.
    """

    uid: str
    namespace: str
    name: str
    resource_version: int
    containers: tuple[Container, ...] = ()
    node_name: str = ""
    vgpu_node: str = ""
    vgpu_time: int | None = None
    phase: Phase = Phase.PENDING
    deletion_timestamp: str = ""
    deletion_grace_seconds: int | None = None
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    faults: tuple[AnnotationFault, ...] = ()
    quota_facts: QuotaFacts = QuotaFacts()
    bind_phase: str = ""
    bind_time: int | None = None
    scheduler_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_bound(self) -> bool:
        """Whether the apiserver has a node for it."""
        return bool(self.node_name)

    @property
    def is_terminating(self) -> bool:
        """Whether it is being deleted; that alone frees nothing."""
        return bool(self.deletion_timestamp)

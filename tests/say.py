"""Pods in one line each, for the core and for the wire.

say_pod("init 20480", "sidecar 2048 10", "app 10240")    one card, GPU-a; memory, then cores
say_pod("init 20480, succeeded", "app")                  what its status says; an app without a card
say_pod("app 100 on GPU-a + 200 5 on GPU-b")             two rows
"""

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from hamiacct.accounting.pods import Allocation, Container, ContainerClass, Pod, Row, Run

NVIDIA = "NVIDIA"
ALLOCATED = "hami.io/vgpu-devices-allocated"

versions = count(1000)

STATES: Mapping[Run, dict[str, Any]] = {
    Run.WAITING: {"waiting": {"reason": "PodInitializing"}},
    Run.RUNNING: {"running": {}},
    Run.SUCCEEDED: {"terminated": {"exitCode": 0}},
    Run.FAILED: {"terminated": {"exitCode": 137}},
}


class Said(NamedTuple):
    """One container as said."""

    kind: ContainerClass
    rows: tuple[Row, ...]
    run: Run


def said(phrase: str) -> Said:
    """Reads `class [row [+ row]...][, status]`; a row is `memory [cores] [on uuid]`."""
    head, _, run = phrase.partition(",")
    kind, _, rows = head.strip().partition(" ")
    return Said(
        ContainerClass(kind),
        tuple(_row(text) for text in rows.split("+") if text.strip()),
        Run(run.strip() or Run.ABSENT),
    )


def _row(text: str) -> Row:
    amounts, _, uuid = text.partition(" on ")
    memory, cores = (*map(int, amounts.split()), 0)[:2]
    return Row(uuid.strip() or "GPU-a", NVIDIA, memory, cores)


def say_pod(*phrases: str, vendor: str = NVIDIA, node: str = "n1", **facts: Any) -> Pod:
    """A bound pod as `kube.manifests` would read it; `facts` are fields of `pods.Pod`."""
    containers = [said(phrase) for phrase in phrases]
    allocation = Allocation(vendor, node, tuple(container.rows for container in containers))
    shown: dict[str, Any] = {
        "uid": "u-1",
        "namespace": "team-a",
        "name": "web-0",
        "resource_version": 1,
        "node_name": node,
        "vgpu_node": node,
        "allocations": {vendor: allocation},
    }
    return Pod(**{"containers": containers_of(*phrases), **shown, **facts})


def containers_of(*phrases: str) -> tuple[Container, ...]:
    """The containers alone. Init containers are declared before apps, as Kubernetes has it."""
    found = [said(phrase) for phrase in phrases]
    assert sorted(found, key=lambda one: one.kind is ContainerClass.APP) == found
    return tuple(
        Container(position, f"{one.kind}-{position}", one.kind, one.run, limits=_asked(one))
        for position, one in enumerate(found)
    )


def _asked(one: Said) -> dict[str, str]:
    """A container asks for as many cards as it has rows."""
    return {"nvidia.com/gpu": str(len(one.rows))} if one.rows else {}


def say_manifest(
    *phrases: str,
    name: str = "web-0",
    uid: str = "u-1",
    namespace: str = "team-a",
    node: str = "n1",
    phase: str = "Running",
    version: int | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """The same pod as Kubernetes shows it; versions go up by themselves."""
    containers = [said(phrase) for phrase in phrases]
    text = "".join(
        "".join(f"{row.uuid},{row.type},{row.memory},{row.cores}:" for row in one.rows) + ";"
        for one in containers
    )
    shown: list[dict[str, Any]] = []
    statuses = []
    for container, one in zip(containers_of(*phrases), containers, strict=True):
        policy = {"restartPolicy": "Always"} if one.kind is ContainerClass.SIDECAR else {}
        shown.append({"name": container.name, **policy, "resources": {"limits": dict(container.limits)}})
        if one.run is not Run.ABSENT:
            statuses.append({"name": container.name, "state": STATES[one.run]})
    inits = sum(one.kind is not ContainerClass.APP for one in containers)
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(next(versions) if version is None else version),
            "annotations": {"hami.io/vgpu-node": node, ALLOCATED: text},
            **metadata,
        },
        "spec": {"nodeName": node, "initContainers": shown[:inits], "containers": shown[inits:]},
        "status": {"phase": phase, "initContainerStatuses": statuses},
    }

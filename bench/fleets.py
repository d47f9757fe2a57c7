"""Made-up fleets: nodes of eight cards, and pods in the stages that a busy cluster shows at once.

The same numbers give the same fleet. Pods are placed where they fit, so that the books of it are believable.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

CARDS = 8
MEMORY_MIB = 81920
SLOTS = 10
CORES = 100
NAMESPACES = 50
GPU, MEM, CORE = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"

Object = dict[str, Any]


def node_name(place: int) -> str:
    return f"node-{place:05d}"


def uuid_of(place: int, card: int) -> str:
    return f"GPU-{place:05d}-{card}"


def node(place: int, version: int) -> Object:
    """One node as its device plugin registers it."""
    cards = [
        {
            "id": uuid_of(place, card),
            "index": card,
            "count": SLOTS,
            "devmem": MEMORY_MIB,
            "devcore": CORES,
            "type": "NVIDIA-A100",
            "numa": card // 4,
            "mode": "hami-core",
            "health": True,
        }
        for card in range(CARDS)
    ]
    annotations = {"hami.io/node-nvidia-register": json.dumps(cards), "hami.io/node-handshake": "Reported"}
    metadata = {"name": node_name(place), "resourceVersion": str(version), "annotations": annotations}
    return {"kind": "Node", "apiVersion": "v1", "metadata": metadata, "spec": {}, "status": {}}


def quota(number: int, version: int) -> Object:
    """A wide ResourceQuota of one namespace."""
    metadata = {"name": "gpu", "namespace": f"team-{number}", "resourceVersion": str(version)}
    spec = {"hard": {f"limits.{MEM}": "100000000", f"limits.{CORE}": "1000000"}}
    return {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": metadata, "spec": spec}


def limits(memory_mib: int, cores: int, cards: int = 1) -> Object:
    return {"limits": {GPU: str(cards), MEM: str(memory_mib), CORE: str(cores)}}


@dataclass(frozen=True, slots=True)
class Shape:
    """The containers of a pod: what each is, and what it asks of one card."""

    inits: tuple[tuple[bool, int, int], ...]  # is it a sidecar, MiB, cores
    apps: tuple[tuple[int, int], ...]

    @property
    def peak_mib(self) -> int:
        """What is charged before the inits are done."""
        steady, peak = 0, 0
        for is_sidecar, memory, _ in self.inits:
            if is_sidecar:
                steady += memory
            else:
                peak = max(peak, steady + memory)
        return max(peak, steady + sum(memory for memory, _ in self.apps))


PLAIN = Shape((), ((8192, 10),))
STAGED = Shape(((True, 1024, 0), (False, 12288, 0)), ((4096, 10), (2048, 5)))
SHAPES = (PLAIN, PLAIN, Shape((), ((4096, 5),)), Shape(((False, 10240, 0),), ((6144, 10),)), STAGED)


def pod(
    number: int, shape: Shape, version: int, *, at: tuple[str, str] | None, done: bool, phase: str = "Running"
) -> Object:
    """One pod: asking, or on (node, uuid), its inits done or not."""
    inits = [
        {"name": f"i{place}", "resources": limits(memory, cores)}
        | ({"restartPolicy": "Always"} if is_sidecar else {})
        for place, (is_sidecar, memory, cores) in enumerate(shape.inits)
    ]
    apps = [
        {"name": f"c{place}", "resources": limits(memory, cores)}
        for place, (memory, cores) in enumerate(shape.apps)
    ]
    metadata: Object = {
        "name": f"pod-{number}",
        "namespace": f"team-{number % NAMESPACES}",
        "uid": f"uid-{number:012d}",
        "resourceVersion": str(version),
        "annotations": {},
    }
    spec: Object = {"initContainers": inits, "containers": apps}
    status: Object = {"phase": phase}
    if at:
        where, uuid = at
        rows = [(memory, cores) for _, memory, cores in shape.inits] + list(shape.apps)
        text = "".join(f"{uuid},NVIDIA,{memory},{cores}:;" for memory, cores in rows)
        metadata["annotations"] = {"hami.io/vgpu-node": where, "hami.io/vgpu-devices-allocated": text}
        spec["nodeName"] = where
        state = {"terminated": {"exitCode": 0}} if done else {"running": {}}
        status["initContainerStatuses"] = [
            {"name": one["name"], "state": {"running": {}} if "restartPolicy" in one else state}
            for one in inits
        ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on one card."""

    number: int
    shape: Shape
    node: int
    card: int

    def manifest(self, version: int, *, done: bool) -> Object:
        at = node_name(self.node), uuid_of(self.node, self.card)
        return pod(self.number, self.shape, version, at=at, done=done)


@dataclass(slots=True)
class Fleet:
    """So many nodes, and pods placed on them. Versions go up as in one cluster."""

    nodes: int
    seed: int = 1
    versions: Iterator[int] = field(default_factory=lambda: count(1000))
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _free: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def node_list(self) -> Object:
        return listing("NodeList", [node(place, next(self.versions)) for place in range(self.nodes)], self)

    def quota_list(self) -> Object:
        return listing("ResourceQuotaList", [quota(n, next(self.versions)) for n in range(NAMESPACES)], self)

    def pod_list(self, number: int) -> Object:
        return listing("PodList", list(self.pods(number)), self)

    def pods(self, number: int) -> Iterator[Object]:
        """New pods, each where it fits; one in twenty still asks."""
        for _ in range(number):
            if self._chance.random() < 0.05:
                shape = self._chance.choice(SHAPES)
                yield pod(
                    next(self._numbers), shape, next(self.versions), at=None, done=False, phase="Pending"
                )
            else:
                yield self.place().manifest(next(self.versions), done=self._chance.random() < 0.8)

    def place(self) -> Placed:
        """A new pod, and a card that takes it; the last of twenty that were tried where none does."""
        shape = self._chance.choice(SHAPES)
        needed = len(shape.inits) + len(shape.apps)
        for _ in range(20):
            card = self._chance.randrange(self.nodes), self._chance.randrange(CARDS)
            memory, slots = self._free.get(card, (MEMORY_MIB, SLOTS))
            if memory >= shape.peak_mib and slots >= needed:
                break
        self._free[card] = memory - shape.peak_mib, slots - needed
        return Placed(next(self._numbers), shape, *card)

    def take_back(self, placed: Placed) -> None:
        """The pod has ended, and its card has room for another."""
        card = placed.node, placed.card
        memory, slots = self._free[card]
        shape = placed.shape
        self._free[card] = memory + shape.peak_mib, slots + len(shape.inits) + len(shape.apps)


def listing(kind: str, items: list[Object], fleet: Fleet) -> Object:
    """A full list with a version of its own."""
    version = str(next(fleet.versions))
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}


def asking(number: int, shape: Shape = PLAIN, namespace: str = "") -> Object:
    """A pod that looks for a place."""
    found = pod(number, shape, 1, at=None, done=False, phase="Pending")
    if namespace:
        found["metadata"]["namespace"] = namespace
    return found

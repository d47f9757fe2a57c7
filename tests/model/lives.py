"""Random lives: a small cluster that goes on by itself, one version after the other.

Each step yields a watch event as the apiserver would send it: the view the model is told, and the
object the service is sent. Everything comes from one seed.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.books import (
    APP,
    INIT,
    SIDECAR,
    SUCCEEDED,
    VENDORS,
    Allocation,
    Ask,
    Event,
    Groups,
    NodeView,
    PodView,
    QuotaView,
    View,
    gate_is_open,
)

NAMESPACES = ("team-a", "team-b", "team-c")
CLASSES = ("", "", "batch", "prod")
BIGGEST = 2**31 - 1
REGISTERS = {"NVIDIA": "hami.io/node-nvidia-register", "AMD": "hami.io/node-amd-register"}
LIMITED = ("NVIDIA", "MLU", "AMD", "Enflame")


@dataclass(frozen=True)
class Profile:
    """What kind of lives to make up."""

    nodes: int = 3
    cards: int = 2
    pods: int = 12
    vendors: tuple[str, ...] = tuple(VENDORS)
    # Whatever makes the end depend on the way there; races, whose way nobody knows, do without.
    path_dependent: bool = True


ANY = Profile()


@dataclass
class Life:
    """One pod on its way: its view as of now, and how the rest of its life is to go."""

    view: PodView
    good: dict[str, Allocation] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)


class Cluster:
    """The truth: pods, nodes and quotas as they are, and one counter of versions."""

    def __init__(self, seed: int, profile: Profile = ANY) -> None:
        self.random = random.Random(seed)
        self.profile = profile
        self.version = self.random.choice((0, 10, 999, 2**31, 2**53))
        self.born = 0
        self.lives: dict[str, Life] = {}
        self.free_names: list[tuple[str, str]] = []
        self.nodes: dict[str, NodeView] = {}
        self.quotas: dict[tuple[str, str], QuotaView] = {}

    # --- time goes on ---

    def step(self) -> Event:
        """The next thing that happens."""
        roll = self.random.random()
        if roll < 0.07 or not self.nodes:
            return self._node_event()
        if roll < 0.12:
            return self._quota_event()
        if len(self.lives) < self.profile.pods and (not self.lives or roll < 0.35):
            return self._birth()
        life = self.lives[self.random.choice(sorted(self.lives))]
        return self._next(life)

    def bury(self) -> list[Event]:
        """Whoever is dying dies."""
        dying = [life for _, life in sorted(self.lives.items()) if life.view.terminating]
        return [self._death(life) for life in dying]

    def _tick(self) -> int:
        self.version += self.random.choice((1, 1, 1, 2, 7))
        return self.version

    def checkpoint(self) -> Any:
        """The state of the cluster, to come back to."""
        return copy.deepcopy((self.version, self.lives, self.free_names, self.nodes, self.quotas))

    def restore(self, checkpoint: Any) -> None:
        """A backup is put back: versions, pods, nodes and quotas are as they were."""
        kept = copy.deepcopy(checkpoint)
        self.version, self.lives, self.free_names, self.nodes, self.quotas = kept

    def views(self, kind: str, namespace: str = "") -> list[View]:
        """What a list of the kind holds now."""
        if kind == "Pod":
            found: list[View] = [life.view for _, life in sorted(self.lives.items())]
            return [view for view in found if namespace in ("", view.namespace)]
        if kind == "Node":
            return list(self.nodes.values())
        return [view for _, view in sorted(self.quotas.items()) if namespace in ("", view.namespace)]

    # --- pods ---

    def _birth(self) -> Event:
        self.born += 1
        rng = self.random
        if self.free_names and rng.random() < 0.5:
            namespace, name = self.free_names.pop(rng.randrange(len(self.free_names)))
        else:
            namespace, name = rng.choice(NAMESPACES), f"pod-{self.born}"
        inits = [rng.choice((INIT, INIT, SIDECAR)) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))]
        kinds = (*inits, *[APP] * rng.choice((1, 1, 2, 3)))
        view = PodView(
            f"uid-{self.born}-{name}",
            namespace,
            name,
            self._tick(),
            kinds,
            (None,) * len(inits),
            priority_class=rng.choice(CLASSES),
            deadline=rng.choice((None, None, None, 0, 600)),
        )
        life = Life(view)
        if rng.random() < 0.4:
            self._claim(life)
        self.lives[view.uid] = life
        return Event("ADDED", life.view)

    def _claim(self, life: Life) -> None:
        """The scheduler writes where the pod goes and what it gets there."""
        rng = self.random
        node = f"n{rng.randrange(self.profile.nodes)}"
        vendors = sorted(life.good) or rng.sample(self.profile.vendors, k=rng.choice((1, 1, 1, 2)))
        if self.profile.path_dependent:
            vendors = rng.sample(self.profile.vendors, k=rng.choice((1, 1, 1, 2)))
        life.good = {vendor: self._allocation(life.view, vendor) for vendor in vendors}
        life.faulty = set()
        life.view = replace(life.view, claimed=node, allocations=dict(life.good))

    def _allocation(self, view: PodView, vendor: str) -> Allocation:
        rng = self.random
        positions = len(view.kinds)
        if self.profile.path_dependent and rng.random() < 0.08:
            positions = view.kinds.count(APP)  # as old releases wrote it
        elif self.profile.path_dependent and rng.random() < 0.05:
            positions = rng.randrange(positions + 1)
        groups = tuple(self._group(vendor) for _ in range(positions))
        slots = rng.randrange(1, 5) if VENDORS[vendor].slots_annotation and rng.random() < 0.7 else 1
        return Allocation(groups, slots)

    def _group(self, vendor: str) -> tuple[tuple[str, int, int], ...]:
        rng = self.random
        entries = rng.choice((0, 1, 1, 1, 1, 2, 3))
        return tuple(
            (f"{vendor}-{rng.randrange(self.profile.cards)}", self._memory(vendor), self._cores(vendor))
            for _ in range(entries)
        )

    def _memory(self, vendor: str) -> int:
        rng = self.random
        if vendor == "AWSNeuron":
            return 0
        return BIGGEST if rng.random() < 0.01 else rng.choice((0, 1, 256, 1000, 2048, 4000, 10240, 20480))

    def _cores(self, vendor: str) -> int:
        rng = self.random
        if vendor == "AWSNeuron":
            return rng.randrange(1, 16)
        return BIGGEST if rng.random() < 0.01 else rng.choice((0, 0, 1, 10, 25, 33, 100))

    def _next(self, life: Life) -> Event:
        """Something happens to a pod."""
        rng, view = self.random, life.view
        roll = rng.random()
        if view.phase in ("Succeeded", "Failed"):
            return self._death(life) if roll < 0.6 else self._seen(life)
        if view.terminating:
            if roll < 0.35:
                return self._death(life)
            if roll < 0.6:
                return self._seen(life, phase=rng.choice(("Succeeded", "Failed")))
            return self._containers_go_on(life)
        if not view.claimed and not view.bound:
            if roll < 0.85:
                self._claim(life)
                return self._seen(life)
            return self._death(life)
        if not view.bound:
            if roll < 0.6:
                return self._seen(life, bound=view.claimed)
            if roll < 0.75:
                self._claim(life)
                return self._seen(life)
            if roll < 0.85 and self.profile.path_dependent:
                life.good, life.faulty = {}, set()
                return self._seen(life, claimed="", allocations={})
            return self._death(life)
        return self._in_service(life, roll)

    def _in_service(self, life: Life, roll: float) -> Event:
        """A bound pod: mostly its containers go on."""
        rng, view = self.random, life.view
        if roll < 0.6:
            return self._containers_go_on(life)
        if roll < 0.64:
            return self._seen(life, terminating=True)
        if roll < 0.68:
            return self._seen(life, phase=rng.choice(("Succeeded", "Succeeded", "Failed")))
        if roll < 0.70:
            return self._death(life)
        if roll < 0.74:
            return self._seen(life, deadline=rng.choice((None, 0, 30)))
        if not self.profile.path_dependent:
            return self._seen(life)
        if roll < 0.86:
            return self._annotations_change(life)
        if roll < 0.89:
            return self._odd(life)
        if roll < 0.93 and gate_is_open(view):
            exits = tuple(
                rng.choice(("waiting", "running")) if kind == INIT else exit_
                for kind, exit_ in zip(view.kinds, view.exits, strict=False)
            )
            return self._seen(life, exits=exits)
        return self._seen(life)

    def _containers_go_on(self, life: Life) -> Event:
        """The kubelet starts the init containers one after the other; sidecars crash and come back."""
        rng, view = self.random, life.view
        exits = list(view.exits)
        for place, kind in enumerate(view.kinds[: len(exits)]):
            if kind == SIDECAR:
                exits[place] = rng.choice(("running", "running", "waiting", SUCCEEDED, 1, 137))
                continue
            if exits[place] == SUCCEEDED:
                continue
            exits[place] = rng.choice(("waiting", "running", SUCCEEDED, SUCCEEDED, 1, 137, None))
            if exits[place] != SUCCEEDED:
                break
        done = gate_is_open(replace(view, exits=tuple(exits))) or not exits
        return self._seen(life, exits=tuple(exits), phase="Running" if done else view.phase)

    def _annotations_change(self, life: Life) -> Event:
        """Somebody writes to the annotations of a running pod: breaks them, mends them, changes them."""
        rng, view = self.random, life.view
        if not view.claimed or life.faulty:
            life.faulty = set()
            return self._seen(life, claimed=view.bound, allocations=dict(life.good))
        vendor = rng.choice(sorted(life.good)) if life.good else ""
        roll = rng.random()
        if not vendor or roll < 0.25:
            return self._seen(life, claimed="")
        if roll < 0.5:
            life.good[vendor] = self._allocation(view, vendor)
            return self._seen(life, allocations=dict(life.good))
        life.faulty = {vendor}
        told = dict(life.good)
        if roll < 0.7:
            del told[vendor]
        else:
            told[vendor] = Allocation(None, outside_pod=rng.random() < 0.3)
        return self._seen(life, allocations=told)

    def _odd(self, life: Life) -> Event:
        """An event that nobody can read past its envelope; the pod itself stays as it was."""
        event = Event("MODIFIED", replace(life.view, version=self._tick(), readable=False))
        life.view = replace(life.view, version=self.version)
        return event

    def _seen(self, life: Life, **changes: Any) -> Event:
        life.view = replace(life.view, version=self._tick(), **changes)
        return Event("MODIFIED", life.view)

    def _death(self, life: Life) -> Event:
        del self.lives[life.view.uid]
        self.free_names.append((life.view.namespace, life.view.name))
        version = life.view.version if self.random.random() < 0.1 else self._tick()
        return Event("DELETED", replace(life.view, version=version))

    # --- nodes and quotas ---

    def _node_event(self) -> Event:
        rng = self.random
        name = f"n{rng.randrange(self.profile.nodes)}"
        known = self.nodes.get(name)
        if known is not None and rng.random() < 0.15:
            del self.nodes[name]
            return Event("DELETED", replace(known, version=self._tick()))
        registers: dict[str, Mapping[str, tuple[int, int, int]] | None] = {}
        for vendor in REGISTERS:
            roll = rng.random()
            if roll < 0.1 and self.profile.path_dependent:
                registers[vendor] = None
            elif roll < 0.9:
                cards = rng.sample(range(self.profile.cards), k=rng.randrange(1, self.profile.cards + 1))
                cores = rng.choice((64, 80, 100, 304)) if vendor == "AMD" else 100
                registers[vendor] = {f"{vendor}-{number}": (10, 24576, cores) for number in cards}
        self.nodes[name] = NodeView(name, self._tick(), registers)
        return Event("MODIFIED" if known else "ADDED", self.nodes[name])

    def _quota_event(self) -> Event:
        rng = self.random
        place = (rng.choice(NAMESPACES), f"quota-{rng.randrange(2)}")
        known = self.quotas.get(place)
        if known is not None and rng.random() < 0.2:
            del self.quotas[place]
            return Event("DELETED", replace(known, version=self._tick()))
        hard = {}
        for key in rng.sample(LIMITED, k=2):
            vendor = VENDORS[key]
            hard[f"limits.{vendor.memory_name}"] = rng.choice((0, 20000, 1_000_000))
            hard[f"limits.{vendor.cores_name}"] = rng.choice((0, 100, 400))
        classes = rng.choice((None, None, ("In", frozenset(("batch",))), ("NotIn", frozenset(("batch",)))))
        self.quotas[place] = QuotaView(
            *place, self._tick(), hard, classes, rng.choice((None, None, True, False))
        )
        return Event("MODIFIED" if known else "ADDED", self.quotas[place])


# --- as Kubernetes writes it -----------------------------------------------------------------------


def watch_event(event: Event) -> dict[str, Any]:
    """The event as it is sent."""
    return {"type": event.type, "object": manifest(event.view)}


def manifest(view: View) -> dict[str, Any]:
    """The object as Kubernetes writes it."""
    if isinstance(view, PodView):
        return _pod(view)
    return _node(view) if isinstance(view, NodeView) else _quota(view)


def _pod(view: PodView) -> dict[str, Any]:
    containers = [{"name": f"c{number}", "resources": {}} for number in range(len(view.kinds))]
    for container, kind in zip(containers, view.kinds, strict=True):
        if kind == SIDECAR:
            container["restartPolicy"] = "Always"
    for container, ask in zip(containers, view.asks, strict=False):
        if ask is not None:
            container["resources"] = {"limits": dict(_limits(ask))}
    inits = len(view.exits)
    metadata: dict[str, Any] = {
        "uid": view.uid,
        "namespace": view.namespace,
        "name": view.name,
        "resourceVersion": str(view.version),
        "annotations": {**dict(view.marks), **dict(_pod_annotations(view))},
    }
    if view.terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, Any] = {"initContainers": containers[:inits], "containers": containers[inits:]}
    if view.bound:
        spec["nodeName"] = view.bound
    if view.priority_class:
        spec["priorityClassName"] = view.priority_class
    if view.deadline is not None:
        spec["activeDeadlineSeconds"] = view.deadline
    statuses = [
        {"name": f"c{place}", "state": _state(exit_)}
        for place, exit_ in enumerate(view.exits)
        if exit_ is not None
    ]
    statuses.reverse()  # their order says nothing
    phase = view.phase if view.readable else "Undecided"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase, "initContainerStatuses": statuses},
    }


def _limits(ask: Ask) -> Iterator[tuple[str, str]]:
    yield "nvidia.com/gpu", str(ask.count)
    if ask.memory is not None:
        yield "nvidia.com/gpumem", str(ask.memory)
    if ask.cores is not None:
        yield "nvidia.com/gpucores", str(ask.cores)


def _pod_annotations(view: PodView) -> Iterator[tuple[str, str]]:
    if view.claimed:
        yield "hami.io/vgpu-node", view.claimed
    for key, allocation in view.allocations.items():
        vendor = VENDORS[key]
        if allocation.groups is not None:
            yield vendor.annotation, groups_text(key, allocation.groups)
        elif allocation.outside_pod:
            yield vendor.annotation, ";" * len(view.kinds) + f"{key}-0,{key},1,1:;"
        else:
            yield vendor.annotation, f"{key}-0,{key},12"
        if allocation.slots != 1:
            yield vendor.slots_annotation, str(allocation.slots)


def groups_text(vendor: str, groups: Groups) -> str:
    """The allocation annotation."""
    return "".join(
        "".join(f"{uuid},{vendor},{memory},{cores}:" for uuid, memory, cores in group) + ";"
        for group in groups
    )


def _state(exit_: int | str) -> dict[str, Any]:
    return {exit_: {}} if isinstance(exit_, str) else {"terminated": {"exitCode": exit_}}


def _node(view: NodeView) -> dict[str, Any]:
    annotations = {}
    for vendor, cards in view.registers.items():
        listed = [
            {"id": uuid, "index": index, "count": slots, "devmem": memory, "devcore": cores}
            | {"type": vendor, "health": uuid not in view.ill}
            for index, (uuid, (slots, memory, cores)) in enumerate((cards or {}).items())
        ]
        annotations[REGISTERS[vendor]] = json.dumps(listed) if cards is not None else "[{"
    if view.cordoned:
        annotations["hami.io/device-cordon"] = ",".join(sorted(view.cordoned))
    metadata = {"name": view.name, "resourceVersion": str(view.version), "annotations": annotations}
    resources = {"nvidia.com/gpu": "10", "amd.com/gpu": "10"}
    return {"kind": "Node", "metadata": metadata, "status": {"capacity": resources, "allocatable": resources}}


def _quota(view: QuotaView) -> dict[str, Any]:
    spec: dict[str, Any] = {"hard": {key: str(limit) for key, limit in view.hard.items()}}
    if view.classes is not None:
        operator, names = view.classes
        term = {"scopeName": "PriorityClass", "operator": operator, "values": sorted(names)}
        spec["scopeSelector"] = {"matchExpressions": [term]}
    if view.terminating is not None:
        spec["scopes"] = ["Terminating" if view.terminating else "NotTerminating"]
    metadata = {"namespace": view.namespace, "name": view.name, "resourceVersion": str(view.version)}
    return {"kind": "ResourceQuota", "metadata": metadata, "spec": spec}

"""A busy cluster: pods come, start, end and lie about, nodes flap and are replaced, quotas change.

The same seed gives the same life. What it shows are watch events; some of them are lost, and full lists tell
of what was lost, as a watcher would.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from bench import fleets

Object = dict[str, Any]
LOST = 0.01


@dataclass(frozen=True, slots=True)
class Size:
    """How busy it is. Pods live for `lives_hours` in the mean."""

    nodes: int = 40
    pods_a_day: int = 800
    namespaces: int = 40
    nodes_replaced_a_day: int = 3
    lives_hours: float = 20
    ticks_a_day: int = 24


@dataclass(slots=True)
class Life:
    """A pod: where it is in its life, and until when it lives."""

    number: int
    shape: fleets.Shape
    namespace: str
    ends_at: datetime
    stage: str = "waits"
    version: int = 0
    at: tuple[str, str] | None = None
    annotations: Object | None = None

    @property
    def uid(self) -> str:
        return f"uid-{self.number:012d}"


@dataclass(slots=True)
class Machine:
    """A node by its number; a sick one has a card that is not well."""

    place: int
    version: int
    is_sick: bool = False
    ticks: int = 0


@dataclass(slots=True)
class Cluster:
    """The state of the cluster, and what it shows while it goes on."""

    size: Size
    now: datetime
    seed: int = 1
    machines: dict[int, Machine] = field(default_factory=dict)
    pods: dict[int, Life] = field(default_factory=dict)
    quotas: dict[str, tuple[int, int]] = field(default_factory=dict)
    namespaces: list[str] = field(default_factory=list)
    shown: int = 0
    _versions: Iterator[int] = field(default_factory=lambda: count(1000))
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _places: Iterator[int] = field(default_factory=lambda: count(1))
    _spaces: Iterator[int] = field(default_factory=lambda: count(1))
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for _ in range(self.size.nodes):
            self._machine()
        for _ in range(self.size.namespaces):
            self._namespace()

    def version(self) -> int:
        return next(self._versions)

    def _machine(self) -> Machine:
        place = next(self._places)
        self.machines[place] = Machine(place, self.version())
        return self.machines[place]

    def _namespace(self) -> str:
        name = f"space-{next(self._spaces)}"
        self.namespaces.append(name)
        self.quotas[name] = self.version(), self.chance.choice((200_000, 100_000_000))
        return name

    # --- objects ---

    def node(self, machine: Machine) -> Object:
        made = fleets.node(machine.place, machine.version)
        if machine.is_sick:
            told = made["metadata"]["annotations"]
            told["hami.io/node-nvidia-register"] = told["hami.io/node-nvidia-register"].replace(
                '"health": true', '"health": false', 1
            )
        made["metadata"]["annotations"]["hami.io/node-handshake"] = f"Reported {machine.ticks}"
        return made

    def quota(self, namespace: str) -> Object:
        version, hard = self.quotas[namespace]
        made = fleets.quota(0, version)
        made["metadata"]["namespace"] = namespace
        made["spec"]["hard"]["limits.nvidia.com/gpumem"] = str(hard)
        return made

    def pod(self, life: Life) -> Object:
        phase = {"waits": "Pending", "starts": "Pending", "succeeded": "Succeeded"}.get(life.stage, "Running")
        made = fleets.pod(
            life.number, life.shape, life.version, at=life.at, done=life.stage != "starts", phase=phase
        )
        made["metadata"]["namespace"] = life.namespace
        if life.annotations is not None and life.at is not None:
            made["metadata"]["annotations"] = life.annotations
        if life.stage == "ending":
            made["metadata"]["deletionTimestamp"] = self.now.isoformat()
            made["metadata"]["deletionGracePeriodSeconds"] = 30
        return made

    def lists(self) -> list[Object]:
        """The full lists of everything, nodes first."""
        items = {
            "Node": [self.node(one) for one in self.machines.values()],
            "ResourceQuota": [self.quota(name) for name in self.quotas],
            "Pod": [self.pod(one) for one in self.pods.values()],
        }
        return [
            {
                "kind": f"{kind}List",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": str(self.version())},
                "items": of_kind,
            }
            for kind, of_kind in items.items()
        ]

    # --- what happens ---

    def tick(self, now: datetime) -> list[Object]:
        """All that happens until `now`, as a watch shows it; what is lost is left out."""
        share = 1 / self.size.ticks_a_day
        self.now = now
        events = [
            *self._pods_end(),
            *self._pods_go_on(),
            *self._pods_come(round(self.size.pods_a_day * share)),
            *self._machines_flap(),
        ]
        if self.chance.random() < self.size.nodes_replaced_a_day * share:
            events += self._machine_is_replaced()
        if self.chance.random() < 2 * share:
            events += self._namespace_is_replaced()
        if self.chance.random() < 10 * share:
            name = self.chance.choice(self.namespaces)
            self.quotas[name] = self.version(), self.chance.choice((100_000, 400_000, 100_000_000))
            events.append(_event("MODIFIED", self.quota(name)))
        self.shown += len(events)
        return [event for event in events if self.chance.random() >= LOST]

    def _pods_come(self, number: int) -> Iterator[Object]:
        for _ in range(number):
            ends_at = self.now + timedelta(hours=self.chance.expovariate(1 / self.size.lives_hours))
            life = Life(
                next(self._numbers),
                self.chance.choice(fleets.SHAPES),
                self.chance.choice(self.namespaces),
                ends_at,
                version=self.version(),
            )
            self.pods[life.number] = life
            yield _event("ADDED", self.pod(life))

    def _pods_go_on(self) -> Iterator[Object]:
        for life in list(self.pods.values()):
            if life.stage == "starts":
                yield self._show(life, "runs")
            elif life.stage == "bound":
                yield self._show(life, "starts")

    def _pods_end(self) -> Iterator[Object]:
        for life in list(self.pods.values()):
            if life.stage in ("succeeded", "ending"):
                del self.pods[life.number]
                life.version = self.version()
                yield _event("DELETED", self.pod(life))
            elif life.ends_at <= self.now:
                yield self._show(life, self.chance.choice(("succeeded", "ending")))

    def _show(self, life: Life, stage: str) -> Object:
        life.stage, life.version = stage, self.version()
        return _event("MODIFIED", self.pod(life))

    def waiting(self) -> list[Life]:
        """The pods that look for a place."""
        return [life for life in self.pods.values() if life.stage == "waits"]

    def place(self, life: Life) -> None:
        """HAMi's scheduler finds one for it: any."""
        machine = self.chance.choice(list(self.machines))
        life.at = fleets.node_name(machine), fleets.uuid_of(machine, self.chance.randrange(fleets.CARDS))
        life.stage = "bound"

    def take(self, life: Life, node: str, annotations: Object) -> None:
        """It is bound where it was reserved."""
        life.at, life.annotations, life.stage = (node, ""), annotations, "bound"

    def _machines_flap(self) -> Iterator[Object]:
        for machine in self.chance.sample(list(self.machines.values()), 3):
            machine.version, machine.ticks = self.version(), machine.ticks + 1
            machine.is_sick = self.chance.random() < 0.2
            yield _event("MODIFIED", self.node(machine))

    def _machine_is_replaced(self) -> Iterator[Object]:
        gone = self.machines.pop(self.chance.choice(list(self.machines)))
        for life in list(self.pods.values()):
            if life.at and life.at[0] == fleets.node_name(gone.place):
                life.ends_at = self.now
        gone.version = self.version()
        yield _event("DELETED", self.node(gone))
        yield _event("ADDED", self.node(self._machine()))

    def _namespace_is_replaced(self) -> Iterator[Object]:
        """Its pods end with it, its quota goes, and its name never comes back."""
        gone = self.namespaces.pop(0)
        for life in list(self.pods.values()):
            if life.namespace == gone:
                del self.pods[life.number]
                life.version = self.version()
                yield _event("DELETED", self.pod(life))
        self.quotas[gone] = self.version(), 0
        yield _event("DELETED", self.quota(gone))
        del self.quotas[gone]
        yield _event("ADDED", self.quota(self._namespace()))


def _event(type_: str, manifest: Object) -> Object:
    return {"type": type_, "object": manifest}

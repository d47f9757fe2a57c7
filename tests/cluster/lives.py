"""Pods, nodes and quotas that live in a cluster, at random from a seed; and what a list of them comes to.

A pod is made, gets its cards, is bound, starts, changes, ends, is deleted, made again by the same name; some
stop at each of these. What it should be charged follows from its manifest alone: so every pod that is on its
way out is gone at the end, because a pod on its way out keeps what it had, which a list does not show.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests import watch
from tests.cluster.clusters import Cluster, Object
from tests.model.books import (
    APP,
    INIT,
    SIDECAR,
    Allocation,
    Books,
    Event,
    Groups,
    NodeView,
    PodView,
    QuotaView,
)

GPUMEM = "nvidia.com/gpumem"
CARDS_OF_A_NODE = 4
NOTHING = (0, 0, 0)
Place = tuple[str, str]  # node, device


@dataclass
class World:
    """A run's namespaces and nodes, and every charge that any pod of it may ever have had."""

    cluster: Cluster
    rng: random.Random
    namespaces: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    plain: set[str] = field(default_factory=set)  # what carries nothing of ours
    foreign: set[str] = field(default_factory=set)  # of which nothing needs to be stored: a new name, too
    allowed: dict[str, dict[Place, set[tuple[int, ...]]]] = field(default_factory=dict)
    _lives: list[Iterator[None]] = field(default_factory=list)
    _going: set[str] = field(default_factory=set)
    _number: int = 0

    def build(self, *, namespaces: int = 2, nodes: int = 4) -> None:
        for number in range(namespaces):
            self.namespaces.append(self.cluster.add_namespace(f"team-{number}"))
            hard = {f"limits.{GPUMEM}": str(100_000 * (number + 1))}
            quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
            self.cluster.add("resourcequotas", self.namespaces[-1], quota)
        for number in range(nodes):
            self.nodes.append(f"{self.namespaces[0]}-n{number}")
            self.cluster.add_node(self.nodes[-1], self.registered())

    def registered(self) -> dict[str, str]:
        """What a node says: all of its cards, or all but one."""
        uuids = [f"GPU-{number}" for number in range(CARDS_OF_A_NODE)]  # the same ids on every node
        if self.rng.random() < 0.3:
            uuids.pop()
        cards = [{"index": index, **watch.card(uuid)} for index, uuid in enumerate(uuids)]
        return {watch.REGISTER: json.dumps(cards), watch.HANDSHAKE: f"Reported {self.rng.random()}"}

    # --- what happens

    def begin_pods(self, count: int) -> None:
        """So many more pods will be, each when its turn comes."""
        self._lives += [self._life(number) for number in range(self._number, self._number + count)]
        self._number += count

    def add_bystander(self) -> str:
        """A pod that nobody places: its uid."""
        pod = self._made(self.rng, self.namespaces[0], f"bystander-{self._number}", is_plain=False)
        self._number += 1
        uid: str = pod["metadata"]["uid"]
        return uid

    @property
    def is_over(self) -> bool:
        return not self._lives

    def step(self, *, at_once: int = 40) -> None:
        """One thing happens: mostly to a pod, of which so many are alive at the same time."""
        if self.rng.random() < 0.03:
            self._change_surroundings()
        life = self.rng.choice(self._lives[:at_once])
        try:
            next(life)
        except StopIteration:
            self._lives.remove(life)

    def finish(self) -> None:
        """What is on its way out is gone."""
        while self._lives:
            self.step()
        for path in self._going:
            self.cluster.delete(path, gracePeriodSeconds=0)
        self._going.clear()

    def _change_surroundings(self) -> None:
        node, namespace = self.rng.choice(self.nodes), self.rng.choice(self.namespaces)
        match self.rng.choice(["handshake", "cards", "node", "quota"]):
            case "handshake":
                told = {watch.HANDSHAKE: f"Reported {self.rng.random()}"}
                self.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": told}})
            case "cards":
                told = self.registered()
                self.cluster.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": told}})
            case "node":
                self.cluster.delete(f"/api/v1/nodes/{node}")
                self.cluster.add_node(node, self.registered())
            case "quota":
                hard = {f"limits.{GPUMEM}": str(self.rng.randrange(1000, 200_000))}
                path = f"/api/v1/namespaces/{namespace}/resourcequotas/q"
                self.cluster.patch(path, {"spec": {"hard": hard}})

    def _life(self, number: int) -> Iterator[None]:
        """One pod from its making to wherever it gets; every `yield` is a chance for the others."""
        namespace = self.rng.choice(self.namespaces)
        rng = random.Random(self.rng.random())
        name = f"p{number}"
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        for again in range(2 if rng.random() < 0.15 else 1):
            pod = self._made(rng, namespace, name, is_plain=rng.random() < 0.1)
            if not again and pod["metadata"]["uid"] in self.plain:
                self.foreign.add(pod["metadata"]["uid"])
            yield
            if rng.random() < 0.9:
                yield from self._lived(rng, path, pod)
            if rng.random() < 0.55:
                yield from self._deleted(rng, path)
            else:
                return

    def _made(self, rng: random.Random, namespace: str, name: str, *, is_plain: bool) -> Object:
        """A pod of up to two inits, a sidecar and two apps, which ask for a card each, or for none."""
        limits = {"cpu": "1"} if is_plain else {"nvidia.com/gpu": "1", GPUMEM: "1000"}
        inits: list[Object] = [{"name": f"i{number}"} for number in range(rng.randrange(3))]
        if rng.random() < 0.3:
            inits.insert(rng.randrange(len(inits) + 1), {"name": "s", "restartPolicy": "Always"})
        apps: list[Object] = [{"name": f"a{number}"} for number in range(rng.randrange(1, 3))]
        for container in [*inits, *apps]:
            container |= {"image": "none", "resources": {"limits": limits}}
        pod = self.cluster.add(
            "pods",
            namespace,
            {
                "metadata": {"name": name},
                "spec": {
                    # Nobody else is to place them.
                    "schedulerName": self.cluster.run,
                    "initContainers": inits,
                    "containers": apps,
                },
            },
        )
        self._remember(pod)
        if is_plain:
            self.plain.add(pod["metadata"]["uid"])
        return pod

    def _lived(self, rng: random.Random, path: str, pod: Object) -> Iterator[None]:
        """Placed, bound, started, its inits done, ended: as far as it gets."""
        node = rng.choice(self.nodes)
        if pod["metadata"]["uid"] not in self.plain:
            self._patch(path, {"metadata": {"annotations": self._placement(rng, pod, node)}})
            yield
        if rng.random() < 0.05:
            return
        self.cluster.bind(path, pod["metadata"]["name"], node)
        yield
        if pod["metadata"]["uid"] not in self.plain:
            self._patch(path, {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}})
            yield
        for done in range(len(pod["spec"].get("initContainers", ())) + 1):
            if rng.random() < 0.05:
                return
            self._patch(f"{path}/status", {"status": self._status(pod, done)})
            yield
        for _ in range(rng.randrange(3)):
            if pod["metadata"]["uid"] not in self.plain and rng.random() < 0.3:
                self._patch(path, {"metadata": {"annotations": self._placement(rng, pod, node)}})
            else:
                self._patch(path, {"metadata": {"annotations": {"other": str(rng.random())}}})
            yield
        if rng.random() < 0.5:
            phase = rng.choice(["Succeeded", "Failed"])
            self._patch(f"{path}/status", {"status": {"phase": phase}})
            yield

    def _deleted(self, rng: random.Random, path: str) -> Iterator[None]:
        """At once, or with some time between."""
        if rng.random() < 0.6:
            pod = self.cluster.call("GET", path)
            if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running"):
                self._going.add(path)
                self.cluster.delete(path, gracePeriodSeconds=30)
                yield
                self._going.discard(path)
        self.cluster.delete(path, gracePeriodSeconds=0)
        yield

    def _placement(self, rng: random.Random, pod: Object, node: str) -> dict[str, str]:
        count = len(pod["spec"].get("initContainers", ())) + len(pod["spec"]["containers"])
        groups = [
            f"GPU-{rng.randrange(CARDS_OF_A_NODE)},NVIDIA,{rng.randrange(1, 30) * 100},{rng.randrange(20)}:;"
            for _ in range(count)
        ]
        return {"hami.io/vgpu-node": node, watch.ALLOCATED: "".join(groups)}

    def _status(self, pod: Object, done: int) -> Object:
        """So many of the inits have run; a sidecar runs on."""
        statuses = []
        for number, container in enumerate(pod["spec"].get("initContainers", ())):
            state: Object = {"waiting": {"reason": "PodInitializing"}}
            if number < done:
                is_sidecar = container.get("restartPolicy") == "Always"
                state = {"running": {}} if is_sidecar else {"terminated": {"exitCode": 0}}
            statuses.append(
                {
                    "name": container["name"],
                    "image": "none",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": state,
                }
            )
        phase = "Running" if done == len(statuses) else "Pending"
        return {"phase": phase, "initContainerStatuses": statuses}

    def _patch(self, path: str, changes: Object) -> None:
        self._remember(self.cluster.patch(path, changes))

    def _remember(self, pod: Object) -> None:
        allowed = self.allowed.setdefault(pod["metadata"]["uid"], {})
        books = Books()
        books.apply([Event("ADDED", pod_view(pod))])
        for device, share in books.pods[pod["metadata"]["uid"]].held.items():
            allowed.setdefault((device.node, device.uuid), {NOTHING}).add(tuple(share))

    # --- what it should come to

    def listed(self) -> Books:
        """The books of a fresh list."""
        books = Books()
        nodes = [one for one in self.cluster.list("/api/v1/nodes") if one["metadata"]["name"] in self.nodes]
        views: list[Any] = [node_view(node) for node in nodes]
        for namespace in self.namespaces:
            path = f"/api/v1/namespaces/{namespace}"
            views += [quota_view(quota) for quota in self.cluster.list(f"{path}/resourcequotas")]
            views += [pod_view(pod) for pod in self.cluster.list(f"{path}/pods")]
        books.apply([Event("ADDED", view) for view in views])
        return books


# --- manifests as the model wants them -----------------------------------------------------------


def pod_view(pod: Object) -> PodView:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    inits = spec.get("initContainers", [])
    kinds = [SIDECAR if one.get("restartPolicy") == "Always" else INIT for one in inits]
    states = {one["name"]: one["state"] for one in status.get("initContainerStatuses", ())}
    told = metadata.get("annotations", {})
    return PodView(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=int(metadata["resourceVersion"]),
        kinds=(*kinds, *(APP for _ in spec["containers"])),
        exits=tuple(_exit(states.get(one["name"], {})) for one in inits),
        phase=status.get("phase", "Pending"),
        terminating="deletionTimestamp" in metadata,
        claimed=told.get("hami.io/vgpu-node", ""),
        bound=spec.get("nodeName", ""),
        allocations={"NVIDIA": Allocation(_groups(told[watch.ALLOCATED]))} if watch.ALLOCATED in told else {},
    )


def _exit(state: Object) -> int | str | None:
    if "terminated" in state:
        return int(state["terminated"]["exitCode"])
    return next(iter(state), None)


def _groups(text: str) -> Groups:
    groups = []
    for group in text.split(";")[:-1]:
        rows = [row.split(",") for row in group.split(":")[:-1]]
        groups.append(tuple((uuid, int(memory), int(cores)) for uuid, _, memory, cores in rows))
    return tuple(groups)


def node_view(node: Object) -> NodeView:
    cards = json.loads(node["metadata"]["annotations"][watch.REGISTER])
    totals = {card["id"]: (card["count"], card["devmem"], card["devcore"]) for card in cards}
    return NodeView(node["metadata"]["name"], int(node["metadata"]["resourceVersion"]), {"NVIDIA": totals})


def quota_view(quota: Object) -> QuotaView:
    metadata = quota["metadata"]
    # The API server writes 2000 as 2k.
    hard = {key: int(text.replace("k", "000")) for key, text in quota["spec"]["hard"].items()}
    return QuotaView(metadata["namespace"], metadata["name"], int(metadata["resourceVersion"]), hard)

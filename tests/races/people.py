"""Everybody who works with one installation at the same time, each in a thread of its own.

Nodes and namespaces have bounds that are never crossed, whatever is told of them meanwhile: those who only
reserve can never hold more. What anybody was answered with success is remembered, and must be so at the end.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from devservers import launch
from tests import watch
from tests.asking import asking, limits
from tests.cluster.clusters import Cluster
from tests.cluster.lives import World, node_view, pod_view, quota_view
from tests.kubeapi.server import ApiServer
from tests.live import Answer, LiveStack
from tests.model.books import Books, Event
from tests.model.service import ThroughWorkers, everything
from tests.races.crowd import NO_ANSWER
from tests.races.site import Site
from tests.waiting import until

PATIENCE_SECONDS = 120.0
REQUEST_SECONDS = 30
COME_BACK = (429, 503)
SIZES = ("slots", "memory_mib", "cores")
POD_MIB = 1000
MUTEX = "hami.io/mutex.lock"
GPUMEM = "limits.nvidia.com/gpumem"

BUSY = tuple(f"busy-{number}" for number in range(3))
SHAKY = ("shaky-0", "shaky-1")
ARENA, WIDE = "arena", "wide"
CARDS, SLOTS, CARD_MIB = 3, 4, 9000
LASTING_SECONDS = 3600
BOUND = "confirmed"
PLACES = 2
"""How many pods the card of the arena takes."""
ALLOWED = 3
"""How many pods the quota of the other arena takes."""
RIVALS = 8
FIXED, MOVING, FENCED = "team-fixed", "team-moving", "team-fenced"
TEAMS = (FIXED, MOVING)
HARD_MIB, LOW_MIB = 24 * POD_MIB, 12 * POD_MIB

Place = tuple[str, str]
Usage = dict[Place, tuple[int, ...]]


def node(name: str, cards: int = CARDS, slots: int = SLOTS, memory: int = CARD_MIB) -> dict[str, Any]:
    return watch.node(
        name, *(watch.card(f"GPU-{name}-{one}", slots=slots, memory=memory) for one in range(cards))
    )


def furnish(api: ApiServer) -> None:
    """The nodes and quotas of everybody here."""
    for name in (*BUSY, *SHAKY):
        api.create(node(name))
    api.create(node(ARENA, cards=1, slots=PLACES))
    api.create(node(WIDE, cards=1, slots=10_000, memory=1_000_000))
    for namespace, hard in ((FIXED, HARD_MIB), (MOVING, HARD_MIB), (FENCED, ALLOWED * POD_MIB)):
        api.create(watch.quota("q", namespace=namespace, hard={GPUMEM: str(hard)}))


def ask(stack: LiveStack, method: str, path: str, body: Any = None) -> Answer:
    """Asks until there is an answer that says yes or no; fails where one tells of a fault of ours."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = stack.call(method, path, body, timeout=REQUEST_SECONDS)
        except NO_ANSWER as fault:
            answer = Answer(503, {}, repr(fault))
        assert answer.status < 500 or answer.status in COME_BACK, (method, path, answer)
        if answer.status not in COME_BACK:
            return answer
        assert time.monotonic() < end, (method, path, answer)
        time.sleep(0.1)


def is_held(answer: Answer) -> bool:
    """Whether a reservation was taken; fails where it is neither that nor refused."""
    if answer.status == 201:
        return True
    refusals = ("/problems/insufficient-capacity", "/problems/quota-exceeded")
    assert answer.status in (403, 409), answer
    assert answer.body["type"] in refusals, answer
    return False


class Actor:
    """Somebody who does one thing after the other. `done` counts what, by name."""

    def __init__(self, site: Site, seed: str) -> None:
        self.site, self.stack, self.api = site, site.stack, site.api
        self.name = seed
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._numbers = iter(range(10**9))

    def turn(self) -> None:
        """One thing."""
        raise NotImplementedError

    def finish(self) -> None:
        """Ends what would go on for ever."""

    def a_name(self) -> str:
        return f"{self.name}-{next(self._numbers)}"


@contextmanager
def at_work(actors: Sequence[Actor]) -> Iterator[threading.Event]:
    """All of them work while the block runs; the event is set when one of them failed, which is raised."""
    over, failed = threading.Event(), threading.Event()

    def work(actor: Actor) -> None:
        try:
            while not over.is_set():
                actor.turn()
            actor.finish()
        except BaseException:  # whatever it is, the others are to stop; it is raised where they are awaited
            failed.set()
            raise

    with ThreadPoolExecutor(len(actors)) as pool:
        working = [pool.submit(work, actor) for actor in actors]
        try:
            yield failed
        finally:
            over.set()
        for future in working:
            future.result()


# --- those who place pods --------------------------------------------------------------------------


class Scheduler(Actor):
    """kube-scheduler, the device plugin and the kubelet: pods are filtered, bound, run, and go."""

    def __init__(self, site: Site, seed: str, nodes: Sequence[str] = (*BUSY, *SHAKY)) -> None:
        super().__init__(site, seed)
        self.nodes = nodes
        self.running: list[tuple[str, str]] = []

    def turn(self) -> None:
        if len(self.running) < 5 or self.random.random() < 0.3:
            self._place()
        if self.running and self.random.random() < 0.7:
            self._go_on(*self.random.choice(self.running))

    def finish(self) -> None:
        """What is bound stays so."""

    def _place(self) -> None:
        name, namespace = self.a_name(), self.random.choice(TEAMS)
        asked = asking(name, gpumem=POD_MIB, namespace=namespace)
        if self.random.random() < 0.3:
            asked = asking(
                name, limits(gpumem=2 * POD_MIB), limits(gpumem=POD_MIB), inits=1, namespace=namespace
            )
        pod = self.api.create(asked)
        if self._is_bound(pod):
            self.running.append((namespace, name))
            self._allocate(namespace, name)
        else:
            self.api.delete("Pod", name, namespace)

    def _is_bound(self, pod: dict[str, Any]) -> bool:
        metadata = pod["metadata"]
        for _ in range(3):
            found = ask(self.stack, "POST", "/extender/filter", {"Pod": pod, "NodeNames": [*self.nodes]})
            assert found.status == 200, found
            if found.body["Error"]:
                self.done["could not filter"] += 1
                time.sleep(0.3)
                continue
            if not found.body["NodeNames"]:
                self.done["no node"] += 1
                return False
            (chosen,) = found.body["NodeNames"]
            binding = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"]}
            binding |= {"PodUID": metadata["uid"], "Node": chosen}
            answer = ask(self.stack, "POST", "/extender/bind", binding)
            live = self.api.get("Pod", metadata["name"], metadata["namespace"])
            bound = live["spec"].get("nodeName")
            if answer.status == 200 and answer.body["Error"] == "":
                assert bound == chosen, (answer, live)
            if bound:
                self.done["bound"] += 1
                return True
            self.done["could not bind"] += 1
        return False

    def _allocate(self, namespace: str, name: str) -> None:
        """The device plugin has given the pod its devices, and lets the node go."""
        told = {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}}
        with self.api.store.changed:
            live = self.api.change("Pod", name, told, namespace)
            where = live["spec"]["nodeName"]
            lock = self.api.get("Node", where)["metadata"]["annotations"].get(MUTEX, "")
            if lock.endswith(f",{namespace},{name}"):
                self.api.change("Node", where, {"metadata": {"annotations": {MUTEX: None}}})

    def _go_on(self, namespace: str, name: str) -> None:
        pod = self.api.get("Pod", name, namespace)
        step = self.random.random()
        if pod["status"].get("phase") == "Running" and step < 0.6:
            self.running.remove((namespace, name))
            if step < 0.2:
                self.api.change("Pod", name, {"status": {"phase": "Succeeded"}}, namespace)
            else:
                self.api.delete("Pod", name, namespace)
            self.done["ended"] += 1
            return
        done = [
            {"name": one["name"], "state": {"terminated": {"exitCode": 0}}}
            for one in pod["spec"].get("initContainers", ())
        ]
        self.api.change(
            "Pod", name, {"status": {"phase": "Running", "initContainerStatuses": done}}, namespace
        )


@dataclass(slots=True)
class Hold:
    """A hold as it was answered; `ends` is when it may run out, 0.0 where nobody will see that."""

    namespace: str
    usage: Usage
    ends: float


def usage_of(charge: Sequence[dict[str, Any]]) -> Usage:
    return {(one["node"], one["device"]): tuple(one[size] for size in SIZES) for one in charge}


class Claimer(Actor):
    """A scheduler of its own kind: it reserves, gives back, lets holds run out, and binds by itself.

    `held` and `over` are what it was answered with success: they must be so at the end.
    """

    def __init__(self, site: Site, seed: str, nodes: Sequence[str] = (*BUSY, *SHAKY)) -> None:
        super().__init__(site, seed)
        self.nodes = nodes
        self.held: dict[str, Hold] = {}
        self.over: dict[str, str] = {}
        self.bound: list[tuple[str, str]] = []

    def turn(self) -> None:
        chance = self.random.random()
        lasting = [uid for uid, hold in self.held.items() if not hold.ends]
        if lasting and (chance < 0.3 or len(lasting) > 5):
            self._give_back(self.random.choice(lasting))
        elif lasting and chance < 0.45:
            self._bind(self.random.choice(lasting))
        elif self.bound and chance < 0.6:
            namespace, name = self.bound.pop(self.random.randrange(len(self.bound)))
            self.api.delete("Pod", name, namespace)
        else:
            self._reserve()

    def _reserve(self) -> None:
        name, namespace = self.a_name(), self.random.choice(TEAMS)
        pod = asking(name, gpumem=POD_MIB, namespace=namespace)
        body: dict[str, Any] = {"pod": pod, "nodes": [*self.nodes]}
        seconds = self.random.choice((None, None, None, 1, 2))
        body["ttl_seconds"] = seconds or LASTING_SECONDS
        if self.random.random() < 0.3:
            found = ask(self.stack, "POST", "/api/v1/fit", body)
            assert found.status == 200, found
            if not found.body["candidates"]:
                self.done["no candidate"] += 1
                return
            best = self.random.choice(found.body["candidates"])
            del body["nodes"]
            body |= {"node": best["node"], "allocation": best["allocation"]}
        answer = ask(self.stack, "POST", "/api/v1/reservations", body)
        if not is_held(answer):
            self.done["refused"] += 1
            return
        self.done["held"] += 1
        ends = time.monotonic() + seconds if seconds else 0.0
        self.held[f"uid-{name}"] = Hold(namespace, usage_of(answer.body["charge"]), ends)

    def _give_back(self, uid: str) -> None:
        answer = ask(self.stack, "DELETE", f"/api/v1/reservations/{uid}")
        assert answer.status == 204, answer
        self.over[uid] = "released"
        del self.held[uid]
        self.done["given back"] += 1

    def _bind(self, uid: str) -> None:
        """Binds the pod and says so; from then on what the cluster says of it counts."""
        hold = self.held[uid]
        found = ask(self.stack, "GET", f"/api/v1/reservations/{uid}").body
        pod = asking(uid.removeprefix("uid-"), gpumem=POD_MIB, namespace=hold.namespace)
        pod["metadata"] |= {"annotations": found["annotations"], "labels": found["labels"]}
        pod["spec"]["nodeName"] = found["node"]
        pod["status"]["phase"] = "Running"
        self.api.create(pod)
        answer = ask(self.stack, "POST", f"/api/v1/reservations/{uid}/bound")
        assert answer.status == 200, answer
        self.over[uid] = BOUND
        del self.held[uid]
        self.bound.append((hold.namespace, pod["metadata"]["name"]))
        self.done["bound"] += 1

    # --- at the end

    def settle(self) -> None:
        """What was to run out has; beat comes round for it."""
        for uid, hold in list(self.held.items()):
            if hold.ends:
                until(lambda uid=uid: self._state(uid) == "expired")  # type: ignore[misc]
                self.over[uid] = "expired"
                del self.held[uid]

    def leave(self) -> None:
        """Gives back what it holds, so that others find the site as it was."""
        for uid in list(self.held):
            self._give_back(uid)

    def _state(self, uid: str) -> str:
        answer = ask(self.stack, "GET", f"/api/v1/reservations/{uid}")
        assert answer.status == 200, answer
        return str(answer.body["state"])

    def broken_promises(self) -> Iterator[str]:
        """What it was answered and is not so."""
        there = {pod["metadata"]["uid"] for pod in self.api.list("Pod")}
        for uid, hold in self.held.items():
            found = ask(self.stack, "GET", f"/api/v1/reservations/{uid}")
            if (found.status, found.body.get("state")) != (200, "held"):
                yield f"{uid} was held, and is {found}"
            elif usage_of(found.body["charge"]) != hold.usage:
                yield f"{uid} was held on {hold.usage}, and is on {found.body['charge']}"
        for uid, how in self.over.items():
            state = self._state(uid)
            # One that was gone again before anybody told of it was never confirmed.
            if state != how and not (how == BOUND and state == "released" and uid not in there):
                yield f"{uid} was {how}, and is {state}"


class Rivals(Actor):
    """Several at once for places of which there are fewer: exactly as many win as there are places."""

    def __init__(self, site: Site, seed: str) -> None:
        super().__init__(site, seed)
        self._pool = ThreadPoolExecutor(RIVALS)

    def turn(self) -> None:
        node_name, namespace, places = self.random.choice(((ARENA, "", PLACES), (WIDE, FENCED, ALLOWED)))
        pods = [asking(self.a_name(), gpumem=POD_MIB, namespace=namespace or "any") for _ in range(RIVALS)]
        way = self.random.choice((self._reserves, self._filters))
        won = list(self._pool.map(lambda pod: way(pod, node_name), pods))
        assert sum(won) == places, f"{sum(won)} of {places} on {node_name} by {way.__name__}: {won}"
        for pod in pods:
            gone = ask(self.stack, "DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}")
            assert gone.status in (204, 404), gone
        self.done[f"races for {places} places"] += 1

    def finish(self) -> None:
        self._pool.shutdown()

    def _reserves(self, pod: dict[str, Any], node_name: str) -> bool:
        answer = ask(self.stack, "POST", "/api/v1/reservations", {"pod": pod, "nodes": [node_name]})
        return is_held(answer)

    def _filters(self, pod: dict[str, Any], node_name: str) -> bool:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = ask(self.stack, "POST", "/extender/filter", {"Pod": pod, "NodeNames": [node_name]})
            assert answer.status == 200, answer
            if not answer.body["Error"]:
                return bool(answer.body["NodeNames"])
            assert time.monotonic() < end, answer
            time.sleep(0.1)


# --- those who tell ----------------------------------------------------------------------------------


class Neighbours(Actor):
    """Pods of another scheduler on nodes of its own, with all that may happen to a pod."""

    def __init__(self, site: Site, seed: str, folder: Path) -> None:
        super().__init__(site, seed)
        own = folder / self.name
        own.mkdir()
        self.world = World(Cluster(self.api.kubeconfig(own), self.api), self.random)
        self.world.build()

    def turn(self) -> None:
        if self.world.is_over:
            self.world.begin_pods(60)
        self.world.step()
        self.done["steps"] += 1
        time.sleep(0.005)

    def finish(self) -> None:
        self.world.finish()


class Landlord(Actor):
    """Quotas go up and down, nodes register fewer cards and more, are gone and come back, and tick."""

    def turn(self) -> None:
        match self.random.choice(("quota", "cards", "cards", "tick", "tick", "leave")):
            case "quota":
                hard = self.random.randrange(LOW_MIB, HARD_MIB + 1, POD_MIB)
                self.api.change("ResourceQuota", "q", {"spec": {"hard": {GPUMEM: str(hard)}}}, MOVING)
            case "cards":
                name = self.random.choice(SHAKY)
                shown = node(name, self.random.randint(1, CARDS), self.random.randint(1, SLOTS))
                told = shown["metadata"]["annotations"]
                self.api.change("Node", name, {"metadata": {"annotations": told}})
            case "tick":
                told = {watch.HANDSHAKE: f"Reported {self.random.random()}"}
                self.api.change("Node", self.random.choice(BUSY), {"metadata": {"annotations": told}})
            case "leave":
                name = self.random.choice(SHAKY)
                self.api.delete("Node", name)
                self.api.create(node(name))
        self.done["changes"] += 1
        time.sleep(0.1)


class Gossip(Actor):
    """Another who tells of the same cluster: late, twice, and in lists. All of it is true of some moment."""

    def turn(self) -> None:
        if self.random.random() < 0.1:
            self._tell_all(self.random.choice(("Pod", "Node", "ResourceQuota")))
        else:
            self._tell_some()
        time.sleep(0.05)

    def _tell_some(self) -> None:
        with self.api.store.changed:
            log = self.api.store.log
            recent = log[-200:] if self.random.random() < 0.7 else log
            some = self.random.sample(recent, k=min(len(recent), self.random.choice((1, 5, 40))))
        told = [
            {"type": one.type, "object": one.item}
            for one in some
            if one.item["kind"] in ("Pod", "Node", "ResourceQuota")
        ]
        if told:
            answer = ask(self.stack, "POST", "/api/v1/events", {"events": told})
            assert answer.status in (200, 202), answer
            assert not answer.body["rejected"], answer
            self.done["events"] += len(told)

    def _tell_all(self, kind: str) -> None:
        with self.api.store.changed:
            whole = self.api.store.snapshot(kind)
            body = {"kind": f"{kind}List", "apiVersion": "v1", "items": list(whole.items)}
            body["metadata"] = {"resourceVersion": str(whole.version)}
        answer = ask(self.stack, "POST", "/api/v1/snapshots", body)
        assert answer.status in (200, 409), answer
        self.done[f"lists answered {answer.status}"] += 1


# --- those who look ----------------------------------------------------------------------------------

OVER_A_CARD = """
SELECT node, uuid, slots_used, memory_mib_used FROM hamiacct_device
WHERE node = ANY(%s) AND (slots_used > %s OR memory_mib_used > %s)
"""
OVER_A_QUOTA = """
SELECT namespace, memory_mib FROM hamiacct_namespaceusage WHERE (namespace = %s AND memory_mib > %s)
    OR (namespace = ANY(%s) AND memory_mib > %s)
"""


class Operator(Actor):
    """Looks whether the books agree and whether anybody has more than there is; repairs, which is nothing."""

    def turn(self) -> None:
        act = self.random.choice(
            (self._audits, self._audits, self._bounds, self._bounds, self._bounds, self._repairs)
        )
        act()
        self.done[act.__name__.strip("_")] += 1
        time.sleep(0.1)

    def _audits(self) -> None:
        answer = ask(self.stack, "GET", "/api/v1/audit")
        assert answer.status == 200, answer
        assert answer.body["ok"], answer.body["discrepancies"]

    def _repairs(self) -> None:
        if self.random.random() < 0.1:
            ran = launch.manage(self.stack.env, "audit", "--repair", check=False)
            assert ran.returncode in (0, 2), ran  # 2: the books could not be read
            assert "put right" not in ran.stdout, ran
            return
        answer = ask(self.stack, "POST", "/api/v1/audit/repair")
        assert answer.status == 200, answer
        assert answer.body["repaired"] == [], answer

    def _bounds(self) -> None:
        try:
            over = self.site.rows(OVER_A_CARD, [*BUSY, *SHAKY], SLOTS, CARD_MIB)
            over += self.site.rows(OVER_A_CARD, [ARENA], PLACES, CARD_MIB)
            over += self.site.rows(OVER_A_QUOTA, FENCED, ALLOWED * POD_MIB, [*TEAMS], HARD_MIB)
        except psycopg.Error:
            return  # it is away just now
        assert over == [], "more than there is"


# --- what it must come to ----------------------------------------------------------------------------


def listed(api: ApiServer) -> Books:
    """The books of a fresh list of the cluster."""
    books = Books()
    views: list[Any] = [node_view(one) for one in api.list("Node")]
    views += [quota_view(one) for one in api.list("ResourceQuota")]
    views += [pod_view(one) for one in api.list("Pod")]
    books.apply([Event("ADDED", view) for view in views])
    return books


def differences(site: Site, claimers: Sequence[Claimer]) -> list[str]:
    """Where the books differ from the cluster and from what the claimers were answered."""
    books = listed(site.api)
    expected: dict[str, Usage] = {
        uid: {(device.node, device.uuid): tuple(share) for device, share in account.held.items()}
        for uid, account in books.pods.items()
        if account.held
    }
    namespaces = {uid: account.view.namespace for uid, account in books.pods.items()}
    for claimer in claimers:
        for uid, hold in claimer.held.items():
            expected[uid], namespaces[uid] = hold.usage, hold.namespace
    get = ThroughWorkers(site.stack).get
    found = {pod["uid"]: usage_of(pod["usage"]) for pod in everything(get, "/api/v1/pods") if pod["usage"]}
    wrong = [
        f"{uid} has {found.get(uid)}, and should have {expected.get(uid)}"
        for uid in sorted(found.keys() | expected.keys())
        if found.get(uid) != expected.get(uid)
    ]
    wrong += _wrong_devices(get, books, expected)
    wrong += _wrong_quotas(get, books, expected, namespaces)
    wrong += [str(one) for one in get("/api/v1/audit").body["discrepancies"]]
    return wrong + [broken for claimer in claimers for broken in claimer.broken_promises()]


def _wrong_devices(get: Callable[[str], Any], books: Books, expected: dict[str, Usage]) -> list[str]:
    totals: dict[Place, Counter[str]] = defaultdict(Counter)
    for usage in expected.values():
        for place, share in usage.items():
            totals[place].update(dict(zip(SIZES, share, strict=True)))
    found, registered = {}, set()
    for one in everything(get, "/api/v1/devices"):
        place = one["node"], one["uuid"]
        found[place] = {size: one[size]["used"] for size in SIZES if one[size]["used"]}
        registered |= {place} if one["registered"] else set()
    wrong = [
        f"{place} has {found.get(place)}, and should have {dict(totals[place])}"
        for place in found.keys() | totals.keys()
        if found.get(place, {}) != {size: amount for size, amount in totals[place].items() if amount}
    ]
    wanted = {place for place, card in books.cards.items() if card.registered}
    return wrong + ([f"registered differs: {registered ^ wanted}"] if registered != wanted else [])


def _wrong_quotas(
    get: Callable[[str], Any], books: Books, expected: dict[str, Usage], namespaces: dict[str, str]
) -> Iterator[str]:
    used: Counter[str] = Counter()
    for uid, usage in expected.items():
        used[namespaces[uid]] += sum(memory for _, memory, _ in usage.values())
    for namespace in {namespace for namespace, _ in books.quotas}:
        body = get(f"/api/v1/namespaces/{namespace}/quota").body
        found = {
            (one["name"], one["key"], one["hard"], one["used"])
            for resource in body["resources"]
            for one in resource["quotas"]
        }
        wanted = {
            (name, key, hard, used[namespace])
            for (space, name), object_ in books.quotas.items()
            if space == namespace
            for key, hard in object_.view.hard.items()  # type: ignore[union-attr]
        }
        if found != wanted:
            yield f"quotas of {namespace} are {found}, and should be {wanted}"


def comes_right(site: Site, actors: Sequence[Actor], seconds: float = 150.0) -> None:
    """Waits until the books say exactly what is so, and fails with what they say instead.

    Then those who hold something give it back: others find the site without them.
    """
    claimers = [actor for actor in actors if isinstance(actor, Claimer)]
    for claimer in claimers:
        claimer.settle()
    end = time.monotonic() + seconds
    while wrong := _looked_at(site, claimers):
        assert time.monotonic() < end, json.dumps(wrong[:20], indent=1)
        site.look_after()
        time.sleep(0.3)
    for claimer in claimers:
        claimer.leave()


def _looked_at(site: Site, claimers: Sequence[Claimer]) -> list[str]:
    try:
        return differences(site, claimers)
    except (*NO_ANSWER, AssertionError, psycopg.Error) as fault:
        return [repr(fault)]


def counts(actors: Sequence[Actor]) -> dict[str, int]:
    """What everybody did, by kind and deed."""
    total: Counter[str] = Counter()
    for actor in actors:
        total.update({f"{type(actor).__name__}: {deed}": count for deed, count in actor.done.items()})
    return dict(sorted(total.items()))

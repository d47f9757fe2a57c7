"""What is tried. Each scenario takes the running stack and adds its figures to the report."""

from __future__ import annotations

import json
import random
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any

from bench import fleets
from bench import peers as placement
from bench.client import Connection, Run, at_once, one_by_one
from bench.figures import Goal, Report, percentile
from bench.stack import Stack

EMPTY = "empty view"
PGBENCH = "pgbench -N, 8 clients"
CALLS = 200


@dataclass(slots=True)
class Trial:
    """One fleet on one stack."""

    stack: Stack
    fleet: fleets.Fleet
    report: Report
    pods: int
    rounds: int = 3
    numbers: Iterator[int] = field(default_factory=lambda: count(10_000_000))

    @property
    def size(self) -> str:
        return f"{self.fleet.nodes:,} x 8"

    def asking(self, shape: fleets.Shape = fleets.PLAIN) -> fleets.Object:
        return fleets.asking(next(self.numbers), shape)


def yardsticks(trial: Trial) -> None:
    """What everything else is a multiple of."""
    connection = trial.stack.connect()
    request = connection.request("GET", "/bench/empty")
    one_by_one(connection, [request] * CALLS)
    rounds = [one_by_one(connection, [request] * CALLS * 2).seconds for _ in range(trial.rounds)]
    found = trial.report.latency(f"{EMPTY}, one client", rounds)
    trial.report.yardsticks[EMPTY] = found.median
    crowd = [
        at_once(trial.stack.connect, 16, lambda _, connection: [request] * CALLS).rate
        for _ in range(trial.rounds)
    ]
    trial.report.rate(f"{EMPTY}, 16 clients", crowd)
    for clients, name in ((8, PGBENCH), (16, "pgbench -N, 16 clients")):
        found = trial.report.rate(name, [trial.stack.pgbench(clients, 5) for _ in range(trial.rounds)])
        trial.report.yardsticks[name] = found.median


def loading(trial: Trial) -> None:
    """The full lists: inventory, quotas, pods."""
    connection = trial.stack.connect()
    for what, body, items in (
        ("nodes", trial.fleet.node_list(), trial.fleet.nodes),
        ("quotas", trial.fleet.quota_list(), fleets.NAMESPACES),
        ("pods", trial.fleet.pod_list(trial.pods), trial.pods),
    ):
        before = perf_counter()
        told = connection.call("POST", "/api/v1/snapshots", body)
        assert not told["rejected"], told["rejected"][:3]
        trial.report.rate(
            f"snapshot of {items:,} {what}", [items / (perf_counter() - before)], note="items a second"
        )


def _asked(trial: Trial, path: str, bodies: Sequence[Any]) -> list[Run]:
    connection = trial.stack.connect()
    requests = [connection.request("POST", path, body) for body in bodies]
    one_by_one(connection, requests[: len(requests) // 4])
    return [one_by_one(connection, requests) for _ in range(trial.rounds)]


def _latency(
    trial: Trial, name: str, path: str, bodies: Sequence[Any], goal: Goal | None, p99: float | None = None
) -> None:
    runs = _asked(trial, path, bodies)
    wrong = {status for run in runs for status in run.statuses if status >= 300}
    figure = trial.report.latency(
        f"{name}, {trial.size}",
        [run.seconds for run in runs],
        EMPTY,
        goal,
        note=f"answers {wrong}" if wrong else "",
    )
    if p99 and figure.p99:
        trial.report.amount(
            f"{name}, {trial.size}: p99", "ms", figure.p99, p99 * trial.report.yardsticks[EMPTY]
        )


def fit(trial: Trial) -> None:
    """The question of a scheduler, asked for its best nodes and for a verdict on each."""
    four = fleets.Shape(((True, 1024, 0), (False, 12288, 0)), ((4096, 10), (2048, 5)))
    for shape, name, best, every in (
        (fleets.PLAIN, "one container", 4, 6),
        (four, "four containers", 5, 15),
    ):
        asked = [{"pod": trial.asking(shape), "limit": 5, "verdicts": False} for _ in range(CALLS)]
        _latency(
            trial, f"fit, best nodes, {name}", "/api/v1/fit", asked, Goal(best), 10 if best == 4 else None
        )
        asked = [{"pod": trial.asking(shape), "limit": 5} for _ in range(CALLS // 4)]
        _latency(trial, f"fit, every node's verdict, {name}", "/api/v1/fit", asked, Goal(every))


def capacity(trial: Trial) -> None:
    """How many more."""
    asked = [{"pod": trial.asking(), "at_most": 1000} for _ in range(20)]
    _latency(trial, "capacity, at most 1,000", "/api/v1/capacity", asked, None)


def quota_check(trial: Trial) -> None:
    """May this namespace?"""
    asked = [{"pod": trial.asking()} for _ in range(CALLS)]
    _latency(trial, "quota check", "/api/v1/quota/check", asked, Goal(2))


def admission(trial: Trial) -> None:
    """The webhook."""
    asked = []
    for number in range(CALLS):
        pod = trial.asking()
        request = {
            "uid": f"review-{number}",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": pod["metadata"]["namespace"],
            "object": pod,
        }
        asked.append({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    _latency(trial, "admission", "/webhook", asked, None)


def reads(trial: Trial) -> None:
    """What people and dashboards read."""
    connection = trial.stack.connect()
    for path in (
        "/api/v1/cluster",
        "/api/v1/devices?limit=100",
        "/api/v1/pods?limit=100",
        "/api/v1/namespaces/team-1/quota",
        f"/api/v1/nodes/{fleets.node_name(1)}",
        "/metrics",
    ):
        request = connection.request("GET", path)
        one_by_one(connection, [request] * 3)
        rounds = [one_by_one(connection, [request] * 20).seconds for _ in range(trial.rounds)]
        trial.report.latency(f"GET {path.split('?')[0]}, {trial.size}", rounds, EMPTY)


# --- claims ---------------------------------------------------------------------------------------


def _claims(trial: Trial, clients: int, each: int, nodes: Callable[[int], list[str]] | None) -> Run:
    """So many clients, each reserving and releasing by turns, so that there is always room."""

    def requests_of(client: int, connection: Connection) -> list[bytes]:
        made = []
        for _ in range(each):
            pod = trial.asking(fleets.Shape((), ((64, 0),)))
            body: dict[str, Any] = {"pod": pod}
            if nodes:
                body["nodes"] = nodes(client)
            made.append(connection.request("POST", "/api/v1/reservations", body))
            made.append(connection.request("DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}"))
        return made

    return at_once(trial.stack.connect, clients, requests_of)


def reservations(trial: Trial) -> None:
    """Fit and reserve by one client; spread over the fleet; and everybody on one card."""
    connection = trial.stack.connect()
    rounds = []
    for _ in range(trial.rounds):
        pods = [trial.asking() for _ in range(50)]
        made = [connection.request("POST", "/api/v1/reservations", {"pod": pod}) for pod in pods]
        rounds.append(one_by_one(connection, made).seconds)
        undo = [
            connection.request("DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}") for pod in pods
        ]
        one_by_one(connection, undo)
    trial.report.latency(f"fit and reserve, one client, {trial.size}", rounds, EMPTY, Goal(8))
    chance = random.Random(7)
    spread = [
        _claims(trial, 16, 20, lambda _: [fleets.node_name(chance.randrange(trial.fleet.nodes))]).rate / 2
        for _ in range(trial.rounds)
    ]
    trial.report.rate("reservations, 16 clients, each on a node of its own", spread, note="claims a second")
    hot_card(trial)


def peers(trial: Trial) -> None:
    """Our reservation against Placement's PUT of an allocation: the same cards, the same PostgreSQL."""
    programs = placement.environment()
    if programs is None:
        return
    peer = placement.Placement(trial.stack, programs, trial.fleet.nodes)
    chance = random.Random(11)
    clients, each = 16, 20

    def ours(nodes: Callable[[int], list[str]]) -> float:
        pods: list[fleets.Object] = []

        def requests_of(client: int, connection: Connection) -> list[bytes]:
            made = [trial.asking(fleets.Shape((), ((64, 0),))) for _ in range(each)]
            pods.extend(made)
            return [
                connection.request("POST", "/api/v1/reservations", {"pod": pod, "nodes": nodes(client)})
                for pod in made
            ]

        run = at_once(trial.stack.connect, clients, requests_of)
        connection = trial.stack.connect()
        for pod in pods:
            uid = pod["metadata"]["uid"]
            connection.send(connection.request("DELETE", f"/api/v1/reservations/{uid}"))
        return run.rate

    try:
        for where, card_of, nodes in (
            (
                "spread",
                lambda _: chance.choice(peer.cards),
                lambda _: [fleets.node_name(chance.randrange(trial.fleet.nodes))],
            ),
            ("one card", lambda _: peer.hot, lambda _: ["hot"]),
        ):
            name = f"Placement, PUT allocations, 16 clients, {where}"
            rounds = range(trial.rounds)
            figure = trial.report.rate(name, [peer.claims_per_second(clients, each, card_of) for _ in rounds])
            trial.report.yardsticks[name] = figure.median
            trial.report.rate(
                f"reservations, 16 clients, {where}",
                [ours(nodes) for _ in rounds],
                name,
                Goal(10, at_least=True),
            )
    finally:
        peer.stop()


def hot_card(trial: Trial) -> None:
    """One node with one card that has room for everybody: all they can do is queue."""
    connection = trial.stack.connect()
    card = {
        "id": "GPU-hot",
        "count": 100_000,
        "devmem": 10_000_000,
        "devcore": 100,
        "type": "NVIDIA-A100",
        "mode": "hami-core",
        "health": True,
    }
    metadata = {"name": "hot", "resourceVersion": str(next(trial.fleet.versions))}
    metadata["annotations"] = {  # type: ignore[assignment]
        "hami.io/node-nvidia-register": json.dumps([card]),
        "hami.io/node-handshake": "Reported",
    }
    node = {"kind": "Node", "metadata": metadata, "spec": {}, "status": {}}
    connection.call("POST", "/api/v1/events?wait=30", {"events": [{"type": "ADDED", "object": node}]})
    for clients in (4, 1, 16, 64):
        runs = [
            _claims(trial, clients, max(4, 160 // clients), lambda _: ["hot"]) for _ in range(trial.rounds)
        ]
        name = f"reservations on one card, {clients} clients"
        rates = [run.rate / 2 for run in runs]
        taken = [second for run in runs for second in run.seconds]
        statuses = sorted({status for run in runs for status in run.statuses})
        is_crowd = clients > 4
        trial.report.rate(
            name,
            rates,
            "one card, 4 clients" if is_crowd else "",
            Goal(0.8, at_least=True) if is_crowd else None,
            p99_ms=percentile(taken, 0.99) * 1000,
            note=f"answers {statuses}",
        )
        if clients == 4:
            trial.report.yardsticks["one card, 4 clients"] = statistics.median(rates)


# --- events ---------------------------------------------------------------------------------------


def _changes(trial: Trial, number: int) -> list[fleets.Object]:
    """Events of pods that are there: their inits are done now, or run again; each changes something."""
    chance = random.Random(next(trial.numbers))
    made = []
    for _ in range(number):
        here, shape, node, uuid = chance.choice(trial.fleet.placed)
        version = next(trial.fleet.versions)
        made.append(fleets.pod(here, shape, version, at=(node, uuid), done=True))
    return made


def _new(trial: Trial, number: int) -> list[fleets.Object]:
    return list(trial.fleet.pods(number))


def _deletes(trial: Trial, objects: Sequence[fleets.Object]) -> list[dict[str, Any]]:
    return [
        {
            "type": "DELETED",
            "object": {
                **one,
                "metadata": {**one["metadata"], "resourceVersion": str(next(trial.fleet.versions))},
            },
        }
        for one in objects
    ]


def _drained(connection: Connection) -> None:
    """Waits until nothing waits; asked for often enough not to count."""
    quiet = threading.Event()
    while connection.call("GET", "/api/v1/cluster")["inbox"]["waiting"]:
        quiet.wait(0.01)


def events(trial: Trial) -> None:
    """Pods come and go: from the call to applied, and from stored to applied, in batches of 500."""
    connection = trial.stack.connect()
    _drained(connection)
    whole, stored = [], []
    number, batch = 5000, 500
    for _ in range(trial.rounds):
        arrivals = [{"type": "ADDED", "object": one} for one in _new(trial, number // 2)]
        made = arrivals + _deletes(trial, [one["object"] for one in arrivals])
        requests = [
            connection.request("POST", "/api/v1/events", {"events": made[start : start + batch]})
            for start in range(0, number, batch)
        ]
        before = perf_counter()
        posted = one_by_one(connection, requests)
        assert set(posted.statuses) == {202}, posted.statuses
        _drained(connection)
        taken = perf_counter() - before
        whole.append(number / taken)
    trial.report.rate(
        "events, from the call to applied, batches of 500", whole, PGBENCH, Goal(1, at_least=True)
    )
    for _ in range(trial.rounds):
        arrivals = [{"type": "ADDED", "object": one} for one in _new(trial, number // 2)]
        made = arrivals + _deletes(trial, [one["object"] for one in arrivals])
        requests = [
            connection.request("POST", "/api/v1/events", {"events": made[start : start + batch]})
            for start in range(0, number, batch)
        ]
        trial.stack.pause_worker()
        one_by_one(connection, requests)
        before = perf_counter()
        trial.stack.resume_worker()
        _drained(connection)
        stored.append(number / (perf_counter() - before))
    trial.report.rate(
        "events, from stored to applied, two workers", stored, PGBENCH, Goal(2.5, at_least=True)
    )


def memory(trial: Trial) -> None:
    """What one web process holds, warm."""
    limit = 150 if trial.fleet.nodes == 5000 else None
    trial.report.amount(f"memory of a web process, {trial.size}", "MiB", trial.stack.web_memory_mib(), limit)


def first_answer(trial: Trial) -> None:
    """A web process starts, and answers its first fit."""
    stack = trial.stack
    firsts = []
    for _ in range(trial.rounds):
        stack.web.stop()
        stack.web = stack.start_web()
        connection = stack.connect()
        before = perf_counter()
        connection.call("POST", "/api/v1/fit", {"pod": trial.asking(), "verdicts": False})
        firsts.append(perf_counter() - before)
    limit = 0.5 if trial.fleet.nodes == 5000 else None
    trial.report.amount(f"first fit after a start, {trial.size}", "s", statistics.median(firsts), limit)


SCENARIOS: dict[str, Callable[[Trial], None]] = {
    "fit": fit,
    "capacity": capacity,
    "quota-check": quota_check,
    "admission": admission,
    "reads": reads,
    "events": events,
    "reservations": reservations,
    "peers": peers,
    "memory": memory,
    "first-answer": first_answer,
}

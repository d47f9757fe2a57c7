"""Reservations: of one client, of many on cards of their own, of all on one card, and a peer's beside."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from bench import fleets, peers
from bench.client import Call, Connection, Run, crowd, one_by_one
from bench.figures import median_ms, p99_ms, percentile
from bench.trial import EMPTY, Trial, empty_views

HOT = "hot"
SMALL = fleets.Shape((), ((64, 0),))
BLOCK = 10
CROWD = 16


def one_client(trial: Trial) -> None:
    """Fit and reserve, and the release of what was held, by turns with the empty view."""
    connection = trial.stack.connect()
    reserving: list[list[float]] = []
    releasing: list[list[float]] = []
    yardsticks: list[float] = []
    for place in range(trial.extent.rounds + 1):
        taken, undone, beside = [], [], []
        for _ in range(max(2, trial.extent.calls // BLOCK // 2)):
            pods = [trial.asking() for _ in range(BLOCK)]
            beside += empty_views(connection, 2 * BLOCK)
            claims = [connection.request("POST", "/api/v1/reservations", {"pod": pod}) for pod in pods]
            run = one_by_one(connection, claims)
            assert set(run.statuses) == {201}, run.statuses
            taken += run.seconds
            undone += one_by_one(connection, [release(connection, pod) for pod in pods]).seconds
        if place:  # the first round warms
            reserving.append(taken)
            releasing.append(undone)
            yardsticks.append(median_ms(beside))
    for key, name, rounds in (
        ("fit-and-reserve", "fit and reserve, one client", reserving),
        ("release", "release, one client", releasing),
    ):
        trial.add(
            key,
            name,
            "ms",
            [median_ms(one) for one in rounds],
            p99s=[p99_ms(one) for one in rounds],
            beside=(EMPTY, yardsticks),
        )


def reserve(connection: Connection, pod: fleets.Object, node: str) -> bytes:
    return connection.request("POST", "/api/v1/reservations", {"pod": pod, "nodes": [node]})


def release(connection: Connection, pod: fleets.Object) -> bytes:
    return connection.request("DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}")


def by_turns(trial: Trial, node: Callable[[], str]) -> Callable[[Connection], Iterator[Call]]:
    """Each client reserves and releases by turns, so that there is always room; reservations count."""

    def calls_of(connection: Connection) -> Iterator[Call]:
        while True:
            pod = trial.asking(SMALL)
            yield Call(reserve(connection, pod, node()))
            yield Call(release(connection, pod), is_counted=False)

    return calls_of


def some_node(trial: Trial) -> Callable[[], str]:
    chance = random.Random(7)
    return lambda: fleets.node_name(chance.randrange(trial.fleet.nodes))


def crowd_of(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients} clients"


def told(runs: Iterable[Run]) -> str:
    """Which answers came, and how often, where not all are of one kind."""
    statuses: Counter[int] = Counter()
    for run in runs:
        statuses += run.statuses
    return ", ".join(f"{status}: {number}" for status, number in sorted(statuses.items()))


def spread(trial: Trial) -> None:
    """Many clients, each on some node of the fleet."""
    calls_of = by_turns(trial, some_node(trial))
    crowd(trial.stack.connect, CROWD, calls_of, trial.extent.seconds / 3)
    runs = [crowd(trial.stack.connect, CROWD, calls_of, trial.extent.seconds) for _ in trial.rounds]
    trial.add(
        "spread-16",
        f"reservations, {CROWD} clients, spread, each released at once",
        "/s",
        [run.rate for run in runs],
        p99s=[p99_ms(run.seconds) for run in runs],
        note=f"answers {told(runs)}",
    )


def add_hot_node(trial: Trial) -> None:
    """One node with one card that has room for everybody: all they can do is queue."""
    card = {
        "id": "GPU-hot",
        "count": 1_000_000,
        "devmem": 100_000_000,
        "devcore": 100,
        "type": "NVIDIA-A100",
        "mode": "hami-core",
        "health": True,
    }
    annotations = {"hami.io/node-nvidia-register": json.dumps([card]), "hami.io/node-handshake": "Reported"}
    version = str(next(trial.fleet.versions))
    metadata = {"name": HOT, "resourceVersion": version, "annotations": annotations}
    node = {"kind": "Node", "metadata": metadata, "spec": {}, "status": {}}
    connection = trial.stack.connect()
    connection.call("POST", "/api/v1/events?wait=30", {"events": [{"type": "ADDED", "object": node}]})


def hot_card(trial: Trial) -> None:
    """One card, and 1, 4, 16 and 64 clients by turns."""
    add_hot_node(trial)
    calls_of = by_turns(trial, lambda: HOT)
    crowd(trial.stack.connect, CROWD, calls_of, trial.extent.seconds / 3)
    runs: dict[int, list[Run]] = {clients: [] for clients in trial.extent.clients}
    for _ in trial.rounds:
        for clients in trial.extent.clients:
            runs[clients].append(crowd(trial.stack.connect, clients, calls_of, trial.extent.seconds))
    at_four = [run.rate for run in runs[4]]
    for clients, some in runs.items():
        trial.add(
            f"hot-{clients}",
            f"reservations on one card, {crowd_of(clients)}",
            "/s",
            [run.rate for run in some],
            p99s=[percentile(run.seconds, 0.99) * 1000 for run in some],
            beside=("4 clients on that card", at_four) if clients > 4 else ("", ()),
            note=f"answers {told(some)}",
        )


def beside_placement(trial: Trial) -> None:
    """Our reservation and Placement's PUT of an allocation by turns: same cards, same PostgreSQL."""
    programs = peers.environment()
    if programs is None:
        trial.say("Placement is not installed (make bench-peers): left out")
        return
    peer = peers.Placement(trial.stack, programs, trial.fleet.nodes)
    try:
        add_hot_node(trial)
        chance = random.Random(11)
        for where, card, node in (
            ("spread", lambda: chance.choice(peer.cards), some_node(trial)),
            ("one card", lambda: peer.hot, lambda: HOT),
        ):
            for clients in trial.extent.clients:
                _side_by_side(trial, peer, where, clients, card, node)
        _candidates(trial, peer)
        trial.add("placement-memory", "memory of a process of Placement", "MiB", [peer.peak_mib()])
    finally:
        peer.stop()


def _side_by_side(
    trial: Trial,
    peer: peers.Placement,
    where: str,
    clients: int,
    card: Callable[[], str],
    node: Callable[[], str],
) -> None:
    """What is claimed is given back after each round, by as many clients, outside the measured time."""
    theirs, ours = [], []
    is_goal = clients == CROWD
    seconds = trial.extent.seconds if is_goal else trial.extent.seconds / 2
    rounds = trial.extent.rounds if is_goal else max(2, trial.extent.rounds - 2)
    for place in range(rounds + 1):
        length = seconds if place else 0.5
        one = peer.claim(clients, card, length)
        other = _claim(trial, clients, node, length)
        if place:  # the first round warms
            theirs.append(one)
            ours.append(other)
    name = f"Placement, PUT of allocations, {crowd_of(clients)}, {where}"
    slug = where.replace(" ", "-")
    trial.add(
        f"placement-{slug}-{clients}",
        name,
        "/s",
        [run.rate for run in theirs],
        p99s=[p99_ms(run.seconds) for run in theirs],
        note=f"answers {told(theirs)}",
    )
    trial.add(
        f"claims-{slug}-{clients}",
        f"reservations, {crowd_of(clients)}, {where}",
        "/s",
        [run.rate for run in ours],
        p99s=[p99_ms(run.seconds) for run in ours],
        beside=(f"Placement's, {crowd_of(clients)}, {where}", [run.rate for run in theirs]),
        note=f"answers {told(ours)}",
    )


def _claim(trial: Trial, clients: int, node: Callable[[], str], seconds: float) -> Run:
    made: list[fleets.Object] = []

    def calls_of(connection: Connection) -> Iterator[Call]:
        while True:
            pod = trial.asking(SMALL)
            made.append(pod)
            yield Call(reserve(connection, pod, node()))

    run = crowd(trial.stack.connect, clients, calls_of, seconds)
    left = iter(made)

    def undo(connection: Connection) -> Iterator[Call]:
        for pod in left:
            yield Call(release(connection, pod))

    crowd(trial.stack.connect, clients, undo, peers.UNDO_SECONDS)
    return run


def _candidates(trial: Trial, peer: peers.Placement) -> None:
    """Placement's own search for a place, and our fit beside it."""
    theirs, ours = [], []
    path = "/allocation_candidates?limit=5&resources=VGPU:1,MEMORY_MB:8192"
    for place in range(3):
        of_peer, connection = peer.connect(), trial.stack.connect()
        body = {"pod": trial.asking(), "limit": 5, "verdicts": False}
        fit = connection.request("POST", "/api/v1/fit", body)
        beside = one_by_one(connection, [fit] * BLOCK).seconds
        taken = one_by_one(of_peer, [of_peer.request("GET", path)]).seconds
        if place:
            theirs.append(median_ms(taken))
            ours.append(median_ms(beside))
    trial.add(
        "placement-candidates",
        "Placement, GET of five allocation candidates",
        "ms",
        theirs,
        beside=("fit, best nodes, one container", ours),
    )

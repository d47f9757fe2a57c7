"""No answer may be older than the last commit before its question, whichever web process gives it.

Four writers send events, four reserve and release, each on a card of its own that nothing else touches; so
each use of a card says when it was so. Readers ask what fits there, of two web servers by turns.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from bench import fleets
from bench.client import Connection
from bench.trial import Trial

WRITERS = 8
READERS = 4
WIDE = 1_000_000
"""Slots and MiB of a card that many pods do not fill."""
HELD = 3
"""A writer gives one back when it holds so many more than it began with."""
ONE_MIB = fleets.Shape((), ((1, 0),))


@dataclass(slots=True)
class Writer:
    """The pods on its card: after each step that was begun, and how many steps were answered."""

    number: int
    states: list[int] = field(default_factory=lambda: [0])
    committed: int = 0
    pods: list[fleets.Object] = field(default_factory=list)

    @property
    def node(self) -> str:
        return f"fresh-{self.number}"

    @property
    def uuid(self) -> str:
        return f"GPU-fresh-{self.number}"

    @property
    def sends_events(self) -> bool:
        return self.number < WRITERS // 2

    def manifest(self, version: int) -> fleets.Object:
        card = {"id": self.uuid, "count": WIDE, "devmem": WIDE, "devcore": 100, "type": "NVIDIA-A100"}
        card |= {"mode": "hami-core", "health": True}
        annotations = {
            "hami.io/node-nvidia-register": json.dumps([card]),
            "hami.io/node-handshake": "Reported",
        }
        metadata = {"name": self.node, "resourceVersion": str(version), "annotations": annotations}
        return {"kind": "Node", "metadata": metadata, "spec": {}, "status": {}}

    def step(self, trial: Trial, connection: Connection) -> None:
        """One more pod, or after a few one less; every third call gives one back, so the use still rises."""
        gives_back = len(self.states) % HELD == 0
        self.states.append(self.states[-1] + (-1 if gives_back else 1))
        pod = self.pods.pop(0) if gives_back else None
        if self.sends_events:
            self._tell(trial, connection, pod)
        elif pod:
            connection.call("DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}")
        else:
            self.pods.append(trial.asking(ONE_MIB))
            connection.call("POST", "/api/v1/reservations", {"pod": self.pods[-1], "nodes": [self.node]})
        self.committed += 1

    def _tell(self, trial: Trial, connection: Connection, gone: fleets.Object | None) -> None:
        version = next(trial.fleet.versions)
        if gone:
            pod = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(version)}}
        else:
            at = self.node, self.uuid
            pod = fleets.pod(next(trial.numbers), ONE_MIB, version, at=at, done=True)
            self.pods.append(pod)
        event = {"type": "DELETED" if gone else "ADDED", "object": pod}
        told = connection.call("POST", "/api/v1/events?wait=60", {"events": [event]})
        assert [one["outcome"] for one in told["results"]] == ["applied"], told


def pods_shown(answer: Any) -> int:
    """A node's score is ten times the shares of slots and of memory that are used: a slot and a MiB a pod."""
    [best] = answer["candidates"]
    return round(best["score"] / 20 * WIDE)


@dataclass(slots=True)
class Tally:
    """What the readers found."""

    asked: int = 0
    stale: list[str] = field(default_factory=list)


def stale_answers(trial: Trial) -> None:
    """Eight writers and four readers for a while, at two web servers."""
    with trial.stack.another_web() as other:
        watch(trial, (trial.stack.port, other))


def watch(trial: Trial, ports: Sequence[int]) -> None:
    """The same at the servers of these ports."""
    writers = [Writer(number) for number in range(WRITERS)]
    connection = trial.stack.connect()
    added = [{"type": "ADDED", "object": one.manifest(next(trial.fleet.versions))} for one in writers]
    connection.call("POST", "/api/v1/events?wait=60", {"events": added})
    connection.close()
    done = threading.Event()
    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        writing = [pool.submit(_write, trial, one, ports[one.number % len(ports)], done) for one in writers]
        reading = [pool.submit(_read, trial, place, writers, ports, done) for place in range(READERS)]
        _first_failure(writing + reading, done, trial.extent.freshness_seconds)
        for future in writing:
            future.result()
        tallies = [future.result() for future in reading]
    stale = [one for tally in tallies for one in tally.stale]
    asked = sum(tally.asked for tally in tallies)
    written = sum(one.committed for one in writers)
    note = f"of {asked:,} answers while {written:,} changes were committed" + "".join(
        f"; {one}" for one in stale[:3]
    )
    trial.add(
        "stale",
        f"stale answers, eight writers, {trial.extent.freshness_seconds:g} s",
        "answers",
        [len(stale)],
        note=note,
    )


def _first_failure(futures: list[Any], done: threading.Event, seconds: float) -> None:
    """Returns after so many seconds, or when somebody cannot go on."""
    for future in futures:
        future.add_done_callback(lambda _: done.set())
    done.wait(seconds)
    done.set()


def _write(trial: Trial, writer: Writer, port: int, done: threading.Event) -> None:
    connection = trial.stack.connect(port)
    while not done.is_set():
        writer.step(trial, connection)
    connection.close()


def _read(
    trial: Trial, place: int, writers: list[Writer], ports: Sequence[int], done: threading.Event
) -> Tally:
    """Asks by turns of every card and every server, on new connections, so that all its processes answer."""
    tally = Tally()
    turns = cycle(ports)
    while not done.is_set():
        writer = writers[(tally.asked + place) % WRITERS]
        body = {"pod": trial.asking(ONE_MIB), "nodes": [writer.node], "limit": 1, "verdicts": False}
        connection = trial.stack.connect(next(turns))
        before = writer.committed
        found = pods_shown(connection.call("POST", "/api/v1/fit", body))
        may_be = writer.states[before:]
        connection.close()
        if found not in may_be:
            tally.stale.append(f"{writer.node}: {found} pods, not one of {may_be}")
        tally.asked += 1
    return tally

"""Many clients at once, and what their cluster's books must come to, whatever overtook what."""

from __future__ import annotations

import os
import random
import threading
import time
import urllib.error
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

from tests.live import Answer, LiveStack
from tests.model.books import Books, Event
from tests.model.delivery import FullList
from tests.model.lives import VENDORS, Cluster, Profile, watch_event
from tests.model.service import Pair, ThroughWorkers

# The way to the end does not matter for these: AMD's percents depend on which total was heard of last.
STEADY = Profile(
    pods=30, vendors=tuple(vendor for vendor in VENDORS if vendor != "AMD"), path_dependent=False
)
FIRST = int(os.environ.get("RACE_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("RACE_SEEDS", "1")))
PATIENCE_SECONDS = 90.0
NO_ANSWER = (urllib.error.URLError, HTTPException, OSError)


def history(seed: int, steps: int) -> tuple[Cluster, list[Event]]:
    """A cluster and all that happened in it; nobody is left dying at the end."""
    cluster = Cluster(seed, STEADY)
    events = [cluster.step() for _ in range(steps)]
    return cluster, [*events, *cluster.bury()]


def shuffled_calls(seed: int, events: Sequence[Event], *, biggest: int = 40) -> list[list[Event]]:
    """Every event twice, out of order, in calls of all sizes."""
    rng = random.Random(f"calls {seed}")
    told = [*enumerate(events), *enumerate(events)]
    told.sort(key=lambda pair: pair[0] + rng.choice((0, 0, 5, 30, len(events))) * rng.random())
    calls = []
    while told:
        size = rng.choice((1, 3, 10, biggest))
        calls.append([event for _, event in told[:size]])
        told = told[size:]
    return calls


def post_until_taken(stack: LiveStack, path: str, body: Any) -> Answer:
    """Sends until somebody took it: at least once, as any client that sees a broken connection."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = stack.post(path, body)
        except NO_ANSWER as fault:
            answer = Answer(503, {}, repr(fault))
        if answer.status != 503:
            return answer
        assert time.monotonic() < end, answer
        time.sleep(0.1)


class Crowd:
    """Clients that send calls of events at the same time, each call as soon as somebody is free."""

    def __init__(self, stack: LiveStack, clients: int = 4) -> None:
        self.stack = stack
        self._pool = ThreadPoolExecutor(clients)
        self._sent: list[Future[Answer]] = []

    def send(self, calls: Iterable[Sequence[Event]]) -> None:
        """Sends the calls, and returns at once."""
        for events in calls:
            body = {"events": [watch_event(event) for event in events]}
            self._sent.append(self._pool.submit(post_until_taken, self.stack, "/api/v1/events", body))

    @property
    def is_busy(self) -> bool:
        """Whether calls are still to be taken."""
        return not all(future.done() for future in self._sent)

    def are_done_within(self, seconds: float) -> bool:
        """Whether all is taken by then."""
        return not wait(self._sent, timeout=seconds).not_done

    def finish(self) -> None:
        """Waits until all is taken; fails where something was refused."""
        for future in self._sent:
            answer = future.result(PATIENCE_SECONDS)
            assert answer.status in (200, 202), answer
            assert not answer.body["rejected"], answer
        self._pool.shutdown()


@contextmanager
def meanwhile(stack: LiveStack, look: Callable[[LiveStack], None]) -> Any:
    """Looks again and again while the block runs; what it found wrong is raised at the end."""
    over = threading.Event()

    def looking() -> int:
        looks = 0
        while not over.is_set():
            look(stack)
            looks += 1
            over.wait(0.05)
        return looks

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(looking)
        try:
            yield
        finally:
            over.set()
        assert future.result() > 0


def books_agree(stack: LiveStack) -> None:
    """The audit at this very moment."""
    answer = stack.get("/api/v1/audit")
    assert answer.status == 200, answer
    assert answer.body["ok"], answer.body["discrepancies"]


def wait_until_settled(stack: LiveStack) -> None:
    """Returns when nothing waits in the inbox."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            answer = stack.get("/api/v1/cluster")
        except NO_ANSWER:
            answer = None
        if answer is not None and answer.status == 200 and not answer.body["inbox"]["waiting"]:
            return
        assert time.monotonic() < end, answer
        time.sleep(0.1)


def comes_to(stack: LiveStack, events: Iterable[Event]) -> None:
    """The books are exactly those of somebody who heard everything once and in order."""
    wait_until_settled(stack)
    books = Books()
    books.apply(sorted(events, key=lambda event: event.view.version))
    Pair(ThroughWorkers(stack), books).agree()


def nobody_complained(stack: LiveStack) -> None:
    """No log tells of a deadlock or of a fault of ours."""
    for log in sorted(stack.folder.glob("*.log")):
        for line in log.read_text(errors="replace").splitlines():
            assert "deadlock" not in line, (log.name, line)
            assert "Traceback" not in line, (log.name, line)


def switch_off(stack: LiveStack) -> None:
    """Ends the workers at once: there is nothing left that they could finish."""
    for name in [name for name in stack.processes if name != "web"]:
        stack.kill(name)


def list_of(cluster: Cluster, kind: str = "Pod") -> FullList:
    """The full list of the cluster as it is now."""
    return FullList(kind, cluster.version, cluster.views(kind))

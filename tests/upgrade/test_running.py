"""Old code goes on serving while the newest migrations are applied, then both serve, then the new alone.

`make prove-upgrade` does it. The old code is the tree of the commit before the newest migration came, or the
one named by UPGRADE_FROM, run by processes of its own; so it needs the history of this repository, and the
packages that are installed now.
"""

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench import fleets
from devservers import launch
from devservers.postgres import Postgres
from devservers.processes import Process, free_port
from devservers.pytest_plugin import OPERATOR_TOKEN
from devservers.valkey import Valkey
from tests.live import BEAT, WORKER, Caller
from tests.upgrade import store

SECONDS = float(os.environ.get("UPGRADE_SECONDS", "0"))
OLDEST = os.environ.get("UPGRADE_FROM") or store.names()[-1]
OLD_EVENTS = 200_000
NODES, PODS, CALLERS = 30, 600, 4
# What a migration may do at any time, here to every table, while today's code serves (docs/operations.md).
MORE = "ALTER TABLE {} ADD COLUMN of_tomorrow bigint NOT NULL DEFAULT 7"

pytestmark = pytest.mark.skipif(not SECONDS, reason="UPGRADE_SECONDS is not set: make prove-upgrade sets it")


class Service(Caller):
    """A tree's service: web, worker and beat, on one database and one broker."""

    def __init__(self, tree: Path, env: dict[str, str], folder: Path) -> None:
        self.tree, self.env = tree, env | {"PYTHONPATH": str(tree)}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir()
        words = {
            "worker": f"{WORKER} 2 --hostname {tree.name}@%h",
            "beat": BEAT,
            "web": f"hamiacct.server --port {self.port}",
        }
        self.processes = [
            Process(
                name,
                [sys.executable, "-m", *told.split()],
                log=folder / f"{name}.log",
                env=self.env,
                cwd=tree,
            )
            for name, told in words.items()
        ]
        launch.wait_for_web(self.processes[-1], self.port)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.stop()


@dataclass
class Traffic:
    """Callers who keep on asking those who serve now, and what came of it."""

    serving: list[Service]
    answers: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    slowest_seconds: float = 0
    _ends: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: count(10_000))
    _versions: Iterator[int] = field(default_factory=lambda: count(1_000_000))

    def begin(self) -> None:
        for place in range(CALLERS):
            self._threads.append(threading.Thread(target=self._go_on, args=(place,)))
            self._threads[-1].start()

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, place: int) -> None:
        turn = count(place)
        while not self._ends.is_set():
            with self._lock:
                service = self.serving[next(turn) % len(self.serving)]
                number = next(self._numbers)
            try:
                self._one_life(service, number)
            except OSError as fault:
                self.odd.append(f"{service.tree.name}: {fault}")

    def _one_life(self, service: Service, number: int) -> None:
        """A pod is asked about, reserved, given back, bound elsewhere, shrinks and ends."""
        pod = fleets.asking(number)
        self._ask(service, "fit", 200, "POST", "/api/v1/fit", {"pod": pod, "verdicts": False})
        self._ask(service, "quota", 200, "POST", "/api/v1/quota/check", {"pod": pod})
        held = self._ask(service, "reserve", 201, "POST", "/api/v1/reservations", {"pod": pod})
        if held is not None and number % 2:
            self._ask(service, "release", 204, "DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}")
        at = fleets.node_name(number % NODES), fleets.uuid_of(number % NODES, number % fleets.CARDS)
        for type_, done in (("ADDED", False), ("MODIFIED", True), ("DELETED", True)):
            seen = fleets.pod(number, fleets.STAGED, next(self._versions), at=at, done=done)
            events = {"events": [{"type": type_, "object": seen}]}
            self._ask(service, "events", 202, "POST", "/api/v1/events", events)

    def _ask(
        self, service: Service, name: str, good: int, method: str, path: str, body: Any = None
    ) -> Any | None:
        began = time.monotonic()
        answer = service.call(method, path, body)
        took = time.monotonic() - began
        with self._lock:
            self.answers[f"{service.tree.name[:6]} {name} {answer.status}"] += 1
            self.slowest_seconds = max(self.slowest_seconds, took)
            if answer.status != good:
                self.odd.append(f"{service.tree.name} {name}: {answer.status} {answer.body}")
        return answer.body if answer.status == good else None


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hamiacct-upgrade-") as place:
        Path(place).chmod(0o711)
        yield Path(place)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def manage(tree: Path, env: dict[str, str], *words: str) -> None:
    process = Process(
        words[0],
        [sys.executable, "manage.py", *words],
        log=tree.parent / f"{words[0]}.log",
        env=env | {"PYTHONPATH": str(tree)},
        cwd=tree,
    )
    while process.status is None:
        time.sleep(0.05)
    assert process.status == 0, process.last_words()


def test_old_code_serves_while_the_newest_migration_is_applied(folder: Path) -> None:
    old, new = store.tree_before(OLDEST, folder), store.ROOT
    database, broker = Postgres(folder, durable=False), Valkey(folder)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HAMIACCT_")}
    env = kept | {
        "HAMIACCT_DATABASE_URL": database.url,
        "HAMIACCT_REDIS_URL": broker.url,
        "HAMIACCT_SECRET_KEY": "upgrade",
        "HAMIACCT_BOOTSTRAP_TOKEN": OPERATOR_TOKEN,
        "HAMIACCT_LOG_LEVEL": "WARNING",
    }
    running: list[Service] = []
    try:
        manage(old, env, "migrate", "--no-input")
        running.append(Service(old, env, folder / "old"))
        traffic = Traffic(running[:])
        fill(running[0], database.url)
        traffic.begin()
        try:
            time.sleep(SECONDS)
            began = time.monotonic()
            manage(new, env, "migrate", "--no-input")
            say(f"\nmigrated beside {CALLERS} callers in {time.monotonic() - began:.1f} s")
            running.append(Service(new, env, folder / "new"))
            traffic.serving = running[:]
            time.sleep(SECONDS)
            traffic.serving = running[1:]
            time.sleep(1)  # what was asked of the old is answered
            running.pop(0).close()
            columns_of_tomorrow(database.url)
            time.sleep(SECONDS)
        finally:
            traffic.end()
        for name, number in sorted(traffic.answers.items()):
            say(f"{number:6} {name}")
        say(f"slowest answer {traffic.slowest_seconds:.2f} s")
        if traffic.odd:
            say((database.folder / "postgres.log").read_text()[-5000:])
        assert traffic.odd == []
        assert len({name.split()[0] for name in traffic.answers}) == 2
        everything_is_right(running[-1], database.url)
    finally:
        for service in running:
            service.close()
        broker.stop()
        database.stop()


def fill(service: Service, url: str) -> None:
    """A fleet, and as many old events as make an index of them take a while."""
    fleet = fleets.Fleet(NODES)
    for body in (fleet.node_list(), fleet.quota_list(), fleet.pod_list(PODS)):
        assert service.post("/api/v1/snapshots", body).status == 200
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO hamiacct_event (received_at, kind, type, namespace, name, uid, resource_version,"
            " history, body, state, replayed, attempts, detail, settled_at)"
            " SELECT now(), 'Pod', 'MODIFIED', 'team-' || n %% 50, 'pod-' || n, 'old-' || n, n, 1, '{}',"
            " 'applied', false, 0, '', now() FROM generate_series(1, %s) AS n",
            [OLD_EVENTS],
        )


def columns_of_tomorrow(url: str) -> None:
    """A column more in every table, as the next migration might bring, with the patience it would have."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '2s'")
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
            r" AND relname LIKE 'hamiacct\_%' ORDER BY relname"
        ).fetchall()
        for (table,) in tables:
            connection.execute(MORE.format(table).encode())


def everything_is_right(service: Service, url: str) -> None:
    """All that was answered is applied, once, and the books agree."""
    until = time.monotonic() + 60
    while service.get("/api/v1/cluster").body["inbox"]["waiting"] and time.monotonic() < until:
        time.sleep(0.2)
    found = service.get("/api/v1/audit").body
    assert found["ok"], found
    with psycopg.connect(url) as connection:
        left = connection.execute(
            "SELECT count(*) FROM hamiacct_event WHERE state NOT IN ('applied', 'stale')"
        ).fetchone()
        assert left == (0,)

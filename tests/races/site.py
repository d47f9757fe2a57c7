"""A whole installation on servers of its own, each of which can be killed: PostgreSQL with fsync on, Valkey,
an API server, web, two workers, beat and two watchers. What has ended is started again, as an init system
would.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from devservers import launch
from devservers.postgres import Postgres
from devservers.valkey import Valkey
from tests.kubeapi.server import ApiServer
from tests.live import LiveStack
from tests.races.crowd import NO_ANSWER

WEB, BEAT = "web", "beat"
WORKERS = ("worker-1", "worker-2")
WATCHERS = ("watcher-1", "watcher-2")
RESYNC_SECONDS = 5
HOLD_SECONDS = 60
"""What is held for a pod that is gone before anybody could tell of it runs out."""
MAX_LAG_SECONDS = 10
TOLD = ("deadlock", "Traceback", "double free", "could not serialize")
"""What no log of ours says while nobody is killed."""


class Site:
    """The servers, the processes, and the books as they are stored."""

    def __init__(self, folder: Path, api: ApiServer, **settings: Any) -> None:
        self.folder, self.api = folder, api
        self.database = Postgres(folder, durable=True)
        self.broker = Valkey(folder)
        self.stack = LiveStack(
            folder,
            with_redis=False,
            settings={
                "HAMIACCT_KUBECONFIG": str(api.kubeconfig(folder)),
                "HAMIACCT_SCHEDULER_MODE": "1",
                "HAMIACCT_RESYNC_SECONDS": str(RESYNC_SECONDS),
                "HAMIACCT_RESERVATION_TTL_SECONDS": str(HOLD_SECONDS),
                **{name: str(value) for name, value in settings.items()},
                "HAMIACCT_REDIS_URL": self.broker.url,
                "HAMIACCT_DATABASE_URL": self.database.url,
            },
        )
        self.stack.database_url, self.stack.redis_url = self.database.url, self.broker.url
        self._expected: list[str] = []
        self._changing = threading.RLock()
        launch.manage(self.stack.env, "migrate")

    def start(self, *names: str) -> None:
        """Starts these processes; from now on they are started again whenever they have ended."""
        for name in names:
            with self._changing:
                self._start(name)
                self._expected.append(name)

    def _start(self, name: str) -> None:
        if name == WEB:
            self.stack.start_web()
        elif name == BEAT:
            self.stack.start_beat()
        elif name in WORKERS:
            self.stack.start_worker(name, concurrency=1)
        else:
            self.stack.start_watcher(name)

    def running(self, names: Sequence[str]) -> list[str]:
        """Those of the names that were started."""
        return [name for name in names if name in self._expected]

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all below it; it is started again."""
        with self._changing:
            self.stack.kill(name)
            self._start(name)

    def look_after(self) -> list[str]:
        """Starts again what has ended by itself; answers what that was."""
        with self._changing:
            ended = [name for name in self._expected if self.stack.processes[name].status is not None]
            for name in ended:
                self._start(name)
        return ended

    def stop(self) -> None:
        """Ends everything, the processes first."""
        self.stack.close()
        self.broker.stop()
        self.database.stop()

    # --- what is stored

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Asks PostgreSQL itself. psycopg.Error while it is away."""
        with psycopg.connect(self.database.url, connect_timeout=5) as session:
            return session.execute(statement, parameters or None).fetchall()

    @property
    def deadlocks(self) -> int:
        """How often PostgreSQL had to break one, by its own count since it last came up."""
        ((count,),) = self.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(count)

    def idle_in_transaction(self) -> list[tuple[Any, ...]]:
        """Sessions that left a transaction open for a second or more."""
        return self.rows(
            "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%' AND state_change < clock_timestamp() - interval '1 s'"
        )

    def complaints(self) -> list[str]:
        """Lines of any log, PostgreSQL's among them, that tell of a deadlock or of a fault of ours."""
        return [
            f"{log.name}: {line}"
            for log in sorted(self.folder.glob("*.log"))
            for line in log.read_text(errors="replace").splitlines()
            if any(word in line for word in TOLD)
        ]

    def is_well(self) -> bool:
        """Whether it serves, follows the cluster, and the books agree."""
        try:
            cluster = self.stack.get("/api/v1/cluster", timeout=10)
            audit = self.stack.get("/api/v1/audit", timeout=30)
            ready = self.stack.get("/readyz", timeout=10)
        except NO_ANSWER:
            return False
        if (cluster.status, audit.status, ready.status) != (200, 200, 200):
            return False
        assert audit.body["ok"], audit.body["discrepancies"]
        if not all(self.api.watching(kind) for kind in ("nodes", "resourcequotas", "pods")):
            return False
        return (cluster.body["inbox"]["lag_seconds"] or 0) < MAX_LAG_SECONDS


def say(*lines: object) -> None:
    """For whoever runs a trial with `-s`."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


@contextmanager
def site(folder: Path, **settings: Any) -> Iterator[Site]:
    """A site with nothing started but its servers."""
    with ApiServer() as api:
        whole = Site(folder, api, **settings)
        try:
            yield whole
        finally:
            whole.stop()

"""The service as it runs in earnest, on servers of its own: PostgreSQL that syncs, Valkey, all processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import NamedTuple, TypeVar

import psutil
import psycopg

from bench.client import Connection
from devservers import launch
from devservers.postgres import Postgres
from devservers.processes import Failed, Process, free_port
from devservers.valkey import Valkey

TOKEN = "a-token-for-the-bench"
WORKERS = 2
LOOK_SECONDS = 0.01
DRAINED_SECONDS = 300
WAITING = "FROM hamiacct_event WHERE state = 'waiting' AND attempts >= 0"
SOME_WAIT = f"SELECT EXISTS (SELECT {WAITING})"
OLDEST_WAITING = f"SELECT min(resource_version) {WAITING}"


Started = TypeVar("Started", Process, Postgres, Valkey)


class Ran(NamedTuple):
    """A program that has ended: what it said, how long it took and what it held at most."""

    output: str
    seconds: float
    peak_mib: float


class Stack:
    """Everything, started; `with` ends it."""

    port: int
    token = TOKEN
    folder: Path
    database_url: str
    postgres: Path
    """The server's program; pgbench is looked for beside it."""
    env: dict[str, str]
    web: Process
    worker: Process
    beat: Process | None = None

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._started: list[Process | Postgres | Valkey] = []
        try:
            self._start()
        except BaseException:  # Ctrl-C as well: what was started must not outlive us
            self.stop()
            raise

    def _start(self) -> None:
        postgres = self._keep(Postgres(self.folder, durable=True))
        self.database_url, self.postgres = postgres.url, postgres.program
        valkey = self._keep(Valkey(self.folder))
        self.env = {name: text for name, text in os.environ.items() if not name.startswith("HAMIACCT_")}
        self.env |= {
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "HAMIACCT_DATABASE_URL": self.database_url,
            "HAMIACCT_REDIS_URL": valkey.url,
            "HAMIACCT_SECRET_KEY": "bench",
            "HAMIACCT_BOOTSTRAP_TOKEN": TOKEN,
            "HAMIACCT_LOG_LEVEL": "WARNING",
            # What is measured is the work; how far it lags behind is a figure of its own.
            "HAMIACCT_MAX_LAG_SECONDS": "86400",
        }
        launch.manage(self.env, "migrate", "--no-input")
        self.web = self.start_web(self.port)
        words = ["celery", "-A", "hamiacct.celery", "worker", "--concurrency", str(WORKERS), "-l", "WARNING"]
        log = self.folder / "worker.log"
        self.worker = self._keep(launch.python("worker", words, self.env, log))
        beat = ["celery", "-A", "hamiacct.celery", "beat", "--pidfile="]
        self.beat = self._keep(launch.python("beat", beat, self.env, self.folder / "beat.log"))

    def _keep(self, started: Started) -> Started:
        self._started.append(started)
        return started

    def start_web(self, port: int) -> Process:
        """A web server, its processes with it, that answers."""
        words = ["hamiacct.server", "--port", str(port)]
        web = self._keep(launch.python("web", words, self.env, self.folder / "web.log"))
        launch.wait_for_web(web, port)
        return web

    def restart_web(self) -> None:
        """So that nobody holds what he held before."""
        self._end(self.web)
        self.web = self.start_web(self.port)

    @contextmanager
    def another_web(self) -> Iterator[int]:
        """A second web server on the same database; its port."""
        port = free_port()
        web = self.start_web(port)
        try:
            yield port
        finally:
            self._end(web)

    def _end(self, process: Process) -> None:
        self._started.remove(process)
        process.stop()

    def stop(self) -> None:
        """Ends everything, the last that was started first."""
        while self._started:
            self._started.pop().stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def connect(self, port: int | None = None) -> Connection:
        return Connection(port or self.port, self.token)

    # --- workers ----------------------------------------------------------------------------------

    @contextmanager
    def paused_workers(self) -> Iterator[None]:
        """The workers stand still meanwhile, and take up what was stored when it ends."""
        paused = self._with_children(self.worker)
        for one in paused:
            one.suspend()
        try:
            yield
        finally:
            for one in paused:
                one.resume()

    def drained(self) -> None:
        """Returns when no event waits. The database is asked, by its index of what waits: the cluster's
        totals over HTTP cost more than what is measured."""
        quiet, end = threading.Event(), monotonic() + DRAINED_SECONDS
        with self.database() as database:
            while database.execute(SOME_WAIT).fetchone() == (True,):
                if monotonic() > end:
                    raise Failed(f"events still wait after {DRAINED_SECONDS} s")
                quiet.wait(LOOK_SECONDS)

    def database(self) -> psycopg.Connection:
        return psycopg.connect(self.database_url, autocommit=True)

    def last_words(self) -> str:
        """The ends of the logs of ours, for somebody who wonders why a scenario failed."""
        return "\n".join(
            f"{one.name}: {words}" for one in (self.web, self.worker) if (words := one.last_words(8))
        )

    # --- memory -----------------------------------------------------------------------------------

    def forget_peaks(self) -> None:
        """From here on peaks are counted anew, where the system can (Linux)."""
        for one in self._measured().values():
            for process in one:
                try:
                    Path(f"/proc/{process.pid}/clear_refs").write_text("5")
                except OSError:
                    continue

    def peaks_mib(self) -> dict[str, float]:
        """The most that any process of a role has held at once, in MiB."""
        return {role: max(map(peak_mib, some)) for role, some in self._measured().items() if some}

    def _measured(self) -> dict[str, list[psutil.Process]]:
        """The processes of each role; none of one that has ended."""
        return {
            "web": self._with_children(self.web)[1:],
            "worker": self._with_children(self.worker)[1:],
            "beat": self._with_children(self.beat)[:1] if self.beat else [],
        }

    def _with_children(self, process: Process) -> list[psutil.Process]:
        """The process and all below it; none once it has ended."""
        try:
            master = psutil.Process(process.pid)
            return [master, *master.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    # --- programs ---------------------------------------------------------------------------------

    def manage(self, *words: str) -> Ran:
        """manage.py, run to its end, with what it took."""
        watched = [sys.executable, "-m", "bench.watched", sys.executable, "manage.py", *words]
        ran = subprocess.run(watched, cwd=launch.ROOT, env=self.env, capture_output=True, text=True)
        if ran.returncode:
            raise Failed(f"manage.py {words[0]} failed:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
        seconds, peak = ran.stderr.splitlines()[-1].split()
        return Ran(ran.stdout, float(seconds), float(peak))

    def pgbench(self, clients: int, seconds: float) -> float:
        """Transactions per second of pgbench's simple update on the same server. Failed without pgbench."""
        program = pgbench_program(self.postgres)
        url = re.sub(r"/hamiacct$", "/yardstick", self.database_url)
        with self.database() as connection:
            there = "SELECT 1 FROM pg_database WHERE datname = 'yardstick'"
            is_new = connection.execute(there).fetchone() is None
            if is_new:
                connection.execute("CREATE DATABASE yardstick")
        if is_new:
            subprocess.run([program, "-i", "-s", "10", "-q", url], check=True, capture_output=True)
        words = ["--client", str(clients), "--jobs", "2", "--time", str(max(1, round(seconds)))]
        ran = subprocess.run([program, *words, "-N", "-n", url], check=True, capture_output=True, text=True)
        found = re.search(r"tps = ([\d.]+)", ran.stdout)
        assert found, ran.stdout
        return float(found[1])


def pgbench_program(postgres: Path) -> str:
    """The one beside the server, else the machine's own."""
    beside = postgres.with_name("pgbench")
    program = str(beside) if beside.exists() else shutil.which("pgbench")
    if not program:
        raise Failed("pgbench is not on this machine (Debian: postgresql-contrib or postgresql)")
    return program


def peak_mib(process: psutil.Process) -> float:
    """The most a process has held, in MiB; what it holds now where the system does not tell."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return process.memory_info().rss / 2**20 if process.is_running() else 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0

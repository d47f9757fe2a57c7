"""The service as it runs in earnest, on servers of its own: PostgreSQL that syncs, Valkey, web, workers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import psutil
import psycopg

from bench.client import Connection
from devservers import launch
from devservers.postgres import Postgres
from devservers.processes import Failed, Process, free_port
from devservers.valkey import Valkey

TOKEN = "a-token-for-the-bench"


class Stack:
    """Everything, started; `with` ends it."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self.folder = folder
        self.port = free_port()
        self.postgres = Postgres(folder, durable=True)
        self.valkey = Valkey(folder)
        self.env = {name: text for name, text in os.environ.items() if not name.startswith("HAMIACCT_")}
        self.env |= {
            "DJANGO_SETTINGS_MODULE": "bench.settings",
            "HAMIACCT_DATABASE_URL": self.postgres.url,
            "HAMIACCT_REDIS_URL": self.valkey.url,
            "HAMIACCT_SECRET_KEY": "bench",
            "HAMIACCT_BOOTSTRAP_TOKEN": TOKEN,
            "HAMIACCT_LOG_LEVEL": "WARNING",
            # What is measured is the work; how far it lags behind is a figure of its own.
            "HAMIACCT_MAX_LAG_SECONDS": "86400",
        }
        launch.manage(self.env, "migrate", "--no-input")
        self.web = self.start_web()
        words = ["celery", "-A", "hamiacct.celery", "worker", "--concurrency", str(workers), "-l", "WARNING"]
        self.worker = launch.python("worker", words, self.env, folder / "worker.log")
        beat = ["celery", "-A", "hamiacct.celery", "beat", "--pidfile="]
        self.beat = launch.python("beat", beat, self.env, folder / "beat.log")

    def start_web(self) -> Process:
        web = launch.python(
            "web", ["hamiacct.server", "--port", str(self.port)], self.env, self.folder / "web.log"
        )
        launch.wait_for_web(web, self.port)
        return web

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self.web, self.worker, self.beat, self.valkey, self.postgres):
            one.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self) -> Connection:
        return Connection(self.port, TOKEN)

    def pause_worker(self) -> None:
        """Stops the workers where they are, and forgets that one was woken."""
        for one in self._workers():
            one.suspend()

    def resume_worker(self) -> None:
        for one in self._workers():
            one.resume()

    def _workers(self) -> list[psutil.Process]:
        master = psutil.Process(self.worker.pid)
        return [master, *master.children(recursive=True)]

    def web_memory_mib(self) -> float:
        """The largest resident set of one web process, in MiB."""
        children = psutil.Process(self.web.pid).children(recursive=True)
        return max(child.memory_info().rss for child in children) / 2**20

    def pgbench(self, clients: int, seconds: int) -> float:
        """Transactions per second of pgbench's simple update on the same server. Failed without pgbench."""
        beside = Path(self.postgres.program).with_name("pgbench")
        program = str(beside) if beside.exists() else shutil.which("pgbench")
        if not program:
            raise Failed("pgbench is not on this machine (Debian: postgresql-contrib or postgresql)")
        url = re.sub(r"/hamiacct$", "/yardstick", self.postgres.url)
        with_client = ["--client", str(clients), "--jobs", "2", "--time", str(seconds), "-N", "-n", url]
        if "yardstick" not in self._databases():
            self._sql("CREATE DATABASE yardstick")
            subprocess.run([program, "-i", "-s", "10", "-q", url], check=True, capture_output=True)
        told = subprocess.run([program, *with_client], check=True, capture_output=True, text=True).stdout
        found = re.search(r"tps = ([\d.]+)", told)
        assert found, told
        return float(found[1])

    def _databases(self) -> list[str]:
        return self._sql("SELECT datname FROM pg_database")

    def _sql(self, text: str) -> list[str]:
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            cursor = connection.execute(text)
            return [row[0] for row in cursor.fetchall()] if cursor.description else []

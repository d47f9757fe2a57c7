"""The service as it runs in earnest: a web server, Celery workers and beat, each a process of its own."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psutil
import redis
from django.db import connection

from devservers import launch
from devservers.processes import Process, free_port
from devservers.pytest_plugin import OPERATOR_TOKEN

WORKER = "celery -A hamiacct.celery worker --without-gossip --without-mingle --concurrency"
BEAT = "celery -A hamiacct.celery beat --pidfile="


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the status, the headers (names in lower case), and the body, read as JSON if it is."""

    status: int
    headers: dict[str, str]
    body: Any


class Caller:
    """Somebody who asks the service at `url`."""

    url: str

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = OPERATOR_TOKEN,
        content_type: str = "application/json",
        timeout: float = 60,
    ) -> Answer:
        """One request. `body` is sent as it is when it is bytes, else as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", content_type)
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return answer_of(response.status, response.headers.items(), response.read())
        except urllib.error.HTTPError as response:
            return answer_of(response.code, response.headers.items(), response.read())

    def get(self, path: str, **options: Any) -> Answer:
        """A GET."""
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        """A POST."""
        return self.call("POST", path, body, **options)


class LiveStack(Caller):
    """A running service on the test database. `processes` holds what runs, by name: web, worker, beat."""

    def __init__(self, folder: Path, *, with_redis: bool, settings: dict[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.database_url = database_url()
        self.redis_url = os.environ["HAMIACCT_TEST_REDIS_URL"] if with_redis else ""
        self.processes: dict[str, Process] = {}
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("HAMIACCT_")}
        self.env |= {
            "HAMIACCT_DATABASE_URL": self.database_url,
            "HAMIACCT_REDIS_URL": self.redis_url,
            "HAMIACCT_SECRET_KEY": os.environ["HAMIACCT_SECRET_KEY"],
            "HAMIACCT_BOOTSTRAP_TOKEN": OPERATOR_TOKEN,
            **settings,
        }

    def start_web(self) -> None:
        """Starts the web server and returns when it answers."""
        words = ["hamiacct.server", "--port", str(self.port)]
        self._start("web", words)
        launch.wait_for_web(self.processes["web"], self.port)

    def start_worker(self, name: str = "worker", *, concurrency: int = 2) -> None:
        """Starts a worker; what was sent before it is up waits for it."""
        self._start(name, [*WORKER.split(), str(concurrency), "--hostname", f"{name}@%h"])

    def start_beat(self) -> None:
        """Starts beat."""
        self._start("beat", BEAT.split())

    def start_watcher(self, name: str = "watcher") -> None:
        """Starts what follows the cluster of HAMIACCT_KUBECONFIG."""
        self._start(name, ["manage", "watch"])

    def _start(self, name: str, words: list[str]) -> None:
        self.processes[name] = launch.python(name, words, self.env, self.folder / f"{name}.log")

    def kill(self, name: str) -> None:
        """SIGKILL to the process and all that it started, as a machine that is switched off."""
        self.processes.pop(name).kill()

    def stop(self, name: str) -> None:
        """Ends the process as an operator would."""
        self.processes.pop(name).stop()

    def children(self, name: str) -> list[int]:
        """The process ids below the named process: a worker's pool, a web server's workers."""
        return [child.pid for child in psutil.Process(self.processes[name].pid).children(recursive=True)]

    def flush_redis(self) -> None:
        """Loses everything that the broker holds."""
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushdb()

    def close(self) -> None:
        """Ends everything, the web first, so that nothing is asked of those that are gone."""
        for name in sorted(self.processes, key=lambda name: name != "web"):
            self.stop(name)


def answer_of(status: int, headers: Iterable[tuple[str, str]], raw: bytes) -> Answer:
    named = {name.lower(): value for name, value in headers}
    is_json = "json" in named.get("content-type", "")
    return Answer(status, named, json.loads(raw) if is_json and raw else raw)


def database_url() -> str:
    """The URL of the database that this test works on."""
    given = urlsplit(os.environ["HAMIACCT_DATABASE_URL"])
    return urlunsplit(given._replace(path=f"/{connection.settings_dict['NAME']}"))

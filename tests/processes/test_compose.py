"""docker-compose.yml, without an engine: Compose reads it, and its very commands run as processes.

What only an engine can show (the image, names of the network) is replaced: the databases are the tests' own,
and the web process listens on a port that is free.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from devservers import launch
from devservers.processes import Process, free_port
from tests import watch
from tests.live import Caller

ROOT = Path(__file__).parents[2]
PROFILES = ("watcher", "monitoring")
BIN = Path(sys.executable).parent
TOKEN = "compose-token"
OURS = ("migrate", "web", "worker", "beat", "watcher")


def compose(*words: str) -> subprocess.CompletedProcess[str]:
    """`docker compose` with what a .env file would hold."""
    env = {"HAMIACCT_SECRET_KEY": "a$$key", "POSTGRES_PASSWORD": "secret", "HAMIACCT_BOOTSTRAP_TOKEN": TOKEN}
    flags = [flag for profile in PROFILES for flag in ("--profile", profile)]
    command = [BIN / "docker-compose", "--file", ROOT / "docker-compose.yml", *flags, *words]
    path = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        command, env=path | env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as Compose reads them."""
    read = compose("config", "--format", "json")
    assert read.returncode == 0, read.stderr
    return dict(json.loads(read.stdout)["services"])


def test_it_holds_the_service_and_what_it_needs(services: dict[str, Any]) -> None:
    assert services.keys() == {*OURS, "postgres", "redis", "prometheus", "grafana"}
    profiles = {name: one["profiles"] for name, one in services.items() if "profiles" in one}
    assert profiles == {"watcher": ["watcher"], "prometheus": ["monitoring"], "grafana": ["monitoring"]}
    for name in OURS:
        assert services[name]["read_only"]
        assert services[name]["cap_drop"] == ["ALL"]
    for name in ("postgres", "redis", "web", "worker"):
        assert services[name]["healthcheck"]["test"], name
    for one in services.values():
        assert all(port["host_ip"] == "127.0.0.1" for port in one.get("ports", ()))


def test_what_it_mounts_is_there(services: dict[str, Any]) -> None:
    mounted = [
        Path(volume["source"])
        for one in services.values()
        for volume in one.get("volumes", ())
        if volume["type"] == "bind" and "kubeconfig" not in volume["target"]
    ]
    assert mounted
    assert [path for path in mounted if not path.exists()] == []


def test_without_its_secrets_it_says_which_are_missing() -> None:
    command = [BIN / "docker-compose", "--file", ROOT / "docker-compose.yml", "config", "-q"]
    read = subprocess.run(
        command, env={"PATH": os.environ["PATH"]}, cwd="/", capture_output=True, text=True, check=False
    )
    assert read.returncode != 0
    assert "is needed" in read.stderr


# --- its commands, started ------------------------------------------------------------------------


@pytest.fixture
def empty_database() -> Iterator[str]:
    """The URL of a new database on the tests' server: the compose file migrates its own."""
    given = urlsplit(os.environ["HAMIACCT_DATABASE_URL"])
    name = f"test_compose_{os.getpid()}"
    with psycopg.connect(urlunsplit(given._replace(path="/postgres")), autocommit=True) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {name}")
        yield urlunsplit(given._replace(path=f"/{name}"))
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


class Runner:
    """Starts services of the compose file, each with its own command and environment."""

    def __init__(self, services: dict[str, Any], folder: Path, database_url: str) -> None:
        self.services, self.folder = services, folder
        self.port, self.metrics_port = free_port(), free_port()
        redis_url = os.environ["HAMIACCT_TEST_REDIS_URL"]
        self.here = {"HAMIACCT_DATABASE_URL": database_url, "HAMIACCT_REDIS_URL": redis_url}
        self.running: dict[str, Process] = {}

    def env(self, name: str) -> dict[str, str]:
        env = {**self.services[name]["environment"], **self.here}
        if env.get("HAMIACCT_METRICS_PORT"):
            env["HAMIACCT_METRICS_PORT"] = str(self.metrics_port)
        return {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOSTNAME": socket.gethostname(),
            "HOME": str(self.folder),
            **env,
        }

    def command(self, name: str) -> list[str]:
        words = self.services[name]["command"]
        return [str(self.port) if word == "8000" else word for word in words]

    def start(self, name: str) -> Process:
        env = self.env(name)
        program, *words = self.command(name)
        found = shutil.which(program, path=env["PATH"])
        assert found, f"{program} is not in the environment that the image holds"
        log = self.folder / f"{name}.log"
        self.running[name] = Process(name, [found, *words], log=log, env=env, cwd=ROOT)
        return self.running[name]

    def check(self, name: str) -> subprocess.CompletedProcess[str]:
        """The service's own health check."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        words = [word.replace(":8000/", f":{self.port}/").replace("$$", "$") for word in words]
        command = ["sh", "-c", *words] if kind == "CMD-SHELL" else words
        return subprocess.run(
            command, env=self.env(name), cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )


def test_its_commands_are_a_service(services: dict[str, Any], tmp_path: Path, empty_database: str) -> None:
    runner = Runner(services, tmp_path, empty_database)
    migrated = subprocess.run(
        runner.command("migrate"),
        env=runner.env("migrate"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert migrated.returncode == 0, migrated.stderr
    try:
        web = runner.start("web")
        worker, beat = runner.start("worker"), runner.start("beat")
        launch.wait_for_web(web, runner.port)
        assert runner.check("web").returncode == 0, runner.check("web").stderr
        caller = Caller()
        caller.url = f"http://127.0.0.1:{runner.port}"
        node = watch.node("n1", watch.card("GPU-a"))
        answer = caller.post("/api/v1/events?wait=30", watch.events(node), token=TOKEN)
        assert (answer.status, answer.body["results"][0]["outcome"]) == (200, "applied")
        assert caller.get("/api/v1/nodes/n1", token=TOKEN).body["devices"]
        assert caller.get("/api/v1/nodes/n1", token="another").status == 401
        pong = runner.check("worker")
        assert pong.returncode == 0, pong.stdout + pong.stderr
        assert [one.status for one in (web, worker, beat)] == [None, None, None]
    finally:
        for process in runner.running.values():
            process.stop()
    assert [runner.running[name].status for name in ("web", "worker", "beat")] == [0, 0, 0]

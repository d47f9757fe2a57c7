"""OpenStack Placement beside us: the same cards as resource providers, on the same PostgreSQL.

It lives in an environment of its own, .venv-peers, which `make bench-peers` makes.
"""

from __future__ import annotations

import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psutil
import psycopg

from bench import fleets
from bench.client import Call, Connection, Run, crowd
from bench.stack import Stack, peak_mib
from devservers.processes import Process, free_port

ROOT = Path(__file__).resolve().parent.parent
VERSION = "1.39"
WORKERS = 2
"""As many as our own web server has."""
BLOCKING_THREADS = 4
"""With 2, 8 and 12 it was no faster beyond the spread of the rounds."""
CONSUMER = {"project_id": str(uuid.uuid4()), "user_id": str(uuid.uuid4()), "consumer_type": "POD"}
ROOM = 100_000_000
UNDO_SECONDS = 600.0


def environment() -> Path | None:
    """Where its programs are; None where it is not installed."""
    folder = ROOT / ".venv-peers"
    return folder / "bin" if (folder / "bin" / "placement-manage").exists() else None


class PlacementConnection(Connection):
    """A connection with Placement's headers instead of ours."""

    def request(self, method: str, path: str, body: object = None) -> bytes:
        content = b"" if body is None else orjson.dumps(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: admin\r\n"
            f"OpenStack-API-Version: placement {VERSION}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


class Placement:
    """A running Placement that holds every card of the fleet, and one that has room for everybody."""

    def __init__(self, stack: Stack, programs: Path, nodes: int) -> None:
        self.port = free_port()
        self.url = re.sub(r"/hamiacct$", "/placement", stack.database_url)
        folder = stack.folder / "placement"
        folder.mkdir()
        driver = self.url.replace("postgresql://", "postgresql+psycopg2://")
        (folder / "placement.conf").write_text(
            "[DEFAULT]\nlog_file = /dev/null\ndefault_log_levels = placement=WARN,sqlalchemy=WARN,oslo=WARN\n"
            f"[placement_database]\nconnection = {driver}\nmax_pool_size = {BLOCKING_THREADS}\n"
            "[api]\nauth_strategy = noauth2\n"
        )
        with psycopg.connect(stack.database_url, autocommit=True) as server:
            server.execute("CREATE DATABASE placement")
        env = {"PATH": f"{programs}:{os.environ['PATH']}", "OS_PLACEMENT_CONFIG_DIR": str(folder)}
        sync = [programs / "placement-manage", "--config-file", folder / "placement.conf", "db", "sync"]
        subprocess.run(sync, env=env, check=True, capture_output=True)
        words = ["placement.wsgi.api:application", "--interface", "wsgi", "--port", str(self.port)]
        words += ["--workers", str(WORKERS), "--blocking-threads", str(BLOCKING_THREADS), "--no-ws"]
        self.process = Process("placement", [programs / "granian", *words], log=folder / "web.log", env=env)
        self._wait()
        self.hot = str(uuid.uuid4())
        self.cards = self._fill(nodes)

    def connect(self) -> PlacementConnection:
        return PlacementConnection(self.port, "")

    def stop(self) -> None:
        self.process.stop()

    def _wait(self) -> None:
        while True:
            self.process.check()
            try:
                self.connect().call("GET", "/")
                return
            except OSError:
                continue

    def _fill(self, nodes: int) -> list[str]:
        """The cards, written as its own API would have: one provider a card, with slots, memory and cores."""
        connection = self.connect()
        for name in ("CUSTOM_GPU_CORES",):
            connection.send(connection.request("PUT", f"/resource_classes/{name}"))
        names = [
            str(uuid.uuid5(uuid.NAMESPACE_URL, fleets.uuid_of(place, card)))
            for place in range(nodes)
            for card in range(fleets.CARDS)
        ]
        with psycopg.connect(self.url, autocommit=True) as database:
            classes = dict(database.execute("SELECT name, id FROM resource_classes").fetchall())
            with database.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO resource_providers (uuid, name, generation) VALUES (%s, %s, 1)",
                    [(name, name) for name in (*names, self.hot)],
                )
                cursor.execute("UPDATE resource_providers SET root_provider_id = id")
                sizes = {
                    "VGPU": fleets.SLOTS,
                    "MEMORY_MB": fleets.MEMORY_MIB,
                    "CUSTOM_GPU_CORES": fleets.CORES,
                }
                for kind, size in sizes.items():
                    cursor.execute(
                        "INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved,"
                        " min_unit, max_unit, step_size, allocation_ratio)"
                        " SELECT id, %s, CASE WHEN uuid = %s THEN %s ELSE %s END, 0, 1, %s, 1, 1.0"
                        " FROM resource_providers",
                        [classes[kind], self.hot, ROOM, size, ROOM],
                    )
            database.execute("ANALYZE")
        return names

    def claim(self, clients: int, card: Callable[[], str], seconds: float) -> Run:
        """PUTs of new allocations by so many clients; what was claimed is given back outside the time."""
        consumers: list[str] = []

        def claims(connection: Connection) -> Iterator[Call]:
            while True:
                consumer = str(uuid.uuid4())
                consumers.append(consumer)
                resources = {"VGPU": 1, "MEMORY_MB": 64}
                body = {"allocations": {card(): {"resources": resources}}, "consumer_generation": None}
                yield Call(connection.request("PUT", f"/allocations/{consumer}", body | CONSUMER))

        run = crowd(self.connect, clients, claims, seconds)
        left = iter(consumers)

        def undo(connection: Connection) -> Iterator[Call]:
            for consumer in left:
                yield Call(connection.request("DELETE", f"/allocations/{consumer}"))

        crowd(self.connect, clients, undo, UNDO_SECONDS)
        return run

    def peak_mib(self) -> float:
        """The most that one of its processes has held."""
        return max(map(peak_mib, psutil.Process(self.process.pid).children(recursive=True)))

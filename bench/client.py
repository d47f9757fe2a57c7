"""A client that costs little: connections that stay, requests written before, answers read to the end."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

TIMEOUT_SECONDS = 600


class Connection:
    """One connection to the service."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """The bytes of a request; the body as JSON."""
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    def send(self, request: bytes) -> tuple[int, bytes]:
        """Status and body."""
        self._socket.sendall(request)
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(one[15:]) for one in lines if one.startswith(b"content-length:")), 0)
        self._buffer = rest
        while len(self._buffer) < length:
            self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return int(lines[0].split()[1]), body

    def _more(self) -> None:
        chunk = self._socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._buffer += chunk

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call that must succeed; the answer's JSON."""
        status, answer = self.send(self.request(method, path, body))
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Run:
    """What a number of calls took: seconds of each in order, seconds of all, and the answers' statuses."""

    seconds: tuple[float, ...]
    whole: float
    statuses: dict[int, int]

    @property
    def rate(self) -> float:
        """Calls answered with success, per second."""
        return sum(number for status, number in self.statuses.items() if status < 300) / self.whole


def one_by_one(connection: Connection, requests: Sequence[bytes]) -> Run:
    """One client, one call after the other."""
    taken: list[float] = []
    statuses: dict[int, int] = {}
    start = perf_counter()
    for request in requests:
        before = perf_counter()
        status, _ = connection.send(request)
        taken.append(perf_counter() - before)
        statuses[status] = statuses.get(status, 0) + 1
    return Run(tuple(taken), perf_counter() - start, statuses)


def at_once(
    connect: Callable[[], Connection], clients: int, requests_of: Callable[[int, Connection], Sequence[bytes]]
) -> Run:
    """So many clients, each with its own calls, begun together."""
    runs: list[Run] = []
    faults: list[BaseException] = []
    gate = threading.Barrier(clients + 1)

    def work(client: int) -> None:
        try:
            connection = connect()
            requests = requests_of(client, connection)
            gate.wait()
            runs.append(one_by_one(connection, requests))
            connection.close()
        except BaseException as fault:  # noqa: BLE001 - told to whoever started us
            faults.append(fault)
            gate.abort()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # the fault is raised below
        gate.wait()
    start = perf_counter()
    for thread in threads:
        thread.join()
    whole = perf_counter() - start
    if faults:
        raise faults[0]
    statuses: dict[int, int] = {}
    for run in runs:
        for status, number in run.statuses.items():
            statuses[status] = statuses.get(status, 0) + number
    return Run(tuple(second for run in runs for second in run.seconds), whole, statuses)

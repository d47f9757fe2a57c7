"""A client that costs little: connections that stay, answers read to the end, many clients in one thread.

It shares two cores with what it measures, so everybody who is measured is asked by the same one.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import orjson

TIMEOUT_SECONDS = 600


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


class Connection:
    """One connection to the service."""

    def __init__(self, port: int, token: str) -> None:
        self._headers = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        """The bytes of a request; the body as JSON."""
        content = b"" if body is None else orjson.dumps(body)
        head = (
            f"{method} {path} HTTP/1.1\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content

    def begin(self, request: bytes) -> None:
        """Sends; the answer is waited for by others."""
        self.socket.sendall(request)

    def more(self) -> Answer | None:
        """Reads what is there; the answer, once all of it is."""
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        self._buffer += chunk
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.lower().split(b"\r\n")
        length = next((int(one[15:]) for one in lines if one.startswith(b"content-length:")), 0)
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return Answer(int(lines[0].split()[1]), rest[:length])

    def send(self, request: bytes) -> Answer:
        """One call, whatever comes of it."""
        self.begin(request)
        while (answer := self.more()) is None:
            pass
        return answer

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call that must succeed; the answer's JSON."""
        status, answer = self.send(self.request(method, path, body))
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer[:500]!r}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        self.socket.close()


class Call(NamedTuple):
    """One call of a client; what is not counted only makes room for the next."""

    request: bytes
    is_counted: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """What counted calls took: seconds of each, seconds of all together, and how often each status came."""

    seconds: tuple[float, ...]
    whole_seconds: float
    statuses: Counter[int]

    @property
    def rate(self) -> float:
        """Counted calls answered with success, per second."""
        return sum(n for status, n in self.statuses.items() if status < 300) / self.whole_seconds


def one_by_one(connection: Connection, requests: Sequence[bytes]) -> Run:
    """One client, one call after the other."""
    taken: list[float] = []
    statuses: Counter[int] = Counter()
    start = perf_counter()
    for request in requests:
        before = perf_counter()
        answer = connection.send(request)
        taken.append(perf_counter() - before)
        statuses[answer.status] += 1
    return Run(tuple(taken), perf_counter() - start, statuses)


@dataclass(slots=True)
class _Client:
    """One of a crowd, and the call it waits for."""

    connection: Connection
    calls: Iterator[Call]
    since: float = 0.0
    call: Call | None = None

    def go_on(self, is_over: bool) -> bool:
        """Sends its next call. False where there is none, or the time is up and it would be counted."""
        call = next(self.calls, None)
        if call is None or (is_over and call.is_counted):
            return False
        self.call, self.since = call, perf_counter()
        self.connection.begin(call.request)
        return True


def crowd(
    connect: Callable[[], Connection],
    clients: int,
    calls_of: Callable[[Connection], Iterator[Call]],
    seconds: float,
) -> Run:
    """Clients that call at once, each its own calls one after the other, for so many seconds.

    One thread serves all of them, so the client costs the same however many there are. A call that was sent
    in time is waited for, and the time until the last one counts. Connections are new: a server may close
    those that were quiet while others were measured.
    """
    connections = [connect() for _ in range(clients)]
    taken: list[float] = []
    statuses: Counter[int] = Counter()
    start = end = perf_counter()
    with selectors.DefaultSelector() as selector:
        busy = 0
        for connection in connections:
            client = _Client(connection, calls_of(connection))
            selector.register(connection.socket, selectors.EVENT_READ, client)
            busy += client.go_on(is_over=False)
        while busy:
            for key, _ in selector.select(TIMEOUT_SECONDS):
                client = key.data
                answer = client.connection.more()
                if answer is None:
                    continue
                now = perf_counter()
                assert client.call is not None
                if client.call.is_counted:
                    end = now
                    taken.append(now - client.since)
                    statuses[answer.status] += 1
                busy -= not client.go_on(is_over=now - start > seconds)
    for connection in connections:
        connection.close()
    return Run(tuple(taken), end - start, statuses)

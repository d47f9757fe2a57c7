"""A way to PostgreSQL on which one chosen round trip goes wrong: on the wire, whatever speaks over it.

A round trip is one question and the whole of its answer: a statement, a BEGIN, a COMMIT, the making of a
prepared statement. Of a lost answer the client cannot know whether what it asked for was done.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

LOCALHOST = "127.0.0.1"
ENCRYPTION_ASKED = (80877103, 80877104)
"""What a client sends before it starts, to ask for TLS or GSSAPI."""
HEAD = struct.Struct("!cI")


class Fault(StrEnum):
    """What goes wrong with a round trip."""

    QUESTION_LOST = "the session ends before the statement"
    ANSWER_LOST = "the session ends after the statement, before its answer"
    BUSY = "the server breaks a deadlock instead"
    BROKEN = "the server fails instead"

    @property
    def state(self) -> str:
        """The SQLSTATE of what the server says."""
        return {Fault.BUSY: "40P01", Fault.BROKEN: "XX000"}[self]


class Gone(Exception):
    """One side has closed."""


@dataclass(slots=True)
class Plan:
    """How many round trips there were so far, and which one meets what."""

    number: int = -1
    fault: Fault | None = None
    seen: int = 0

    @property
    def has_struck(self) -> bool:
        """Whether it came to that round trip."""
        return self.fault is not None and self.seen > self.number


class Wire:
    """Listens at `port` and leads to the server; without a plan nothing is changed."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server((LOCALHOST, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    @contextmanager
    def counting(self) -> Iterator[Plan]:
        """Counts the round trips of the block."""
        with self.struck(-1, None) as plan:
            yield plan

    @contextmanager
    def struck(self, number: int, fault: Fault | None) -> Iterator[Plan]:
        """The round trip of that number, counted from 0 within the block, meets the fault."""
        plan = Plan(number, fault)
        with self._lock:
            self._plan = plan
        try:
            yield plan
        finally:
            with self._lock:
                self._plan = None

    def close(self) -> None:
        """Nobody comes in any more."""
        self._listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # closing the listener ends the wait
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._lead, args=(client,), daemon=True).start()

    def _lead(self, client: socket.socket) -> None:
        with client, socket.create_connection((LOCALHOST, self._server_port)) as server:
            for side in (client, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(Gone, OSError):  # either side left, or was cut off by the fault
                self._start(client, server)
                while True:
                    self._round_trip(client, server)

    def _start(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            length = _exactly(client, 4)
            body = _exactly(client, int.from_bytes(length) - 4)
            if int.from_bytes(body[:4]) not in ENCRYPTION_ASKED:
                break
            client.sendall(b"N")
        server.sendall(length + body)
        client.sendall(_until(server, b"Z"))

    def _round_trip(self, client: socket.socket, server: socket.socket) -> None:
        asked = _until(client, b"QSX")
        fault = self._next_fault()
        match fault:
            case Fault.QUESTION_LOST:
                raise Gone
            case Fault.BUSY | Fault.BROKEN:
                statement = f"DO $$ BEGIN RAISE SQLSTATE '{fault.state}'; END $$".encode() + b"\0"
                asked = HEAD.pack(b"Q", len(statement) + 4) + statement
        server.sendall(asked)
        answer = _until(server, b"Z")
        if fault is Fault.ANSWER_LOST:
            raise Gone
        client.sendall(answer)

    def _next_fault(self) -> Fault | None:
        with self._lock:
            plan = self._plan
            if plan is None:
                return None
            plan.seen += 1
            return plan.fault if plan.seen == plan.number + 1 else None


def _until(side: socket.socket, last: bytes) -> bytes:
    """Whole messages, up to and with the first of one of these types."""
    found = bytearray()
    while True:
        head = _exactly(side, HEAD.size)
        kind, length = HEAD.unpack(head)
        found += head + _exactly(side, length - 4)
        if kind in last:
            return bytes(found)


def _exactly(side: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = side.recv(count - len(found))
        if not part:
            raise Gone
        found += part
    return bytes(found)

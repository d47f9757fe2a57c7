"""Very many clients at once, each with a connection of its own, out of one loop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from devservers.pytest_plugin import OPERATOR_TOKEN

# What a client that was sent away is told by.
COME_BACK = (429, 503)


@dataclass(frozen=True, slots=True)
class Call:
    """What one client asks."""

    method: str
    path: str
    body: Any = None

    @property
    def text(self) -> bytes:
        body = b"" if self.body is None else json.dumps(self.body).encode()
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {OPERATOR_TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer: when to come back, where it says so, and how long it took."""

    status: int
    come_back_seconds: int | None
    seconds: float
    body: Any


def at_once(port: int, calls: Sequence[Call], *, patience: float) -> list[Answered]:
    """Each call by a client of its own, all at the same time; fails where one is not answered in time."""

    async def everybody() -> list[Answered]:
        return await asyncio.gather(*(_ask(port, call, patience) for call in calls))

    return asyncio.run(everybody())


def in_turns(port: int, calls: Sequence[Call], clients: int, *, patience: float) -> list[Answered]:
    """So many clients, each with one connection, who take the calls between them, one after the other."""
    left = list(reversed(calls))

    async def one() -> list[Answered]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers = []
        while left:
            answers.append(await _say(reader, writer, left.pop(), patience))
        writer.close()
        return answers

    async def everybody() -> list[Answered]:
        found = await asyncio.gather(*(one() for _ in range(clients)))
        return [answer for some in found for answer in some]

    return asyncio.run(everybody())


async def _ask(port: int, call: Call, patience: float) -> Answered:
    async with asyncio.timeout(patience):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await _say(reader, writer, call, patience)
        finally:
            writer.close()


async def _say(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, call: Call, patience: float
) -> Answered:
    began = time.monotonic()
    async with asyncio.timeout(patience):
        writer.write(call.text)
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
    again = headers.get("retry-after")
    return Answered(
        int(first.split()[1]),
        int(again) if again else None,
        time.monotonic() - began,
        json.loads(raw) if raw else None,
    )

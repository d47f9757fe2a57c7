"""One fleet on one running stack, and how a call is measured beside the empty view."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle, islice
from time import perf_counter

from bench import fleets
from bench.client import Connection, one_by_one
from bench.figures import Figure, median_ms, p99_ms
from bench.stack import Stack

EMPTY = "empty view"
PGBENCH = "pgbench -N, 8 clients"
BLOCK_SECONDS = 0.1
LARGEST_BLOCK = 25
WARM = 3
"""Calls at the beginning of a block that do not count: they find the caches full of the other's."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of everything: a developer's two minutes, or the figures that count."""

    rounds: int = 5
    calls: int = 300
    """Of each question in a round."""
    seconds: float = 3.0
    """Of a round of claims or of pgbench, and at most of a round of calls."""
    events: int = 10_000
    """Of a round."""
    stream_seconds: float = 20.0
    stream_rate: int = 1_000
    """Events a second of the steady stream."""
    burst: int = 20_000
    replayed: int = 100_000
    freshness_seconds: float = 60.0
    clients: tuple[int, ...] = (1, 4, 16, 64)
    """Of claims at once."""


FULL = Extent()
QUICK = Extent(
    rounds=2,
    calls=50,
    seconds=1.0,
    events=1_000,
    stream_seconds=3.0,
    stream_rate=200,
    burst=2_000,
    replayed=3_000,
    freshness_seconds=3.0,
    clients=(4, 16),
)


@dataclass(slots=True)
class Trial:
    """What scenarios work with; they add their figures."""

    stack: Stack
    fleet: fleets.Fleet
    pods: int
    extent: Extent
    figures: list[Figure] = field(default_factory=list)
    scenario: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: count(10_000_000))

    @property
    def rounds(self) -> range:
        return range(self.extent.rounds)

    def say(self, message: str) -> None:
        """For whoever looks on."""
        print(f"  {message}", file=sys.stderr)

    def asking(self, shape: fleets.Shape = fleets.PLAIN) -> fleets.Object:
        """A new pod that looks for a place."""
        return fleets.asking(next(self.numbers), shape)

    def add(
        self,
        key: str,
        name: str,
        unit: str,
        rounds: Sequence[float],
        *,
        p99s: Sequence[float] = (),
        beside: tuple[str, Sequence[float]] = ("", ()),
        note: str = "",
    ) -> None:
        """One figure of this scenario; `beside` is a yardstick's name and what it gave in each round."""
        yardstick, yardsticks = beside
        self.figures.append(
            Figure(
                self.scenario,
                key,
                name,
                unit,
                tuple(rounds),
                tuple(p99s),
                yardstick,
                tuple(yardsticks),
                note,
            )
        )

    def latency(self, key: str, name: str, requests: Sequence[bytes]) -> None:
        """One client's calls by turns with the empty view, on one connection, warm."""
        connection = self.stack.connect()
        warm = one_by_one(connection, requests[: max(WARM, len(requests) // 5)])
        block = max(2, min(LARGEST_BLOCK, int(BLOCK_SECONDS / statistics.median(warm.seconds))))
        calls = cycle(requests)
        rounds = [beside_empty(connection, calls, block, self.extent) for _ in self.rounds]
        connection.close()
        wrong = {status for one in rounds for status in one.wrong}
        self.add(
            key,
            name,
            "ms",
            [median_ms(one.seconds) for one in rounds],
            p99s=[p99_ms(one.seconds) for one in rounds],
            beside=(EMPTY, [median_ms(one.empty) for one in rounds]),
            note=f"answers {sorted(wrong)}" if wrong else "",
        )


@dataclass(slots=True)
class Round:
    """Seconds of calls and of the empty view's, and what was answered that is no success."""

    seconds: list[float] = field(default_factory=list)
    empty: list[float] = field(default_factory=list)
    wrong: set[int] = field(default_factory=set)


def empty_views(connection: Connection, number: int) -> tuple[float, ...]:
    """Seconds of so many empty views, after some that only warm."""
    request = connection.request("GET", "/bench/empty")
    return one_by_one(connection, [request] * (WARM + number)).seconds[WARM:]


def beside_empty(connection: Connection, calls: Iterator[bytes], block: int, extent: Extent) -> Round:
    """So many calls, or for so many seconds, some at a time between as many of the empty view's."""
    found, start = Round(), perf_counter()
    while len(found.seconds) < extent.calls and (
        len(found.seconds) < 2 * block or perf_counter() - start < extent.seconds
    ):
        found.empty += empty_views(connection, LARGEST_BLOCK)
        warm = WARM if block > WARM else 0
        run = one_by_one(connection, list(islice(calls, warm + block)))
        found.seconds += run.seconds[warm:]
        found.wrong |= {status for status in run.statuses if status >= 300}
    return found

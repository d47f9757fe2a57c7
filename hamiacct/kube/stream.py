"""A watch, read by a thread of its own, so that whoever uses it waits no longer than he wants to.

The thread hands over lines as they came; what is not taken fills the buffer, then the connection's own, and
then the API server's: who cannot keep up reads no more, and costs no memory. Left, a reader that waits for
the network ends with the next line, or when the stream has been silent for too long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from hamiacct.accounting.errors import Unavailable
from hamiacct.kube import client
from hamiacct.kube.client import Client, Manifest

MAX_WAITING_BYTES = 8 * 2**20
OPEN_SECONDS = 10.0
"""How long an API server may take to begin an answer: it does so before the first event."""


class Reader:
    """One watch. `take` gives what has come; the fault that ended it comes after all that came before."""

    def __init__(
        self, cluster: Client, kind: str, *, version: int, seconds: int, field_selector: str
    ) -> None:
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._is_open = self._has_ended = self._is_left = False
        self._fault: BaseException | None = None
        self._watch = cluster.watch(kind, version=version, seconds=seconds, field_selector=field_selector)
        threading.Thread(target=self._read, name=f"watch of {kind}", daemon=True).start()

    def _read(self) -> None:
        fault: BaseException | None = None
        try:
            with self._watch as lines:
                with self._changed:
                    self._is_open = True
                    self._changed.notify_all()
                for line in lines:
                    if not self._put(line):
                        return
        except Exception as raised:  # noqa: BLE001  # it is raised again, where somebody hears it
            fault = raised
        finally:
            with self._changed:
                self._fault, self._has_ended = fault, True
                self._changed.notify_all()

    def _put(self, line: bytes) -> bool:
        """Hands a line over, when there is room for it; False when nobody wants any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_left or self._waiting_bytes < MAX_WAITING_BYTES)
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify_all()
            return not self._is_left

    def open(self) -> None:
        """Waits until the stream is open; raises what prevented it."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_open or self._has_ended, OPEN_SECONDS)
            if not self._is_open:
                raise self._fault or Unavailable(f"the watch was not answered within {OPEN_SECONDS:.0f} s")

    def take(self, most: int, *, wait_seconds: float, moment_seconds: float) -> list[bytes] | None:
        """At most so many lines: those that come within a moment of the first. [] where none came in time.

        None when the stream has ended by itself; raises the fault that ended it otherwise.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._has_ended, wait_seconds)
            if self._lines:
                self._changed.wait_for(lambda: self._is_full(most) or self._has_ended, moment_seconds)
                taken = [self._lines.popleft() for _ in range(min(most, len(self._lines)))]
                self._waiting_bytes -= sum(map(len, taken))
                self._changed.notify_all()
                return taken
            if self._fault:
                raise self._fault
            return None if self._has_ended else []

    def _is_full(self, most: int) -> bool:
        return len(self._lines) >= most or self._waiting_bytes >= MAX_WAITING_BYTES

    def leave(self) -> None:
        """Nobody takes any more; what has come is let go."""
        with self._changed:
            self._is_left = True
            self._lines.clear()
            self._changed.notify_all()


@contextmanager
def reading(
    cluster: Client, kind: str, *, version: int, seconds: int, field_selector: str
) -> Iterator[Reader]:
    """An open watch, left at the end. Unavailable, or Gone, where it cannot be opened."""
    reader = Reader(cluster, kind, version=version, seconds=seconds, field_selector=field_selector)
    try:
        reader.open()
        yield reader
    finally:
        reader.leave()


def events_of(lines: list[bytes]) -> tuple[list[Manifest], Unavailable | None]:
    """The events of lines, up to the first that is none: what that one says comes with them."""
    events: list[Manifest] = []
    for line in lines:
        try:
            events.append(client.event_of(line))
        except Unavailable as fault:
            return events, fault
    return events, None

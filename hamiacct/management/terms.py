"""The watcher's time in office: what its threads share while it holds the lease, and how they wait."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hamiacct.accounting.words import Kind

BACKOFF_FIRST_SECONDS = 0.5
BACKOFF_MOST_SECONDS = 30.0
LOOK_SECONDS = 0.2


class Over(Exception):
    """The term is over: the lease is lost, or the process is to end. Nothing more is applied."""


@dataclass(slots=True)
class Term:
    """From taking the lease to losing it. `valid_until` (monotonic) moves with each renewal.

    Past that time another watcher may have begun, so nothing is applied until the lease was renewed.
    `listed` tells of each kind whether its first list went through.
    """

    holder: str
    fail: Callable[[Exception], None]
    valid_until: float
    over: threading.Event = field(default_factory=threading.Event)
    listed: dict[Kind, threading.Event] = field(
        default_factory=lambda: {kind: threading.Event() for kind in Kind}
    )

    def check(self) -> None:
        """Returns while the lease is held, waits where that is not known; Over when it is lost."""
        while time.monotonic() > self.valid_until and not self.over.wait(LOOK_SECONDS):
            pass
        if self.over.is_set():
            raise Over

    def wait(self, seconds: float) -> None:
        """Waits; Over as soon as it is."""
        if self.over.wait(seconds):
            raise Over


class Backoff:
    """Waits that grow from half a second to half a minute, each by chance up to a half shorter."""

    def __init__(self) -> None:
        self._seconds = BACKOFF_FIRST_SECONDS

    def next(self, at_least: float = 0.0) -> float:
        """How long to wait now, and not less than was asked for."""
        seconds = max(self._seconds * random.uniform(0.5, 1.0), at_least)  # noqa: S311  # no secret
        self._seconds = min(self._seconds * 2, BACKOFF_MOST_SECONDS)
        return seconds

    def reset(self) -> None:
        """All is well again."""
        self._seconds = BACKOFF_FIRST_SECONDS

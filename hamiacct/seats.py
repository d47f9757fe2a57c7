"""Seats: how many requests of a kind are worked on at once, and how many may wait for that.

Kinds have seats of their own, so a flood of one never takes another's: whoever asks for a bind waits for the
API server, whoever sends a full list keeps a thread for a minute, and the webhook is answered all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

Guest = TypeVar("Guest")


class Kind(StrEnum):
    """What requests have in common that wait for the same."""

    PROBES = "probes"
    WEBHOOKS = "webhooks"  # kube-apiserver's and kube-scheduler's questions: a cluster waits for the answer
    QUESTIONS = "questions"
    CLAIMS = "claims"
    BINDS = "binds"
    EVENTS = "events"
    LISTS = "lists"
    READS = "reads"


AT_ONCE: Mapping[Kind, int] = {
    Kind.PROBES: 2,
    Kind.WEBHOOKS: 3,
    Kind.QUESTIONS: 3,
    Kind.CLAIMS: 12,  # those that wait for the database are served together, with one connection
    Kind.BINDS: 2,
    Kind.EVENTS: 3,
    Kind.LISTS: 1,
    Kind.READS: 2,
}
MOST_WAITING = 256
# One caller alone never fills a waiting room: somebody else still gets in.
MOST_WAITING_OF_ONE = 128


class Turned(StrEnum):
    """Why a guest may not even wait."""

    FULL = "full"
    TOO_MANY_OF_ONE = "too many of one"


_BY_PATH = {
    "/livez": Kind.PROBES,
    "/readyz": Kind.PROBES,
    "/webhook": Kind.WEBHOOKS,
    "/extender/filter": Kind.WEBHOOKS,
    "/extender/prioritize": Kind.WEBHOOKS,
    "/extender/bind": Kind.BINDS,
    "/api/v1/fit": Kind.QUESTIONS,
    "/api/v1/quota/check": Kind.QUESTIONS,
    "/api/v1/capacity": Kind.QUESTIONS,
    "/api/v1/reservations": Kind.CLAIMS,
    "/api/v1/events": Kind.EVENTS,
    "/api/v1/snapshots": Kind.LISTS,
}
_BELOW = (("/webhook/", Kind.WEBHOOKS), ("/api/v1/reservations/", Kind.CLAIMS))


def kind_of(path: str) -> Kind:
    """The kind of a request, by its path; what nothing waits for are reads."""
    known = _BY_PATH.get(path)
    if known is not None:
        return known
    return next((kind for prefix, kind in _BELOW if path.startswith(prefix)), Kind.READS)


class Seats(Generic[Guest]):
    """Who is seated and who waits, by kind; first come, first served. Not for several threads at once."""

    def __init__(
        self,
        at_once: Mapping[Kind, int] = AT_ONCE,
        most_waiting: int = MOST_WAITING,
        most_of_one: int = MOST_WAITING_OF_ONE,
    ) -> None:
        self._free = dict(at_once)
        self._waiting: dict[Kind, dict[Guest, str]] = {kind: {} for kind in at_once}
        self._callers: Counter[tuple[Kind, str]] = Counter()
        self._most_waiting, self._most_of_one = most_waiting, most_of_one

    def take(self, kind: Kind) -> bool:
        """Whether there was a seat free, which is taken now."""
        if not self._free[kind]:
            return False
        self._free[kind] -= 1
        return True

    def wait(self, kind: Kind, guest: Guest, caller: str) -> Turned | None:
        """Has the guest wait for a seat, of whom `caller` is the one who sent it; or why it may not."""
        if len(self._waiting[kind]) >= self._most_waiting:
            return Turned.FULL
        if self._callers[kind, caller] >= self._most_of_one:
            return Turned.TOO_MANY_OF_ONE
        self._waiting[kind][guest] = caller
        self._callers[kind, caller] += 1
        return None

    def give_up(self, kind: Kind, guest: Guest) -> None:
        """A guest that waits waits no longer."""
        caller = self._waiting[kind].pop(guest)
        self._callers[kind, caller] -= 1
        if not self._callers[kind, caller]:
            del self._callers[kind, caller]

    def leave(self, kind: Kind) -> Guest | None:
        """A seat is free: it goes to the guest that has waited longest; None where nobody waits."""
        guest = next(iter(self._waiting[kind]), None)
        if guest is None:
            self._free[kind] += 1
        else:
            self.give_up(kind, guest)
        return guest

"""A fault after every single statement: whatever was done so far, a retry makes the books right.

The fault is one of three: the database is busy (two waited for each other), the session is gone, or
something of ours is broken. Each statement of a drain has its turn with each of them, and those of
storing a call. Of a full list they share the statements between them: FAULT_EVERY (default 6) is how many
lie between two faults of one sort; 1 is all of them.
"""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from rest_framework.test import APIClient

from hamiacct.operations import inbox
from tests.model.books import Event, NodeView, PodView, QuotaView
from tests.model.delivery import KINDS, FullList
from tests.model.lives import Cluster, Profile, watch_event
from tests.model.service import InTheRequest, Pair

pytestmark = pytest.mark.django_db(transaction=True)

LIVELY = Profile(nodes=2, pods=4)
STEPS = 16


class Broken(Exception):
    """Something of ours."""


class Fault:
    """Strikes once, after the statement with that number; remembers whether it came to it."""

    def __init__(self, number: int, strike: Callable[[], None]) -> None:
        self.number, self.strike = number, strike
        self.seen = 0

    @property
    def struck(self) -> bool:
        return self.seen > self.number

    def __call__(self, execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(statement, params, many, context)
        self.seen += 1
        if self.seen == self.number + 1:
            self.strike()
        return result


def busy() -> None:
    """What a deadlock looks like to the one that is chosen to give way."""
    raise OperationalError("deadlock detected") from psycopg.errors.DeadlockDetected()


def gone() -> None:
    """The server ended the session: whatever was not committed is as if it had never been."""
    connection.connection.close()
    raise OperationalError("terminating connection") from psycopg.errors.AdminShutdown()


def broken() -> None:
    """A fault of ours."""
    raise Broken


EVERY = int(os.environ.get("FAULT_EVERY", "6"))
STORING = 12
SORTS = [busy, gone, broken]
STRIKES = pytest.mark.parametrize("strike", SORTS)


def some_life(seed: int) -> list[Event]:
    """A short piece of a small cluster's life, in an order in which it can be told; all names are its own."""
    cluster = Cluster(seed, LIVELY)
    return [cluster.step() for _ in range(STEPS)]


def now() -> datetime:
    return datetime.now(UTC)


def struck_by(fault: Fault, act: Callable[[], object]) -> bool:
    """Acts under the fault; whether it struck. What it raises is what the one who acts would see."""
    try:
        with connection.execute_wrapper(fault):
            act()
    except (OperationalError, Broken):
        connection.close()
    return fault.struck


@STRIKES
def test_a_drain_that_fails_anywhere_is_made_good_by_the_next(
    api: APIClient, strike: Callable[[], None]
) -> None:
    pair = Pair(InTheRequest(api))
    number = 0
    while True:
        events = later(some_life(seed=5), number)
        expected = pair.books.apply(events)
        receipt = inbox.receive([watch_event(event) for event in events], at=now())
        assert receipt.accepted == len(events)
        if not struck_by(Fault(number, strike), lambda: inbox.drain(at=now())):
            break
        inbox.drain(at=now())
        assert not inbox.drain(at=now()), "something still waits"
        assert expected
        pair.agree()
        number += 1
    assert number > 20, "a drain has more statements than that"


def later(events: Sequence[Event], round_: int) -> list[Event]:
    """The same life told again as another, later one: other names, higher versions."""
    return [Event(event.type, _later(event.view, round_)) for event in events]


def _later(view: PodView | NodeView | QuotaView, round_: int) -> Any:
    version = view.version + round_ * 1_000_000
    if isinstance(view, PodView):
        named = {"uid": f"{view.uid}-{round_}", "name": f"{view.name}-{round_}"}
        return type(view)(**{**view.__dict__, **named, "version": version})
    return type(view)(**{**view.__dict__, "version": version})


@STRIKES
def test_a_call_that_fails_anywhere_is_made_good_by_sending_it_again(
    api: APIClient, strike: Callable[[], None]
) -> None:
    pair = Pair(InTheRequest(api))
    for number in range(STORING):
        events = later(some_life(seed=6), number)
        body = {"events": [watch_event(event) for event in events]}
        fault = Fault(number, strike)
        with connection.execute_wrapper(fault):
            first = pair.service.post("/api/v1/events", body)
        assert fault.struck
        connection.close()
        assert first.status in (200, 202, 500, 503), first
        pair.books.apply(events)
        again = pair.service.post("/api/v1/events", body)
        assert again.status == 200, again
        inbox.drain(at=now())
        pair.agree()


@STRIKES
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_list_that_fails_anywhere_is_made_good_by_sending_it_again(
    api: APIClient, strike: Callable[[], None], kind: str
) -> None:
    pair = Pair(InTheRequest(api))
    number = SORTS.index(strike) * EVERY // len(SORTS)
    while True:
        cluster = Cluster(7, LIVELY)
        events = [cluster.step() for _ in range(STEPS)]
        told = later(events, number)
        half = [event for place, event in enumerate(told) if place % 3]
        pair.books.apply(half)
        answer = pair.service.post("/api/v1/events", {"events": [watch_event(event) for event in half]})
        assert answer.status == 200, answer
        views = [_later(view, number) for view in cluster.views(kind)]
        full = FullList(kind, cluster.version + number * 1_000_000, views)
        fault = Fault(number, strike)
        with connection.execute_wrapper(fault):
            first = pair.service.post("/api/v1/snapshots", full.body())
        if not fault.struck:
            break
        connection.close()
        assert first.status in (200, 500, 503), first
        again = pair.service.post("/api/v1/snapshots", full.body())
        assert again.status == 200, again
        pair.books.take_list(kind, full.version, full.views)
        pair.agree()
        number += EVERY
    assert number > 10, "a full list has more statements than that"

"""What every history begins with: a cluster, the service, the model; and what is true after each step.

A history is one transaction of the database that is rolled back, so the next begins with nothing. What the
service does in transactions of its own are savepoints in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar, NamedTuple

from django.db import connection, transaction
from django.utils import timezone
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from rest_framework.test import APIClient

from hamiacct.operations import audit
from hamiacct.queries import fleet
from tests.model.books import Books, Event, PodView, kind_of
from tests.model.lives import watch_event
from tests.proof import tally
from tests.proof.stored import Stored
from tests.proof.town import Town

NAMESPACES = ("team-a", "team-b")
NAMES = ("web", "db", "job")
NODES = ("n1", "n2")

news: Bundle[Event] = Bundle("news")


def step(**arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """A rule that is counted."""

    def counted(do: Callable[..., Any]) -> Any:
        @wraps(do)
        def run(self: Desk, **drawn: Any) -> Any:
            tally.rules[f"{do.__name__}"] += 1
            return do(self, **drawn)

        return rule(**arguments)(run)

    return counted


def one_of_the(choices: Callable[[Any], Sequence[Any]]) -> st.SearchStrategy[Any]:
    """Something that there is at this moment of the history."""
    return st.runner().flatmap(lambda desk: st.sampled_from(choices(desk)))


class Waiting(NamedTuple):
    """An event that is stored and not applied, of this history of its kind."""

    id: int
    event: Event
    history: int


@dataclass
class Refused:
    """An event that could not be read, of this history of its kind."""

    id: int
    event: Event
    history: int


@dataclass
class Inbox:
    """What the model knows of the inbox: what waits and what was refused, and how often histories began."""

    waiting: list[Waiting] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    histories: Counter[str] = field(default_factory=Counter)


class Desk(RuleBasedStateMachine):
    """The service beside the model, and the cluster that both are told of."""

    api: ClassVar[APIClient]
    audit_every: ClassVar[int] = 10

    def __init__(self) -> None:
        super().__init__()
        tally.histories[type(self).__name__] += 1
        self._whole = transaction.atomic()
        self._whole.__enter__()
        # While a history is thought of, nobody else waits for its locks.
        self.sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        fleet.forget()
        self.town, self.books, self.stored, self.inbox = Town(), Books(), Stored(), Inbox()
        self.stored.begin()
        self.steps = 0

    def teardown(self) -> None:
        try:
            self.at_the_end()
        finally:
            self._undo()

    def at_the_end(self) -> None:
        """What is looked at once."""

    def _undo(self) -> None:
        if not connection.needs_rollback:
            transaction.set_rollback(True)
        self._whole.__exit__(None, None, None)

    @invariant()
    def every_book_says_the_same(self) -> None:
        """Stored totals are the sums of entries, the ledger's replay, and what the model says."""
        self.stored.check(self.books)
        self.steps += 1
        if self.steps % self.audit_every == 0:
            self.audit()

    def audit(self) -> None:
        """The service's own opinion of its books."""
        found = audit.audit()
        assert found.ok, found.discrepancies

    # --- what rules are made of ---

    def told(self, event: Event, is_told: bool) -> Event:
        """The event, which reaches the books now or perhaps later."""
        if is_told:
            self.hear([event])
        return event

    def hear(self, events: Sequence[Event]) -> None:
        """One call of POST /events: with what waits of the same names it is applied in the request."""
        names = {_name_of(event) for event in events}
        waiting = [one for one in self.inbox.waiting if _name_of(one.event) in names]
        self.inbox.waiting = [one for one in self.inbox.waiting if one not in waiting]
        expected = self._applied([*waiting, *self._as_waiting(events)])[len(waiting) :]
        answer = self.post("/api/v1/events", {"events": [watch_event(event) for event in events]})
        assert answer.status_code == 200, answer.content
        outcomes = [result["outcome"] for result in answer.json()["results"]]
        note(f"    {', '.join(outcomes)}")
        for event, outcome, wanted in zip(events, outcomes, expected, strict=True):
            assert outcome == wanted, f"{event} was {outcome}, not {wanted}"
        tally.answers.update(f"event {outcome}" for outcome in outcomes)
        self._note_refused()

    def _as_waiting(self, events: Sequence[Event]) -> list[Waiting]:
        return [Waiting(0, event, self.history_of(event)) for event in events]

    def history_of(self, event: Event) -> int:
        """How often a history of its kind began by now."""
        return self.inbox.histories[kind_of(event.view)]

    def _applied(self, waiting: Sequence[Waiting]) -> list[str]:
        """What the model makes of events: those of an older history are stale."""
        current = [one for one in waiting if one.history == self.history_of(one.event)]
        outcomes = iter(self.books.apply([one.event for one in current]))
        found = [next(outcomes) if one in current else "stale" for one in waiting]
        self._refusals = [one for one, outcome in zip(waiting, found, strict=True) if outcome == "refused"]
        return found

    def _note_refused(self) -> None:
        """Finds the ids of what was just refused, in the order in which it came."""
        if not self._refusals:
            return
        known = {one.id for one in self.inbox.refused}
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM hamiacct_event WHERE state = 'refused' ORDER BY id")
            ids = [id_ for (id_,) in cursor.fetchall() if id_ not in known]
        for id_, one in zip(ids, self._refusals, strict=True):
            self.inbox.refused.append(Refused(id_, one.event, one.history))
        self._refusals = []

    def drained(self, drain: Callable[[], int]) -> None:
        """All that waits is applied."""
        waiting, self.inbox.waiting = self.inbox.waiting, []
        self._applied(waiting)
        assert drain() == len(waiting)
        self._note_refused()

    def post(self, path: str, body: Any = None) -> Any:
        """The answer of the service to a POST."""
        return self.api.post(path, body, format="json") if body is not None else self.api.post(path)

    def sql(self, statement: str, *parameters: Any) -> None:
        """What happens to the stored rows from outside."""
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)

    def now(self) -> Any:
        """The clock that is handed to operations."""
        return timezone.now()


def _name_of(event: Event) -> tuple[str, str, str]:
    view = event.view
    return kind_of(view), getattr(view, "namespace", ""), view.name


def living(desk: Desk) -> list[str]:
    """The pods there are."""
    return sorted(desk.town.pods)


def is_bound(view: PodView) -> bool:
    """Whether the kubelet has it."""
    return bool(view.bound)

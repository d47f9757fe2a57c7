"""What became of events, how much waits, and whether the books are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, Min

from hamiacct import models
from hamiacct.accounting.words import EventState, Outcome, Rule


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the event at `index` of a call. `rule` is None for Nodes, quotas and stale events."""

    index: int
    outcome: Outcome
    rule: Rule | None
    detail: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many events wait, and for how long the oldest has."""

    waiting: int
    lag_seconds: float


_OUTCOMES = {
    EventState.APPLIED: Outcome.APPLIED,
    EventState.STALE: Outcome.STALE,
    EventState.REFUSED: Outcome.REFUSED,
    EventState.DISMISSED: Outcome.REFUSED,
}


def results(stored: Sequence[tuple[int, int]]) -> list[Result]:
    """The results of those of the stored events that are settled; pairs of index and event id."""
    indexes = {event_id: index for index, event_id in stored}
    settled = models.Event.objects.filter(pk__in=indexes).exclude(state=EventState.WAITING)
    found = [
        Result(indexes[pk], _OUTCOMES[EventState(state)], Rule(rule) if rule else None, detail)
        for pk, state, rule, detail in settled.values_list("pk", "state", "rule", "detail")
    ]
    return sorted(found, key=lambda result: result.index)


def backlog(at: datetime) -> Backlog:
    """What waits in the inbox."""
    waiting = models.Event.objects.filter(state=EventState.WAITING)
    numbers = waiting.aggregate(number=Count("pk"), oldest=Min("received_at"))
    lag = (at - numbers["oldest"]).total_seconds() if numbers["oldest"] else 0.0
    return Backlog(numbers["number"], max(lag, 0.0))


def is_complete() -> bool:
    """Whether a full list of every kind was applied, or the books were declared complete (decision 25)."""
    if settings.HAMIACCT.trust_events:
        return True
    feeds = models.Feed.objects.values_list("listed_at", "declared_complete_at")
    return all(listed or declared for listed, declared in feeds)


def doubt(at: datetime) -> str:
    """Why the books may not tell all (decision 25); "" where they do."""
    if not is_complete():
        return doubt_of(False, None, at)
    waiting = models.Event.objects.filter(state=EventState.WAITING)
    return doubt_of(True, waiting.aggregate(oldest=Min("received_at"))["oldest"], at)


def doubt_of(complete: bool, waiting_since: datetime | None, at: datetime) -> str:
    """The same of what was read already: since when the oldest event waits, None where none does."""
    if not complete:
        return "no full list of pods, nodes and quotas was applied yet"
    lag = (at - waiting_since).total_seconds() if waiting_since else 0.0
    if lag > settings.HAMIACCT.max_lag_seconds:
        return f"events have waited for {lag:.0f} s"
    return ""


@dataclass(frozen=True, slots=True)
class Refused:
    """An event that could not be read, and why. `name` is with its namespace."""

    id: int
    type: str
    kind: str
    name: str
    version: int
    detail: str


def refused() -> list[Refused]:
    """The refused events that nobody has handled yet, oldest first."""
    rows = models.Event.objects.filter(state=EventState.REFUSED).order_by("pk").defer("body")
    return [
        Refused(row.pk, row.type, row.kind, f"{row.namespace}/{row.name}", row.resource_version, row.detail)
        for row in rows
    ]

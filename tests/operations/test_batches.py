"""What a batch of events costs the database: as many statements however many events, whatever came before."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from hamiacct import models
from hamiacct.accounting.words import EventState
from hamiacct.operations import bulk, inbox, pod_events
from tests import watch
from tests.scale.test_rows_touched import touched

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CARDS = 20

pytestmark = pytest.mark.django_db


def pods(count: int, *, first: int, version: int, memory: int = 10) -> list[dict[str, Any]]:
    """Pods of one name each, in five namespaces, spread over the cards."""
    return [
        watch.pod(
            f"p{number}",
            f"GPU-{number % CARDS} {memory} 1",
            namespace=f"team-{number % 5}",
            uid=f"u{number}",
            version=version + number,
        )
        for number in range(first, first + count)
    ]


def statements(*events: dict[str, Any]) -> int:
    """How many statements it took to store these events, and to apply them."""
    with CaptureQueriesContext(connection) as asked:
        receipt = inbox.receive(events, at=NOW)
        inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    return len(asked)


def lives(count: int, *, first: int) -> list[int]:
    """The statements for so many pods that come, change and go."""
    return [
        statements(
            *(watch.event(one, type_) for one in pods(count, first=first, version=version, memory=memory))
        )
        for type_, version, memory in (
            ("ADDED", 10_000, 10),
            ("MODIFIED", 20_000, 20),
            ("DELETED", 30_000, 20),
        )
    ]


def test_a_batch_takes_as_many_statements_however_many_events_it_has() -> None:
    cards = [watch.card(f"GPU-{number}", memory=10**6, slots=1000, cores=1000) for number in range(CARDS)]
    statements(watch.event(watch.node("n1", *cards, version=1)))
    lives(1, first=0)
    assert lives(500, first=1_000) == lives(50, first=2_000)


def settled(count: int) -> None:
    """So many old events, applied long ago, of pods that are gone; half of one name that still has news."""
    models.Event.objects.bulk_create(
        models.Event(
            received_at=NOW,
            kind="Pod",
            type="MODIFIED",
            namespace="team-1",
            name="p1" if number % 2 else f"old-{number}",
            uid=f"old-{number}",
            resource_version=number,
            history=1,
            state=EventState.APPLIED,
            settled_at=NOW,
        )
        for number in range(count)
    )
    models.Pod.objects.bulk_create(
        models.Pod(
            uid=f"old-{number}",
            namespace="team-1",
            name=f"old-{number}",
            state="ended",
            rule="deleted",
            ended_by="deleted",
            resource_version=number,
            changed_at=NOW,
        )
        for number in range(count)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE hamiacct_event, hamiacct_pod")


def test_what_a_batch_reads_does_not_depend_on_what_was_settled_before() -> None:
    names = [(f"team-{number % 5}", f"p{number}") for number in range(100)]
    uids = [f"u{number}" for number in range(100)]
    statements(*(watch.event(one) for one in pods(100, first=0, version=10_000)))
    inbox.receive([watch.event(one) for one in pods(100, first=0, version=50_000)], at=NOW)

    def read() -> tuple[float, float]:
        return (
            touched(inbox._WAITING, "Pod", bulk.text(names), 4, inbox.BATCH_BYTES),
            touched(pod_events._LOAD, bulk.text(names), bulk.text(uids)),
        )

    few = read()
    settled(20_000)
    many = read()
    for before, after in zip(few, many, strict=True):
        assert after <= 2 * before, (few, many)


def test_a_batch_reads_its_own_events_however_many_wait_and_whatever_was_known_of_them() -> None:
    def read() -> float:
        return touched(
            inbox._WAITING,
            "Pod",
            bulk.text([(f"team-{number % 5}", f"p{number}") for number in range(50)]),
            4,
            inbox.BATCH_BYTES,
        )

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE hamiacct_event")
    bulk.plan_anew()
    inbox.receive([watch.event(one) for one in pods(50, first=0, version=10_000)], at=NOW)
    few = read()
    inbox.receive([watch.event(one) for one in pods(3_000, first=1_000, version=10_000)], at=NOW)
    assert read() <= 2 * few


def test_however_many_events_a_name_has_a_batch_takes_but_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "BATCH_EVENTS", 12)
    cards = [watch.card(f"GPU-{number}", memory=10**6, slots=1000, cores=1000) for number in range(CARDS)]
    shown = [pod for turn in range(0, 60, 3) for pod in pods(3, first=0, version=10_000 + turn, memory=turn)]
    receipt = inbox.receive(
        [watch.event(watch.node("n1", *cards, version=1)), *map(watch.event, shown)], at=NOW
    )
    with CaptureQueriesContext(connection) as asked:
        assert inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    batches = [one["sql"] for one in asked if "EXECUTE hamiacct_inbox_settle" in one["sql"]]
    assert len(batches) == 1 + 60 // 12
    assert set(models.Event.objects.values_list("state", flat=True)) == {EventState.APPLIED}
    held = models.UsageEntry.objects.values_list("pod_id", "memory_mib")
    assert set(held) == {(f"u{number}", 57) for number in range(3)}


def test_however_large_its_objects_are_a_batch_takes_but_some_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "BATCH_BYTES", 1)
    shown = [pod for turn in range(3) for pod in pods(4, first=0, version=10_000 + 10 * turn, memory=turn)]
    receipt = inbox.receive(list(map(watch.event, shown)), at=NOW)
    with CaptureQueriesContext(connection) as asked:
        assert inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    batches = [one["sql"] for one in asked if "EXECUTE hamiacct_inbox_settle" in one["sql"]]
    assert len(batches) == len(shown)
    held = models.UsageEntry.objects.values_list("pod_id", "memory_mib")
    assert set(held) == {(f"u{number}", 2) for number in range(4)}


def test_what_is_more_than_the_server_does_at_once_holds_up_no_other_name() -> None:
    """It is beyond one of its limits, which is no sign of a database that is away."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION too_much() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE EXCEPTION 'no' USING ERRCODE = 'program_limit_exceeded'; END $$;"
            "CREATE TRIGGER too_much BEFORE INSERT ON hamiacct_pod FOR EACH ROW"
            " WHEN (NEW.name = 'p1') EXECUTE FUNCTION too_much()"
        )
    receipt = inbox.receive(list(map(watch.event, pods(4, first=0, version=10_000))), at=NOW)
    assert inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    assert set(models.Pod.objects.values_list("name", flat=True)) == {"p0", "p2", "p3"}
    [left] = models.Event.objects.filter(state=EventState.WAITING)
    assert (left.name, left.attempts) == ("p1", 1)

"""A database of any migration's days becomes one of today: nothing is lost, the books agree."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.accounting.words import EventState, ReservationState
from hamiacct.operations import audit, inbox, reservations
from hamiacct.queries import fleet
from tests import watch
from tests.asking import asking
from tests.upgrade import databases, store, story

# What a migration takes away on purpose: (table, column), with the migration and why.
TAKEN_AWAY: dict[tuple[str, str], str] = {}
NAMES = store.names()


@pytest.fixture(params=NAMES)
def upgraded(request: pytest.FixtureRequest) -> Iterator[tuple[str, story.Rows]]:
    """A database of those days, migrated to today; and what was in it before."""
    name = request.param
    with databases.at(name):
        databases.fill(databases.state(name))
        before = databases.rows()
        databases.migrate()
        fleet.forget()
        yield name, before


def test_every_migration_has_a_stored_state() -> None:
    stored = {path.stem for path in databases.STATES.glob("*.json")}
    assert stored == set(NAMES), "python -m tests.upgrade.store makes that of the newest migration"


def test_the_story_reaches_every_state() -> None:
    """What the newest state holds: whoever adds a word tells of it in the story."""
    rows = databases.state(NAMES[-1])
    pods, events = rows["hamiacct_pod"], rows["hamiacct_event"]
    assert {pod["charged_as"] for pod in pods} == {"nothing", "effective", "steady", "held"}
    assert {pod["state"] for pod in pods} == {
        "unscheduled", "claimed", "reserved", "peak", "steady", "ended",
    }  # fmt: skip
    assert {event["state"] for event in events} == set(EventState)
    holds = {hold["state"] for hold in rows["hamiacct_reservation"]}
    assert holds == set(ReservationState) - {ReservationState.BINDING}
    months = {line["at"][:7] for line in rows["hamiacct_ledgerentry"]}
    assert months >= {"2026-09", "2026-10", "2026-11"}
    tables = {
        model._meta.db_table for model in models.Feed._meta.apps.get_app_config("hamiacct").get_models()
    }
    assert {table for table in tables if not rows.get(table)} == set()


def test_an_old_database_becomes_one_of_today(upgraded: tuple[str, story.Rows]) -> None:
    name, before = upgraded
    nothing_is_lost(before)
    found = audit.audit()
    assert found.ok, found.discrepancies
    assert found.checked["devices"] > 0
    if name != NAMES[0]:
        assert found.checked["entries"] > 5
    life_goes_on(before)


def nothing_is_lost(before: story.Rows) -> None:
    """Every row is there once, with what it said; what is new beside it are columns."""
    after = databases.rows()
    for table, rows in before.items():
        if table in ("hamiacct_feed", "hamiacct_ledgerhead") and not rows:
            continue  # made by the migration of the ledger
        assert len(after[table]) == len(rows), table
        for row, now in zip(rows, after[table], strict=True):
            kept = {column: value for column, value in row.items() if (table, column) not in TAKEN_AWAY}
            assert {column: now.get(column) for column in kept} == kept, table


def life_goes_on(before: story.Rows) -> None:
    """Today's code applies what waited, answers, and ends everything; the books agree all the way."""
    at = last_moment(before)
    waiting = models.Event.objects.filter(state=EventState.WAITING).count()
    assert inbox.drain(at=at) == waiting > 0
    reservations.expire(at=at + timedelta(days=400))
    assert audit.audit().ok
    client = operators_client()
    watch_on_from(before)
    for kind in ("Node", "ResourceQuota"):
        items = [watch.node("n1", watch.card("GPU-n1-0"))] if kind == "Node" else []
        assert send(client, kind, items)["rejected"] == []
    send(client, "Pod", [])
    asked = client.post("/api/v1/reservations", {"pod": asking("after", gpumem=1000)})
    assert asked.status_code == 201, asked.content
    entries = models.UsageEntry.objects.values_list("pod_id", flat=True)
    assert Counter(entries) == {"uid-after": 1}
    assert audit.audit().ok
    for path in ("nodes", "pods", "findings", "ledger", "decisions", "cluster"):
        assert client.get(f"/api/v1/{path}").status_code == 200


def last_moment(before: story.Rows) -> datetime:
    return max(datetime.fromisoformat(event["received_at"]) for event in before["hamiacct_event"])


def watch_on_from(before: story.Rows) -> None:
    """Versions go up from what the database has seen."""
    seen = max(event["resource_version"] for event in before["hamiacct_event"])
    while next(watch.versions) < seen:
        pass


def operators_client() -> APIClient:
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {os.environ['HAMIACCT_BOOTSTRAP_TOKEN']}")
    return client


def send(client: APIClient, kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """A full list that may end whatever it does not hold."""
    version = str(next(watch.versions))
    body = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {"resourceVersion": version}}
    answer = client.post("/api/v1/snapshots", body | {"items": items})
    if answer.status_code == 409:
        confirm = answer.json()["would_end"]
        answer = client.post(f"/api/v1/snapshots?confirm={confirm}", body | {"items": items})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found

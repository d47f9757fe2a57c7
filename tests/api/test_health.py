"""GET /livez, GET /readyz"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import OperationalError, connection
from rest_framework.test import APIClient

from api import problems
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.operations import watching

anybody = APIClient()


def test_alive_without_a_database() -> None:
    assert anybody.get("/livez").json() == {"live": True}


@pytest.mark.django_db
def test_ready_with_a_database() -> None:
    response = anybody.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {"ready": True}


@pytest.mark.django_db
def test_verbose_shows_what_was_looked_at() -> None:
    assert anybody.get("/readyz?verbose").json() == {
        "ready": True,
        "checks": {
            "database": {"ok": True, "missing_migrations": []},
            "broker": {"ok": None},
            "inbox": {"waiting": 0, "lag_seconds": 0},
            "complete": False,
            "watcher": None,
        },
    }


@pytest.fixture
def lost_database(db: None) -> Iterator[None]:
    """Every query fails as it does when the server went away."""

    def fail(*_: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(fail):
        yield


@pytest.mark.parametrize("query", ["", "?verbose"])
def test_not_ready_without_a_database(lost_database: None, query: str) -> None:
    response = anybody.get(f"/readyz{query}")
    assert response.status_code == 503
    assert response.headers["Content-Type"] == problems.MEDIA_TYPE
    assert response.headers["Retry-After"] == "1"
    assert response.json()["type"] == "/problems/unavailable"
    assert response.json()["ready"] is False


@pytest.mark.django_db
def test_not_ready_while_a_migration_is_missing() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'hamiacct' AND name >= '0002'")
    response = anybody.get("/readyz?verbose")
    assert response.status_code == 503
    missing = response.json()["checks"]["database"]["missing_migrations"]
    assert missing[0] == "hamiacct.0002_ledger"


@pytest.mark.django_db
def test_a_broker_that_does_not_answer_is_shown_and_does_not_decide(settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, redis_url="redis://127.0.0.1:1/0")
    response = anybody.get("/readyz?verbose")
    assert response.status_code == 200
    assert response.json()["checks"]["broker"] == {"ok": False}


@pytest.mark.django_db
def test_verbose_shows_the_watcher() -> None:
    """Who, since when, of which cluster, and how far each kind has come."""
    start, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
    watching.take_lease("w1", at=start)
    watching.see_cluster("uid-1", at=start)
    watching.note(Kind.POD, WatchState.WATCHING, version=7, at=start)
    watching.note(Kind.NODE, WatchState.LISTING, at=start)
    watching.note(Kind.NODE, WatchState.BACKING_OFF, detail="429", at=later)
    assert anybody.get("/readyz?verbose").json()["checks"]["watcher"] == {
        "holder": "w1",
        "since": "2026-01-01T00:00:00Z",
        "alive": True,
        "cluster_uid": "uid-1",
        "watches": [
            {
                "kind": "Node",
                "state": "backing-off",
                "detail": "429",
                "since": "2026-01-01T00:01:00Z",
                "version": 0,
                "heard_at": None,
            },
            {
                "kind": "Pod",
                "state": "watching",
                "detail": "",
                "since": "2026-01-01T00:00:00Z",
                "version": 7,
                "heard_at": "2026-01-01T00:00:00Z",
            },
        ],
    }
    watching.give_up_lease("w1")
    gone = anybody.get("/readyz?verbose").json()["checks"]["watcher"]
    assert (gone["holder"], gone["since"], gone["alive"]) == ("", None, False)

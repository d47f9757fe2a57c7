"""What a question costs the database: how many statements, and how many rows, whatever there was before."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from hamiacct.accounting.words import Role
from hamiacct.queries import fleet, moments
from hamiacct.queries.statements import Statement
from tests import watch
from tests.asking import asking
from tests.scale import books

pytestmark = pytest.mark.django_db

LINES_SINCE = 50


def touched(statement: Statement, *parameters: object) -> float:
    """The rows that the plan of a prepared statement reads when it is asked, those it drops among them."""
    statement.rows(*parameters)
    with connection.cursor() as cursor:
        places = ", ".join(["%s"] * len(parameters))
        cursor.execute(
            f"EXPLAIN (ANALYZE, TIMING off, FORMAT json) EXECUTE {statement.name} ({places})", parameters
        )
        [(plans,)] = cursor.fetchall()
    return rows_of(plans[0]["Plan"])


def rows_of(plan: Mapping[str, Any]) -> float:
    """The rows of a plan and of all below it."""
    seen = plan["Actual Rows"] + sum(plan.get(name, 0) for name in DROPPED)
    return plan["Actual Loops"] * seen + sum(map(rows_of, plan.get("Plans", ())))


DROPPED = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")


def asked_of_books(size: books.Size) -> dict[str, float]:
    """The rows that each statement of a question touches in books of a size, which are gone afterwards."""
    with transaction.atomic():
        books.fill(size)
        now, sets = timezone.now(), fleet.vendors_of_sets()
        since = size.lines - LINES_SINCE
        found = {
            "quotas": touched(moments._OF_QUOTAS, "team-7", "uid-7", now),
            "fit, nothing new": touched(moments._OF_FIT, "team-7", "uid-7", now, size.lines, 0, sets),
            "fit, some lines": touched(moments._OF_FIT, "team-7", "uid-7", now, since, 0, sets),
            "tail": touched(fleet._TAIL, since, 0, sets),
        }
        transaction.set_rollback(True)
    return found


def test_rows_touched_do_not_depend_on_history() -> None:
    young = asked_of_books(books.Size(500, 2_000, 4_000, 2_000, 2_000, 1, 1, 500))
    old = asked_of_books(books.Size(500, 8_000, 16_000, 12_000, 12_000, 1, 1, 500))
    # Where made-up entries and lines fall differs a little between the two.
    assert {name: rows for name, rows in old.items() if rows > 1.3 * young[name]} == {}
    assert young["quotas"] < 60
    assert young["fit, nothing new"] < 100
    assert young["fit, some lines"] < 12 * LINES_SINCE


Ask = Callable[[APIClient], Any]
POD = asking("asks", gpumem=1000, uid="uid-asks")
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "r",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "team-a",
        "object": POD,
    },
}
QUESTIONS: Mapping[str, tuple[str, Any]] = {
    "quota check": ("/api/v1/quota/check", {"pod": POD}),
    "admission": ("/webhook", REVIEW),
    "best nodes": ("/api/v1/fit", {"pod": POD, "verdicts": False}),
    "every verdict": ("/api/v1/fit", {"pod": POD}),
    "named nodes": ("/api/v1/fit", {"pod": POD, "nodes": ["n1", "n9"]}),
    "capacity": ("/api/v1/capacity", {"pod": POD}),
    "prioritize": ("/extender/prioritize", {"Pod": POD, "NodeNames": ["n1", "n9"]}),
}


@pytest.fixture
def known(api: APIClient) -> APIClient:
    """Books of two nodes, a quota and a pod, that were asked already."""
    nodes = [watch.node(name, watch.card(f"GPU-{name}")) for name in ("n1", "n2")]
    quota = watch.quota("q", hard={"limits.nvidia.com/gpumem": "20000"})
    sent = api.post("/api/v1/events", watch.events(*nodes, quota, watch.pod("p", "GPU-n1 2048 10")))
    assert sent.status_code == 200, sent.content
    assert api.post("/api/v1/snapshots?complete=1").status_code == 200
    for path, body in QUESTIONS.values():
        assert api.post(path, body).status_code == 200
    return api


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_is_one_statement(known: APIClient, name: str) -> None:
    path, body = QUESTIONS[name]
    for _ in range(2):
        with CaptureQueriesContext(connection) as taken:
            assert known.post(path, body).status_code == 200
        assert len(taken) == 1, [one["sql"][:80] for one in taken]
        # News of usage rides along with the next question.
        known.post("/api/v1/events", watch.events(watch.pod("q", "GPU-n2 100 1", node="n2")))


def test_news_of_nodes_are_two_statements_more(known: APIClient) -> None:
    changed = [watch.node(name, watch.card(f"GPU-{name}", memory=9000)) for name in ("n1", "n2")]
    known.post("/api/v1/events", watch.events(*changed, type_="MODIFIED"))
    path, body = QUESTIONS["best nodes"]
    with CaptureQueriesContext(connection) as taken:
        assert known.post(path, body).status_code == 200
    # What a connection asks for the first time it prepares first.
    asked = [one["sql"][:80] for one in taken if not one["sql"].startswith("PREPARE")]
    assert len(asked) == 3, asked


def test_who_asks_with_a_token_costs_one_statement_more(
    known: APIClient, api_as: Callable[[Role], APIClient]
) -> None:
    caller = api_as(Role.SCHEDULER)
    path, body = QUESTIONS["best nodes"]
    assert caller.post(path, body).status_code == 200  # and its use is noted, once a minute
    with CaptureQueriesContext(connection) as taken:
        assert caller.post(path, body).status_code == 200
    assert len(taken) == 2, [one["sql"][:80] for one in taken]


PLACES = [{"start": 0, "size": 4}, {"start": 4, "size": 4}]
PROFILE = {"name": "3g.20gb", "memoryMB": 19968, "core": 14, "sliceCount": 3, "placements": PLACES}


def test_mig_nodes_are_read_as_their_turn_comes(api: APIClient) -> None:
    """What pods say of MIG cards is read of as many nodes as are told, however many there are."""
    names = [f"n{number:02}" for number in range(12)]
    cards = {
        name: watch.card(f"GPU-{name}", memory=80000, mode="mig", migProfiles=[PROFILE]) for name in names
    }
    nodes = [watch.node(name, card) for name, card in cards.items()]
    assert api.post("/api/v1/events", watch.events(*nodes)).status_code == 200
    assert api.post("/api/v1/snapshots?complete=1").status_code == 200
    asked = {"pod": asking("p", gpumem=5000), "limit": 2, "verdicts": False}
    assert len(api.post("/api/v1/fit", asked).json()["candidates"]) == 2
    with CaptureQueriesContext(connection) as taken:
        found = api.post("/api/v1/fit", asked).json()
    assert [one["node"] for one in found["candidates"]] == names[:2]
    read = [one["sql"] for one in taken if one["sql"].startswith("EXECUTE hamiacct_fit_nodes")]
    assert [[name for name in names if name in sql] for sql in read] == [names[:2]]

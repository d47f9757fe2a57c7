"""What all questions share: empty books are no free cards; a refusal is written when the answer is out."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import DatabaseError, OperationalError
from rest_framework.exceptions import ValidationError
from rest_framework.test import APIClient

from api import afterwards
from api import asking as asked
from api.capacity import CapacityQuestionSerializer
from api.fit import FitQuestionSerializer
from api.reservations import ReservationQuestionSerializer
from hamiacct.operations import decisions as kept
from tests.asking import asking
from tests.watch import card, node

pytestmark = pytest.mark.django_db

QUESTIONS = ("/api/v1/fit", "/api/v1/capacity", "/api/v1/reservations")


@pytest.mark.parametrize("path", QUESTIONS)
def test_until_the_books_are_complete_nothing_is_answered(
    api: APIClient, send: Callable[..., Any], path: str
) -> None:
    send(node("n1", card("GPU-a")))
    response = api.post(path, {"pod": asking("p", gpumem=1)})
    assert response.status_code == 503
    assert response.json()["type"] == "/problems/unavailable"
    assert int(response.headers["Retry-After"]) > 0
    assert api.post("/api/v1/snapshots?complete=1").status_code == 200
    assert api.post(path, {"pod": asking("p", gpumem=1)}).status_code in (200, 201)


def test_until_then_filter_says_so_in_its_own_words(api: APIClient, send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")))
    response = api.post("/extender/filter", {"Pod": asking("p", gpumem=1), "NodeNames": ["n1"]})
    assert response.status_code == 200
    assert "full list" in response.json()["Error"]


def test_pods_that_ask_for_nothing_are_answered_all_the_same(api: APIClient) -> None:
    plain = asking("p", {})
    assert api.post("/api/v1/fit", {"pod": plain}).json()["fits"]
    assert api.post("/api/v1/capacity", {"pod": plain, "at_most": 7}).json()["count"] == 7
    found = api.post("/extender/filter", {"Pod": plain, "NodeNames": ["n1", "n2"]}).json()
    assert (found["NodeNames"], found["Error"]) == (["n1", "n2"], "")


# --- afterwards ----------------------------------------------------------------------------------


def test_work_waits_for_the_end_of_its_request() -> None:
    done: list[str] = []
    request_started.send(sender=None)
    afterwards.do(lambda: done.append("first"))
    afterwards.do(lambda: done.append("second"))
    assert done == []
    request_finished.send(sender=None)
    assert done == ["first", "second"]
    request_finished.send(sender=None)
    assert done == ["first", "second"]


def test_what_the_database_does_not_take_is_lost_and_takes_nothing_with_it() -> None:
    done: list[str] = []

    def fail() -> None:
        raise DatabaseError

    request_started.send(sender=None)
    afterwards.do(fail)
    afterwards.do(lambda: done.append("later"))
    request_finished.send(sender=None)
    assert done == ["later"]


def test_a_request_that_never_ended_leaves_its_work_to_nobody() -> None:
    done: list[str] = []
    request_started.send(sender=None)
    afterwards.do(lambda: done.append("abandoned"))
    request_started.send(sender=None)
    request_finished.send(sender=None)
    assert done == []


def test_no_request_piles_up_work_without_end() -> None:
    done: list[int] = []
    request_started.send(sender=None)
    for number in range(1000):
        afterwards.do(lambda number=number: done.append(number))
    request_finished.send(sender=None)
    assert done == list(range(900, 1000))


@pytest.mark.usefixtures("complete")
def test_an_answer_does_not_depend_on_its_refusal_being_kept(
    api: APIClient, send: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("the disk is full")

    send(node("n1", card("GPU-a")))
    monkeypatch.setattr(kept, "record", fail)
    response = api.post("/api/v1/fit", {"pod": asking("p", gpumem=99999)})
    assert response.status_code == 200
    assert response.json()["fits"] is False


# --- plain bodies --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [FitQuestionSerializer, CapacityQuestionSerializer, ReservationQuestionSerializer]
)
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"nodes": None},
        {"nodes": []},
        {"nodes": ["n1", "n2"]},
        {"nodes": ["n1", " n2"]},
        {"nodes": ["n1", ""]},
        {"nodes": ["n1", 2]},
        {"nodes": "n1"},
        {"nodes": ["x" * 253]},
        {"nodes": ["x" * 254]},
        {"limit": 1},
        {"limit": 0},
        {"limit": "7"},
        {"limit": True},
        {"limit": 1001},
        {"limit": None},
        {"at_most": 5},
        {"at_most": "5"},
        {"at_most": 10_001},
        {"verdicts": False},
        {"verdicts": "no"},
        {"verdicts": None},
        {"node_policy": ""},
        {"node_policy": None, "gpu_policy": " spread"},
        {"node_policy": "bin\0pack"},
        {"gpu_policy": 3},
        {"ttl_seconds": None, "node": None, "allocation": None},
        {"ttl_seconds": 900},
        {"ttl_seconds": 0},
        {"ttl_seconds": "900"},
        {"ttl_seconds": True},
        {"ttl_seconds": 2_592_001},
        {"node": "n1"},
        {"node": ""},
        {"node": " n1"},
        {"node": 1},
        {"node": "x" * 254},
        {"allocation": []},
        {"pod": None},
        {"pod": []},
        {"something": "else"},
    ],
)
def test_a_plain_body_says_the_same_without_its_form(
    form: type[asked.PodQuestionSerializer], said: dict[str, Any]
) -> None:
    document = {"pod": asking("p", gpumem=1), **said}
    plain = asked.plainly(document, form)
    try:
        assert plain is None or plain == asked.read(document, form)
    except ValidationError:
        pytest.fail(f"taken, though the form refuses it: {plain}")


def test_the_usual_bodies_need_no_form() -> None:
    pod = asking("p", gpumem=1)
    assert asked.plainly({"pod": pod}, FitQuestionSerializer) == {"pod": pod, "limit": 5, "verdicts": True}
    usual = {"pod": pod, "nodes": ["n1"], "limit": 9, "verdicts": False, "node_policy": "spread"}
    assert asked.plainly(usual, FitQuestionSerializer) == usual
    assert asked.plainly({"pod": pod}, CapacityQuestionSerializer) == {"pod": pod, "at_most": 1000}


def test_a_place_that_is_claimed_is_always_read_by_its_form() -> None:
    pod = asking("p")
    assert asked.plainly({"pod": pod, "node": "n1"}, ReservationQuestionSerializer) == {
        "pod": pod,
        "node": "n1",
    }
    claim = {"pod": pod, "node": "n1", "allocation": []}
    assert asked.plainly(claim, ReservationQuestionSerializer) is None

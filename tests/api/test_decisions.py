"""GET /api/v1/decisions"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.asking import asking
from tests.watch import card, node, quota

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("complete")]


@pytest.fixture
def _refused(api: APIClient, complete: None, send: Callable[..., Any]) -> None:
    """Four refusals: of fits in two namespaces, of a reservation, of a filter."""
    send(node("n1", card("GPU-a")), quota("gpu", namespace="team-b", hard={"limits.nvidia.com/gpumem": "10"}))
    api.post("/api/v1/fit", {"pod": asking("p", gpumem=99999)})
    api.post("/api/v1/fit", {"pod": asking("q", gpumem=11, namespace="team-b")})
    api.post("/api/v1/reservations", {"pod": asking("p", gpumem=99999)})
    api.post("/extender/filter", {"Pod": asking("q", gpumem="1.5"), "NodeNames": ["n1"]})


@pytest.mark.usefixtures("_refused")
def test_refusals_newest_first_page_by_page(listed: Callable[[str], list[Any]]) -> None:
    found = listed("/api/v1/decisions")
    assert [(one["question"], one["namespace"], one["pod"], one["verdict"]) for one in found] == [
        ("filter", "team-a", "q", "error"),
        ("reservation", "team-a", "p", "no-fit"),
        ("fit", "team-b", "q", "no-quota"),
        ("fit", "team-a", "p", "no-fit"),
    ]
    assert found[1]["reasons"] == {"CardInsufficientMemory": ["n1"]}
    assert [one["at"] for one in found] == sorted((one["at"] for one in found), reverse=True)


@pytest.mark.usefixtures("_refused")
@pytest.mark.parametrize(
    ("filters", "number"),
    [
        ("pod=p", 2),
        ("pod=uid-p", 2),
        ("pod=uid-q&namespace=team-b", 1),
        ("namespace=team-a", 3),
        ("verdict=no-fit", 2),
        ("verdict=error&pod=p", 0),
        ("pod=nobody", 0),
    ],
)
def test_filters(decisions: Callable[..., list[Any]], filters: str, number: int) -> None:
    assert len(decisions(filters)) == number


def test_a_verdict_nobody_gives_is_malformed(api: APIClient) -> None:
    assert api.get("/api/v1/decisions?verdict=maybe").status_code == 400

"""POST /api/v1/capacity"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.asking import asking
from tests.watch import card, node, pod, quota

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("complete", "books_agree")]


@pytest.fixture
def capacity(api: APIClient) -> Callable[..., Any]:
    """Asks how many more such pods fit; answers the body of a 200."""

    def capacity(asked: dict[str, Any], **more: Any) -> Any:
        response = api.post("/api/v1/capacity", {"pod": asked, **more})
        assert response.status_code == 200, response.content
        return response.json()

    return capacity


@pytest.fixture
def _two_nodes(send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a"), card("GPU-b")), node("n2", card("GPU-c", slots=2)))
    send(pod("web", "GPU-a 15000 0"))


@pytest.mark.usefixtures("_two_nodes")
def test_card_by_card_not_by_sums(api: APIClient, capacity: Callable[..., Any]) -> None:
    """10,000 MiB fit twice on a free card of 24,576; the 9,576 left on the other serve nobody."""
    found = capacity(asking("p", gpumem=10000))
    assert found["count"] == 4
    assert found["by_node"] == [{"node": "n1", "count": 2}, {"node": "n2", "count": 2}]
    assert found["as_of"]
    assert api.get("/api/v1/ledger?node=n2").json()["items"] == []


@pytest.mark.usefixtures("_two_nodes")
def test_slots_count_and_only_the_nodes_named(capacity: Callable[..., Any]) -> None:
    assert capacity(asking("p", gpumem=1), nodes=["n2"])["by_node"] == [{"node": "n2", "count": 2}]
    assert capacity(asking("p", gpumem=1), nodes=["n9"])["count"] == 0


@pytest.mark.usefixtures("_two_nodes")
def test_no_further_than_asked(capacity: Callable[..., Any]) -> None:
    assert capacity(asking("p", gpumem=1), at_most=3)["count"] == 3


@pytest.mark.usefixtures("_two_nodes")
def test_the_namespaces_quota_ends_the_counting(
    send: Callable[..., Any], capacity: Callable[..., Any]
) -> None:
    send(quota("gpu", hard={"limits.nvidia.com/gpumem": "17000"}))
    assert capacity(asking("p", gpumem=1000))["count"] == 2
    assert capacity(asking("p", gpumem=1000, namespace="team-b"))["count"] > 2


@pytest.mark.usefixtures("_two_nodes")
@pytest.mark.parametrize("bound", [True, False])
def test_a_pod_that_has_its_place_is_not_one_more(
    api: APIClient, send: Callable[..., Any], capacity: Callable[..., Any], bound: bool
) -> None:
    asked = asking("one", gpumem=10000)
    if bound:
        send(pod("one", "GPU-c 10000 0", node="n2"))
    else:
        assert api.post("/api/v1/reservations", {"pod": asked, "node": "n2"}).status_code == 201
    send(quota("gpu", hard={"limits.nvidia.com/gpumem": "39000"}))
    assert capacity(asked, nodes=["n2"])["count"] == 1
    assert capacity(asked)["count"] == 1


@pytest.mark.parametrize("at_most", [0, -1, 10_001, "many"])
def test_how_far_to_count_has_bounds(api: APIClient, at_most: Any) -> None:
    response = api.post("/api/v1/capacity", {"pod": asking("p", gpumem=1), "at_most": at_most})
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/at_most"


def test_an_unreadable_request_is_refused(api: APIClient) -> None:
    response = api.post("/api/v1/capacity", {"pod": asking("p", gpumem="16Gi")})
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/pod/spec/containers/0/resources"

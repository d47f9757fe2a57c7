"""GET /api/v1/cluster"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db


def test_an_empty_cluster_is_all_zeros(api: APIClient) -> None:
    found = api.get("/api/v1/cluster").json()
    assert found["nodes"] == 0
    assert found["devices"] == {"registered": 0, "unregistered": 0, "healthy": 0, "cordoned": 0}
    assert found["memory_mib"] == {"total": 0, "used": 0, "free": 0}
    assert set(found["pods"]["by_state"].values()) == {0}
    assert found["complete"] is False
    assert found["inbox"] == {"waiting": 0, "lag_seconds": 0}
    assert found["as_of"].endswith("Z")


@pytest.fixture
def _a_cluster(send: Callable[..., Any]) -> None:
    send(
        node("n1", card("GPU-a", memory=1000), card("GPU-b", memory=1000, health=False)),
        node("n2", card("GPU-c", memory=1000), **{"hami.io/device-cordon": "GPU-c"}),
        node("n3", card("GPU-d", memory=1000)),
    )
    send(
        pod("over", "GPU-a 1500 10"),
        pod("fits", "GPU-c 400 20", node="n2"),
        pod("lost", "GPU-x 256 0", node="n9"),
        pod("gone", "GPU-d 300 0", node="n3"),
        pod("done", "GPU-c 100 0", node="n2", phase="Succeeded"),
    )
    send(node("n3"), type_="DELETED")


def test_what_is_not_registered_is_counted_and_not_totalled(api: APIClient, _a_cluster: None) -> None:
    found = api.get("/api/v1/cluster").json()
    assert found["nodes"] == 2
    assert found["devices"] == {"registered": 3, "unregistered": 2, "healthy": 2, "cordoned": 1}
    assert found["slots"] == {"total": 30, "used": 2, "free": 28}
    assert found["cores"] == {"total": 300, "used": 30, "free": 270}


def test_what_is_free_is_free_on_some_card(api: APIClient, _a_cluster: None) -> None:
    # 1500 of 1000 are used on one card; what the others have left is not less for it.
    assert api.get("/api/v1/cluster").json()["memory_mib"] == {"total": 3000, "used": 1900, "free": 1600}


def test_pods_are_counted_by_state(api: APIClient, _a_cluster: None) -> None:
    by_state = api.get("/api/v1/cluster").json()["pods"]["by_state"]
    assert by_state == {"unscheduled": 0, "claimed": 0, "reserved": 0, "peak": 0, "steady": 4, "ended": 1}


def test_more_devices_take_no_more_queries(api: APIClient, send: Callable[..., Any]) -> None:
    taken = []
    for cards in (1, 20):
        send(node("n1", *(card(f"GPU-{number}") for number in range(cards))))
        with CaptureQueriesContext(connection) as queries:
            api.get("/api/v1/cluster")
        taken.append(len(queries))
    assert taken[0] == taken[1]

"""GET /api/v1/nodes, GET /api/v1/nodes/{node}"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db


def uuids(found: dict[str, Any]) -> list[str]:
    return [device["uuid"] for device in found["devices"]]


def test_a_node_shows_its_devices_in_the_order_of_their_indexes(
    api: APIClient, send: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-z"), card("GPU-a")))
    found = api.get("/api/v1/nodes/n1").json()
    assert found["name"] == "n1"
    assert uuids(found) == ["GPU-z", "GPU-a"]


def test_nodes_are_listed_by_name(send: Callable[..., Any], listed: Callable[[str], list[Any]]) -> None:
    send(node("n2", card("GPU-b")), node("n1", card("GPU-a")), node("n3"))
    assert [(one["name"], uuids(one)) for one in listed("/api/v1/nodes")] == [
        ("n1", ["GPU-a"]),
        ("n2", ["GPU-b"]),
        ("n3", []),
    ]


def test_a_deleted_node_is_left_out_of_the_list(
    api: APIClient, send: Callable[..., Any], listed: Callable[[str], list[Any]]
) -> None:
    send(node("n1", card("GPU-a")), node("n2"))
    send(pod("web", "GPU-a 1 1"))
    send(node("n1"), node("n2"), type_="DELETED")
    assert listed("/api/v1/nodes") == []
    [device] = api.get("/api/v1/nodes/n1").json()["devices"]
    assert device["registered"] is False
    assert device["memory_mib"]["used"] == 1
    assert api.get("/api/v1/nodes/n2").status_code == 404


def test_an_unknown_node_is_not_found(api: APIClient) -> None:
    assert api.get("/api/v1/nodes/n9").status_code == 404


def test_a_page_takes_the_same_queries_whatever_its_size(api: APIClient, send: Callable[..., Any]) -> None:
    send(*(node(f"n{number}", card("GPU-a"), card("GPU-b")) for number in range(10)))
    taken = []
    for limit in (1, 10):
        with CaptureQueriesContext(connection) as queries:
            api.get(f"/api/v1/nodes?limit={limit}")
        taken.append(len(queries))
    assert taken[0] == taken[1] == 3

"""GET /api/v1/pods, GET /api/v1/pods/{uid}"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from hamiacct.accounting.words import PodState
from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db
Listed = Callable[[str], list[Any]]


@pytest.fixture
def _three_pods(send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a"), card("GPU-b")))
    send(
        pod("one", "GPU-b 2048 10 + GPU-a 1024 0"),
        pod("two", "", "GPU-a 512 5", inits=1, namespace="team-b"),
        pod("three", "GPU-z 256 0", node="n2"),
    )


def names(items: list[Any]) -> list[str]:
    return [item["name"] for item in items]


def test_a_pod_shows_what_it_holds_and_why(api: APIClient, _three_pods: None) -> None:
    assert api.get("/api/v1/pods/uid-one").json() == {
        "uid": "uid-one",
        "namespace": "team-a",
        "name": "one",
        "node": "n1",
        "phase": "Running",
        "state": "steady",
        "inits_released": False,
        "usage": [
            {"node": "n1", "device": "GPU-a", "vendor": "NVIDIA", "slots": 1, "memory_mib": 1024, "cores": 0},
            {
                "node": "n1",
                "device": "GPU-b",
                "vendor": "NVIDIA",
                "slots": 1,
                "memory_mib": 2048,
                "cores": 10,
            },
        ],
        "containers": [
            {
                "position": 0,
                "name": "c0",
                "class": "app",
                "devices": [
                    {"uuid": "GPU-b", "vendor": "NVIDIA", "memory_mib": 2048, "cores": 10},
                    {"uuid": "GPU-a", "vendor": "NVIDIA", "memory_mib": 1024, "cores": 0},
                ],
            }
        ],
        "findings": [],
    }


def test_an_init_container_without_a_device_keeps_its_place(api: APIClient, _three_pods: None) -> None:
    containers = api.get("/api/v1/pods/uid-two").json()["containers"]
    assert [(one["class"], len(one["devices"])) for one in containers] == [("init", 0), ("app", 1)]


def test_pods_are_listed_by_uid(listed: Listed, _three_pods: None) -> None:
    assert names(listed("/api/v1/pods")) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("namespace=team-b", ["two"]),
        ("node=n2", ["three"]),
        ("node=n1&namespace=team-a", ["one"]),
        ("state=steady", ["one", "three"]),
        ("state=ended", []),
        ("namespace=nobody", []),
        ("node=&namespace=&state=", ["one", "three", "two"]),
    ],
)
def test_filters_are_all_to_hold(listed: Listed, _three_pods: None, query: str, found: list[str]) -> None:
    assert names(listed(f"/api/v1/pods?{query}")) == found


def test_pods_with_a_finding(send: Callable[..., Any], listed: Listed, _three_pods: None) -> None:
    broken = pod("broken", "GPU-a 1 1")
    broken["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = "GPU-a,NVIDIA,1"
    send(broken)
    found = listed("/api/v1/pods?finding=undecodable-annotation")
    assert names(found) == ["broken"]
    assert found[0]["findings"][0]["code"] == "undecodable-annotation"
    assert found[0]["findings"][0]["detail"]


def test_an_unknown_pod_is_not_found(api: APIClient) -> None:
    assert api.get("/api/v1/pods/nobody").status_code == 404


def test_a_state_that_is_none_is_malformed(api: APIClient) -> None:
    response = api.get("/api/v1/pods?state=happy")
    assert response.status_code == 400
    assert all(state in response.json()["detail"] for state in PodState)


@pytest.mark.parametrize("cursor", ["x", "WzFd", "WyJ1aWQtb25lIl0:forged", "%00", "a" * 4999])
def test_a_cursor_nobody_gave_out_is_malformed(api: APIClient, cursor: str) -> None:
    response = api.get(f"/api/v1/pods?cursor={cursor}")
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/query/cursor"


def test_a_cursor_of_another_list_is_malformed(api: APIClient, _three_pods: None) -> None:
    cursor = api.get("/api/v1/pods?limit=1").json()["next"]
    assert api.get(f"/api/v1/pods?limit=1&cursor={cursor}").status_code == 200
    assert api.get(f"/api/v1/ledger?limit=1&cursor={cursor}").status_code == 400


def test_a_pod_that_comes_or_goes_between_pages_moves_no_other(
    api: APIClient, send: Callable[..., Any], _three_pods: None
) -> None:
    first = api.get("/api/v1/pods?limit=1").json()
    send(pod("a-new-one", "GPU-a 1 1", uid="uid-aaa"))
    rest = api.get(f"/api/v1/pods?limit=10&cursor={first['next']}").json()
    assert names(first["items"] + rest["items"]) == ["one", "three", "two"]


def test_a_page_takes_the_same_queries_whatever_its_size(api: APIClient, send: Callable[..., Any]) -> None:
    send(*(pod(f"p{number:02}", "GPU-a 1 1") for number in range(20)))
    taken = []
    for limit in (1, 20):
        with CaptureQueriesContext(connection) as queries:
            api.get(f"/api/v1/pods?limit={limit}")
        taken.append(len(queries))
    assert taken[0] == taken[1] == 3

"""GET /api/v1/devices, GET /api/v1/nodes/{node}/devices/{uuid}"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db
Listed = Callable[[str], list[Any]]


@pytest.fixture
def _a_few_devices(send: Callable[..., Any]) -> None:
    send(
        node("n1", card("GPU-a", memory=1000), card("GPU-b", health=False)),
        node("n2", card("GPU-a"), **{"hami.io/device-cordon": "GPU-a"}),
    )
    send(pod("over", "GPU-a 1500 10"), pod("lost", "GPU-x 256 0", node="n3"))


def places(items: list[Any]) -> list[str]:
    return [f"{item['node']}/{item['uuid']}" for item in items]


def test_a_device_shows_its_room_and_who_holds_it(api: APIClient, _a_few_devices: None) -> None:
    found = api.get("/api/v1/nodes/n1/devices/GPU-a").json()
    [finding] = found.pop("findings")
    assert finding["code"] == "overcommitted"
    assert found == {
        "node": "n1",
        "uuid": "GPU-a",
        "index": 0,
        "vendor": "NVIDIA",
        "model": "NVIDIA-A10",
        "numa": 0,
        "mode": "hami-core",
        "healthy": True,
        "cordoned": False,
        "registered": True,
        "slots": {"total": 10, "used": 1, "free": 9},
        "memory_mib": {"total": 1000, "used": 1500, "free": 0},
        "cores": {"total": 100, "used": 10, "free": 90},
        "pods": [
            {
                "uid": "uid-over",
                "namespace": "team-a",
                "name": "over",
                "state": "steady",
                "slots": 1,
                "memory_mib": 1500,
                "cores": 10,
            }
        ],
    }


def test_one_uuid_on_two_nodes_is_two_devices(listed: Listed, _a_few_devices: None) -> None:
    assert places(listed("/api/v1/devices?uuid=GPU-a")) == ["n1/GPU-a", "n2/GPU-a"]


def test_devices_are_listed_by_node_and_uuid(listed: Listed, _a_few_devices: None) -> None:
    assert places(listed("/api/v1/devices")) == ["n1/GPU-a", "n1/GPU-b", "n2/GPU-a", "n3/GPU-x"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("node=n1", ["n1/GPU-a", "n1/GPU-b"]),
        ("vendor=NVIDIA&node=n2", ["n2/GPU-a"]),
        ("vendor=DCU", []),
        ("registered=false", ["n3/GPU-x"]),
        ("registered=1", ["n1/GPU-a", "n1/GPU-b", "n2/GPU-a"]),
        ("finding=overcommitted", ["n1/GPU-a"]),
        ("finding=unregistered-device", ["n3/GPU-x"]),
    ],
)
def test_filters_are_all_to_hold(listed: Listed, _a_few_devices: None, query: str, found: list[str]) -> None:
    assert places(listed(f"/api/v1/devices?{query}")) == found


def test_health_and_cordon_are_shown(api: APIClient, _a_few_devices: None) -> None:
    assert api.get("/api/v1/nodes/n1/devices/GPU-b").json()["healthy"] is False
    assert api.get("/api/v1/nodes/n2/devices/GPU-a").json()["cordoned"] is True


def test_a_device_nobody_registered_shows_what_is_held_of_it(api: APIClient, _a_few_devices: None) -> None:
    found = api.get("/api/v1/nodes/n3/devices/GPU-x").json()
    assert found["registered"] is False
    assert found["memory_mib"] == {"total": 0, "used": 256, "free": 0}


@pytest.mark.parametrize("uuid", ["GPU/with/slashes", "GPU a?b#c%2F", "GPU-ü"])
def test_a_uuid_may_hold_any_character(api: APIClient, send: Callable[..., Any], uuid: str) -> None:
    send(node("n1", card(uuid)))
    assert api.get(f"/api/v1/nodes/n1/devices/{quote(uuid, safe='')}").json()["uuid"] == uuid


def test_a_cursor_holds_the_longest_names(send: Callable[..., Any], listed: Listed) -> None:
    name, uuids = "n" * 253, [letter * 253 for letter in "äöü"]
    send(node(name, *(card(uuid) for uuid in uuids)))
    assert [one["uuid"] for one in listed("/api/v1/devices")] == uuids


def test_the_suffix_of_an_old_mig_uuid_is_ignored(api: APIClient, _a_few_devices: None) -> None:
    assert api.get("/api/v1/nodes/n1/devices/GPU-a[0-1]").json()["uuid"] == "GPU-a"


def test_an_unknown_device_is_not_found(api: APIClient, _a_few_devices: None) -> None:
    assert api.get("/api/v1/nodes/n2/devices/GPU-b").status_code == 404


def test_a_page_takes_the_same_queries_whatever_its_size(api: APIClient, send: Callable[..., Any]) -> None:
    send(node("n1", *(card(f"GPU-{number}") for number in range(20))))
    taken = []
    for limit in (1, 20):
        with CaptureQueriesContext(connection) as queries:
            api.get(f"/api/v1/devices?limit={limit}")
        taken.append(len(queries))
    assert taken[0] == taken[1] == 2

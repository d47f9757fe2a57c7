"""GET /api/v1/namespaces/{namespace}/quota"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.watch import card, node, pod, quota

pytestmark = pytest.mark.django_db

MEMORY = "nvidia.com/gpumem"
CORES = "nvidia.com/gpucores"
COUNT = "nvidia.com/gpu"


@pytest.fixture
def resources(api: APIClient) -> Callable[..., dict[str, Any]]:
    """The resources of a namespace, by name."""

    def resources(namespace: str = "team-a") -> dict[str, Any]:
        found = api.get(f"/api/v1/namespaces/{namespace}/quota").json()
        return {resource["resource"]: resource for resource in found["resources"]}

    return resources


def test_a_namespace_nothing_is_known_of_has_no_limits_and_no_usage(api: APIClient) -> None:
    assert api.get("/api/v1/namespaces/nobody/quota").json() == {
        "namespace": "nobody",
        "resources": [],
        "not_enforced": [],
        "findings": [],
    }


def test_usage_without_a_limit(send: Callable[..., Any], resources: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")), pod("web", "GPU-a 2048 10"))
    assert resources()[MEMORY] == {
        "resource": MEMORY,
        "vendor": "NVIDIA",
        "used": 2048,
        "hard": None,
        "headroom": None,
        "over_by": 0,
        "quotas": [],
    }
    assert resources()[CORES]["used"] == 10


def test_a_limit_without_usage(send: Callable[..., Any], resources: Callable[..., Any]) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "10k"}))
    assert list(resources()) == [MEMORY]
    assert resources()[MEMORY] == {
        "resource": MEMORY,
        "vendor": "NVIDIA",
        "used": 0,
        "hard": 10000,
        "headroom": 10000,
        "over_by": 0,
        "quotas": [
            {
                "name": "gpu",
                "key": f"limits.{MEMORY}",
                "spec": "10k",
                "hard": 10000,
                "used": 0,
                "headroom": 10000,
            }
        ],
    }


def test_each_quota_has_the_usage_of_the_pods_it_selects(
    send: Callable[..., Any], resources: Callable[..., Any]
) -> None:
    send(
        node("n1", card("GPU-a")),
        quota("all", hard={f"limits.{MEMORY}": "5000"}),
        quota("jobs", hard={f"limits.{MEMORY}": "1500"}, scopes=["Terminating"]),
    )
    send(
        pod("web", "GPU-a 1000 0"),
        pod("job", "GPU-a 2000 0", activeDeadlineSeconds=60),
    )
    found = resources()[MEMORY]
    assert (found["used"], found["hard"], found["headroom"], found["over_by"]) == (3000, 1500, 0, 500)
    assert [(one["name"], one["used"], one["headroom"]) for one in found["quotas"]] == [
        ("all", 3000, 2000),
        ("jobs", 2000, 0),
    ]


def test_a_limit_of_zero_is_a_limit(send: Callable[..., Any], resources: Callable[..., Any]) -> None:
    send(quota("none", hard={f"limits.{CORES}": "0"}))
    assert resources()[CORES]["hard"] == 0
    assert resources()[CORES]["headroom"] == 0


def test_a_value_that_is_no_integer_is_no_limit(
    api: APIClient, send: Callable[..., Any], resources: Callable[..., Any]
) -> None:
    send(quota("odd", hard={f"limits.{MEMORY}": "1.5"}))
    assert resources()[MEMORY]["hard"] is None
    assert resources()[MEMORY]["quotas"][0]["spec"] == "1.5"
    [finding] = api.get("/api/v1/namespaces/team-a/quota").json()["findings"]
    assert finding["code"] == "quota-value-unreadable"
    assert finding["subject"]["name"] == "odd"


def test_a_vendors_memory_factor_is_applied_once_to_limit_and_usage(
    api: APIClient, send: Callable[..., Any], resources: Callable[..., Any]
) -> None:
    web = pod("web")
    web["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "n1",
        "hami.io/cambricon-mlu-devices-allocated": "mlu-0,MLU,2560,50:;",
    }
    send(quota("mlu", hard={"limits.cambricon.com/mlu.smlu.vmemory": "20"}), web)
    found = resources()["cambricon.com/mlu.smlu.vmemory"]
    assert (found["used"], found["hard"], found["headroom"]) == (2560, 5120, 2560)
    assert found["quotas"][0]["spec"] == "20"


def test_what_the_apiserver_charges_is_listed_apart(api: APIClient, send: Callable[..., Any]) -> None:
    count, memory = f"requests.{COUNT}", f"requests.{MEMORY}"
    send(quota("apiserver", hard={count: "4", memory: "100", f"limits.{COUNT}": "2"}))
    send(
        pod("waiting", "", "", "", inits=1, node="", requests=[{COUNT: "3"}, {COUNT: "1"}, {COUNT: "1"}]),
        pod("running", "", requests=[{COUNT: "1", MEMORY: "2k"}]),
        pod("done", "", phase="Failed", requests=[{COUNT: "1"}]),
        pod("elsewhere", "", namespace="team-b", requests=[{COUNT: "1"}]),
    )
    found = api.get("/api/v1/namespaces/team-a/quota").json()["not_enforced"]
    assert [(one["quota"], one["key"], one["apiserver_used"]) for one in found] == [
        ("apiserver", count, 4),
        ("apiserver", memory, 2000),
        ("apiserver", f"limits.{COUNT}", None),
    ]
    assert all(one["reason"] for one in found)


def test_a_deleted_quota_limits_nothing(send: Callable[..., Any], resources: Callable[..., Any]) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "1"}))
    send(quota("gpu"), type_="DELETED")
    assert resources() == {}


def test_usage_that_has_ended_is_none(send: Callable[..., Any], resources: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")), pod("web", "GPU-a 2048 10"))
    send(pod("web", "GPU-a 2048 10"), type_="DELETED")
    assert resources()[MEMORY]["used"] == 0

"""POST /api/v1/fit"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.asking import asking, limits
from tests.watch import card, node, pod, quota

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("complete", "books_agree")]


@pytest.fixture
def fit(api: APIClient) -> Callable[..., Any]:
    """Asks where a pod fits; answers the body of a 200."""

    def fit(asked: dict[str, Any], **more: Any) -> Any:
        response = api.post("/api/v1/fit", {"pod": asked, **more})
        assert response.status_code == 200, response.content
        return response.json()

    return fit


@pytest.fixture
def _three_nodes(send: Callable[..., Any]) -> None:
    """n1 is the fullest that has room, n2 is empty, n3 has no room."""
    send(
        node("n1", card("GPU-a"), card("GPU-b")),
        node("n2", card("GPU-c")),
        node("n3", card("GPU-d", memory=1000)),
    )
    send(pod("web", "GPU-a 20000 0", node="n1"))


def test_a_candidate_says_where_what_it_costs_and_what_to_write(
    send: Callable[..., Any], fit: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")))
    found = fit(asking("p", limits(gpumem=5000), {}, limits(gpumem=3000, gpucores=10), inits=1))
    assert found["fits"]
    [candidate] = found["candidates"]
    assert candidate["node"] == "n1"
    assert candidate["score"] == 0
    assert candidate["allocation"] == [
        {
            "position": 0,
            "container": "c0",
            "devices": [{"uuid": "GPU-a", "vendor": "NVIDIA", "memory_mib": 5000, "cores": 0}],
        },
        {"position": 1, "container": "c1", "devices": []},
        {
            "position": 2,
            "container": "c2",
            "devices": [{"uuid": "GPU-a", "vendor": "NVIDIA", "memory_mib": 3000, "cores": 10}],
        },
    ]
    assert candidate["charge"] == [
        {
            "node": "n1",
            "device": "GPU-a",
            "vendor": "NVIDIA",
            "slots": 1,
            "memory_mib": 5000,
            "cores": 10,
        }
    ]
    text = "GPU-a,NVIDIA,5000,0:;;GPU-a,NVIDIA,3000,10:;"
    assert candidate["annotations"].pop("hami.io/vgpu-time").isdecimal()
    assert candidate["annotations"] == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-devices-allocated": text,
        "hami.io/vgpu-devices-to-allocate": text,
    }
    assert candidate["labels"] == {"hami.io/vgpu-node": "n1"}


@pytest.mark.usefixtures("_three_nodes")
def test_every_node_that_takes_the_pod_best_first_and_why_the_others_do_not(fit: Callable[..., Any]) -> None:
    found = fit(asking("p", gpumem=4000))
    assert [one["node"] for one in found["candidates"]] == ["n1", "n2"]
    assert found["failed"] == [
        {"node": "n3", "message": "1/1 CardInsufficientMemory", "reasons": {"CardInsufficientMemory": 1}}
    ]
    assert found["reasons"] == {"CardInsufficientMemory": ["n3"]}


@pytest.mark.usefixtures("_three_nodes")
def test_no_more_candidates_than_asked_and_still_every_refusal(fit: Callable[..., Any]) -> None:
    found = fit(asking("p", gpumem=4000), limit=1)
    assert [one["node"] for one in found["candidates"]] == ["n1"]
    assert [one["node"] for one in found["failed"]] == ["n3"]


@pytest.mark.usefixtures("_three_nodes")
def test_without_verdicts_the_candidates_alone(fit: Callable[..., Any]) -> None:
    found = fit(asking("p", gpumem=4000), verdicts=False)
    assert found.keys() == {"fits", "as_of", "candidates"}
    assert [one["node"] for one in found["candidates"]] == ["n1", "n2"]
    assert fit(asking("p", gpumem=40000), verdicts=False)["fits"] is False


@pytest.mark.usefixtures("_three_nodes")
def test_only_the_nodes_named_and_one_that_is_not_known_is_unregistered(fit: Callable[..., Any]) -> None:
    found = fit(asking("p", gpumem=4000), nodes=["n3", "n2", "n9"])
    assert [one["node"] for one in found["candidates"]] == ["n2"]
    assert {one["node"]: one["message"] for one in found["failed"]} == {
        "n3": "1/1 CardInsufficientMemory",
        "n9": "node unregistered",
    }
    assert found["reasons"] == {"CardInsufficientMemory": ["n3"], "node unregistered": ["n9"]}


@pytest.mark.usefixtures("_three_nodes")
def test_policies_of_the_question_stand_in_for_the_pods_own(fit: Callable[..., Any]) -> None:
    binpack = asking(
        "p",
        gpumem=4000,
        annotations={
            "hami.io/node-scheduler-policy": "binpack",
            "hami.io/gpu-scheduler-policy": "binpack",
        },
    )

    def first(**policies: str) -> tuple[str, str]:
        best = fit(binpack, **policies)["candidates"][0]
        return best["node"], best["allocation"][0]["devices"][0]["uuid"]

    assert first() == ("n1", "GPU-a")
    assert first(node_policy="spread")[0] == "n2"
    assert first(gpu_policy="spread") == ("n1", "GPU-b")
    assert first(node_policy="", gpu_policy="") == ("n1", "GPU-b")  # the defaults


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"node_policy": "random"}, "/node_policy"),
        ({"gpu_policy": "binpack,random"}, "/gpu_policy"),
        ({"limit": 0}, "/limit"),
        ({"limit": 1001}, "/limit"),
        ({"nodes": "n1"}, "/nodes"),
        ({"nodes": ["n1", ""]}, "/nodes/1"),
        ({"verdicts": "perhaps"}, "/verdicts"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(
    api: APIClient, more: dict[str, Any], pointer: str
) -> None:
    response = api.post("/api/v1/fit", {"pod": asking("p", gpumem=1), **more})
    assert response.status_code == 400
    assert [fault["pointer"] for fault in response.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    "annotations",
    [
        {"hami.io/node-scheduler-policy": "random"},
        {"hami.io/gpu-scheduler-policy": "random"},
        {"hami.io/device-scoring-weights": "slot=1"},
    ],
)
def test_a_pod_that_wants_devices_chosen_in_a_way_nobody_knows_is_malformed(
    api: APIClient, annotations: dict[str, str]
) -> None:
    response = api.post("/api/v1/fit", {"pod": asking("p", gpumem=1, annotations=annotations)})
    assert response.status_code == 400


@pytest.mark.parametrize("amount", ["16Gi", "1.5", "-1", "a lot"])
def test_a_request_nobody_can_grant_names_container_key_and_value_and_is_kept(
    api: APIClient, decisions: Callable[..., list[Any]], amount: str
) -> None:
    asked = asking("p", limits(gpumem=1), limits(gpumem=amount), inits=1)
    response = api.post("/api/v1/fit", {"pod": asked})
    assert response.status_code == 400
    [fault] = response.json()["errors"]
    assert fault["pointer"] == "/pod/spec/containers/0/resources"
    assert all(part in fault["detail"] for part in ("c1", "nvidia.com/gpumem", amount))
    [kept] = decisions()
    assert (kept["question"], kept["verdict"], kept["pod"]) == ("fit", "error", "p")
    assert kept["message"] == fault["detail"]


@pytest.mark.parametrize("body", [{}, [], {"pod": None}, {"pod": []}, "pod", {"pod": {"spec": 7}}])
def test_a_body_without_a_pod_is_malformed(api: APIClient, body: Any) -> None:
    assert api.post("/api/v1/fit", body, format="json").status_code == 400


def test_a_body_over_the_limit(api: APIClient) -> None:
    response = api.post("/api/v1/fit", b" " * (8 * 2**20 + 1), content_type="application/json")
    assert response.status_code == 413


# --- what is answered when -----------------------------------------------------------------------


def test_a_pod_that_asks_for_nothing_fits_anywhere_even_on_empty_books(
    api: APIClient, fit: Callable[..., Any], settings: Any
) -> None:
    found = fit(asking("p", {}))
    assert (found["fits"], found["candidates"], found["failed"], found["reasons"]) == (True, [], [], {})
    assert found["as_of"]


def test_where_no_device_was_ever_registered_nothing_can_be_said(api: APIClient) -> None:
    response = api.post("/api/v1/fit", {"pod": asking("p", gpumem=1)})
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0


def test_devices_that_are_gone_are_no_reason_to_be_silent(
    send: Callable[..., Any], fit: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")))
    send(node("n1"), type_="DELETED")
    assert fit(asking("p", gpumem=1))["fits"] is False


def test_events_that_wait_too_long_make_the_answer_doubtful(
    api: APIClient, send: Callable[..., Any], settings: Any
) -> None:
    send(node("n1", card("GPU-a")))
    assert api.post("/api/v1/fit", {"pod": asking("p", gpumem=1)}).status_code == 200
    settings.HAMIACCT = replace(settings.HAMIACCT, redis_url="redis://127.0.0.1:1/0", max_lag_seconds=0)
    # With a broker that nobody answers at, the event waits.
    assert api.post("/api/v1/events", {"events": [{"type": "ADDED", "object": pod("w")}]}).status_code == 202
    assert api.post("/api/v1/fit", {"pod": asking("p", gpumem=1)}).status_code == 503


# --- quotas, and what is left behind -------------------------------------------------------------


def test_a_quota_refuses_on_every_node_and_the_reason_is_kept(
    send: Callable[..., Any], fit: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    send(node("n1", card("GPU-a")), quota("gpu", hard={"limits.nvidia.com/gpumem": "3000"}))
    assert fit(asking("p", gpumem=3000))["fits"]
    assert decisions() == []
    found = fit(asking("p", gpumem=3001))
    assert found["reasons"] == {"ResourceQuotaNotFit": ["n1"]}
    [kept] = decisions()
    assert (kept["question"], kept["verdict"]) == ("fit", "no-quota")
    assert kept["reasons"] == {"ResourceQuotaNotFit": ["n1"]}
    assert "1/1 ResourceQuotaNotFit (n1)" in kept["message"]


def test_asking_leaves_the_ledger_alone(
    api: APIClient, send: Callable[..., Any], fit: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")))
    fit(asking("p", gpumem=3000))
    fit(asking("p", gpumem=30000))
    assert api.get("/api/v1/ledger").json()["items"] == []
    assert api.get("/api/v1/pods").json()["items"] == []


def test_what_a_pod_holds_already_is_not_in_its_own_way(
    api: APIClient, send: Callable[..., Any], fit: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")), quota("gpu", hard={"limits.nvidia.com/gpumem": "20000"}))
    assert api.post("/api/v1/reservations", {"pod": asking("p", gpumem=20000)}).status_code == 201
    assert fit(asking("p", gpumem=20000))["fits"]
    assert not fit(asking("q", gpumem=20000))["fits"]


def test_a_hold_whose_time_is_up_is_not_in_the_way(
    api: APIClient, send: Callable[..., Any], fit: Callable[..., Any], clock: Callable[[int], None]
) -> None:
    send(node("n1", card("GPU-a")))
    held = {"pod": asking("p", gpumem=20000), "ttl_seconds": 5}
    assert api.post("/api/v1/reservations", held).status_code == 201
    assert not fit(asking("q", gpumem=20000))["fits"]
    clock(6)
    assert fit(asking("q", gpumem=20000))["fits"]
    assert api.get("/api/v1/reservations/uid-p").json()["state"] == "expired"

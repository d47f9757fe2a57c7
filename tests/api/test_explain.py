"""GET /api/v1/pods/{uid}/explain, POST /api/v1/explain"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db


def memory(usage: list[Any]) -> dict[str, int]:
    return {one["device"]: one["memory_mib"] for one in usage}


@pytest.fixture
def _design_case(send: Callable[..., Any]) -> None:
    """Sidecar 2048, init 20480, app 10240 on one card, while the init runs."""
    send(node("n1", card("GPU-a")))
    send(pod_of_the_design())


def pod_of_the_design(**more: Any) -> dict[str, Any]:
    made = pod("web", "GPU-a 2048 0", "GPU-a 20480 0", "GPU-a 10240 0", inits=2, phase="Pending", **more)
    made["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    return made


def test_a_charge_is_explained_container_by_container(api: APIClient, _design_case: None) -> None:
    found = api.get("/api/v1/pods/uid-web/explain").json()
    assert [(step["class"], memory(step["steady"]), memory(step["peak"])) for step in found["steps"]] == [
        ("sidecar", {"GPU-a": 2048}, {}),
        ("init", {"GPU-a": 2048}, {"GPU-a": 22528}),
        ("app", {"GPU-a": 12288}, {"GPU-a": 22528}),
    ]
    assert memory(found["effective"]) == memory(found["charged"]) == {"GPU-a": 22528}
    assert memory(found["steady"]) == {"GPU-a": 12288}
    assert found["rule"] == "charged"
    assert "22528" in found["sentence"]
    assert [line["memory_mib"] for line in found["ledger"]] == [22528]


def test_an_unknown_pod_is_not_found(api: APIClient) -> None:
    assert api.get("/api/v1/pods/nobody/explain").status_code == 404


def test_a_pod_that_need_not_exist_is_explained_from_its_allocation(api: APIClient) -> None:
    found = api.post("/api/v1/explain", {"pod": pod_of_the_design()}).json()
    assert memory(found["effective"]) == {"GPU-a": 22528}
    assert found["ledger"] == []


def test_or_from_its_requests_and_as_the_apiserver_sees_it(api: APIClient) -> None:
    asked = [{"nvidia.com/gpu": "1", "nvidia.com/gpumem": amount} for amount in ("20480", "10240")]
    manifest = {
        "metadata": {"name": "web"},
        "spec": {
            "initContainers": [{"name": "init", "resources": {"limits": asked[0]}}],
            "containers": [{"name": "app", "resources": {"limits": asked[1]}}],
        },
    }
    found = api.post("/api/v1/explain", {"pod": manifest}).json()
    assert sum(memory(found["effective"]).values()) == 20480
    assert sum(memory(found["steady"]).values()) == 10240
    assert found["apiserver"] == {"requests.nvidia.com/gpu": 1, "requests.nvidia.com/gpumem": 20480}


@pytest.mark.parametrize("metadata", [None, {}, {"generateName": "web-"}, {"name": ""}])
def test_a_template_has_no_name_yet(api: APIClient, metadata: Any) -> None:
    response = api.post(
        "/api/v1/explain", {"pod": {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}}
    )
    assert response.status_code == 200
    assert response.json()["charged"] == []


@pytest.mark.parametrize("body", [{}, [], {"pod": None}, {"pod": []}, "pod"])
def test_a_body_without_a_pod_is_malformed(api: APIClient, body: Any) -> None:
    assert api.post("/api/v1/explain", body, format="json").status_code == 400


def test_a_pod_that_cannot_be_read_says_where(api: APIClient) -> None:
    response = api.post("/api/v1/explain", {"pod": {"metadata": {"name": "web"}, "spec": {"containers": 7}}})
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/pod/spec/containers"


def asking(limits: dict[str, str], name: str = "app") -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits}}


def test_requests_are_read_as_admission_would_leave_them(api: APIClient) -> None:
    manifest = {
        "spec": {"containers": [asking({"nvidia.com/gpumem": "3000"}), asking({"nvidia.com/gpu": "1"})]}
    }
    steps = api.post("/api/v1/explain", {"pod": manifest}).json()["steps"]
    assert [[(one["memory_mib"], one["cores"]) for one in step["usage"]] for step in steps] == [
        [(3000, 0)],
        [(0, 100)],
    ]


def test_named_cores_that_nobody_has_named_yet_are_counted(api: APIClient) -> None:
    containers = [asking({"aws.amazon.com/neuroncore": "1"}, name) for name in ("a", "b")]
    found = api.post("/api/v1/explain", {"pod": {"spec": {"containers": containers}}}).json()
    assert [one["cores"] for one in found["effective"]] == [2]


def test_a_share_by_its_size_shows_its_slots(api: APIClient) -> None:
    manifest = {"spec": {"containers": [asking({"enflame.com/drs-gcu": "3"})]}}
    found = api.post("/api/v1/explain", {"pod": manifest}).json()
    assert [(one["slots"], one["memory_mib"]) for one in found["effective"]] == [(3, 0)]


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpu": "2000"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16Gi"}]
)
def test_a_request_nobody_can_grant_is_malformed(api: APIClient, limits: dict[str, str]) -> None:
    response = api.post("/api/v1/explain", {"pod": {"spec": {"containers": [asking(limits)]}}})
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"].startswith("/pod")


def test_what_has_no_size_before_a_card_is_chosen_is_said(api: APIClient) -> None:
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "30", "nvidia.com/gpucores": "10"}
    manifest = {"spec": {"containers": [asking(limits)]}}
    sentence = api.post("/api/v1/explain", {"pod": manifest}).json()["sentence"]
    assert "Yet to be added: app: 30 % of the memory of 2 NVIDIA devices" in sentence
    assert "inits" not in sentence  # it has none


def test_the_apiserver_is_shown_the_pod_as_admission_leaves_it(api: APIClient) -> None:
    manifest = {"spec": {"containers": [asking({"nvidia.com/gpumem": "3000"})]}}
    found = api.post("/api/v1/explain", {"pod": manifest}).json()
    assert found["apiserver"] == {"requests.nvidia.com/gpu": 1, "requests.nvidia.com/gpumem": 3000}


@pytest.mark.parametrize("text", ["GPU-a,NVIDIA,5", "GPU-a,NVIDIA,-5,1:;", ";GPU-a,NVIDIA,5,1:;"])
def test_an_allocation_that_cannot_be_read_is_never_called_none(
    api: APIClient, send: Callable[..., Any], text: str
) -> None:
    manifest = pod("web", "GPU-a 5 1")
    manifest["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = text
    asked = api.post("/api/v1/explain", {"pod": manifest}).json()["sentence"]
    send(manifest)
    stored = api.get("/api/v1/pods/uid-web/explain").json()["sentence"]
    for sentence in (asked, stored):
        assert "no allocation of it could ever be read" in sentence
        assert "hami.io/vgpu-devices-allocated at offset" in sentence


def test_a_charge_that_is_the_last_good_one_says_so(api: APIClient, send: Callable[..., Any]) -> None:
    send(pod("web", "GPU-a 5 1"))
    manifest = pod("web", "GPU-a 5 1")
    manifest["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = "GPU-a,NVIDIA,5"
    send(manifest, type_="MODIFIED")
    sentence = api.get("/api/v1/pods/uid-web/explain").json()["sentence"]
    assert sentence.startswith("Charged 5 MiB")
    assert "missing fields" in sentence


def test_a_pod_that_is_being_deleted_waits_for_no_init(api: APIClient, _design_case: None) -> None:
    manifest = pod_of_the_design()
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    manifest["status"]["initContainerStatuses"] = [{"name": "c1", "state": {"terminated": {"exitCode": 0}}}]
    api.post("/api/v1/events", {"events": [{"type": "MODIFIED", "object": manifest}]})
    sentence = api.get("/api/v1/pods/uid-web/explain").json()["sentence"]
    assert sentence == (
        "Charged 22528 MiB, 0 cores and 2 slots, set by an init container with the sidecars declared before "
        "it. It is being deleted and keeps its charge until it is gone."
    )

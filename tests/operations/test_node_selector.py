"""HAMIACCT_NODE_SELECTOR: the devices of other nodes are not given out here (decision 10)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.operations import audit, inbox, snapshots
from tests import watch

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OURS = {"pool": "shared", "zone": "a"}

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _selected(settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, node_selector=(("pool", "shared"), ("zone", "a")))


def told(*objects: dict[str, Any]) -> None:
    inbox.receive([watch.event(one, "MODIFIED") for one in objects], at=NOW)
    inbox.drain(at=NOW)
    snapshots.declare_complete(at=NOW)
    assert audit.audit().discrepancies == ()


def node(name: str, **labels: str) -> dict[str, Any]:
    manifest = watch.node(name, watch.card(f"GPU-{name}"))
    manifest["metadata"]["labels"] = labels
    return manifest


def asking() -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a", "uid": "uid-p"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


def fitting(api: APIClient) -> list[str]:
    response = api.post("/api/v1/fit", {"pod": asking()}, format="json")
    return [one["node"] for one in response.json()["candidates"]]


def registered() -> set[str]:
    return set(models.Device.objects.filter(registered=True).values_list("node", flat=True))


def test_only_nodes_with_all_the_labels_are_offered(api: APIClient) -> None:
    told(node("n1", **OURS), node("n2", pool="shared"), node("n3", pool="hami", zone="a"), node("n4"))
    assert registered() == {"n1"}
    assert fitting(api) == ["n1"]


def test_a_node_comes_and_goes_with_its_labels(api: APIClient) -> None:
    told(node("n0", **OURS), node("n1"))
    assert fitting(api) == ["n0"]
    told(node("n1", **OURS))
    assert set(fitting(api)) == {"n0", "n1"}
    told(node("n1", pool="hami"))
    assert fitting(api) == ["n0"]


def test_what_pods_hold_elsewhere_counts_for_them_and_is_nothing_odd(api: APIClient) -> None:
    """Quotas are the whole namespace's, wherever its pods run."""
    told(node("n1", pool="hami"), watch.pod("web", "GPU-n1 1000 10"))
    used = api.get("/api/v1/namespaces/team-a/quota").json()["resources"]
    assert {one["resource"]: one["used"] for one in used}["nvidia.com/gpumem"] == 1000
    assert api.get("/api/v1/findings").json()["items"] == []
    told(node("n1", **OURS))
    (device,) = api.get("/api/v1/devices").json()["items"]
    assert (device["registered"], device["memory_mib"]["used"]) == (True, 1000)
    told(node("n1"))
    assert api.get("/api/v1/findings").json()["items"] == []


def test_a_node_that_was_sent_along_is_judged_alike(api: APIClient) -> None:
    told(node("n0", **OURS))
    body = {"Pod": asking(), "Nodes": {"items": [node("n1", **OURS), node("n2")]}}
    answer = api.post("/extender/filter", body, format="json").json()
    assert [one["metadata"]["name"] for one in answer["Nodes"]["items"]] == ["n1"]
    assert answer["FailedNodes"] == {"n2": "node unregistered"}

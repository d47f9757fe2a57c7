"""POST /api/v1/snapshots"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from api import snapshots as api_snapshots
from tests.watch import card, node, pod, versions

pytestmark = pytest.mark.django_db


def listing(*items: Any, kind: str = "PodList", version: int | None = None, **meta: Any) -> dict[str, Any]:
    number = next(versions) if version is None else version
    return {"kind": kind, "metadata": {"resourceVersion": str(number), **meta}, "items": list(items)}


def post(api: APIClient, body: Any, query: str = "") -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return api.post(f"/api/v1/snapshots{query}", raw, content_type="application/json")


def alive(api: APIClient) -> list[str]:
    return [one["name"] for one in api.get("/api/v1/pods").json()["items"] if one["state"] != "ended"]


@pytest.fixture
def _two_pods(send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")))
    send(pod("one", "GPU-a 1000 10"), pod("two", "GPU-a 1000 10", namespace="team-b"))


def test_a_full_list_is_the_truth(api: APIClient, _two_pods: None) -> None:
    body = listing(pod("one", "GPU-a 2000 10"), pod("three", "GPU-a 1 1"))
    response = post(api, body)
    assert response.status_code == 200
    assert response.json() == {
        "kind": "Pod",
        "version": int(body["metadata"]["resourceVersion"]),
        "added": 1,
        "changed": 1,
        "unchanged": 0,
        "ended": 1,
        "would_end": 1,
        "rejected": [],
    }
    assert alive(api) == ["one", "three"]


def test_one_namespace_is_the_truth_for_itself(api: APIClient, _two_pods: None) -> None:
    assert post(api, listing(), "?namespace=team-b").json()["ended"] == 1
    assert alive(api) == ["one"]


def test_a_dry_run_only_counts(api: APIClient, _two_pods: None) -> None:
    found = post(api, listing(), "?dry_run=1").json()
    assert found["would_end"] == 2
    assert alive(api) == ["one", "two"]


def test_a_dry_run_counts_what_a_guard_would_refuse(api: APIClient, send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")), *(pod(f"p{number:02}", "GPU-a 1 1") for number in range(30)))
    response = post(api, listing(), "?dry_run=1")
    assert response.status_code == 200
    assert (response.json()["ended"], response.json()["would_end"]) == (30, 30)
    assert len(alive(api)) == 30


def test_a_list_of_another_namespace_ends_nothing_in_this_one(api: APIClient, _two_pods: None) -> None:
    found = post(api, listing(pod("one", "GPU-a 1000 10")), "?namespace=team-b").json()
    assert found["ended"] == 0
    assert found["rejected"][0]["pointer"] == "/items/0/metadata/namespace"
    assert alive(api) == ["one", "two"]


def test_nodes_are_in_no_namespace(api: APIClient, _two_pods: None) -> None:
    body = {"kind": "NodeList", "metadata": {"resourceVersion": "999999"}, "items": []}
    assert post(api, body, "?namespace=team-a").status_code == 400
    assert api.get("/api/v1/nodes").json()["items"] != []


def test_a_list_that_would_end_too_much_is_refused_with_its_numbers(
    api: APIClient, send: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")), *(pod(f"p{number:02}", "GPU-a 1 1") for number in range(30)))
    empty = listing()
    response = post(api, empty)
    assert response.status_code == 409
    assert response.json()["type"] == "/problems/snapshot-refused"
    assert response.json()["would_end"] == 30
    assert post(api, empty, "?confirm=29").status_code == 409
    assert len(alive(api)) == 30
    assert post(api, empty, "?confirm=30").json()["ended"] == 30
    assert alive(api) == []


@pytest.mark.parametrize("meta", [{"continue": "x"}, {"remainingItemCount": 5}])
def test_a_part_of_a_list_is_refused(api: APIClient, _two_pods: None, meta: dict[str, Any]) -> None:
    response = post(api, listing(**meta))
    assert response.status_code == 409
    assert response.json()["type"] == "/problems/snapshot-refused"
    assert alive(api) == ["one", "two"]


def test_a_list_older_than_the_books_is_refused_unless_history_begins_anew(
    api: APIClient, _two_pods: None
) -> None:
    old = listing(pod("one", "GPU-a 1000 10", version=5), version=6)
    assert post(api, old).status_code == 409
    assert post(api, old, "?history=new").status_code == 200
    assert alive(api) == ["one"]


def test_an_empty_list_of_no_kind_needs_its_kind(api: APIClient, _two_pods: None) -> None:
    empty = listing(kind="List")
    response = post(api, empty)
    assert response.status_code == 400
    assert "kind" in response.json()["detail"]
    assert post(api, empty, "?kind=Node").json()["kind"] == "Node"


def test_a_list_of_another_kind_than_named_is_malformed(api: APIClient) -> None:
    assert post(api, listing(), "?kind=Node").status_code == 400


def test_completeness_is_declared_without_a_body(api: APIClient) -> None:
    assert api.get("/api/v1/cluster").json()["complete"] is False
    response = api.post("/api/v1/snapshots?complete=1")
    assert response.status_code == 200
    assert response.json() == {"complete": True}
    assert api.get("/api/v1/cluster").json()["complete"] is True


def test_lists_of_all_kinds_complete_the_books(api: APIClient) -> None:
    for kind in ("PodList", "NodeList", "ResourceQuotaList"):
        assert api.get("/api/v1/cluster").json()["complete"] is False
        assert post(api, listing(kind=kind)).status_code == 200
    assert api.get("/api/v1/cluster").json()["complete"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"kind": "Pod"}',
        b'{"kind": "PodList"}',
        b'{"kind": "SecretList", "items": []}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_list_is_malformed(api: APIClient, _two_pods: None, body: bytes) -> None:
    response = post(api, body)
    assert response.status_code == 400
    assert response.json()["type"] == "/problems/malformed"
    assert alive(api) == ["one", "two"]


def test_half_a_body_is_malformed(api: APIClient, _two_pods: None) -> None:
    body = json.dumps(listing(pod("one", "GPU-a 1 1"))).encode()
    assert post(api, body[: len(body) // 2]).status_code == 400
    assert alive(api) == ["one", "two"]


def test_an_item_that_cannot_be_read_is_rejected_and_counts_as_seen(api: APIClient, _two_pods: None) -> None:
    broken = pod("two", "GPU-a 1 1", namespace="team-b")
    broken["spec"]["containers"] = "none"
    found = post(api, listing(pod("one", "GPU-a 1000 10"), broken)).json()
    assert [one["index"] for one in found["rejected"]] == [1]
    assert found["rejected"][0]["pointer"].startswith("/items/1")
    assert found["ended"] == 0
    assert alive(api) == ["one", "two"]


@pytest.mark.parametrize(
    "query", ["?kind=Secret", "?confirm=x", "?confirm=-1", "?dry_run=x", "?history=old", "?what=1"]
)
def test_a_parameter_that_cannot_be_read_is_malformed(api: APIClient, query: str) -> None:
    assert post(api, listing(), query).status_code == 400


def test_another_media_type_is_not_read(api: APIClient) -> None:
    assert api.post("/api/v1/snapshots", b"{}", content_type="application/x-ndjson").status_code == 415


def test_a_body_over_the_limit_is_too_large(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_snapshots, "MAX_BODY_BYTES", 20)
    assert post(api, listing()).status_code == 413

"""The API server for tests keeps what a real one promises, as far as this service relies on it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests import watch
from tests.kubeapi.server import ApiServer, Fault


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def call(api: ApiServer, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(api.url + path, data, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def watched(api: ApiServer, path: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(api.url + path, timeout=10) as response:
        return [json.loads(line) for line in response]


def test_a_list_comes_in_pages_that_all_show_the_first_ones_version(api: ApiServer) -> None:
    for name in ("n1", "n2", "n3"):
        api.create(watch.node(name))
    _, first = call(api, "/api/v1/nodes?limit=2")
    assert first["metadata"]["remainingItemCount"] == 1
    api.create(watch.node("n0"))
    _, second = call(api, f"/api/v1/nodes?limit=2&continue={first['metadata']['continue']}")
    assert "continue" not in second["metadata"]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    names = [item["metadata"]["name"] for page in (first, second) for item in page["items"]]
    assert names == ["n1", "n2", "n3"]
    api.forget()
    assert call(api, f"/api/v1/nodes?continue={first['metadata']['continue']}")[0] == 410


def test_a_watch_tells_what_happened_after_its_version_and_ends_with_a_bookmark(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    since = api.store.version
    api.change("Node", "n1", {"metadata": {"labels": {"a": "b"}}})
    api.create(watch.pod("p"))
    api.delete("Node", "n1")
    path = f"/api/v1/nodes?watch=True&allowWatchBookmarks=true&timeoutSeconds=0&resourceVersion={since}"
    events = watched(api, path)
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED", "BOOKMARK"]
    assert set(events[-1]["object"]) == {"kind", "apiVersion", "metadata"}
    assert events[-1]["object"]["metadata"] == {"resourceVersion": str(api.store.version)}


def test_too_old_a_version_is_told_in_the_stream(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    api.forget()
    (event,) = watched(api, "/api/v1/nodes?watch=1&timeoutSeconds=5&resourceVersion=7")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_what_leaves_a_selector_is_deleted_to_the_watcher(api: ApiServer) -> None:
    api.create(watch.pod("p"))
    since = api.store.version
    api.change("Pod", "p", {"status": {"phase": "Succeeded"}}, "team-a")
    query = f"watch=t&timeoutSeconds=0&resourceVersion={since}&fieldSelector=status.phase!=Succeeded"
    assert [event["type"] for event in watched(api, f"/api/v1/pods?{query}")] == ["DELETED"]


def test_a_patch_that_changes_nothing_makes_no_version(api: ApiServer) -> None:
    node = api.create(watch.node("n1"))
    version = api.store.version
    assert call(api, "/api/v1/nodes/n1", "PATCH", {"metadata": {"uid": node["metadata"]["uid"]}})[0] == 200
    assert api.store.version == version


@pytest.mark.parametrize("precondition", [{"uid": "another"}, {"resourceVersion": "1"}])
def test_a_precondition_that_does_not_hold_is_a_conflict(
    api: ApiServer, precondition: dict[str, str]
) -> None:
    api.create(watch.node("n1"))
    patch = {"metadata": {**precondition, "labels": {"a": "b"}}}
    assert call(api, "/api/v1/nodes/n1", "PATCH", patch)[0] == 409
    assert "labels" not in api.get("Node", "n1")["metadata"]


def test_the_status_is_a_resource_of_its_own(api: ApiServer) -> None:
    api.create(watch.pod("p"))
    path = "/api/v1/namespaces/team-a/pods/p"
    call(api, path, "PATCH", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})
    assert api.get("Pod", "p", "team-a")["status"]["phase"] == "Running"
    call(api, f"{path}/status", "PATCH", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "c"}}})
    pod = api.get("Pod", "p", "team-a")
    assert (pod["status"]["phase"], pod["metadata"]["labels"]) == ("Failed", {"a": "b"})


def test_a_pod_with_grace_is_first_seen_going(api: ApiServer) -> None:
    api.create(watch.pod("p"))
    path = "/api/v1/namespaces/team-a/pods/p"
    call(api, f"{path}?gracePeriodSeconds=30", "DELETE")
    assert api.get("Pod", "p", "team-a")["metadata"]["deletionTimestamp"]
    call(api, path, "DELETE")
    assert call(api, path)[0] == 404
    assert [type_ for _, type_, _ in api.store.log] == ["ADDED", "MODIFIED", "DELETED"]


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_happens_before_or_after_the_change_was_made(api: ApiServer, fault: Fault) -> None:
    api.create(watch.node("n1"))
    api.fail("PATCH", "/nodes/n1", fault)
    patch = {"metadata": {"labels": {"a": "b"}}}
    if "cut" in fault:
        with pytest.raises(ConnectionError):
            call(api, "/api/v1/nodes/n1", "PATCH", patch)
    else:
        assert call(api, "/api/v1/nodes/n1", "PATCH", patch)[0] == int(fault.split()[0])
    assert ("labels" in api.get("Node", "n1")["metadata"]) is fault.is_done
    assert call(api, "/api/v1/nodes/n1", "PATCH", patch)[0] == 200

"""The API server for tests keeps what a real one promises, as far as this service relies on it."""

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests import watch
from tests.kubeapi.server import ApiServer, Ending, Fault


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def call(
    api: ApiServer, path: str, method: str = "GET", body: Any = None, token: str = ""
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(api.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def watched(api: ApiServer, path: str, seconds: float = 0) -> list[dict[str, Any]]:
    """All that a watch tells until it has heard everything and this much time is over."""
    api.watch_seconds = seconds
    with urllib.request.urlopen(api.url + path, timeout=10) as response:
        # Not by iteration, which takes a stream that is cut for one that ends.
        return [json.loads(line) for line in response.read().splitlines()]


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
    status, expired = call(api, f"/api/v1/nodes?limit=2&continue={first['metadata']['continue']}")
    assert (status, expired["reason"]) == (410, "Expired")
    # The way on that a 410 offers is a list of what is there now, from the same place.
    _, rest = call(api, f"/api/v1/nodes?continue={expired['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["n3"]
    assert rest["metadata"]["resourceVersion"] == str(api.store.version)


def test_a_watch_tells_what_happened_after_its_version_and_ends_with_a_bookmark(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    since = api.store.version
    api.change("Node", "n1", {"metadata": {"labels": {"a": "b"}}})
    api.create(watch.pod("p"))
    api.delete("Node", "n1")
    path = f"/api/v1/nodes?watch=True&allowWatchBookmarks=true&resourceVersion={since}"
    events = watched(api, path)
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED", "BOOKMARK"]
    assert {"kind", "apiVersion", "metadata"} <= set(events[-1]["object"])
    assert events[-1]["object"]["metadata"] == {"resourceVersion": str(api.store.version)}


def test_too_old_a_version_is_told_in_the_stream(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    api.forget()
    (event,) = watched(api, "/api/v1/nodes?watch=1&resourceVersion=7")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_what_leaves_a_selector_is_deleted_to_the_watcher(api: ApiServer) -> None:
    api.create(watch.pod("p"))
    since = api.store.version
    api.change("Pod", "p", {"status": {"phase": "Succeeded"}}, "team-a")
    query = f"watch=t&resourceVersion={since}&fieldSelector=status.phase!=Succeeded"
    assert [event["type"] for event in watched(api, f"/api/v1/pods?{query}")] == ["DELETED"]


def test_a_patch_that_changes_nothing_makes_no_version(api: ApiServer) -> None:
    node = api.create(watch.node("n1"))
    version = api.store.version
    assert call(api, "/api/v1/nodes/n1", "PATCH", {"metadata": {"uid": node["metadata"]["uid"]}})[0] == 200
    assert api.store.version == version


@pytest.mark.parametrize(
    ("precondition", "status"),
    [
        ({"uid": "another"}, 422),
        ({"resourceVersion": "1"}, 409),
        ({"uid": "another", "resourceVersion": "1"}, 409),
    ],
)
def test_a_precondition_that_does_not_hold_stops_a_patch(
    api: ApiServer, precondition: dict[str, str], status: int
) -> None:
    api.create(watch.node("n1"))
    patch = {"metadata": {**precondition, "labels": {"a": "b"}}}
    assert call(api, "/api/v1/nodes/n1", "PATCH", patch)[0] == status
    assert "labels" not in api.get("Node", "n1")["metadata"]


def test_the_status_is_a_resource_of_its_own(api: ApiServer) -> None:
    api.create(watch.pod("p"))
    path = "/api/v1/namespaces/team-a/pods/p"
    call(api, path, "PATCH", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})
    assert api.get("Pod", "p", "team-a")["status"]["phase"] == "Running"
    call(api, f"{path}/status", "PATCH", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "c"}}})
    pod = api.get("Pod", "p", "team-a")
    assert (pod["status"]["phase"], pod["metadata"]["labels"]) == ("Failed", {"a": "c"})


@pytest.mark.parametrize(
    ("node", "queries", "expected"),
    [
        ("n1", ["", "", "?gracePeriodSeconds=0"], ["MODIFIED", "MODIFIED", "DELETED"]),
        ("n1", ["?gracePeriodSeconds=0"], ["MODIFIED", "DELETED"]),
        ("", [""], ["MODIFIED", "DELETED"]),
    ],
)
def test_a_pod_is_first_seen_going(
    api: ApiServer, node: str, queries: list[str], expected: list[str]
) -> None:
    api.create(watch.pod("p", node=node))
    path = "/api/v1/namespaces/team-a/pods/p"
    for query in queries:
        call(api, path + query, "DELETE")
    assert call(api, path)[0] == 404
    assert [change.type for change in api.store.log] == ["ADDED", *expected]
    assert api.store.log[1].item["metadata"]["deletionTimestamp"]


def test_a_node_is_gone_at_once(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    assert call(api, "/api/v1/nodes/n1", "DELETE")[0] == 200
    assert [change.type for change in api.store.log] == ["ADDED", "DELETED"]


def test_a_bound_pod_is_scheduled_and_tells_what_its_binding_told(api: ApiServer) -> None:
    api.create(watch.pod("p", node=""))
    binding = {"metadata": {"annotations": {"a": "b"}}, "target": {"name": "n1"}}
    path = "/api/v1/namespaces/team-a/pods/p/binding"
    assert call(api, path, "POST", binding)[0] == 201
    pod = api.get("Pod", "p", "team-a")
    assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"]["a"]) == ("n1", "b")
    assert [one["type"] for one in pod["status"]["conditions"]] == ["PodScheduled"]
    assert call(api, path, "POST", binding)[0] == 409


@pytest.mark.parametrize("said", ["true", "True", "1", "yes", "f", ""])
def test_a_parameter_that_does_not_say_no_says_yes(api: ApiServer, said: str) -> None:
    api.watch_seconds = 0
    with urllib.request.urlopen(f"{api.url}/api/v1/nodes?watch={said}") as response:
        assert response.headers["Transfer-Encoding"] == "chunked"
    assert call(api, "/api/v1/nodes?watch=FALSE")[1]["kind"] == "NodeList"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=x", 400),
        ("watch=1&timeoutSeconds=0.5", 400),
        ("watch=1&resourceVersion=x", 500),
        ("watch=1&sendInitialEvents=true", 422),
        ("continue=x", 400),
        ("resourceVersion=999999", 504),
    ],
)
def test_what_cannot_be_meant_is_refused(api: ApiServer, query: str, status: int) -> None:
    assert call(api, f"/api/v1/nodes?{query}")[0] == status


def test_a_list_of_any_version_is_no_page(api: ApiServer) -> None:
    for name in ("n1", "n2"):
        api.create(watch.node(name))
    _, found = call(api, "/api/v1/nodes?limit=1&resourceVersion=0")
    assert (len(found["items"]), "continue" in found["metadata"]) == (2, False)


def test_a_watch_from_the_future_is_silent(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    assert watched(api, f"/api/v1/nodes?watch=1&resourceVersion={api.store.version + 5}") == []


@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.CUT_WITHIN}))
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


def test_what_enters_a_selector_is_new_and_what_leaves_is_shown_as_it_was(api: ApiServer) -> None:
    api.create(watch.pod("p"))
    since = api.store.version
    for team in ("a", "b", "a"):
        api.change("Pod", "p", {"metadata": {"labels": {"team": team}}}, "team-a")
    events = watched(api, f"/api/v1/pods?watch=1&resourceVersion={since}&labelSelector=team%20in%20(a,c)")
    assert [
        (event["type"], event["object"]["metadata"]["labels"], event["object"]["metadata"]["resourceVersion"])
        for event in events
    ] == [
        ("ADDED", {"team": "a"}, str(since + 1)),
        ("DELETED", {"team": "a"}, str(since + 2)),
        ("ADDED", {"team": "a"}, str(since + 3)),
    ]


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("labelSelector=a", {"p"}),
        ("labelSelector=!a", {"q"}),
        ("labelSelector=a=b,c=d", {"p"}),
        ("labelSelector=a!=b", {"q"}),
        ("labelSelector=a%20notin%20(b,x)", {"q"}),
        ("fieldSelector=spec.nodeName=n2", {"q"}),
        ("fieldSelector=status.phase!=Failed,metadata.namespace=team-a", {"p"}),
    ],
)
def test_selectors(api: ApiServer, selector: str, selected: set[str]) -> None:
    api.create(watch.pod("p"))
    api.create(watch.pod("q", node="n2", phase="Failed"))
    api.change("Pod", "p", {"metadata": {"labels": {"a": "b", "c": "d"}}}, "team-a")
    _, found = call(api, f"/api/v1/pods?limit=1&{selector}")
    assert {item["metadata"]["name"] for item in found["items"]} == selected
    assert "remainingItemCount" not in found["metadata"]


def test_a_field_that_nothing_is_selected_by_is_refused(api: ApiServer) -> None:
    status, answer = call(api, "/api/v1/nodes?fieldSelector=status.phase=Running")
    assert (status, answer["message"]) == (400, "field label not supported: status.phase")


def test_a_watch_without_a_version_begins_with_what_is_there(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    assert [event["type"] for event in watched(api, "/api/v1/nodes?watch=1")] == ["ADDED"]
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    first, end, _ = watched(api, f"/api/v1/nodes?{query}")
    assert first["type"] == "ADDED"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_bookmarks_come_while_nothing_happens(api: ApiServer) -> None:
    api.bookmark_seconds = 0.01
    path = f"/api/v1/nodes?watch=1&allowWatchBookmarks=true&resourceVersion={api.store.version}"
    assert len(watched(api, path, seconds=0.2)) > 2


@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("chunk_bytes", [0, 7])
def test_a_stream_ends_after_so_many_events(api: ApiServer, ending: Ending, chunk_bytes: int) -> None:
    api.chunk_bytes = chunk_bytes
    since = api.store.version
    for name in ("n1", "n2", "n3"):
        api.create(watch.node(name))
    api.fail("WATCH", "/nodes", ending, after=2)
    with urllib.request.urlopen(f"{api.url}/api/v1/nodes?watch=1&resourceVersion={since}") as response:
        lines = []
        try:
            lines += iter(response.readline, b"")
        except http.client.IncompleteRead:
            assert "cut" in ending
    events = [json.loads(line) for line in lines if line.endswith(b"\n")]
    assert [event["type"] for event in events[:2]] == ["ADDED", "ADDED"]
    code = {Ending.FAILED: 500, Ending.EXPIRED: 410}.get(ending)
    assert [event["object"]["code"] for event in events[2:]] == ([code] if code else [])
    if ending is Ending.HALF:
        assert lines[2]
        assert not lines[2].endswith(b"\n")


def test_a_page_is_cut_in_its_middle(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    api.fail("LIST", "/nodes", Fault.CUT_WITHIN)
    with pytest.raises(http.client.IncompleteRead):
        call(api, "/api/v1/nodes")
    assert call(api, "/api/v1/nodes/n1")[0] == 200


def test_running_watches_end_on_demand(api: ApiServer) -> None:
    path = f"/api/v1/nodes?watch=1&resourceVersion={api.store.version}"
    with ThreadPoolExecutor() as pool:
        watching = pool.submit(watched, api, path, 60)
        api.wait(lambda: api.watching("nodes") == 1)
        api.end_watches("nodes", Ending.EXPIRED)
        assert [event["object"]["code"] for event in watching.result(5)] == [410]
        watching = pool.submit(watched, api, path, 60)
        api.wait(lambda: api.watching("nodes") == 1)
        api.cut()
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            watching.result(5)
    api.wait(lambda: api.watching("nodes") == 0)


def test_a_call_waits_until_it_is_let_go(api: ApiServer) -> None:
    held = api.hold("GET", "/nodes")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(call, api, "/api/v1/nodes")
        assert held.reached.wait(5)
        assert not answer.done()
        held.go.set()
        assert answer.result(5)[0] == 200


def test_nobody_listens_while_it_is_away(api: ApiServer) -> None:
    api.go_away()
    with pytest.raises(urllib.error.URLError):
        call(api, "/api/v1/nodes")
    api.come_back()
    assert call(api, "/api/v1/nodes")[0] == 200


def test_being_throttled_says_for_how_long(api: ApiServer) -> None:
    api.retry_after_seconds = 7
    api.fail("GET", "/nodes", Fault.THROTTLED)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{api.url}/api/v1/nodes")
    assert (caught.value.code, caught.value.headers["Retry-After"]) == (429, "7")


def test_a_revoked_token_is_refused(api: ApiServer, tmp_path: Path) -> None:
    assert "a-token" in api.kubeconfig(tmp_path).read_text()
    assert call(api, "/api/v1/nodes", token="a-token")[0] == 200
    api.revoke("a-token")
    api.tokens.add("another")
    assert call(api, "/api/v1/nodes", token="a-token")[0] == 401
    assert call(api, "/api/v1/nodes", token="another")[0] == 200


def test_only_what_rules_allow_is_done(api: ApiServer) -> None:
    api.create({"kind": "Lease", "metadata": {"name": "hami-scheduler", "namespace": "kube-system"}})
    api.create({"kind": "Lease", "metadata": {"name": "other", "namespace": "kube-system"}})
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert call(api, f"{path}/other")[1]["apiVersion"] == "coordination.k8s.io/v1"
    api.restrict([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}])
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    api.restrict([{**rule, "resourceNames": ["hami-scheduler"]}], namespace="kube-system")
    assert call(api, "/api/v1/nodes")[0] == 200
    assert call(api, "/api/v1/nodes/n1")[1]["reason"] == "Forbidden"
    assert call(api, f"{path}/hami-scheduler")[0] == 200
    assert call(api, f"{path}/other")[0] == 403
    api.permit()
    api.restrict([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}], token="a-token")
    assert call(api, "/api/v1/nodes")[0] == 200
    assert call(api, "/api/v1/nodes", token="a-token")[0] == 403
    api.deny("list", "nodes")
    assert call(api, "/api/v1/nodes")[0] == 403
    assert ("get", "leases", "") in api.verbs


def test_the_cluster_has_an_identity(api: ApiServer) -> None:
    api.cluster_uid = "another"
    _, namespace = call(api, "/api/v1/namespaces/kube-system")
    assert namespace["metadata"]["uid"] == "another"


def test_a_restored_cluster_has_its_old_versions_and_cuts_its_watches(api: ApiServer) -> None:
    api.create(watch.node("n1"))
    backup = api.backup()
    api.create(watch.node("n2"))
    _, page = call(api, "/api/v1/nodes?limit=1")
    with ThreadPoolExecutor() as pool:
        path = f"/api/v1/nodes?watch=1&resourceVersion={api.store.version}"
        watching = pool.submit(watched, api, path, 60)
        api.wait(lambda: api.watching("nodes") == 1)
        api.restore(backup)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            watching.result(5)
    _, again = call(api, "/api/v1/nodes")
    assert [item["metadata"]["name"] for item in again["items"]] == ["n1"]
    assert int(again["metadata"]["resourceVersion"]) < int(page["metadata"]["resourceVersion"])
    assert call(api, f"/api/v1/nodes?continue={page['metadata']['continue']}")[0] == 504


def test_a_hundred_thousand_pods_are_listed_while_they_change(api: ApiServer) -> None:
    with api.store.changed:
        for number in range(100_000):
            metadata = {"name": f"p{number:06}", "namespace": "a", "uid": str(number)}
            api.store.write("ADDED", "Pod", {"metadata": metadata})
    is_over = threading.Event()

    def change() -> None:
        while not is_over.wait(0.001):
            api.change("Pod", "p000500", {"metadata": {"labels": {"a": str(api.store.version)}}}, "a")

    churn = threading.Thread(target=change)
    churn.start()
    found, token = [], ""
    while True:
        _, page = call(api, f"/api/v1/pods?limit=5000{token}")
        found += [item["metadata"]["name"] for item in page["items"]]
        if "continue" not in page["metadata"]:
            break
        token = f"&continue={page['metadata']['continue']}"
    is_over.set()
    churn.join()
    assert found == [f"p{number:06}" for number in range(100_000)]

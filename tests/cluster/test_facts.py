"""What the API server of the tests promises is what a real one does: each of these is seen of both.

Seen of 1.36.1, on etcd 3.6.8.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.clusters import Cluster, Object, Refused

LIVING = "status.phase!=Succeeded,status.phase!=Failed"


class Pods:
    """The pods of a namespace of this run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.add_namespace("facts")
        self.path = f"/api/v1/namespaces/{self.namespace}/pods"

    def add(self, name: str = "p", **labels: str) -> Object:
        return self.cluster.add(
            "pods",
            self.namespace,
            {
                "metadata": {"name": name, "labels": labels},
                "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]},
            },
        )

    def label(self, value: str | None, name: str = "p") -> Object:
        return self.cluster.patch(f"{self.path}/{name}", {"metadata": {"labels": {"team": value}}})

    def bind(self, name: str = "p") -> None:
        self.cluster.bind(f"{self.path}/{name}", name, "no-such-node")

    def status(self, method: str, path: str = "/p", body: Any = None, kind: str = "", **query: Any) -> int:
        words = {"kind": kind} if kind else {}
        return self.cluster.status_of(method, self.path + path, body, **words, **query)

    def patched(self, **metadata: Any) -> int:
        """How such a merge patch is answered."""
        return self.status("PATCH", "/p", {"metadata": metadata}, "application/merge-patch+json")

    @property
    def version(self) -> str:
        """The newest there is."""
        text: str = self.cluster.call("GET", self.path, limit=1)["metadata"]["resourceVersion"]
        return text

    def watch(self, since: str, **query: Any) -> list[Object]:
        return self.cluster.watch(self.path, resourceVersion=since, **query)


@pytest.fixture
def pods(cluster: Cluster) -> Iterator[Pods]:
    return Pods(cluster)


def version_of(item: Object) -> str:
    text: str = item["metadata"]["resourceVersion"]
    return text


def types(events: list[Object]) -> list[str]:
    return [event["type"] for event in events]


# --- lists ---------------------------------------------------------------------------------------


def test_pages_show_the_version_of_the_first_and_what_was_there_then(pods: Pods) -> None:
    for name in "acd":
        pods.add(name)
    first = pods.cluster.call("GET", pods.path, limit=2)
    pods.add("b")
    second = pods.cluster.call("GET", pods.path, limit=2, **{"continue": first["metadata"]["continue"]})
    assert first["metadata"]["remainingItemCount"] == 1
    assert version_of(first) == version_of(second)
    assert [item["metadata"]["name"] for page in (first, second) for item in page["items"]] == ["a", "c", "d"]
    assert not second["metadata"].get("continue")


def test_what_a_selector_leaves_is_not_counted(pods: Pods) -> None:
    for number in range(4):
        pods.add(f"p{number}", parity=str(number % 2))
    page = pods.cluster.call("GET", pods.path, limit=1, labelSelector="parity=1")
    assert "remainingItemCount" not in page["metadata"]
    rest = pods.cluster.call(
        "GET", pods.path, limit=1, labelSelector="parity=1", **{"continue": page["metadata"]["continue"]}
    )
    assert [item["metadata"]["name"] for item in page["items"] + rest["items"]] == ["p1", "p3"]
    assert not rest["metadata"].get("continue")


def test_a_list_of_any_version_comes_as_a_whole(pods: Pods) -> None:
    pods.add("a")
    pods.add("b")
    assert len(pods.cluster.call("GET", pods.path, limit=1, resourceVersion="0")["items"]) == 2


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": "x"}, 400),
        ({"continue": "x"}, 400),
        ({"labelSelector": "a b"}, 400),
        ({"fieldSelector": "status.conditions=x"}, 400),
        ({"resourceVersion": "999999999999"}, 504),
        ({"watch": "true", "timeoutSeconds": "0.5"}, 400),
        ({"watch": "true", "resourceVersion": "x"}, 500),
        ({"watch": "true", "sendInitialEvents": "true"}, 422),
    ],
)
def test_what_cannot_be_meant_is_refused(pods: Pods, query: dict[str, str], status: int) -> None:
    assert pods.status("GET", "", **query) == status


# --- watches -------------------------------------------------------------------------------------


def test_a_watch_tells_what_happened_after_its_version(pods: Pods) -> None:
    since = version_of(pods.add())
    pods.label("a")
    assert types(pods.watch(since)) == ["MODIFIED"]
    # A version that is not reached yet is waited for, in silence.
    assert pods.watch(str(int(since) + 100_000)) == []


@pytest.mark.parametrize("version", ["", "0"])
def test_without_a_version_it_begins_with_what_is_there(pods: Pods, version: str) -> None:
    pods.add()
    assert types(pods.watch(version)) == ["ADDED"]


def test_initial_events_end_with_a_bookmark_of_its_own(pods: Pods) -> None:
    pods.add()
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    added, end, *_ = pods.watch("", allowWatchBookmarks="true", **asked)
    assert types([added, end]) == ["ADDED", "BOOKMARK"]
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert {"kind", "apiVersion", "metadata"} <= end["object"].keys()


def test_what_leaves_a_selector_is_deleted_as_it_was_at_the_version_it_left(pods: Pods) -> None:
    since = version_of(pods.add())
    left = [pods.label(team) for team in ("a", "b", "a")]
    events = pods.watch(since, labelSelector="team=a")
    assert types(events) == ["ADDED", "DELETED", "ADDED"]
    assert [version_of(event["object"]) for event in events] == [version_of(item) for item in left]
    assert events[1]["object"]["metadata"]["labels"] == {"team": "a"}
    pods.cluster.patch(f"{pods.path}/p/status", {"status": {"phase": "Succeeded"}})
    *_, last = pods.watch(since, fieldSelector=LIVING)
    assert (last["type"], last["object"]["status"]["phase"]) == ("DELETED", "Pending")


@pytest.mark.parametrize(
    ("said", "is_watch"), [("true", True), ("True", True), ("yes", True), ("FALSE", False), ("0", False)]
)
def test_a_parameter_that_does_not_say_no_says_yes(pods: Pods, said: str, is_watch: bool) -> None:
    events = pods.cluster.watch(pods.path, watch=said, resourceVersion="0")
    assert bool(events) is not is_watch  # a list is one line, and nothing is there to be watched


# --- changes -------------------------------------------------------------------------------------


def test_a_patch_that_changes_nothing_makes_no_version(pods: Pods) -> None:
    before = version_of(pods.add(team="a"))
    assert version_of(pods.label("a")) == before


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"resourceVersion": "1"}, 409),
        ({"uid": "another"}, 422),
        ({"uid": "another", "resourceVersion": "1"}, 409),
    ],
)
def test_what_a_patch_wants_of_the_object(pods: Pods, wanted: dict[str, str], status: int) -> None:
    pods.add()
    assert pods.patched(labels={"a": "b"}, **wanted) == status
    assert "a" not in pods.cluster.call("GET", f"{pods.path}/p")["metadata"].get("labels", {})


def test_a_patch_of_the_object_leaves_its_status_and_one_of_the_status_takes_labels_too(pods: Pods) -> None:
    pods.add()
    changes = {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}}
    assert pods.cluster.patch(f"{pods.path}/p", changes)["status"]["phase"] == "Pending"
    changes["metadata"] = {"labels": {"a": "c"}}
    changed = pods.cluster.patch(f"{pods.path}/p/status", changes)
    assert (changed["status"]["phase"], changed["metadata"]["labels"]["a"]) == ("Failed", "c")


def test_a_binding_has_its_preconditions_and_is_made_once(pods: Pods) -> None:
    pods.add()
    binding: Object = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n"}}
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        assert pods.status("POST", "/p/binding", binding | {"metadata": {"name": "p", **wrong}}) == 409
    pods.bind()
    pod = pods.cluster.call("GET", f"{pods.path}/p")
    assert pod["spec"]["nodeName"] == "no-such-node"
    assert [one["type"] for one in pod["status"]["conditions"]] == ["PodScheduled"]
    with pytest.raises(Refused, match="is already assigned to node"):
        pods.bind()
    pods.cluster.delete(f"{pods.path}/p", gracePeriodSeconds=30)
    with pytest.raises(Refused, match="is being deleted, cannot be assigned to a host"):
        pods.bind()


@pytest.mark.parametrize(
    ("is_bound", "graces", "expected"),
    [
        (False, [None], ["MODIFIED", "DELETED"]),
        (True, [0], ["MODIFIED", "DELETED"]),
        (True, [None, None, 0], ["MODIFIED", "MODIFIED", "DELETED"]),
    ],
)
def test_a_pod_is_first_seen_going(
    pods: Pods, is_bound: bool, graces: list[int | None], expected: list[str]
) -> None:
    since = version_of(pods.add())
    if is_bound:
        pods.bind()
        since = pods.version
    for grace in graces:
        pods.cluster.delete(f"{pods.path}/p", **({} if grace is None else {"gracePeriodSeconds": grace}))
    events = pods.watch(since)
    assert types(events) == expected
    assert all(event["object"]["metadata"]["deletionTimestamp"] for event in events)


def test_what_is_not_there_and_what_is_there_already(pods: Pods) -> None:
    pods.add()
    assert pods.status("GET", "/q") == 404
    assert pods.status("DELETE", "/q") == 404
    assert pods.status("POST", "/q/binding", {"metadata": {"name": "q"}, "target": {"name": "n"}}) == 404
    with pytest.raises(Refused, match="already exists"):
        pods.add()
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/no-such-lease"
    assert pods.cluster.status_of("GET", lease) == 404
    system = pods.cluster.call("GET", "/api/v1/namespaces/kube-system")
    assert system["metadata"]["uid"]

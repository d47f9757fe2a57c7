"""AdmissionReview on the wire: what is read, what is answered, and the patch."""

from typing import Any

import pytest

from hamiacct import config
from hamiacct.accounting.admission import Admitted, Change, Scheduling, judge
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import Pod
from hamiacct.kube import admission as wire
from tests.patches import applied, patch_in

VENDORS = config.read_vendors(None)
POD = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}


def body(**request: Any) -> dict[str, Any]:
    shown = {"uid": "r-1", "namespace": "team-a", "operation": "CREATE", "object": POD, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": shown}


def test_a_review_as_the_apiserver_sends_it() -> None:
    sent = body(
        kind={"group": "", "version": "v1", "kind": "Pod"},
        resource={"group": "", "version": "v1", "resource": "pods"},
        requestKind={"group": "", "version": "v1", "kind": "Pod"},
        userInfo={"username": "system:serviceaccount:kube-system:replicaset-controller"},
        object={**POD, "kind": "Pod", "apiVersion": "v1", "metadata": {"generateName": "web-", "uid": "u"}},
        oldObject=None,
        dryRun=False,
        options={"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    )
    review = wire.review_from(sent)
    assert (review.uid, review.namespace, review.name, review.dry_run) == ("r-1", "team-a", "web-", False)
    assert review.is_about_a_new_pod
    pod = wire.pod_of(review, VENDORS)
    assert (pod.namespace, pod.uid) == ("team-a", "")


@pytest.mark.parametrize(
    ("own", "asked", "judged"),
    [("", "team-a", "team-a"), ("team-b", "team-a", "team-a"), ("team-b", "", "team-b"), ("", "", "")],
)
def test_the_requests_namespace_is_the_one(own: str, asked: str, judged: str) -> None:
    pod = {**POD, "metadata": {"namespace": own}}
    assert wire.pod_of(wire.review_from(body(namespace=asked, object=pod)), VENDORS).namespace == judged


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"operation": "CREATE", "subResource": "binding"},
        {"kind": {"group": "", "version": "v1", "kind": "Service"}},
        {"kind": {"group": "example.com", "version": "v1", "kind": "Pod"}},
        {"object": {"kind": "Service"}},
    ],
)
def test_a_review_of_anything_else_is_told_apart(request_: dict[str, Any]) -> None:
    assert not wire.review_from(body(**request_)).is_about_a_new_pod


@pytest.mark.parametrize(
    ("sent", "pointer"),
    [
        ([], ""),
        ({}, "/apiVersion"),
        ({**body(), "apiVersion": "admission.k8s.io/v2"}, "/apiVersion"),
        ({**body(), "kind": "Pod"}, "/kind"),
        ({**body(), "request": None}, "/request"),
        (body(uid=""), "/request/uid"),
        (body(uid=7), "/request/uid"),
    ],
)
def test_what_nobody_could_answer_is_malformed(sent: Any, pointer: str) -> None:
    with pytest.raises(Malformed) as fault:
        wire.review_from(sent)
    assert fault.value.pointer == pointer


@pytest.mark.parametrize("object_", [None, [], "pod", {"spec": []}, {"spec": {"containers": [{}]}}])
def test_a_pod_that_cannot_be_read_says_where(object_: Any) -> None:
    with pytest.raises(Malformed) as fault:
        wire.pod_of(wire.review_from(body(object=object_)), VENDORS)
    assert fault.value.pointer.startswith("/request/object")


@pytest.mark.parametrize("version", wire.VERSIONS)
def test_the_version_and_the_uid_are_echoed(version: str) -> None:
    review = wire.review_from({**body(), "apiVersion": version})
    assert wire.answer(review, allowed=True) == {
        "apiVersion": version,
        "kind": "AdmissionReview",
        "response": {"uid": "r-1", "allowed": True},
    }


def test_a_denial_is_a_status_as_kubectl_shows_it() -> None:
    answer = wire.answer(wire.review_from(body()), allowed=False, code=403, message="no", warnings=["old"])
    assert answer["response"] == {
        "uid": "r-1",
        "allowed": False,
        "status": {"code": 403, "message": "no", "reason": "Forbidden", "status": "Failure"},
        "warnings": ["old"],
    }


# --- the patch -----------------------------------------------------------------------------------


def patched(manifest: dict[str, Any], **written: Any) -> Any:
    """The manifest with a patch on it, which the second time is empty."""
    admitted = Admitted(Pod("", "", "", 0), (), **written)
    result = applied(manifest, [dict(operation) for operation in wire.patch_of(manifest, admitted)])
    assert wire.patch_of(result, admitted) == []
    return result


@pytest.mark.parametrize("metadata", [None, {}, {"annotations": None}, {"annotations": {}}])
def test_annotations_where_there_are_none(metadata: Any) -> None:
    result = patched({**POD, "metadata": metadata}, annotations={"metax-tech.com/a": "b"})
    assert result["metadata"]["annotations"] == {"metax-tech.com/a": "b"}


def test_annotations_beside_others() -> None:
    pod = {**POD, "metadata": {"annotations": {"x/y": "1", "a/~b": "old"}}}
    assert patched(pod, annotations={"a/~b": "new"})["metadata"]["annotations"] == {"x/y": "1", "a/~b": "new"}


def test_no_metadata_at_all() -> None:
    assert patched({"spec": {}}, annotations={"a": "b"})["metadata"] == {"annotations": {"a": "b"}}


def test_a_runtime_class_is_left_where_there_is_one() -> None:
    assert patched(POD, runtime_class="nvidia")["spec"]["runtimeClassName"] == "nvidia"
    own = {"spec": {"runtimeClassName": "kata", "containers": []}}
    assert patched(own, runtime_class="nvidia")["spec"]["runtimeClassName"] == "kata"


@pytest.mark.parametrize(
    "resources",
    [None, {}, {"limits": None}, {"limits": {}}, {"claims": [{"name": "x"}]}, {"limits": {"a.b/c": "1"}}],
)
def test_limits_and_requests_wherever_they_were(resources: Any) -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b", "resources": resources}]}}
    change = Change(1, {"x.com/gpu": "1"}, {"x.com/mem": "5"})
    found = patched(pod, changes=(change,))["spec"]["containers"]
    assert found[0] == {"name": "a"}
    assert found[1]["resources"]["limits"]["x.com/gpu"] == "1"
    assert found[1]["resources"]["requests"] == {"x.com/mem": "5"}
    own = resources or {}
    assert found[1]["resources"].get("claims") == own.get("claims")
    assert (own.get("limits") or {}).items() <= found[1]["resources"]["limits"].items()


def test_inits_come_before_apps() -> None:
    pod = {"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}}
    changes = tuple(Change(position, {"x": str(position)}) for position in (0, 1))
    found = patched(pod, changes=changes)["spec"]
    assert found["initContainers"][0]["resources"]["limits"] == {"x": "0"}
    assert found["containers"][0]["resources"]["limits"] == {"x": "1"}


@pytest.mark.parametrize("env", [None, [], [{"name": "A", "valueFrom": {}}], [{"name": "N", "value": "old"}]])
def test_an_environment_is_appended_to_once(env: Any) -> None:
    pod = {"spec": {"containers": [{"name": "a", "env": env}]}}
    found = patched(pod, changes=(Change(0, env=(("N", "1"), ("M", "2"))),))["spec"]["containers"][0]["env"]
    assert found == [*(env or []), {"name": "N", "value": "1"}, {"name": "M", "value": "2"}]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
@pytest.mark.parametrize("count", ["1", "2"])
def test_a_patched_pod_is_admitted_without_a_patch(vendor: Any, count: str) -> None:
    """reinvocationPolicy: IfNeeded asks again."""
    manifest: Any = {
        "metadata": {},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {vendor.count_name: count}}}]},
    }
    rounds = []
    for _ in range(2):
        review = wire.review_from(body(object=manifest))
        admitted = judge(wire.pod_of(review, VENDORS), VENDORS, Scheduling()).admitted
        assert admitted is not None
        rounds.append(
            patch_in(dict(wire.answer(review, allowed=True, patch=wire.patch_of(manifest, admitted))))
        )
        manifest = applied(manifest, rounds[-1])
    assert rounds[0]
    assert rounds[1] == []

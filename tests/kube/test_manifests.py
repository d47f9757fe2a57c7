"""Pods, quotas, events and lists: read as they are, or Malformed with a pointer."""

import copy
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct.accounting import lifecycle
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import ContainerClass, FaultCode, Phase, Run
from hamiacct.accounting.quota import Dimension, NotEnforced, ScopeRequirement
from hamiacct.kube import manifests, registration
from tests import cases
from tests.kube.objects import ALLOCATED, BY_KEY, VENDORS, node, pod, quota

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read_pod(manifest: Any) -> Any:
    return manifests.pod_from_manifest(manifest, VENDORS)


def refused(read: Any, *arguments: Any) -> Malformed:
    with pytest.raises(Malformed) as refusal:
        read(*arguments)
    return refusal.value


# --- container classes and statuses --------------------------------------------------------------


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("classify"))
def test_classifies_the_case(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    container = read_pod(given_["pod"]).containers[given_["position"]]
    assert (container.position, container.name) == (given_["position"], expected["name"])
    assert container.kind == expected["class"]


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("gate"))
def test_the_gate_case_opens_on_what_the_statuses_say(given_: dict[str, Any], expected: bool) -> None:
    assert lifecycle.gate_is_open(read_pod(given_["pod"]).containers) is expected


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("Always", ContainerClass.SIDECAR),
        ("always", ContainerClass.INIT),
        ("ALWAYS", ContainerClass.INIT),
        (" Always", ContainerClass.INIT),
        ("", ContainerClass.INIT),
        ("Never", ContainerClass.INIT),
        (None, ContainerClass.INIT),
    ],
)
def test_only_always_makes_a_sidecar(policy: str | None, kind: ContainerClass) -> None:
    containers = [{"name": "first", "restartPolicy": policy}]
    seen = read_pod(pod(spec={"initContainers": containers, "containers": containers}))
    assert [container.kind for container in seen.containers] == [kind, ContainerClass.APP]


@pytest.mark.parametrize(
    ("state", "run"),
    [
        (None, Run.WAITING),
        ({}, Run.WAITING),
        ({"waiting": {"reason": "PodInitializing"}}, Run.WAITING),
        ({"running": {}}, Run.RUNNING),
        ({"running": {"startedAt": "x"}, "terminated": None}, Run.RUNNING),
        ({"terminated": {"exitCode": 0}}, Run.SUCCEEDED),
        ({"terminated": {"exitCode": 1}}, Run.FAILED),
        ({"terminated": {"exitCode": -1}}, Run.FAILED),
    ],
)
def test_the_current_state_says_how_an_init_container_runs(state: Any, run: Run) -> None:
    status = {"name": "warm", "state": state, "lastState": {"terminated": {"exitCode": 0}}}
    seen = read_pod(
        pod(spec={"initContainers": [{"name": "warm"}]}, status={"initContainerStatuses": [status]})
    )
    assert [container.run for container in seen.containers] == [run, Run.ABSENT]


def test_statuses_are_matched_by_name_and_only_those_of_init_containers() -> None:
    done = {"terminated": {"exitCode": 0}}
    seen = read_pod(
        pod(
            spec={"initContainers": [{"name": "a"}, {"name": "b"}], "containers": [{"name": "a"}]},
            status={
                "initContainerStatuses": [{"name": "b", "state": done}, {"name": "gone", "state": done}],
                "containerStatuses": [{"name": "a", "state": done}],
            },
        )
    )
    assert [container.run for container in seen.containers] == [Run.ABSENT, Run.SUCCEEDED, Run.ABSENT]


# --- the fields of a pod -------------------------------------------------------------------------


def test_reads_an_ordinary_pod() -> None:
    manifest = pod(
        annotations={
            ALLOCATED: "GPU-a,NVIDIA,2048,0:;GPU-a,NVIDIA,10240,30:;",
            "hami.io/vgpu-time": "1787270400",
            "hami.io/bind-time": "1787270401",
            "hami.io/bind-phase": "allocating",
            "nvidia.com/use-gpuuuid": "GPU-a",
            "example.com/note": "not ours",
        },
        metadata={
            "labels": {"hami.io/vgpu-node": "n1", "app": "web"},
            "deletionTimestamp": "2026-09-20T10:00:00Z",
            "deletionGracePeriodSeconds": 30,
            "managedFields": [{"manager": "kubectl"}],
        },
        spec={
            "schedulerName": "hami-scheduler",
            "priorityClassName": "high",
            "activeDeadlineSeconds": 60,
            "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": "SECRET", "value": "x"}],
                    "securityContext": {"privileged": True},
                    "resources": {
                        "limits": {
                            "nvidia.com/gpu": 1,
                            "nvidia.com/gpumem": "10k",
                            "cpu": "2",
                            "x.io/y": "1",
                        },
                        "requests": {"nvidia.com/gpu": "1"},
                    },
                }
            ],
        },
    )
    seen = read_pod(manifest)
    assert (seen.uid, seen.namespace, seen.name, seen.resource_version) == ("u-1", "team-a", "web-0", 10)
    assert (seen.node_name, seen.vgpu_node, seen.scheduler_name) == ("n1", "n1", "hami-scheduler")
    assert (seen.vgpu_time, seen.bind_time, seen.bind_phase) == (1787270400, 1787270401, "allocating")
    assert (seen.phase, seen.deletion_timestamp, seen.deletion_grace_seconds) == (
        Phase.RUNNING,
        "2026-09-20T10:00:00Z",
        30,
    )
    assert seen.labels == {"hami.io/vgpu-node": "n1"}
    assert seen.annotations["nvidia.com/use-gpuuuid"] == "GPU-a"
    assert not {"example.com/note", ALLOCATED} & set(seen.annotations)
    assert len(seen.allocations["NVIDIA"].groups) == 2
    facts = seen.quota_facts
    assert (facts.priority_class, facts.active_deadline_seconds, facts.best_effort) == ("high", 60, False)
    main = seen.containers[1]
    assert main.limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10k"}
    assert main.requests == {"nvidia.com/gpu": "1"}
    assert main.privileged


def test_what_a_manifest_leaves_out_is_what_kubernetes_would_say() -> None:
    seen = read_pod({"spec": {"containers": [{"name": "main"}]}})
    assert (seen.uid, seen.name, seen.namespace, seen.resource_version) == ("", "", "default", 0)
    assert (seen.phase, seen.is_bound, seen.is_terminating) == (Phase.PENDING, False, False)
    assert (seen.vgpu_node, seen.vgpu_time) == ("", None)
    for empty in ({}, {"metadata": None, "spec": None, "status": None}):
        assert read_pod(empty).containers == ()


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"metadata": []}, "/metadata"),
        ({"metadata": {"name": 5}}, "/metadata/name"),
        ({"metadata": {"name": "x" * 254}}, "/metadata/name"),
        ({"metadata": {"name": "a\0b"}}, "/metadata/name"),
        ({"metadata": {"uid": "\ud800"}}, "/metadata/uid"),
        ({"metadata": {"namespace": ["x"]}}, "/metadata/namespace"),
        ({"metadata": {"resourceVersion": "ten"}}, "/metadata/resourceVersion"),
        ({"metadata": {"deletionTimestamp": "yesterday"}}, "/metadata/deletionTimestamp"),
        ({"metadata": {"deletionTimestamp": "2026-09-20"}}, "/metadata/deletionTimestamp"),
        (
            {"metadata": {"deletionTimestamp": f"2026-09-20T10:00:00.{'0' * 60}Z"}},
            "/metadata/deletionTimestamp",
        ),
        ({"metadata": {"deletionTimestamp": 5}}, "/metadata/deletionTimestamp"),
        ({"metadata": {"deletionGracePeriodSeconds": "30"}}, "/metadata/deletionGracePeriodSeconds"),
        ({"metadata": {"annotations": ["x"]}}, "/metadata/annotations"),
        ({"metadata": {"annotations": {"hami.io/vgpu-node": 5}}}, "/metadata/annotations/hami.io~1vgpu-node"),
        (
            {"metadata": {"annotations": {"hami.io/vgpu-node": "n" * 300}}},
            "/metadata/annotations/hami.io~1vgpu-node",
        ),
        ({"metadata": {"labels": {"hami.io/vgpu-node": []}}}, "/metadata/labels/hami.io~1vgpu-node"),
        ({"spec": "x"}, "/spec"),
        ({"spec": {"nodeName": {}}}, "/spec/nodeName"),
        ({"spec": {"containers": {}}}, "/spec/containers"),
        ({"spec": {"containers": ["x"]}}, "/spec/containers/0"),
        ({"spec": {"containers": [{}]}}, "/spec/containers/0/name"),
        ({"spec": {"containers": [{"name": ""}]}}, "/spec/containers/0/name"),
        ({"spec": {"containers": [{"name": "x"}] * 1025}}, "/spec/containers"),
        (
            {"spec": {"initContainers": [{"name": "x", "restartPolicy": 5}]}},
            "/spec/initContainers/0/restartPolicy",
        ),
        ({"spec": {"containers": [{"name": "x", "resources": []}]}}, "/spec/containers/0/resources"),
        (
            {"spec": {"containers": [{"name": "x", "resources": {"limits": []}}]}},
            "/spec/containers/0/resources/limits",
        ),
        (
            {"spec": {"containers": [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": []}}}]}},
            "/spec/containers/0/resources/limits/nvidia.com~1gpu",
        ),
        (
            {"spec": {"containers": [{"name": "x", "securityContext": {"privileged": "yes"}}]}},
            "/spec/containers/0/securityContext/privileged",
        ),
        ({"spec": {"activeDeadlineSeconds": 1.5}}, "/spec/activeDeadlineSeconds"),
        ({"spec": {"activeDeadlineSeconds": 10**30}}, "/spec/activeDeadlineSeconds"),
        ({"spec": {"priorityClassName": 5}}, "/spec/priorityClassName"),
        ({"spec": {"affinity": {"podAffinity": []}}}, "/spec/affinity/podAffinity"),
        ({"status": []}, "/status"),
        ({"status": {"phase": "Sleeping"}}, "/status/phase"),
        ({"status": {"phase": 5}}, "/status/phase"),
        ({"status": {"initContainerStatuses": {}}}, "/status/initContainerStatuses"),
        ({"status": {"initContainerStatuses": [5]}}, "/status/initContainerStatuses/0"),
        ({"status": {"initContainerStatuses": [{}]}}, "/status/initContainerStatuses/0/name"),
        (
            {"status": {"initContainerStatuses": [{"name": "x", "state": "running"}]}},
            "/status/initContainerStatuses/0/state",
        ),
        (
            {"status": {"initContainerStatuses": [{"name": "x", "state": {"terminated": 0}}]}},
            "/status/initContainerStatuses/0/state/terminated",
        ),
        (
            {"status": {"initContainerStatuses": [{"name": "x", "state": {"terminated": {}}}]}},
            "/status/initContainerStatuses/0/state/terminated/exitCode",
        ),
        (
            {
                "status": {
                    "initContainerStatuses": [{"name": "x", "state": {"terminated": {"exitCode": False}}}]
                }
            },
            "/status/initContainerStatuses/0/state/terminated/exitCode",
        ),
    ],
)
def test_a_pod_that_cannot_be_read_is_malformed_with_a_pointer(change: dict[str, Any], pointer: str) -> None:
    part, fields = next(iter(change.items()))
    manifest = pod()
    manifest[part] = manifest[part] | fields if isinstance(fields, dict) else fields
    refusal = refused(read_pod, manifest)
    assert refusal.pointer == pointer
    kept = manifests.keep("Pod", manifest, VENDORS)
    again = refused(read_pod, json.loads(json.dumps(kept)))
    assert (again.pointer, again.detail) == (pointer, refusal.detail)


@pytest.mark.parametrize("manifest", [None, 5, "pod", [], True])
def test_what_is_no_object_is_malformed(manifest: Any) -> None:
    assert refused(read_pod, manifest).pointer == ""
    assert refused(manifests.quota_from_manifest, manifest, VENDORS).pointer == ""
    assert refused(manifests.list_items, manifest).pointer == ""
    assert refused(manifests.envelope, manifest).pointer == ""


@pytest.mark.parametrize("value", ["1.5", "-3", "10k", "x", "", "9" * 100, 10**4000, 1.5, float("nan")])
def test_a_request_that_cannot_be_read_is_kept_as_text_and_hinders_no_event(value: Any) -> None:
    resources = {"limits": {"nvidia.com/gpumem": value}}
    seen = read_pod(pod(spec={"containers": [{"name": "main", "resources": resources}]}))
    assert isinstance(seen.containers[0].limits["nvidia.com/gpumem"], str)
    assert len(seen.containers[0].limits["nvidia.com/gpumem"]) < 70


def test_a_row_outside_the_pod_is_a_fault_and_the_rest_of_the_event_is_read() -> None:
    seen = read_pod(pod(annotations={ALLOCATED: ";GPU-a,NVIDIA,1,1:;"}))
    assert [fault.code for fault in seen.faults] == [FaultCode.OUTSIDE_POD]
    assert seen.phase is Phase.RUNNING


@pytest.mark.parametrize("text", ["", "soon", "-5", "1.5", "٣", "9" * 40, "999999999999"])
def test_a_time_that_cannot_be_read_is_none(text: str) -> None:
    assert read_pod(pod(annotations={"hami.io/vgpu-time": text})).vgpu_time is None


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
def test_every_vendors_allocation_is_read(vendor: Any) -> None:
    seen = read_pod(pod(annotations={vendor.allocated_key: "card-0,any,8,4:;"}))
    assert list(seen.allocations) == [vendor.key]


# --- what scopes look at -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "best_effort"),
    [
        ({}, True),
        (None, True),
        ({"limits": {"nvidia.com/gpu": "1"}}, True),
        ({"requests": {"ephemeral-storage": "1Gi"}}, True),
        ({"requests": {"cpu": "0"}}, True),
        ({"requests": {"cpu": "0m", "memory": 0}}, True),
        ({"requests": {"cpu": "100m"}}, False),
        ({"limits": {"memory": "64Mi"}}, False),
        ({"limits": {"memory": 0.5}}, False),
        ({"limits": {"memory": "unreadable"}}, False),
    ],
)
def test_best_effort_looks_at_cpu_and_memory_of_every_container(resources: Any, best_effort: bool) -> None:
    asking = {"name": "asking", "resources": resources}
    plain = {"name": "plain"}
    for spec in (
        {"containers": [plain, asking]},
        {"containers": [plain], "initContainers": [asking]},
        {"containers": [plain], "resources": resources},
    ):
        assert read_pod(pod(spec=spec)).quota_facts.best_effort is best_effort


@pytest.mark.parametrize(
    ("term", "crosses"),
    [
        ({}, False),
        ({"namespaces": []}, False),
        ({"namespaces": None, "namespaceSelector": None}, False),
        ({"namespaces": ["team-b"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}, False),
    ],
)
def test_affinity_to_other_namespaces(term: dict[str, Any], crosses: bool) -> None:
    for affinity in (
        {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}, term]}},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}},
    ):
        manifest = pod(spec={"affinity": affinity})
        assert read_pod(manifest).quota_facts.cross_namespace_affinity is crosses
        assert read_pod(manifests.keep("Pod", manifest, VENDORS)) == read_pod(manifest)


# --- the envelope --------------------------------------------------------------------------------


def test_the_envelope_of_each_kind() -> None:
    assert manifests.envelope({"type": "ADDED", "object": pod()}) == (
        "ADDED",
        "Pod",
        "u-1",
        "team-a",
        "web-0",
        10,
    )
    assert manifests.envelope({"type": "MODIFIED", "object": node()}) == ("MODIFIED", "Node", "", "", "n1", 7)
    assert manifests.envelope({"type": "DELETED", "object": quota()}) == (
        "DELETED",
        "ResourceQuota",
        "",
        "team-a",
        "gpu",
        5,
    )


def test_nothing_is_asked_of_other_kinds_and_of_a_bookmark_only_the_version() -> None:
    for kind in ("ConfigMap", "Status"):
        event = {"type": "ADDED", "object": {"kind": kind, "metadata": 5}}
        assert manifests.envelope(event) == ("ADDED", kind, "", "", "", 0)
    other = {"apiVersion": "nodes.example.com/v1", "kind": "Node"}
    assert manifests.envelope({"type": "ADDED", "object": other}).kind not in manifests.KINDS
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "99"}}
    assert manifests.envelope({"type": "BOOKMARK", "object": bookmark}) == ("BOOKMARK", "Pod", "", "", "", 99)


@pytest.mark.parametrize(
    ("event", "pointer"),
    [
        ({}, "/type"),
        ({"type": "ERROR", "object": {}}, "/type"),
        ({"type": ["ADDED"], "object": pod()}, "/type"),
        ({"type": "added", "object": pod()}, "/type"),
        ({"type": "ADDED"}, "/object"),
        ({"type": "ADDED", "object": [pod()]}, "/object"),
        ({"type": "ADDED", "object": {}}, "/object/kind"),
        ({"type": "ADDED", "object": {"kind": 5}}, "/object/kind"),
        ({"type": "ADDED", "object": {"kind": "Pod"}}, "/object/metadata"),
        ({"type": "ADDED", "object": {"kind": "Pod", "metadata": "x"}}, "/object/metadata"),
    ],
)
def test_an_event_without_a_readable_envelope_is_malformed(event: Any, pointer: str) -> None:
    assert refused(manifests.envelope, event).pointer == pointer


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("uid", [None, "", 5, "u" * 254, "u\0", "\udcff", []]),
        ("name", [None, "", {}, "n" * 254, "a\0"]),
        ("namespace", [5, "n" * 254, "\0"]),
        (
            "resourceVersion",
            [
                None,
                "",
                "ten",
                "-1",
                "+1",
                " 1",
                "1.0",
                "٣",
                "9223372036854775808",
                "9" * 5000,
                1.0,
                -1,
                True,
                [],
            ],
        ),
    ],
)
def test_ids_and_versions_are_required_and_bounded(field: str, values: list[Any]) -> None:
    for value in values:
        event = {"type": "ADDED", "object": pod(metadata={field: value})}
        assert refused(manifests.envelope, event).pointer == f"/object/metadata/{field}", value


def test_the_largest_version_is_read_and_a_missing_namespace_is_kubernetes_default() -> None:
    event = {"type": "ADDED", "object": pod(metadata={"resourceVersion": "9223372036854775807"})}
    assert manifests.envelope(event).resource_version == 2**63 - 1
    del event["object"]["metadata"]["namespace"]
    assert manifests.envelope(event).namespace == "default"


# --- lists ---------------------------------------------------------------------------------------


def test_the_items_of_a_typed_list_get_their_kind() -> None:
    bare = {"metadata": {"name": "web-0"}}
    listed = manifests.list_items(
        {"kind": "PodList", "metadata": {"resourceVersion": "900", "continue": "x"}, "items": [bare, pod()]}
    )
    assert (listed.kind, listed.version, listed.meta["continue"]) == ("Pod", 900, "x")
    assert [item["kind"] for item in listed.items] == ["Pod", "Pod"]
    assert "kind" not in bare


def test_a_list_as_kubectl_prints_it() -> None:
    body = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": [node()]}
    assert manifests.list_items(body)[:2] == ("Node", None)
    assert manifests.list_items({"kind": "List", "items": []}) == ("", None, [], {})
    assert manifests.list_items({"kind": "NodeList", "items": []})[:2] == ("Node", None)


def test_a_list_of_nothing_as_go_writes_it_is_empty() -> None:
    assert manifests.list_items({"kind": "PodList", "items": None}).items == []


def test_items_that_are_no_objects_are_left_to_be_rejected_one_by_one() -> None:
    assert manifests.list_items({"kind": "PodList", "items": [5, pod()]}).items[0] == 5


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/kind"),
        ({"kind": 5, "items": []}, "/kind"),
        ({"kind": "Pod", "items": []}, "/kind"),
        ({"kind": "ConfigMapList", "items": []}, "/kind"),
        ({"kind": "PodList"}, "/items"),
        ({"kind": "PodList", "items": {}}, "/items"),
        ({"kind": "PodList", "metadata": [], "items": []}, "/metadata"),
        ({"kind": "PodList", "metadata": {"resourceVersion": "x"}, "items": []}, "/metadata/resourceVersion"),
        ({"kind": "PodList", "items": [pod(), node()]}, "/items/1/kind"),
        ({"kind": "List", "items": [pod(), node()]}, "/items/1/kind"),
        ({"kind": "List", "items": [{}]}, "/items/0/kind"),
        ({"kind": "List", "items": [{"kind": "ConfigMap"}]}, "/items/0/kind"),
    ],
)
def test_a_list_that_is_not_one_is_malformed(body: Any, pointer: str) -> None:
    assert refused(manifests.list_items, body).pointer == pointer


# --- quotas --------------------------------------------------------------------------------------


def read_quota(manifest: Any) -> Any:
    return manifests.quota_from_manifest(manifest, VENDORS)


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("quota-cache"))
def test_the_quota_cases_limits_are_read(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    limits: dict[str, list[int | None]] = {}
    for step in given_["steps"]:
        hard = step.get("new") or step.get("hard") or {}
        if step["op"] in ("add", "update"):
            for limit in read_quota(quota(hard)).limits:
                limits.setdefault(limit.resource, []).append(limit.amount)
    for name, state in expected.items():
        if isinstance(state, dict) and state.get("limitSet"):
            assert limits[name][-1] == state["limit"]


def test_enforced_apiserver_and_other_keys_are_told_apart() -> None:
    seen = read_quota(
        quota(
            {
                "limits.nvidia.com/gpumem": "10k",
                "limits.nvidia.com/gpucores": 200,
                "limits.cambricon.com/mlu.smlu.vmemory": "0",
                "requests.nvidia.com/gpu": "4",
                "requests.nvidia.com/gpumem": "4096",
                "limits.nvidia.com/gpumemory": "4096",
                "limits.nvidia.com/gpu": "1",
                "limits.nvidia.com/gpumem-percentage": "50",
                "nvidia.com/gpumem": "5",
                "limits.metax-tech.com/gpu": "5",
                "limits.cpu": "8",
                "pods": "10",
                "requests.example.com/gpu": "1",
            }
        )
    )
    assert [(it.key, it.vendor, it.dimension, it.spec, it.amount) for it in seen.limits] == [
        ("limits.cambricon.com/mlu.smlu.vmemory", "MLU", Dimension.MEMORY, "0", 0),
        ("limits.nvidia.com/gpucores", "NVIDIA", Dimension.CORES, "200", 200),
        ("limits.nvidia.com/gpumem", "NVIDIA", Dimension.MEMORY, "10k", 10_000),
    ]
    assert seen.requests_keys == {"requests.nvidia.com/gpu": "4", "requests.nvidia.com/gpumem": "4096"}
    assert seen.not_enforced == (
        NotEnforced("limits.metax-tech.com/gpu", "only memory and cores of a vendor are limited by quotas"),
        NotEnforced("limits.nvidia.com/gpu", "only memory and cores of a vendor are limited by quotas"),
        NotEnforced(
            "limits.nvidia.com/gpumem-percentage", "only memory and cores of a vendor are limited by quotas"
        ),
        NotEnforced("limits.nvidia.com/gpumemory", "no managed resource is called 'nvidia.com/gpumemory'"),
        NotEnforced("nvidia.com/gpumem", "only limits.nvidia.com/gpumem is a limit"),
    )


@pytest.mark.parametrize("value", ["1.5", "x", "", "-1", "100m", "9" * 40, 1.5, 10**30])
def test_a_limit_that_is_no_whole_number_is_none(value: Any) -> None:
    (limit,) = read_quota(quota({"limits.nvidia.com/gpumem": value})).limits
    assert limit.amount is None
    assert isinstance(limit.spec, str)


def test_keys_that_are_no_texts_as_yaml_allows_are_none_of_ours() -> None:
    assert read_quota(quota({5: "1", "limits.nvidia.com/gpumem": "1"})).limits[0].amount == 1  # type: ignore[dict-item]


def test_vendors_without_a_memory_or_core_quota_have_no_such_limit() -> None:
    hard = {f"limits.{name}": "5" for vendor in VENDORS for name in vendor.resource_names}
    limits = {(limit.vendor, limit.dimension.value) for limit in read_quota(quota(hard)).limits}
    assert {("XPU", "memory"), ("AWSNeuron", "cores"), ("Enflame", "memory"), ("AMD", "cores")} <= limits
    without = {"Metax-GPU", "kunlun", "GCU", "Biren", "Vastai"}
    assert not without & {vendor for vendor, _ in limits}
    assert not {("XPU", "cores"), ("AWSNeuron", "memory")} & limits


def test_scopes_and_selectors_become_requirements() -> None:
    seen = read_quota(
        quota(
            scopes=["BestEffort", "NotTerminating", "Odd"],
            scopeSelector={
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "low"]},
                    {"scopeName": "PriorityClass", "operator": "Near"},
                    {"scopeName": "Terminating", "operator": "In"},
                ]
            },
        )
    )
    assert seen.requirements == (
        ScopeRequirement("BestEffort"),
        ScopeRequirement("NotTerminating"),
        ScopeRequirement("Odd"),
        ScopeRequirement("PriorityClass", "In", ("high", "low")),
        ScopeRequirement("PriorityClass", "Near"),
        ScopeRequirement("Terminating", "In"),
    )
    assert seen.unknown_scopes == ("Odd", "PriorityClass Near", "Terminating In")


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ("x", "/spec"),
        ({"hard": []}, "/spec/hard"),
        ({"hard": {"limits.nvidia.com/gpumem": []}}, "/spec/hard/limits.nvidia.com~1gpumem"),
        ({"hard": {"limits.nvidia.com/gpumem": None}}, "/spec/hard/limits.nvidia.com~1gpumem"),
        ({"hard": {f"limits.nvidia.com/{i}": "1" for i in range(1025)}}, "/spec/hard"),
        ({"scopes": "BestEffort"}, "/spec/scopes"),
        ({"scopes": [5]}, "/spec/scopes/0"),
        ({"scopes": ["ok", "x" * 300]}, "/spec/scopes/1"),
        ({"scopeSelector": []}, "/spec/scopeSelector"),
        ({"scopeSelector": {"matchExpressions": [5]}}, "/spec/scopeSelector/matchExpressions/0"),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "x"}]}},
            "/spec/scopeSelector/matchExpressions/0/operator",
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "x", "operator": "In", "values": [1]}]}},
            "/spec/scopeSelector/matchExpressions/0/values/0",
        ),
    ],
)
def test_a_quota_that_cannot_be_read_is_malformed_with_a_pointer(spec: Any, pointer: str) -> None:
    manifest = quota() | {"spec": spec}
    refusal = refused(read_quota, manifest)
    assert refusal.pointer == pointer
    again = refused(read_quota, manifests.keep("ResourceQuota", manifest, VENDORS))
    assert (again.pointer, again.detail) == (pointer, refusal.detail)


# --- what is stored ------------------------------------------------------------------------------


def test_env_volumes_and_managed_fields_are_never_kept() -> None:
    secret = "do-not-store"
    manifest = pod(
        annotations={"kubectl.kubernetes.io/last-applied-configuration": secret},
        metadata={"managedFields": [secret], "labels": {"app": secret}},
        spec={
            "containers": [{"name": "main", "env": [{"value": secret}], "args": [secret], "image": secret}],
            "volumes": [{"secret": secret}],
            "affinity": {"nodeAffinity": secret},
        },
        status={"conditions": [secret], "containerStatuses": [{"image": secret}]},
    )
    assert secret not in json.dumps(manifests.keep("Pod", manifest, VENDORS))


def outcome(read: Any, manifest: Any) -> Any:
    try:
        return read(manifest)
    except Malformed as refusal:
        return refusal.detail, refusal.pointer


def read_node(manifest: Any) -> Any:
    return registration.node_from_manifest(manifest, VENDORS, datetime(2026, 8, 21, tzinfo=UTC), UTC)


WHOLE = {
    "Pod": (
        read_pod,
        pod(
            annotations={
                ALLOCATED: "GPU-a,NVIDIA,2048,0:;GPU-a,NVIDIA,10240,30:;",
                BY_KEY["Enflame"].allocated_key: "e,Enflame,1,1:;",
                BY_KEY["Enflame"].slots_annotation: "2",
                "hami.io/vgpu-time": "5",
            },
            metadata={"labels": {"hami.io/vgpu-node": "n1"}, "deletionTimestamp": "2026-09-20T10:00:00Z"},
            spec={
                "initContainers": [{"name": "warm", "restartPolicy": "Always"}],
                "containers": [
                    {
                        "name": "main",
                        "resources": {
                            "limits": {"nvidia.com/gpu": "1", "cpu": "1"},
                            "requests": {"cpu": "1"},
                        },
                        "securityContext": {"privileged": True},
                    }
                ],
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
                "activeDeadlineSeconds": 5,
            },
            status={"initContainerStatuses": [{"name": "warm", "state": {"terminated": {"exitCode": 0}}}]},
        ),
    ),
    "Node": (
        read_node,
        node(
            {
                "hami.io/node-nvidia-register": '[{"id": "GPU-a"}]',
                "hami.io/node-handshake": "Requesting_2026-08-20 23:59:30",
                "hami.io/node-nvidia-score": "[]",
                "hami.io/device-cordon": "GPU-a",
            },
            capacity={"enflame.com/gcu": "2"},
            allocatable={"nvidia.com/gpu": "0"},
        ),
    ),
    "ResourceQuota": (
        read_quota,
        quota(
            {"limits.nvidia.com/gpumem": "10", "limits.nvidia.com/odd": "1", "pods": "3"},
            scopes=["BestEffort"],
            scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]},
        ),
    ),
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(deeper for key, child in children for deeper in paths(child, (*path, key)))]


@given(st.data())
def test_reading_what_is_kept_gives_what_reading_the_whole_gives(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(WHOLE)))
    read, whole = WHOLE[kind]
    manifest = copy.deepcopy(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        path = data.draw(st.sampled_from(paths(manifest)[1:]))
        holder = manifest
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = data.draw(JSON)
    kept = manifests.keep(kind, manifest, VENDORS)
    assert outcome(read, kept) == outcome(read, manifest)
    stored = json.dumps(kept, allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in stored.replace("\\\\", "")
    assert stored.encode()
    assert outcome(read, json.loads(stored)) == outcome(read, manifest)


@given(JSON)
def test_anything_is_read_or_malformed(value: Any) -> None:
    for kind, (read, whole) in WHOLE.items():
        for manifest in (value, {"metadata": value}, whole | {"spec": value}, whole | {"status": value}):
            result = outcome(read, manifest)
            assert result == outcome(read, manifests.keep(kind, manifest, VENDORS)) or not isinstance(
                manifest, dict
            )
    for event in (value, {"type": "ADDED", "object": value}, {"type": value, "object": pod()}):
        outcome(manifests.envelope, event)
    for body in (value, {"kind": "PodList", "items": value}, {"kind": "List", "items": [value]}):
        outcome(manifests.list_items, body)


def test_a_thousand_pods_are_read_quickly() -> None:
    _, whole = WHOLE["Pod"]
    began = time.perf_counter()
    for _ in range(1000):
        manifests.envelope({"type": "ADDED", "object": whole})
        read_pod(manifests.keep("Pod", whole, VENDORS))
    assert time.perf_counter() - began < 1.5, "some 0.1 s on an ordinary machine"

"""The webhook's steps in the core (semantics 5): HAMi's cases, and each step by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hamiacct.accounting import admission, quota
from hamiacct.accounting.admission import Admitted, Scheduling
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.errors import Malformed, UnreadableRequest
from hamiacct.accounting.pods import Pod
from hamiacct.accounting.quota import Dimension, Standing
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import manifests
from tests import cases
from tests.accounting.test_requests import BY_KEY, NVIDIA, VENDORS, configured

GPU, MEMORY, CORES = NVIDIA.count_name, NVIDIA.memory_name, NVIDIA.cores_name
PERCENT = NVIDIA.memory_percentage_name
OURS = Scheduling("hami-scheduler", force_overwrite_default=True)


def pod_of(spec: Mapping[str, Any], **annotations: str) -> Pod:
    manifest = {"metadata": {"name": "web", "annotations": annotations}, "spec": spec}
    return manifests.pod_from_manifest(manifest, VENDORS)


def one(limits: Mapping[str, str], requests: Mapping[str, str] | None = None, **annotations: str) -> Pod:
    """A pod of one container."""
    resources = {"limits": limits, "requests": requests or {}}
    return pod_of({"containers": [{"name": "c", "resources": resources}]}, **annotations)


def written(pod: Pod, vendors: Sequence[Vendor] = VENDORS) -> Mapping[str, str]:
    """The limits of the only container, as admitted."""
    [container] = admission.admitted(pod, vendors).pod.containers
    return container.limits


def with_parameters(vendor: Vendor, **request: object) -> Vendor:
    return replace(vendor, request={**vendor.request, **request})


# --- HAMi's cases --------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("mutate-nvidia"))
def test_hamis_cases_of_nvidias_defaults(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    vendor = configured(NVIDIA, case["config"])
    pod = pod_of({"containers": [{"name": "c", **case["container"]}]})
    if expected.get("error"):
        with pytest.raises(UnreadableRequest, match=r"must be an integer between 0 and 100"):
            admission.admitted(pod, [vendor])
        return
    found = admission.admitted(pod, [vendor])
    limits = found.pod.containers[0].limits
    assert found.has_device is expected["hasResource"]
    assert limits.get(CORES) == (None if expected["cores"] is None else str(expected["cores"]))
    if "count" in expected:
        assert limits[GPU] == str(expected["count"])


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("mutate-ascend"))
def test_hamis_cases_of_ascends_templates(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    vendor = BY_KEY[case["vendor"]]
    pod = pod_of({"containers": [{"name": "c", **case["container"]}]})
    if "error" in expected:
        with pytest.raises(UnreadableRequest) as refusal:
            admission.admitted(pod, VENDORS)
        assert refusal.value.detail.startswith(expected["error"])
        return
    [container] = admission.admitted(pod, VENDORS).pod.containers
    assert container.limits[vendor.memory_name] == str(expected["memory"])
    assert container.requests[vendor.memory_name] == str(expected["memory"])


def standings(vendor: Vendor, stated: Mapping[str, Any] | None) -> list[Standing]:
    """A namespace's quota in the form of the cases; only what is set is a limit."""
    names = {vendor.memory_name: Dimension.MEMORY, vendor.cores_name: Dimension.CORES}
    return [
        Standing(
            "gpu",
            name,
            vendor.key,
            names[name],
            vendor.scaled_limit(one["limit"]) if names[name] is Dimension.MEMORY else one["limit"],
            one["used"],
        )
        for name, one in (stated or {}).items()
        if one["limitSet"]
    ]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("admission-quota"))
def test_hamis_cases_of_the_quota_step(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    vendor = replace(NVIDIA, memory_factor=case["memoryFactor"])
    pod = pod_of(case["pod"]["spec"])
    found = admission.admitted(pod, [vendor])
    requested = quota.effective_request(found.pod.containers, found.requests)
    assert requested[vendor.key].memory_mib == expected["effective"]["mem"]
    assert requested[vendor.key].cores == expected["effective"]["cores"]
    judged = quota.checks(requested, standings(vendor, case["namespaceQuota"]))
    assert all(check.allowed for check in judged) is expected["admitted"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("admission-quota-vendor", "quota-fit"))
def test_hamis_cases_of_every_vendors_quota(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    key = case.get("vendor") or case["device"]
    per_container = case.get("perContainerRequest") or [{"nums": 1, **case["request"]}]
    total = Amount(
        0,
        sum(one["nums"] * one["mem"] for one in per_container),
        sum(one["nums"] * one["cores"] for one in per_container),
    )
    vendor = BY_KEY.get(key)
    in_force = (
        standings(replace(vendor, memory_factor=case["memoryFactor"]), case["namespaceQuota"])
        if vendor
        else []
    )
    judged = quota.checks(Usage({key: total}), in_force)
    assert all(check.allowed for check in judged) is expected.get("admitted", expected.get("fit"))


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("admission"))
def test_hamis_cases_of_the_whole_admission(case: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    settings = case["config"]
    scheduling = Scheduling(settings["schedulerName"], settings["forceOverwriteDefaultScheduler"])
    verdict = admission.judge(pod_of(case["pod"]["spec"]), VENDORS, scheduling)
    allowed, message = verdict.allowed, verdict.message
    if allowed and verdict.admitted:
        found = verdict.admitted
        requested = quota.effective_request(found.pod.containers, found.requests)
        message = quota.denial(quota.checks(requested, standings(NVIDIA, settings.get("namespaceQuota"))))
        allowed = not message
    assert allowed is expected["allowed"]
    assert message.startswith(expected.get("message", ""))
    if allowed:
        assert verdict.admitted is not None
        assert (verdict.admitted.scheduler_name or None) == expected["schedulerName"]


# --- the steps before the quota ------------------------------------------------------------------

ONE_GPU = {"name": "c", "resources": {"limits": {GPU: "1"}}}


def judged(spec: Mapping[str, Any], scheduling: Scheduling = OURS, **annotations: str) -> admission.Verdict:
    return admission.judge(pod_of(spec, **annotations), VENDORS, scheduling)


@pytest.mark.parametrize("containers", [[], None])
def test_a_pod_without_containers_is_denied(containers: Any) -> None:
    verdict = judged({"containers": containers, "initContainers": [ONE_GPU]})
    assert (verdict.allowed, verdict.message) == (False, "pod has no containers")


@pytest.mark.parametrize(
    ("name", "scheduling", "foreign"),
    [
        ("volcano", OURS, True),
        ("hami-scheduler", OURS, False),
        ("", OURS, False),
        ("default-scheduler", OURS, False),
        ("default-scheduler", Scheduling("hami-scheduler", force_overwrite_default=False), True),
        ("default-scheduler", Scheduling("default-scheduler", force_overwrite_default=False), False),
        ("volcano", Scheduling(""), True),
    ],
)
def test_another_schedulers_pod_is_let_through_unlooked_at(
    name: str, scheduling: Scheduling, foreign: bool
) -> None:
    unreadable = {"name": "c", "resources": {"limits": {GPU: "1", MEMORY: "16Gi"}}}
    pod = {"schedulerName": name, "containers": [unreadable]}
    if foreign:
        verdict = judged(pod, scheduling)
        assert verdict.allowed
        assert verdict.message == "pod already has different scheduler assigned"
        assert verdict.admitted is None
    else:
        with pytest.raises(UnreadableRequest):
            judged(pod, scheduling)


def test_a_privileged_container_anywhere_denies_a_pod_with_a_device_anywhere() -> None:
    boss = {"name": "boss", "securityContext": {"privileged": True}}
    assert judged({"containers": [ONE_GPU, boss]}).message == "container boss is privileged"
    assert (
        judged({"initContainers": [boss], "containers": [ONE_GPU]}).message == "container boss is privileged"
    )
    assert judged({"containers": [boss]}).allowed


def test_an_unreadable_request_comes_before_any_denial() -> None:
    boss = {"name": "boss", "securityContext": {"privileged": True}}
    broken = {"name": "c", "resources": {"limits": {GPU: "1", MEMORY: "1.5"}}}
    with pytest.raises(UnreadableRequest):
        judged({"nodeName": "n1", "containers": [broken, boss]})


def test_without_a_scheduler_of_our_own_nothing_is_scheduled() -> None:
    verdict = judged({"nodeName": "n1", "containers": [ONE_GPU]}, Scheduling(""))
    assert verdict.allowed
    assert verdict.admitted is not None
    assert verdict.admitted.scheduler_name == ""


def test_every_vendors_device_makes_the_pod_ours() -> None:
    for vendor in VENDORS:
        pod = {"containers": [{"name": "c", "resources": {"limits": {vendor.count_name: "1"}}}]}
        found = judged(pod).admitted
        assert found is not None
        assert found.scheduler_name == found.pod.scheduler_name == "hami-scheduler", vendor.key


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hami.io/node-scheduler-policy", "tightest"),
        ("hami.io/gpu-scheduler-policy", "spread,closely"),
        ("hami.io/device-scoring-weights", "slot=1,core=1"),
        ("nvidia.com/numa-bind", "yes"),
    ],
)
def test_a_wish_that_nobody_knows_is_refused_where_a_device_is_asked(key: str, text: str) -> None:
    with pytest.raises(Malformed):
        judged({"containers": [ONE_GPU]}, **{key: text})
    assert judged({"containers": [{"name": "c"}]}, **{key: text}).allowed


# --- what is written -----------------------------------------------------------------------------


class TestNvidia:
    def test_memory_alone_means_one_device(self) -> None:
        assert written(one({MEMORY: "3000"})) == {MEMORY: "3000", GPU: "1"}

    def test_unless_no_number_goes_without_saying(self) -> None:
        none = with_parameters(NVIDIA, default_count=0)
        found = admission.admitted(one({MEMORY: "3000"}), [none])
        assert not found.has_device
        assert found.changes == ()

    def test_a_percentage_of_all_is_exclusive_like_no_memory_at_all(self) -> None:
        assert written(one({PERCENT: "100"})) == {PERCENT: "100", GPU: "1", CORES: "100"}
        assert written(one({GPU: "2"})) == {GPU: "2", CORES: "100"}

    @pytest.mark.parametrize(
        "limits",
        [
            {GPU: "1", PERCENT: "50"},
            {GPU: "1", PERCENT: "0"},
            {GPU: "1", MEMORY: "1000"},
            {GPU: "1", MEMORY: "0"},
            {GPU: "1", PERCENT: "100", CORES: "20"},
            {GPU: "1", CORES: "0"},
            {GPU: "0"},
        ],
    )
    def test_nothing_else_is(self, limits: dict[str, str]) -> None:
        assert written(one(limits)) == limits

    def test_cores_in_requests_are_cores(self) -> None:
        assert written(one({GPU: "1"}, {CORES: "20"})) == {GPU: "1"}

    def test_without_a_name_for_cores_nothing_is_written(self) -> None:
        assert written(one({GPU: "1"}), [replace(NVIDIA, cores_name="")]) == {GPU: "1"}

    def test_a_count_of_zero_asks_for_nothing(self) -> None:
        found = admission.admitted(one({GPU: "0", MEMORY: "100"}), VENDORS)
        assert not found.asks_for_something

    def test_the_percentage_is_judged_without_a_count_too(self) -> None:
        with pytest.raises(UnreadableRequest) as refusal:
            admission.admitted(one({}, {PERCENT: "101"}), VENDORS)
        assert refusal.value.detail == (
            f"invalid {PERCENT} value 101 in container c: must be an integer between 0 and 100"
        )
        assert refusal.value.pointer == "/spec/containers/0/resources"

    def test_environment_and_runtime_class(self) -> None:
        vendor = with_parameters(NVIDIA, core_policy="force", runtime_class="nvidia", overwrite_env=True)
        pod = pod_of(
            {
                "containers": [
                    {"name": "a", "resources": {"limits": {GPU: "1", vendor.priority_name: "1"}}},
                    {"name": "b"},
                ]
            }
        )
        found = admission.admitted(pod, [vendor])
        policy = ("GPU_CORE_UTILIZATION_POLICY", "force")
        assert [change.env for change in found.changes] == [
            (("CUDA_TASK_PRIORITY", "1"), policy),
            (policy, ("NVIDIA_VISIBLE_DEVICES", "none")),
        ]
        assert found.runtime_class == "nvidia"
        nothing = admission.admitted(pod_of({"containers": [{"name": "b"}]}), [vendor])
        assert nothing.runtime_class == ""


class TestOthers:
    def test_several_iluvatar_devices_are_whole_and_judged_per_device(self) -> None:
        names = BY_KEY["MR-V100"]
        pod = one({names.count_name: "2", names.cores_name: "50"}, {names.cores_name: "50"})
        found = admission.admitted(pod, VENDORS)
        [container] = found.pod.containers
        assert container.limits[names.cores_name] == container.requests[names.cores_name] == "200"
        assert found.changes[0].env == (("SOL_CONTINER_NAME", "c"),)
        assert quota.effective_request([container], found.requests)["MR-V100"].cores == 200

    def test_several_mthreads_devices_are_whole(self) -> None:
        names = BY_KEY["Mthreads"]
        found = admission.admitted(one({names.count_name: "2", names.memory_name: "8"}), VENDORS)
        assert found.pod.containers[0].limits == {
            names.count_name: "2",
            names.memory_name: "192",
            names.cores_name: "32",
        }
        assert found.annotations == {"mthreads.com/request-gpu-num": "2"}

    def test_one_mthreads_device_is_whole_unless_a_size_is_given(self) -> None:
        names = BY_KEY["Mthreads"]
        whole = {names.count_name: "1", names.memory_name: "96", names.cores_name: "16"}
        assert written(one({names.count_name: "1"})) == whole
        sized = {names.count_name: "1", names.memory_name: "8", names.cores_name: "4"}
        assert written(one(sized)) == sized
        with pytest.raises(UnreadableRequest, match="2, 4, 8, 16, 32, 64, 96"):
            written(one({names.count_name: "1", names.memory_name: "3"}))

    def test_metax_pods_have_a_quality_of_service(self) -> None:
        names, key = BY_KEY["Metax-SGPU"], "metax-tech.com/sgpu-qos-policy"
        limits = {names.count_name: "1"}
        assert admission.admitted(one(limits), VENDORS).annotations == {key: "best-effort"}
        assert admission.admitted(one(limits, **{key: "fixed-share"}), VENDORS).annotations == {}
        with pytest.raises(UnreadableRequest, match="burst-share"):
            admission.admitted(one(limits, **{key: "best"}), VENDORS)

    def test_metax_online_pods_have_one_device_and_no_policy(self) -> None:
        names, key = BY_KEY["Metax-SGPU"], "metax-tech.com/sgpu-app-class"
        assert admission.admitted(one({names.count_name: "1"}, **{key: "online"}), VENDORS).annotations == {}
        with pytest.raises(UnreadableRequest, match="must be 1"):
            admission.admitted(one({names.count_name: "2"}, **{key: "online"}), VENDORS)
        with pytest.raises(UnreadableRequest, match="online, offline"):
            admission.admitted(one({names.count_name: "1"}, **{key: "batch"}), VENDORS)

    def test_xpu_memory_is_written_as_the_slice(self) -> None:
        names = BY_KEY["XPU"]
        [container] = admission.admitted(
            one({names.count_name: "1", names.memory_name: "30000"}), VENDORS
        ).pod.containers
        assert container.limits[names.memory_name] == container.requests[names.memory_name] == "49152"

    def test_enflame_values_stand_in_both(self) -> None:
        names = BY_KEY["Enflame"]
        [container] = admission.admitted(
            one({names.cores_name: "50"}, {names.memory_name: "12"}), VENDORS
        ).pod.containers
        assert container.limits == container.requests == {names.memory_name: "12", names.cores_name: "50"}

    @pytest.mark.parametrize("limits", [{"neuroncore": "3"}, {"neuroncore": "-1"}, {"neuron": "x"}])
    def test_neuron_takes_numbers_that_fill_devices(self, limits: dict[str, str]) -> None:
        with pytest.raises(UnreadableRequest):
            written(one({f"aws.amazon.com/{key}": text for key, text in limits.items()}))

    def test_amd_cores_are_judged_where_there_is_a_count(self) -> None:
        assert written(one({"amd.com/gpucores": "500"})) == {"amd.com/gpucores": "500"}
        with pytest.raises(UnreadableRequest):
            written(one({"amd.com/gpu": "1", "amd.com/gpucores": "500"}))


class TestAscend:
    NAMES = BY_KEY["Ascend910B4"]
    SOFT: Mapping[str, str] = {"huawei.com/vnpu-mode": "hami-core"}

    def test_no_memory_is_what_can_be_allocated(self) -> None:
        assert written(one({self.NAMES.count_name: "1"}))[self.NAMES.memory_name] == "32768"

    def test_several_devices_are_whole(self) -> None:
        whole = {self.NAMES.count_name: "2", self.NAMES.memory_name: "32768"}
        assert written(one(whole)) == whole
        with pytest.raises(UnreadableRequest, match="several devices are whole ones"):
            written(one({**whole, self.NAMES.memory_name: "8192"}))

    def test_cores_need_a_soft_split(self) -> None:
        limits = {self.NAMES.count_name: "1", self.NAMES.memory_name: "5000", self.NAMES.cores_name: "20"}
        with pytest.raises(UnreadableRequest, match="hami-core"):
            written(one(limits))
        assert written(one(limits, **self.SOFT)) == limits
        [[request]] = admission.admitted(one(limits, **self.SOFT), VENDORS).requests
        assert (request.memory_mib, request.cores) == (5000, 20)

    def test_the_factor_comes_after_the_template(self) -> None:
        vendor = replace(self.NAMES, memory_factor=2)
        asked = one({vendor.count_name: "1", vendor.memory_name: "5000"})
        [[request]] = admission.admitted(asked, [vendor]).requests
        assert request.memory_mib == 2 * 8192

    def test_modules_of_two_are_not_divided(self) -> None:
        names = BY_KEY["Ascend910C"]
        assert written(one({names.count_name: "1"}))[names.count_name] == "2"
        assert written(one({names.count_name: "4"}))[names.count_name] == "4"
        with pytest.raises(UnreadableRequest, match="even"):
            written(one({names.count_name: "3"}))

    def test_where_configured_others_see_no_device(self) -> None:
        vendor = with_parameters(self.NAMES, overwrite_env=True, runtime_class="ascend")
        found = admission.admitted(
            pod_of(
                {
                    "initContainers": [{"name": "i"}],
                    "containers": [{"name": "c", "resources": {"limits": {vendor.count_name: "1"}}}],
                }
            ),
            [vendor],
        )
        assert [(change.position, change.env) for change in found.changes] == [
            (0, (("ASCEND_VISIBLE_DEVICES", ""),)),
            (1, ()),
        ]
        assert found.runtime_class == "ascend"


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
@pytest.mark.parametrize("count", ["1", "2"])
def test_a_pod_that_was_admitted_is_admitted_as_it_is(vendor: Vendor, count: str) -> None:
    """The apiserver may ask again, and every question reads pods as admitted."""
    resources = {vendor.count_name: count}
    first = admission.admitted(one(resources), VENDORS)
    second = admission.admitted(first.pod, VENDORS)
    assert second.pod == first.pod
    assert second.requests == first.requests


# --- the quota step ------------------------------------------------------------------------------


def asked(spec: Mapping[str, Any]) -> Admitted:
    return admission.admitted(pod_of(spec), VENDORS)


def test_the_denial_says_everything() -> None:
    amounts = (("sidecar", "2048"), ("init", "20480"), ("app", "10240"))
    sidecar, init, app = (
        {"name": name, "resources": {"limits": {GPU: "1", MEMORY: memory}}} for name, memory in amounts
    )
    found = asked({"initContainers": [{**sidecar, "restartPolicy": "Always"}, init], "containers": [app]})
    requested = quota.effective_request(found.pod.containers, found.requests)
    limit = Standing("gpu", MEMORY, "NVIDIA", Dimension.MEMORY, 20000, 0)
    assert quota.denial(quota.checks(requested, [limit])) == (
        "exceeding resource quota: nvidia.com/gpumem requested 22528, used 0, limited 20000"
        " (ResourceQuota gpu)"
    )


def test_every_limit_that_is_exceeded_is_told() -> None:
    limits = [
        Standing(name, MEMORY, "NVIDIA", Dimension.MEMORY, hard, 10)
        for name, hard in (("loose", 500), ("strict", 50), ("stricter", 20))
    ]
    judged = quota.checks(Usage({"NVIDIA": Amount(1, 100, 0)}), limits)
    assert [check.allowed for check in judged] == [True, False, False]
    assert quota.denial(judged).count("(ResourceQuota ") == 2


def test_sums_are_not_bounded_by_any_width() -> None:
    found = asked(
        {"containers": [{"name": "c", "resources": {"limits": {GPU: "2147483647", MEMORY: "2147483647"}}}]}
    )
    requested = quota.effective_request(found.pod.containers, found.requests)
    assert requested["NVIDIA"].memory_mib == (2**31 - 1) ** 2


def test_what_has_no_size_yet_is_named() -> None:
    enflame, amd, biren = (BY_KEY[key].count_name for key in ("Enflame", "AMD", "Biren"))
    limits = {"half": {GPU: "2", PERCENT: "50"}, "whole": {GPU: "1"}, "sized": {GPU: "1", MEMORY: "100"}}
    limits |= {"profile": {enflame: "3"}, "amd": {amd: "1"}, "uncounted": {biren: "1"}}
    containers = [{"name": name, "resources": {"limits": one}} for name, one in limits.items()]
    found = asked({"containers": containers})
    unsized = quota.undetermined(found.pod.containers, found.requests, BY_KEY)
    assert [one.container for one in unsized] == ["half", "whole", "profile", "amd"]
    assert unsized[0].detail.startswith(
        "50 % of the memory of 2 NVIDIA devices has no size in nvidia.com/gpumem"
    )
    requested = quota.effective_request(found.pod.containers, found.requests)
    assert requested["Enflame"].memory_mib == 0


def test_a_share_that_the_card_decides_counts_as_no_memory_and_no_cores() -> None:
    names = BY_KEY["Enflame"]
    found = admission.admitted(one({names.memory_name: "12", names.cores_name: "50"}), VENDORS)
    requested = quota.effective_request(found.pod.containers, found.requests)["Enflame"]
    assert (requested.memory_mib, requested.cores) == (0, 0)
    [unsized] = quota.undetermined(found.pod.containers, found.requests, BY_KEY)
    assert unsized.detail.startswith("a share of the memory")

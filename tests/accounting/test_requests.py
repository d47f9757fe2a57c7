"""What containers ask of each vendor (semantics 3), as HAMi's cases have it and as the rules say."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hamiacct import config
from hamiacct.accounting.errors import UnreadableRequest
from hamiacct.accounting.pods import Container, ContainerClass
from hamiacct.accounting.requests import PERCENT_NOT_GIVEN, DeviceRequest
from hamiacct.accounting.rules import RULES, requests_of
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import manifests
from tests import cases

VENDORS = config.read_vendors(None)
BY_KEY = {vendor.key: vendor for vendor in VENDORS}
NVIDIA = BY_KEY["NVIDIA"]

# The keys of device-config.yaml that cases of NVIDIA's requests set.
PARAMETERS = {
    "defaultMemory": "default_memory_mib",
    "defaultCores": "default_cores",
    "defaultGPUNum": "default_count",
}


def configured(vendor: Vendor, case: Mapping[str, Any]) -> Vendor:
    """The vendor as a case's device-config.yaml makes it."""
    factor = case.get("memoryFactor", vendor.memory_factor)
    memory_name = case.get("resourceMemoryName", vendor.memory_name)
    given = {PARAMETERS[key]: value for key, value in case.items() if key in PARAMETERS}
    request = {**vendor.request, **given}
    return replace(vendor, memory_factor=factor, memory_name=memory_name, request=request)


def container_of(manifest: Mapping[str, Any]) -> Container:
    pod = {"spec": {"containers": [{"name": "c", **manifest}]}}
    return manifests.pod_from_manifest(pod, VENDORS).containers[0]


def in_hamis_form(requests: tuple[DeviceRequest, ...]) -> dict[str, int]:
    """One request in the form of the cases; HAMi writes a profile's size into the field of memory."""
    if not requests:
        return {"nums": 0, "mem": 0, "pct": 0, "cores": 0}
    [found] = requests
    memory = found.extra.get("profile_size", found.memory_mib)
    assert isinstance(memory, int)
    return {"nums": found.count, "mem": memory, "pct": found.memory_percent, "cores": found.cores}


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("request-nvidia", "request-vendor"))
def test_hamis_cases(case: Mapping[str, Any], expected: Any) -> None:
    vendor = configured(BY_KEY[case.get("vendor", "NVIDIA")], case["config"])
    container = container_of(case["container"])
    if "error" in expected:
        with pytest.raises(UnreadableRequest) as refusal:
            requests_of(container, [vendor])
        limits = case["container"]["resources"]["limits"]
        key, value = next((key, value) for key, value in limits.items() if "mem" in key)
        assert f"{key} value {value} in container c" in refusal.value.detail
        return
    assert in_hamis_form(requests_of(container, [vendor])) == expected


def asked(vendor: str, limits: Mapping[str, str], requests: Mapping[str, str] | None = None) -> DeviceRequest:
    """The one request of a container, which is of one vendor of the whole table."""
    container = Container(0, "c", ContainerClass.APP, limits=limits, requests=requests or {})
    [request] = requests_of(container, VENDORS)
    assert request.vendor == vendor
    return request


def refused(limits: Mapping[str, str]) -> str:
    with pytest.raises(UnreadableRequest) as refusal:
        requests_of(Container(3, "worker", ContainerClass.APP, limits=limits), VENDORS)
    assert refusal.value.position == 3
    assert "in container worker" in refusal.value.detail
    return refusal.value.detail


def test_every_vendor_names_a_rule_that_is_there() -> None:
    assert {str(vendor.request["rule"]) for vendor in VENDORS} == set(RULES)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
class TestEveryVendor:
    def test_asks_for_as_many_as_it_says(self, vendor: Vendor) -> None:
        found = asked(vendor.key, {vendor.count_name: "2"})
        assert found.count == 2 or found.card_decides
        assert found.memory_mib >= 0

    def test_asks_for_nothing_with_a_count_of_zero(self, vendor: Vendor) -> None:
        container = Container(0, "c", ContainerClass.APP, limits={vendor.count_name: "0"})
        assert requests_of(container, VENDORS) == ()

    def test_asks_for_nothing_without_a_count_or_something_else_that_counts(self, vendor: Vendor) -> None:
        container = Container(0, "c", ContainerClass.APP, limits={vendor.memory_name or "other": "1"})
        expected = vendor.request["rule"] == "enflame-drs"
        assert bool(requests_of(container, VENDORS)) is expected

    @pytest.mark.parametrize("text", ["-1", "1.5", "500m", "4294967297", "9223372036854775808", "one", ""])
    def test_refuses_a_count_that_is_none(self, vendor: Vendor, text: str) -> None:
        assert f"{vendor.count_name} value {text} " in refused({vendor.count_name: text})

    @pytest.mark.parametrize("text", ["-1", "1.5", "1E", "9223372036854775807", "much"])
    def test_refuses_memory_that_is_none(self, vendor: Vendor, text: str) -> None:
        if vendor.memory_name:
            limits = {vendor.count_name: "1", vendor.memory_name: text}
            assert f"{vendor.memory_name} value {text} " in refused(limits)

    @pytest.mark.parametrize("text", ["-1", "101", "1.5", "4294967346"])
    def test_refuses_cores_that_are_none(self, vendor: Vendor, text: str) -> None:
        if vendor.cores_name and vendor.request["rule"] != "neuron":
            limits = {vendor.count_name: "1", vendor.cores_name: text}
            assert f"{vendor.cores_name} value {text} " in refused(limits)


class TestNvidia:
    def test_cores_come_from_requests_where_limits_have_none(self) -> None:
        found = asked("NVIDIA", {NVIDIA.count_name: "1"}, {NVIDIA.cores_name: "30"})
        assert found.cores == 30

    def test_memory_of_zero_is_not_given(self) -> None:
        found = asked("NVIDIA", {NVIDIA.count_name: "1", NVIDIA.memory_name: "0"})
        assert (found.memory_mib, found.memory_percent) == (0, 100)

    def test_a_percentage_of_zero_is_not_given(self) -> None:
        found = asked("NVIDIA", {NVIDIA.count_name: "1", NVIDIA.memory_percentage_name: "0"})
        assert (found.memory_mib, found.memory_percent) == (0, 100)

    def test_suffixes_of_whole_numbers_are_read(self) -> None:
        assert asked("NVIDIA", {NVIDIA.count_name: "1", NVIDIA.memory_name: "5k"}).memory_mib == 5000

    def test_memory_and_a_percentage_are_both_kept(self) -> None:
        both = {NVIDIA.memory_name: "1000", NVIDIA.memory_percentage_name: "50"}
        found = asked("NVIDIA", {NVIDIA.count_name: "1", **both})
        assert (found.memory_mib, found.memory_percent, found.memory_on(24576)) == (1000, 50, 1000)

    def test_a_value_of_any_length_is_told_short(self) -> None:
        detail = refused({NVIDIA.count_name: "9" * 60})
        assert len(detail) < 200


class TestScaled:
    def test_the_factor_is_applied_once(self) -> None:
        mlu = BY_KEY["MLU"]
        assert asked("MLU", {mlu.count_name: "2", mlu.memory_name: "10"}).memory_mib == 2560

    def test_memory_may_fill_31_bits_and_no_more(self) -> None:
        mlu = BY_KEY["MLU"]
        most = (2**31 - 1) // 256
        assert asked("MLU", {mlu.count_name: "1", mlu.memory_name: str(most)}).memory_mib == most * 256
        refused({mlu.count_name: "1", mlu.memory_name: str(most + 1)})

    def test_cores_that_admission_wrote_for_several_are_the_sum(self) -> None:
        iluvatar = BY_KEY["MR-V100"]
        several = {iluvatar.count_name: "2", iluvatar.cores_name: "200"}
        assert asked("MR-V100", several).cores == 100

    def test_cores_below_that_are_per_device(self) -> None:
        iluvatar = BY_KEY["BI-V150"]
        assert asked("BI-V150", {iluvatar.count_name: "2", iluvatar.cores_name: "20"}).cores == 20

    def test_iluvatars_cores_default_to_none_and_the_others_to_all(self) -> None:
        cores = {key: asked(key, {BY_KEY[key].count_name: "1"}).cores for key in ("BI-V100", "MLU", "DCU")}
        assert cores == {"BI-V100": 0, "MLU": 100, "DCU": 100}


class TestMthreads:
    NAMES = BY_KEY["Mthreads"]

    def test_what_is_written_is_for_all_devices(self) -> None:
        names = self.NAMES
        limits = {names.count_name: "4", names.memory_name: "384", names.cores_name: "64"}
        found = asked("Mthreads", limits)
        assert (found.count, found.memory_mib, found.cores) == (4, 96 * 512, 16)

    def test_a_device_has_no_more_cores_than_it_has(self) -> None:
        names = self.NAMES
        assert "between 0 and 16" in refused({names.count_name: "1", names.cores_name: "17"})


class TestMetax:
    NAMES = BY_KEY["Metax-SGPU"]

    @pytest.mark.parametrize(
        ("text", "memory_mib"), [("4", 4096), ("4Gi", 4096), ("512Mi", 512), ("1G", 953), ("0", 0)]
    )
    def test_bare_memory_is_gib_and_the_rest_bytes(self, text: str, memory_mib: int) -> None:
        found = asked("Metax-SGPU", {self.NAMES.count_name: "1", self.NAMES.memory_name: text})
        assert (found.memory_mib, found.memory_percent) == (memory_mib, 0 if memory_mib else 100)

    @pytest.mark.parametrize("text", ["1k", "1023Ki", "500m", "2Pi", "-1Gi"])
    def test_bytes_that_come_to_no_mib_are_refused(self, text: str) -> None:
        refused({self.NAMES.count_name: "1", self.NAMES.memory_name: text})

    @pytest.mark.parametrize("key", ["Metax-SGPU", "AMD"])
    def test_requests_are_not_looked_at(self, key: str) -> None:
        container = Container(0, "c", ContainerClass.APP, requests={BY_KEY[key].count_name: "1"})
        assert requests_of(container, VENDORS) == ()


class TestXpu:
    NAMES = BY_KEY["XPU"]

    @pytest.mark.parametrize(
        ("text", "memory_mib", "cores"),
        [
            ("1", 24576, 25),
            ("24576", 24576, 25),
            ("24577", 49152, 50),
            ("49153", 98304, 100),
            ("98304", 98304, 100),
        ],
    )
    def test_memory_is_rounded_up_to_a_slice_and_cores_follow(
        self, text: str, memory_mib: int, cores: int
    ) -> None:
        found = asked("XPU", {self.NAMES.count_name: "1", self.NAMES.memory_name: text})
        assert (found.memory_mib, found.memory_percent, found.cores) == (memory_mib, 0, cores)


class TestEnflame:
    NAMES = BY_KEY["Enflame"]

    def test_a_count_is_the_size_of_a_profile_on_one_device(self) -> None:
        found = asked("Enflame", {self.NAMES.count_name: "3"})
        assert (found.count, found.memory_mib, found.extra) == (1, 0, {"profile_size": 3})
        assert found.card_decides

    def test_memory_or_cores_alone_ask_for_a_profile_that_is_enough(self) -> None:
        found = asked("Enflame", {self.NAMES.memory_name: "12", self.NAMES.cores_name: "50"})
        assert (found.count, found.memory_mib, found.cores, found.extra) == (1, 12, 50, {})
        assert found.card_decides


class TestNeuron:
    NAMES = BY_KEY["AWSNeuron"]

    @pytest.mark.parametrize(
        ("cores", "count", "of_each"), [("1", 1, 1), ("2", 1, 2), ("4", 2, 2), ("6", 3, 2)]
    )
    def test_cores_are_of_one_device_or_of_whole_ones(self, cores: str, count: int, of_each: int) -> None:
        found = asked("AWSNeuron", {self.NAMES.cores_name: cores})
        assert (found.count, found.cores, found.extra) == (count, of_each, {"cores_total": int(cores)})

    def test_devices_come_with_all_their_cores(self) -> None:
        assert asked("AWSNeuron", {self.NAMES.count_name: "4"}).cores == 2

    @pytest.mark.parametrize("cores", ["3", "-2", "1.5", "4294967296"])
    def test_cores_that_fill_no_devices_are_refused(self, cores: str) -> None:
        assert f"{self.NAMES.cores_name} value {cores} " in refused({self.NAMES.cores_name: cores})


class TestAmd:
    NAMES = BY_KEY["AMD"]

    def test_no_memory_is_the_whole_card(self) -> None:
        found = asked("AMD", {self.NAMES.count_name: "1", self.NAMES.cores_name: "1"})
        assert found.memory_on(196608) == 196608
        assert found.cores == 1

    def test_no_cores_at_all_cannot_be_asked(self) -> None:
        assert "between 1 and 100" in refused({self.NAMES.count_name: "1", self.NAMES.cores_name: "0"})


class TestAscend:
    NAMES = BY_KEY["Ascend310P"]

    def test_memory_is_what_is_written_for_admission_has_rounded_it(self) -> None:
        limits = {self.NAMES.count_name: "1", self.NAMES.memory_name: "3073", self.NAMES.cores_name: "20"}
        found = asked("Ascend310P", limits)
        assert (found.memory_mib, found.memory_percent, found.cores) == (3073, 0, 20)

    def test_the_factor_is_applied_once(self) -> None:
        vendor = replace(self.NAMES, memory_factor=2)
        limits = {vendor.count_name: "1", vendor.memory_name: "6144"}
        [found] = requests_of(Container(0, "c", ContainerClass.APP, limits=limits), [vendor])
        assert found.memory_mib == 12288


@pytest.mark.parametrize(
    ("memory_mib", "percent", "on_card"),
    [
        (1000, PERCENT_NOT_GIVEN, 1000),
        (0, 33, 8110),
        (0, 100, 24576),
        (0, PERCENT_NOT_GIVEN, 0),
        (0, 0, 24576),
    ],
)
def test_what_a_request_comes_to_on_a_card(memory_mib: int, percent: int, on_card: int) -> None:
    assert DeviceRequest("NVIDIA", 1, memory_mib, percent).memory_on(24576) == on_card


def test_one_container_may_ask_several_vendors() -> None:
    limits = {"nvidia.com/gpu": "1", "hygon.com/dcunum": "2"}
    found = requests_of(Container(0, "c", ContainerClass.APP, limits=limits), VENDORS)
    assert [(request.vendor, request.count) for request in found] == [("NVIDIA", 1), ("DCU", 2)]

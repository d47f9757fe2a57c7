"""What a placement writes on its pod, for each vendor's plugin."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.devices import MigAllocation
from hamiacct.accounting.devices import Placement as Place
from hamiacct.accounting.fit import Placement
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.pods import Allocation, AnnotationFault, Container, ContainerClass, Pod, Row
from hamiacct.config import read_vendors
from hamiacct.kube import manifests, patches
from hamiacct.kube.annotations import decode_mig_allocations
from tests import cases

VENDORS = read_vendors()
NOW = datetime.fromtimestamp(1787270400, UTC)
NANOSECONDS = "1787270400000000000"


def pod(*limits: Mapping[str, str], **annotations: str) -> Pod:
    """A pod of app containers with these limits."""
    containers = tuple(
        Container(position, f"c{position}", ContainerClass.APP, limits=one)
        for position, one in enumerate(limits or [{}])
    )
    return Pod("uid-p", "team-a", "p", 1, containers, annotations=annotations)


def placed(vendor: str, *groups: Any, devices: Any = (), slots: int = 1, node: str = "n-1") -> Placement:
    """A placement of one vendor's rows: (uuid, memory, cores) by position."""
    rows = tuple(tuple(Row(uuid, "as written", *amounts) for uuid, *amounts in group) for group in groups)
    allocation = Allocation(vendor, node, rows, slots)
    return Placement(node, {vendor: allocation}, Footprint(), 0.0, (), tuple(devices))


def device(uuid: str, vendor: str, index: int, cores: int = 100, **custom: Any) -> FitDevice:
    return FitDevice(uuid, vendor, Amount(10, 1000, cores), index=index, custom=custom)


def written(placement: Placement, on: Pod | None = None) -> dict[str, str | None]:
    return patches.annotations_of(placement, on or pod(), VENDORS, NOW)[0]


def beside(placement: Placement, on: Pod | None = None) -> dict[str, str | None]:
    """What is written besides the rows, the node and the time."""
    vendor = next(one for one in VENDORS if one.key in placement.allocations)
    common = {"hami.io/vgpu-node", "hami.io/vgpu-time", vendor.allocated_key, vendor.to_allocate_key}
    return {key: value for key, value in written(placement, on).items() if key not in common}


@pytest.mark.parametrize(("given", "right"), cases.of_kind("patch"))
def test_cases_of_hami(given: dict[str, Any], right: dict[str, Any]) -> None:
    at = datetime.fromtimestamp(given["now"], UTC)
    if "rows" not in given:
        assert patches.of_binding(at) == right["annotations"]
        return
    placement = placed("NVIDIA", *given["rows"], node=given["chosen"])
    annotations, labels = patches.annotations_of(placement, pod({}, {}, {}), VENDORS, at)
    assert annotations == right["annotations"]
    assert labels == right["labels"]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
def test_rows_stand_under_both_keys_of_every_vendor_with_its_key_as_type(vendor: Any) -> None:
    found = written(placed(vendor.key, [], [(f"n-1-{vendor.key}-3", 1024, 1)]))
    text = f";n-1-{vendor.key}-3,{vendor.key},1024,1:;"
    assert found[vendor.allocated_key] == text
    assert found.get(vendor.to_allocate_key) == (text if vendor.to_allocate_key else None)


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
def test_whatever_a_placement_writes_is_read_back_and_known_to_be_removed(vendor: Any) -> None:
    found = written(placed(vendor.key, [(f"n-1-{vendor.key}-3", 1024, 1)]))
    assert set(found) <= patches.keys_of_placements(VENDORS)
    manifest = {
        "metadata": {"name": "p", "annotations": found},
        "spec": {"containers": [{"name": "c0"}]},
    }
    seen = manifests.pod_from_manifest(manifest, VENDORS)
    assert seen.faults == ()
    again = written(placed("NVIDIA", [("GPU-a", 1, 1)]), seen)
    assert {key for key, value in again.items() if value is None} == set(found) - {
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "hami.io/vgpu-devices-allocated",
        "hami.io/vgpu-devices-to-allocate",
    }


def test_the_label_is_left_out_where_the_nodes_name_is_too_long() -> None:
    assert patches.labels_of("n" * 63) == {"hami.io/vgpu-node": "n" * 63}
    placement = placed("NVIDIA", [("GPU-a", 1, 1)], node="n" * 64)
    annotations, labels = patches.annotations_of(placement, pod(), VENDORS, NOW)
    assert (annotations["hami.io/vgpu-node"], labels) == ("n" * 64, {})


# --- stale keys ----------------------------------------------------------------------------------


def test_keys_of_an_earlier_placement_are_removed_and_the_users_stay() -> None:
    earlier = pod(
        **{
            "hami.io/vgpu-mig-allocations": "[]",
            "hami.io/bind-phase": "failed",
            "mthreads.com/request-gpu-num": "2",
            "mthreads.com/gpu-index": "0,1",
            "nvidia.com/use-gpuuuid": "GPU-a",
            "predicate-time": "1",
        }
    )
    allocations = {"Ascend910B4": Allocation("Ascend910B4", "n-1", ())}
    faults = (AnnotationFault("DCU", "hami.io/dcu-devices-allocated", 0, "cut off"),)
    found = written(
        placed("NVIDIA", [("GPU-a", 1, 1)]), replace(earlier, allocations=allocations, faults=faults)
    )
    assert {key for key, value in found.items() if value is None} == {
        "hami.io/vgpu-mig-allocations",
        "mthreads.com/gpu-index",
        "predicate-time",
        "hami.io/Ascend910B4-devices-allocated",
        "hami.io/dcu-devices-allocated",
    }


# --- MIG -----------------------------------------------------------------------------------------


def test_places_on_mig_cards_are_written_where_there_are_some() -> None:
    places = (MigAllocation(0, 0, "GPU-a", "1g.5gb", Place(6, 1)),)
    placement = replace(placed("NVIDIA", [("GPU-a", 5120, 14)]), mig_allocations=places)
    text = written(placement)["hami.io/vgpu-mig-allocations"]
    assert json.loads(text or "") == [
        {
            "containerIndex": 0,
            "deviceIndex": 0,
            "gpuUUID": "GPU-a",
            "profile": "1g.5gb",
            "placement": {"start": 6, "size": 1},
        }
    ]
    assert decode_mig_allocations(text or "") == places


def test_the_identity_that_a_plugin_gave_a_place_survives_the_codec() -> None:
    given = '[{"containerIndex":1,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb",'
    given += '"placement":{"start":0,"size":1},"migUUID":"MIG-1","gpuInstanceID":0,"computeInstanceID":0}]'
    assert patches.codec.encode_mig_allocations(decode_mig_allocations(given)) == given


# --- vendors -------------------------------------------------------------------------------------


def test_nvidia_is_told_nothing_besides() -> None:
    assert beside(placed("NVIDIA", [("GPU-a", 1, 1)])) == {}


def test_cambricon_is_told_the_first_row_as_a_profile() -> None:
    placement = placed(
        "MLU",
        [],
        [("n-1-cambricon-mlu-3", 2560, 25)],
        [("n-1-cambricon-mlu-0", 256, 5)],
        devices=[device("n-1-cambricon-mlu-3", "MLU", 3), device("n-1-cambricon-mlu-0", "MLU", 0)],
    )
    assert beside(placement) == {
        "CAMBRICON_DSMLU_ASSIGNED": "false",
        "CAMBRICON_DSMLU_PROFILE": "3_25_10",
    }


def test_moore_threads_is_told_the_devices_the_node_and_the_nanosecond() -> None:
    assert beside(placed("Mthreads", [("n-1-mthreads-0", 512, 1), ("n-1-mthreads-2", 512, 1)])) == {
        "mthreads.com/gpu-index": "0,2",
        "mthreads.com/predicate-node": "n-1",
        "mthreads.com/predicate-time": NANOSECONDS,
    }


def test_metax_is_told_all_rows_by_position_without_zeros() -> None:
    found = beside(placed("Metax-SGPU", [], [("GPU-m1", 2048, 0)], [("GPU-m1", 1024, 10)]))
    assert found == {
        "metax-tech.com/gpu-devices-allocated": (
            '[[],[{"uuid":"GPU-m1","vRam":2048}],[{"uuid":"GPU-m1","compute":10,"vRam":1024}]]'
        ),
        "metax-tech.com/predicate-time": NANOSECONDS,
    }


def test_kunlunxin_is_told_the_devices_of_all_containers_once_each() -> None:
    placement = placed(
        "kunlun",
        [("n-1-kunlun-4", 98304, 100), ("n-1-kunlun-5", 98304, 100)],
        [],
        [("n-1-kunlun-5", 98304, 100)],
    )
    assert beside(placement) == {"BAIDU_COM_DEVICE_IDX": "4,5"}


def test_enflame_is_told_the_device_and_each_containers_profile() -> None:
    card_ = device(
        "n-1-enflame-drs-1", "Enflame", 1, minor=7, profiles={"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2"}
    )
    placement = placed(
        "Enflame",
        [("n-1-enflame-drs-1", 20480, 50)],
        [],
        [("n-1-enflame-drs-1", 6144, 17)],
        devices=[card_],
        slots=3,
    )
    assert beside(placement, pod({}, {}, {})) == {
        "enflame.com/gcu-assigned": "false",
        "enflame.com/gcu-assigned-time": NANOSECONDS,
        "enflame.com/gcu-assigned-id": "1",
        "enflame.com/gcu-assigned-index": "1",
        "enflame.com/gcu-assigned-minor": "7",
        "enflame.com/gcu-request-size": "3",
        "assigned-containers": (
            '{"c0":{"allocated":false,"request":3,"profileID":"1","profileName":"3g.20gb"},'
            '"c2":{"allocated":false,"request":1,"profileID":"0","profileName":"1g.6gb"}}'
        ),
    }


@pytest.mark.parametrize(
    ("limits", "masks", "ids", "resource"),
    [
        ({"aws.amazon.com/neuron": "2"}, (15, 15), "2,3", {}),
        (
            {"aws.amazon.com/neuroncore": "2"},
            (6,),
            "9,10",
            {"NEURON_RESOURCE_TYPE": "aws.amazon.com/neuroncore"},
        ),
    ],
)
def test_neuron_is_told_devices_or_cores_by_what_was_asked(
    limits: dict[str, str], masks: tuple[int, ...], ids: str, resource: dict[str, str]
) -> None:
    uuids = [f"n-1-AWSNeuron-{number}" for number in (2, 3)]
    placement = placed(
        "AWSNeuron",
        [(uuid, 0, mask) for uuid, mask in zip(uuids, masks, strict=False)],
        devices=[device(uuid, "AWSNeuron", number + 2, cores=4) for number, uuid in enumerate(uuids)],
    )
    assert beside(placement, pod(limits)) == {
        "AWS_NEURON_IDS": ids,
        "NEURON_ALLOC_TIME": NANOSECONDS,
        "NEURON_ALLOCATED": "false",
        "aws.amazon.com/predicate-node": "n-1",
        **resource,
    }


@pytest.mark.parametrize(
    ("memory", "cores", "mode", "chip"),
    [
        (8192, 0, None, {"temp": "vir05_1c_8g"}),
        (32768, 0, None, {}),
        (5000, 30, "hami-core", {"memory": 5000, "core": 30}),
    ],
)
def test_ascend_is_told_a_template_or_under_soft_split_amounts(
    memory: int, cores: int, mode: str | None, chip: dict[str, Any]
) -> None:
    annotations = {"huawei.com/vnpu-mode": mode} if mode else {}
    placement = placed("Ascend910B4", [("chip-1", memory, cores)])
    assert beside(placement, pod(**annotations)) == {
        "huawei.com/Ascend910B4": json.dumps([{"UUID": "chip-1", **chip}], separators=(",", ":")),
        "predicate-time": "1787270400",
    }

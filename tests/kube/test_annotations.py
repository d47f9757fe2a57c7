"""The allocation codec: strict, bounded, each vendor by itself (semantics 2.1, 2.6; decision 11)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.pods import FaultCode, Groups, Row
from hamiacct.kube import annotations as codec
from tests import cases
from tests.kube.objects import ALLOCATED, BY_KEY, VENDORS

NAMES = st.text(
    st.characters(codec="ascii", categories=("L", "N", "P"), exclude_characters=",:;"), min_size=1
)
ROWS = st.builds(Row, NAMES, NAMES, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
GROUPS = st.lists(st.lists(ROWS, max_size=3).map(tuple), max_size=4).map(tuple)


def decoded_or_refused(text: str) -> tuple[Groups | None, int]:
    """The groups, or None and where the text breaks the grammar."""
    try:
        return codec.decode_groups(text), 0
    except UnreadableAnnotation as refusal:
        return None, refusal.offset


def as_groups(raw: list[list[list[Any]]]) -> tuple[tuple[Row, ...], ...]:
    return tuple(tuple(Row(*row) for row in group) for group in raw)


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("decode-allocated"))
def test_decodes_the_case(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    annotations = given_["annotations"]
    if expected == {"vendors": {}}:
        assert codec.allocations_of(annotations, VENDORS, "n-1", 1) == ({}, ())
    elif "error" in expected:
        with pytest.raises(UnreadableAnnotation, match=expected["error"]):
            codec.decode_groups(annotations[ALLOCATED])
    else:
        assert codec.decode_groups(annotations[ALLOCATED]) == as_groups(expected["groups"])


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("encode-allocated"))
def test_encodes_the_case(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert codec.encode_groups(as_groups(given_["groups"])) == expected["value"]


@pytest.mark.parametrize(
    ("text", "words", "offset"),
    [
        ("GPU-a,NVIDIA,100:;", "fewer than 4 fields", 0),
        ("GPU-a,NVIDIA,1,1:GPU-b,NVIDIA:;", "fewer than 4 fields", 17),
        ("garbage:;", "sub-piece without comma", 0),
        (";;garbage;", "sub-piece without comma", 2),
        ("GPU-a,NVIDIA,1,1::;", "without comma", 17),
        (":", "without comma", 0),
        ("GPU-a,NVIDIA,1,1,extra:;", "more than 4 fields", 0),
        ("GPU-a,NVIDIA,x,1:;", "memory field 'x'", 13),
        ("GPU-a,NVIDIA,1,x:;", "cores field 'x'", 15),
        ("GPU-a,NVIDIA,,1:;", "memory field", 13),
        ("GPU-a,NVIDIA,1,:;", "cores field", 15),
        ("GPU-a,NVIDIA,1.5,1:;", "memory field", 13),
        ("GPU-a,NVIDIA,-5,1:;", "negative memory", 13),
        ("GPU-a,NVIDIA,5,-1:;", "negative cores", 15),
        ("GPU-a,NVIDIA,+5,1:;", "memory field", 13),
        ("GPU-a,NVIDIA,2147483648,1:;", "memory field", 13),
        ("GPU-a,NVIDIA,1,2147483648:;", "cores field", 15),
        ("GPU-a,NVIDIA," + "9" * 5000 + ",1:;", "memory field", 13),
        ("GPU-a,NVIDIA, 5,1:;", "surrounding blanks", 13),
        ("GPU-a,NVIDIA,٥,1:;", "memory field", 13),
        ("GPU-a,NVIDIA,5²,1:;", "memory field", 13),
        (" GPU-a,NVIDIA,5,1:;", "surrounding blanks", 0),
        ("GPU-a,NVIDIA ,5,1:;", "surrounding blanks", 6),
        ("GPU-a,NVIDIA,5,1:; ", "without comma", 18),
        ("GPU-a,NVIDIA,5,1:;\n", "without comma", 18),
        (",NVIDIA,5,1:;", "empty UUID with non-zero numbers", 0),
        (",,5,1:;", "empty UUID with non-zero numbers", 0),
        (",NVIDIA,0,0:;", "empty UUID", 0),
        ("GPU-a,NVIDIA,5,1", "cut off", 0),
        ("GPU-a,NVIDIA,5,1;", "cut off", 0),
        ("GPU-a,NVIDIA,5,1:;GPU-b,NVIDIA,5", "fewer than 4 fields", 18),
        ("GPU\0a,NVIDIA,5,1:;", "unprintable", 0),
        ("G" * 300 + ",NVIDIA,5,1:;", "longer than 253", 0),
        (";" * 5000, "more than 4096", 0),
        ("x" * 300_000, "longer than 262144", 262_144),
    ],
)
def test_refuses_and_says_where(text: str, words: str, offset: int) -> None:
    with pytest.raises(UnreadableAnnotation, match=words) as refusal:
        codec.decode_groups(text)
    assert refusal.value.offset == offset


def test_a_text_without_the_last_semicolon_is_whole_when_its_last_entry_is_closed() -> None:
    assert codec.decode_groups("GPU-a,NVIDIA,5,1:") == ((Row("GPU-a", "NVIDIA", 5, 1),),)


def test_a_device_without_a_type_is_a_device_because_the_key_tells_the_vendor() -> None:
    groups = ((Row("GPU-a", "", 5, 1), Row("GPU-b", "", 0, 0)), ())
    assert codec.decode_groups("GPU-a,,5,1:GPU-b,,0,0:;") == groups
    assert codec.encode_groups(groups[:-1]) == "GPU-a,,5,1:GPU-b,,0,0:;"


def test_the_placeholder_of_old_releases_is_an_empty_group() -> None:
    assert codec.decode_groups(",,0,0:;GPU-a,NVIDIA,5,1:;") == ((), (Row("GPU-a", "NVIDIA", 5, 1),), ())


@given(GROUPS)
def test_decoding_undoes_encoding(groups: tuple[tuple[Row, ...], ...]) -> None:
    assert codec.decode_groups(codec.encode_groups(groups)) == (*groups, ())


@given(GROUPS, st.data())
def test_a_text_cut_anywhere_is_refused_or_is_the_beginning_of_the_whole(
    groups: tuple[tuple[Row, ...], ...], data: st.DataObject
) -> None:
    text = codec.encode_groups(groups)
    cut = text[: data.draw(st.integers(0, len(text)))]
    decoded, offset = decoded_or_refused(cut)
    rows = [row for group in decoded or () for row in group]
    assert rows == [row for group in groups for row in group][: len(rows)]
    assert decoded is not None or 0 <= offset <= len(cut)


@given(st.one_of(st.text(), st.text(alphabet="GPU-a,1:; +\0é\ud800[]")))
def test_any_text_is_decoded_or_refused(text: str) -> None:
    groups, offset = decoded_or_refused(text)
    if groups is None:
        assert 0 <= offset <= len(text)
        return
    assert len(groups) == text.count(";") + 1
    for row in (row for group in groups for row in group):
        assert row.uuid
        assert min(row.memory, row.cores) >= 0


# --- allocations of a pod ------------------------------------------------------------------------


def test_each_vendor_is_judged_by_itself() -> None:
    annotations = {
        ALLOCATED: "GPU-a,NVIDIA,5,1:;",
        BY_KEY["MLU"].allocated_key: "cut off",
        BY_KEY["kunlun"].allocated_key: "xpu-1,kunlun,7,0:;",
    }
    allocations, faults = codec.allocations_of(annotations, VENDORS, "n1", 1)
    assert list(allocations) == ["NVIDIA", "kunlun"]
    assert allocations["NVIDIA"].groups == ((Row("GPU-a", "NVIDIA", 5, 1),),)
    assert allocations["NVIDIA"].node == "n1"
    assert [(fault.vendor, fault.key, fault.code) for fault in faults] == [
        ("MLU", "hami.io/cambricon-mlu-devices-allocated", FaultCode.UNDECODABLE)
    ]


@pytest.mark.parametrize(
    ("text", "groups"), [("", 0), (";", 1), ("GPU-a,NVIDIA,5,1:", 1), ("GPU-a,NVIDIA,5,1:;", 1), (";;", 2)]
)
def test_the_piece_after_the_last_semicolon_is_no_group(text: str, groups: int) -> None:
    allocations, faults = codec.allocations_of({ALLOCATED: text}, VENDORS, "n1", 3)
    assert len(allocations["NVIDIA"].groups) == groups
    assert allocations["NVIDIA"].text == text
    assert faults == ()


@pytest.mark.parametrize(
    ("text", "positions", "reason", "offset"),
    [
        ("GPU-a,NVIDIA,7,7:;GPU-a,NVIDIA,3,3:;", 1, "position 1 is outside the pod (1 container)", 18),
        (";;GPU-a,NVIDIA,3,3:;", 2, "position 2 is outside the pod (2 containers)", 2),
        ("GPU-a,NVIDIA,3,3:;", 0, "position 0 is outside the pod (0 containers)", 0),
    ],
)
def test_a_row_outside_the_pod_is_a_fault(text: str, positions: int, reason: str, offset: int) -> None:
    allocations, (fault,) = codec.allocations_of({ALLOCATED: text}, VENDORS, "n1", positions)
    assert allocations == {}
    assert (fault.code, fault.reason, fault.offset) == (FaultCode.OUTSIDE_POD, reason, offset)


def test_empty_groups_outside_the_pod_are_harmless() -> None:
    _, faults = codec.allocations_of({ALLOCATED: "GPU-a,NVIDIA,7,7:;;;;"}, VENDORS, "n1", 1)
    assert faults == ()


def test_a_device_that_two_vendors_name_is_a_fault_of_the_later_one() -> None:
    annotations = {
        BY_KEY["kunlun"].allocated_key: ",,0,0:card,kunlun,1,1:GPU-a,kunlun,7,0:;",
        ALLOCATED: "GPU-a[1-2],NVIDIA,5,1:;",
    }
    allocations, (fault,) = codec.allocations_of(annotations, VENDORS, "n1", 1)
    assert list(allocations) == ["NVIDIA"]
    assert fault.vendor == "kunlun"
    assert fault.offset == annotations[fault.key].index("GPU-a")
    assert fault.reason == "'GPU-a' is allocated by NVIDIA as well"


def test_enflame_rows_take_as_many_slots_as_the_pod_says() -> None:
    vendor = BY_KEY["Enflame"]
    annotations = {vendor.allocated_key: "n1-enflame-drs-0,Enflame,20480,50:;"}
    assert codec.allocations_of(annotations, VENDORS, "n1", 1)[0]["Enflame"].slots_per_row == 1
    annotations[vendor.slots_annotation] = "3"
    assert codec.allocations_of(annotations, VENDORS, "n1", 1)[0]["Enflame"].slots_per_row == 3


@pytest.mark.parametrize("slots", ["0", "-1", "", "3.0", " 3", "٣", "9" * 30, "2147483648", 3, None, []])
def test_slots_that_cannot_be_read_are_a_fault(slots: object) -> None:
    vendor = BY_KEY["Enflame"]
    annotations = {vendor.allocated_key: "card,Enflame,1,1:;", vendor.slots_annotation: slots}
    allocations, faults = codec.allocations_of(annotations, VENDORS, "n1", 1)
    if slots is None:
        assert not faults
    else:
        assert allocations == {}
        assert [fault.key for fault in faults] == [vendor.slots_annotation]


@pytest.mark.parametrize("value", [None, 5, 1.5, True, [], {}, ["GPU-a,NVIDIA,1,1:;"]])
def test_a_value_that_is_no_text_is_a_fault(value: object) -> None:
    allocations, (fault,) = codec.allocations_of({ALLOCATED: value}, VENDORS, "n1", 1)
    assert allocations == {}
    assert "must be a text" in fault.reason


@given(st.text(), st.integers(0, 3))
def test_any_annotation_is_an_allocation_or_a_fault(text: str, positions: int) -> None:
    allocations, faults = codec.allocations_of({ALLOCATED: text}, VENDORS, "n1", positions)
    assert len(allocations) + len(faults) == 1


# --- MIG -----------------------------------------------------------------------------------------


def mig(**changes: Any) -> dict[str, Any]:
    """One complete element; a change to `...` leaves the field out."""
    element = {
        "containerIndex": 0,
        "deviceIndex": 0,
        "gpuUUID": "GPU-aa00",
        "profile": "1g.5gb",
        "placement": {"start": 6, "size": 1},
    }
    return {field: value for field, value in (element | changes).items() if value is not ...}


@pytest.mark.parametrize(("given_", "expected"), cases.of_kind("decode-mig"))
def test_decodes_the_mig_case(given_: dict[str, Any], expected: dict[str, Any]) -> None:
    text = given_["annotations"]["hami.io/vgpu-mig-allocations"]
    if "error" in expected:
        with pytest.raises(UnreadableAnnotation, match=expected["error"]):
            codec.decode_mig_allocations(text)
    else:
        assert len(codec.decode_mig_allocations(text)) == expected["count"]


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([mig(containerIndex=-1)], "incomplete"),
        ([mig(deviceIndex=-1)], "incomplete"),
        ([mig(gpuUUID="")], "incomplete"),
        ([mig(gpuUUID=...)], "incomplete"),
        ([mig(profile="")], "incomplete"),
        ([mig(placement=...)], "incomplete"),
        ([mig(), mig()], "duplicate"),
        ([mig(migUUID="MIG-a")], "partial runtime identity"),
        ([mig(gpuInstanceID=0)], "partial runtime identity"),
        ([mig(computeInstanceID=0, gpuInstanceID=1)], "partial runtime identity"),
        ([mig(placement=[])], "incomplete"),
        ([mig(placement=[1])], "placement"),
        ([mig(placement={"start": -1, "size": 1})], "start"),
        ([mig(containerIndex="0")], "containerIndex"),
        ([mig(containerIndex=True)], "containerIndex"),
        ([mig(containerIndex=0.0)], "containerIndex"),
        ([mig(gpuUUID=7)], "gpuUUID"),
        ([mig(gpuUUID="a\0")], "gpuUUID"),
        (["x"], "object"),
        ([None], "object"),
        ({}, "array"),
        ("text", "array"),
        (5, "array"),
    ],
)
def test_one_bad_mig_element_makes_the_whole_value_invalid(elements: Any, words: str) -> None:
    good = [mig(containerIndex=9)] if isinstance(elements, list) else None
    with pytest.raises(UnreadableAnnotation, match=words):
        codec.decode_mig_allocations(json.dumps(good + elements if good else elements))


def test_no_text_is_no_mig_allocation_and_zero_is_an_instance() -> None:
    assert codec.decode_mig_allocations("") == ()
    assert codec.decode_mig_allocations("[]") == ()
    (allocation,) = codec.decode_mig_allocations(
        json.dumps([mig(migUUID="MIG-a", gpuInstanceID=0, computeInstanceID=0)])
    )
    assert (allocation.gpu_instance_id, allocation.compute_instance_id) == (0, 0)
    assert allocation.placement == (6, 1)


@pytest.mark.parametrize(
    "text", ["[", "[" * 100_000, "{" * 5, "[" + "9" * 5000 + "]", "nul", "[NaN]", "x" * 300_000]
)
def test_broken_json_is_refused_however_deep_or_long(text: str) -> None:
    with pytest.raises(UnreadableAnnotation):
        codec.decode_mig_allocations(text)

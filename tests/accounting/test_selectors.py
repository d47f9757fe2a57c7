"""What annotations choose (semantics 2.3)."""

from collections.abc import Mapping
from typing import Any

import pytest

from hamiacct.accounting.selectors import choice_of, unreadable_booleans
from tests import cases
from tests.accounting.offered import BY_KEY, NVIDIA, VENDORS

VENDOR = BY_KEY[NVIDIA]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("type-selector"))
def test_types(case: Mapping[str, Any], expected: Any) -> None:
    assert choice_of(case["annotations"], VENDOR).allows_type(case["deviceType"]) is expected["allowed"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("uuid-selector"))
def test_uuids(case: Mapping[str, Any], expected: Any) -> None:
    assert choice_of(case["annotations"], VENDOR).allows_uuid(case["uuid"]) is expected["allowed"]


@pytest.mark.parametrize(
    ("use", "nouse", "allowed"),
    [
        (None, None, True),
        ("GPU-a", None, True),
        (" GPU-b , GPU-a ", None, True),
        ("gpu-a", None, False),
        ("GPU-a1", None, False),
        (",", None, False),
        ("", None, True),
        ("  ", None, True),
        (None, "GPU-b", True),
        (None, " GPU-a", False),
        (None, "", True),
        (None, ",", True),
        ("GPU-a", "GPU-a", False),
    ],
)
def test_a_uuid_is_compared_whole_and_nouse_wins(use: str | None, nouse: str | None, allowed: bool) -> None:
    given = {"nvidia.com/use-gpuuuid": use, "nvidia.com/nouse-gpuuuid": nouse}
    annotations = {key: text for key, text in given.items() if text is not None}
    assert choice_of(annotations, VENDOR).allows_uuid("GPU-a") is allowed


@pytest.mark.parametrize(
    ("use", "nouse", "allowed"),
    [
        ("A10", None, True),
        ("a100, V100", None, True),
        ("V100", None, False),
        ("V100,", None, False),
        (",", None, False),
        (" ", None, True),
        (None, "A10", False),
        (None, ",", True),
        (None, "V100", True),
        ("A100", "100", False),
    ],
)
def test_a_type_is_part_of_the_model_whatever_its_case(
    use: str | None, nouse: str | None, allowed: bool
) -> None:
    given = {"nvidia.com/use-gputype": use, "nvidia.com/nouse-gputype": nouse}
    annotations = {key: text for key, text in given.items() if text is not None}
    assert choice_of(annotations, VENDOR).allows_type("NVIDIA-A100") is allowed


def test_where_two_keys_choose_the_same_both_must_pass() -> None:
    annotations = {"hami.io/use-xpu-uuid": "x0,x1", "baidu.com/use-gpuuuid": "x1,x2"}
    choice = choice_of(annotations, BY_KEY["kunlun"])
    assert [uuid for uuid in ("x0", "x1", "x2") if choice.allows_uuid(uuid)] == ["x1"]


@pytest.mark.parametrize(
    ("mode", "of_device", "allowed"),
    [
        (None, "mig", True),
        ("mig", "mig", True),
        ("mig", "", True),
        ("mig", "hami-core", False),
        ("hami-core,mig", "mig", True),
        ("", "mig", False),
    ],
)
def test_a_mode_must_be_part_of_the_value(mode: str | None, of_device: str, allowed: bool) -> None:
    annotations = {} if mode is None else {"nvidia.com/vgpu-mode": mode}
    assert choice_of(annotations, VENDOR).allows_mode(of_device) is allowed


@pytest.mark.parametrize(
    ("text", "bound", "readable"),
    [
        *((text, True, True) for text in ("1", "t", "T", "TRUE", "true", "True")),
        *((text, False, True) for text in ("0", "f", "F", "FALSE", "false", "False")),
        *((text, False, False) for text in ("", "yes", "tRUE", " true", "on")),
    ],
)
def test_numa_bind_is_a_go_boolean(text: str, bound: bool, readable: bool) -> None:
    annotations = {"nvidia.com/numa-bind": text}
    assert choice_of(annotations, VENDOR).numa_bind is bound
    assert unreadable_booleans(annotations, VENDORS) == ([] if readable else ["nvidia.com/numa-bind"])


def test_a_vendors_own_words_are_kept() -> None:
    annotations = {"metax-tech.com/sgpu-app-class": "online"}
    assert choice_of(annotations, BY_KEY["Metax-SGPU"]).words == {"app_class": "online"}

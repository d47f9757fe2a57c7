"""What HAMi books, by version: its own cases, and the design's where it was wrong."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from hamiacct import config
from hamiacct.accounting.hami import Formula, booked, may_differ
from hamiacct.accounting.holdings import Held, footprint_of_pod
from hamiacct.accounting.pods import Allocation, Container, ContainerClass, DeviceKey, Phase, Row, Run
from hamiacct.kube import manifests
from tests import cases
from tests.accounting import strategies
from tests.say import say_pod

VENDORS = config.read_vendors(None)
BY_KEY = {vendor.key: vendor for vendor in VENDORS}
INIT, SIDECAR, APP = ContainerClass.INIT, ContainerClass.SIDECAR, ContainerClass.APP

# Outside of what the books can hold: no part of such an annotation is taken, and no sum of ours wraps.
NOT_OURS = {"collapse-28-extra-group", "collapse-30-int32-wrap"}


def of_kind(kind: str) -> list[Any]:
    """Cases with HAMi's own answer, where it differs from the right one."""
    return [
        pytest.param(case["input"], hami_of(case["expected"]), id=case["id"])
        for case in cases.read()
        if case["kind"] == kind and case["id"] not in NOT_OURS
    ]


def hami_of(expected: Any) -> Any:
    return expected["hami"] if isinstance(expected, dict) and "hami" in expected else expected


def shown(held: Held) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for key, amount in held.items():
        one = {"uuid": key.uuid, "mem": amount.memory_mib, "cores": amount.cores, "slots": amount.slots}
        found.setdefault(key.vendor, []).append(one)
    return found


def without_empty(expected: Mapping[str, Any]) -> dict[str, Any]:
    return {vendor: rows for vendor, rows in expected.items() if rows}


def on_card(formula: Formula, *phrases: str, released: bool = False, uuid: str = "GPU-a") -> tuple[int, int]:
    """Memory and slots that a version books on one card."""
    pod = say_pod(*phrases)
    held = booked(pod.containers, pod.allocations, BY_KEY, formula, inits_released=released)
    amount = held[DeviceKey("n1", uuid, "NVIDIA")]
    return amount.memory_mib, amount.slots


# --- HAMi's own cases ----------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "expected"), of_kind("collapse"))
def test_2723_books_what_its_own_tests_say(case: Mapping[str, Any], expected: Any) -> None:
    pod = manifests.pod_from_manifest(case["pod"], VENDORS)
    held = booked(pod.containers, pod.allocations, BY_KEY, Formula.PR_2723, inits_released=False)
    assert shown(held) == without_empty(expected)


@pytest.mark.parametrize(("case", "expected"), of_kind("steady"))
def test_2723_shrinks_to_what_its_own_tests_say(case: Mapping[str, Any], expected: Any) -> None:
    pod = manifests.pod_from_manifest(case["pod"], VENDORS)
    held = booked(pod.containers, pod.allocations, BY_KEY, Formula.PR_2723, inits_released=True)
    assert shown(held) == without_empty(expected)


@pytest.mark.parametrize(("case", "expected"), of_kind("collapse"))
def test_2_10_booked_the_same_where_there_are_no_sidecars(case: Mapping[str, Any], expected: Any) -> None:
    pod = manifests.pod_from_manifest(case["pod"], VENDORS)
    if any(container.kind is SIDECAR for container in pod.containers):
        return
    held = booked(pod.containers, pod.allocations, BY_KEY, Formula.V2_10, inits_released=False)
    assert shown(held) == without_empty(expected)


@pytest.mark.parametrize(("case", "expected"), of_kind("events"))
def test_2723_stores_what_its_events_say(case: Mapping[str, Any], expected: Any) -> None:
    """Each step as it is seen, with the released flag as HAMi has it then.

    Left out are steps that are about what HAMi remembers or forgets of an earlier one, which the pod alone
    cannot tell: a pod it does not store, an annotation that is gone, a pod that is being deleted.
    """
    for step, answer in zip(case["steps"], map(hami_of, expected), strict=True):
        pod = manifests.pod_from_manifest(step["pod"], VENDORS)
        told = step["event"] != "delete" and not pod.is_terminating and pod.phase is not Phase.SUCCEEDED
        if answer["stored"] is None or not told or not pod.allocations or answer.get("released") is None:
            continue
        held = booked(
            pod.containers, pod.allocations, BY_KEY, Formula.PR_2723, inits_released=answer["released"]
        )
        assert shown(held).get("NVIDIA", []) == answer["stored"]


# --- the design's problems before 2723 -----------------------------------------------------------


def test_2_10_takes_the_larger_of_sidecar_and_app() -> None:
    """Design, problem 1: 4000 beside 4000 was booked as 4000."""
    assert on_card(Formula.V2_10, "sidecar 4000, running", "app 4000") == (4000, 1)
    assert on_card(Formula.PR_2723, "sidecar 4000, running", "app 4000") == (8000, 2)


def test_2_10_holds_the_peak_while_a_sidecar_runs() -> None:
    """Design, problem 2; the books remember that the init is done, HAMi still waits."""
    pod = ("init 20480, succeeded", "sidecar 2048, running", "app 10240")
    assert on_card(Formula.V2_10, *pod, released=True) == (20480, 1)
    assert on_card(Formula.PR_2723, *pod, released=True) == (12288, 2)


def test_2_10_drops_a_sidecar_that_exits_0_between_two_restarts() -> None:
    """Design, problem 3: the old gate opens, and the old target has no sidecars."""
    pod = ("init 20480, succeeded", "sidecar 2048, succeeded", "app 10240")
    assert on_card(Formula.V2_10, *pod, released=True) == (10240, 1)


def test_2_10_ignores_an_init_without_a_status() -> None:
    """HAMi#2642: the gate looked at the statuses that are there, and not for those that are not."""
    assert on_card(Formula.V2_10, "init 100, succeeded", "init 900", "app 10") == (10, 1)
    assert on_card(Formula.V2_10, "init 100", "init 900", "app 10") == (900, 1)


def test_2_10_remembers_that_inits_were_given_back() -> None:
    assert on_card(Formula.V2_10, "init 100, running", "app 10", released=True) == (10, 1)


def test_2_8_adds_every_row() -> None:
    """HAMi#1942: as if all of them ran together, for ever."""
    pod = ("init 20480, succeeded", "sidecar 2048, running", "app 10240")
    assert on_card(Formula.V2_8, *pod, released=True) == (32768, 3)


def test_several_rows_of_one_init_are_taken_for_the_largest() -> None:
    """Semantics S4.3: two MIG instances as one, in every version that knows of inits."""
    for formula in (Formula.V2_10, Formula.PR_2723):
        assert on_card(formula, "init 5120 + 5120", "app 100") == (5120, 1)
    assert on_card(Formula.V2_8, "init 5120 + 5120", "app 100") == (10340, 3)


def test_groups_of_the_old_layout_are_read_by_position() -> None:
    """Semantics S1.3: the app's only row is taken for the init's, and is gone when the init is done."""
    pod = say_pod("init, succeeded", "app")
    text = Allocation("NVIDIA", "n1", ((Row("GPU-a", "NVIDIA", 700, 0),),))
    for formula, expected in ((Formula.V2_8, 700), (Formula.V2_10, 0), (Formula.PR_2723, 0)):
        held = booked(pod.containers, {"NVIDIA": text}, BY_KEY, formula, inits_released=True)
        assert held.total.memory_mib == expected


# --- vendors whose rows mean more ----------------------------------------------------------------


def test_masks_are_added_as_numbers_and_shown_as_cores() -> None:
    """The larger of the masks 1 and 2 is 2, so that one of two cores looks free."""
    containers = (Container(0, "i", INIT), Container(1, "a", APP))
    text = Allocation("AWSNeuron", "n1", ((Row("d0", "", 0, 2),), (Row("d0", "", 0, 1),)))
    assert may_differ(BY_KEY["AWSNeuron"])
    by_formula = {
        formula: booked(containers, {"AWSNeuron": text}, BY_KEY, formula, inits_released=False).total.cores
        for formula in Formula
    }
    assert by_formula == {Formula.V2_8: 2, Formula.V2_10: 1, Formula.PR_2723: 1}


def test_a_row_is_one_slot_whatever_its_size() -> None:
    """Enflame's profiles may have several slots."""
    text = Allocation("Enflame", "n1", ((Row("d0", "", 1024, 50),),), slots_per_row=3)
    held = booked((Container(0, "a", APP),), {"Enflame": text}, BY_KEY, Formula.V2_10, inits_released=False)
    assert may_differ(BY_KEY["Enflame"])
    assert held.total.slots == 1


# --- where no version differs --------------------------------------------------------------------


@given(strategies.pods())
def test_apps_alone_are_the_sum_of_their_rows_in_every_version(pod: Any) -> None:
    """So such pods need not be read to be compared."""
    apps = tuple(
        Container(position, container.name, APP, Run.ABSENT)
        for position, container in enumerate(pod.containers)
    )
    right = footprint_of_pod(apps, pod.allocations, BY_KEY).effective
    for formula in Formula:
        assert booked(apps, pod.allocations, BY_KEY, formula, inits_released=False) == right

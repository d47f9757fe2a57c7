"""The one fold is the formula of the design (S4.1 to S4.6)."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct import config
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.footprint import Footprint, footprint_of, footprints
from hamiacct.accounting.holdings import Held, footprint_of_pod, steps_of_pod
from hamiacct.accounting.pods import ContainerClass, DeviceKey, Pod
from tests.accounting import formula
from tests.accounting.strategies import UUIDS, pods, usages
from tests.say import say_pod

VENDORS = {vendor.key: vendor for vendor in config.read_vendors(None)}

steps = st.lists(st.tuples(st.sampled_from(ContainerClass), usages), max_size=6)
Steps = Sequence[tuple[ContainerClass, Usage[str]]]


def footprint(pod: Pod) -> Footprint[DeviceKey]:
    return footprint_of_pod(pod.containers, pod.allocations, VENDORS)


def memory(held: Held) -> int:
    return held.total.memory_mib


# --- the design's cases, by the numbers ----------------------------------------------------------


def test_a_sidecar_and_an_app_are_charged_both() -> None:
    both = footprint(say_pod("sidecar 10240", "app 10240"))
    assert memory(both.effective) == 20480
    assert memory(both.steady) == 20480


def test_a_sidecar_declared_first_is_there_while_the_init_runs() -> None:
    sidecar_first = footprint(say_pod("sidecar 2048", "init 20480", "app 10240"))
    assert memory(sidecar_first.effective) == 22528
    assert memory(sidecar_first.steady) == 12288


def test_a_sidecar_declared_later_is_not_there_yet() -> None:
    init_first = footprint(say_pod("init 20480", "sidecar 2048", "app 10240"))
    assert memory(init_first.effective) == 20480
    assert memory(init_first.steady) == 12288


def test_without_sidecars_the_larger_of_init_and_apps_is_charged() -> None:
    assert memory(footprint(say_pod("init 20480", "app 10240")).effective) == 20480
    assert memory(footprint(say_pod("init 5000", "init 7000", "app 6000", "app 6000")).effective) == 12000


def test_each_dimension_has_its_own_maximum() -> None:
    pod = say_pod("sidecar 1000 10", "init 5000 20", "sidecar 2000 30", "init 3000 50", "app 4000 40")
    assert footprint(pod).effective.total == Amount(3, 7000, 90)
    assert footprint(pod).steady.total == Amount(3, 7000, 80)


# --- the formula ---------------------------------------------------------------------------------


@given(pods())
def test_effective_is_the_formula_for_every_device_and_field(pod: Pod) -> None:
    allocation = pod.allocations["NVIDIA"]
    used = formula.used_by(pod.containers, allocation.groups)
    effective, steady = footprint(pod).effective, footprint(pod).steady
    for uuid in UUIDS:
        key = DeviceKey(allocation.node, uuid, "NVIDIA")
        for field in formula.FIELDS:
            assert getattr(effective[key], field) == formula.effective(used, uuid, field)
            assert getattr(steady[key], field) == formula.steady(used, uuid, field)


@given(steps)
def test_steady_is_apps_and_sidecars_in_whatever_order(containers: Steps) -> None:
    stay: Usage[str] = Usage()
    for kind, usage in containers:
        stay = stay.plus(usage) if kind is not ContainerClass.INIT else stay
    assert footprint_of(containers).steady == stay
    assert footprint_of(list(reversed(containers))).steady == stay


@given(steps)
def test_the_last_of_the_steps_is_the_footprint(containers: Steps) -> None:
    between = list(footprints(containers))
    assert len(between) == len(containers)
    assert footprint_of(containers) == (between[-1] if between else Footprint())


@given(steps, st.sampled_from(ContainerClass), usages)
def test_a_container_more_never_lowers_anything(
    containers: Steps, kind: ContainerClass, usage: Usage[str]
) -> None:
    before, after = footprint_of(containers), footprint_of(containers).then(kind, usage)
    for uuid in UUIDS:
        assert before.steady[uuid].fits_in(after.steady[uuid])
        assert before.effective[uuid].fits_in(after.effective[uuid])
        assert after.steady[uuid].fits_in(after.effective[uuid])


@given(st.lists(usages, max_size=4), usages)
def test_inits_without_sidecars_between_them_may_change_places(
    inits: list[Usage[str]], app: Usage[str]
) -> None:
    folded = {
        footprint_of([*((ContainerClass.INIT, one) for one in order), (ContainerClass.APP, app)])
        for order in permutations(inits)
    }
    assert len(folded) == 1


@given(usages, usages, usages)
def test_a_sidecar_moved_to_the_front_never_lowers_the_charge(
    sidecar: Usage[str], init: Usage[str], app: Usage[str]
) -> None:
    rest = [(ContainerClass.INIT, init), (ContainerClass.APP, app)]
    front = footprint_of([(ContainerClass.SIDECAR, sidecar), *rest])
    behind = footprint_of([rest[0], (ContainerClass.SIDECAR, sidecar), rest[1]])
    assert front.steady == behind.steady
    for uuid in UUIDS:
        assert behind.effective[uuid].fits_in(front.effective[uuid])


@given(st.lists(st.tuples(st.sampled_from((ContainerClass.SIDECAR, ContainerClass.APP)), usages), max_size=5))
def test_a_pod_without_plain_inits_has_nothing_to_give_back(containers: Steps) -> None:
    assert footprint_of(containers).effective == footprint_of(containers).steady


@given(pods())
def test_the_sum_over_cards_is_never_below_the_formula_over_the_whole_pod(pod: Pod) -> None:
    """Different containers may peak on different cards, so it may be above."""
    used = [
        formula.Used(one.kind, [row._replace(uuid="any") for row in one.rows])
        for one in formula.used_by(pod.containers, pod.allocations["NVIDIA"].groups)
    ]
    for field in formula.FIELDS:
        booked = getattr(footprint(pod).effective.total, field)
        assert booked >= formula.effective(used, "any", field)
        assert booked <= sum(one.of("any", field) for one in used)


@given(pods())
def test_an_explanation_ends_where_the_charge_begins(pod: Pod) -> None:
    shown = steps_of_pod(pod.containers, pod.allocations, VENDORS)
    assert [step.container for step in shown] == list(pod.containers)
    folded = shown[-1].footprint if shown else Footprint()
    assert folded == footprint(pod)


@given(usages, usages, usages, usages)
def test_room_for_either_of_two_footprints_is_the_larger_of_each(
    a: Usage[str], b: Usage[str], c: Usage[str], d: Usage[str]
) -> None:
    one, other = Footprint(a, b), Footprint(c, d)
    assert one.either(other).effective == one.effective.peak(other.effective)
    assert one.either(other).steady == one.steady.peak(other.steady)


@pytest.mark.parametrize("kind", ContainerClass)
def test_a_container_without_a_device_changes_nothing(kind: ContainerClass) -> None:
    before = Footprint(Usage({"GPU-a": Amount(1, 2, 3)}), Usage({"GPU-b": Amount(4, 5, 6)}))
    assert before.then(kind, Usage()).effective == before.effective
    assert before.then(kind, Usage()).steady == before.steady

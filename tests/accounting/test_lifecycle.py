"""What a pod is charged, and why (S7.1, S7.2)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hamiacct import config
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.holdings import Held, Layout, footprint_of_pod
from hamiacct.accounting.lifecycle import (
    Charge,
    Clock,
    Decision,
    Policy,
    decide,
    ended,
    gate_is_open,
    timed_oddities,
)
from hamiacct.accounting.pods import (
    Allocation,
    AnnotationFault,
    Container,
    ContainerClass,
    DeviceKey,
    FaultCode,
    Phase,
    Pod,
    Run,
)
from hamiacct.accounting.words import ChargedAs, FindingCode, PodState, Rule
from tests.accounting.strategies import containers, pods, runs
from tests.say import containers_of, said, say_pod

VENDORS = {vendor.key: vendor for vendor in config.read_vendors(None)}
TERMINAL = [phase for phase in Phase if phase.is_terminal]
LIVING = [phase for phase in Phase if not phase.is_terminal]
FAULT = AnnotationFault("NVIDIA", "hami.io/vgpu-devices-allocated", 7, "cut off")
ALLOCATED_KEYS = {"NVIDIA": "hami.io/vgpu-devices-allocated"}


AS_DELIVERED = Policy()


def judged(*seen: Pod, policy: Policy = AS_DELIVERED) -> Decision:
    """The decision on the last of these events, each on what the one before left."""
    charge: Charge | None = None
    for pod in seen:
        decision = decide(charge, pod, VENDORS, policy)
        charge = decision.charge
    return decision


def footprint_now(pod: Pod) -> tuple[Held, Held]:
    footprint = footprint_of_pod(pod.containers, pod.allocations, VENDORS)
    return footprint.effective, footprint.steady


def memory(decision: Decision) -> int:
    return decision.charge.usage.total.memory_mib


def codes(decision: Decision) -> list[FindingCode]:
    return [oddity.code for oddity in decision.oddities]


def rerun(pod: Pod, states: Sequence[Run]) -> Pod:
    """The pod with other statuses of its init containers."""
    shown = tuple(
        replace(one, run=run) if one.kind is not ContainerClass.APP else one
        for one, run in zip(pod.containers, states, strict=False)
    )
    return replace(pod, containers=shown + pod.containers[len(shown) :])


def undecodable(pod: Pod) -> Pod:
    """The pod with an annotation that cannot be read."""
    return replace(pod, allocations={}, faults=(FAULT,))


# --- the gate (S7.2) -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrases", "is_open"),
    [
        ((), False),
        (("app 1",), False),
        (("app 1", "app 1"), False),
        (("init 1", "app 1"), False),
        (("init 1, waiting", "app 1"), False),
        (("init 1, running", "app 1"), False),
        (("init 1, failed", "app 1"), False),
        (("init 1, succeeded", "app 1"), True),
        (("init 1, succeeded",), True),
        (("init 1, succeeded", "init 1", "app 1"), False),
        (("init 1, succeeded", "init 1, succeeded", "app 1"), True),
        (("sidecar 1", "app 1"), True),
        (("sidecar 1, failed", "sidecar 1", "app 1"), True),
        (("sidecar 1, succeeded", "init 1, running", "app 1"), False),
        (("sidecar 1, running", "init 1, succeeded", "app 1"), True),
        (("sidecar 1", "init 1, succeeded", "sidecar 1, failed", "app 1"), True),
    ],
)
def test_the_gate_opens_when_every_plain_init_exited_0(phrases: Sequence[str], is_open: bool) -> None:
    assert gate_is_open(containers_of(*phrases)) is is_open


@given(containers(), st.data())
def test_sidecars_and_apps_never_move_the_gate(shown: Sequence[Container], data: st.DataObject) -> None:
    others = [
        replace(one, run=data.draw(runs)) if one.kind is not ContainerClass.INIT else one for one in shown
    ]
    assert gate_is_open(others) is gate_is_open(shown)


@given(containers(min_inits=1), st.data())
def test_any_plain_init_that_has_not_succeeded_holds_the_gate(
    shown: Sequence[Container], data: st.DataObject
) -> None:
    plain = [place for place, one in enumerate(shown) if one.kind is ContainerClass.INIT]
    done = [replace(one, run=Run.SUCCEEDED) for one in shown]
    assert gate_is_open(done)
    assume(plain)
    place = data.draw(st.sampled_from(plain))
    run = data.draw(st.sampled_from([run for run in Run if run is not Run.SUCCEEDED]))
    done[place] = replace(done[place], run=run)
    assert not gate_is_open(done)


# --- a charge is a function (S7.1) ---------------------------------------------------------------


@given(pods())
def test_a_first_event_is_charged_by_the_gate(pod: Pod) -> None:
    effective, steady = footprint_now(pod)
    charge = judged(pod).charge
    assert charge.inits_released is gate_is_open(pod.containers)
    assert charge.usage == (steady if gate_is_open(pod.containers) else effective)


@given(pods())
def test_the_same_event_again_changes_nothing(pod: Pod) -> None:
    once, twice = judged(pod), judged(pod, pod)
    assert twice.charge == once.charge
    assert twice.state == once.state
    assert twice.oddities == once.oddities
    assert twice.rule is Rule.UNCHANGED


@given(st.lists(pods(), min_size=1, max_size=5))
def test_only_the_last_event_counts_and_whether_the_gate_was_ever_open(seen: list[Pod]) -> None:
    effective, steady = footprint_now(seen[-1])
    released = any(gate_is_open(pod.containers) for pod in seen)
    charge = judged(*seen).charge
    assert charge.inits_released is released
    assert charge.usage == (steady if released else effective)


@given(st.lists(pods(), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_what_came_before_does_not_matter(seen: list[Pod], random: object) -> None:
    shuffled = seen[:-1]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert judged(*shuffled, seen[-1]).charge == judged(*seen).charge


@given(st.lists(pods(), min_size=1, max_size=5))
def test_what_was_posted_adds_up_to_what_is_held_and_comes_back_at_the_end(seen: list[Pod]) -> None:
    held: Held = Usage()
    posted: Held = Usage()
    charge: Charge | None = None
    for pod in [*seen, replace(seen[-1], phase=Phase.SUCCEEDED)]:
        charge = decide(charge, pod, VENDORS).charge
        posted = posted.plus(charge.usage.minus(held))
        held = charge.usage
        assert posted == held
    assert not len(posted)


@given(pods(min_inits=1), st.lists(st.lists(runs, min_size=8, max_size=8), max_size=5))
def test_once_released_it_never_inflates_again(pod: Pod, later: list[list[Run]]) -> None:
    done = rerun(pod, [Run.SUCCEEDED] * 8)
    _, steady = footprint_now(pod)
    charge = judged(pod, done, *(rerun(pod, states) for states in later)).charge
    assert charge.inits_released
    assert charge.usage == steady


@given(pods(min_inits=1), st.lists(runs, min_size=8, max_size=8))
def test_a_sidecars_restarts_change_nothing(pod: Pod, states: list[Run]) -> None:
    shown = tuple(
        replace(one, run=states[place]) if one.kind is ContainerClass.SIDECAR else one
        for place, one in enumerate(pod.containers)
    )
    assert judged(pod, replace(pod, containers=shown)).charge == judged(pod).charge


@given(pods(), st.sampled_from(LIVING))
def test_no_living_phase_changes_the_charge(pod: Pod, phase: Phase) -> None:
    assert judged(replace(pod, phase=phase)).charge == judged(pod).charge


# --- the design's shrink rules -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "peak"),
    [(("sidecar 2048", "init 20480"), 22528), (("init 20480", "sidecar 2048"), 20480)],
    ids=["sidecar first", "init first"],
)
def test_shrinks_past_a_running_sidecar_and_stays(order: tuple[str, str], peak: int) -> None:
    def now(init: str, sidecar: str) -> Pod:
        states = {"init": init, "sidecar": sidecar}
        return say_pod(*(f"{phrase}, {states[phrase.split()[0]]}" for phrase in order), "app 10240")

    life = [
        (now("waiting", "absent"), peak),
        (now("running", "running"), peak),
        (now("running", "succeeded"), peak),  # an exit-0 gap of the sidecar opens nothing
        (now("running", "failed"), peak),
        (now("failed", "running"), peak),  # a non-zero exit holds
        (now("running", "running"), peak),
        (now("succeeded", "running"), 12288),
        (now("succeeded", "failed"), 12288),  # a crash loop
        (now("succeeded", "waiting"), 12288),
        (now("succeeded", "succeeded"), 12288),  # the gap again
        (now("succeeded", "running"), 12288),
    ]
    seen: list[Pod] = []
    for pod, expected in life:
        seen.append(pod)
        assert memory(judged(*seen)) == expected
    assert judged(*seen[:7]).rule is Rule.SHRUNK
    assert judged(*seen).state is PodState.STEADY
    assert memory(judged(*seen, replace(seen[-1], phase=Phase.FAILED))) == 0


def test_a_pod_of_sidecars_is_released_from_the_start_and_its_numbers_stay() -> None:
    pod = say_pod("sidecar 3000 10", "sidecar 5000 20", "app 1000 5")
    first, second = judged(pod), judged(pod, pod)
    assert first.charge.inits_released
    assert first.charge.usage.total == Amount(3, 9000, 35)
    assert (first.rule, second.rule) == (Rule.CHARGED, Rule.UNCHANGED)
    assert first.state is PodState.STEADY


def test_a_shrink_that_changes_no_number_is_unchanged_and_yet_a_release() -> None:
    waiting = say_pod("init 1000", "app 1000")
    done = say_pod("init 1000, succeeded", "app 1000")
    decision = judged(waiting, done)
    assert (decision.rule, decision.state) == (Rule.UNCHANGED, PodState.STEADY)
    assert decision.charge.inits_released


def test_without_init_containers_there_is_nothing_to_release() -> None:
    decision = judged(say_pod("app 1000"))
    assert not decision.charge.inits_released
    assert decision.state is PodState.STEADY


def test_an_allocation_changed_after_the_shrink_is_charged_its_steady_usage() -> None:
    """HAMi keeps the old numbers there."""
    done = say_pod("init 9000, succeeded", "app 1000")
    other = say_pod("init 9000", "app 3000 on GPU-b")
    decision = judged(done, other)
    assert decision.rule is Rule.REPLACED
    assert decision.charge.usage == Usage({DeviceKey("n1", "GPU-b", "NVIDIA"): Amount(1, 3000, 0)})


def test_another_node_is_another_device() -> None:
    decision = judged(say_pod("app 1000"), say_pod("app 1000", node="n2"))
    assert decision.rule is Rule.REPLACED
    assert decision.charge.usage == Usage({DeviceKey("n2", "GPU-a", "NVIDIA"): Amount(1, 1000, 0)})


@pytest.mark.parametrize("seen_before", [0, 1])
def test_a_pod_first_seen_with_its_inits_done_is_charged_its_steady_usage(seen_before: int) -> None:
    done = say_pod("init 20480, succeeded", "app 10240")
    assert memory(judged(*[say_pod("init 20480", "app 10240")] * seen_before, done)) == 10240


# --- inits that run again (S7.2c) ----------------------------------------------------------------


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_an_init_that_runs_again_is_found_and_not_charged(state: str) -> None:
    done = say_pod("init 20480, succeeded", "app 10240")
    again = say_pod(f"init 20480, {state}", "app 10240")
    decision = judged(done, again)
    assert memory(decision) == 10240
    assert codes(decision) == [FindingCode.INIT_RERUN_AFTER_SHRINK]
    assert "init-0" in decision.oddities[0].detail
    assert codes(judged(done, again, done)) == []


@pytest.mark.parametrize("phrase", ["init 20480", "init 20480, failed", "init 20480, succeeded"])
def test_no_status_or_an_exit_is_no_evidence_of_a_rerun(phrase: str) -> None:
    decision = judged(say_pod("init 20480, succeeded", "app 10240"), say_pod(phrase, "app 10240"))
    assert memory(decision) == 10240
    assert codes(decision) == []


def test_a_sidecar_that_restarts_is_no_rerun() -> None:
    done = say_pod("sidecar 1, running", "init 2, succeeded", "app 3")
    assert codes(judged(done, say_pod("sidecar 1, waiting", "init 2, succeeded", "app 3"))) == []


def test_an_operator_may_have_the_peak_charged_again_while_inits_rerun() -> None:
    policy = Policy(recharge_on_init_rerun=True)
    done = say_pod("init 20480, succeeded", "app 10240")
    again = say_pod("init 20480, running", "app 10240")
    up, down = judged(done, again, policy=policy), judged(done, again, done, policy=policy)
    assert (memory(up), up.rule, up.state) == (20480, Rule.RECHARGED, PodState.PEAK)
    assert (memory(down), down.rule, down.state) == (10240, Rule.SHRUNK, PodState.STEADY)
    assert up.charge.inits_released
    assert memory(judged(say_pod("init 20480, running", "app 10240"), policy=policy)) == 20480


# --- ends (S7.1a) --------------------------------------------------------------------------------


@given(st.lists(pods(), max_size=3), pods(), st.sampled_from(TERMINAL))
def test_a_terminal_phase_is_charged_nothing_whatever_came_before(
    before: list[Pod], pod: Pod, phase: Phase
) -> None:
    over = replace(pod, phase=phase)
    decision = judged(*before, over)
    assert not len(decision.charge.usage)
    assert (decision.rule, decision.state) == (Rule.TERMINAL, PodState.ENDED)
    assert decision.charge.ended_by is Rule.TERMINAL
    assert decision.charge.charged_as is ChargedAs.NOTHING
    assert judged(*before, over, over) == decision


@pytest.mark.parametrize("terminating", ["", "2026-08-21T00:00:00Z"])
def test_a_terminal_phase_ends_a_terminating_pod_too(terminating: str) -> None:
    pod = say_pod("app 1000", deletion_timestamp=terminating)
    assert memory(judged(pod, replace(pod, phase=Phase.FAILED))) == 0


@pytest.mark.parametrize("rule", [Rule.DELETED, Rule.ABSENT, Rule.SUPERSEDED])
def test_an_end_keeps_the_allocation_for_the_explanation(rule: Rule) -> None:
    charge = judged(say_pod("init 1, succeeded", "app 1000")).charge
    decision = ended(charge, rule)
    assert (decision.rule, decision.state) == (rule, PodState.ENDED)
    assert not len(decision.charge.usage)
    assert decision.charge.allocations == charge.allocations
    assert decision.charge.inits_released
    assert ended(None, rule).charge.usage == Usage()


@pytest.mark.parametrize("rule", [Rule.ABSENT, Rule.TERMINAL])
def test_an_ended_pod_that_lives_again_is_revived(rule: Rule) -> None:
    pod = say_pod("app 1000")
    decision = decide(ended(judged(pod).charge, rule).charge, pod, VENDORS)
    assert (decision.rule, memory(decision)) == (Rule.REVIVED, 1000)
    assert decision.charge.ended_by is None


# --- terminating (S7.1b) -------------------------------------------------------------------------


@given(pods(), pods())
def test_a_terminating_pod_keeps_what_it_has(before: Pod, now: Pod) -> None:
    held = judged(before).charge
    assume(len(held.usage))
    decision = judged(before, replace(now, deletion_timestamp="2026-08-21T00:00:00Z"))
    assert decision.charge == held
    assert decision.rule is Rule.TERMINATING


def test_a_terminating_pod_never_shrinks() -> None:
    going = say_pod("init 20480, succeeded", "app 10240", deletion_timestamp="2026-08-21T00:00:00Z")
    decision = judged(say_pod("init 20480", "app 10240"), going)
    assert memory(decision) == 20480
    assert not decision.charge.inits_released
    assert decision.state is PodState.PEAK


@given(pods())
def test_a_pod_first_seen_terminating_is_charged_like_any_other(pod: Pod) -> None:
    going = replace(pod, deletion_timestamp="2026-08-21T00:00:00Z")
    assert judged(going).charge == judged(pod).charge


# --- annotations that come and go (S7.1e) --------------------------------------------------------


@given(pods())
def test_an_undecodable_annotation_keeps_the_last_good_amount(pod: Pod) -> None:
    decision = judged(pod, undecodable(pod))
    assert decision.charge == judged(pod).charge
    assert codes(decision) == [FindingCode.UNDECODABLE_ANNOTATION]
    assert decision.oddities[0].detail == f"{FAULT.key} at offset 7: cut off"
    assert decision.oddities[0].key == "NVIDIA"
    assert FindingCode.UNDECODABLE_ANNOTATION not in codes(judged(pod, undecodable(pod), pod))


def test_an_undecodable_annotation_is_never_nothing_and_first_seen_it_is_no_number() -> None:
    decision = judged(undecodable(say_pod("app 1000")))
    assert not len(decision.charge.usage)
    assert decision.state is PodState.UNSCHEDULED
    assert codes(decision) == [FindingCode.UNDECODABLE_ANNOTATION]


def test_inits_are_not_released_by_an_event_that_leaves_a_charged_vendor_undecoded() -> None:
    waiting = say_pod("init 20480", "app 10240")
    done = say_pod("init 20480, succeeded", "app 10240")
    held = judged(waiting, undecodable(done))
    assert memory(held) == 20480
    assert not held.charge.inits_released
    assert memory(judged(waiting, undecodable(done), done)) == 10240


def test_a_shrunk_pod_stays_shrunk_when_its_annotation_breaks() -> None:
    done = say_pod("init 20480, succeeded", "app 10240")
    assert memory(judged(done, undecodable(done))) == 10240


def test_a_vanished_annotation_keeps_the_last_good_amount() -> None:
    waiting = say_pod("init 20480", "app 10240")
    decision = judged(waiting, say_pod("init 20480, succeeded", "app 10240", allocations={}))
    assert memory(decision) == 20480
    assert not decision.charge.inits_released
    assert codes(decision) == [FindingCode.VANISHED_ANNOTATION]
    assert ALLOCATED_KEYS["NVIDIA"] in decision.oddities[0].detail


def kunlun(memory_mib: int, node: str = "n1") -> dict[str, Allocation]:
    rows = ((said(f"app {memory_mib} on x").rows[0],),)
    return {"kunlun": Allocation("kunlun", node, rows)}


def test_a_fault_of_one_vendor_leaves_the_others() -> None:
    both = say_pod("app 1000")
    both = replace(both, allocations={**both.allocations, **kunlun(500)})
    now = replace(both, allocations=kunlun(700), faults=(FAULT,))
    usage = judged(both, now).charge.usage
    assert usage[DeviceKey("n1", "GPU-a", "NVIDIA")].memory_mib == 1000
    assert usage[DeviceKey("n1", "x", "kunlun")].memory_mib == 700


def test_one_device_is_never_held_for_two_vendors() -> None:
    before = say_pod("app 1000 on x")
    now = replace(before, allocations=kunlun(700))
    assert judged(before, now).charge.usage == Usage({DeviceKey("n1", "x", "kunlun"): Amount(1, 700, 0)})


@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_is_a_finding_of_its_own_code(code: FaultCode) -> None:
    pod = replace(undecodable(say_pod("app 1")), faults=(replace(FAULT, code=code),))
    assert [found.value for found in codes(judged(pod))] == [code.value]


# --- bound, claimed, neither (S7.1c, S7.1d) ------------------------------------------------------


def test_a_pod_without_vgpu_node_is_known_and_charged_nothing() -> None:
    for node_name in ("", "n1"):
        decision = judged(say_pod("app 1000", vgpu_node="", node_name=node_name))
        assert not len(decision.charge.usage)
        assert decision.state is PodState.UNSCHEDULED
        assert codes(decision) == []


def test_a_claimed_pod_is_charged_before_it_is_bound() -> None:
    decision = judged(say_pod("app 1000", node_name=""))
    assert (memory(decision), decision.state) == (1000, PodState.CLAIMED)
    assert judged(say_pod("app 1000", node_name=""), say_pod("app 1000")).state is PodState.STEADY


def test_a_bound_pod_that_lost_vgpu_node_keeps_its_charge() -> None:
    pod = say_pod("init 2000", "app 1000")
    decision = judged(pod, replace(pod, vgpu_node=""))
    assert decision.charge == judged(pod).charge
    assert codes(decision) == [FindingCode.VANISHED_ANNOTATION]
    assert codes(judged(pod, replace(pod, vgpu_node=""), pod)) == []


def test_an_unbound_pod_that_lost_vgpu_node_is_charged_nothing_any_more() -> None:
    claimed = say_pod("app 1000", node_name="")
    lost = replace(claimed, vgpu_node="", allocations={})
    assert memory(judged(claimed, lost)) == 0
    assert judged(claimed, lost).state is PodState.UNSCHEDULED
    assert memory(judged(claimed, lost, claimed)) == 1000


def test_an_init_container_waits_at_the_peak() -> None:
    assert judged(say_pod("init 2000", "app 1000")).state is PodState.PEAK


# --- other findings ------------------------------------------------------------------------------


def test_an_ambiguous_layout_is_found_until_it_is_settled() -> None:
    pod = say_pod("init", "app", allocations={"NVIDIA": Allocation("NVIDIA", "n1", (said("app 9").rows,))})
    assert codes(judged(pod)) == [FindingCode.AMBIGUOUS_LAYOUT]
    for layout in (Layout.POSITIONAL, Layout.APPS_ONLY):
        assert FindingCode.AMBIGUOUS_LAYOUT not in codes(judged(pod, policy=Policy(layout)))


def test_an_ambiguous_layout_keeps_the_larger_reading_through_the_shrink() -> None:
    rows = (said("app 9000").rows, said("app 500").rows)
    allocations = {"NVIDIA": Allocation("NVIDIA", "n1", rows)}
    waiting = say_pod("init", "init", "app", "app", allocations=allocations)
    done = say_pod("init, succeeded", "init, succeeded", "app", "app", allocations=allocations)
    assert memory(judged(waiting)) == 9500
    assert memory(judged(waiting, done)) == 9500


def test_an_allocation_that_nobody_asked_for_is_found_and_charged() -> None:
    pod = say_pod("app 1000", "app")
    decision = judged(replace(pod, containers=tuple(replace(one, limits={}) for one in pod.containers)))
    assert memory(decision) == 1000
    assert codes(decision) == [FindingCode.ALLOCATION_NOT_REQUESTED]
    assert "app-0" in decision.oddities[0].detail
    assert codes(judged(pod)) == []


def test_a_failed_allocation_is_found_and_charged() -> None:
    decision = judged(say_pod("app 1000", bind_phase="failed"))
    assert memory(decision) == 1000
    assert FindingCode.ALLOCATE_FAILED in codes(decision)


@pytest.mark.parametrize(
    ("clock", "now", "found", "again"),
    [
        (Clock(PodState.CLAIMED, vgpu_time=100), 699, [], 700),
        (Clock(PodState.CLAIMED, vgpu_time=100), 700, [FindingCode.CLAIM_STALE], None),
        (Clock(PodState.STEADY, vgpu_time=100), 700, [], None),
        (Clock(PodState.CLAIMED), 700, [], None),
        (Clock(PodState.PEAK, bind_phase="allocating", bind_time=100), 399, [], 400),
        (
            Clock(PodState.PEAK, bind_phase="allocating", bind_time=100),
            400,
            [FindingCode.ALLOCATE_STUCK],
            None,
        ),
        (Clock(PodState.PEAK, bind_phase="success", bind_time=100), 400, [], None),
        (Clock(PodState.STEADY, deletion_time=100), 399, [], 400),
        (Clock(PodState.STEADY, deletion_time=100), 400, [FindingCode.TERMINATING_OVERDUE], None),
        (Clock(PodState.ENDED, 100, "allocating", 100, 100), 9999, [], None),
        (
            Clock(PodState.CLAIMED, 100, "allocating", 100, 350),
            400,
            [FindingCode.ALLOCATE_STUCK],
            650,
        ),
    ],
)
def test_what_only_time_tells(
    clock: Clock, now: float, found: list[FindingCode], again: float | None
) -> None:
    oddities, look_again = timed_oddities(clock, now)
    assert [oddity.code for oddity in oddities] == found
    assert look_again == again

"""Scores and orderings (semantics 6.3 to 6.5; decisions 23 and 24)."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct.accounting import policies
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.policies import Asked, Load, NodePolicy, Standing, Weights
from tests import cases

EMPTY = Load(0, 0, 0)
CARD = Load(10, 8000, 100)


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("weights"))
def test_weights_of_hamis_cases(case: Mapping[str, Any], expected: Any) -> None:
    text = case["annotations"]["hami.io/device-scoring-weights"]
    if "error" not in expected:
        assert policies.weights_of(text)._asdict() == expected
        return
    with pytest.raises(Malformed) as error:
        policies.weights_of(text)
    assert expected["error"] in error.value.detail


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (None, Weights(1, 1, 1)),
        (" memory = 3, slot = 1, core = 0 ", Weights(1, 0, 3)),
        ("slot=+1,core=0,memory=0", Weights(1, 0, 0)),
        ("slot=9223372036854775807,core=0,memory=0", Weights(2**63 - 1, 0, 0)),
    ],
)
def test_weights_stand_in_any_order(text: str | None, weights: Weights) -> None:
    assert policies.weights_of(text) == weights


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("slot=1,memory=3", "expected slot, core, and memory weights"),
        ("slot=1,core=1,memory=1,", "expected slot, core, and memory weights"),
        ("slot=1,core,memory=3", "expected key=value entries"),
        ("slot=1,core=high,memory=3", '"core" weight must be an integer'),
        ("slot=1,core=1.5,memory=3", '"core" weight must be an integer'),
        ("slot=1,core=1_0,memory=3", '"core" weight must be an integer'),
        ("slot=1,core=9223372036854775808,memory=3", '"core" weight must be an integer'),
        ("slot=1,Core=1,memory=3", 'unknown weight "Core"'),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(text: str, reason: str) -> None:
    with pytest.raises(Malformed) as error:
        policies.weights_of(text)
    assert reason in error.value.detail


# --- node policies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (NodePolicy.BINPACK, ["full", "half-a", "half-b", "empty"]),
        (NodePolicy.SPREAD, ["empty", "half-a", "half-b", "full"]),
    ],
)
def test_equal_nodes_stand_by_name(policy: NodePolicy, order: list[str]) -> None:
    scores = {"half-b": 5.0, "full": 9.0, "empty": 0.0, "half-a": 5.0}
    assert policies.order_nodes(scores.items(), policy) == order


def test_an_absent_or_empty_node_policy_is_the_default() -> None:
    for text in (None, "", "  "):
        assert policies.node_policy_of(text, NodePolicy.SPREAD) is NodePolicy.SPREAD
    assert policies.node_policy_of("binpack", NodePolicy.SPREAD) is NodePolicy.BINPACK


@pytest.mark.parametrize("text", ["mutex", "topology-aware", "Binpack", "binpack,spread"])
def test_an_unknown_node_policy_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="unknown node policy"):
        policies.node_policy_of(text)


def test_a_node_with_a_total_of_nothing_scores_nothing() -> None:
    assert policies.node_score(Load(1, 1, 1), Load(10, 0, 100)) == 0.0


# --- device policies -----------------------------------------------------------------------------

FULL = Standing(score=9.0, numa=0, used=3, place=0, order=0)
EMPTY_FAR = Standing(score=1.0, numa=1, used=0, place=1, order=1)
IDLE_NEAR = Standing(score=2.0, numa=0, used=0, place=2, order=2)
DEVICES = {"full": FULL, "empty-far": EMPTY_FAR, "idle-near": IDLE_NEAR}


@pytest.mark.parametrize(
    ("policy", "bound", "order"),
    [
        ("binpack", False, "full idle-near empty-far"),
        ("spread", False, "empty-far idle-near full"),
        ("topology-aware", False, "empty-far idle-near full"),
        ("mutex", False, "empty-far idle-near full"),
        ("numa", False, "empty-far idle-near full"),
        ("binpack", True, "full idle-near empty-far"),
        ("spread", True, "empty-far idle-near full"),
        ("mutex", True, "empty-far idle-near full"),
        ("topology-aware", True, "empty-far idle-near full"),
        ("numa,binpack", False, "empty-far full idle-near"),
        ("binpack,numa", False, "full idle-near empty-far"),
        ("binpack,numa", True, "empty-far full idle-near"),
        ("numa,binpack", True, "empty-far full idle-near"),
        ("spread,binpack", False, "empty-far idle-near full"),
        ("binpack,spread", False, "full idle-near empty-far"),
        ("mutex,binpack", False, "full idle-near empty-far"),
        ("mutex,topology-aware", False, "empty-far idle-near full"),
        ("binpack, binpack ,", False, "full idle-near empty-far"),
    ],
)
def test_the_order_in_which_devices_are_tried(policy: str, bound: bool, order: str) -> None:
    found = policies.device_policy_of(policy)
    ranked = sorted(DEVICES, key=lambda name: found.rank(DEVICES[name], numa_bind=bound), reverse=True)
    assert ranked == order.split()


def test_a_single_word_falls_back_on_the_numa_node_and_a_chain_does_not() -> None:
    low, high = Standing(5.0, 0, 0, 1, 0), Standing(5.0, 1, 0, 0, 1)
    single, chain = policies.device_policy_of("binpack"), policies.device_policy_of("binpack,mutex")
    assert single.rank(high) > single.rank(low)
    assert chain.rank(low) > chain.rank(high)  # the higher index


def test_a_bare_numa_looks_at_nothing_but_numa_and_index() -> None:
    numa = policies.device_policy_of("numa")
    loaded, idle = Standing(9.0, 1, 5, 0, 0), Standing(1.0, 0, 0, 1, 1)
    assert numa.rank(loaded) > numa.rank(idle)


def test_ties_go_to_the_highest_index_then_to_the_later_registered() -> None:
    first, second, third = Standing(5.0, 0, 0, 0, 0), Standing(5.0, 0, 0, 1, 1), Standing(5.0, 0, 0, 1, 2)
    spread = policies.device_policy_of("spread")
    assert sorted((third, first, second), key=spread.rank) == [first, second, third]


def test_an_absent_or_empty_device_policy_is_the_default() -> None:
    mutex = policies.device_policy_of("mutex")
    for text in (None, "", " ", ","):
        assert policies.device_policy_of(text, mutex) == mutex


@pytest.mark.parametrize("text", ["best", "Spread", "binpack,best", "binpack spread"])
def test_an_unknown_device_policy_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="unknown GPU policy"):
        policies.device_policy_of(text)


def test_filters_stand_wherever_they_are_written() -> None:
    policy = policies.device_policy_of("binpack,topology-aware,mutex")
    assert policy.is_mutex
    assert policy.is_topology_aware
    assert not policies.device_policy_of("binpack").is_mutex


# --- 32-bit floats -------------------------------------------------------------------------------


def test_every_step_of_a_score_is_a_32_bit_float() -> None:
    assert policies.share(1, 3) == 0.3333333432674408
    assert policies.node_score(Load(1, 1, 1), Load(10, 3, 7)) == 5.761904716491699


numbers = st.integers(0, 2**63 - 1) | st.integers(0, 100)
loads = st.builds(Load, numbers, numbers, numbers)


@given(
    loads, loads, st.builds(Asked, numbers, numbers, numbers), st.builds(Weights, numbers, numbers, numbers)
)
def test_a_score_is_never_negative_and_always_a_32_bit_float(
    used: Load, total: Load, asked: Asked, weights: Weights
) -> None:
    for score in (policies.device_score(used, total, asked, weights), policies.node_score(used, total)):
        assert score >= 0
        assert policies.f32(score) == score
    assert policies.device_score(EMPTY, CARD, Asked(), weights) == 0.0

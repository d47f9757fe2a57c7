"""One pod on one node (semantics 6; decisions 1, 18, 22, 23, 29)."""

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamiacct.accounting import fit, reasons
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import UNLIMITED, Ask, Room
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.footprint import footprint_of
from hamiacct.accounting.holdings import footprint_of_pod, held_by_rows
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import Container, ContainerClass, Row
from hamiacct.accounting.policies import EVEN
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.requests import PERCENT_NOT_GIVEN, DeviceRequest
from tests.accounting.offered import BY_KEY, NVIDIA, asking, cards, device, node

INIT, SIDECAR, APP = ContainerClass.INIT, ContainerClass.SIDECAR, ContainerClass.APP


NOT_GIVEN = PERCENT_NOT_GIVEN


def gpu(memory_mib: int = 0, cores: int = 0, count: int = 1, percent: int = NOT_GIVEN) -> DeviceRequest:
    return DeviceRequest(NVIDIA, count, memory_mib, percent, cores)


def placed(verdict: fit.Verdict) -> fit.Placement:
    assert isinstance(verdict, fit.Placement), verdict
    return verdict


def refused(verdict: fit.Verdict) -> str:
    assert isinstance(verdict, fit.Misfit), verdict
    return verdict.message


def uuids(verdict: fit.Verdict, vendor: str = NVIDIA) -> list[list[str]]:
    return [[row.uuid for row in rows] for rows in placed(verdict).allocations[vendor].groups]


def memory_room(amount: int, vendor: str = NVIDIA) -> Room:
    return Room.of([(vendor, Dimension.MEMORY, amount)])


# --- the walk ------------------------------------------------------------------------------------


def test_an_init_sees_the_sidecars_before_it_and_nothing_else() -> None:
    card = node(device("d0", memory_mib=10000))
    after = asking(gpu(4000), gpu(8000), gpu(100), kinds=[SIDECAR, INIT, APP])
    assert refused(fit.place(card, after)) == "1/1 CardInsufficientMemory"
    before = asking(gpu(8000), gpu(4000), gpu(100), kinds=[INIT, SIDECAR, APP])
    assert placed(fit.place(card, before)).charge.total == Amount(2, 8000, 0)


def test_a_refusal_names_the_container_that_found_no_room() -> None:
    verdict = fit.place(node(device("d0")), asking(gpu(100), gpu(9000), kinds=[INIT, APP]))
    assert isinstance(verdict, fit.Misfit)
    assert (verdict.container, verdict.position) == ("c1", 1)
    assert verdict.reasons == {"CardInsufficientMemory": 1}


def test_nothing_is_tried_again() -> None:
    """The first app takes the card that only the second would fit on."""
    two = node(device("big", memory_mib=8000, index=1), device("small", memory_mib=4000))
    ask = asking(gpu(4000), gpu(8000), gpu_policy="spread,mutex")
    assert refused(fit.place(two, ask)) == "1/2 CardInsufficientMemory, 1/2 ExclusiveDeviceAllocateConflict"


def test_rows_stand_by_position_for_every_vendor_asked() -> None:
    both = node(device("d0"), device("m0", "MLU"))
    mlu = DeviceRequest("MLU", 1, 256, 0, 10)
    placement = placed(fit.place(both, asking(None, gpu(100), [gpu(100), mlu], kinds=[INIT, SIDECAR, APP])))
    assert uuids(placement) == [[], ["d0"], ["d0"]]
    assert uuids(placement, "MLU") == [[], [], ["m0"]]


def test_a_pod_that_asks_for_nothing_is_placed_with_nothing() -> None:
    placement = placed(fit.place(node(device("d0")), asking(None, None)))
    assert not placement.allocations
    assert not placement.charge


def test_a_node_without_devices_is_unregistered() -> None:
    assert refused(fit.place(FitNode("n1"), asking(gpu(1)))) == "node unregistered"


def test_cards_of_another_vendor_are_no_candidates() -> None:
    ask = asking(DeviceRequest("Ascend910B4", 1, 100, 0, 0))
    assert refused(fit.place(node(device("a0", "Ascend910B4-1")), ask)) == "NodeInsufficientDevice"


def test_several_devices_of_a_container_are_different_cards() -> None:
    ask = asking(gpu(2000, count=2), None, gpu(3000, count=2))
    assert refused(fit.place(node(device("d0")), ask)) == "NodeInsufficientDevice"
    placement = placed(fit.place(node(*cards(2)), ask))
    assert {key.uuid: placement.charge[key] for key in placement.charge} == {
        "d0": Amount(2, 5000, 0),
        "d1": Amount(2, 5000, 0),
    }


def test_a_percentage_is_of_each_cards_own_memory() -> None:
    unequal = node(device("d0", memory_mib=24576), device("d1", memory_mib=24000))
    whole = placed(fit.place(unequal, asking(gpu(percent=100, cores=100, count=2)), memory_room(48576)))
    assert {key.uuid: whole.charge[key].memory_mib for key in whole.charge} == {"d0": 24576, "d1": 24000}
    fixed = fit.place(unequal, asking(gpu(24001, count=2)))
    assert refused(fixed) == "1/2 AllocatedCardsInsufficientRequest, 1/2 CardInsufficientMemory"


# --- the checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "request_", "annotations", "reason"),
    [
        ({"healthy": False, "cordoned": True}, gpu(9000), {}, "CardNotHealth"),
        ({"cordoned": True, "model": "T4"}, gpu(9000), {"use-gputype": "A100"}, "CardCordoned"),
        ({"model": "T4"}, gpu(1), {"use-gputype": "A100", "use-gpuuuid": "x"}, "CardTypeMismatch"),
        ({"mode": "mig"}, gpu(1), {"vgpu-mode": "hami-core"}, "CardTypeMismatch"),
        ({"used": 10}, gpu(1), {"nouse-gpuuuid": "d0"}, "CardUuidMismatch"),
        ({"used": 10}, gpu(9000), {"gpu-scheduler-policy": "mutex"}, "CardTimeSlicingExhausted"),
        (
            {"used": 1},
            gpu(9000),
            {"gpu-scheduler-policy": "binpack,mutex"},
            "ExclusiveDeviceAllocateConflict",
        ),
        ({}, gpu(8001, 100), {}, "CardInsufficientMemory"),
        ({"used_memory_mib": 8001}, gpu(0), {}, "CardInsufficientMemory"),
        ({"used": 1, "used_cores": 50}, gpu(1, 51), {}, "CardInsufficientCore"),
        ({"used": 1, "used_cores": 50}, gpu(1, 120), {}, "CardInsufficientCore"),
        ({"used": 1}, gpu(1, 100), {}, "ExclusiveDeviceAllocateConflict"),
        ({"used": 1, "used_cores": 100}, gpu(1), {}, "CardComputeUnitsExhausted"),
        ({"slots": 0}, gpu(1), {}, "CardTimeSlicingExhausted"),
    ],
)
def test_the_first_check_that_refuses_decides(
    facts: dict[str, int], request_: DeviceRequest, annotations: dict[str, str], reason: str
) -> None:
    prefix = {"gpu-scheduler-policy": "hami.io/"}
    given = {prefix.get(key, "nvidia.com/") + key: text for key, text in annotations.items()}
    verdict = fit.place(node(device("d0", **facts)), asking(request_, annotations=given))
    assert refused(verdict) == f"1/1 {reason}"


@pytest.mark.parametrize(
    "facts",
    [
        {"used_memory_mib": 3000},
        {"used": 9},
        {"used": 1, "used_cores": 70},
        {"cores": 0},
        {"cores": 50, "used": 1, "used_cores": 20},
        {"mode": "mig"},
    ],
)
def test_exactly_what_is_left_fits(facts: dict[str, int]) -> None:
    card = device("d0", mig_profiles=(), **facts) if "mode" not in facts else device("d0", mode="mps")
    cores = 0 if facts.get("cores") == 0 else 30
    placed(fit.place(node(card), asking(gpu(5000, cores))))


def test_reasons_are_sorted_as_texts_and_counted_over_candidates() -> None:
    ten = [device(f"d{place}", healthy=place > 1, index=place, used=10 * (place > 2)) for place in range(10)]
    message = refused(fit.place(node(*ten), asking(gpu(1, count=2))))
    assert (
        message == "1/10 AllocatedCardsInsufficientRequest, 2/10 CardNotHealth, 7/10 CardTimeSlicingExhausted"
    )


@pytest.mark.parametrize("vendor", [key for key in BY_KEY if key != "AWSNeuron"])
def test_health_and_cordon_hold_for_every_vendor(vendor: str) -> None:
    profiles = {"profiles": {"1g.4gb": "1"}}
    ask = asking(DeviceRequest(vendor, 1, 1, 0, 0))
    for facts in ({"healthy": False}, {"cordoned": True}):
        assert refused(fit.place(node(device("d0", vendor, custom=profiles, **facts)), ask))
    placed(fit.place(node(device("d0", vendor, custom=profiles)), ask))


def test_numa_bind_puts_back_what_lies_on_another_numa_node() -> None:
    bound = {"nvidia.com/numa-bind": "true"}
    four = [
        device(f"d{place}", numa=place // 2, index=place, used_memory_mib=8000 * (place == 3))
        for place in range(4)
    ]
    assert uuids(fit.place(node(*four), asking(gpu(100, count=2), annotations=bound))) == [["d1", "d0"]]
    message = refused(fit.place(node(*four[1:]), asking(gpu(100, count=2), annotations=bound)))
    assert message == ("1/3 AllocatedCardsInsufficientRequest, 1/3 CardInsufficientMemory, 1/3 NumaNotFit")


# --- topology-aware ------------------------------------------------------------------------------

PAIRS = {"d0": {"d1": 1, "d2": 9, "d3": 1}, "d1": {"d0": 1, "d2": 1, "d3": 8}}
PAIRS |= {"d2": {"d0": 9, "d1": 1, "d3": 1}, "d3": {"d0": 1, "d1": 8, "d2": 1}}


def test_the_best_linked_pair_is_taken_and_single_cards_leave_it_whole() -> None:
    four = node(*cards(4), pair_scores=PAIRS)
    pair = uuids(fit.place(four, asking(gpu(100, count=2), gpu_policy="topology-aware")))
    assert [sorted(one) for one in pair] == [["d0", "d2"]]
    single = uuids(fit.place(four, asking(gpu(100), gpu_policy="topology-aware")))
    assert single == [["d3"]]  # d1 is linked as little, and tried later


def test_quota_is_asked_of_the_chosen_cards_only() -> None:
    """Four candidates would be 400 MiB; two are 200, and two are enough (G-5)."""
    four = node(*cards(4), pair_scores=PAIRS)
    ask = asking(gpu(100, count=2), gpu_policy="topology-aware")
    placed(fit.place(four, ask, memory_room(200)))
    assert refused(fit.place(four, ask, memory_room(199))) == "2/4 ResourceQuotaNotFit"
    assert refused(fit.place(four, ask, memory_room(99))) == "4/4 ResourceQuotaNotFit"


@pytest.mark.parametrize(("numas", "pair"), [((0, 0, 1), ["d0", "d1"]), ((0, 1, 1), ["d1", "d2"])])
def test_links_never_bind_across_numa_nodes_when_bound(numas: tuple[int, ...], pair: list[str]) -> None:
    three = [device(f"d{place}", numa=numa, index=place) for place, numa in enumerate(numas)]
    bound = {"nvidia.com/numa-bind": "1"}
    ask = asking(gpu(100, count=2), annotations=bound, gpu_policy="topology-aware")
    assert [sorted(one) for one in uuids(fit.place(node(*three), ask))] == [pair]


def test_more_combinations_than_can_be_looked_at_are_the_first() -> None:
    many = node(*cards(30), pair_scores={"d0": {"d1": 5}})
    assert uuids(fit.place(many, asking(gpu(1, count=15), gpu_policy="topology-aware"))) == [
        [f"d{place}" for place in range(29, 14, -1)]
    ]


# --- quota ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [[APP, APP], [INIT, APP, APP], [SIDECAR, APP, APP]])
def test_an_unrelated_init_container_changes_no_answer(kinds: list[ContainerClass]) -> None:
    apps = [None] * (len(kinds) - 2) + [gpu(percent=40), gpu(percent=40)]
    ask = asking(*apps, kinds=kinds)
    card = node(device("d0", memory_mib=40000))
    assert refused(fit.place(card, ask, memory_room(24000))) == "1/1 ResourceQuotaNotFit"
    assert placed(fit.place(card, ask, memory_room(32000))).charge.total.memory_mib == 32000


def test_what_is_judged_is_what_would_be_posted_per_device_and_added() -> None:
    """The init on one card and the app on another add up, although they never run together."""
    two = node(*cards(2))
    kinds = [INIT, APP]
    apart = asking(gpu(5000), gpu(5000), kinds=kinds, annotations={"hami.io/gpu-scheduler-policy": "spread"})
    assert placed(fit.place(two, apart, memory_room(5000)))
    other = asking(gpu(7000, count=2), gpu(5000), kinds=kinds)
    assert placed(fit.place(two, other, memory_room(14000))).charge.total.memory_mib == 14000
    assert refused(fit.place(two, other, memory_room(13999))).endswith("ResourceQuotaNotFit")


def test_only_what_is_asked_above_zero_is_judged() -> None:
    over = Room.of([(NVIDIA, Dimension.MEMORY, -500), (NVIDIA, Dimension.CORES, 10)])
    placed(fit.place(node(device("d0")), asking(gpu(0, 10)), over))
    assert refused(fit.place(node(device("d0")), asking(gpu(1, 10)), over)) == "1/1 ResourceQuotaNotFit"
    assert refused(fit.place(node(device("d0")), asking(gpu(0, 11)), over)) == "1/1 ResourceQuotaNotFit"


def test_a_quota_on_one_vendor_leaves_the_others_alone() -> None:
    both = node(device("d0"), device("m0", "MLU"))
    ask = asking(DeviceRequest("MLU", 1, 5000, 0, 0), gpu(1000))
    placed(fit.place(both, ask, memory_room(1000)))
    assert refused(fit.place(both, ask, memory_room(999))) == "1/1 ResourceQuotaNotFit"


@pytest.mark.parametrize("amounts", [(5000, 1000), (1000, 5000), (1000, 1000)])
def test_the_tightest_quota_decides(amounts: tuple[int, ...]) -> None:
    room = Room.of((NVIDIA, Dimension.MEMORY, amount) for amount in amounts)
    placed(fit.place(node(device("d0")), asking(gpu(1000)), room))
    assert refused(fit.place(node(device("d0")), asking(gpu(1001)), room)) == "1/1 ResourceQuotaNotFit"


@pytest.mark.parametrize(
    ("vendor", "request_", "memory_mib"),
    [
        ("MLU", DeviceRequest("MLU", 1, 0, 100, 0), 8000),
        ("DCU", DeviceRequest("DCU", 1, 300, 0, 0), 300),
        ("MR-V100", DeviceRequest("MR-V100", 1, 300, 0, 0), 300),
        ("Mthreads", DeviceRequest("Mthreads", 1, 300, 0, 0), 300),
        ("Metax-SGPU", DeviceRequest("Metax-SGPU", 1, 300, 0, 0), 300),
        ("XPU", DeviceRequest("XPU", 1, 300, 0, 0), 300),
        ("Enflame", DeviceRequest("Enflame", 1, 2, 0, 0), 2048),
        ("AMD", DeviceRequest("AMD", 1, 0, 0, 100), 8000),
        ("Ascend910B4", DeviceRequest("Ascend910B4", 1, 300, 0, 0), 300),
    ],
)
def test_every_vendor_with_memory_is_judged(vendor: str, request_: DeviceRequest, memory_mib: int) -> None:
    card = node(device("d0", vendor, custom={"profiles": {"1g.2gb": "0", "2g.4gb": "1"}}))
    assert placed(fit.place(card, asking(request_), memory_room(memory_mib, vendor)))
    less = memory_room(memory_mib - 1, vendor)
    assert refused(fit.place(card, asking(request_), less)) == "1/1 ResourceQuotaNotFit"


# --- a claim -------------------------------------------------------------------------------------


def test_a_claim_of_what_fits_is_granted_as_it_is() -> None:
    two = node(*cards(2))
    ask = asking(gpu(5000), gpu(6000), kinds=[INIT, APP])
    claim = {NVIDIA: ((Row("d0", NVIDIA, 5000, 0),), (Row("d0", "whatever", 6000, 0),))}
    assert uuids(fit.verify(two, ask, UNLIMITED, claim)) == [["d0"], ["d0"]]
    assert uuids(fit.place(two, ask)) == [["d1"], ["d1"]]


@pytest.mark.parametrize(
    "groups",
    [
        (),
        ((), ()),
        ((Row("d0", NVIDIA, 5000, 0),),),
        ((Row("d0", NVIDIA, 5001, 0),), ()),
        ((Row("d0", NVIDIA, 5000, 1),), ()),
        ((Row("d0", NVIDIA, 5000, 0), Row("d0", NVIDIA, 5000, 0)), ()),
        ((Row("d0", NVIDIA, 5000, 0), Row("d1", NVIDIA, 5000, 0)), ()),
        ((Row("d9", NVIDIA, 5000, 0),), ()),
        ((Row("d0", NVIDIA, 5000, 0),), (Row("d0", NVIDIA, 1, 0),)),
        ((Row("d0", NVIDIA, 5000, 0),), (), (Row("d0", NVIDIA, 1, 0),)),
        ((), (Row("d0", NVIDIA, 5000, 0),)),
        ((Row("off", NVIDIA, 5000, 0),), ()),
        ((Row("full", NVIDIA, 5000, 0),), ()),
    ],
)
def test_a_claim_that_is_not_what_was_asked_is_refused(groups: tuple[tuple[Row, ...], ...]) -> None:
    offered = node(*cards(2), device("off", cordoned=True), device("full", used_memory_mib=4000))
    good = {NVIDIA: ((Row("d0", NVIDIA, 5000, 0),), ())}
    ask = asking(gpu(5000), None)
    assert isinstance(fit.verify(offered, ask, UNLIMITED, good), fit.Placement)
    if groups != good[NVIDIA][:1]:
        assert isinstance(fit.verify(offered, ask, UNLIMITED, {NVIDIA: groups}), fit.Misfit)


def test_a_claim_for_a_vendor_that_is_not_asked_is_refused() -> None:
    claim = {NVIDIA: ((Row("d0", NVIDIA, 5000, 0),),), "MLU": ((Row("d1", "MLU", 1, 0),),)}
    offered = node(device("d0"), device("d1", "MLU"))
    assert refused(fit.verify(offered, asking(gpu(5000)), UNLIMITED, claim)) == "ClaimDiffers"


# --- the question --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        {"hami.io/node-scheduler-policy": "fullest"},
        {"hami.io/gpu-scheduler-policy": "fullest"},
        {"hami.io/device-scoring-weights": "slot=1"},
    ],
)
def test_annotations_that_cannot_be_meant_are_no_question(annotation: dict[str, str]) -> None:
    with pytest.raises(Malformed):
        asking(gpu(1), annotations=annotation)


def test_weights_turn_the_order() -> None:
    """One card has its memory taken, the other its slots."""
    two = node(device("memory", used_memory_mib=4000, used=1), device("slots", used=6))
    for weights, first in (("slot=0,core=0,memory=1", "memory"), ("slot=1,core=0,memory=0", "slots")):
        given = {"hami.io/device-scoring-weights": weights}
        ask = asking(gpu(1), annotations=given, gpu_policy="binpack")
        assert uuids(fit.place(two, ask)) == [[first]]


def test_in_a_score_a_percentage_is_preferred_over_an_amount() -> None:
    """The fit takes the amount, the score the percentage, as HAMi (G-24, decision 23)."""
    container = asking(gpu(800, percent=50)).containers[0]
    assert fit.score_of(device("d0"), container, EVEN) == 6.0  # 1 of 10 slots, half of the memory
    zero = asking(gpu(800, percent=0)).containers[0]
    assert fit.score_of(device("d0"), zero, EVEN) == 2.0


def test_nodes_are_scored_before_the_pod() -> None:
    half = node(device("d0", used=5, used_memory_mib=4000, used_cores=50))
    assert placed(fit.place(half, asking(gpu(1000, 10)))).score == 15.0
    assert placed(fit.place(half, asking(gpu(2000, 20)))).score == 15.0


# --- properties ----------------------------------------------------------------------------------

GIBS = st.integers(0, 6).map(lambda number: number * 1000)


@st.composite
def offered_cards(draw: st.DrawFn) -> tuple[FitDevice, ...]:
    """Cards with usage within their totals; some broken, some cordoned, some named after their model."""
    found = []
    for place in range(draw(st.integers(1, 5))):
        slots, memory_mib, cores = draw(st.integers(1, 4)), draw(GIBS), draw(st.sampled_from((0, 50, 100)))
        used = draw(st.integers(0, slots))
        found.append(
            device(
                f"d{place}",
                slots=slots,
                memory_mib=memory_mib,
                cores=cores,
                used=used,
                used_memory_mib=draw(st.integers(0, 6)) * memory_mib // 6 if used else 0,
                used_cores=draw(st.integers(0, cores)) if used else 0,
                index=draw(st.integers(0, 2)),
                order=place,
                numa=draw(st.integers(0, 1)),
                healthy=draw(st.integers(0, 9)) > 0,
                cordoned=draw(st.integers(0, 9)) == 0,
                model=draw(st.sampled_from((NVIDIA, "NVIDIA-A100"))),
            )
        )
    return tuple(found)


requests = st.builds(
    gpu,
    GIBS,
    st.sampled_from((0, 10, 50, 100)),
    st.integers(1, 3),
    st.sampled_from((PERCENT_NOT_GIVEN, 10, 50, 100)),
)


POLICIES = ("binpack", "spread", "mutex", "numa", "topology-aware", "binpack,numa", "spread,mutex")


@st.composite
def questions(draw: st.DrawFn) -> Ask:
    """Pods of every class in every order, under every policy."""
    kinds = [*draw(st.lists(st.sampled_from((INIT, SIDECAR)), max_size=4)), APP]
    kinds += draw(st.lists(st.just(APP), max_size=2))
    asked = [draw(st.none() | requests) for _ in kinds]
    policy = draw(st.sampled_from(POLICIES))
    annotations = {"nvidia.com/numa-bind": draw(st.sampled_from(("true", "false", "false")))}
    return asking(*asked, kinds=kinds, annotations=annotations, gpu_policy=policy)


rooms = st.sampled_from((UNLIMITED, memory_room(4000), memory_room(12000), memory_room(0)))


@settings(max_examples=300, deadline=None)
@given(offered_cards(), questions(), rooms)
def test_no_moment_of_the_pods_life_exceeds_a_card(
    devices: tuple[FitDevice, ...], ask: Ask, room: Room
) -> None:
    verdict = fit.place(node(*devices), ask, room)
    if isinstance(verdict, fit.Misfit):
        return
    [*allocations] = verdict.allocations.values()
    moments = []
    for allocation in allocations:
        held = [held_by_rows(rows, allocation, BY_KEY[NVIDIA]) for rows in allocation.groups]
        running = footprint_of([]).steady
        for container, usage in zip(ask.containers, held, strict=True):
            moments.append(running.plus(usage))
            running = running if container.kind is INIT else running.plus(usage)
        for container, rows in zip(ask.containers, allocation.groups, strict=True):
            [request] = container.requests or (None,)
            assert len({row.uuid for row in rows}) == len(rows) == (request.count if request else 0)
    totals = {one.uuid: one for one in devices}
    for moment in moments:
        for key, amount in moment.items():
            assert totals[key.uuid].used.plus(amount).fits_in(totals[key.uuid].total)
    assert room.admits(NVIDIA, verdict.charge.total.memory_mib, verdict.charge.total.cores)
    for key, _ in verdict.charge.items():
        assert totals[key.uuid].healthy
        assert not totals[key.uuid].cordoned


@settings(max_examples=300, deadline=None)
@given(offered_cards(), questions(), rooms)
def test_the_charge_is_what_the_books_would_make_of_the_rows(
    devices: tuple[FitDevice, ...], ask: Ask, room: Room
) -> None:
    verdict = fit.place(node(*devices), ask, room)
    if isinstance(verdict, fit.Misfit):
        assert verdict.reasons
        assert all(count > 0 for count in verdict.reasons.values())
        assert verdict.message
        assert set(reasons.counted(verdict.message)) in (set(verdict.reasons), set())
        return
    containers = [Container(one.position, one.name, one.kind) for one in ask.containers]
    booked = footprint_of_pod(containers, verdict.allocations, BY_KEY)
    assert (booked.effective, booked.steady) == (verdict.charge, verdict.footprint.steady)
    claim = {key: allocation.groups for key, allocation in verdict.allocations.items()}
    again = fit.verify(node(*devices), ask, room, claim)
    assert isinstance(again, fit.Placement)
    assert again.charge == verdict.charge


@settings(max_examples=150, deadline=None)
@given(offered_cards(), questions(), rooms, st.randoms())
def test_the_order_in_which_devices_are_given_changes_nothing(
    devices: tuple[FitDevice, ...], ask: Ask, room: Room, random: Random
) -> None:
    shuffled = list(devices)
    random.shuffle(shuffled)
    assert fit.place(node(*shuffled), ask, room) == fit.place(node(*devices), ask, room)


def test_every_order_of_cards_gives_the_same_rows() -> None:
    some = (*cards(3), device("x", index=2, order=7))
    found = {str(uuids(fit.place(node(*order), asking(gpu(100, count=2))))) for order in permutations(some)}
    assert found == {"[['x', 'd2']]"}

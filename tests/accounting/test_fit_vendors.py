"""The peculiarities of vendors (semantics 3.3, 6.8), each by its rule, and what holds for all of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamiacct.accounting import fit
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import UNLIMITED, Ask, Room
from hamiacct.accounting.fitting import metax, profiles, rules, wings
from hamiacct.accounting.footprint import footprint_of
from hamiacct.accounting.holdings import footprint_of_pod, held_by_rows
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import Container, ContainerClass
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.requests import DeviceRequest
from tests.accounting.offered import BY_KEY, VENDORS, asking, cards, device, node

INIT, SIDECAR, APP = ContainerClass.INIT, ContainerClass.SIDECAR, ContainerClass.APP


def placed(verdict: fit.Verdict) -> fit.Placement:
    assert isinstance(verdict, fit.Placement), verdict
    return verdict


def refused(verdict: fit.Verdict) -> str:
    assert isinstance(verdict, fit.Misfit), verdict
    return verdict.message


def taken(verdict: fit.Verdict) -> list[list[str]]:
    """The uuids by position, of a pod that asks one vendor."""
    [allocation] = placed(verdict).allocations.values()
    return [[row.uuid for row in rows] for rows in allocation.groups]


def amounts(verdict: fit.Verdict) -> list[list[tuple[int, int]]]:
    """Memory and cores of the rows by position, of a pod that asks one vendor."""
    [allocation] = placed(verdict).allocations.values()
    return [[(row.memory, row.cores) for row in rows] for rows in allocation.groups]


def one(vendor: str, **facts: Any) -> DeviceRequest:
    return DeviceRequest(vendor, **{"count": 1, "memory_percent": 0, **facts})


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.key)
def test_every_table_names_rules_that_there_are(vendor: Any) -> None:
    assert rules.rule_name(vendor) in rules.RULES
    assert vendor.fit.get("score", next(iter(rules.SCORES))) in rules.SCORES


def test_no_rule_asks_for_a_vendor_by_name() -> None:
    """A vendor under another key is placed as its table says."""
    renamed = replace(BY_KEY["AMD"], key="Other")
    ask = asking(one("Other", cores=50), vendors=[renamed])
    assert amounts(fit.place(node(device("d0", "Other", cores=60)), ask)) == [[(8000, 30)]]


# --- Mthreads, whole Metax cards -----------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["Mthreads", "Metax-GPU"])
def test_all_containers_of_a_pod_sit_on_one_device(vendor: str) -> None:
    two = node(device("d0", vendor, cores=16, index=1), device("d1", vendor, cores=16, memory_mib=1500))
    ask = asking(one(vendor, memory_mib=1000), one(vendor, memory_mib=500), gpu_policy="spread")
    assert taken(fit.place(two, ask)) == [["d0"], ["d0"]]
    more = asking(one(vendor, memory_mib=1000), one(vendor, memory_mib=7500))
    assert refused(fit.place(two, more)) == "2/2 CardInsufficientMemory"
    elsewhere = asking(one(vendor, memory_mib=8000), one(vendor, memory_mib=1500))
    message = "1/2 CardInsufficientMemory, 1/2 CardNotFoundCustomFilterRule"
    assert refused(fit.place(two, elsewhere)) == message


def test_several_devices_of_one_container_are_no_conflict_with_themselves() -> None:
    assert taken(fit.place(node(*cards(2, "Mthreads")), asking(one("Mthreads", count=2, memory_mib=5)))) == [
        ["d1", "d0"]
    ]


def test_a_metax_node_tells_what_its_links_lose() -> None:
    tables = {
        "metax-tech.com/gpu.topology.losses": '{"1": 100, "2": 30}',
        "metax-tech.com/gpu.topology.scores": '{"1":10,"2":70}',
    }
    offered = FitNode("n1", tuple(cards(2, "Metax-GPU", slots=1)), annotations=tables)
    for policy, score in (("binpack", 1970.0), ("spread", 1930.0)):
        given = {"hami.io/node-scheduler-policy": policy}
        ask = asking(one("Metax-GPU", count=2, memory_percent=100, cores=100), annotations=given)
        assert placed(fit.place(offered, ask)).score == score
    untold = fit.place(node(*cards(2, "Metax-GPU", slots=1)), asking(one("Metax-GPU", cores=100)))
    assert placed(untold).score == 0.0


@pytest.mark.parametrize("text", ["", "[]", '{"1": "2"}', '{"1": 2', "{'1': 2}", '{"1": 2 "2": 3}', "null"])
def test_a_table_that_cannot_be_read_tells_nothing(text: str) -> None:
    assert metax.by_number(text) in ({}, {1: 2, 2: 3})


# --- Metax' shared cards -------------------------------------------------------------------------

SGPU = "Metax-SGPU"
CLASS, QUALITY = "metax-tech.com/sgpu-app-class", "metax-tech.com/sgpu-qos-policy"


@pytest.mark.parametrize(
    ("tenants", "asked", "fits"),
    [
        ((), None, True),
        ((), "online", True),
        (("",), None, True),
        (("",), "online", False),
        (("",), "offline", False),
        (("online",), None, False),
        (("online",), "online", True),
        (("online",), "offline", False),
        (("offline",), "online", True),
        (("offline", "online"), "offline", False),
        (("offline",), "offline", True),
    ],
)
def test_classes_of_pods_do_not_mix(tenants: tuple[str, ...], asked: str | None, fits: bool) -> None:
    card = device("d0", SGPU, tenants=tenants, used=len(tenants))
    ask = asking(one(SGPU, memory_mib=1, cores=10), annotations={CLASS: asked} if asked else {})
    verdict = fit.place(node(card), ask)
    assert isinstance(verdict, fit.Placement) is fits
    assert fits or refused(verdict) == "1/1 CardAppClassMismatch"


@pytest.mark.parametrize(
    ("card", "asked", "used", "cores", "fits"),
    [
        ("fixed-share", "best-effort", 0, 10, True),
        ("fixed-share", "best-effort", 1, 10, False),
        ("fixed-share", "fixed-share", 1, 10, True),
        ("", "best-effort", 1, 10, True),
    ],
)
def test_a_card_in_use_keeps_its_quality_of_service(
    card: str, asked: str, used: int, cores: int, fits: bool
) -> None:
    offered = device("d0", SGPU, custom={"qosPolicy": card}, used=used, tenants=("",) * used)
    ask = asking(one(SGPU, memory_mib=1, cores=cores), annotations={QUALITY: asked})
    verdict = fit.place(node(offered), ask)
    assert isinstance(verdict, fit.Placement) is fits
    assert fits or refused(verdict) == "1/1 CardQosPolicyMismatch"


def test_containers_of_one_pod_agree_with_themselves() -> None:
    """The first container takes an idle card and settles its class and quality; the second may follow."""
    offered = node(device("d0", SGPU, custom={"qosPolicy": "fixed-share"}))
    two = (one(SGPU, memory_mib=1, cores=10), one(SGPU, memory_mib=1, cores=10))
    placed(fit.place(offered, asking(*two, annotations={QUALITY: "best-effort"})))
    placed(fit.place(offered, asking(*two, annotations={CLASS: "online"})))


def test_online_pods_book_no_cores_and_prefer_cards_with_few_of_them() -> None:
    crowded = device("crowded", SGPU, tenants=("online", "online"), used=2, used_cores=100, index=1)
    quiet = device("quiet", SGPU, tenants=("online",), used=1, used_cores=100, index=2)
    asleep = device("asleep", SGPU, tenants=("offline",), used=1, index=3)
    ask = asking(one(SGPU, memory_mib=10, cores=100), annotations={CLASS: "online"})
    placement = placed(fit.place(node(crowded, quiet, asleep), ask))
    assert (taken(placement), amounts(placement)) == ([["quiet"]], [[(10, 0)]])
    assert placement.score == pytest.approx(-20 * 10_000 + fit.base_score((crowded, quiet, asleep)))
    spread = asking(
        one(SGPU, memory_mib=10), annotations={CLASS: "online", "hami.io/node-scheduler-policy": "spread"}
    )
    assert placed(fit.place(node(quiet), spread)).score > 0


def test_whole_cards_are_taken_from_the_smallest_zone_of_links_that_is_enough() -> None:
    zones = {"a0": 1, "a1": 1, "a2": 1, "b0": 2, "b1": 2, "x": 0}
    offered = node(
        *(
            device(uuid, SGPU, custom={"linkZone": zone}, index=place)
            for place, (uuid, zone) in enumerate(zones.items())
        )
    )
    for count, expected in (
        (1, "b1"),
        (2, "b0 b1"),
        (3, "a0 a1 a2"),
        (4, "a1 a2 b0 b1"),
        (6, "a0 a1 a2 b0 b1 x"),
    ):
        [rows] = taken(fit.place(offered, asking(one(SGPU, count=count, memory_percent=100, cores=100))))
        assert sorted(rows) == expected.split()


def test_links_kept_whole_score_where_it_is_configured() -> None:
    zones = {"a0": 1, "a1": 1, "b0": 2}
    linked = node(*(device(uuid, SGPU, custom={"linkZone": zone}) for uuid, zone in zones.items()))
    aware = replace(BY_KEY[SGPU], request={**BY_KEY[SGPU].request, "topology_aware": True})
    request = one(SGPU, count=2, memory_percent=100, cores=100)
    assert placed(fit.place(linked, asking(request, vendors=[aware]))).score == 10 * 10 * 10_000
    single = one(SGPU, memory_percent=100, cores=100)
    assert placed(fit.place(linked, asking(single, vendors=[aware]))).score == 0.0  # b0 breaks nothing
    pair = FitNode("n1", linked.devices[:2])
    assert placed(fit.place(pair, asking(single, vendors=[aware]))).score == -10 * 10_000
    assert placed(fit.place(linked, asking(request))).score == 0.0


def test_an_unhealthy_shared_card_has_its_own_word() -> None:
    card = node(device("d0", SGPU, healthy=False))
    assert refused(fit.place(card, asking(one(SGPU, memory_mib=1)))) == "1/1 CardUnhealthy"


def test_the_smaller_zone_is_taken_whichever_is_tried_first() -> None:
    for zones in ((1, 1, 2, 2, 2), (2, 2, 2, 1, 1)):
        some = [
            device(f"z{zone}-{place}", SGPU, custom={"linkZone": zone}, index=place)
            for place, zone in enumerate(zones)
        ]
        [rows] = taken(fit.place(node(*some), asking(one(SGPU, count=2, memory_percent=100, cores=100))))
        assert {uuid[:2] for uuid in rows} == {"z1"}


# --- Kunlunxin -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        ("01234567", 8, "01234567"),
        ("0123456", 8, ""),
        ("01234567", 4, "0123"),
        ("1234567", 4, "4567"),
        ("0145", 4, "0145"),
        ("0246", 4, "0246"),
        ("013457", 4, "0145"),
        ("0167", 4, ""),
        ("01234567", 2, "01"),
        ("0123456", 2, "45"),
        ("234567", 2, "23"),
        ("04", 2, "04"),
        ("05", 2, ""),
        ("01234567", 1, "0"),
        ("0123456", 1, "4"),
        ("234567", 1, "2"),
        ("03456", 1, "4"),
        ("345", 1, "3"),
        ("", 1, ""),
        ("012", 3, ""),
    ],
)
def test_cards_are_chosen_by_wings(free: str, count: int, chosen: str) -> None:
    assert wings.choose(frozenset(map(int, free)), count) == tuple(map(int, chosen))


def kunlun(*used: int, vendor: str = "kunlun", total: int = 8) -> FitNode:
    return node(
        *(
            device(
                f"k{place}", vendor, slots=100, memory_mib=98304, index=place, order=place, used=place in used
            )
            for place in range(total)
        )
    )


def test_whole_unused_cards_by_their_index_whatever_the_policy() -> None:
    ask = asking(one("kunlun", count=2, memory_percent=100), gpu_policy="binpack")
    placement = placed(fit.place(kunlun(0, 1, 5), ask))
    assert taken(placement) == [["k2", "k3"]]
    assert amounts(placement) == [[(98304, 100), (98304, 100)]]


def test_in_the_walk_a_card_is_as_full_as_it_is_recorded() -> None:
    ask = asking(*[one("kunlun", count=4, memory_percent=100)] * 2)
    assert taken(fit.place(kunlun(), ask)) == [["k0", "k1", "k2", "k3"], ["k4", "k5", "k6", "k7"]]
    more = asking(*[one("kunlun", count=4, memory_percent=100)] * 2, one("kunlun", memory_percent=100))
    assert refused(fit.place(kunlun(), more)) == "1/8 NumaNotFit"


def test_fewer_than_eight_cards_are_no_error() -> None:
    assert taken(fit.place(kunlun(total=3), asking(one("kunlun", memory_percent=100)))) == [["k0"]]
    assert refused(fit.place(kunlun(total=3), asking(one("kunlun", count=3)))) == "1/3 NumaNotFit"


def test_cards_that_users_exclude_are_no_choice() -> None:
    given = {"baidu.com/use-gpuuuid": "k7,k9"}
    ask = asking(one("kunlun", memory_percent=100), annotations=given)
    assert taken(fit.place(kunlun(), ask)) == [["k7"]]
    assert refused(fit.place(kunlun(7), ask)) == "1/8 NumaNotFit, 7/8 CardUuidMismatch"


@pytest.mark.parametrize(
    ("used", "count", "score"),
    [((), 1, 0.0), ((), 4, 2000.0), ((0, 1, 2, 3), 4, 2000.0), ((0,), 2, 3000.0), ((0, 1), 1, 1000.0)],
)
def test_order_among_the_wings_is_scored(used: Sequence[int], count: int, score: float) -> None:
    offered = kunlun(*used)
    ask = asking(one("kunlun", count=count, memory_percent=100))
    base = fit.base_score(offered.devices)
    assert placed(fit.place(offered, ask)).score == pytest.approx(score + base, rel=1e-6)


def test_a_used_card_takes_slices_of_the_size_it_has_only() -> None:
    half = device("k0", "XPU", memory_mib=98304, used=1, used_memory_mib=49152, used_cores=50)
    assert taken(fit.place(node(half), asking(one("XPU", memory_mib=49152, cores=50)))) == [["k0"]]
    assert refused(fit.place(node(half), asking(one("XPU", memory_mib=24576, cores=25)))) == "1/1 NumaNotFit"
    third = asking(*[one("XPU", memory_mib=49152, cores=50)] * 2)
    assert refused(fit.place(node(half), third)) == "1/1 NumaNotFit"


# --- Enflame -------------------------------------------------------------------------------------


def test_only_unused_whole_cards_are_given() -> None:
    two = node(
        device("d0", "GCU", slots=1, memory_mib=100, used=1), device("d1", "GCU", slots=1, memory_mib=100)
    )
    ask = asking(one("GCU", memory_mib=100, memory_percent=100, cores=100))
    assert taken(fit.place(two, ask)) == [["d1"]]
    both = asking(one("GCU", count=2, memory_mib=100, memory_percent=100, cores=100))
    message = "1/2 AllocatedCardsInsufficientRequest, 1/2 ExclusiveDeviceAllocateConflict"
    assert refused(fit.place(two, both)) == message


DRS = {"profiles": {"1g.8gb": "0", "2g.16gb": "1", "3g.24gb": "2", "6g.48gb": "3", "odd": "9"}}


def drs(**facts: Any) -> FitNode:
    return node(device("d0", "Enflame", slots=6, memory_mib=49152, custom=DRS, **facts))


@pytest.mark.parametrize(
    ("request_", "row"),
    [
        (one("Enflame", extra={"profile_size": 3}), (24576, 50)),
        (one("Enflame", memory_mib=9), (16384, 34)),
        (one("Enflame", memory_mib=9 * 1024), (16384, 34)),
        (one("Enflame", cores=40), (24576, 50)),
        (one("Enflame", memory_mib=8, cores=100), (49152, 100)),
        (one("Enflame", memory_mib=48), (49152, 100)),
        (one("Enflame", memory_mib=96), None),
        (one("Enflame", memory_mib=97), (8192, 17)),
        (one("Enflame", extra={"profile_size": 4}), None),
    ],
)
def test_the_smallest_profile_that_is_enough(request_: DeviceRequest, row: tuple[int, int] | None) -> None:
    verdict = fit.place(drs(), asking(request_))
    if row is None:
        assert refused(verdict) == "1/1 ModeNotFit"
    else:
        assert amounts(verdict) == [[row]]


def test_a_profile_takes_its_size_in_slots() -> None:
    placement = placed(fit.place(drs(), asking(one("Enflame", extra={"profile_size": 3}))))
    assert placement.charge.total == Amount(3, 24576, 50)
    assert placement.allocations["Enflame"].slots_per_row == 3
    four = drs(used=4, used_memory_mib=0)
    message = refused(fit.place(four, asking(one("Enflame", extra={"profile_size": 3}))))
    assert message == "1/1 CardTimeSlicingExhausted"


def test_rows_of_one_pod_take_the_largest_of_its_sizes() -> None:
    ask = asking(one("Enflame", extra={"profile_size": 1}), one("Enflame", extra={"profile_size": 3}))
    placement = placed(fit.place(drs(), ask))
    assert placement.charge.total == Amount(6, 8192 + 24576, 17 + 50)
    three = asking(*ask.containers[0].requests, *[one("Enflame", extra={"profile_size": 2})] * 3)
    assert refused(fit.place(drs(), three)) == "1/1 CardTimeSlicingExhausted"


def test_a_node_without_profiles_fits_none() -> None:
    assert profiles.profiles_of([device("d0", "Enflame")]) == []
    assert refused(fit.place(node(device("d0", "Enflame")), asking(one("Enflame", memory_mib=1)))) == (
        "1/1 ModeNotFit"
    )


# --- AWS Neuron ----------------------------------------------------------------------------------

NEURON = "AWSNeuron"


def neurons(count: int, instance: str = "trn1.32xlarge", cores: int = 2, sets: Sequence[int] = ()) -> FitNode:
    masks = [*sets, *[0] * (count - len(sets))]
    return FitNode(
        "n1",
        tuple(
            FitDevice(
                f"a{place}",
                NEURON,
                Amount(cores, 0, cores),
                Amount.of_core_set(mask.bit_count(), 0, mask),
                place,
                place,
                NEURON,
            )
            for place, mask in enumerate(masks)
        ),
        labels={"node.kubernetes.io/instance-type": instance},
    )


def devices_of(count: int) -> DeviceRequest:
    return DeviceRequest(NEURON, count, 0, 0, 2)


def cores_of(total: int) -> DeviceRequest:
    return DeviceRequest(NEURON, -(-total // 2), 0, 0, min(total, 2), {"cores_total": total})


def test_a_node_that_says_it_has_a_million_million_cores_is_answered_at_once() -> None:
    boasting = neurons(1, cores=2**40)
    assert amounts(placed(fit.place(boasting, asking(cores_of(1))))) == [[(0, 0b1)]]
    everything = DeviceRequest(NEURON, 1, 0, 0, 2**40)
    assert refused(fit.place(boasting, asking(everything))) == "1/1 CardInsufficientCore"


def test_a_device_gives_its_lowest_free_cores() -> None:
    half = neurons(1, sets=[0b01])
    placement = placed(fit.place(half, asking(cores_of(1))))
    assert amounts(placement) == [[(0, 0b10)]]
    assert placement.charge.total == Amount(1, 0, 1)
    assert refused(fit.place(half, asking(cores_of(2)))) == "1/1 CardInsufficientCore"


def test_cores_of_an_init_are_given_again_and_those_of_a_sidecar_are_not() -> None:
    kinds = [INIT, SIDECAR, APP]
    placement = placed(fit.place(neurons(1), asking(*[cores_of(1)] * 3, kinds=kinds)))
    assert amounts(placement) == [[(0, 0b01)], [(0, 0b01)], [(0, 0b10)]]
    assert [amount.cores for _, amount in placement.charge.items()] == [2]


@pytest.mark.parametrize(
    ("instance", "count", "busy", "expected"),
    [
        ("trn1.32xlarge", 4, (), "a0 a1 a2 a3"),
        ("trn1.32xlarge", 4, (1,), "a4 a5 a6 a7"),
        ("trn1.32xlarge", 4, (1, 6), ""),
        ("trn1.32xlarge", 8, (), "a0 a1 a2 a3 a4 a5 a6 a7"),
        ("trn1.32xlarge", 2, (), ""),
        ("inf2.48xlarge", 4, (1,), "a2 a3 a4 a5"),
        ("inf2.48xlarge", 3, (2, 6), "a3 a4 a5"),
        ("Inf1.24xlarge", 2, (0, 2), "a3 a4"),
        ("", 4, (), "a0 a1 a2 a3"),
    ],
)
def test_several_devices_are_neighbours(
    instance: str, count: int, busy: Sequence[int], expected: str
) -> None:
    offered = neurons(8, instance, sets=[0b11 if place in busy else 0 for place in range(8)])
    verdict = fit.place(offered, asking(devices_of(count)))
    if not expected:
        assert refused(verdict) == "1/8 NumaNotFit"
        return
    assert taken(verdict) == [expected.split()]
    assert amounts(verdict) == [[(0, 0b11)] * count]


def test_a_device_is_as_many_cores_as_it_has_on_its_node() -> None:
    four = neurons(2, "inf1.6xlarge", cores=4)
    assert amounts(fit.place(four, asking(devices_of(1)))) == [[(0, 0b1111)]]
    assert amounts(fit.place(four, asking(cores_of(4)))) == [[(0, 0b1111)]]
    assert amounts(fit.place(four, asking(cores_of(8)))) == [[(0, 0b1111)] * 2]
    assert refused(fit.place(four, asking(cores_of(6)))) == "2/2 CardInsufficientCore"


def test_uuids_are_chosen_for_one_device_only() -> None:
    given = {"aws.amazon.com/use-neuron-uuid": "a0"}
    assert taken(fit.place(neurons(4), asking(devices_of(1), annotations=given))) == [["a0"]]
    placed(fit.place(neurons(4), asking(devices_of(4), annotations=given)))


# --- AMD -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "row"),
    [
        (one("AMD", cores=100), (8000, 304)),
        (one("AMD", memory_mib=100, cores=50), (100, 152)),
        (one("AMD", memory_mib=100, cores=1), (100, 3)),
        (one("AMD", memory_mib=100), (100, 0)),
        (one("AMD", memory_mib=8000), (8000, 304)),
    ],
)
def test_cores_are_booked_in_units_of_the_card(request_: DeviceRequest, row: tuple[int, int]) -> None:
    assert amounts(fit.place(node(device("d0", "AMD", cores=304)), asking(request_))) == [[row]]


def test_a_percentage_is_at_least_one_unit() -> None:
    small = node(device("d0", "AMD", cores=20))
    assert amounts(fit.place(small, asking(one("AMD", memory_mib=1, cores=1)))) == [[(1, 1)]]
    none = node(device("d0", "AMD", cores=0))
    assert refused(fit.place(none, asking(one("AMD", memory_mib=1, cores=1)))) == "1/1 CardInsufficientCore"


def test_a_whole_amd_card_may_be_shared_while_units_are_left() -> None:
    used = node(device("d0", "AMD", cores=100, used=1))
    placed(fit.place(used, asking(one("AMD", memory_mib=1, cores=100))))


def test_quota_counts_percent_of_a_card_rounded_up() -> None:
    card = node(device("d0", "AMD", cores=304))
    ask = asking(one("AMD", memory_mib=1, cores=1))  # 3 of 304 units: 0.99 %
    for left, fits in ((1, True), (0, False)):
        room = Room.of([("AMD", Dimension.CORES, left)])
        assert isinstance(fit.place(card, ask, room), fit.Placement) is fits


# --- Biren, Vastai -------------------------------------------------------------------------------


@pytest.mark.parametrize("vendor", ["Biren", "Vastai"])
def test_a_slot_is_all_that_is_taken(vendor: str) -> None:
    full = node(device("d0", vendor, used=1, used_memory_mib=8000, used_cores=100))
    placement = placed(fit.place(full, asking(one(vendor, memory_percent=100))))
    assert amounts(placement) == [[(0, 0)]]
    assert placement.charge.total == Amount(1, 0, 0)
    exhausted = node(device("d0", vendor, used=10))
    assert refused(fit.place(exhausted, asking(one(vendor)))) == "1/1 CardTimeSlicingExhausted"


def test_dies_come_from_as_few_cards_as_can_be() -> None:
    cards_of = {"v0": "A", "v1": "B", "v2": "B", "v3": "A", "v4": "B"}
    dies = node(
        *(
            device(uuid, "Vastai", index=place, custom={"DeviceStrategy": "die", "AIC": card})
            for place, (uuid, card) in enumerate(cards_of.items())
        )
    )
    assert taken(fit.place(dies, asking(one("Vastai", count=2)))) == [["v4", "v2"]]
    four = placed(fit.place(dies, asking(one("Vastai", count=4))))
    assert [sorted(rows) for rows in taken(four)] == [["v1", "v2", "v3", "v4"]]
    assert four.score == 0.75
    assert taken(fit.place(dies, asking(one("Vastai")))) == [["v4"]]
    assert refused(fit.place(dies, asking(one("Vastai", count=6)))) == "NodeInsufficientDevice"


# --- Ascend --------------------------------------------------------------------------------------


def chips(networks: Sequence[int | None], vendor: str = "Ascend910B4", **facts: Any) -> FitNode:
    return node(
        *(
            device(
                f"c{place}",
                vendor,
                index=place,
                order=place,
                custom={} if network is None else {"NetworkID": network},
                **facts,
            )
            for place, network in enumerate(networks)
        )
    )


def test_several_chips_come_from_one_network_where_they_can() -> None:
    ask = asking(one("Ascend910B4", count=2, memory_percent=100))
    placement = placed(fit.place(chips([0, 1, 0, 0, 1]), ask))
    assert [sorted(rows) for rows in taken(placement)] == [["c2", "c3"]]
    assert placement.score == 10.0
    three = placed(fit.place(chips([0, 0, 1, 1]), asking(one("Ascend910B4", count=3, memory_percent=100))))
    assert three.score == pytest.approx(20 / 3, rel=1e-6)


def test_networks_are_left_aside_where_one_chip_names_none() -> None:
    ask = asking(one("Ascend910B4", count=2, memory_percent=100))
    assert taken(fit.place(chips([0, 0, 1, None]), ask)) == [["c3", "c2"]]
    ask = asking(one("Ascend310P", count=2, memory_percent=100))
    assert taken(fit.place(chips([0, 0, 1, 1, 0], "Ascend310P"), ask)) == [["c4", "c3"]]


def test_whole_modules_only() -> None:
    used = chips([None] * 6, "Ascend910C")
    busy = FitNode("n1", (replace(used.devices[0], cordoned=True), *used.devices[1:]))
    ask = asking(one("Ascend910C", count=2, memory_percent=100))
    assert [sorted(rows) for rows in taken(fit.place(busy, ask))] == [["c4", "c5"]]
    halves = FitNode("n1", (busy.devices[0], busy.devices[1], busy.devices[2]))
    message = "1/3 CardCordoned, 2/3 CardNotFoundCustomFilterRule"
    assert refused(fit.place(halves, ask)) == message


SOFT = {"huawei.com/vnpu-mode": "hami-core"}


@pytest.mark.parametrize(
    ("switch", "fits"), [("true", True), ("false", False), ("True", False), (None, False)]
)
def test_soft_split_needs_a_node_that_offers_it(switch: str | None, fits: bool) -> None:
    offered = replace(
        chips([None], cores=20), annotations={} if switch is None else {"hami-vnpu-core": switch}
    )
    ask = asking(one("Ascend910B4", memory_mib=100, cores=50), annotations=SOFT)
    verdict = fit.place(offered, ask)
    assert isinstance(verdict, fit.Placement) is fits
    assert fits or refused(verdict) == "1/1 ModeNotFit"


def test_soft_split_may_be_the_clusters_own_choice() -> None:
    soft = replace(BY_KEY["Ascend910B4"], request={**BY_KEY["Ascend910B4"].request, "soft_split": True})
    ask = asking(one("Ascend910B4", memory_mib=100, cores=50), annotations=SOFT, vendors=[soft])
    placed(fit.place(chips([None], cores=20), ask))
    refusing = replace(chips([None], cores=20), annotations={"hami-vnpu-core": "no"})
    assert refused(fit.place(refusing, ask)) == "1/1 ModeNotFit"


def test_without_soft_split_a_chip_has_its_own_cores() -> None:
    ask = asking(one("Ascend910B4", memory_mib=100, cores=50))
    assert refused(fit.place(chips([None], cores=20), ask)) == "1/1 CardInsufficientCore"


# --- all of them ---------------------------------------------------------------------------------

PLAIN_VENDORS = [vendor.key for vendor in VENDORS if vendor.key != NEURON]
customs: Any = st.fixed_dictionaries(
    {
        "NetworkID": st.integers(0, 1),
        "AIC": st.sampled_from("AB"),
        "DeviceStrategy": st.sampled_from(("die", "card")),
        "linkZone": st.integers(0, 2),
        "qosPolicy": st.sampled_from(("", "best-effort")),
        "profiles": st.just({"1g.2gb": "0", "2g.4gb": "1", "4g.8gb": "2"}),
    }
)


@st.composite
def offers(draw: st.DrawFn, vendor: str) -> FitNode:
    """Eight cards at most, used within their totals."""
    found = []
    for place in range(draw(st.integers(1, 8))):
        used = draw(st.integers(0, 3))
        found.append(
            device(
                f"d{place}",
                vendor,
                slots=6,
                memory_mib=8192,
                used=used,
                used_memory_mib=2048 * draw(st.integers(0, used)),
                used_cores=draw(st.integers(0, 100)) if used else 0,
                index=place,
                order=place,
                healthy=draw(st.integers(0, 9)) > 0,
                tenants=("",) * used,
                custom=draw(customs),
            )
        )
    return node(*found)


@st.composite
def asks(draw: st.DrawFn, vendor: str) -> Ask:
    """Every class in every order."""
    kinds = [
        *draw(st.lists(st.sampled_from((INIT, SIDECAR)), max_size=3)),
        APP,
        *draw(st.sampled_from(((), (APP,)))),
    ]
    request = st.builds(
        DeviceRequest,
        st.just(vendor),
        st.sampled_from((1, 1, 2, 4)),
        st.sampled_from((0, 2, 2048, 4096)),
        st.sampled_from((50, 100)),
        st.sampled_from((0, 10, 50, 100)),
    )
    policy = draw(st.sampled_from(("binpack", "spread", "mutex")))
    return asking(*(draw(st.none() | request) for _ in kinds), kinds=kinds, gpu_policy=policy)


@pytest.mark.parametrize("vendor", PLAIN_VENDORS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_vendor_exceeds_a_card_nor_the_books(vendor: str, data: st.DataObject) -> None:
    offered, ask = data.draw(offers(vendor)), data.draw(asks(vendor))
    room = data.draw(st.sampled_from((UNLIMITED, Room.of([(vendor, Dimension.MEMORY, 6000)]))))
    verdict = fit.place(offered, ask, room)
    if isinstance(verdict, fit.Misfit):
        assert verdict.message
        assert verdict.reasons
        return
    containers = [Container(one.position, one.name, one.kind) for one in ask.containers]
    assert footprint_of_pod(containers, verdict.allocations, BY_KEY).effective == verdict.charge
    assert room.admits(vendor, verdict.charge.total.memory_mib, 0)
    by_uuid = {one.uuid: one for one in offered.devices}
    for allocation in verdict.allocations.values():
        running = footprint_of([]).steady
        for container, rows in zip(ask.containers, allocation.groups, strict=True):
            usage = held_by_rows(rows, allocation, BY_KEY[vendor])
            for key, amount in running.plus(usage).items():
                assert by_uuid[key.uuid].used.plus(amount).fits_in(by_uuid[key.uuid].total)
            running = running if container.kind is INIT else running.plus(usage)
            assert len(rows) == sum(request.count for request in container.requests)
            assert len({row.uuid for row in rows}) == len(rows)
    claim = {key: allocation.groups for key, allocation in verdict.allocations.items()}
    again = fit.verify(offered, ask, room, claim)
    assert isinstance(again, fit.Placement), again
    assert again.charge == verdict.charge


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from((INIT, SIDECAR)), st.integers(1, 4)), max_size=3),
    st.sampled_from(("inf2", "trn1")),
)
def test_no_core_is_given_twice_at_one_time(
    sets: list[int], containers: list[tuple[ContainerClass, int]], instance: str
) -> None:
    offered = neurons(len(sets), instance, sets=sets)
    kinds = [*(kind for kind, _ in containers), APP]
    wanted = [cores_of(total) if total in (1, 2, 4) else devices_of(1) for _, total in containers]
    verdict = fit.place(offered, asking(*wanted, cores_of(1), kinds=kinds))
    if isinstance(verdict, fit.Misfit):
        assert verdict.reasons
        return
    taken_now = {f"a{place}": mask for place, mask in enumerate(sets)}
    for kind, rows in zip(kinds, verdict.allocations[NEURON].groups, strict=True):
        for row in rows:
            assert not taken_now[row.uuid] & row.cores
            assert row.cores < 4
            if kind is not INIT:
                taken_now[row.uuid] |= row.cores

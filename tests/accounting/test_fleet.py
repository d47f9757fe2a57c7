"""The columns say of every node what `fit.place` says: the same verdict, the same words, the same order."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hamiacct import config
from hamiacct.accounting import fit
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import UNLIMITED, Ask, ContainerAsk, Room
from hamiacct.accounting.devices import MigProfile, Placement
from hamiacct.accounting.fleet import Fleet, Judgement, device_scores, node_scores
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import ContainerClass, DeviceKey
from hamiacct.accounting.policies import (
    EVEN,
    SPREAD,
    Asked,
    Load,
    NodePolicy,
    Weights,
    device_policy_of,
    device_score,
    node_score,
)
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.selectors import ANYTHING, Choice

VENDORS = {vendor.key: vendor for vendor in config.read_vendors()}
INIT, SIDECAR = ContainerClass.INIT, ContainerClass.SIDECAR
COMMON = ("NVIDIA",) * 8 + ("MLU", "MLU", "AMD", "AMD", "Ascend310P", "Ascend310P")
OTHERS = (
    "Mthreads",
    "DCU",
    "Metax-GPU",
    "Metax-SGPU",
    "GCU",
    "Biren",
    "AWSNeuron",
    "Ascend910B4",
    "Ascend910C",
)
KEYS = (*COMMON, *OTHERS)
MIG = (
    MigProfile("1g.10gb", 10, 14, 1, tuple(Placement(start, 1) for start in range(4))),
    MigProfile("2g.20gb", 20, 28, 2, (Placement(0, 2), Placement(2, 2))),
)
IN_USE = ((), (), (Placement(0, 2),), (Placement(3, 1), Placement(0, 1)), (Placement(0, 2), Placement(2, 2)))
MEMORIES = (0, 10, 20, 40, 33)
CORES = (100, 100, 8, 0, 50)
UUIDS = tuple(f"GPU-{letter}" for letter in "abcdef")
POLICIES = (
    "binpack",
    "spread",
    "numa",
    "mutex",
    "topology-aware",
    "binpack,numa",
    "numa,spread",
    "mutex,binpack",
    "spread,topology-aware",
)

# --- random fleets -------------------------------------------------------------------------------
# Drawn by a seeded generator: it makes many more nodes and pods in the same time than strategies do.

Case = tuple[list[FitNode], Ask, Room]


def one_in(number: int, chance: Random) -> bool:
    return chance.randrange(number) == 0


def a_mig_card(chance: Random) -> dict[str, Any]:
    """What makes a device a MIG card."""
    return {"mode": "mig", "mig_profiles": MIG, "mig_in_use": chance.choice(IN_USE)}


def an_odd_device(chance: Random, uuid: str, order: int) -> FitDevice:
    """A device of any vendor, with anything that may be wrong with it."""
    vendor = chance.choice(KEYS)
    total = Amount(chance.choice((1, 2, 4, 10, 0)), chance.choice((40, 40, 80, 0)), chance.choice(CORES))
    used = Amount()
    if not one_in(3, chance):
        used = Amount(chance.randint(0, total.slots + 1), chance.choice(MEMORIES), chance.choice(CORES))
    if VENDORS[vendor].cores_kind == "set":
        used = Amount.of_core_set(used.slots, used.memory_mib, chance.getrandbits(8))
    device = FitDevice(
        uuid,
        vendor,
        total,
        used,
        index=chance.randint(0, 4),
        order=order,
        model=chance.choice((vendor, "NVIDIA A100", "A10")),
        numa=chance.choice((0, 0, 1, -1)),
        mode=chance.choice(("", "", "hami-core")),
        healthy=not one_in(5, chance),
        cordoned=one_in(5, chance),
        custom=chance.choice(({}, {"linkZone": 1, "NetworkID": 1})),
    )
    return replace(device, **a_mig_card(chance)) if one_in(5, chance) else device


def a_node(chance: Random, name: str, vendor: str) -> FitNode:
    """Most have cards of one vendor, equal but for their usage and nearly all in order; some are odd."""
    number = chance.randint(1, 6)
    if one_in(4, chance):
        number = chance.randint(0, 6)
        uuids = chance.sample(UUIDS, number)
        if number and one_in(10, chance):
            uuids = uuids[:1] * number
        found = [an_odd_device(chance, uuid, order) for order, uuid in enumerate(uuids)]
        if found and one_in(10, chance):
            found[0] = replace(found[0], total=Amount(2**40, 2**40, 2**40))
    else:
        total = Amount(
            chance.choice((1, 2, 3, 10)), chance.choice((40, 80, 99)), chance.choice((100, 100, 8))
        )
        order_is_index, has_mig = chance.random() < 0.7, vendor == "NVIDIA" and one_in(3, chance)
        busy = chance.random()
        found = [
            FitDevice(
                uuid,
                vendor,
                total,
                Amount()
                if chance.random() > busy
                else Amount(chance.randint(1, 2), chance.choice(MEMORIES), chance.choice((0, 5, 10, 50))),
                index=order if order_is_index else chance.randint(0, 3),
                order=order,
                model=chance.choice((vendor, vendor, vendor, "A100")),
                numa=chance.randint(0, 1),
                healthy=not one_in(15, chance),
                cordoned=one_in(15, chance),
            )
            for order, uuid in enumerate(UUIDS[:number])
        ]
        if has_mig:
            found = [replace(one, **a_mig_card(chance)) if one_in(2, chance) else one for one in found]
    links = {}
    if one_in(3, chance):
        links = {
            one.uuid: {other.uuid: chance.randint(0, 4) for other in found if other is not one}
            for one in found
        }
    return FitNode(name, tuple(found), links)


def some_nodes(chance: Random, vendor: str = "NVIDIA", most: int = 12) -> list[FitNode]:
    names = [f"n{number}" for number in range(chance.randint(1, most))]
    chance.shuffle(names)
    return [a_node(chance, name, vendor) for name in names]


# --- random pods ---------------------------------------------------------------------------------


def a_request(chance: Random, vendor: str) -> DeviceRequest:
    """By amount, by percentage, whole cards, or nothing but a share; half of them small."""
    if one_in(2, chance):
        return DeviceRequest(
            vendor,
            chance.randint(1, 2),
            chance.choice((0, 5, 10)),
            chance.choice((101, 20)),
            chance.choice((0, 10)),
        )
    return DeviceRequest(
        vendor,
        chance.choice((1, 1, 1, 2, 2, 3, 4, 9)),
        memory_mib=chance.choice((0, 0, 10, 20, 33, 41)),
        memory_percent=chance.choice((101, 101, 100, 50, 33, 0)),
        cores=chance.choice((0, 0, 10, 50, 100, 100, 150)),
    )


def a_choice(chance: Random) -> Choice:
    """Nothing, numa-bind alone, or selectors of any sort."""
    if one_in(2, chance):
        return ANYTHING
    if one_in(2, chance):
        return Choice(numa_bind=True)
    return Choice(
        use_uuids=chance.choice(((), (), (frozenset(chance.sample(UUIDS, 4)),), (frozenset(), frozenset()))),
        nouse_uuids=frozenset(chance.sample(UUIDS, chance.choice((0, 0, 1)))),
        use_types=chance.choice(((), (), (("a100",), ("nvidia",)), (("a1", "nv", "mlu"),))),
        nouse_types=chance.choice(((), (), ("a10",), ("ascend", "nvidia a"))),
        numa_bind=one_in(3, chance),
        mode=chance.choice((None, None, None, "hami-core", "mig")),
    )


def an_ask(chance: Random, vendor: str = "NVIDIA") -> Ask:
    """Containers of every class, most of one vendor; half of the pods have one."""
    kinds = [ContainerClass.APP]
    if one_in(2, chance):
        inits = [chance.choice((INIT, SIDECAR)) for _ in range(chance.randint(0, 3))]
        kinds = [*inits, *kinds * chance.randint(1, 3)]
    keys = [chance.choice(((vendor,),) * 5 + ((), ("MLU",), ("NVIDIA", "MLU"))) for _ in kinds]
    containers = tuple(
        ContainerAsk(place, f"c{place}", kind, tuple(a_request(chance, key) for key in keys[place]))
        for place, kind in enumerate(kinds)
    )
    in_play = {key for of_one in keys for key in of_one} - ({"MLU"} if one_in(30, chance) else set())
    return Ask(
        containers,
        {key: VENDORS[key] for key in VENDORS if key in in_play},
        {key: a_choice(chance) for key in in_play},
        SPREAD if one_in(3, chance) else device_policy_of(chance.choice(POLICIES)),
        chance.choice(tuple(NodePolicy)),
        chance.choice((EVEN, EVEN, Weights(2, 1, 3), Weights(0, 0, 2**62), Weights(0, 1, 0))),
    )


def a_room(chance: Random, vendor: str) -> Room:
    """None, or little of one vendor or of two."""
    if one_in(2, chance):
        return UNLIMITED
    keys = [(key, dimension) for key in {vendor, "MLU"} for dimension in Dimension]
    return Room({key: chance.randint(-5, chance.choice((20, 60, 150))) for key in keys if one_in(2, chance)})


def a_case(seed: int) -> Case:
    chance = Random(seed)
    vendor = chance.choice(KEYS)
    return some_nodes(chance, vendor), an_ask(chance, vendor), a_room(chance, vendor)


seeds = st.integers(0, 2**64 - 1)
cases = seeds.map(a_case)
chances = seeds.map(Random)

# --- the properties ------------------------------------------------------------------------------


def judged_one_by_one(nodes: Iterable[FitNode], ask: Ask, room: Room) -> Judgement:
    """What the definition says of every node."""
    found = [fit.place(node, ask, room) for node in nodes]
    placements = [verdict for verdict in found if isinstance(verdict, fit.Placement)]
    misfits = [verdict for verdict in found if isinstance(verdict, fit.Misfit)]
    judgement = Judgement(tuple(fit.order_placements(placements, ask.node_policy)))
    judgement.__dict__["failed"] = tuple(sorted(misfits, key=lambda misfit: misfit.node))
    return judgement


def same(judgement: Judgement, expected: Judgement, limit: int = 100) -> None:
    """Equal, verdict by verdict."""
    assert judgement.failed == expected.failed
    assert judgement.candidates == expected.candidates[:limit]
    devices = [one.devices for one in judgement.candidates]
    assert devices == [one.devices for one in expected.candidates[:limit]]


@given(cases)
@settings(max_examples=2000, deadline=None)
def test_every_node_is_judged_as_the_definition_judges_it(case: Case) -> None:
    fleet, ask, room = case
    same(Fleet.of(fleet).judge(ask, room, limit=100, verdicts=True), judged_one_by_one(fleet, ask, room))


sizes = st.integers(0, 2**31) | st.integers(0, 100)
loads = st.builds(Load, sizes, sizes, sizes)
weights = st.just(EVEN) | st.builds(Weights, *[st.integers(0, 9) | st.integers(0, 2**63 - 1)] * 3)


@given(loads, loads, st.builds(Asked, st.integers(0, 4), sizes, sizes), weights)
@settings(max_examples=500, deadline=None)
def test_scores_are_the_same_to_the_last_bit(used: Load, total: Load, asked: Asked, weights: Weights) -> None:
    columns = [np.array(amount, np.int64)[:, np.newaxis] for amount in (used, total, asked)]
    assert node_scores(columns[0], columns[1]).tolist() == [node_score(used, total)]
    assert device_scores(*columns, weights).tolist() == [device_score(used, total, asked, weights)]


@given(cases, st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_the_best_nodes_are_the_first_of_all_that_fit(case: Case, limit: int) -> None:
    fleet, ask, room = case
    expected = judged_one_by_one(fleet, ask, room)
    judgement = Fleet.of(fleet).judge(ask, room, limit=limit)
    assert judgement.candidates == expected.candidates[:limit]
    assert judgement.failed == (() if expected.candidates else expected.failed)


@given(cases, st.sets(st.sampled_from(("n0", "n1", "n2", "n99"))))
@settings(max_examples=100, deadline=None)
def test_only_the_nodes_in_question_are_judged_and_unknown_ones_are_unregistered(
    case: Case, names: set[str]
) -> None:
    fleet, ask, room = case
    known = {node.name: node for node in fleet}
    asked = [known.get(name, FitNode(name)) for name in sorted(names)]
    judgement = Fleet.of(fleet).judge(ask, room, [*names, *names], limit=100, verdicts=True)
    same(judgement, judged_one_by_one(asked, ask, room))


@given(cases, chances, st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_node_can_be_judged_as_it_is_given(case: Case, chance: Random, verdicts: bool) -> None:
    fleet, ask, room = case
    others = some_nodes(chance)
    both = {node.name: node for node in (*fleet, *others)}.values()
    expected = judged_one_by_one(both, ask, room)
    judgement = Fleet.of(fleet).judge(ask, room, limit=2, verdicts=verdicts, instead=others)
    assert judgement.candidates == expected.candidates[:2]
    assert judgement.failed == (expected.failed if verdicts or not expected.candidates else ())


def copies_one_by_one(node: FitNode, ask: Ask, at_most: int) -> int:
    """How many the definition places on a node, one after the other."""
    for number in range(at_most):
        found = fit.place(node, ask)
        if isinstance(found, fit.Misfit):
            return number
        node = replace(
            node,
            devices=tuple(
                replace(
                    device,
                    used=device.used.plus(found.charge[DeviceKey(node.name, device.uuid, device.vendor)]),
                )
                for device in node.devices
            ),
        )
    return at_most


@given(cases)
@settings(max_examples=300, deadline=None)
def test_copies_are_counted_as_the_definition_places_them(case: Case) -> None:
    fleet, ask, _ = case
    known = {node.name: node for node in fleet}
    names = [*known, "n99"]
    counted = list(Fleet.of(fleet).copies(ask, names, 6))
    assert [name for name, _ in counted] == names
    for name, count in counted:
        if count is not None:
            assert count == copies_one_by_one(known[name], ask, 6), name


@given(cases)
@settings(max_examples=200, deadline=None)
def test_the_first_taker_is_the_first_that_the_definition_places_on(case: Case) -> None:
    nodes, ask, room = case
    fleet = Fleet.of(nodes)
    names, start = ["n99", *(node.name for node in nodes)], 0
    takers = []
    while start < len(names):
        number = start + fleet.first_taker(ask, room, names[start:])
        takers += names[number : number + 1]
        start = number + 1
    taking = [node.name for node in nodes if isinstance(fit.place(node, ask, room), fit.Placement)]
    assert [name for name in takers if name in taking] == taking


@given(cases, st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_quotas_out_of_reach_refuse_none_of_so_many(case: Case, pods: int) -> None:
    nodes, ask, room = case
    if not Fleet.of(nodes).limits(ask, room, pods):
        same(
            Fleet.of(nodes).judge(ask, limit=100, verdicts=True),
            judged_one_by_one(nodes, ask, room),
        )


@given(cases, chances)
@settings(max_examples=100, deadline=None)
def test_nodes_come_change_and_go(case: Case, chance: Random) -> None:
    first, ask, room = case
    fleet, expected = Fleet.of(first), {node.name: node for node in first}
    for _ in range(3):
        was, changed = fleet, some_nodes(chance, most=3)
        gone = {f"n{chance.randint(0, 12)}" for _ in range(chance.randint(0, 3))}
        fleet = fleet.with_nodes(changed, gone)
        assert list(map(was.node, expected)) == list(expected.values())
        latest = {node.name: node for node in changed}
        expected = {name: node for name, node in expected.items() if name not in gone} | latest
    assert {name: fleet.node(name) for name in expected} == expected
    assert len(fleet) == len(expected)
    same(fleet.judge(ask, room, limit=100, verdicts=True), judged_one_by_one(expected.values(), ask, room))


@given(cases, chances)
@settings(max_examples=200, deadline=None)
def test_usage_changes_device_by_device(case: Case, chance: Random) -> None:
    first, ask, room = case
    fleet, expected = Fleet.of(first), {node.name: node for node in first}
    for _ in range(2):
        changes = [
            (f"n{chance.randint(0, 6)}", chance.choice(UUIDS), an_amount(chance))
            for _ in range(chance.randint(0, 6))
        ]
        fleet, unknown = fleet.with_usage(changes)
        here = {(node.name, device.uuid) for node in first for device in node.devices}
        assert unknown == [(name, uuid) for name, uuid, _ in changes if (name, uuid) not in here]
        latest = {(name, uuid): used for name, uuid, used in changes}
        for node in expected.values():
            devices = tuple(
                replace(device, used=latest.get((node.name, device.uuid), device.used))
                for device in node.devices
            )
            expected[node.name] = replace(node, devices=devices)
    assert {name: fleet.node(name) for name in expected} == expected
    same(fleet.judge(ask, room, limit=100, verdicts=True), judged_one_by_one(expected.values(), ask, room))


def an_amount(chance: Random) -> Amount:
    """What is used of a device; seldom with named cores."""
    if one_in(4, chance):
        return Amount.of_core_set(chance.randint(0, 4), 0, chance.getrandbits(8))
    return Amount(chance.randint(0, 4), chance.choice(MEMORIES), chance.choice(CORES))


def test_many_nodes_can_be_given_and_many_kinds_of_cards_are_forgotten() -> None:
    total = Amount(1, 80, 100)
    ask = ask_for(DeviceRequest("NVIDIA", 1, 80))

    def named(generation: int) -> list[FitNode]:
        model = f"model-{generation}-"
        return [
            FitNode(f"n{number}", (FitDevice("GPU-0", "NVIDIA", total, model=f"{model}{number}"),))
            for number in range(600)
        ]

    fleet = Fleet.of(named(0)).with_nodes(named(1)).with_nodes(named(2))
    chosen = replace(ask, choices={"NVIDIA": Choice(use_types=(("model-2-599",),))})
    judgement = fleet.judge(chosen, limit=2, verdicts=True)
    assert [placement.node for placement in judgement.candidates] == ["n599"]
    assert [refusal.message for refusal in judgement.refusals] == ["1/1 CardTypeMismatch"]
    again = fleet.judge(ask, limit=700, verdicts=True, instead=[FitNode(f"n{place}") for place in range(599)])
    assert [placement.node for placement in again.candidates] == ["n599"]
    assert [refusal.message for refusal in again.refusals] == ["node unregistered"]


def ask_for(request: DeviceRequest) -> Ask:
    """A pod of one container."""
    return Ask((ContainerAsk(0, "c0", ContainerClass.APP, (request,)),), {"NVIDIA": VENDORS["NVIDIA"]})


def test_the_one_free_card_of_many_nodes_is_found() -> None:
    full = Amount(10, 80, 100)
    nodes = [
        FitNode(f"n{number}", tuple(FitDevice(f"GPU-{card}", "NVIDIA", full, full) for card in range(8)))
        for number in range(1000)
    ]
    free = replace(nodes[777], devices=(*nodes[777].devices[:7], FitDevice("GPU-7", "NVIDIA", full)))
    ask = ask_for(DeviceRequest("NVIDIA", 1, 80, cores=100))
    fleet = Fleet.of(nodes).with_nodes([free])
    (found,) = fleet.judge(ask).candidates
    assert (found.node, [key.uuid for key in found.charge]) == ("n777", ["GPU-7"])
    assert fleet.judge(ask, limit=3, verdicts=True).refusals[0].message == "8/8 CardTimeSlicingExhausted"
    assert not Fleet.of(nodes).judge(ask).candidates


def as_registered(node: FitNode) -> FitNode:
    """A node without what its pods say of its MIG cards and of who is on a card: none is worse for that."""
    devices = [
        replace(device, tenants=(), healthy=True, mig_in_use=()) if device.mode == "mig" else device
        for device in node.devices
    ]
    return replace(node, devices=tuple(devices))


@given(cases, chances, st.integers(1, 5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_nodes_that_the_columns_do_not_know_all_of_are_looked_at(
    case: Case, chance: Random, limit: int, named: bool
) -> None:
    fleet, ask, room = case
    unsure = {node.name: node for node in fleet if chance.random() < 0.5}
    gone = {name for name in unsure if one_in(9, chance)}
    known = Fleet.of(as_registered(node) if node.name in unsure else node for node in fleet)
    truth = Fleet.of(FitNode(node.name) if node.name in gone else node for node in fleet)
    looked: list[str] = []

    def look(names: Iterable[str]) -> dict[str, FitNode]:
        looked.extend(names)
        return {name: unsure[name] for name in names if name not in gone}

    names = [node.name for node in fleet if chance.random() < 0.7] if named else None
    expected = truth.judge(ask, room, names, limit=limit)
    found = known.judge(ask, room, names, limit=limit, unsure=unsure, look=look)
    assert [one.node for one in found.candidates] == [one.node for one in expected.candidates]
    assert found.candidates == expected.candidates
    assert len(set(looked)) == len(looked)
    assert set(looked) <= unsure.keys() if names is None else set(looked) <= unsure.keys() & set(names)

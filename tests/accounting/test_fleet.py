"""The columns say of every node what `fit.place` says: the same verdict, the same words, the same order."""

from collections.abc import Iterable
from dataclasses import replace

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
from hamiacct.accounting.pods import ContainerClass
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
COMMON = ("NVIDIA", "NVIDIA", "NVIDIA", "MLU")
OTHERS = (
    "Mthreads",
    "DCU",
    "Iluvatar",
    "Metax-GPU",
    "Metax-SGPU",
    "AMD",
    "GCU",
    "Biren",
    "AWSNeuron",
    "Ascend310P",
    "Ascend910B4",
)
KEYS = tuple(key for key in (*COMMON, *OTHERS) if key in VENDORS)
MIG = (
    MigProfile("1g.10gb", 10, 14, 1, tuple(Placement(start, 1) for start in range(4))),
    MigProfile("2g.20gb", 20, 28, 2, (Placement(0, 2), Placement(2, 2))),
)
IN_USE = ((), (), (Placement(0, 2),), (Placement(3, 1), Placement(0, 1)), (Placement(0, 2), Placement(2, 2)))
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

few = st.integers(0, 4)
memories = st.sampled_from((0, 10, 20, 40, 33))
cores = st.sampled_from((0, 10, 50, 100))


@st.composite
def devices(draw: st.DrawFn, uuid: str, order: int) -> FitDevice:
    """A device of a few sizes, so that ties are common and things run out."""
    vendor = draw(st.sampled_from(KEYS))
    total = Amount(
        draw(st.sampled_from((1, 2, 4, 10, 0))),
        draw(st.sampled_from((40, 40, 80, 0))),
        draw(st.sampled_from((100, 100, 8, 0))),
    )
    used = draw(
        st.just(Amount())
        | st.builds(
            Amount, st.integers(0, total.slots + 1), memories, st.sampled_from((0, total.cores, 10, 50))
        )
    )
    named = VENDORS[vendor].cores_kind == "set"
    if named:
        used = Amount.of_core_set(used.slots, used.memory_mib, draw(st.integers(0, 255)))
    mode = draw(st.sampled_from(("", "", "", "hami-core", "mig"))) if vendor == "NVIDIA" else ""
    return FitDevice(
        uuid=uuid,
        vendor=vendor,
        total=total,
        used=used,
        index=draw(few),
        order=order,
        model=draw(st.sampled_from((vendor, "NVIDIA A100", "A10"))),
        numa=draw(st.sampled_from((0, 0, 1, -1))),
        mode=mode,
        healthy=draw(st.sampled_from((True, True, True, True, False))),
        cordoned=draw(st.sampled_from((False, False, False, False, True))),
        mig_profiles=MIG if mode == "mig" else (),
        mig_in_use=draw(st.sampled_from(IN_USE)) if mode == "mig" else (),
        custom=draw(st.sampled_from(({}, {"linkZone": 1, "NetworkID": 1}))),
    )


@st.composite
def roomy_nodes(draw: st.DrawFn, name: str, vendor: str) -> FitNode:
    """A node like most: cards of one vendor, equal but for their usage, nearly all of them fit for use."""
    modes = ("", "", "mig") if vendor == "NVIDIA" and draw(st.booleans()) else ("",)
    number = draw(st.integers(2, 6))
    total = Amount(draw(st.integers(2, 10)), draw(st.sampled_from((40, 80, 99))), 100)
    usages = st.just(Amount()) | st.builds(Amount, st.integers(1, 2), memories, st.sampled_from((0, 10, 50)))
    state = st.sampled_from((*[(True, False)] * 10, (False, False), (True, True)))
    found = []
    for order, uuid in enumerate(UUIDS[:number]):
        healthy, cordoned = draw(state)
        used, numa, mode = draw(usages), draw(st.integers(0, 1)), draw(st.sampled_from(modes))
        found.append(
            FitDevice(
                uuid,
                vendor,
                total,
                used,
                order,
                order,
                vendor,
                numa,
                mode,
                healthy=healthy,
                cordoned=cordoned,
                mig_profiles=MIG if mode else (),
                mig_in_use=draw(st.sampled_from(IN_USE)) if mode else (),
            )
        )
    return FitNode(name, tuple(found))


@st.composite
def odd_nodes(draw: st.DrawFn, name: str) -> FitNode:
    """A node with up to six devices of all sorts; uuids occur on other nodes too, seldom twice on one."""
    number = draw(st.sampled_from((0, 1, 2, 3, 4, 4, 6)))
    uuids = draw(st.permutations(UUIDS))[:number]
    if number and draw(st.integers(0, 30)) == 0:
        uuids = [uuids[0]] * number
    found = tuple(draw(devices(uuid, order)) for order, uuid in enumerate(uuids))
    if draw(st.booleans()):
        found = tuple(replace(device, vendor="NVIDIA", mode="") for device in found)
    if number and draw(st.integers(0, 30)) == 0:
        found = (replace(found[0], total=Amount(2**40, 2**40, 2**40)), *found[1:])
    links = {one: {other: draw(few) for other in uuids} for one in uuids} if draw(st.booleans()) else {}
    return FitNode(name, found, links)


@st.composite
def fleets(draw: st.DrawFn, vendor: str = "NVIDIA") -> list[FitNode]:
    """A few nodes, most of one vendor."""
    names = draw(st.permutations([f"n{number}" for number in range(draw(st.integers(1, 5)))]))
    return [
        draw(st.one_of(roomy_nodes(name, vendor), roomy_nodes(name, vendor), odd_nodes(name)))
        for name in names
    ]


# --- random pods ---------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn, vendor: str) -> DeviceRequest:
    """By amount, by percentage, whole cards, or nothing but a share; half of them small."""
    if draw(st.booleans()):
        return DeviceRequest(
            vendor,
            draw(st.integers(1, 2)),
            draw(st.sampled_from((0, 5, 10))),
            draw(st.sampled_from((101, 20))),
            draw(st.sampled_from((0, 10))),
        )
    return DeviceRequest(
        vendor,
        draw(st.sampled_from((1, 1, 1, 2, 2, 3, 4, 9))),
        memory_mib=draw(st.sampled_from((0, 0, 10, 20, 33, 41))),
        memory_percent=draw(st.sampled_from((101, 101, 100, 50, 33, 0))),
        cores=draw(st.sampled_from((0, 0, 10, 50, 100, 100, 101))),
    )


@st.composite
def asks(draw: st.DrawFn, vendor: str = "NVIDIA") -> Ask:
    """Containers of every class, most of one vendor; half of the pods have one that matters."""
    inits = draw(st.lists(st.sampled_from((ContainerClass.INIT, ContainerClass.SIDECAR)), max_size=3))
    kinds = [*inits, *[ContainerClass.APP] * draw(st.integers(1, 3))]
    if draw(st.booleans()):
        kinds = [ContainerClass.APP]
    asked = []
    for position, kind in enumerate(kinds):
        keys = draw(
            st.sampled_from(
                ((vendor,), (vendor,), (vendor,), (vendor,), (vendor,), (), ("MLU",), ("NVIDIA", "MLU"))
            )
        )
        asked.append(ContainerAsk(position, f"c{position}", kind, tuple(draw(requests(key)) for key in keys)))
    in_play = {request.vendor for container in asked for request in container.requests}
    if draw(st.integers(0, 30)) == 0:
        in_play -= {"MLU"}
    return Ask(
        tuple(asked),
        {key: VENDORS[key] for key in VENDORS if key in in_play},
        {key: draw(choices) for key in in_play},
        draw(st.just(SPREAD) | st.sampled_from(POLICIES).map(device_policy_of)),
        draw(st.sampled_from(NodePolicy)),
        draw(st.just(EVEN) | st.builds(Weights, few, few, st.integers(1, 3)) | st.just(Weights(0, 0, 2**62))),
    )


some_uuids = st.frozensets(st.sampled_from(UUIDS), max_size=4)
types = st.sampled_from(((("a100",), ("nvidia",)), (("a10",),), (("nvidia", "mlu"),)))
choices = st.just(ANYTHING) | st.builds(
    Choice,
    use_uuids=st.lists(some_uuids, max_size=2).map(tuple),
    nouse_uuids=st.just(frozenset()) | some_uuids,
    use_types=st.just(()) | types,
    nouse_types=st.sampled_from(((), (), ("a10",), ("nvidia a",))),
    numa_bind=st.booleans(),
    mode=st.sampled_from((None, None, None, "hami-core", "mig")),
)
plain_choices = st.builds(Choice, numa_bind=st.booleans())
choices = st.one_of(st.just(ANYTHING), plain_choices, choices)

rooms = st.just(UNLIMITED) | st.builds(
    Room,
    st.dictionaries(
        st.tuples(st.sampled_from(("NVIDIA", "NVIDIA", "MLU", "AMD")), st.sampled_from(Dimension)),
        st.integers(-5, 200) | st.integers(0, 60),
    ),
)


Case = tuple[list[FitNode], Ask]
of_one_vendor = st.sampled_from(COMMON) | st.sampled_from(KEYS)
cases = of_one_vendor.flatmap(lambda vendor: st.tuples(fleets(vendor), asks(vendor)))

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


@given(cases, rooms)
@settings(max_examples=500, deadline=None)
def test_every_node_is_judged_as_the_definition_judges_it(case: Case, room: Room) -> None:
    fleet, ask = case
    same(Fleet.of(fleet).judge(ask, room, limit=100, verdicts=True), judged_one_by_one(fleet, ask, room))


sizes = st.integers(0, 2**31) | st.integers(0, 100)
loads = st.builds(Load, sizes, sizes, sizes)
weights = st.just(EVEN) | st.builds(Weights, *[st.integers(0, 9) | st.integers(0, 2**63 - 1)] * 3)


@given(loads, loads, st.builds(Asked, few, sizes, sizes), weights)
@settings(max_examples=500, deadline=None)
def test_scores_are_the_same_to_the_last_bit(used: Load, total: Load, asked: Asked, weights: Weights) -> None:
    columns = [np.array(amount, np.int64)[:, np.newaxis] for amount in (used, total, asked)]
    assert node_scores(columns[0], columns[1]).tolist() == [node_score(used, total)]
    assert device_scores(*columns, weights).tolist() == [device_score(used, total, asked, weights)]


@given(cases, rooms, st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_the_best_nodes_are_the_first_of_all_that_fit(case: Case, room: Room, limit: int) -> None:
    fleet, ask = case
    expected = judged_one_by_one(fleet, ask, room)
    judgement = Fleet.of(fleet).judge(ask, room, limit=limit)
    assert judgement.candidates == expected.candidates[:limit]
    assert judgement.failed == (() if expected.candidates else expected.failed)


@given(cases, rooms, st.sets(st.sampled_from(("n0", "n1", "n2", "n9"))))
@settings(max_examples=100, deadline=None)
def test_only_the_nodes_in_question_are_judged_and_unknown_ones_are_unregistered(
    case: Case, room: Room, names: set[str]
) -> None:
    fleet, ask = case
    known = {node.name: node for node in fleet}
    asked = [known.get(name, FitNode(name)) for name in sorted(names)]
    judgement = Fleet.of(fleet).judge(ask, room, [*names, *names], limit=100, verdicts=True)
    same(judgement, judged_one_by_one(asked, ask, room))


@given(fleets(), fleets(), asks(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_node_can_be_judged_as_it_is_given(
    fleet: list[FitNode], others: list[FitNode], ask: Ask, verdicts: bool
) -> None:
    both = {node.name: node for node in (*fleet, *others)}.values()
    expected = judged_one_by_one(both, ask, UNLIMITED)
    judgement = Fleet.of(fleet).judge(ask, limit=2, verdicts=verdicts, instead=others)
    assert judgement.candidates == expected.candidates[:2]
    assert judgement.failed == (expected.failed if verdicts or not expected.candidates else ())


@given(fleets(), st.lists(fleets(), max_size=3), st.sets(st.sampled_from(("n0", "n1", "n3"))), asks(), rooms)
@settings(max_examples=100, deadline=None)
def test_nodes_come_change_and_go(
    first: list[FitNode], changes: list[list[FitNode]], gone: set[str], ask: Ask, room: Room
) -> None:
    fleet, expected = Fleet.of(first), {node.name: node for node in first}
    for changed in changes:
        was = fleet
        fleet = fleet.with_nodes(changed, gone)
        assert list(map(was.node, expected)) == list(expected.values())
        latest = {node.name: node for node in changed}
        expected = {name: node for name, node in expected.items() if name not in gone} | latest
    assert {name: fleet.node(name) for name in expected} == expected
    assert len(fleet) == len(expected)
    same(fleet.judge(ask, room, limit=100, verdicts=True), judged_one_by_one(expected.values(), ask, room))


usages = st.builds(Amount, few, memories, cores) | st.builds(
    Amount.of_core_set, few, few, st.integers(0, 255)
)
usage_rows = st.lists(st.tuples(st.sampled_from(("n0", "n1", "n2")), st.sampled_from(UUIDS), usages))


@given(fleets(), usage_rows, usage_rows, asks(), rooms)
@settings(max_examples=100, deadline=None)
def test_usage_changes_device_by_device(
    first: list[FitNode],
    rows: list[tuple[str, str, Amount]],
    more: list[tuple[str, str, Amount]],
    ask: Ask,
    room: Room,
) -> None:
    fleet, expected = Fleet.of(first), {node.name: node for node in first}
    for changes in (rows, more):
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

"""What the columns save, as multiples of judging one node by the definition in the same run.

The budgets are several times what a quiet machine shows; they catch a column that became a loop.
"""

import random
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
import pytest

from hamiacct import config
from hamiacct.accounting import fit
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import Ask, ContainerAsk, Room
from hamiacct.accounting.fleet import Fleet, Register
from hamiacct.accounting.fleet.inventory import NO_CARD, Kind
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.requests import DeviceRequest

CARDS = 8
TOTAL = Amount(10, 81920, 100)
VENDORS = {vendor.key: vendor for vendor in config.read_vendors() if vendor.key == "NVIDIA"}
APP, INIT, SIDECAR = ContainerClass.APP, ContainerClass.INIT, ContainerClass.SIDECAR


def fleet_of(number: int) -> list[FitNode]:
    """Nodes of eight cards with up to seven pods each, a third of the nodes full."""
    chance = random.Random(number)

    def used(busy: bool) -> Amount:
        pods = 9 if busy else chance.randint(0, 7)
        return Amount(pods, pods * 9000, min(pods * 11, 100))

    def node(place: int) -> FitNode:
        busy = chance.random() < 1 / 3
        return FitNode(
            f"node-{place:05d}",
            tuple(
                FitDevice(f"GPU-{place}-{card}", "NVIDIA", TOTAL, used(busy), card, card, "NVIDIA A100")
                for card in range(CARDS)
            ),
        )

    return [node(place) for place in range(number)]


def ask_of(*containers: tuple[ContainerClass, DeviceRequest]) -> Ask:
    """A pod of these containers."""
    return Ask(
        tuple(
            ContainerAsk(place, f"c{place}", kind, (asked,)) for place, (kind, asked) in enumerate(containers)
        ),
        VENDORS,
    )


def gpus(count: int, memory_mib: int, cores: int = 0) -> DeviceRequest:
    return DeviceRequest("NVIDIA", count, memory_mib, cores=cores)


ONE = ask_of((APP, gpus(1, 9000, 10)))
WHOLE = ask_of((APP, gpus(CARDS, 81920, 100)))
FOUR = ask_of(
    (SIDECAR, gpus(1, 2048)), (INIT, gpus(1, 20480)), (APP, gpus(1, 10240, 10)), (APP, gpus(2, 10240, 10))
)
NARROW = Room({("NVIDIA", Dimension.MEMORY): 50_000})


def milliseconds(call: Callable[[], object], times: int = 7, within: float = 0.3) -> float:
    """The shortest of several over some time, warm: what others do on the machine only adds."""
    call()
    taken: list[float] = []
    while len(taken) < times or sum(taken) < within:
        begun = perf_counter()
        call()
        taken.append(perf_counter() - begun)
    return min(taken) * 1000


@pytest.mark.parametrize("number", [1000, 5000])
def test_a_fleet_is_judged_for_the_price_of_a_few_nodes(number: int) -> None:
    nodes = fleet_of(number)
    fleet = Fleet.of(nodes)
    yardstick = milliseconds(lambda: [fit.place(node, ONE) for node in nodes[:50]]) / 50
    rows = [(node.name, node.devices[0].uuid, Amount(1, 9000, 11)) for node in nodes[:100]]
    budgets: dict[str, tuple[Callable[[], object], float]] = {
        "best node": (lambda: fleet.judge(ONE), 20),
        "best node, every block in vain": (lambda: fleet.judge(WHOLE), 80),
        "every verdict, one container": (lambda: fleet.judge(ONE, limit=5, verdicts=True), 60),
        "every verdict, all refuse": (lambda: fleet.judge(WHOLE, limit=5, verdicts=True), 60),
        "every verdict as a misfit": (lambda: fleet.judge(WHOLE, limit=5, verdicts=True).failed, 200),
        "every verdict, four containers": (lambda: fleet.judge(FOUR, limit=5, verdicts=True), 200),
        "four containers near the quota": (lambda: fleet.judge(FOUR, NARROW, limit=5, verdicts=True), 400),
        "usage of 100 cards": (lambda: fleet.with_usage(rows), 30),
        "10 nodes replaced": (lambda: fleet.with_nodes(nodes[:10]), 60),
        "all columns made": (lambda: Fleet.of(nodes), 0.8 * number),
    }
    sys.stdout.write(f"\n{number} x {CARDS} cards; one node by the definition: {yardstick:.3f} ms\n")
    too_slow = {}
    for name, (call, budget) in budgets.items():
        taken = milliseconds(call)
        sys.stdout.write(f"  {name:34} {taken:8.2f} ms  {taken / yardstick:7.1f} nodes\n")
        if taken > budget * yardstick:
            too_slow[name] = taken / yardstick
    assert not too_slow


def register_of(number: int) -> Register:
    """Nodes of eight cards with up to seven pods each, as a database has them."""
    chance = np.random.default_rng(number)
    cards = number * CARDS
    pods = chance.integers(0, 8, cards)
    place = np.tile(np.arange(CARDS)[::-1], number)
    yes = np.ones(cards, np.bool_)
    return Register(
        names=[f"node-{node:05d}" for node in range(number)],
        number=np.full(number, CARDS),
        uuids=[f"GPU-{card}" for card in range(cards)],
        kinds=(NO_CARD, Kind("NVIDIA", "NVIDIA A100", "")),
        kind=np.ones(cards, np.int64),
        totals=np.repeat([[TOTAL.slots], [TOTAL.memory_mib], [TOTAL.cores]], cards, axis=1),
        used=np.stack((pods, pods * 9000, pods * 11)),
        indexes=place,
        orders=place,
        numa=place // 4,
        healthy=yes,
        cordoned=~yes,
    )


def test_the_best_node_of_many_costs_what_the_best_of_few_does() -> None:
    """Flat from 100 to 20,000 nodes; of 160,000 cards in less than it takes to sort a column of them."""
    fleets = [Fleet.of_register(register_of(number)) for number in (100, 5000, 20_000)]
    one, four = ([milliseconds(partial(fleet.judge, ask)) for fleet in fleets] for ask in (ONE, FOUR))
    column = np.random.default_rng(1).integers(0, 2**40, 160_000)
    yardstick = milliseconds(lambda: np.sort(column))
    sys.stdout.write(f"\n160,000 numbers sorted: {yardstick:.2f} ms\n")
    for fleet, of_one, of_four in zip(fleets, one, four, strict=True):
        sys.stdout.write(f"  {len(fleet):6} nodes: one {of_one:.3f} ms, four {of_four:.3f} ms\n")
    assert max(one) < 3 * one[0]
    assert max(four) < 3 * four[0]
    assert one[-1] < yardstick / 4


def test_a_fleet_is_made_of_columns_for_the_price_of_a_few_nodes() -> None:
    nodes = fleet_of(50)
    yardstick = milliseconds(lambda: [fit.place(node, ONE) for node in nodes]) / len(nodes)
    register = register_of(5000)
    taken = milliseconds(lambda: Fleet.of_register(register))
    sys.stdout.write(f"\n5,000 nodes made of columns: {taken:.1f} ms, {taken / yardstick:.0f} nodes\n")
    assert taken < 1000 * yardstick

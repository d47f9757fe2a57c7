"""How soon a web process answers that was just started; and the largest fleet without a server around it."""

from __future__ import annotations

import random
import statistics
from time import perf_counter

from bench import fleets
from bench.figures import p99_ms
from bench.trial import Trial
from hamiacct import config
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import Ask, ContainerAsk
from hamiacct.accounting.fleet import Fleet
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import ContainerClass
from hamiacct.accounting.requests import DeviceRequest

LARGEST = 20_000
PODS_OF_A_FULL_CARD = 9


def first_answer(trial: Trial) -> None:
    """The web server starts and answers its first fit: since the start, and since it says that it lives."""
    whole, firsts = [], []
    for _ in trial.rounds:
        before = perf_counter()
        trial.stack.restart_web()
        connection = trial.stack.connect()
        lives = perf_counter()
        connection.call("POST", "/api/v1/fit", {"pod": trial.asking(), "verdicts": False})
        firsts.append(perf_counter() - lives)
        whole.append(perf_counter() - before)
        connection.close()
    trial.add("first-fit", "first fit of a process that has just started", "s", firsts)
    trial.add("start", "web server stopped and started, until its first fit is answered", "s", whole)


def in_process(trial: Trial) -> None:
    """The best node of the columns, by the call that the service makes: no server, no database."""
    nodes = _nodes(trial.fleet.nodes)
    before = perf_counter()
    fleet = Fleet.of(nodes)
    made = perf_counter() - before
    vendors = {vendor.key: vendor for vendor in config.read_vendors() if vendor.key == "NVIDIA"}
    request = DeviceRequest("NVIDIA", 1, 8192, cores=10)
    ask = Ask((ContainerAsk(0, "c0", ContainerClass.APP, (request,)),), vendors)
    assert len(fleet.judge(ask, limit=5).candidates) == 5
    rounds = []
    for _ in trial.rounds:
        taken = []
        for _ in range(trial.extent.calls):
            before = perf_counter()
            fleet.judge(ask, limit=5)
            taken.append(perf_counter() - before)
        rounds.append(taken)
    cards = trial.fleet.nodes * fleets.CARDS
    trial.add(
        "in-process",
        f"best five nodes in process, {cards:,} cards",
        "ms",
        [statistics.median(one) * 1000 for one in rounds],
        p99s=[p99_ms(one) for one in rounds],
    )
    trial.add("columns", f"columns of {cards:,} cards, made from nodes", "s", [made])


def _nodes(number: int) -> list[FitNode]:
    """Nodes of eight cards with up to seven pods each; every card of a third of the nodes is full."""
    chance = random.Random(number)
    total = Amount(fleets.SLOTS, fleets.MEMORY_MIB, fleets.CORES)

    def card(place: int, index: int, is_full: bool) -> FitDevice:
        pods = PODS_OF_A_FULL_CARD if is_full else chance.randint(0, 7)
        used = Amount(pods, pods * 9000, min(pods * 11, 100))
        uuid = fleets.uuid_of(place, index)
        return FitDevice(uuid, "NVIDIA", total, used, index, index, "NVIDIA A100")

    def node(place: int) -> FitNode:
        is_full = chance.random() < 1 / 3
        return FitNode(
            fleets.node_name(place), tuple(card(place, index, is_full) for index in range(fleets.CARDS))
        )

    return [node(place) for place in range(number)]

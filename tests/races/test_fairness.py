"""Everybody gets an answer in time, whatever the others do.

FAIRNESS (default 1) is by how much more is asked than in a short run.
"""

import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.db import connection

from tests import watch
from tests.asking import asking
from tests.live import LiveStack, database_url
from tests.races import crowd, swarm
from tests.races.swarm import COME_BACK, Answered, Call

Start = Callable[..., LiveStack]

MORE = int(os.environ.get("FAIRNESS", "1"))
LOCK_SECONDS = 2.0
# A request waits for its turn, then for locks; two cores are busy with a thousand clients, too.
PATIENCE = 20.0


def pod(name: str, namespace: str = "team-a") -> dict[str, Any]:
    """A pod that asks for a little of a card."""
    wanted = asking(name, gpu=1, gpumem=10)
    wanted["metadata"] |= {"namespace": namespace, "uid": f"uid-{name}"}
    return wanted


def reserving(name: str, namespace: str = "team-a") -> Call:
    return Call("POST", "/api/v1/reservations", {"pod": pod(name, namespace)})


def with_cards(stack: LiveStack, nodes: int, cards: int) -> LiveStack:
    """A stack that knows so many nodes of so many cards, each with room for all."""
    for number in range(nodes):
        own = [watch.card(f"GPU-{number}-{card}", slots=10_000, memory=1_000_000) for card in range(cards)]
        assert stack.post("/api/v1/events", watch.events(watch.node(f"n{number}", *own))).status in (200, 202)
    return stack


def is_an_answer(answer: Answered) -> bool:
    """Yes, no, or when to come back; never a fault, and never nothing."""
    if answer.status in COME_BACK:
        return answer.come_back_seconds is not None and 1 <= answer.come_back_seconds <= 10
    return answer.status in (200, 201, 204, 409)


def test_many_clients_on_one_card_are_served_at_a_flat_rate(live_stack: Start) -> None:
    stack = with_cards(live_stack(redis=False, HAMIACCT_TRUST_EVENTS=1), nodes=1, cards=1)
    names = iter(range(10**6))
    rates: dict[int, list[float]] = {4: [], 16: [], 64: []}
    held = 0
    swarm.in_turns(stack.port, [reserving(f"warm-{number}") for number in range(20)], 4, patience=PATIENCE)
    for clients in (4, 64, 16, 64, 4, 16):
        calls = [reserving(f"p{next(names)}") for _ in range(64 * MORE)]
        began = time.monotonic()
        answers = swarm.in_turns(stack.port, calls, clients, patience=PATIENCE)
        taken = sum(answer.status == 201 for answer in answers)
        rates[clients].append(taken / (time.monotonic() - began))
        assert all(map(is_an_answer, answers)), [one for one in answers if not is_an_answer(one)][:3]
        assert max(answer.seconds for answer in answers) < 3 * LOCK_SECONDS
        held += taken
    # That it is 0.8 is measured where it is quiet (make bench); a storm would show here too.
    for clients in (16, 64):
        assert max(rates[clients]) > 0.4 * statistics.median(rates[4]), rates
    used = stack.get("/api/v1/nodes/n0/devices/GPU-0-0").body["slots"]["used"]
    assert used == held + 20
    crowd.books_agree(stack)
    crowd.nobody_complained(stack)


@contextmanager
def no_database(name: str) -> Iterator[None]:
    """Nobody gets into the database while the block runs, and who was in it is thrown out."""
    connection.close()
    url = urlunsplit(urlsplit(database_url())._replace(path="/postgres"))
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
        try:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            yield
        finally:
            server.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')


def test_a_thousand_at_once_after_an_outage_are_served_or_told_when_to_come_back(live_stack: Start) -> None:
    stack = with_cards(live_stack(redis=False, HAMIACCT_TRUST_EVENTS=1), nodes=4, cards=4)
    clients = 1000
    # One in ten wants a place, the others ask.
    calls = [
        reserving(f"p{number}", f"team-{number % 7}")
        if number % 10 == 0
        else Call("POST", "/api/v1/quota/check", {"pod": pod(f"q{number}")})
        for number in range(clients)
    ]
    with no_database(connection.settings_dict["NAME"]):
        answers = swarm.at_once(stack.port, calls[:200], patience=PATIENCE)
        assert {answer.status for answer in answers} <= {*COME_BACK}
        assert all(map(is_an_answer, answers))
    left, held, rounds = calls, 0, 0
    come_back = set()
    while left:
        answers = swarm.at_once(stack.port, left, patience=PATIENCE)
        assert all(map(is_an_answer, answers)), [one for one in answers if not is_an_answer(one)][:3]
        held += sum(answer.status == 201 for answer in answers)
        come_back |= {answer.come_back_seconds for answer in answers if answer.status in COME_BACK}
        left = [call for call, one in zip(left, answers, strict=True) if one.status in COME_BACK]
        rounds += 1
        assert rounds < 60
    assert held == clients / 10
    crowd.books_agree(stack)
    crowd.nobody_complained(stack)


@pytest.fixture
def silent_api_server(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an API server that takes calls and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        path = tmp_path / "kubeconfig.yaml"
        whole = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "current-context": "c",
        }
        path.write_text(json.dumps(whole))
        yield path


def test_binds_and_lists_that_take_for_ever_starve_nobody_else(
    live_stack: Start, silent_api_server: Path
) -> None:
    stack = with_cards(
        live_stack(
            worker=False,
            HAMIACCT_TRUST_EVENTS=1,
            HAMIACCT_SCHEDULER_MODE=1,
            HAMIACCT_NODE_SELECTOR="gpu=on",
            HAMIACCT_KUBECONFIG=silent_api_server,
        ),
        nodes=1,
        cards=1,
    )
    bind = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "uid-p", "Node": "n0"}
    flood = [Call("POST", "/extender/bind", bind)] * 60
    # Without a worker they are not applied while anybody waits.
    flood += [
        Call("POST", "/api/v1/events?wait=3", watch.events(watch.node(f"other-{number}")))
        for number in range(60)
    ]
    flood += [Call("GET", "/api/v1/audit")] * 40
    quick = [
        Call("GET", "/livez"),
        Call("POST", "/api/v1/quota/check", {"pod": pod("q")}),
        Call("POST", "/extender/prioritize", {"Pod": pod("q"), "NodeNames": ["n0"]}),
    ]
    with ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(swarm.at_once, stack.port, flood, patience=2 * PATIENCE)
        looks = 0
        while not flooding.done():
            answers = swarm.at_once(stack.port, quick, patience=PATIENCE)
            assert [answer.status for answer in answers] == [200] * len(quick), answers
            assert max(answer.seconds for answer in answers) < LOCK_SECONDS, answers
            looks += 1
        assert looks > 5
        waited = flooding.result()
    assert {answer.status for answer in waited} <= {200, 202, *COME_BACK}
    crowd.nobody_complained(stack)

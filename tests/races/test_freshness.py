"""No answer is older than the last commit before its request, whichever web process gives it.

Every writer has two nodes, a namespace and a quota of its own, and moves a number on: call by call its pods
hold one MiB more of the first one's card, the second's card has one more, the quota allows one more. So each
number in an answer says how old it is.
FRESHNESS_SECONDS (default 4) is for how long.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests import watch
from tests.asking import asking
from tests.live import LiveStack

WRITERS = 8
SECONDS = float(os.environ.get("FRESHNESS_SECONDS", "4"))
WIDE = 1_000_000
"""Slots and MiB of a card that many steps do not fill."""


@dataclass
class Writer:
    """What one writer has sent and what was committed of it: a step is both once its call was answered."""

    number: int
    sent: int = 0
    committed: int = 0

    @property
    def node(self) -> str:
        return f"n{self.number}"

    @property
    def growing(self) -> str:
        return f"m{self.number}"

    @property
    def namespace(self) -> str:
        return f"team-{self.number}"

    def body(self, step: int) -> dict[str, Any]:
        """One step: one more pod, one more MiB on the card, one more in the quota."""
        name = f"p-{self.number}-{step}"
        pod = watch.pod(name, f"GPU-{self.number} 1 0", node=self.node, namespace=self.namespace)
        quota = watch.quota(
            "q", namespace=self.namespace, hard={"limits.nvidia.com/gpumem": str(WIDE + step)}
        )
        growing = watch.node(self.growing, watch.card(f"GPU-m{self.number}", memory=WIDE + step))
        first = () if step > 1 else (watch.node(self.node, self.card),)
        return watch.events(*first, pod, growing, quota)

    @property
    def card(self) -> dict[str, Any]:
        return watch.card(f"GPU-{self.number}", memory=WIDE, slots=WIDE)

    def step(self, stack: LiveStack) -> None:
        self.sent += 1
        answer = stack.post("/api/v1/events", self.body(self.sent))
        assert answer.status == 200, answer
        self.committed = self.sent


def numbers_of_fit(stack: LiveStack, writer: Writer) -> list[int]:
    """The step that a card's size shows: all of its memory is asked for."""
    pod = asking("whole", namespace="elsewhere", **{"gpumem-percentage": 100})
    answer = stack.post("/api/v1/fit", {"pod": pod, "nodes": [writer.growing]})
    assert answer.status == 200, answer
    [best] = answer.body["candidates"]
    return [best["charge"][0]["memory_mib"] - WIDE]


def numbers_of_use(stack: LiveStack, writer: Writer) -> list[int]:
    """The step that usage shows: of a node's score, which is ten times the shares of slots and memory."""
    pod = asking("small", namespace="elsewhere", gpumem=1)
    answer = stack.post("/api/v1/fit", {"pod": pod, "nodes": [writer.node], "verdicts": False})
    assert answer.status == 200, answer
    [best] = answer.body["candidates"]
    return [round(best["score"] / 20 * WIDE)]


def numbers_of_quota(stack: LiveStack, writer: Writer) -> list[int]:
    """The steps that usage and limit of a quota show."""
    pod = asking("small", namespace=writer.namespace, gpumem=1)
    answer = stack.post("/api/v1/quota/check", {"pod": pod})
    assert answer.status == 200, answer
    [check] = answer.body["checks"]
    return [check["used"], check["hard"] - WIDE]


QUESTIONS = (numbers_of_fit, numbers_of_use, numbers_of_quota)


@pytest.fixture
def stacks(live_stack: Callable[..., LiveStack]) -> list[LiveStack]:
    """Two web processes on one database, which apply what they are told before they answer."""
    return [live_stack(redis=False), live_stack(redis=False)]


def test_no_answer_is_older_than_the_last_commit_before_its_request(stacks: list[LiveStack]) -> None:
    writers = [Writer(number) for number in range(WRITERS)]
    for writer in writers:
        writer.step(stacks[0])
    assert stacks[0].post("/api/v1/snapshots?complete=1").status == 200
    done = threading.Event()
    stale: list[str] = []

    def write(writer: Writer) -> int:
        while not done.is_set():
            writer.step(stacks[writer.number % len(stacks)])
        return writer.committed

    def ask(reader: int) -> int:
        asked = 0
        while not done.is_set():
            writer, question = writers[(asked + reader) % WRITERS], QUESTIONS[asked % len(QUESTIONS)]
            stack = stacks[(asked // len(QUESTIONS) + reader) % len(stacks)]
            before = writer.committed
            found = question(stack, writer)
            latest = writer.sent
            stale.extend(
                f"{question.__name__} of {writer.node}: {number}, not {before} to {latest}"
                for number in found
                if not before <= number <= latest
            )
            asked += 1
        return asked

    with ThreadPoolExecutor(WRITERS + 4) as pool:
        writing = [pool.submit(write, writer) for writer in writers]
        asking_ = [pool.submit(ask, reader) for reader in range(4)]
        time.sleep(SECONDS)
        done.set()
        committed = [future.result() for future in writing]
        asked = [future.result() for future in asking_]
    assert stale == []
    assert min(committed) > 3, "every writer wrote"
    assert min(asked) > 3 * len(QUESTIONS), "every reader asked"

"""Events on their way from the web through the broker to a worker: nothing lost, nothing doubled."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.live import LiveStack

pytestmark = pytest.mark.django_db(transaction=True)

PODS = 400
MEMORY_MIB = 1024


def pod_event(number: int, version: int, kind: str = "ADDED") -> dict[str, Any]:
    return {
        "type": kind,
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "uid": f"uid-{number}",
                "namespace": "team",
                "name": f"pod-{number}",
                "resourceVersion": str(version),
                "annotations": {
                    "hami.io/vgpu-node": f"node-{number % 8}",
                    "hami.io/vgpu-devices-allocated": f"GPU-{number % 16},NVIDIA,{MEMORY_MIB},10:;",
                },
            },
            "spec": {"nodeName": f"node-{number % 8}", "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        },
    }


def send(stack: LiveStack, events: list[dict[str, Any]]) -> None:
    answer = stack.post("/api/v1/events", {"events": events})
    assert (answer.status, answer.body["accepted"]) == (202, len(events)), answer


def wait_until_applied(stack: LiveStack, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while (waiting := stack.get("/api/v1/cluster").body["inbox"]["waiting"]) > 0:
        assert time.monotonic() < end, f"{waiting} events still wait"
        time.sleep(0.1)


def memory_in_use(stack: LiveStack) -> int:
    audit = stack.get("/api/v1/audit").body
    assert audit["ok"], audit
    devices = stack.get("/api/v1/devices?limit=1000").body["items"]
    return sum(device["memory_mib"]["used"] for device in devices)


def test_a_call_that_waits_is_answered_with_what_the_worker_did(live_stack: Callable[..., LiveStack]) -> None:
    stack = live_stack()
    answer = stack.post("/api/v1/events?wait=30", {"events": [pod_event(1, 10), pod_event(2, 11)]})
    assert answer.status == 200, answer
    assert [result["outcome"] for result in answer.body["results"]] == ["applied", "applied"]
    assert memory_in_use(stack) == 2 * MEMORY_MIB


def test_a_broker_that_forgets_everything_loses_nothing(live_stack: Callable[..., LiveStack]) -> None:
    stack = live_stack(worker=False)
    send(stack, [pod_event(number, number + 1) for number in range(PODS)])
    stack.flush_redis()
    stack.start_worker()
    stack.start_beat()
    wait_until_applied(stack)
    assert memory_in_use(stack) == PODS * MEMORY_MIB


def test_workers_that_are_killed_at_work_lose_nothing_and_double_nothing(
    live_stack: Callable[..., LiveStack],
) -> None:
    stack = live_stack(beat=True)
    for round_ in range(5):
        events = [pod_event(number, 10_000 * round_ + number + 1, "MODIFIED") for number in range(PODS)]
        send(stack, events)
        time.sleep(0.05 * round_)  # not for something to happen: to be killed at another line each time
        stack.kill("worker")
        stack.start_worker()
    send(stack, [pod_event(number, 100_000 + number, "DELETED") for number in range(0, PODS, 2)])
    wait_until_applied(stack)
    assert memory_in_use(stack) == PODS // 2 * MEMORY_MIB

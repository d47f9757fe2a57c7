"""A thousand events in one call, and pages that cost the same however full they are.

The limit is for two cores that are free. Where others use them too, the best of a few attempts counts.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from tests import watch
from tests.live import LiveStack

EVENTS = 1_000
LIMIT_SECONDS = 3.0
ATTEMPTS = 3


def node(number: int) -> dict[str, Any]:
    cards = [watch.card(f"GPU-{number}-{card}", memory=10**6, slots=100) for card in range(8)]
    return watch.node(f"n{number}", *cards)


def pod(number: int, version: int, *, is_done: bool) -> dict[str, Any]:
    """A pod with an init container, a sidecar and an app, on one of 100 cards."""
    node, card = number % 13, number % 8
    made = watch.pod(
        f"pod-{number}",
        f"GPU-{node}-{card} 4096 1",
        f"GPU-{node}-{card} 1024 1",
        f"GPU-{node}-{card} 1024 1",
        inits=2,
        node=f"n{node}",
        namespace=f"team-{number % 7}",
        version=version,
    )
    made["spec"]["initContainers"][1]["restartPolicy"] = "Always"
    state = {"terminated": {"exitCode": 0}} if is_done else {"running": {}}
    made["status"]["initContainerStatuses"] = [{"name": "c0", "state": state}, {"name": "c1", "state": {}}]
    return made


def thousands(attempt: int) -> dict[str, dict[str, Any]]:
    """A thousand pods of this attempt that appear, that are done with their inits, and that go."""
    numbers = range(attempt * EVENTS, (attempt + 1) * EVENTS)
    charged = [pod(number, 1_000_000 + number, is_done=False) for number in numbers]
    done = [pod(number, 2_000_000 + number, is_done=True) for number in numbers]
    gone = [pod(number, 3_000_000 + number, is_done=True) for number in numbers]
    return {
        "charged": watch.events(*charged),
        "shrunk": watch.events(*done, type_="MODIFIED"),
        "deleted": watch.events(*gone, type_="DELETED"),
    }


def best_seconds(send: Callable[[dict[str, Any]], Any], record: Callable[[str, object], None]) -> float:
    """Seconds that the slowest of the three calls took, in the best attempt."""
    attempts: list[float] = []
    while not attempts or (min(attempts) >= LIMIT_SECONDS and len(attempts) < ATTEMPTS):
        slowest = 0.0
        for rule, body in thousands(len(attempts)).items():
            began = time.monotonic()
            answer = send(body)
            slowest = max(slowest, time.monotonic() - began)
            assert {result["rule"] for result in answer["results"]} == {rule}
        attempts.append(slowest)
    record("seconds", attempts)
    return min(attempts)


@pytest.mark.django_db(transaction=True)
def test_a_thousand_events_in_one_call_are_applied_in_the_request(
    api: APIClient, record_property: Callable[[str, object], None]
) -> None:
    def send(body: dict[str, Any]) -> Any:
        return api.post("/api/v1/events", body, format="json").json()

    send(watch.events(*(node(number) for number in range(13))))
    assert best_seconds(send, record_property) < LIMIT_SECONDS


def test_a_thousand_events_in_one_call_are_applied_by_workers(
    live_stack: Callable[..., LiveStack], record_property: Callable[[str, object], None]
) -> None:
    stack = live_stack()

    def send(body: dict[str, Any]) -> Any:
        answer = stack.post("/api/v1/events?wait=30", body)
        assert answer.status == 200, answer
        return answer.body

    send(watch.events(*(node(number) for number in range(13))))
    assert best_seconds(send, record_property) < LIMIT_SECONDS


@pytest.mark.django_db
def test_pages_take_the_same_number_of_queries_however_full_they_are(api: APIClient) -> None:
    api.post("/api/v1/events", watch.events(*(node(number) for number in range(13))), format="json")
    counts: dict[str, list[int]] = {}
    for first, last in ((0, 1), (1, 10), (10, 200)):
        pods = [pod(number, 1_000 + number, is_done=False) for number in range(first, last)]
        for one in pods[::3]:
            one["metadata"]["annotations"]["hami.io/dcu-devices-allocated"] = "broken"  # a finding each
        quota = watch.quota(f"quota-{last}", namespace="team-1", hard={"limits.nvidia.com/gpumem": "1"})
        api.post("/api/v1/events", watch.events(*pods, quota), format="json")
        for path in (
            "pods",
            "pods/uid-pod-0",
            "devices",
            "nodes",
            "nodes/n0",
            "nodes/n0/devices/GPU-0-0",
            "ledger",
            "findings",
            "cluster",
            "namespaces/team-1/quota",
        ):
            with CaptureQueriesContext(
                connection,
            ) as queries:
                answer = api.get(
                    f"/api/v1/{path}", {} if "/" in path or path == "cluster" else {"limit": 1000}
                )
            assert answer.status_code == 200, answer.content
            counts.setdefault(path, []).append(len(queries))
    assert {path: set(some) for path, some in counts.items()} == {
        path: {some[-1]} for path, some in counts.items()
    }
    assert max(map(max, counts.values())) <= 8

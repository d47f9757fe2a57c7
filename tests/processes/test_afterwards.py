"""What is written when the answer is out, by a web server in earnest."""

import time
from collections.abc import Callable
from typing import Any

from django.db import connection, transaction

from tests import watch
from tests.asking import asking
from tests.live import LiveStack

LONG_SECONDS = 20
ENOUGH_SECONDS = 10


def test_nobody_waits_until_a_refusal_is_written(live_stack: Callable[..., LiveStack]) -> None:
    """While the table of refusals is locked, questions are answered; it is written once the lock is gone."""
    stack = live_stack(redis=False, HAMIACCT_TRUST_EVENTS=1, HAMIACCT_LOCK_TIMEOUT_SECONDS=LONG_SECONDS)
    sent = stack.post("/api/v1/events", watch.events(watch.node("n1", watch.card("GPU-a"))))
    assert sent.status == 200
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("LOCK TABLE hamiacct_decision IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        refused = stack.post("/api/v1/fit", {"pod": asking("p", gpumem=99999)}, timeout=LONG_SECONDS)
        filtered = stack.post(
            "/extender/filter",
            {"Pod": asking("q", gpumem=99999), "NodeNames": ["n1"]},
            timeout=LONG_SECONDS,
        )
        assert time.monotonic() - began < ENOUGH_SECONDS
        assert refused.body["fits"] is False
        assert filtered.body["FailedNodes"] == {"n1": "1/1 CardInsufficientMemory"}
    until = time.monotonic() + ENOUGH_SECONDS
    kept: list[Any] = []
    while len(kept) < 2 and time.monotonic() < until:
        kept = stack.get("/api/v1/decisions").body["items"]
    assert {one["question"] for one in kept} == {"fit", "filter"}

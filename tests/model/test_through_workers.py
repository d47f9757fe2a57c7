"""Random lives through Redis and two Celery workers, each a process of its own.

MODEL_LIVE_SEEDS (default 2) is how many clusters live, MODEL_FIRST_SEED (1) where the seeds begin.
"""

import os
from collections.abc import Callable

import pytest

from tests.live import LiveStack
from tests.model.delivery import deliveries
from tests.model.service import Pair, ThroughWorkers

FIRST = int(os.environ.get("MODEL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("MODEL_LIVE_SEEDS", "2")))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_book_says_what_the_model_says(live_stack: Callable[..., LiveStack], seed: int) -> None:
    stack = live_stack(worker=False)
    stack.start_worker("one", concurrency=1)
    stack.start_worker("two", concurrency=1)
    Pair(ThroughWorkers(stack)).follow(deliveries(seed, steps=18, biggest=60))

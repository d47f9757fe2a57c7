"""Random lives, applied in the request: after every call each book says what the model says.

MODEL_SEEDS (default 6) is how many clusters live, MODEL_FIRST_SEED (1) where the seeds begin.
"""

import os

import pytest
from rest_framework.test import APIClient

from tests.model.delivery import deliveries
from tests.model.service import InTheRequest, Pair

FIRST = int(os.environ.get("MODEL_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("MODEL_SEEDS", "6")))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_book_says_what_the_model_says(db: None, api: APIClient, seed: int) -> None:
    Pair(InTheRequest(api)).follow(deliveries(seed, steps=18))

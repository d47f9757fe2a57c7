"""How much is tried, and with which chances: HOSTILE_SEED (1), and HOSTILE_EXAMPLES inputs of each sort.

Without HOSTILE_EXAMPLES each test tries what the suite has time for; `make prove-hostile` tries thousands.
"""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

SEED = int(os.environ.get("HOSTILE_SEED", "1"))
EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "0"))


def examples(short: int) -> int:
    """How many inputs a test tries; `short` where nobody asked for another number."""
    return EXAMPLES or short


def some(of: Sequence[T], short: int, what: str) -> Sequence[T]:
    """Some of them; all where somebody asked for more than the suite has time for."""
    return of if EXAMPLES else chances(what).sample(of, min(short, len(of)))


def chances(what: str) -> random.Random:
    """A source of chances of its own for each test, the same for the same seed."""
    return random.Random(f"{what} {SEED}")

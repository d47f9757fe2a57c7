"""The types of columns, and the limits of what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Floats = NDArray[np.float32]

SLOTS, MEMORY, CORES = range(3)
"""The dimensions of an amount, in the first axis of totals and usage."""

MAX_CARDS = 31
"""Wider nodes are judged one by one: counts of reasons have five bits."""
MAX_TOTAL = 2**31
MAX_NUMA = 2**12
CARD_BITS = 6
"""Limits of what the columns hold; a node or an ask beyond them is judged one by one."""

FIRST_BLOCK = 64
BLOCK_GROWTH = 8
"""Nodes are tried in blocks, the first of so many, each so many times as large as all before it."""

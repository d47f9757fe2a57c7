"""Reasons as numbers: what refuses a card, and how often each reason was met on a node."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hamiacct.accounting.reasons import Reason

# Of several checks that refuse a card the earliest counts; so the earlier, the larger its code.
PASSES, NOT_OURS = 1, 255
_CODES: Mapping[int, Reason] = {
    PASSES: Reason.TOO_FEW_TAKEN,
    2: Reason.CORES_EXHAUSTED,
    3: Reason.EXCLUSIVE,
    4: Reason.CORES,
    5: Reason.MEMORY,
    6: Reason.QUOTA,
    7: Reason.EXCLUSIVE,
    8: Reason.SLOTS,
    9: Reason.UUID,
    10: Reason.NUMA,
    11: Reason.TYPE,
    12: Reason.CORDONED,
    13: Reason.UNHEALTHY,
}
C_EXHAUSTED, C_ALONE, C_CORES, C_MEMORY, C_QUOTA, C_MUTEX, C_SLOTS, C_UUID = range(2, 10)
C_TYPE, C_CORDONED, C_UNHEALTHY = range(11, 14)

COUNT_BITS = 5
COUNT_MASK = 2**COUNT_BITS - 1
_SHARED = (Reason.NUMA, Reason.MIG)
_APART = [
    reason for reason in dict.fromkeys(_CODES.values()) if reason not in (*_SHARED, Reason.TOO_FEW_TAKEN)
]
SHIFTS: dict[Reason, int] = {reason: COUNT_BITS * place for place, reason in enumerate(_APART)}
SHIFTS |= dict.fromkeys(_SHARED, COUNT_BITS * len(_APART))
TAKEN_SHIFT = COUNT_BITS * (len(_APART) + 1)
MAX_TAKEN = 2 ** (63 - TAKEN_SHIFT) - 1
"""What was taken in vain has the bits on top, as MIG cards are taken many times. NUMA and MIG share theirs:
one is told by walks in order alone, the other by all the others."""

ONE_OF = np.zeros(256, np.int64)
"""By code: once that reason, to be added."""
for _code, _reason in _CODES.items():
    ONE_OF[_code] = 1 << SHIFTS.get(_reason, TAKEN_SHIFT)


def counts_of(signature: int, *, in_order: bool) -> dict[str, int]:
    """How often each reason was met, out of the one number."""
    untold = _SHARED[in_order]
    counts: dict[str, int] = {
        reason: signature >> shift & COUNT_MASK for reason, shift in SHIFTS.items() if reason is not untold
    }
    counts[Reason.TOO_FEW_TAKEN] = signature >> TAKEN_SHIFT
    return {reason: count for reason, count in counts.items() if count}

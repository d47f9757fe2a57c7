"""Whole Metax cards: the node itself tells what giving out so many of them costs its links."""

from __future__ import annotations

import re

from hamiacct.accounting.fitting.scene import Placed
from hamiacct.accounting.policies import NodePolicy, f32

TOP = 2000.0
_TABLE = re.compile(r"\s*\{\s*(?:\"[0-9]{1,6}\"\s*:\s*-?[0-9]{1,9}\s*(?:,\s*(?=\"))?)*\}\s*")
_ENTRY = re.compile(r"\"([0-9]+)\"\s*:\s*(-?[0-9]+)")


def score(placed: Placed) -> float:
    """2000 less the loss; under spread, where the lowest wins, 2000 less the score; 0 where neither is told.

    Both annotations are JSON objects by number of devices; the vendor's table names them, losses first.
    """
    losses, scores = placed.vendor.inventory.switches
    text = placed.node.annotations.get(scores if placed.policy is NodePolicy.SPREAD else losses)
    if text is None:
        return 0.0
    return f32(TOP - by_number(text).get(sum(map(len, placed.containers)), 0))


def by_number(text: str) -> dict[int, int]:
    """`{"1": 10, "2": 30}`; what cannot be read tells nothing."""
    if not _TABLE.fullmatch(text):
        return {}
    return {int(number): int(value) for number, value in _ENTRY.findall(text)}

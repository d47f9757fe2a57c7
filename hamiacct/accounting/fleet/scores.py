"""Scores of nodes and devices, as `policies` has them, over columns: the same 32-bit floats, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from hamiacct.accounting import policies
from hamiacct.accounting.fleet.arrays import CORES, MEMORY, SLOTS, Floats, Numbers


def _f32(numbers: Numbers) -> Floats:
    """As `policies.f32`: by way of 64 bits."""
    return numbers.astype(np.float64).astype(np.float32)


def _share(part: Numbers, total: Numbers) -> Floats:
    """As `policies.share`; a total of 0 counts as 1, its scores are not used."""
    return _f32(part) / _f32(np.maximum(total, 1))


def node_scores(used: Numbers, totals: Numbers) -> Floats:
    """As `policies.node_score`, of amounts summed over the cards; dimensions by nodes."""
    parts = _share(used[SLOTS], totals[SLOTS]) + _share(used[CORES], totals[CORES])
    scores = np.float32(policies.SCALE) * (parts + _share(used[MEMORY], totals[MEMORY]))
    return np.where((totals != 0).all(axis=0), scores, np.float32(0))


def device_scores(used: Numbers, totals: Numbers, asked: Any, weights: policies.Weights) -> Floats:
    """As `policies.device_score`, of dimensions by whatever; of slots, so many requests are asked."""
    shares = _share(used if asked is None else asked + used, totals)
    slot, memory, core = shares[SLOTS], shares[MEMORY], shares[CORES]
    if weights != policies.EVEN:
        slot = np.float32(policies.f32(weights.slot)) * slot
        memory = np.float32(policies.f32(weights.memory)) * memory
        core = np.float32(policies.f32(weights.core)) * core
    scores = np.float32(policies.SCALE) * ((slot + core) + memory)
    return np.where(totals.all(axis=0), scores, np.float32(0))

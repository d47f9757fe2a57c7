"""Whole Enflame cards: only unused ones."""

from __future__ import annotations

from hamiacct.accounting.fitting import checks, shared
from hamiacct.accounting.fitting.scene import Outcome, Scene

_WALK = shared.Walk(after=(checks.of_uuid, checks.unused, checks.within_quota, checks.has_memory))


def take(scene: Scene) -> Outcome:
    """The shared walk over unused devices."""
    return shared.take(scene, _WALK)

"""Mthreads and whole Metax cards: all containers of a pod sit on one and the same device."""

from __future__ import annotations

from hamiacct.accounting.fitting import checks, shared
from hamiacct.accounting.fitting.checks import Look
from hamiacct.accounting.fitting.scene import Outcome, Scene
from hamiacct.accounting.reasons import Reason


def where_the_others_are(look: Look) -> Reason | None:
    """Every row of an earlier container must name this device."""
    elsewhere = any(row.uuid != look.device.uuid for row in look.scene.placed)
    return Reason.CUSTOM_RULE if elsewhere else None


_WALK = shared.Walk(after=(*checks.AFTER_NUMA, where_the_others_are))


def take(scene: Scene) -> Outcome:
    """The shared walk with one check more."""
    return shared.take(scene, _WALK)

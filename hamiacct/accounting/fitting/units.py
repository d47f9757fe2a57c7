"""AMD: percent of cores are asked, compute units booked; memory that is left out is all of the card's."""

from __future__ import annotations

from hamiacct.accounting.fitting import checks, shared
from hamiacct.accounting.fitting.checks import WHOLE_CARD
from hamiacct.accounting.fitting.scene import Outcome, Scene
from hamiacct.accounting.fitting.shared import Sized
from hamiacct.accounting.offers import FitDevice


def in_units(scene: Scene, device: FitDevice) -> Sized:
    """At least one unit for any percentage; all of them for a whole card's memory without one."""
    memory_mib = scene.request.memory_mib or device.total.memory_mib
    percent = min(scene.request.cores, WHOLE_CARD)
    units = max(1, device.total.cores * percent // 100)
    if not percent:
        units = device.total.cores if memory_mib >= device.total.memory_mib > 0 else 0
    return Sized(memory_mib, units, device.total.cores)


_WALK = shared.Walk(
    after=(
        checks.of_uuid,
        checks.has_slot,
        checks.mutex,
        checks.within_quota,
        checks.has_memory,
        checks.has_cores,
    ),
    sizing=in_units,
)


def take(scene: Scene) -> Outcome:
    """The shared walk in units, without the checks on whole cards."""
    return shared.take(scene, _WALK)

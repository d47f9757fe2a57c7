"""AWS Neuron: named cores. One device gives its lowest free ones; several are whole neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hamiacct.accounting.fitting import checks, shared
from hamiacct.accounting.fitting.checks import Look
from hamiacct.accounting.fitting.scene import Outcome, Refused, Scene
from hamiacct.accounting.fitting.shared import Sized
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.requests import DeviceRequest

ALIGNED = (1, 4, 8, 16)
"""Counts of neighbours on instances without a ring; they begin at a multiple of their number."""

NAMED_CORES = 63
"""As many cores of one device as a stored set can name; whatever a node says, there are no more to give."""


def all_cores(device: FitDevice) -> int:
    """The mask of all cores of a device."""
    return (1 << min(device.total.cores, NAMED_CORES)) - 1


def lowest_free(device: FitDevice, count: int) -> int:
    """The mask of the lowest free cores; fewer than asked where fewer are free."""
    mask = 0
    for core in range(min(device.total.cores, NAMED_CORES)):
        bit = 1 << core
        if mask.bit_count() < count and not device.used.core_set & bit:
            mask |= bit
    return mask


def resolved(request: DeviceRequest, devices: Sequence[FitDevice]) -> DeviceRequest:
    """The request in devices of this node: devices have all their cores, cores fill one or whole ones."""
    of_each = max((device.total.cores for device in devices), default=0)
    cores = request.extra.get("cores_total")
    if not isinstance(cores, int):
        return replace(request, cores=of_each or request.cores)
    if not of_each:
        return request
    return replace(request, count=max(1, -(-cores // of_each)), cores=min(cores, of_each))


def _sized(scene: Scene, device: FitDevice) -> Sized:
    return Sized(0, lowest_free(device, scene.request.cores), device.total.cores)


def _has_cores(look: Look) -> Reason | None:
    """By count and by name: sets that overlap leave fewer than their sizes say."""
    asked = look.scene.request.cores
    enough = look.device.free.cores >= asked and look.cores.bit_count() == asked
    return None if enough else Reason.CORES


_WALK = shared.Walk(
    after=(checks.of_uuid, checks.has_slot, checks.mutex, checks.within_quota, _has_cores), sizing=_sized
)


def take(scene: Scene) -> Outcome:
    """Cores of one device, or whole neighbouring devices."""
    request = scene.request
    cores = request.extra.get("cores_total")
    if request.count > 1 and isinstance(cores, int) and cores != request.count * request.cores:
        return Refused({Reason.CORES: len(scene.devices)})
    return shared.take(scene, _WALK) if request.count == 1 else _neighbours(scene)


def _neighbours(scene: Scene) -> Outcome:
    free = {
        device.index: device
        for device in scene.devices
        if device.healthy and not device.cordoned and device.used.is_nothing
    }
    for start in _starts(scene):
        run = [free[index] for index in range(start, start + scene.request.count) if index in free]
        if len(run) < scene.request.count:
            continue
        picks = tuple(scene.pick(device, device.total.memory_mib, all_cores(device)) for device in run)
        return picks if scene.admits(picks) else Refused({Reason.QUOTA: len(picks)})
    return Refused({Reason.NUMA: 1})


def _starts(scene: Scene) -> range:
    """Where a run may begin: anywhere on instances with a ring, else aligned, for certain counts only."""
    count = scene.request.count
    last = max(device.index for device in scene.devices)
    label = scene.vendor.request.get("instance_type_label")
    instance = scene.node.labels.get(str(label), "")
    if "inf" in instance.lower():
        return range(last + 1)
    return range(0, last + 1, count) if count in ALIGNED else range(0)

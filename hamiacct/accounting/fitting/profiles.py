"""Enflame's shares: profiles like `3g.24gb` of a size in slots; the smallest that is enough (G-21)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from hamiacct.accounting.fitting import checks, shared
from hamiacct.accounting.fitting.scene import Outcome, Refused, Scene
from hamiacct.accounting.fitting.shared import Sized
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.requests import DeviceRequest

_NAME = re.compile(r"([0-9]{1,4})g\.([0-9]{1,6})gb")
MIB = 1024


class Profile(NamedTuple):
    """A share of a card: `size` slots, so much memory, and its part of the cores in percent."""

    size: int
    memory_gb: int
    cores: int


def profiles_of(devices: Iterable[FitDevice]) -> list[Profile]:
    """What the node's cards can be cut into, the smallest first."""
    known: set[tuple[int, int]] = set()
    for device in devices:
        names = device.custom.get("profiles")
        matches = [_NAME.fullmatch(str(name)) for name in names] if isinstance(names, dict) else []
        known |= {(int(match[1]), int(match[2])) for match in matches if match}
    largest = max((size for size, _ in known), default=0)
    return [
        Profile(size, memory_gb, -(-size * 100 // largest))
        for size, memory_gb in sorted(known)
        if size and memory_gb
    ]


def profile_for(request: DeviceRequest, devices: Iterable[FitDevice]) -> Profile | None:
    """The profile of the size asked for, or the smallest with memory and cores enough; None without one."""
    profiles = profiles_of(devices)
    size = request.extra.get("profile_size")
    if size is not None:
        return next((profile for profile in profiles if profile.size == size), None)
    memory_gb = in_gb(request.memory_mib, max((profile.memory_gb for profile in profiles), default=0))
    fitting = (one for one in profiles if one.memory_gb >= memory_gb and one.cores >= request.cores)
    return next(fitting, None)


def in_gb(number: int, largest_gb: int) -> int:
    """A number of GB; one above twice the largest profile's is MiB, rounded up."""
    return -(-number // MIB) if number > largest_gb * 2 > 0 else number


def slots_per_row(requests: Iterable[DeviceRequest], devices: Iterable[FitDevice]) -> int:
    """What a row takes in slots: one number for the pod, as its annotation has room for one, the largest."""
    cards = tuple(devices)
    found = (profile_for(request, cards) for request in requests)
    return max((profile.size for profile in found if profile is not None), default=1)


def _sized(scene: Scene, device: FitDevice) -> Sized:
    profile = profile_for(scene.request, scene.devices)
    assert profile is not None
    return Sized(profile.memory_gb * MIB, profile.cores, device.total.cores)


_WALK = shared.Walk(
    after=(
        checks.of_uuid,
        checks.has_slot,
        checks.mutex,
        checks.within_quota,
        checks.has_memory,
        checks.has_cores,
    ),
    sizing=_sized,
)


def take(scene: Scene) -> Outcome:
    """The shared walk for the profile that answers the request."""
    if profile_for(scene.request, scene.devices) is None:
        return Refused({Reason.MODE: 1})
    return shared.take(scene, _WALK)

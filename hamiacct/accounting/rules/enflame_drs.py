"""Enflame DRS (semantics 3.3): one device, and of it a profile: by size, or the smallest that is enough.

The node's profiles tell what a profile holds, so nothing asked here is a size yet (G-21).
"""

from __future__ import annotations

from collections.abc import Mapping

from hamiacct.accounting.requests import INT32_MAX, NO_EFFECT, Asked, DeviceRequest, Effect


def read(asked: Asked) -> DeviceRequest | None:
    """The request: a profile of the given size, or one with the memory (GB, or MiB) and cores."""
    wanted = _wanted(asked)
    if not any(wanted.values()):
        return None
    vendor = asked.vendor
    if size := wanted.get(vendor.count_name, 0):
        return DeviceRequest(vendor.key, 1, 0, 0, extra={"profile_size": size}, card_decides=True)
    memory, cores = wanted.get(vendor.memory_name, 0), wanted.get(vendor.cores_name, 0)
    return DeviceRequest(vendor.key, 1, memory, 0, cores, card_decides=True)


def _wanted(asked: Asked) -> dict[str, int]:
    vendor = asked.vendor
    most = {vendor.count_name: INT32_MAX, vendor.memory_name: INT32_MAX, vendor.cores_name: 100}
    found = {name: asked.whole(name, 0, limit) for name, limit in most.items()}
    return {name: number for name, number in found.items() if number is not None}


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """What is asked, in limits and requests both."""
    wanted = _wanted(asked)
    return asked.writes(wanted, both=True) if any(wanted.values()) else NO_EFFECT

"""Moore Threads (semantics 3.3): memory and cores are written for all devices of a container together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hamiacct.accounting.requests import INT32_MAX, NO_EFFECT, Asked, DeviceRequest, Effect


def read(asked: Asked) -> DeviceRequest | None:
    """The request per device: what is written, divided by the count."""
    count = asked.count()
    if not count:
        return None
    memory_mib = asked.memory() * max(asked.vendor.memory_factor, 1) // count
    most = min(asked.number("cores_per_card") * count, INT32_MAX)
    cores = asked.cores(most) // count
    return DeviceRequest(asked.vendor.key, count, memory_mib, 0 if memory_mib else 100, cores)


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """Several devices are whole ones, one is whole unless a size is given that the card can be cut into."""
    vendor, count = asked.vendor, asked.count()
    if not count:
        return NO_EFFECT
    sizes = asked.several("memory_sizes")
    memory = asked.memory()
    if count == 1 and memory and memory not in sizes:
        reason = f"must be one of {', '.join(map(str, sizes))}"
        raise asked.unreadable(vendor.memory_name, memory, reason)
    if count == 1 and memory:
        return asked.writes({})
    whole = {
        vendor.cores_name: count * asked.number("cores_per_card"),
        vendor.memory_name: count * asked.number("memory_per_card"),
    }
    effect = asked.writes(whole)
    return effect if count == 1 else replace(effect, annotations={asked.word("count_annotation"): str(count)})

"""Kunlunxin vXPU (semantics 3.3): a card is cut into slices of a few sizes; memory is rounded up to one."""

from __future__ import annotations

from collections.abc import Mapping

from hamiacct.accounting.requests import NO_EFFECT, Asked, DeviceRequest, Effect


def read(asked: Asked) -> DeviceRequest | None:
    """The request; cores follow memory. Memory that is not given is the largest slice, the whole card."""
    count = asked.count()
    if not count:
        return None
    whole_mib = _sizes(asked)[-1]
    memory = asked.memory()
    if not memory:
        return DeviceRequest(asked.vendor.key, count, whole_mib, 100, 100)
    memory_mib = _rounded(asked, memory)
    return DeviceRequest(asked.vendor.key, count, memory_mib, 0, memory_mib * 100 // whole_mib)


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """The slice that memory is rounded up to, in limits and requests."""
    if not asked.count():
        return NO_EFFECT
    memory = asked.memory()
    if not memory:
        return asked.writes({})
    return asked.writes({asked.vendor.memory_name: _rounded(asked, memory)}, both=True)


def _sizes(asked: Asked) -> list[int]:
    return sorted(size for size in asked.several("memory_sizes_mib") if isinstance(size, int))


def _rounded(asked: Asked, memory_mib: int) -> int:
    """The smallest slice with so much; there is none larger than the card, which is what HAMi gives then."""
    sizes = _sizes(asked)
    return next((size for size in sizes if memory_mib <= size), sizes[-1])

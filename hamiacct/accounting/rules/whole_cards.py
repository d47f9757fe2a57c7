"""Vendors whose devices are only given out whole (semantics 3.3): the count says everything."""

from __future__ import annotations

from collections.abc import Mapping

from hamiacct.accounting.requests import NO_EFFECT, Asked, DeviceRequest, Effect


def read(asked: Asked) -> DeviceRequest | None:
    """The request, with the vendor's own numbers for a whole card."""
    count = asked.count()
    if not count:
        return None
    return DeviceRequest(
        asked.vendor.key,
        count,
        asked.number("memory_mib"),
        asked.number("percentage"),
        asked.number("cores"),
    )


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """Nothing is written. Other vendors without an admission step of their own share this one."""
    return asked.writes({}) if asked.count() else NO_EFFECT

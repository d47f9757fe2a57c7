"""AWS Neuron (semantics 3.3): devices with all their cores, or cores of one device, or of whole ones.

Cores are named when they are given out; a request knows only how many (decision 2).
"""

from __future__ import annotations

from collections.abc import Mapping

from hamiacct.accounting.requests import INT32_MAX, NO_EFFECT, Asked, DeviceRequest, Effect


def read(asked: Asked) -> DeviceRequest | None:
    """The request, `cores` being per device."""
    vendor = asked.vendor
    of_each = asked.number("default_cores_per_device")
    if asked.text(vendor.count_name) is not None:
        count = asked.count()
        return DeviceRequest(vendor.key, count, 0, 0, of_each) if count else None
    cores = asked.whole(vendor.cores_name, 0, INT32_MAX)
    if not cores:
        return None
    if cores > of_each and cores % of_each:
        reason = f"must be at most {of_each} or a multiple of {of_each}"
        raise asked.unreadable(vendor.cores_name, cores, reason)
    extra = {"cores_total": cores}
    return DeviceRequest(vendor.key, -(-cores // of_each), 0, 0, min(cores, of_each), extra)


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """Nothing is written."""
    return asked.writes({}) if read(asked) else NO_EFFECT

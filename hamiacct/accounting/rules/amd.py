"""AMD (semantics 3.3): limits alone; memory in MiB or the whole card, cores in percent of at least one."""

from __future__ import annotations

from hamiacct.accounting.requests import Asked, DeviceRequest


def read(asked: Asked) -> DeviceRequest | None:
    """The request. Cores are percent here; the card's own units come with the card (decision 2)."""
    count = asked.count()
    if not count:
        return None
    cores = asked.whole(asked.vendor.cores_name, 1, 100)
    if cores is None:
        cores = asked.number("default_cores")
    return DeviceRequest(asked.vendor.key, count, asked.memory(), 0, cores)

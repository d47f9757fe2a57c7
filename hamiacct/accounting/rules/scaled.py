"""Cambricon, Hygon, Iluvatar (semantics 3.3): a count, scaled memory, cores in percent with a default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hamiacct.accounting.requests import NO_EFFECT, Asked, DeviceRequest, Effect


def read(asked: Asked) -> DeviceRequest | None:
    """The request; memory that is not given is the whole card."""
    count = asked.count()
    if not count:
        return None
    memory_mib = asked.memory() * max(asked.vendor.memory_factor, 1)
    return DeviceRequest(asked.vendor.key, count, memory_mib, 0 if memory_mib else 100, _cores(asked, count))


def _cores(asked: Asked, count: int) -> int:
    """Cores per device. What admission writes for several devices is the sum of them (G-22)."""
    of_each = asked.number("cores_of_several")
    if of_each and count > 1 and _reads(asked, count * of_each):
        return of_each
    return asked.cores()


def _reads(asked: Asked, amount: int) -> bool:
    return asked.text(asked.vendor.cores_name) == str(amount)


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """Where the vendor wants it: whole devices for several, and the container's name in its environment."""
    count = asked.count()
    if not count:
        return NO_EFFECT
    of_each = asked.number("cores_of_several")
    amounts = {asked.vendor.cores_name: count * of_each} if of_each and count > 1 else {}
    name_env = asked.word("name_env")
    env = ((name_env, asked.container.name),) if name_env else ()
    return replace(asked.writes(amounts), env=env)

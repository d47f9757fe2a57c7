"""Ascend (semantics 3.3): memory is cut by templates, or by a soft split where the pod says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hamiacct.accounting.requests import NO_EFFECT, Asked, DeviceRequest, Effect

VISIBLE_DEVICES_ENV = "ASCEND_VISIBLE_DEVICES"
SOFT_SPLIT = "hami-core"


def read(asked: Asked) -> DeviceRequest | None:
    """The request, with the memory that admission rounded; memory that is not given is the whole card."""
    count = asked.count()
    if not count:
        return None
    memory_mib = asked.memory() * max(asked.vendor.memory_factor, 1)
    return DeviceRequest(asked.vendor.key, count, memory_mib, 0 if memory_mib else 100, asked.cores())


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """Whole modules, memory that a template has, and no cores without a soft split."""
    vendor = asked.vendor
    count = asked.count()
    if not count:
        hidden = ((VISIBLE_DEVICES_ENV, ""),) if asked.flag("overwrite_env") else ()
        return replace(NO_EFFECT, env=hidden)
    [mode_key] = vendor.selectors["mode"]
    soft = annotations.get(mode_key) == SOFT_SPLIT
    cores = asked.cores()
    if cores and not soft:
        raise asked.unreadable(vendor.cores_name, cores, f"cores need {mode_key}: {SOFT_SPLIT}")
    amounts = {}
    if asked.flag("super_pod"):
        if count > 1 and count % 2:
            raise asked.unreadable(vendor.count_name, count, "must be 1 or an even number")
        count = amounts[vendor.count_name] = max(count, 2)
    amounts[vendor.memory_name] = _memory(asked, count, soft)
    return replace(asked.writes(amounts, both=True), runtime_class=asked.word("runtime_class"))


def _memory(asked: Asked, count: int, soft: bool) -> int:
    """The memory per device that is written: the template's, or the whole card's."""
    whole = asked.number("memory_allocatable_mib")
    memory = asked.memory()
    granted = whole if not memory else memory if soft else _rounded(asked, memory)
    if count > 1 and granted != whole:
        reason = f"several devices are whole ones, with {whole}"
        raise asked.unreadable(asked.vendor.memory_name, memory, reason)
    return granted


def _rounded(asked: Asked, memory: int) -> int:
    """The next template's memory; above the largest all that can be allocated, up to the capacity."""
    for template in asked.several("templates"):
        assert isinstance(template, Mapping)
        if memory <= template["memory"]:
            size = template["memory"]
            assert isinstance(size, int)
            return size
    if memory <= asked.number("memory_capacity_mib"):
        return asked.number("memory_allocatable_mib")
    raise asked.refused(f"{asked.vendor.memory_name} {memory} is invalid", "no device has so much")

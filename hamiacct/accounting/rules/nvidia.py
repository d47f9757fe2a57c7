"""NVIDIA (semantics 3.2): a count, memory in MiB or percent, cores in percent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hamiacct.accounting.requests import NO_EFFECT, PERCENT_NOT_GIVEN, Asked, DeviceRequest, Effect

PRIORITY_ENV = "CUDA_TASK_PRIORITY"
CORE_POLICY_ENV = "GPU_CORE_UTILIZATION_POLICY"
VISIBLE_DEVICES_ENV = "NVIDIA_VISIBLE_DEVICES"
NO_DEVICES = "none"
DEFAULT_CORE_POLICY = "default"
WHOLE = 100
INT64_MAX = 2**63 - 1


def read(asked: Asked) -> DeviceRequest | None:
    """The request; memory that is not given is the default, which no factor scales, else the whole card."""
    count = asked.count()
    if not count:
        return None
    vendor = asked.vendor
    memory_mib = asked.memory() * max(vendor.memory_factor, 1)
    percent = _percent(asked) or PERCENT_NOT_GIVEN
    if not memory_mib and percent == PERCENT_NOT_GIVEN:
        memory_mib = asked.number("default_memory_mib")
        percent = PERCENT_NOT_GIVEN if memory_mib else WHOLE
    return DeviceRequest(vendor.key, count, memory_mib, percent, asked.cores())


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """The count that goes without saying, and all cores for whoever takes all memory."""
    vendor = asked.vendor
    percent = _percent(asked)
    count = asked.whole(vendor.count_name, 0, 2**31 - 1)
    amounts: dict[str, int] = {}
    sizes = (vendor.cores_name, vendor.memory_name, vendor.memory_percentage_name)
    implied = asked.number("default_count") if any(asked.in_limits(name) for name in sizes) else 0
    has_device = asked.in_limits(vendor.count_name) or implied > 0
    if count is None and implied:
        count = amounts[vendor.count_name] = implied
    if count and vendor.cores_name and _is_exclusive(asked, percent):
        amounts[vendor.cores_name] = WHOLE
        has_device = True
    if not count or not has_device:
        return replace(NO_EFFECT, env=(*_env(asked), *_hidden(asked)))
    effect = asked.writes(amounts)
    return replace(effect, env=_env(asked), runtime_class=asked.word("runtime_class"))


def _percent(asked: Asked) -> int | None:
    return asked.whole(asked.vendor.memory_percentage_name, 0, WHOLE)


def _is_exclusive(asked: Asked, percent: int | None) -> bool:
    """Whether all memory is taken and nothing said of cores.

    A percentage or an amount of 0 books the whole card too, but does not say so (G-23).
    """
    if asked.text(asked.vendor.cores_name) is not None:
        return False
    if percent is not None:
        return percent == WHOLE
    return asked.text(asked.vendor.memory_name) is None


def _env(asked: Asked) -> tuple[tuple[str, str], ...]:
    env = []
    if asked.in_limits(asked.vendor.priority_name):
        priority = asked.whole(asked.vendor.priority_name, -INT64_MAX, INT64_MAX)
        env.append((PRIORITY_ENV, str(priority)))
    core_policy = asked.word("core_policy")
    if core_policy not in ("", DEFAULT_CORE_POLICY):
        env.append((CORE_POLICY_ENV, core_policy))
    return tuple(env)


def _hidden(asked: Asked) -> tuple[tuple[str, str], ...]:
    """Where configured, a container that asks for no device sees none."""
    return ((VISIBLE_DEVICES_ENV, NO_DEVICES),) if asked.flag("overwrite_env") else ()

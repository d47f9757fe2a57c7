"""Metax sGPU (semantics 3.3): limits alone; bare memory is GiB, memory with a unit is bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hamiacct.accounting import quantities
from hamiacct.accounting.errors import UnreadableQuantity
from hamiacct.accounting.requests import INT32_MAX, NO_EFFECT, Asked, DeviceRequest, Effect

MIB = 2**20
ONLINE = "online"


def read(asked: Asked) -> DeviceRequest | None:
    """The request; memory that is not given is the whole card."""
    count = asked.count()
    if not count:
        return None
    memory_mib = _memory_mib(asked)
    return DeviceRequest(asked.vendor.key, count, memory_mib, 0 if memory_mib else 100, asked.cores())


def _memory_mib(asked: Asked) -> int:
    """MiB, whole ones of what is written in bytes; less than one is no amount anybody means."""
    name = asked.vendor.memory_name
    text = asked.text(name)
    if text is None or not any(letter.isalpha() for letter in text):
        return asked.memory() * max(asked.vendor.memory_factor, 1)
    try:
        size = quantities.whole(text)
    except UnreadableQuantity:
        size = -1
    if size < 0 or size // MIB > INT32_MAX or 0 < size < MIB:
        raise asked.unreadable(name, text, f"must be whole bytes between 1Mi and {INT32_MAX}Mi")
    return size // MIB


def admit(asked: Asked, annotations: Mapping[str, str]) -> Effect:
    """The pod's class and quality of service are words that the plugin knows; best effort is the default."""
    count = asked.count()
    if not count:
        return NO_EFFECT
    [class_key] = asked.vendor.selectors["app_class"]
    app_class = annotations.get(class_key)
    if app_class is not None:
        _check(asked, class_key, app_class, "app_classes")
        if count != 1:
            reason = f"must be 1 in a pod with {class_key}"
            raise asked.unreadable(asked.vendor.count_name, count, reason)
    if app_class == ONLINE:
        return asked.writes({})
    [policy_key] = asked.vendor.selectors["qos_policy"]
    policy = annotations.get(policy_key)
    if policy is None:
        best_effort = str(asked.several("qos_policies")[0])
        return replace(asked.writes({}), annotations={policy_key: best_effort})
    _check(asked, policy_key, policy, "qos_policies")
    return asked.writes({})


def _check(asked: Asked, key: str, word: str, parameter: str) -> None:
    words = asked.several(parameter)
    if word not in words:
        raise asked.unreadable(key, word, f"must be set one of [{', '.join(map(str, words))}]")

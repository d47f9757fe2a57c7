"""The checks of semantics 6.2, one function each: a reason to refuse a device, or None."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hamiacct.accounting import mig
from hamiacct.accounting.fitting.scene import Pick, Picks, Scene
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.reasons import Reason

WHOLE_CARD = 100
"""Cores that ask for a card alone, and the cores of a card that can be asked for so."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one device: what would be asked of it, after what this container took already.

    `cores_total` is the device's, unless the vendor counts them otherwise. `pick` is what would be
    taken; on a MIG card it has the amounts of the profile, where one has room.
    """

    scene: Scene
    device: FitDevice
    memory_mib: int
    cores: int
    cores_total: int
    taken: Picks
    pick: Pick


Check = Callable[[Look], Reason | None]
Checks = tuple[Check, ...]


def first_reason(checks: Iterable[Check], look: Look) -> Reason | None:
    """The first check that refuses decides."""
    for check in checks:
        reason = check(look)
        if reason is not None:
            return reason
    return None


def healthy(look: Look) -> Reason | None:
    """1."""
    return None if look.device.healthy else Reason.UNHEALTHY


def uncordoned(look: Look) -> Reason | None:
    """2; for every vendor (decision 22)."""
    return Reason.CORDONED if look.device.cordoned else None


def of_type(look: Look) -> Reason | None:
    """3: type selectors, mode, and the vendor that was asked."""
    choice = look.scene.choice
    chosen = choice.allows_type(look.device.model) and choice.allows_mode(look.device.mode)
    return None if chosen and look.device.vendor == look.scene.request.vendor else Reason.TYPE


def of_uuid(look: Look) -> Reason | None:
    """5."""
    return None if look.scene.choice.allows_uuid(look.device.uuid) else Reason.UUID


def has_slot(look: Look) -> Reason | None:
    """6."""
    return Reason.SLOTS if look.device.free.slots < look.scene.slots_per_row else None


def mutex(look: Look) -> Reason | None:
    """7."""
    return Reason.EXCLUSIVE if look.scene.policy.is_mutex and look.device.used.slots > 0 else None


def within_quota(look: Look) -> Reason | None:
    """8, on what would be posted."""
    return None if look.scene.admits((*look.taken, look.pick)) else Reason.QUOTA


def has_memory(look: Look) -> Reason | None:
    """9."""
    return Reason.MEMORY if look.device.free.memory_mib < look.memory_mib else None


def has_cores(look: Look) -> Reason | None:
    """10."""
    return Reason.CORES if look.cores_total - look.device.used.cores < look.cores else None


def alone(look: Look) -> Reason | None:
    """11: who asks for the whole of a card wants an unused one."""
    whole = look.cores_total == WHOLE_CARD and look.cores == WHOLE_CARD
    return Reason.EXCLUSIVE if whole and look.device.used.slots > 0 else None


def has_any_core(look: Look) -> Reason | None:
    """12: asking for no cores, on a card that has none left."""
    full = look.cores_total != 0 and look.device.used.cores == look.cores_total
    return Reason.CORES_EXHAUSTED if full and look.cores == 0 else None


def has_instance(look: Look) -> Reason | None:
    """13."""
    is_mig = look.device.mode == mig.MIG_MODE and look.scene.option("mig") is True
    return Reason.MIG if is_mig and look.pick.instance is None else None


def unused(look: Look) -> Reason | None:
    """For vendors that give out whole devices only."""
    return Reason.EXCLUSIVE if look.device.used.slots > 0 else None


BEFORE_NUMA: Checks = (healthy, uncordoned, of_type)
CAPACITY: Checks = (has_memory, has_cores, alone, has_any_core)
AFTER_NUMA: Checks = (of_uuid, has_slot, mutex, within_quota, *CAPACITY, has_instance)

"""Devices as a Node object registers them (semantics 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple


class Placement(NamedTuple):
    """A place for a MIG instance: the half-open range of slices [start, start + size)."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile a card offers; `memory_mib` and `cores` replace a request's when placed."""

    name: str
    memory_mib: int = 0
    cores: int = 0
    slice_count: int = 0
    placements: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """One device of one node: `slots`, `memory_mib` and `cores` are its totals.

    `order` is its place in the register text. `model` is the register's `type` as written.
    """

    uuid: str
    vendor: str
    index: int = 0
    order: int = 0
    slots: int = 0
    memory_mib: int = 0
    cores: int = 0
    model: str = ""
    numa: int = 0
    mode: str = ""
    healthy: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    custom: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigAllocation:
    """One placed MIG instance of a pod (semantics 2.6).

    `container_index` is the position, `device_index` the number of the row inside that group. The
    runtime identity (`mig_uuid` and both ids) is given as a whole or not at all.
    """

    container_index: int
    device_index: int
    gpu_uuid: str
    profile: str
    placement: Placement
    mig_uuid: str = ""
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


class RegistrationState(StrEnum):
    """What a Node object says of one vendor's devices."""

    LISTED = "listed"  # the list replaces the inventory
    MISSING = "missing"  # the register key is absent: the devices are gone
    UNREADABLE = "unreadable"  # empty or broken text: the inventory stays, with a finding
    EXPIRED = "expired"  # the handshake is over: the devices are gone


@dataclass(frozen=True, slots=True)
class Registration:
    """One vendor's part of a Node object.

    `duplicates` are uuids that the text lists twice (the first counts). `reason` says why it is not
    LISTED. `expires_at` (RFC 3339, UTC, "" if none) is when a pending handshake will have expired
    if nothing changes.
    """

    vendor: str
    state: RegistrationState
    devices: tuple[RegisteredDevice, ...] = ()
    reason: str = ""
    duplicates: tuple[str, ...] = ()
    expires_at: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node object, decoded. `registrations` has one item per vendor that says anything, or could.

    `cordoned` are the uuids of `hami.io/device-cordon`; `pair_scores` is uuid -> uuid -> score.
    `labels` and `annotations` are those that fit and the vendors read (topology, selectors, switches).
    `is_ours` is whether its devices are to be given out here at all.
    """

    name: str
    resource_version: int
    registrations: tuple[Registration, ...] = ()
    cordoned: frozenset[str] = frozenset()
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    is_ours: bool = True

    def within(self, selector: Mapping[str, str]) -> Node:
        """The node if it carries all of these labels; otherwise the same node without its devices.

        So it is with HAMi's `--node-label-selector`: what does not carry them is not registered.
        """
        if carries(self.labels, selector):
            return self
        return replace(self, registrations=(), is_ours=False)


def carries(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a node with these labels is one of those selected; an empty selector selects all."""
    return selector.items() <= labels.items()

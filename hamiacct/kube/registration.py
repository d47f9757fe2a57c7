"""What a Node object says of devices: registers, capacity, handshakes, cordon (semantics 2.4, 3.3).

One reader per form of inventory; a vendor's table names the form and its parameters. An empty or
unreadable register keeps the inventory, an absent one ends it, as an expired handshake does
(decision 10). The clock is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import NamedTuple

from hamiacct.accounting import quantities
from hamiacct.accounting.devices import (
    Node,
    RegisteredDevice,
    Registration,
    RegistrationState,
)
from hamiacct.accounting.errors import Malformed, UnreadableAnnotation, UnreadableQuantity
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import annotations as codec
from hamiacct.kube import fields, handshakes, registers
from hamiacct.kube.fields import Manifest

CORDON = "hami.io/device-cordon"


def node_from_manifest(manifest: object, vendors: Sequence[Vendor], now: datetime, zone: tzinfo) -> Node:
    """The node of a manifest, with one registration per vendor that says anything.

    A vendor without a registration is not there: the same as MISSING. `now` has a time zone; `zone`
    is the one HAMi's scheduler writes its handshakes in. Raises Malformed with a pointer.
    """
    item = fields.object_of(manifest, "")
    metadata = fields.mapping(item, "metadata", "")
    annotations = fields.mapping(metadata, "annotations", "/metadata")
    facts = _NodeFacts(
        name=fields.required_name(metadata, "name", "/metadata"),
        annotations=annotations,
        status=fields.mapping(item, "status", ""),
        now=now,
        zone=zone,
    )
    found = _one_owner_each(
        [registration for vendor in vendors if (registration := _registration(facts, vendor))]
    )
    pair_scores: dict[str, Mapping[str, int]] = {}
    for vendor in vendors:
        key = vendor.inventory.pair_scores
        if key and key in annotations and _is_listed(found, vendor):
            pair_scores |= registers.decode_pair_scores(_text(annotations, key))
    switches = _switches(tuple(vendors))
    cordoned = fields.texts(metadata, "annotations", (CORDON,), "/metadata").get(CORDON, "")
    return Node(
        name=facts.name,
        resource_version=fields.optional_version(metadata, "/metadata"),
        registrations=tuple(found),
        cordoned=members(cordoned),
        pair_scores=pair_scores,
        labels=fields.all_texts(metadata, "labels", "/metadata"),
        annotations=fields.texts(metadata, "annotations", switches, "/metadata"),
        unschedulable=fields.boolean(fields.mapping(item, "spec", ""), "unschedulable", "/spec"),
    )


def _one_owner_each(found: Iterable[Registration]) -> list[Registration]:
    """The registrations without the uuids that an earlier vendor lists: a device is (node, uuid)."""
    owned: set[str] = set()
    distinct = []
    for registration in found:
        shared = tuple(device.uuid for device in registration.devices if device.uuid in owned)
        if shared:
            devices = tuple(device for device in registration.devices if device.uuid not in owned)
            duplicates = (*registration.duplicates, *shared)
            registration = replace(registration, devices=devices, duplicates=duplicates)
        owned.update(device.uuid for device in registration.devices)
        distinct.append(registration)
    return distinct


def members(text: str) -> frozenset[str]:
    """The members of a comma list, trimmed, empty ones dropped (semantics 2.4, Cordon)."""
    trimmed = (member.strip() for member in text.split(","))
    return frozenset(member for member in trimmed if 0 < len(member) <= codec.MAX_NAME)


def annotation_keys(vendors: Iterable[Vendor]) -> frozenset[str]:
    """Every annotation of a Node that is read here."""
    keys = {CORDON}
    for vendor in vendors:
        inventory = vendor.inventory
        keys.update((inventory.annotation, inventory.handshake, inventory.pair_scores, *inventory.switches))
    return frozenset(keys - {""})


def capacity_names(vendors: Iterable[Vendor]) -> frozenset[str]:
    """Every resource of a Node's status that is read here."""
    names: set[str] = set()
    for vendor in vendors:
        inventory = vendor.inventory
        names.update((inventory.capacity_name, inventory.memory_capacity_name, inventory.cores_capacity_name))
    return frozenset(names - {""})


@lru_cache(maxsize=8)
def _switches(vendors: tuple[Vendor, ...]) -> frozenset[str]:
    """Annotations that change how devices are given out, not which there are."""
    return frozenset(key for vendor in vendors for key in vendor.inventory.switches)


class _NodeFacts(NamedTuple):
    name: str
    annotations: Manifest
    status: Manifest
    now: datetime
    zone: tzinfo

    def amount(self, name: str, *sides: str) -> int | None:
        """A resource of the status, from the first of the sides that has it. Raises Malformed."""
        for side in sides:
            value = fields.mapping(self.status, side, "/status").get(name)
            if value is None:
                continue
            pointer = f"/status/{side}/{fields.escaped(name)}"
            try:
                amount = quantities.whole(fields.quantity(value, pointer))
            except UnreadableQuantity as error:
                raise Malformed(error.detail, pointer) from error
            if amount < 0:
                raise Malformed("must not be negative", pointer)
            return amount
        return None

    def capacity(self, name: str) -> int | None:
        """What the node has of a resource."""
        return self.amount(name, "capacity", "allocatable") if name else None

    def allocatable(self, name: str) -> int:
        """What the node offers of a resource; 0 where it does not say."""
        return (self.amount(name, "allocatable", "capacity") if name else None) or 0


def _is_listed(found: Iterable[Registration], vendor: Vendor) -> bool:
    return any(
        registration.vendor == vendor.key and registration.state is RegistrationState.LISTED
        for registration in found
    )


def _text(annotations: Manifest, key: str) -> str:
    value = annotations[key]
    if not isinstance(value, str):
        raise UnreadableAnnotation(f"must be a text, not {fields.type_word(value)}")
    return codec.clean(value)


# --- one vendor ----------------------------------------------------------------------------------


def _registration(facts: _NodeFacts, vendor: Vendor) -> Registration | None:
    """What the node says of one vendor's devices; None where it says nothing at all."""
    inventory = vendor.inventory
    reader = registers.READERS.get(inventory.form)
    if reader is None:
        return _by_capacity(facts, vendor) if inventory.form == "capacity" else None
    if inventory.annotation not in facts.annotations:
        if inventory.handshake and inventory.handshake in facts.annotations:
            return Registration(vendor.key, RegistrationState.MISSING, reason=f"no {inventory.annotation}")
        return None
    expires_at = ""
    if inventory.handshake:
        expired, expires_at = _handshake(facts, vendor)
    else:
        expired = _without_capacity(facts, vendor)
    if expired:
        return Registration(vendor.key, RegistrationState.EXPIRED, reason=expired)
    try:
        listed = reader(_text(facts.annotations, inventory.annotation), vendor, facts.name)
        if inventory.pair_scores and inventory.pair_scores in facts.annotations:
            registers.decode_pair_scores(_text(facts.annotations, inventory.pair_scores))
        if not listed:
            raise UnreadableAnnotation("lists no devices")
    except UnreadableAnnotation as error:
        return Registration(
            vendor.key, RegistrationState.UNREADABLE, reason=error.detail, expires_at=expires_at
        )
    devices, duplicates = _distinct(listed)
    return Registration(
        vendor.key, RegistrationState.LISTED, devices, duplicates=duplicates, expires_at=expires_at
    )


def _distinct(
    listed: Iterable[RegisteredDevice],
) -> tuple[tuple[RegisteredDevice, ...], tuple[str, ...]]:
    """The devices with uuids listed once each, the first of two counting; and the others' uuids."""
    devices: dict[str, RegisteredDevice] = {}
    duplicates: dict[str, None] = {}
    for device in listed:
        if device.uuid in devices:
            duplicates[device.uuid] = None
        else:
            devices[device.uuid] = device
    return tuple(devices.values()), tuple(duplicates)


def _without_capacity(facts: _NodeFacts, vendor: Vendor) -> str:
    """Why a plugin without handshake is taken to be gone: its node advertises 0 cards. "" if it is not."""
    name = vendor.inventory.capacity_name
    return f"the node's capacity shows 0 {name}" if facts.capacity(name) == 0 else ""


def _handshake(facts: _NodeFacts, vendor: Vendor) -> tuple[str, str]:
    """Why the vendor's devices are gone ("" if they are not), and when they would be (RFC 3339, or "")."""
    key = vendor.inventory.handshake
    value = facts.annotations.get(key)
    if not isinstance(value, str):
        return "", ""
    value = codec.clean(value)
    allocatable = facts.allocatable(vendor.inventory.capacity_name)
    if not handshakes.judge(value, facts.now, allocatable, facts.zone).healthy:
        name = vendor.inventory.capacity_name
        return f"{key} is {codec.shown(value)}, and the node offers no {name}", ""
    deadline = handshakes.deadline_of(value, facts.zone) if handshakes.REQUESTING in value else None
    if deadline is None or allocatable > 0:
        return "", ""
    return "", deadline.isoformat().replace("+00:00", "Z")


# --- capacity ------------------------------------------------------------------------------------


def _by_capacity(facts: _NodeFacts, vendor: Vendor) -> Registration | None:
    """Cards that a node only counts: one per `per_card` units of the capacity resource.

    Where the cores of a card are counted too (`cores_capacity_name`), a card has the average of
    them; where a card has no number of slots of its own, it has one per core.
    """
    inventory = vendor.inventory
    total = facts.capacity(inventory.capacity_name)
    if total is None:
        return None
    cards = -(-total // (inventory.per_card or 1))
    if not cards:
        reason = f"the node's capacity shows 0 {inventory.capacity_name}"
        return Registration(vendor.key, RegistrationState.MISSING, reason=reason)
    if cards > registers.MAX_DEVICES:
        reason = f"the node's capacity shows {cards} cards, more than {registers.MAX_DEVICES}"
        return Registration(vendor.key, RegistrationState.UNREADABLE, reason=reason)
    memory_mib = inventory.memory_mib
    if inventory.memory_capacity_name:
        memory = facts.capacity(inventory.memory_capacity_name) or 0
        memory_mib = memory * inventory.unit_mib * (inventory.per_card or 1) // total
    cores_counted = facts.capacity(inventory.cores_capacity_name)
    cores = cores_counted // cards if cores_counted else inventory.cores
    if max(memory_mib, cores) > codec.INT32_MAX:
        reason = f"the node's capacity gives a card of {memory_mib} MiB and {cores} cores"
        return Registration(vendor.key, RegistrationState.UNREADABLE, reason=reason)
    devices = tuple(
        RegisteredDevice(
            uuid=registers.card_id(facts.name, vendor, index),
            vendor=vendor.key,
            index=index,
            order=index,
            slots=inventory.slots or cores,
            memory_mib=memory_mib,
            cores=cores,
            model=vendor.key,
            numa=int(inventory.numa_halves and index >= cards // 2),
            healthy=True,
        )
        for index in range(cards)
    )
    return Registration(vendor.key, RegistrationState.LISTED, devices)


FORMS = frozenset((*registers.READERS, "capacity", ""))
"""The inventory forms a vendor's table may name."""

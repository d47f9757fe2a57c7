"""What a Node object says of devices: registers, capacity, handshakes, cordon (semantics 2.4, 3.3).

One reader per form of inventory; a vendor's table names the form and its parameters. An empty or
unreadable register keeps the inventory, an absent one ends it, as an expired handshake does
(decision 10). The clock is the caller's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from hamiacct.accounting import quantities
from hamiacct.accounting.devices import (
    MigProfile,
    Node,
    Placement,
    RegisteredDevice,
    Registration,
    RegistrationState,
)
from hamiacct.accounting.errors import Malformed, UnreadableAnnotation, UnreadableQuantity
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import annotations as codec
from hamiacct.kube import fields
from hamiacct.kube.fields import Manifest

CORDON = "hami.io/device-cordon"
HANDSHAKE_SECONDS = 60
"""How long a scheduler's request may stay unanswered by a plugin that advertises nothing."""
MAX_DEVICES = 4096
"""More devices of one vendor than any node has."""


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
            pair_scores |= decode_pair_scores(_text(annotations, key))
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
    reader = _READERS.get(inventory.form)
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
            decode_pair_scores(_text(facts.annotations, inventory.pair_scores))
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


# --- the handshake -------------------------------------------------------------------------------


class Handshake(NamedTuple):
    """HAMi's verdict on a vendor's plugin: whether it lives, and whether its register is read again."""

    healthy: bool
    need_update: bool


_REQUESTING = "Requesting"
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


def judge_handshake(value: str, now: datetime, allocatable: int, zone: tzinfo) -> Handshake:
    """The table of semantics 2.4. `allocatable` is the node's count of the vendor's resource."""
    if _REQUESTING not in value:
        return Handshake(healthy=True, need_update=True)
    deadline = _deadline(value, zone)
    if deadline is None or now < deadline or allocatable > 0:
        return Handshake(healthy=True, need_update=False)
    return Handshake(healthy=False, need_update=False)


def _deadline(value: str, zone: tzinfo) -> datetime | None:
    """When a request of the scheduler will have been unanswered too long; None if it has no time."""
    _, underscore, rest = value.partition("_")
    stamp = rest.partition("_")[0]
    if not underscore or not _STAMP.fullmatch(stamp):
        return None
    try:
        asked = datetime.fromisoformat(stamp).replace(tzinfo=zone)
        return asked.astimezone(UTC) + timedelta(seconds=HANDSHAKE_SECONDS)
    except ValueError:
        return None  # a date that no calendar has
    except OverflowError:
        # Next to the first or last year; there a zone and a minute make no difference.
        return datetime.min.replace(tzinfo=UTC) if stamp < "5000" else datetime.max.replace(tzinfo=UTC)


def _handshake(facts: _NodeFacts, vendor: Vendor) -> tuple[str, str]:
    """Why the vendor's devices are gone ("" if they are not), and when they would be (RFC 3339, or "")."""
    key = vendor.inventory.handshake
    value = facts.annotations.get(key)
    if not isinstance(value, str):
        return "", ""
    value = codec.clean(value)
    allocatable = facts.allocatable(vendor.inventory.capacity_name)
    if not judge_handshake(value, facts.now, allocatable, facts.zone).healthy:
        name = vendor.inventory.capacity_name
        return f"{key} is {codec.shown(value)}, and the node offers no {name}", ""
    deadline = _deadline(value, facts.zone) if _REQUESTING in value else None
    if deadline is None or allocatable > 0:
        return "", ""
    return "", deadline.isoformat().replace("+00:00", "Z")


# --- registers in JSON ---------------------------------------------------------------------------


def _objects(text: str, what: str) -> list[Manifest]:
    """The objects of a JSON array; null is an empty one."""
    loaded = codec.load_json(text)
    if loaded is None:
        return []
    if not isinstance(loaded, list):
        raise UnreadableAnnotation(f"{what} must be a JSON array")
    if len(loaded) > MAX_DEVICES:
        raise UnreadableAnnotation(f"more than {MAX_DEVICES} devices")
    for number, item in enumerate(loaded):
        if not isinstance(item, dict):
            raise UnreadableAnnotation(f"{what} {number} must be an object")
    return loaded


def decode_json_register(text: str, vendor: Vendor, node: str = "") -> tuple[RegisteredDevice, ...]:
    """HAMi's own register. Absent is zero: an absent `health` is unhealthy, an absent `mode` is "".

    The vendor is always the one whose annotation it is. Raises UnreadableAnnotation.
    """
    return tuple(_json_device(item, number, vendor) for number, item in enumerate(_objects(text, "device")))


def _json_device(item: Manifest, number: int, vendor: Vendor) -> RegisteredDevice:
    where = f"device {number}"
    cores = codec.integer(item, "devcore", where)
    return RegisteredDevice(
        uuid=_required(codec.string(item, "id", where), "id", where),
        vendor=vendor.key,
        index=codec.integer(item, "index", where, 0, codec.UINT32_MAX),
        order=number,
        slots=codec.integer(item, "count", where),
        memory_mib=codec.integer(item, "devmem", where),
        cores=vendor.inventory.forced_cores or cores,
        model=codec.string(item, "type", where),
        numa=codec.integer(item, "numa", where, -codec.INT32_MAX),
        mode=codec.string(item, "mode", where),
        healthy=codec.boolean(item, "health", where),
        mig_profiles=_mig_profiles(item, where),
        custom=_custom(item, where),
    )


def _required(value: str, field: str, where: str) -> str:
    if not value or value != value.strip():
        raise UnreadableAnnotation(f"{where}: {field} is empty or surrounded by blanks")
    return value


def _list_of(item: Manifest, field: str, where: str) -> list[Manifest]:
    value = item.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise UnreadableAnnotation(f"{where}: {field} must be a list of objects")
    return value


def _mig_profiles(item: Manifest, where: str) -> tuple[MigProfile, ...]:
    return tuple(
        MigProfile(
            name=codec.string(profile, "name", where),
            memory_mib=codec.integer(profile, "memoryMB", where),
            cores=codec.integer(profile, "core", where),
            slice_count=codec.integer(profile, "sliceCount", where, 0, codec.UINT32_MAX),
            placements=tuple(
                Placement(
                    codec.integer(placement, "start", where, 0, codec.UINT32_MAX),
                    codec.integer(placement, "size", where, 0, codec.UINT32_MAX),
                )
                for placement in _list_of(profile, "placements", where)
            ),
        )
        for profile in _list_of(item, "migProfiles", where)
    )


def _custom(item: Manifest, where: str) -> Mapping[str, object]:
    """`custominfo` as it is, provided that it can be stored."""
    value = item.get("custominfo")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableAnnotation(f"{where}: custominfo must be an object")
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except (ValueError, RecursionError) as error:
        raise UnreadableAnnotation(f"{where}: custominfo cannot be stored") from error
    if "\\u0000" in written:
        raise UnreadableAnnotation(f"{where}: custominfo cannot be stored")
    return value


def decode_metax_register(text: str, vendor: Vendor, node: str = "") -> tuple[RegisteredDevice, ...]:
    """Metax' register of shared devices; the index is the place in the list. Raises UnreadableAnnotation."""
    devices = []
    for number, item in enumerate(_objects(text, "device")):
        where = f"device {number}"
        model = codec.string(item, "model", where)
        devices.append(
            RegisteredDevice(
                uuid=_required(codec.string(item, "uuid", where), "uuid", where),
                vendor=vendor.key,
                index=number,
                order=number,
                slots=codec.integer(item, "totalDevCount", where),
                memory_mib=codec.integer(item, "totalVRam", where),
                cores=codec.integer(item, "totalCompute", where),
                model=model or vendor.key,
                numa=codec.integer(item, "numa", where, -codec.INT32_MAX),
                healthy=codec.boolean(item, "healthy", where),
                custom={
                    "qosPolicy": codec.string(item, "qosPolicy", where),
                    "model": model,
                    "linkZone": codec.integer(item, "linkZone", where, -codec.INT32_MAX),
                },
            )
        )
    return tuple(devices)


_DRS_PROFILE = re.compile(r"([0-9]{1,4})g\.([0-9]{1,6})gb")


def decode_drs_register(text: str, vendor: Vendor, node: str) -> tuple[RegisteredDevice, ...]:
    """Enflame's DRS capacity: `{"devices": [{index, minor, capacity}], "profiles": {name: id}}`.

    Slots are the capacity; memory is the largest profile's. Raises UnreadableAnnotation.
    """
    loaded = codec.load_json(text)
    if not isinstance(loaded, dict):
        raise UnreadableAnnotation("DRS capacity must be a JSON object")
    profiles = loaded.get("profiles") or {}
    if not isinstance(profiles, dict) or not all(isinstance(value, str) for value in profiles.values()):
        raise UnreadableAnnotation("profiles must be an object of texts")
    sizes = [match for name in profiles if (match := _DRS_PROFILE.fullmatch(name))]
    if not sizes:
        raise UnreadableAnnotation("no valid DRS profiles")
    largest_gb = max(int(match[2]) for match in sizes) or max(int(match[1]) for match in sizes)
    known = {match[0]: codec.string(profiles, match[0], "profiles") for match in sizes}
    devices = []
    for number, item in enumerate(_list_of(loaded, "devices", "DRS capacity")[: MAX_DEVICES + 1]):
        where = f"device {number}"
        index = _lenient_integer(item, "index", where, number)
        devices.append(
            RegisteredDevice(
                uuid=_card_id(node, vendor, index),
                vendor=vendor.key,
                index=index,
                order=number,
                slots=_lenient_integer(item, "capacity", where, 0),
                memory_mib=largest_gb * 1024,
                cores=vendor.inventory.cores,
                model=vendor.key,
                healthy=True,
                custom={"minor": _lenient_integer(item, "minor", where, index), "profiles": known},
            )
        )
        if not devices[-1].slots:
            raise UnreadableAnnotation(f"{where}: invalid DRS capacity")
    if len(devices) > MAX_DEVICES:
        raise UnreadableAnnotation(f"more than {MAX_DEVICES} devices")
    return tuple(devices)


def _lenient_integer(item: Manifest, field: str, where: str, default: int) -> int:
    """A whole number that may be written as a text; `default` where it is absent or empty."""
    value = item.get(field)
    if isinstance(value, str):
        value = value.strip()
        if value and not (value.isascii() and value.isdigit() and len(value) <= 10):
            raise UnreadableAnnotation(f"{where}: {field} must be a whole number")
        value = int(value) if value else None
    return default if value is None else codec.integer({field: value}, field, where)


# --- the delimited register ----------------------------------------------------------------------


_GO_BOOLEANS = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)


def decode_delimited_register(text: str, vendor: Vendor, node: str = "") -> tuple[RegisteredDevice, ...]:
    """`id,count,mem,core,type,numa,health[,index,mode]:` per device (semantics 2.4).

    Raises UnreadableAnnotation with HAMi's words.
    """
    if ":" not in text:
        raise UnreadableAnnotation("node annotation missing device separator")
    devices: list[RegisteredDevice] = []
    offset = 0
    for segment in text.split(":"):
        if segment:
            if len(devices) == MAX_DEVICES:
                raise UnreadableAnnotation(f"more than {MAX_DEVICES} devices", offset)
            devices.append(_delimited_device(segment, offset, len(devices), vendor))
        offset += len(segment) + 1
    return tuple(devices)


def _delimited_device(segment: str, offset: int, order: int, vendor: Vendor) -> RegisteredDevice:
    if "," not in segment:
        raise UnreadableAnnotation(f'malformed node annotation segment: "{segment[:80]}"', offset)
    parts = segment.split(",")
    if len(parts) not in (7, 9):
        raise UnreadableAnnotation(f"unexpected field count {len(parts)} in node annotation", offset)
    uuid, count, memory, cores, model, numa, health, *rest = parts
    slots = _go_integer(count, "count", offset)
    memory_mib = _go_integer(memory, "memory", offset)
    cores_total = _go_integer(cores, "core", offset)
    if health not in _GO_BOOLEANS:
        raise UnreadableAnnotation(f"invalid health field: {codec.shown(health)} is no boolean", offset)
    numa_node = _go_integer(numa, "numa", offset, signed=True)
    index, mode = 0, "hami-core"
    if rest:
        index, mode = _go_integer(rest[0], "index", offset, signed=True), rest[1]
        if index < 0:
            raise UnreadableAnnotation(f"index field must not be negative: {index}", offset)
    names = {"id": uuid, "type": model, "mode": mode}
    checked = {field: codec.string(names, field, "node annotation") for field in names}
    return RegisteredDevice(
        uuid=_required(checked["id"], "id", "node annotation"),
        vendor=vendor.key,
        index=index,
        order=order,
        slots=slots,
        memory_mib=memory_mib,
        cores=vendor.inventory.forced_cores or cores_total,
        model=checked["type"],
        numa=numa_node,
        mode=checked["mode"],
        healthy=_GO_BOOLEANS[health],
    )


_SIGNED = re.compile(r"[+-]?[0-9]{1,32}")


def _go_integer(text: str, field: str, offset: int, *, signed: bool = False) -> int:
    """A decimal number of 32 bit; negative only where that means something."""
    value = int(text) if _SIGNED.fullmatch(text) else codec.INT64_MAX
    low = -codec.INT32_MAX - 1 if signed else 0
    if not low <= value <= codec.INT32_MAX:
        raise UnreadableAnnotation(f"invalid {field} field: {codec.shown(text)}", offset)
    return value


# --- pair scores ---------------------------------------------------------------------------------


def decode_pair_scores(text: str) -> dict[str, dict[str, int]]:
    """`[{"uuid": "GPU-a", "score": {"GPU-b": 50}}]`. Raises UnreadableAnnotation."""
    scores: dict[str, dict[str, int]] = {}
    for number, item in enumerate(_objects(text, "pair score")):
        where = f"pair score {number}"
        pairs = item.get("score") or {}
        if not isinstance(pairs, dict):
            raise UnreadableAnnotation(f"{where}: score must be an object")
        uuid = codec.string(item, "uuid", where)
        scores[uuid] = {
            _stored_key(other, where): codec.integer(pairs, other, where, -codec.INT32_MAX - 1)
            for other in pairs
        }
    return scores


def _stored_key(key: str, where: str) -> str:
    return codec.string({"uuid": key}, "uuid", where)


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
    if cards > MAX_DEVICES:
        reason = f"the node's capacity shows {cards} cards, more than {MAX_DEVICES}"
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
            uuid=_card_id(facts.name, vendor, index),
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


def _card_id(node: str, vendor: Vendor, index: int) -> str:
    """The uuid HAMi makes up for a card that has none."""
    return f"{node}-{vendor.inventory.id_word}-{index}"


Reader = Callable[[str, Vendor, str], tuple[RegisteredDevice, ...]]

_READERS: dict[str, Reader] = {
    "json": decode_json_register,
    "delimited": decode_delimited_register,
    "metax-json": decode_metax_register,
    "drs-json": decode_drs_register,
}

FORMS = frozenset((*_READERS, "capacity", ""))
"""The inventory forms a vendor's table may name."""

"""The registers that device plugins write on their nodes, one reader a grammar (semantics 2.4, 3.3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from hamiacct.accounting.devices import MigProfile, Placement, RegisteredDevice
from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import annotations as codec
from hamiacct.kube.fields import Manifest

MAX_DEVICES = 4096
"""More devices of one vendor than any node has."""


def card_id(node: str, vendor: Vendor, index: int) -> str:
    """The uuid HAMi makes up for a card that has none."""
    return f"{node}-{vendor.inventory.id_word}-{index}"


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
                uuid=card_id(node, vendor, index),
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


# --- by form --------------------------------------------------------------------------------------


Reader = Callable[[str, Vendor, str], tuple[RegisteredDevice, ...]]

READERS: dict[str, Reader] = {
    "json": decode_json_register,
    "delimited": decode_delimited_register,
    "metax-json": decode_metax_register,
    "drs-json": decode_drs_register,
}

"""The hami.io codec: allocation texts to rows by position and back (semantics 2.1, 2.6).

    value := group*      group := entry* ";"      entry := uuid "," type "," memory "," cores ":"

An empty group keeps its place. What the grammar does not allow is a fault with the offset where it
begins, never "no device"; each vendor's text is judged by itself (decision 11).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from hamiacct.accounting.devices import MigAllocation, Placement
from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.holdings import device_uuid
from hamiacct.accounting.pods import Allocation, AnnotationFault, FaultCode, Groups, Row
from hamiacct.accounting.vendors import Vendor

VGPU_NODE = "hami.io/vgpu-node"
VGPU_TIME = "hami.io/vgpu-time"
BIND_TIME = "hami.io/bind-time"
BIND_PHASE = "hami.io/bind-phase"
NODE_POLICY = "hami.io/node-scheduler-policy"
GPU_POLICY = "hami.io/gpu-scheduler-policy"
SCORING_WEIGHTS = "hami.io/device-scoring-weights"
MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"

POD_KEYS = (
    VGPU_NODE,
    VGPU_TIME,
    BIND_TIME,
    BIND_PHASE,
    NODE_POLICY,
    GPU_POLICY,
    SCORING_WEIGHTS,
    MIG_ALLOCATIONS,
)
"""Pod annotations that belong to no vendor (semantics 2.3)."""

POD_LABELS = (VGPU_NODE, "hami.io/webhook")

MAX_TEXT = 262_144
"""Kubernetes allows this many bytes for all annotations of one object together."""
MAX_ROWS = 4096
"""More groups and entries than any pod has; a longer text is refused before it costs anything."""
MAX_NAME = 253
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
UINT32_MAX = 2**32 - 1

_PLACEHOLDER = ("", "", "0", "0")
_SEPARATORS = frozenset(",:;")
REPLACEMENT = "\ufffd"
"""What stands for a character that no store can hold."""


def is_plain(text: str) -> bool:
    """Whether a name can be stored as it is, by the quickest look."""
    return len(text) <= MAX_NAME and text.isascii() and "\0" not in text


def clean(text: str) -> str:
    """The text with characters that no store can hold (NUL, lone surrogates) as U+FFFD, and bounded.

    The codec refuses U+FFFD, so a cleaned annotation is a fault where the original would have been.
    """
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT + 1]
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    return text.replace("\0", REPLACEMENT).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shown(text: str) -> str:
    """A piece of foreign text for a message: quoted, and cut where it is long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


# --- the allocation list -------------------------------------------------------------------------


def decode_groups(text: str) -> Groups:
    """The rows of each `;`-separated piece, the empty one after the last `;` included (semantics 2.1).

    A missing `;` at the end is accepted when the last entry is closed by `:`; every writer closes
    its entries, so one that is not closed has been cut off. The placeholder `,,0,0:` of old releases
    is an empty entry. Raises UnreadableAnnotation with the offset of the offending piece.
    """
    if len(text) > MAX_TEXT:
        raise UnreadableAnnotation(f"longer than {MAX_TEXT} characters", MAX_TEXT)
    if text.count(";") + text.count(":") > MAX_ROWS:
        raise UnreadableAnnotation(f"more than {MAX_ROWS} groups and entries", 0)
    if _PLAIN.fullmatch(text):
        return tuple(_plain_rows(piece) if piece else () for piece in text.split(";"))
    groups = []
    offset = 0
    for piece in text.split(";"):
        groups.append(tuple(_rows(piece, offset)) if piece else ())
        offset += len(piece) + 1
    return tuple(groups)


def encode_groups(groups: Sequence[Sequence[Row]]) -> str:
    """The text of one group per position, every entry closed by `:` and every group by `;`."""
    pieces = []
    for group in groups:
        for row in group:
            assert min(row.memory, row.cores) >= 0, row
            assert _SEPARATORS.isdisjoint(row.uuid + row.type), row
            pieces.append(f"{row.uuid},{row.type},{row.memory},{row.cores}:")
        pieces.append(";")
    return "".join(pieces)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


# What writers write: nothing to be refused, no placeholder, numbers of at most nine digits.
_PLAIN = re.compile(r"(?:;|[!-+\-.-9<-~]{1,253},[!-+\-.-9<-~]{0,253},[0-9]{1,9},[0-9]{1,9}:)*+")


def _plain_rows(piece: str) -> tuple[Row, ...]:
    """The rows of a group that `_PLAIN` allows."""
    rows = []
    for entry in piece.split(":")[:-1]:
        uuid, kind, memory, cores = entry.split(",")
        rows.append(Row(uuid, kind, int(memory), int(cores)))
    return tuple(rows)


def _rows(piece: str, offset: int) -> Iterator[Row]:
    """The rows of one group that begins at `offset`."""
    entries = piece.split(":")
    last = len(entries) - 1
    for number, entry in enumerate(entries):
        if number == last and not entry:
            return
        fields = entry.split(",")
        if len(fields) != 4:
            raise UnreadableAnnotation(_miscounted(entry, fields), offset)
        if number == last:
            raise UnreadableAnnotation(f"entry {shown(entry)} is cut off: no ':' closes it", offset)
        if tuple(fields) != _PLACEHOLDER:
            yield _row(fields, offset)
        offset += len(entry) + 1


def _miscounted(entry: str, fields: list[str]) -> str:
    if len(fields) == 1:
        return f"sub-piece without comma: {shown(entry)} has fewer than 4 fields"
    if len(fields) < 4:
        return f"missing fields: {shown(entry)} has {len(fields)}, fewer than 4 fields"
    return f"{shown(entry)} has {len(fields)}, more than 4 fields"


def _row(fields: list[str], offset: int) -> Row:
    uuid, kind, memory, cores = fields
    memory_at = offset + len(uuid) + len(kind) + 2
    _check_name(uuid, "UUID", offset)
    _check_name(kind, "type", offset + len(uuid) + 1)
    row = Row(
        uuid,
        kind,
        _number(memory, "memory", memory_at),
        _number(cores, "cores", memory_at + len(memory) + 1),
    )
    if not uuid:  # an empty type is no fault: the annotation's key tells the vendor
        what = "with non-zero numbers" if row.memory or row.cores else "beside a given type"
        raise UnreadableAnnotation(f"empty UUID {what}", offset)
    return row


def _check_name(text: str, field: str, offset: int) -> None:
    if text != text.strip():
        raise UnreadableAnnotation(f"surrounding blanks in the {field} field {shown(text)}", offset)
    if len(text) > MAX_NAME:
        raise UnreadableAnnotation(f"the {field} field is longer than {MAX_NAME} characters", offset)
    if not text.isprintable() or REPLACEMENT in text:
        raise UnreadableAnnotation(f"the {field} field {shown(text)} has unprintable characters", offset)


def _number(text: str, field: str, offset: int) -> int:
    """A plain decimal number of at most 31 bit."""
    if _is_number(text):
        digits = text.lstrip("0") or "0"
        if len(digits) <= 10 and (value := int(digits)) <= INT32_MAX:
            return value
        raise UnreadableAnnotation(f"{field} field {shown(text)} is above {INT32_MAX}", offset)
    if text != text.strip():
        raise UnreadableAnnotation(f"surrounding blanks in the {field} field {shown(text)}", offset)
    if text[:1] == "-" and _is_number(text[1:]):
        raise UnreadableAnnotation(f"negative {field}: the {field} field is {shown(text)}", offset)
    raise UnreadableAnnotation(f"{field} field {shown(text)} is not a plain decimal number", offset)


# --- the allocations of a pod --------------------------------------------------------------------


def allocations_of(
    annotations: Mapping[str, object], vendors: Sequence[Vendor], node: str, positions: int
) -> tuple[dict[str, Allocation], tuple[AnnotationFault, ...]]:
    """What each vendor's annotation says of a pod with `positions` containers, and what cannot be taken.

    Vendors are judged one by one, in the order of the table: a fault of one leaves the others
    (decision 11). A device that two vendors name is a fault of the later one.
    """
    allocations: dict[str, Allocation] = {}
    faults: list[AnnotationFault] = []
    owners: dict[str, str] = {}
    for vendor in vendors:
        if vendor.allocated_key not in annotations:
            continue
        allocation = _allocation(annotations, vendor, node, positions, owners)
        if isinstance(allocation, AnnotationFault):
            faults.append(allocation)
            continue
        allocations[vendor.key] = allocation
        for group in allocation.groups:
            for row in group:
                owners[device_uuid(row.uuid)] = vendor.key
    return allocations, tuple(faults)


def _allocation(
    annotations: Mapping[str, object],
    vendor: Vendor,
    node: str,
    positions: int,
    owners: Mapping[str, str],
) -> Allocation | AnnotationFault:
    key = vendor.allocated_key
    text = annotations[key]
    if not isinstance(text, str):
        return AnnotationFault(vendor.key, key, 0, f"must be a text, not {type(text).__name__}")
    try:
        groups = decode_groups(clean(text))
    except UnreadableAnnotation as error:
        return AnnotationFault(vendor.key, key, error.offset, error.detail)
    if not text or text.endswith(";"):
        groups = groups[:-1]
    for position, group in enumerate(groups):
        if group and position >= positions:
            noun = "container" if positions == 1 else "containers"
            reason = f"position {position} is outside the pod ({positions} {noun})"
            offset = _entry_offset(text, position, 0)
            return AnnotationFault(vendor.key, key, offset, reason, FaultCode.OUTSIDE_POD)
        for number, row in enumerate(group):
            if (owner := owners.get(device_uuid(row.uuid))) is not None:
                reason = f"{shown(row.uuid)} is allocated by {owner} as well"
                return AnnotationFault(vendor.key, key, _entry_offset(text, position, number), reason)
    slots = annotations.get(vendor.slots_annotation) if vendor.slots_annotation else None
    if slots is None:
        return Allocation(vendor.key, node, groups, text=text)
    if not isinstance(slots, str) or not _is_number(slots) or not _in_int32(slots):
        shown_slots = shown(clean(slots)) if isinstance(slots, str) else type(slots).__name__
        reason = f"slots {shown_slots} must be a whole number from 1 to {INT32_MAX}"
        return AnnotationFault(vendor.key, vendor.slots_annotation, 0, reason)
    return Allocation(vendor.key, node, groups, int(slots), text)


def _in_int32(digits: str) -> bool:
    stripped = digits.lstrip("0")
    return 0 < len(stripped) <= 10 and int(stripped) <= INT32_MAX


def _entry_offset(text: str, position: int, number: int) -> int:
    """Where the numbered entry of the group at `position` begins; placeholders are not counted."""
    pieces = text.split(";")
    offset = sum(len(piece) + 1 for piece in pieces[:position])
    for entry in pieces[position].split(":"):
        if tuple(entry.split(",")) != _PLACEHOLDER:
            if number == 0:
                break
            number -= 1
        offset += len(entry) + 1
    return offset


# --- MIG placements ------------------------------------------------------------------------------


def load_json(text: str) -> object:
    """JSON of an annotation. Raises UnreadableAnnotation; nothing else, however deep or long it is."""
    if len(text) > MAX_TEXT:
        raise UnreadableAnnotation(f"longer than {MAX_TEXT} characters", MAX_TEXT)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableAnnotation(f"broken JSON: {error.msg}", error.pos) from error
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or brackets nested thousands deep.
        raise UnreadableAnnotation(f"JSON out of bounds: {type(error).__name__}") from error


def decode_mig_allocations(text: str) -> tuple[MigAllocation, ...]:
    """The placements of `hami.io/vgpu-mig-allocations` (semantics 2.6); "" is none.

    One bad element makes the whole value invalid. Raises UnreadableAnnotation.
    """
    if not text:
        return ()
    loaded = load_json(text)
    if loaded is None:
        return ()
    if not isinstance(loaded, list):
        raise UnreadableAnnotation("MIG allocations must be a JSON array")
    allocations: dict[tuple[int, int], MigAllocation] = {}
    for number, item in enumerate(loaded):
        allocation = _mig_allocation(number, item)
        pair = (allocation.container_index, allocation.device_index)
        if pair in allocations:
            raise UnreadableAnnotation(f"duplicate MIG allocation for container {pair[0]} device {pair[1]}")
        allocations[pair] = allocation
    return tuple(allocations.values())


def encode_mig_allocations(allocations: Sequence[MigAllocation]) -> str:
    """The text of placements; the runtime identity is left out where it is not known yet."""
    items = []
    for one in allocations:
        item: dict[str, object] = {
            "containerIndex": one.container_index,
            "deviceIndex": one.device_index,
            "gpuUUID": one.gpu_uuid,
            "profile": one.profile,
            "placement": {"start": one.placement.start, "size": one.placement.size},
        }
        if one.mig_uuid:
            item["migUUID"] = one.mig_uuid
            item["gpuInstanceID"] = one.gpu_instance_id
            item["computeInstanceID"] = one.compute_instance_id
        items.append(item)
    return compact_json(items)


def compact_json(value: object) -> str:
    """JSON as Go writes it into annotations: without blanks."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _mig_allocation(number: int, item: object) -> MigAllocation:
    where = f"MIG allocation {number}"
    if not isinstance(item, dict):
        raise UnreadableAnnotation(f"{where} must be an object")
    placement = item.get("placement") or {}
    if not isinstance(placement, dict):
        raise UnreadableAnnotation(f"{where}: placement must be an object")
    allocation = MigAllocation(
        container_index=integer(item, "containerIndex", where, -INT32_MAX, INT32_MAX),
        device_index=integer(item, "deviceIndex", where, -INT32_MAX, INT32_MAX),
        gpu_uuid=string(item, "gpuUUID", where),
        profile=string(item, "profile", where),
        placement=Placement(
            integer(placement, "start", where, 0, UINT32_MAX),
            integer(placement, "size", where, 0, UINT32_MAX),
        ),
        mig_uuid=string(item, "migUUID", where),
        gpu_instance_id=_optional_id(item, "gpuInstanceID", where),
        compute_instance_id=_optional_id(item, "computeInstanceID", where),
    )
    is_complete = allocation.gpu_uuid and allocation.profile and allocation.placement.size
    if not is_complete or allocation.container_index < 0 or allocation.device_index < 0:
        raise UnreadableAnnotation(f"{where} is incomplete")
    runtime = (
        bool(allocation.mig_uuid),
        allocation.gpu_instance_id is not None,
        allocation.compute_instance_id is not None,
    )
    if any(runtime) and not all(runtime):
        raise UnreadableAnnotation(f"{where} has partial runtime identity")
    return allocation


def _optional_id(item: Mapping[str, object], field: str, where: str) -> int | None:
    if item.get(field) is None:
        return None
    return integer(item, field, where, 0, UINT32_MAX)


def integer(item: Mapping[str, object], field: str, where: str, low: int = 0, high: int = INT32_MAX) -> int:
    """A JSON integer field; absent and null are 0, as Go reads them. Raises UnreadableAnnotation."""
    value = item.get(field)
    if value is None:
        return 0
    if type(value) is not int:
        raise UnreadableAnnotation(f"{where}: {field} must be a whole number")
    if not low <= value <= high:
        raise UnreadableAnnotation(f"{where}: {field} is outside {low}..{high}")
    return value


def string(item: Mapping[str, object], field: str, where: str) -> str:
    """A JSON text field; absent and null are "". Raises UnreadableAnnotation."""
    value = item.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableAnnotation(f"{where}: {field} must be a text")
    if len(value) > MAX_NAME or clean(value) != value or REPLACEMENT in value:
        raise UnreadableAnnotation(f"{where}: {field} is too long or cannot be stored")
    return value


def boolean(item: Mapping[str, object], field: str, where: str) -> bool:
    """A JSON truth value; absent and null are false. Raises UnreadableAnnotation."""
    value = item.get(field)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise UnreadableAnnotation(f"{where}: {field} must be true or false")
    return value

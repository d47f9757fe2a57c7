"""What a placement writes on its pod: annotations and labels, as device plugins read them (semantics 2.3).

Every vendor's rows under its allocated and to-allocate keys, and what a vendor's plugin wants to be told
besides, by the rule that its table names (`patch.rule`). Two placements of one pod differ in keys, so
whatever an earlier one wrote and this one does not is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hamiacct.accounting.fit import Placement
from hamiacct.accounting.fitting.profiles import profiles_of
from hamiacct.accounting.offers import FitDevice
from hamiacct.accounting.pods import Allocation, Container, Pod, Row
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import annotations as codec

MAX_LABEL = 63
"""Characters of a label's value; a longer node name is an annotation alone."""
ALLOCATING = "allocating"
NOT_YET = "false"
MIB = 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Written = dict[str, str]


def annotations_of(
    placement: Placement, pod: Pod, vendors: Sequence[Vendor], at: datetime
) -> tuple[dict[str, str | None], dict[str, str]]:
    """The annotations and labels of a placement made at `at`.

    None removes a key that an earlier placement left on the pod. The label is left out where the node's
    name is too long for one.
    """
    annotations: dict[str, str | None] = {
        codec.VGPU_NODE: placement.node,
        codec.VGPU_TIME: str(unix_seconds(at)),
    }
    for vendor in vendors:
        allocation = placement.allocations.get(vendor.key)
        if allocation is None or not any(allocation.groups):
            continue
        text = codec.encode_groups(
            [[row._replace(type=vendor.key) for row in group] for group in allocation.groups]
        )
        annotations |= {key: text for key in (vendor.to_allocate_key, vendor.allocated_key) if key}
        if vendor.patch:
            annotations |= RULES[str(vendor.patch["rule"])](_Told(vendor, allocation, placement, pod, at))
    if placement.mig_allocations:
        annotations[codec.MIG_ALLOCATIONS] = codec.encode_mig_allocations(placement.mig_allocations)
    if on_pod := _keys_on(pod, vendors):
        stale = (keys_of_placements(vendors) & on_pod) - annotations.keys()
        annotations |= dict.fromkeys(sorted(stale))
    return annotations, labels_of(placement.node)


def labels_of(node: str) -> dict[str, str]:
    """The labels of a pod placed on the node."""
    return {codec.VGPU_NODE: node} if len(node) <= MAX_LABEL else {}


def of_binding(at: datetime) -> dict[str, str]:
    """What binding adds: from now on the node's device plugin looks for this pod."""
    return {codec.BIND_PHASE: ALLOCATING, codec.BIND_TIME: str(unix_seconds(at))}


def keys_of_placements(vendors: Iterable[Vendor]) -> frozenset[str]:
    """Every annotation that some placement writes."""
    keys = {codec.VGPU_NODE, codec.VGPU_TIME, codec.MIG_ALLOCATIONS}
    for vendor in vendors:
        keys.update((vendor.allocated_key, vendor.to_allocate_key))
        keys.update(str(key) for name, key in vendor.patch.items() if name not in ("rule", "soft_split"))
    return frozenset(keys - {""})


def _keys_on(pod: Pod, vendors: Iterable[Vendor]) -> frozenset[str]:
    """The annotations that the pod carries, as far as it was read; those that are decoded by vendor too."""
    keys = {*pod.annotations, *(fault.key for fault in pod.faults)}
    for vendor in vendors:
        if vendor.key in pod.allocations:
            keys.update((vendor.allocated_key, vendor.slots_annotation))
    return frozenset(keys)


def unix_seconds(at: datetime) -> int:
    """Whole seconds since 1970."""
    return (at - _EPOCH) // timedelta(seconds=1)


def unix_nanoseconds(at: datetime) -> int:
    """Nanoseconds since 1970; clocks here tell microseconds."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000


# --- what vendors want to be told besides --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """One vendor's part of a placement."""

    vendor: Vendor
    allocation: Allocation
    placement: Placement
    pod: Pod
    at: datetime

    def key(self, name: str) -> str:
        """The annotation of this name in the vendor's `patch` table."""
        return str(self.vendor.patch[name])

    def device(self, row: Row) -> FitDevice | None:
        """The device a row lies on; None where the placement does not tell."""
        return next((one for one in self.placement.devices if one.uuid == row.uuid), None)

    def index(self, row: Row) -> int:
        """The number of a row's device on its node. Made-up uuids end with it."""
        device = self.device(row)
        if device is not None:
            return device.index
        last = row.uuid.rpartition("-")[2]
        return int(last) if last.isascii() and last.isdecimal() else 0

    def filled(self) -> list[tuple[int, Sequence[Row]]]:
        """The positions that have rows, with them."""
        return [(position, rows) for position, rows in enumerate(self.allocation.groups) if rows]

    def indexes(self) -> str:
        """The numbers of all devices, each once, in the order of the rows."""
        found = dict.fromkeys(self.index(row) for _, rows in self.filled() for row in rows)
        return ",".join(map(str, found))

    def container(self, position: int) -> Container | None:
        """The container at a position."""
        return next((one for one in self.pod.containers if one.position == position), None)


def _indexes(told: _Told) -> Written:
    """The devices by number; some plugins also want the node, and the time in nanoseconds."""
    written = {told.key("indexes"): told.indexes()}
    if "node" in told.vendor.patch:
        written[told.key("node")] = told.placement.node
    if "time" in told.vendor.patch:
        written[told.key("time")] = str(unix_nanoseconds(told.at))
    return written


def _profile(told: _Told) -> Written:
    """The first row as `index_cores_memory`, memory in the unit that the vendor's users write."""
    row = told.filled()[0][1][0]
    memory = row.memory // max(told.vendor.memory_factor, 1)
    return {
        told.key("assigned"): NOT_YET,
        told.key("profile"): f"{told.index(row)}_{row.cores}_{memory}",
    }


def _omit_zeros(**fields: str | int) -> dict[str, str | int]:
    """Fields as Go's `omitempty` writes them."""
    return {name: value for name, value in fields.items() if value}


def _shares(told: _Told) -> Written:
    """All rows by position, as JSON."""
    groups = [
        [{"uuid": row.uuid, **_omit_zeros(compute=row.cores, vRam=row.memory)} for row in rows]
        for rows in told.allocation.groups
    ]
    return {
        told.key("shares"): codec.compact_json(groups),
        told.key("time"): str(unix_nanoseconds(told.at)),
    }


def _templates(told: _Told) -> Written:
    """All rows in one JSON list: by the name of a template, or under soft split by their amounts."""
    modes = [told.pod.annotations.get(key) for key in told.vendor.selectors.get("mode", ())]
    is_soft = told.key("soft_split") in modes

    def chip(row: Row) -> dict[str, str | int]:
        if is_soft:
            return _omit_zeros(UUID=row.uuid, memory=row.memory, core=row.cores)
        return _omit_zeros(UUID=row.uuid, temp=_template(told.vendor, row.memory))

    return {
        told.key("chips"): codec.compact_json([chip(row) for _, rows in told.filled() for row in rows]),
        told.key("time"): str(unix_seconds(told.at)),
    }


def _template(vendor: Vendor, memory_mib: int) -> str:
    """The smallest template that holds so much; "" for a whole chip."""
    templates: Any = vendor.request.get("templates", ())
    fitting = (one for one in templates if memory_mib <= int(one["memory"]))
    return str(next(fitting, {"name": ""})["name"])


def _drs(told: _Told) -> Written:
    """The device by number, and for each container the profile that its share is cut by."""
    written = {told.key("assigned"): NOT_YET, told.key("time"): str(unix_nanoseconds(told.at))}
    assigned: dict[str, object] = {}
    for position, rows in told.filled():
        row, container = rows[0], told.container(position)
        if container is not None:
            assigned[container.name] = {"allocated": False, **_share(told, row)}
        index, device = str(told.index(row)), told.device(row)
        minor = device.custom.get("minor", index) if device is not None else index
        written.setdefault(told.key("id"), index)
        written.setdefault(told.key("index"), index)
        written.setdefault(told.key("minor"), str(minor))
    written[told.key("size")] = str(told.allocation.slots_per_row)
    written[told.key("containers")] = codec.compact_json(dict(sorted(assigned.items())))
    return written


def _share(told: _Told, row: Row) -> dict[str, str | int]:
    """A share by its size, and by the id and name of its profile where the device tells them."""
    device = told.device(row)
    names = device.custom.get("profiles") if device is not None else None
    for profile in profiles_of([device] if device is not None else ()):
        if (profile.memory_gb * MIB, profile.cores) == (row.memory, row.cores) and isinstance(names, dict):
            name = f"{profile.size}g.{profile.memory_gb}gb"
            return {
                "request": profile.size,
                **_omit_zeros(profileID=str(names.get(name, "")), profileName=name),
            }
    return {"request": told.allocation.slots_per_row}


def _cores(told: _Told) -> Written:
    """Devices by number where devices were asked for, else cores, numbered through all devices."""
    ids: list[int] = []
    written: Written = {}
    for position, rows in told.filled():
        container = told.container(position)
        asks_devices = container is not None and _asks(container, told.vendor.count_name)
        for row in rows:
            if asks_devices:
                ids.append(told.index(row))
                continue
            written[told.key("resource")] = told.vendor.cores_name
            device = told.device(row)
            of_each = device.total.cores if device is not None else told.vendor.inventory.cores
            first = told.index(row) * of_each
            ids += [first + core for core in range(row.cores.bit_length()) if row.cores >> core & 1]
    return {
        **written,
        told.key("ids"): ",".join(map(str, ids)),
        told.key("time"): str(unix_nanoseconds(told.at)),
        told.key("allocated"): NOT_YET,
        told.key("node"): told.placement.node,
    }


def _asks(container: Container, name: str) -> bool:
    return (container.limits.get(name) or container.requests.get(name) or "0") != "0"


RULES: Mapping[str, Callable[[_Told], Written]] = {
    "indexes": _indexes,
    "profile": _profile,
    "shares": _shares,
    "templates": _templates,
    "drs": _drs,
    "cores": _cores,
}

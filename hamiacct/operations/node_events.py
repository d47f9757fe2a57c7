"""Node events: which devices a node offers. Usage is the pods' and stays whatever the node says.

A node's advisory lock is taken first, then its devices in order, then as in every posting.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hamiacct import config, models, rows
from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.devices import Node, RegisteredDevice, RegistrationState
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.quota import selects
from hamiacct.accounting.words import EventType, FindingCode, Outcome, Rule, SubjectKind
from hamiacct.kube import registration
from hamiacct.operations import findings, ledger, locks
from hamiacct.operations.findings import Found, Subject
from hamiacct.operations.ledger import Line
from hamiacct.operations.pod_events import STALE, Verdict
from hamiacct.operations.streams import Stream

NODE_CODES = frozenset(
    (
        FindingCode.REGISTRATION_MISSING,
        FindingCode.REGISTRATION_UNREADABLE,
        FindingCode.HANDSHAKE_EXPIRED,
        FindingCode.DUPLICATE_REGISTRATION,
    )
)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One thing seen of a node: a watch event or an item of a full list."""

    type: EventType
    name: str
    resource_version: int
    history: int
    manifest: Mapping[str, object]
    replayed: bool = False


def apply(seen: SeenNode, stream: Stream, *, at: datetime) -> Verdict:
    """Applies one event under the node's lock, in the caller's transaction (decisions 8 to 10).

    An event whose decoded content did not change changes nothing but the version: handshakes tick.
    """
    row = models.Node.objects.filter(name=seen.name).first()
    if seen.history < stream.history:
        return STALE
    is_current = row is not None and row.history == stream.history
    if row is not None and is_current and not seen.replayed and seen.resource_version <= row.resource_version:
        return STALE
    if seen.type is EventType.DELETED:
        node = Node(seen.name, seen.resource_version)
    else:
        try:
            node = registration.node_from_manifest(
                seen.manifest, config.vendors(), at, config.handshake_zone()
            )
        except Malformed as fault:
            return Verdict(
                Outcome.REFUSED, None, f"{fault.pointer}: {fault.detail}" if fault.pointer else fault.detail
            )
    row = row or models.Node(name=seen.name)
    _take_over(row, node, seen, at=at)
    return Verdict(Outcome.APPLIED)


def forget(names: Sequence[str], version: int, stream: Stream, *, at: datetime) -> None:
    """Nodes that a full list does not hold: gone, as if deleted at its version; their locks are held."""
    for row in models.Node.objects.filter(name__in=names).order_by("name"):
        seen = SeenNode(EventType.DELETED, row.name, version, stream.history, {})
        _take_over(row, Node(row.name, version), seen, at=at)


def expire_handshakes(name: str, *, at: datetime) -> None:
    """Judges a node's handshakes again now that time has passed; the caller holds the node's lock."""
    row = models.Node.objects.filter(name=name, deleted=False, handshake_expires_at__lte=at).first()
    if row is None:
        return
    node = registration.node_from_manifest(row.manifest, config.vendors(), at, config.handshake_zone())
    seen = SeenNode(EventType.MODIFIED, name, row.resource_version, row.history, row.manifest)
    _take_over(row, node, seen, at=at)


def _take_over(row: models.Node, node: Node, seen: SeenNode, *, at: datetime) -> None:
    """Makes the row, the devices and what is odd about the node equal what was decoded."""
    deleted = seen.type is EventType.DELETED
    contents = _digest(node, deleted)
    is_unchanged = row.contents == contents
    row.resource_version, row.history = seen.resource_version, seen.history
    row.handshake_expires_at = _expiry(node)
    if is_unchanged:
        row.save(update_fields=["resource_version", "history", "handshake_expires_at"])
        return
    row.contents, row.deleted = contents, deleted
    row.unschedulable, row.manifest = node.unschedulable, dict(seen.manifest)
    row.cordoned = sorted(node.cordoned)
    row.pair_scores = {uuid: dict(scores) for uuid, scores in node.pair_scores.items()}
    row.labels, row.annotations = dict(node.labels), dict(node.annotations)
    row.vendors = {one.vendor: {"state": one.state, "reason": one.reason} for one in node.registrations}
    row.save()
    devices = _register(node, at=at)
    findings.sync({_subject(row): _findings(node, devices, deleted)}, NODE_CODES, at=at)


def _digest(node: Node, deleted: bool) -> str:
    """A fingerprint of what was decoded, without the version and the ticking handshake."""
    plain = dataclasses.asdict(dataclasses.replace(node, resource_version=0, cordoned=frozenset()))
    for one in plain["registrations"]:
        one["expires_at"] = ""
    text = json.dumps([plain, sorted(node.cordoned), deleted], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _expiry(node: Node) -> datetime | None:
    """When the first pending handshake will have expired, if any is pending."""
    pending = [one.expires_at for one in node.registrations if one.expires_at]
    return min((datetime.fromisoformat(text) for text in pending), default=None)


def _subject(row: models.Node) -> Subject:
    return Subject(SubjectKind.NODE, row.name, node=row.name, name=row.name)


def _findings(node: Node, devices: Iterable[models.Device], deleted: bool) -> list[Found]:
    """What is odd about the node's registration, per vendor. A deleted node is merely gone."""
    if deleted:
        return []
    codes = {
        RegistrationState.UNREADABLE: FindingCode.REGISTRATION_UNREADABLE,
        RegistrationState.EXPIRED: FindingCode.HANDSHAKE_EXPIRED,
    }
    found = [
        Found(codes[one.state], f"{one.vendor}: {one.reason}", one.vendor)
        for one in node.registrations
        if one.state in codes
    ]
    found += [
        Found(
            FindingCode.DUPLICATE_REGISTRATION,
            f"{one.vendor} registers {uuid} twice",
            f"{one.vendor} {uuid}"[:253],
        )
        for one in node.registrations
        for uuid in one.duplicates
    ]
    said = {one.vendor for one in node.registrations if one.state is not RegistrationState.MISSING}
    had = {device.vendor for device in devices if device.ever_registered}
    found += [
        Found(
            FindingCode.REGISTRATION_MISSING, f"{vendor}: its devices were registered and are no more", vendor
        )
        for vendor in sorted(had - said)
    ]
    return found


def _register(node: Node, *, at: datetime) -> list[models.Device]:
    """Makes the device rows of the node equal its registrations; answers all its rows.

    A list replaces the vendor's inventory; an unreadable text keeps it; a vendor that says nothing,
    or whose handshake is over, has none. Usage stays on every row (decision 10).
    """
    kept = {one.vendor for one in node.registrations if one.state is RegistrationState.UNREADABLE}
    wanted = {
        device.uuid: device
        for one in node.registrations
        if one.state is RegistrationState.LISTED
        for device in one.devices
    }
    known = set(models.Device.objects.filter(node=node.name).values_list("uuid", flat=True))
    models.Device.objects.bulk_create(
        [
            models.Device(node=node.name, uuid=uuid, vendor=wanted[uuid].vendor)
            for uuid in sorted(wanted.keys() - known)
        ],
        ignore_conflicts=True,
    )
    locked = list(
        models.Device.objects.filter(node=node.name).select_for_update(no_key=True).order_by("node", "uuid")
    )
    totals_before = {device.pk: device.cores_total for device in locked}
    for device in locked:
        listed = wanted.get(device.uuid)
        if listed is not None:
            _copy(listed, device)
        elif not (device.registered and device.vendor in kept):
            device.registered = False
        device.cordoned = device.uuid in node.cordoned
    if locked:
        models.Device.objects.bulk_update(locked, DEVICE_FIELDS, batch_size=500)
    findings.look_at_devices([device.pk for device in locked], at=at)
    _requote([device for device in locked if device.cores_total != totals_before[device.pk]], at=at)
    return locked


DEVICE_FIELDS = [
    "vendor", "index", "order", "model", "numa", "mode", "healthy", "cordoned", "registered",
    "ever_registered", "slots_total", "memory_mib_total", "cores_total", "mig_profiles", "custom",
]  # fmt: skip


def _copy(listed: RegisteredDevice, device: models.Device) -> None:
    """What was registered, into its row."""
    device.vendor, device.index, device.order = listed.vendor, listed.index, listed.order
    device.model, device.numa, device.mode = listed.model, listed.numa, listed.mode
    device.healthy, device.registered, device.ever_registered = listed.healthy, True, True
    device.slots_total, device.memory_mib_total = listed.slots, listed.memory_mib
    device.cores_total = listed.cores
    device.mig_profiles = [dataclasses.asdict(profile) for profile in listed.mig_profiles]
    device.custom = dict(listed.custom)


def _requote(devices: Sequence[models.Device], *, at: datetime) -> None:
    """Counts the cores on these devices anew where quotas judge them in percent of the card (decision 2).

    The devices are locked, so no entry on them moves.
    """
    vendors = config.vendor_by_key()
    totals = {device.pk: device.cores_total for device in devices}
    entries = (
        list(
            models.UsageEntry.objects.filter(device_id__in=totals)
            .select_related("device", "pod")
            .order_by("pod_id", "device_id")
        )
        if totals
        else []
    )
    lines: list[Line] = []
    moved: list[models.UsageEntry] = []
    for entry in entries:
        quota_cores = vendors[entry.vendor].quota_cores_of(entry.cores, totals[entry.device_id])
        if quota_cores == entry.quota_cores:
            continue
        difference = quota_cores - entry.quota_cores
        reason = f"the card has {totals[entry.device_id]} core units"
        lines.append(
            Line(
                entry.pod_id,
                entry.pod.namespace,
                rows.key_of(entry),
                Rule.REPLACED,
                reason,
                NOTHING,
                difference,
                entry.pod.resource_version,
            )
        )
        entry.quota_cores = quota_cores
        moved.append(entry)
    if not lines:
        return
    models.UsageEntry.objects.bulk_update(moved, ["quota_cores"])
    namespaces = {line.namespace for line in lines}
    locks.take(locks.Space.NAMESPACE, namespaces)
    ledger.add_to_namespaces(lines)
    facts = {entry.pod_id: rows.quota_facts_of(entry.pod) for entry in moved}
    sums: dict[tuple[int, str], Amount] = defaultdict(Amount)
    for quota in ledger.locked_quotas(namespaces):
        requirements = rows.requirements_of(quota)
        for line in lines:
            if line.namespace == quota.namespace and selects(requirements, facts[line.pod_uid]):
                place = (quota.pk, line.key.vendor)
                sums[place] = sums[place].plus(Amount(cores=line.quota_cores))
    ledger.add_to_quotas(sums, at=at)
    ledger.write_lines(lines, at=at)

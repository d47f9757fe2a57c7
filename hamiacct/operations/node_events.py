"""Node events: which devices a node offers. Usage is the pods' and stays whatever the node says.

A node's advisory lock is taken first, then its devices in order, then as in every posting.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
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
from hamiacct.operations.pod_events import STALE, Settle, Verdict, leave_unsettled
from hamiacct.operations.streams import Seen, Stream

NODE_CODES = frozenset(
    (
        FindingCode.REGISTRATION_MISSING,
        FindingCode.REGISTRATION_UNREADABLE,
        FindingCode.HANDSHAKE_EXPIRED,
        FindingCode.DUPLICATE_REGISTRATION,
    )
)


def apply(
    seen: Sequence[Seen], stream: Stream, *, at: datetime, settle: Settle = leave_unsettled
) -> list[Verdict]:
    """Applies what was seen of nodes, in the order given, in the caller's transaction (decisions 8 to 10).

    The caller holds the nodes' locks. An event whose decoded content did not change changes nothing but
    the version: handshakes tick.
    """
    rows_by_name = {row.name: row for row in models.Node.objects.filter(name__in={one.name for one in seen})}
    verdicts: list[Verdict] = []
    rounds: list[dict[str, _Sight]] = []
    done: Counter[str] = Counter()
    for one in seen:
        row = rows_by_name.get(one.name)
        if one.history < stream.history or stream.knows_newer(row, one):
            verdicts.append(STALE)
            continue
        try:
            sight = _sight_of(one, row or models.Node(name=one.name), at)
        except Malformed as fault:
            verdicts.append(Verdict.refused(fault))
            continue
        rows_by_name[one.name] = sight.row
        _show(sight)
        if done[one.name] == len(rounds):
            rounds.append({})
        rounds[done[one.name]][one.name] = sight
        done[one.name] += 1
        verdicts.append(Verdict(Outcome.APPLIED))
    settle(verdicts)
    if len(rounds) > 1:
        _locked_devices([sight.node for sights in rounds for sight in sights.values() if sight.is_news])
    for sights in rounds:
        _write([sights[name] for name in sorted(sights)], at=at)
    return verdicts


def forget(names: Sequence[str], version: int, stream: Stream, *, at: datetime) -> int:
    """Nodes that a full list does not hold: gone, as if deleted at its version; their locks are held.

    Those of which something newer was heard stay. Answers how many went.
    """
    gone = []
    for row in models.Node.objects.filter(name__in=names, deleted=False).order_by("name"):
        if row.history == stream.history and row.resource_version > version:
            continue
        sight = _sight_of(Seen(EventType.DELETED, "", "", row.name, version, stream.history, {}), row, at)
        _show(sight)
        gone.append(sight)
    _write(gone, at=at)
    return len(gone)


def expire_handshakes(names: Sequence[str], *, at: datetime) -> None:
    """Judges nodes' handshakes again now that time has passed; the caller holds the nodes' locks."""
    due = models.Node.objects.filter(name__in=names, deleted=False, handshake_expires_at__lte=at)
    sights = [
        _sight_of(
            Seen(EventType.MODIFIED, "", "", row.name, row.resource_version, row.history, row.manifest),
            row,
            at,
        )
        for row in due.order_by("name")
    ]
    for sight in sights:
        _show(sight)
    _write(sights, at=at)


@dataclass(frozen=True, slots=True)
class _Sight:
    """A node as seen, its row, and whether anything decoded differs from what the row said before."""

    row: models.Node
    node: Node
    seen: Seen
    contents: str
    is_news: bool

    @property
    def is_deleted(self) -> bool:
        """Whether the node is gone."""
        return self.seen.type is EventType.DELETED


def _sight_of(seen: Seen, row: models.Node, at: datetime) -> _Sight:
    """Decodes what was seen. Raises Malformed."""
    if seen.type is EventType.DELETED:
        node = Node(seen.name, seen.resource_version)
    else:
        node = registration.node_from_manifest(seen.manifest, config.vendors(), at, config.handshake_zone())
        node = node.within(config.node_selector())
    contents = _digest(node, seen.type is EventType.DELETED)
    return _Sight(row, node, seen, contents, contents != row.contents)


def _show(sight: _Sight) -> None:
    """Copies what was seen into the row."""
    row, node = sight.row, sight.node
    row.resource_version, row.history = sight.seen.resource_version, sight.seen.history
    row.handshake_expires_at = _expiry(node)
    if not sight.is_news:
        return
    row.contents, row.deleted = sight.contents, sight.is_deleted
    row.unschedulable, row.manifest = node.unschedulable, dict(sight.seen.manifest)
    row.cordoned = sorted(node.cordoned)
    row.pair_scores = {uuid: dict(scores) for uuid, scores in node.pair_scores.items()}
    row.labels, row.annotations = dict(node.labels), dict(node.annotations)
    row.vendors = {one.vendor: {"state": one.state, "reason": one.reason} for one in node.registrations}


NODE_FIELDS = [
    "resource_version", "history", "handshake_expires_at", "contents", "deleted", "deleted_at",
    "unschedulable", "manifest", "cordoned", "pair_scores", "labels", "annotations", "vendors",
]  # fmt: skip


def _write(sights: Sequence[_Sight], *, at: datetime) -> None:
    """Writes the rows, then the devices and what is odd about the nodes that show something new."""
    if not sights:
        return
    for sight in sights:
        sight.row.deleted_at = (sight.row.deleted_at or at) if sight.row.deleted else None
    models.Node.objects.bulk_create(
        [sight.row for sight in sights],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=NODE_FIELDS,
    )
    news = [sight for sight in sights if sight.is_news]
    if news:
        devices = _register([sight.node for sight in news], at=at)
        wanted = {
            _subject(sight.row): _findings(sight.node, devices[sight.row.name], sight.is_deleted)
            for sight in news
        }
        findings.sync(wanted, NODE_CODES, at=at)
        ledger.advance_fleet([sight.row.name for sight in news])


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
    """What is odd about the node's registration, per vendor. One that is gone, or not ours, is not odd."""
    if deleted or not node.is_ours:
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
            f"{one.vendor} registers {uuid}, which is registered already; the first one counts",
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


def _register(nodes: Sequence[Node], *, at: datetime) -> dict[str, list[models.Device]]:
    """Makes the device rows of the nodes equal their registrations; answers all their rows, by node.

    A list replaces the vendor's inventory; an unreadable text keeps it; a vendor that says nothing,
    or whose handshake is over, has none. Usage stays on every row (decision 10).
    """
    listed = _listed(nodes)
    kept = {
        (node.name, one.vendor)
        for node in nodes
        for one in node.registrations
        if one.state is RegistrationState.UNREADABLE
    }
    cordoned = {node.name: node.cordoned for node in nodes}
    locked = _locked_devices(nodes)
    totals_before = {device.pk: device.cores_total for device in locked}
    by_node: dict[str, list[models.Device]] = {node.name: [] for node in nodes}
    for device in locked:
        registered = listed.get((device.node, device.uuid))
        if registered is not None:
            _copy(registered, device)
        elif (device.node, device.vendor) not in kept:
            device.registered = False
        device.cordoned = device.uuid in cordoned[device.node]
        by_node[device.node].append(device)
    if locked:
        models.Device.objects.bulk_create(
            locked, update_conflicts=True, unique_fields=["node", "uuid"], update_fields=DEVICE_FIELDS
        )
    findings.look_at_devices([device.pk for device in locked], at=at)
    _requote([device for device in locked if device.cores_total != totals_before[device.pk]], at=at)
    return by_node


def _listed(nodes: Iterable[Node]) -> dict[tuple[str, str], RegisteredDevice]:
    """What these nodes register, by node and uuid."""
    return {
        (node.name, device.uuid): device
        for node in nodes
        for one in node.registrations
        if one.state is RegistrationState.LISTED
        for device in one.devices
    }


def _locked_devices(nodes: Sequence[Node]) -> list[models.Device]:
    """The rows of these nodes' devices, locked in order; new ones are made.

    Whoever writes nodes one after the other takes those of all at first: pods take theirs in order, too.
    """
    names = {node.name for node in nodes}
    listed = _listed(nodes)
    known = set(models.Device.objects.filter(node__in=names).values_list("node", "uuid"))
    models.Device.objects.bulk_create(
        [
            models.Device(node=place[0], uuid=place[1], vendor=listed[place].vendor)
            for place in sorted(listed.keys() - known)
        ],
        ignore_conflicts=True,
    )
    devices = models.Device.objects.filter(node__in=names)
    return list(devices.select_for_update(no_key=True).order_by("node", "uuid"))


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

"""The one door through which usage changes.

`post` takes differences and writes, in one transaction: usage entries, device totals, namespace
totals, quota totals and ledger lines. So add and delete are symmetric: there is no other way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db import connection
from django.db.models import QuerySet

from hamiacct import config, models, rows
from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.pods import DeviceKey, QuotaFacts
from hamiacct.accounting.quota import selects
from hamiacct.accounting.words import Rule
from hamiacct.operations import bulk, findings, locks
from hamiacct.queries.arrays import among


@dataclass(frozen=True, slots=True)
class Posting:
    """One pod's usage turns from `old` into `new`, by `rule`, because of `reason`.

    The facts decide which quotas count the pod, before and after.
    """

    pod_uid: str
    namespace: str
    old: Held
    new: Held
    rule: Rule
    reason: str
    resource_version: int
    old_facts: QuotaFacts
    new_facts: QuotaFacts

    @property
    def changes_nothing(self) -> bool:
        """Whether neither the usage nor what quotas see of it changes."""
        return self.old == self.new and (self.old_facts == self.new_facts or not len(self.new))


class _Place(NamedTuple):
    """A device without a vendor."""

    node: str
    uuid: str


class _Entry(NamedTuple):
    """What a pod holds of a device, while a batch is worked through."""

    amount: Amount
    quota_cores: int


class Line(NamedTuple):
    """A ledger line before it has its number: signed differences of one pod on one device."""

    pod_uid: str
    namespace: str
    key: DeviceKey
    rule: Rule
    reason: str
    difference: Amount
    quota_cores: int
    resource_version: int


_Entries = dict[str, dict[DeviceKey, _Entry]]
_Devices = dict[_Place, models.Device]


def post(postings: Sequence[Posting], *, at: datetime) -> None:
    """Writes the postings, in order, in the caller's transaction (decisions 3, 13, 26, 35).

    The caller holds the locks of the pods' names. A pod may occur several times: each difference gets
    its lines. Amounts below zero are a bug and stop the transaction.
    """
    assert connection.in_atomic_block, "post is part of a transaction"
    postings = [posting for posting in postings if not posting.changes_nothing]
    if not postings:
        return
    devices = _locked_devices(postings)
    stored = _stored_entries(postings)
    before: _Entries = defaultdict(dict)
    for entry in stored:
        before[entry.pod_id][rows.key_of(entry)] = _Entry(rows.amount_of(entry), entry.quota_cores)
    after: _Entries = defaultdict(dict, {uid: dict(entries) for uid, entries in before.items()})
    lines = [line for posting in postings for line in _lines(posting, after[posting.pod_uid], devices)]
    _write_entries({posting.pod_uid for posting in postings}, stored, after, devices)
    _write_device_totals(lines, devices)
    findings.look_at_devices({devices[_place(line.key)].pk for line in lines}, at=at)
    locks.take(locks.Space.NAMESPACE, {posting.namespace for posting in postings})
    add_to_namespaces(lines)
    _write_quota_totals(postings, before, after, at=at)
    write_lines(lines, at=at)


def _place(key: DeviceKey) -> _Place:
    return _Place(key.node, key.uuid)


def _locked_devices(postings: Iterable[Posting]) -> _Devices:
    """The rows of every device named, locked in order; unknown ones are made, unregistered (decision 10)."""
    vendors = {_place(key): key.vendor for posting in postings for key in (*posting.old, *posting.new)}
    places = sorted(vendors)
    known = {_Place(*place) for place in _devices_at(places).values_list("node", "uuid")}
    models.Device.objects.bulk_create(
        [
            models.Device(node=place.node, uuid=place.uuid, vendor=vendors[place])
            for place in places
            if place not in known
        ],
        ignore_conflicts=True,
    )
    locked = _devices_at(places).select_for_update(no_key=True).order_by("node", "uuid")
    return {_Place(device.node, device.uuid): device for device in locked}


def _devices_at(places: Sequence[_Place]) -> QuerySet[models.Device]:
    """The devices at these places."""
    return among(models.Device.objects.all(), ("node", "uuid"), places)


def _stored_entries(postings: Iterable[Posting]) -> list[models.UsageEntry]:
    """The entries of the pods, read once their devices are locked: only now do they stand still."""
    uids = sorted({posting.pod_uid for posting in postings})
    return list(models.UsageEntry.objects.filter(pod_id__in=uids).select_related("device"))


def _lines(posting: Posting, entries: dict[DeviceKey, _Entry], devices: _Devices) -> Iterator[Line]:
    """The ledger lines of one posting; moves `entries` on to what the pod holds afterwards."""
    vendors = config.vendor_by_key()
    for key in sorted({*posting.old, *posting.new}):
        old, new = posting.old[key], posting.new[key]
        if old == new:
            continue
        stored = entries.pop(key, _Entry(NOTHING, 0))
        assert stored.amount == old, f"{posting.pod_uid} on {key}: the entry differs from the charge"
        quota_cores = vendors[key.vendor].quota_cores_of(new.cores, devices[_place(key)].cores_total)
        if not new.is_nothing:
            entries[key] = _Entry(new, quota_cores)
        difference, requoted = new.minus(old), quota_cores - stored.quota_cores
        if not difference.is_nothing or requoted or old.core_set != new.core_set:
            yield Line(
                posting.pod_uid,
                posting.namespace,
                key,
                posting.rule,
                posting.reason,
                difference,
                requoted,
                posting.resource_version,
            )


def _write_entries(
    uids: Iterable[str], stored: Iterable[models.UsageEntry], after: _Entries, devices: _Devices
) -> None:
    """Entries become what `after` says: one per pod and device, none for nothing."""
    wanted: dict[tuple[str, int], models.UsageEntry] = {}
    for uid in uids:
        for key, (amount, quota_cores) in after[uid].items():
            device_id = devices[_place(key)].pk
            assert (uid, device_id) not in wanted, f"{uid} holds {key} for two vendors"
            wanted[uid, device_id] = models.UsageEntry(
                pod_id=uid,
                device_id=device_id,
                vendor=key.vendor,
                slots=amount.slots,
                memory_mib=amount.memory_mib,
                cores=amount.cores,
                core_set=amount.core_set,
                quota_cores=quota_cores,
            )
    gone = [entry.pk for entry in stored if (entry.pod_id, entry.device_id) not in wanted]
    if gone:
        models.UsageEntry.objects.filter(pk__in=gone).delete()
    if wanted:
        models.UsageEntry.objects.bulk_create(
            [wanted[place] for place in sorted(wanted)],
            update_conflicts=True,
            unique_fields=["pod", "device"],
            update_fields=["vendor", "slots", "memory_mib", "cores", "core_set", "quota_cores"],
        )


def _write_device_totals(lines: Iterable[Line], devices: _Devices) -> None:
    """Adds the differences to the locked device rows."""
    sums: dict[int, Amount] = defaultdict(Amount)
    for line in lines:
        device_id = devices[_place(line.key)].pk
        sums[device_id] = sums[device_id].plus(line.difference)
    bulk.execute(
        "UPDATE hamiacct_device SET slots_used = slots_used + d.slots,"
        " memory_mib_used = memory_mib_used + d.memory_mib, cores_used = cores_used + d.cores"
        " FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])"
        " AS d(id, slots, memory_mib, cores)"
        " WHERE hamiacct_device.id = d.id",
        [
            (device_id, total.slots, total.memory_mib, total.cores)
            for device_id, total in sorted(sums.items())
            if not total.is_nothing
        ],
    )


def add_to_namespaces(lines: Iterable[Line]) -> None:
    """Adds the differences to the namespace totals; the namespaces are locked."""
    sums: dict[tuple[str, str], Amount] = defaultdict(Amount)
    for line in lines:
        difference = Amount(line.difference.slots, line.difference.memory_mib, line.quota_cores)
        place = (line.namespace, line.key.vendor)
        sums[place] = sums[place].plus(difference)
    changes = [(*place, *sizes(total)) for place, total in sorted(sums.items()) if not total.is_nothing]
    models.NamespaceUsage.objects.bulk_create(
        [models.NamespaceUsage(namespace=namespace, vendor=vendor) for namespace, vendor, *_ in changes],
        ignore_conflicts=True,
    )
    bulk.execute(
        "UPDATE hamiacct_namespaceusage AS total SET slots = total.slots + d.slots,"
        " memory_mib = total.memory_mib + d.memory_mib, cores = total.cores + d.cores"
        " FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])"
        " AS d(namespace, vendor, slots, memory_mib, cores)"
        " WHERE total.namespace = d.namespace AND total.vendor = d.vendor",
        changes,
    )


def sizes(amount: Amount) -> tuple[int, int, int]:
    """Slots, memory and cores, in the order every total has them."""
    return amount.slots, amount.memory_mib, amount.cores


def _write_quota_totals(
    postings: Sequence[Posting], before: _Entries, after: _Entries, *, at: datetime
) -> None:
    """Adds to each quota the differences of the pods it selects, as they were and are (decision 16)."""
    first = {posting.pod_uid: posting for posting in reversed(postings)}
    last = {posting.pod_uid: posting for posting in postings}
    sums: dict[tuple[int, str], Amount] = defaultdict(Amount)
    for quota in locked_quotas({posting.namespace for posting in postings}):
        requirements = rows.requirements_of(quota)
        for uid, posting in first.items():
            if posting.namespace != quota.namespace:
                continue
            if selects(requirements, posting.old_facts):
                _add(sums, quota.pk, before[uid], sign=-1)
            if selects(requirements, last[uid].new_facts):
                _add(sums, quota.pk, after[uid], sign=1)
    add_to_quotas(sums, at=at)


def locked_quotas(namespaces: Iterable[str]) -> list[models.ResourceQuota]:
    """The living quotas of the namespaces, locked by name; the namespaces are locked already."""
    return list(
        models.ResourceQuota.objects.filter(namespace__in=sorted(namespaces), deleted=False)
        .select_for_update(no_key=True)
        .order_by("namespace", "name")
    )


def _add(
    sums: dict[tuple[int, str], Amount], quota_id: int, entries: Mapping[DeviceKey, _Entry], *, sign: int
) -> None:
    """Adds a pod's entries to a quota's difference, per vendor."""
    for key, entry in entries.items():
        place = (quota_id, key.vendor)
        sums[place] = sums[place].plus(Amount(0, sign * entry.amount.memory_mib, sign * entry.quota_cores))


def add_to_quotas(sums: Mapping[tuple[int, str], Amount], *, at: datetime) -> None:
    """Adds differences to the totals of locked quotas, by (quota, vendor)."""
    changes = [
        (*place, total.memory_mib, total.cores)
        for place, total in sorted(sums.items())
        if not total.is_nothing
    ]
    if not changes:
        return
    models.QuotaUsage.objects.bulk_create(
        [models.QuotaUsage(quota_id=quota_id, vendor=vendor) for quota_id, vendor, *_ in changes],
        ignore_conflicts=True,
    )
    bulk.execute(
        "UPDATE hamiacct_quotausage AS total SET memory_mib = total.memory_mib + d.memory_mib,"
        " cores = total.cores + d.cores"
        " FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[])"
        " AS d(quota_id, vendor, memory_mib, cores)"
        " WHERE total.quota_id = d.quota_id AND total.vendor = d.vendor",
        changes,
    )
    findings.look_at_quotas({quota_id for quota_id, *_ in changes}, at=at)


def advance_fleet(nodes: Sequence[str]) -> None:
    """Numbers a change of these nodes' inventory, under the head's lock as `write_lines` does."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE hamiacct_ledgerhead SET fleet = fleet + 1 RETURNING fleet")
        (fleet,) = cursor.fetchone()
    models.Node.objects.filter(name__in=nodes).update(fleet_seq=fleet)


def write_lines(lines: Sequence[Line], *, at: datetime) -> None:
    """Appends the lines under the head's lock, which is taken last: sequence order is commit order."""
    if not lines:
        return
    with connection.cursor() as cursor:
        cursor.execute("UPDATE hamiacct_ledgerhead SET seq = seq + %s RETURNING seq", [len(lines)])
        (head,) = cursor.fetchone()
    models.LedgerEntry.objects.bulk_create(
        [
            models.LedgerEntry(
                seq=seq,
                at=at,
                pod_uid=line.pod_uid,
                namespace=line.namespace,
                node=line.key.node,
                device=line.key.uuid,
                vendor=line.key.vendor,
                rule=line.rule,
                reason=line.reason,
                slots=line.difference.slots,
                memory_mib=line.difference.memory_mib,
                cores=line.difference.cores,
                quota_cores=line.quota_cores,
                resource_version=line.resource_version,
            )
            for seq, line in enumerate(lines, head - len(lines) + 1)
        ]
    )

"""The one door through which usage changes.

`post` takes differences and writes, in one transaction: usage entries, device totals, namespace
totals, quota totals and ledger lines. So add and delete are symmetric: there is no other way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import orjson
from django.db import connection

from hamiacct import config, models, rows
from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.holdings import Held
from hamiacct.accounting.pods import DeviceKey, QuotaFacts
from hamiacct.accounting.quota import ScopeRequirement, selects
from hamiacct.accounting.vendors import Vendor
from hamiacct.accounting.words import Rule
from hamiacct.operations import bulk, findings, locks
from hamiacct.operations.findings import UsedDevice
from hamiacct.queries import quotas
from hamiacct.queries.statements import Asked, Statement, in_turn


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


class Place(NamedTuple):
    """A device without a vendor."""

    node: str
    uuid: str


class Entry(NamedTuple):
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


Key = TypeVar("Key", bound=tuple[Any, ...])
Id = TypeVar("Id", str, int)
# What to add, by namespace or quota, and vendor.
_Sums = dict[tuple[Id, str], Amount]
_Entries = dict[str, dict[DeviceKey, Entry]]
_Devices = Mapping[Place, UsedDevice]


class Quota(NamedTuple):
    """A locked quota, as it was before: `usage` is memory in MiB and cores, by vendor."""

    id: int
    namespace: str
    conditions: tuple[ScopeRequirement, ...]
    limits: Sequence[Mapping[str, Any]]
    usage: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Locked:
    """What the caller of `post` has locked, in the order of decision 26, and read since.

    Every device that is named, and every living quota of the namespaces, which are locked, too; and the
    entries of every pod that has some.
    """

    devices: Mapping[Place, UsedDevice]
    quotas: Sequence[Quota]
    entries: Mapping[str, Mapping[DeviceKey, Entry]]


def post(
    postings: Sequence[Posting],
    *,
    at: datetime,
    locked: Locked | None = None,
    also: Sequence[Asked] = (),
) -> None:
    """Writes the postings, in order, in the caller's transaction (decisions 3, 13, 26, 35).

    The caller holds the locks of the pods' names. A pod may occur several times: each difference gets
    its lines. Amounts below zero are a bug and stop the transaction. What a caller has `locked` already is
    not read once more, and what it writes itself is written `also`.
    """
    assert connection.in_atomic_block, "post is part of a transaction"
    postings = [posting for posting in postings if not posting.changes_nothing]
    if not postings:
        in_turn(*also)
        return
    uids = sorted({posting.pod_uid for posting in postings})
    stored: Mapping[str, Mapping[DeviceKey, Entry]]
    if locked is None:
        devices = _locked_devices(postings)
        stored = _stored_entries(uids)
        locks.take(locks.Space.NAMESPACE, {posting.namespace for posting in postings})
        of_namespaces: Sequence[Quota] = _locked_quotas({posting.namespace for posting in postings})
    else:
        devices, of_namespaces = locked.devices, locked.quotas
        stored = {uid: locked.entries[uid] for uid in uids if uid in locked.entries}
    before: _Entries = defaultdict(dict, {uid: dict(entries) for uid, entries in stored.items()})
    after: _Entries = defaultdict(dict, {uid: dict(entries) for uid, entries in stored.items()})
    vendors = config.vendor_by_key()
    lines = [
        line for posting in postings for line in _lines(posting, after[posting.pod_uid], devices, vendors)
    ]
    of_quotas, looks = _quota_differences(postings, before, after, of_namespaces)
    of_devices = _device_differences(lines, devices)
    write = _WRITE if locked is None else _WRITE_LOCKED
    written = _written(before, after, devices, of_devices, _namespace_differences(lines), of_quotas, lines)
    in_turn(*also, (write, (at, written)))
    findings.look_at_devices(_told_anew(devices, of_devices), at=at)
    findings.look_at_quotas(looks, at=at)


def _place(key: DeviceKey) -> Place:
    return Place(key.node, key.uuid)


_DEVICES = Statement(
    "hamiacct_post_devices",
    "text[], text[]",
    """
SELECT id, node, uuid, registered, ever_registered, slots_total, memory_mib_total, cores_total,
    slots_used, memory_mib_used, cores_used
FROM hamiacct_device WHERE (node, uuid) IN (SELECT * FROM unnest($1, $2))
ORDER BY node, uuid FOR NO KEY UPDATE
""",
)
_UNKNOWN = Statement(
    "hamiacct_post_unknown_devices",
    "text[], text[]",
    """
SELECT place.node, place.uuid FROM unnest($1, $2) AS place(node, uuid)
WHERE NOT EXISTS (
    SELECT FROM hamiacct_device AS known WHERE known.node = place.node AND known.uuid = place.uuid)
ORDER BY place.node, place.uuid
""",
)
_ENTRIES = Statement(
    "hamiacct_post_entries",
    "text[]",
    """
SELECT entry.pod_id, device.node, device.uuid, entry.vendor, entry.slots, entry.memory_mib, entry.cores,
    entry.core_set, entry.quota_cores
FROM hamiacct_usageentry AS entry JOIN hamiacct_device AS device ON device.id = entry.device_id
WHERE entry.pod_id IN (SELECT unnest($1))
""",
)


def _locked_devices(postings: Iterable[Posting]) -> _Devices:
    """The rows of every device named, locked in order; unknown ones are made, unregistered (decision 10).

    Those are made first, while nothing is locked that somebody might wait for who makes the same.
    """
    vendors = {_place(key): key.vendor for posting in postings for key in (*posting.old, *posting.new)}
    columns = _columns(2, sorted(vendors))
    unknown = [Place(*place) for place in _UNKNOWN.rows(*columns)]
    if unknown:
        models.Device.objects.bulk_create(
            [models.Device(node=place.node, uuid=place.uuid, vendor=vendors[place]) for place in unknown],
            ignore_conflicts=True,
        )
    locked = [UsedDevice(*row) for row in _DEVICES.rows(*columns)]
    return {Place(device.node, device.uuid): device for device in locked}


def _stored_entries(uids: Sequence[str]) -> _Entries:
    """The entries of the pods, read once their devices are locked: only now do they stand still."""
    entries: _Entries = defaultdict(dict)
    for uid, node, uuid, vendor, *sizes, quota_cores in _ENTRIES.rows(uids):
        entries[uid][DeviceKey(node, uuid, vendor)] = Entry(Amount(*sizes), quota_cores)
    return entries


def _lines(
    posting: Posting, entries: dict[DeviceKey, Entry], devices: _Devices, vendors: Mapping[str, Vendor]
) -> Iterator[Line]:
    """The ledger lines of one posting; moves `entries` on to what the pod holds afterwards."""
    for key in sorted({*posting.old, *posting.new}):
        old, new = posting.old[key], posting.new[key]
        if old == new:
            continue
        stored = entries.pop(key, Entry(NOTHING, 0))
        assert stored.amount == old, f"{posting.pod_uid} on {key}: the entry differs from the charge"
        quota_cores = vendors[key.vendor].quota_cores_of(new.cores, devices[_place(key)].cores_total)
        if not new.is_nothing:
            entries[key] = Entry(new, quota_cores)
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


def _device_differences(lines: Iterable[Line], devices: _Devices) -> dict[Place, Amount]:
    sums: dict[Place, Amount] = {}
    for line in lines:
        place = _place(line.key)
        sums[place] = sums[place].plus(line.difference) if place in sums else line.difference
    return sums


def _told_anew(devices: _Devices, differences: Mapping[Place, Amount]) -> list[int]:
    """The devices of which something else is odd than before."""
    return [
        devices[place].pk
        for place, difference in differences.items()
        if findings.of_device(devices[place]) != findings.of_device(devices[place].after(difference))
    ]


# One document instead of three dozen arrays: writing it takes a fifth of the time. As `json` each element
# would be read anew for each of its values.
_WRITE = Statement(
    "hamiacct_post",
    "timestamptz, jsonb",
    """
WITH gone AS (
    DELETE FROM hamiacct_usageentry USING jsonb_array_elements($2->'gone') AS d
    WHERE hamiacct_usageentry.pod_id = d->>0 AND hamiacct_usageentry.device_id = (d->>1)::bigint
), kept AS (
    INSERT INTO hamiacct_usageentry
        (pod_id, device_id, vendor, slots, memory_mib, cores, core_set, quota_cores)
    SELECT d->>0, (d->>1)::bigint, d->>2, (d->>3)::bigint, (d->>4)::bigint, (d->>5)::bigint,
        (d->>6)::bigint, (d->>7)::bigint
    FROM jsonb_array_elements($2->'kept') AS d
    ON CONFLICT (pod_id, device_id) DO UPDATE SET
        vendor = excluded.vendor, slots = excluded.slots, memory_mib = excluded.memory_mib,
        cores = excluded.cores, core_set = excluded.core_set, quota_cores = excluded.quota_cores
), device AS (
    UPDATE hamiacct_device AS total SET slots_used = total.slots_used + (d->>1)::bigint,
        memory_mib_used = total.memory_mib_used + (d->>2)::bigint,
        cores_used = total.cores_used + (d->>3)::bigint
    FROM jsonb_array_elements($2->'devices') AS d WHERE total.id = (d->>0)::bigint
), namespace AS (
    SELECT d->>0 AS namespace, d->>1 AS vendor, (d->>2)::bigint AS slots, (d->>3)::bigint AS memory_mib,
        (d->>4)::bigint AS cores
    FROM jsonb_array_elements($2->'namespaces') AS d
), known_namespace AS (
    UPDATE hamiacct_namespaceusage AS total SET slots = total.slots + d.slots,
        memory_mib = total.memory_mib + d.memory_mib, cores = total.cores + d.cores
    FROM namespace AS d WHERE total.namespace = d.namespace AND total.vendor = d.vendor
    RETURNING total.namespace, total.vendor
), new_namespace AS (
    INSERT INTO hamiacct_namespaceusage (namespace, vendor, slots, memory_mib, cores)
    SELECT * FROM namespace WHERE (namespace, vendor) NOT IN (SELECT * FROM known_namespace)
), quota AS (
    SELECT (d->>0)::bigint AS quota_id, d->>1 AS vendor, (d->>2)::bigint AS memory_mib,
        (d->>3)::bigint AS cores
    FROM jsonb_array_elements($2->'quotas') AS d
), known_quota AS (
    UPDATE hamiacct_quotausage AS total SET memory_mib = total.memory_mib + d.memory_mib,
        cores = total.cores + d.cores
    FROM quota AS d WHERE total.quota_id = d.quota_id AND total.vendor = d.vendor
    RETURNING total.quota_id, total.vendor
), new_quota AS (
    INSERT INTO hamiacct_quotausage (quota_id, vendor, memory_mib, cores)
    SELECT * FROM quota WHERE (quota_id, vendor) NOT IN (SELECT * FROM known_quota)
), line AS (
    SELECT d, number FROM jsonb_array_elements($2->'lines') WITH ORDINALITY AS line(d, number)
), head AS (
    UPDATE hamiacct_ledgerhead SET seq = seq + (SELECT count(*) FROM line) RETURNING seq
), written AS (
    INSERT INTO hamiacct_ledgerentry (seq, at, pod_uid, namespace, node, device, vendor, rule, reason,
        slots, memory_mib, cores, quota_cores, resource_version)
    SELECT head.seq - (SELECT count(*) FROM line) + number, $1, d->>0, d->>1, d->>2, d->>3, d->>4, d->>5,
        d->>6, (d->>7)::bigint, (d->>8)::bigint, (d->>9)::bigint, (d->>10)::bigint, (d->>11)::bigint
    FROM line, head RETURNING 1
)
SELECT count(*) FROM written
""",
)


# The same for callers that locked what it writes to, whose plans go by keys: a plan is kept by its name.
_WRITE_LOCKED = replace(_WRITE, name="hamiacct_post_locked")


def _written(
    before: _Entries,
    after: _Entries,
    devices: _Devices,
    of_devices: Mapping[Place, Amount],
    of_namespaces: _Sums[str],
    of_quotas: _Sums[int],
    lines: Sequence[Line],
) -> str:
    """What one statement writes: what it adds to is locked, and the head is locked by it, last of all."""
    kept: dict[tuple[str, int], tuple[str | int, ...]] = {}
    for uid, entries in after.items():
        for key, (amount, quota_cores) in entries.items():
            place = uid, devices[_place(key)].pk
            assert place not in kept, f"{uid} holds {key} for two vendors"
            sizes_of_entry = amount.slots, amount.memory_mib, amount.cores, amount.core_set
            kept[place] = (*place, key.vendor, *sizes_of_entry, quota_cores)
    held = {(uid, devices[_place(key)].pk) for uid, entries in before.items() for key in entries}
    written = {
        "gone": sorted(held - kept.keys()),
        "kept": [kept[place] for place in sorted(kept)],
        "devices": [(devices[place].pk, *sizes(total)) for place, total in _real(of_devices)],
        "namespaces": [(*place, *sizes(total)) for place, total in _real(of_namespaces)],
        "quotas": [(*place, total.memory_mib, total.cores) for place, total in _real(of_quotas)],
        "lines": [_columns_of(line) for line in lines],
    }
    return orjson.dumps(written).decode()


def _columns(number: int, rows_: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """So many arrays, one a column."""
    return [list(column) for column in zip(*rows_, strict=True)] if rows_ else [[] for _ in range(number)]


def _columns_of(line: Line) -> tuple[str | int, ...]:
    """A ledger line as it is stored, without its number and time."""
    key, difference = line.key, line.difference
    return (
        line.pod_uid,
        line.namespace,
        key.node,
        key.uuid,
        key.vendor,
        line.rule.value,
        line.reason,
        *sizes(difference),
        line.quota_cores,
        line.resource_version,
    )


def _real(sums: Mapping[Key, Amount]) -> list[tuple[Key, Amount]]:
    """The differences that are some, in order."""
    return [(place, total) for place, total in sorted(sums.items()) if not total.is_nothing]


def _namespace_differences(lines: Iterable[Line]) -> _Sums[str]:
    sums: _Sums[str] = defaultdict(Amount)
    for line in lines:
        difference = Amount(line.difference.slots, line.difference.memory_mib, line.quota_cores)
        place = (line.namespace, line.key.vendor)
        sums[place] = sums[place].plus(difference)
    return sums


def add_to_namespaces(lines: Iterable[Line]) -> None:
    """Adds the differences to the namespace totals; the namespaces are locked."""
    changes = [(*place, *sizes(total)) for place, total in _real(_namespace_differences(lines))]
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


_QUOTAS = Statement(
    "hamiacct_post_quotas",
    "text[]",
    """
WITH quota AS MATERIALIZED (
    SELECT id, namespace, name, requirements, limits FROM hamiacct_resourcequota
    WHERE namespace = ANY($1) AND NOT deleted ORDER BY namespace, name FOR NO KEY UPDATE
)
SELECT id, namespace, requirements::text, limits::text,
    (SELECT json_object_agg(vendor, json_build_array(memory_mib, cores))::text
        FROM hamiacct_quotausage WHERE quota_id = quota.id)
FROM quota
""",
)


def _locked_quotas(namespaces: Iterable[str]) -> list[Quota]:
    """The living quotas of the namespaces, locked by name; the namespaces are locked already."""
    return [
        Quota(
            quota_id,
            namespace,
            rows.conditions_of(orjson.loads(requirements)),
            orjson.loads(limits),
            orjson.loads(usage or "{}"),
        )
        for quota_id, namespace, requirements, limits, usage in _QUOTAS.rows(sorted(namespaces))
    ]


def _quota_differences(
    postings: Sequence[Posting], before: _Entries, after: _Entries, of_namespaces: Iterable[Quota]
) -> tuple[_Sums[int], set[int]]:
    """What to add to each quota: the differences of the pods it selects, as they were and are (decision 16).

    Also the quotas that are over a limit, before or after: what is odd about them may read anew.
    """
    first = {posting.pod_uid: posting for posting in reversed(postings)}
    last = {posting.pod_uid: posting for posting in postings}
    by_namespace: dict[str, list[str]] = defaultdict(list)
    for uid, posting in first.items():
        by_namespace[posting.namespace].append(uid)
    sums: _Sums[int] = defaultdict(Amount)
    looks: set[int] = set()
    for quota in of_namespaces:
        own: _Sums[int] = defaultdict(Amount)
        for uid in by_namespace[quota.namespace]:
            if selects(quota.conditions, first[uid].old_facts):
                _add(own, quota.id, before[uid], sign=-1)
            if selects(quota.conditions, last[uid].new_facts):
                _add(own, quota.id, after[uid], sign=1)
        if all(total.is_nothing for total in own.values()):
            continue
        sums |= own
        for limit in quota.limits:
            was = Amount(0, *quota.usage.get(limit["vendor"], (0, 0)))
            if quotas.is_over(limit, was) or quotas.is_over(limit, was.plus(own[quota.id, limit["vendor"]])):
                looks.add(quota.id)
    return sums, looks


def locked_quotas(namespaces: Iterable[str]) -> list[models.ResourceQuota]:
    """The living quotas of the namespaces, locked by name; the namespaces are locked already."""
    return list(
        models.ResourceQuota.objects.filter(namespace__in=sorted(namespaces), deleted=False)
        .select_for_update(no_key=True)
        .order_by("namespace", "name")
    )


def _add(
    sums: dict[tuple[int, str], Amount], quota_id: int, entries: Mapping[DeviceKey, Entry], *, sign: int
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

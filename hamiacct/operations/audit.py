"""Do the books agree: ledger replay, usage entries, device, namespace and quota totals (decision 35).

Read in one snapshot of the database. Entries are the truth; a repair makes the totals follow them.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Sum

from hamiacct import config, models, rows
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.holdings import Held, footprint_of_pod
from hamiacct.accounting.pods import DeviceKey
from hamiacct.accounting.words import Book, ChargedAs, Rule
from hamiacct.operations import findings, ledger, locks, quota_events
from hamiacct.operations.ledger import Line
from hamiacct.queries import streamed
from hamiacct.queries.fleet import STANDING

REPAIR_LOCK_TIMEOUT = "60s"
EVERY = timedelta(hours=1)
LOGGED = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """One place where a book does not say what it should. Amounts are by name: slots, memory_mib, cores."""

    book: Book
    key: str
    stored: dict[str, int]
    expected: dict[str, int]


@dataclass(frozen=True, slots=True)
class Audit:
    """How much was compared, and what differs."""

    checked: Mapping[str, int]
    discrepancies: tuple[Discrepancy, ...]

    @property
    def ok(self) -> bool:
        """Whether all books agree."""
        return not self.discrepancies


@dataclass(frozen=True, slots=True)
class Repair:
    """One place that was put right."""

    book: Book
    key: str
    was: dict[str, int]
    is_: dict[str, int]


class _EntryKey(NamedTuple):
    pod_uid: str
    node: str
    device: str
    vendor: str

    def __str__(self) -> str:
        return f"{self.pod_uid} on {self.node}/{self.device} ({self.vendor})"


Sizes = tuple[int, ...]
NAMES = ("slots", "memory_mib", "cores", "quota_cores")


def audit() -> Audit:
    """Compares every book with the entries, and the entries with what each pod should be charged."""
    with transaction.atomic():
        read_one_snapshot()
        return _compare()


def run_if_due(*, at: datetime) -> bool:
    """The periodic audit, kept for those who watch; False where the last one is not an hour old.

    Two that run at once do no harm.
    """
    last = models.AuditRun.objects.values_list("at", flat=True).first()
    if last is not None and at - last < EVERY:
        return False
    with transaction.atomic():
        read_one_snapshot()
        found = _compare()
        with connection.cursor() as cursor:
            cursor.execute("SELECT extract(epoch FROM clock_timestamp() - transaction_timestamp())::float")
            (seconds,) = cursor.fetchone()
    differing = Counter(one.book for one in found.discrepancies)
    models.AuditRun.objects.update_or_create(
        id=1,
        defaults={
            "at": at,
            "seconds": seconds,
            "checked": dict(found.checked),
            "discrepancies": {book: differing[book] for book in Book},
        },
    )
    for one in found.discrepancies[:LOGGED]:
        log.error(
            "the books disagree: %s %s: stored %s, expected %s", one.book, one.key, one.stored, one.expected
        )
    return True


def repair(*, at: datetime) -> tuple[Repair, ...]:
    """Makes totals follow the entries and the ledger's replay follow them; answers what was put right.

    A repair of totals leaves a ledger line with zero amounts and the reason, a repair of the replay a
    line with the amounts. Nobody posts meanwhile.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [REPAIR_LOCK_TIMEOUT])
        locks.close_books()
        found = _compare().discrepancies
        lines = [line for one in found if (line := _put_right(one)) is not None]
        ledger.write_lines(lines, at=at)
        findings.look_at_quotas(list(models.ResourceQuota.objects.values_list("pk", flat=True)), at=at)
        findings.look_at_devices(list(models.Device.objects.values_list("pk", flat=True)), at=at)
    return tuple(
        Repair(one.book, one.key, one.stored, one.expected) for one in found if one.book is not Book.ENTRIES
    )


def read_one_snapshot() -> None:
    """All statements of this transaction see one moment; not possible inside somebody else's transaction."""
    if len(connection.savepoint_ids) == 0:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _compare() -> Audit:
    entries = _entries()
    devices, device_sums = _devices(), _sums(entries, lambda key: (key.node, key.device), (0, 1, 2))
    pods = dict(models.Pod.objects.values_list("uid", "namespace"))
    namespaces = _namespaces()
    namespace_sums = _sums(entries, lambda key: (pods[key.pod_uid], key.vendor), (0, 1, 3))
    quotas, quota_sums = _quotas()
    expected_entries, stored_entries = _expected_entries(entries)
    checked = {
        "pods": len(pods),
        "entries": len(entries),
        "devices": len(devices),
        "namespaces": len({namespace for namespace, _ in namespaces} | set(pods.values())),
        "quotas": len({key.rpartition(" ")[0] for key in quotas} | _quota_names()),
    }
    found = [
        *_differences(Book.REPLAY, _replayed(), {str(key): sizes for key, sizes in entries.items()}, NAMES),
        *_differences(Book.ENTRIES, stored_entries, expected_entries, NAMES[:3]),
        *_differences(
            Book.DEVICES,
            {f"{node}/{uuid}": sizes for (node, uuid), sizes in devices.items()},
            {f"{node}/{uuid}": sizes for (node, uuid), sizes in device_sums.items()},
            NAMES[:3],
        ),
        *_differences(
            Book.NAMESPACES,
            {f"{space} {vendor}": sizes for (space, vendor), sizes in namespaces.items()},
            {f"{space} {vendor}": sizes for (space, vendor), sizes in namespace_sums.items()},
            NAMES[:3],
        ),
        *_differences(Book.QUOTAS, quotas, quota_sums, NAMES[1:3]),
    ]
    return Audit(checked, tuple(found))


def _differences(
    book: Book, stored: Mapping[str, Sizes], expected: Mapping[str, Sizes], names: Iterable[str]
) -> list[Discrepancy]:
    """Where the two differ; what is missing on a side is zero there."""
    names = tuple(names)
    zero = (0,) * len(names)
    return [
        Discrepancy(
            book,
            key,
            dict(zip(names, stored.get(key, zero), strict=True)),
            dict(zip(names, expected.get(key, zero), strict=True)),
        )
        for key in sorted({*stored, *expected})
        if tuple(stored.get(key, zero)) != tuple(expected.get(key, zero))
    ]


def _entries() -> dict[_EntryKey, Sizes]:
    fields = ("pod_id", "device__node", "device__uuid", "vendor", *NAMES)
    entries = streamed.rows(models.UsageEntry.objects.values_list(*fields))
    return {_EntryKey(*row[:4]): row[4:] for row in entries}


def _replayed() -> dict[str, Sizes]:
    """The sum of all ledger lines, per pod and device."""
    keys = ("pod_uid", "node", "device", "vendor")
    sums = (
        models.LedgerEntry.objects.exclude(pod_uid="")
        .order_by()
        .values_list(*keys)
        .annotate(*(Sum(name) for name in NAMES))
    )
    return {str(_EntryKey(*row[:4])): tuple(map(int, row[4:])) for row in streamed.rows(sums)}


def _devices() -> dict[tuple[str, str], Sizes]:
    fields = ("node", "uuid", "slots_used", "memory_mib_used", "cores_used")
    return {row[:2]: row[2:] for row in models.Device.objects.values_list(*fields)}


def _namespaces() -> dict[tuple[str, str], Sizes]:
    fields = ("namespace", "vendor", "slots", "memory_mib", "cores")
    return {row[:2]: row[2:] for row in models.NamespaceUsage.objects.values_list(*fields)}


def _quota_names() -> set[str]:
    living = models.ResourceQuota.objects.filter(deleted=False)
    return {locks.name_key(*name) for name in living.values_list("namespace", "name")}


def _quotas() -> tuple[dict[str, Sizes], dict[str, Sizes]]:
    """Stored and expected totals per quota and vendor."""
    stored: dict[str, Sizes] = {}
    expected: dict[str, Sizes] = {}
    for quota in models.ResourceQuota.objects.prefetch_related("usage"):
        name = locks.name_key(quota.namespace, quota.name)
        for total in quota.usage.all():
            stored[f"{name} {total.vendor}"] = (total.memory_mib, total.cores)
        for vendor, amount in quota_events.usage_of(quota).items():
            expected[f"{name} {vendor}"] = (amount.memory_mib, amount.cores)
    return stored, expected


def _sums(
    entries: Mapping[_EntryKey, Sizes], key_of: Callable[[_EntryKey], Any], columns: Iterable[int]
) -> dict[Any, Sizes]:
    """The entries summed by a part of their key."""
    columns = tuple(columns)
    sums: dict[Any, list[int]] = defaultdict(lambda: [0] * len(columns))
    for key, sizes in entries.items():
        total = sums[key_of(key)]
        for place, column in enumerate(columns):
            total[place] += sizes[column]
    return {key: tuple(total) for key, total in sums.items()}


def _expected_entries(entries: Mapping[_EntryKey, Sizes]) -> tuple[dict[str, Sizes], dict[str, Sizes]]:
    """What each pod should be charged by its stored allocation, beside what its entries say."""
    expected: dict[str, Sizes] = {}
    holds = {hold.pod_uid: hold for hold in models.Reservation.objects.filter(state__in=STANDING)}
    for pod in streamed.rows(models.Pod.objects.exclude(charged_as=ChargedAs.NOTHING)):
        for key, amount in _charge_of(pod, holds.get(pod.uid)).items():
            expected[str(_EntryKey(pod.uid, *key))] = (amount.slots, amount.memory_mib, amount.cores)
    return expected, {str(key): sizes[:3] for key, sizes in entries.items()}


def _charge_of(pod: models.Pod, hold: models.Reservation | None) -> Held:
    """The reading of the pod's footprint that its row says is charged: of its hold's while that stands."""
    is_held = pod.charged_as == ChargedAs.HELD and hold is not None
    allocations = rows.hold_of(hold).allocations if is_held and hold is not None else rows.allocations_of(pod)
    footprint = footprint_of_pod(
        rows.containers_of(pod), allocations, config.vendor_by_key(), config.annotation_layout()
    )
    charged: dict[str, Held] = {
        ChargedAs.NOTHING: Usage(),
        ChargedAs.STEADY: footprint.steady,
        ChargedAs.EFFECTIVE: footprint.effective,
        ChargedAs.HELD: footprint.effective,
    }
    return charged[pod.charged_as]


def _put_right(one: Discrepancy) -> Line | None:
    """Writes the expected amounts over one stored total; answers the ledger line that says so."""
    reason = f"{one.book} {one.key}: was {one.stored}, is {one.expected}"
    if one.book is Book.ENTRIES:
        return None  # entries are the truth; the pod's next event posts the difference
    if one.book is Book.REPLAY:
        pod_uid, _, rest = one.key.partition(" on ")
        place, _, vendor = rest.rpartition(" (")
        node, _, uuid = place.partition("/")
        differences = {name: one.expected[name] - one.stored[name] for name in NAMES}
        namespace = models.Pod.objects.filter(uid=pod_uid).values_list("namespace", flat=True).first()
        return Line(
            pod_uid,
            namespace or "",
            DeviceKey(node, uuid, vendor.removesuffix(")")),
            Rule.REPAIRED,
            f"the ledger's replay: was {one.stored}, is {one.expected}",
            Amount(differences["slots"], differences["memory_mib"], differences["cores"]),
            differences["quota_cores"],
            0,
        )
    key = DeviceKey("", "", "")
    namespace = ""
    if one.book is Book.DEVICES:
        node, _, uuid = one.key.partition("/")
        used = {f"{name}_used": amount for name, amount in one.expected.items()}
        models.Device.objects.filter(node=node, uuid=uuid).update(**used)
        key = DeviceKey(node, uuid, "")
    elif one.book is Book.NAMESPACES:
        namespace, _, vendor = one.key.rpartition(" ")
        models.NamespaceUsage.objects.update_or_create(
            namespace=namespace, vendor=vendor, defaults=one.expected
        )
    else:
        quota, _, vendor = one.key.rpartition(" ")
        namespace, _, name = quota.partition("/")
        row = models.ResourceQuota.objects.get(namespace=namespace, name=name)
        models.QuotaUsage.objects.update_or_create(quota=row, vendor=vendor, defaults=one.expected)
    return Line("", namespace, key, Rule.REPAIRED, reason, Amount(), 0, 0)

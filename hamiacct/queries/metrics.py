"""All that a scrape tells of the books, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, Min, Q

from hamiacct import config, models
from hamiacct.accounting.devices import MigAllocation
from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.mig import MIG_MODE
from hamiacct.accounting.vendors import CoresKind, Vendor
from hamiacct.accounting.words import (
    Book,
    EventState,
    FindingCode,
    PodState,
    ReservationState,
)
from hamiacct.kube import annotations as codec
from hamiacct.queries import inbox, quotas, streamed, usage, watching


class Card(NamedTuple):
    """A registered device of a node that exists.

    Cores are in percent of the card, whatever the vendor's unit; memory that is not counted in MiB is None.
    """

    node: str
    uuid: str
    device_index: int
    model: str
    slots_used: int
    memory_mib: int | None
    memory_mib_used: int | None
    memory_share: float | None
    cores_percent: int
    cores_percent_used: int


class Instance(NamedTuple):
    """A MIG instance of a pod, with its runtime identity."""

    node: str
    uuid: str
    device_index: int
    mig_uuid: str
    profile: str
    gpu_instance_id: int
    compute_instance_id: int
    start: int
    size: int


class Share(NamedTuple):
    """What a container's rows hold of a card, added up; cores in percent of it."""

    namespace: str
    node: str
    pod: str
    position: int
    uuid: str
    memory_mib: int | None
    cores_percent: int


@dataclass(frozen=True, slots=True)
class AuditRun:
    """What the last periodic audit found, by book."""

    at: datetime
    seconds: float
    discrepancies: Mapping[Book, int]


@dataclass(frozen=True, slots=True)
class State:
    """The books at one moment. Words that nothing has are there, with 0."""

    cards: tuple[Card, ...]
    instances: tuple[Instance, ...]
    quotas: Mapping[str, tuple[quotas.Resource, ...]]
    shares: tuple[Share, ...]
    devices: Mapping[str, int]
    pods: Mapping[PodState, int]
    reservations: Mapping[ReservationState, int]
    binding_oldest_seconds: float
    findings: Mapping[FindingCode, int]
    waiting: int
    lag_seconds: float
    refused: int
    is_complete: bool
    audit: AuditRun | None
    watcher: watching.Watcher | None


def state(at: datetime, *, per_pod: bool) -> State:
    """The books as they are now; the caller sees to it that all is read at one moment."""
    cards = tuple(_cards())
    backlog = inbox.backlog(at)
    oldest = models.Reservation.objects.filter(state=ReservationState.BINDING).aggregate(
        at=Min("changed_at")
    )["at"]
    pods = dict(models.Pod.objects.values_list("state").annotate(count=Count("uid")).order_by())
    holds = dict(models.Reservation.objects.values_list("state").annotate(count=Count("pk")).order_by())
    found = dict(models.Finding.objects.values_list("code").annotate(count=Count("id")).order_by())
    return State(
        cards=cards,
        instances=tuple(_instances()),
        quotas=quotas.of_all(),
        shares=tuple(_shares()) if per_pod else (),
        devices=_devices(),
        pods={one: pods.get(one, 0) for one in PodState},
        reservations={one: holds.get(one, 0) for one in ReservationState},
        binding_oldest_seconds=max(0.0, (at - oldest).total_seconds()) if oldest else 0.0,
        findings={one: found.get(one, 0) for one in FindingCode},
        waiting=backlog.waiting,
        lag_seconds=backlog.lag_seconds,
        refused=models.Event.objects.filter(state=EventState.REFUSED).count(),
        is_complete=inbox.is_complete(),
        audit=last_audit(),
        watcher=watching.watcher(at),
    )


def last_audit() -> AuditRun | None:
    """The last periodic audit; None before the first."""
    row = models.AuditRun.objects.first()
    if row is None:
        return None
    return AuditRun(row.at, row.seconds, {book: row.discrepancies.get(book, 0) for book in Book})


# --- cards ----------------------------------------------------------------------------------------


def _cards() -> Iterator[Card]:
    """By node, vendor and index. Devices that are not registered are left out (decision 10)."""
    alive = models.Node.objects.filter(deleted=False)
    rows = models.Device.objects.filter(registered=True, node__in=alive.values("name"))
    fields = ("node", "uuid", "index", "model", "vendor", "slots_used")
    sizes = ("memory_mib_total", "memory_mib_used", "cores_total", "cores_used")
    vendors = config.vendor_by_key()
    for node, uuid, index, model, key, slots, memory, memory_used, cores, cores_used in streamed.rows(
        rows.order_by(*usage.IN_A_NODE).values_list(*fields, *sizes), at_once=5000
    ):
        vendor = vendors.get(key)
        in_mib = vendor is None or vendor.memory_is_mib
        yield Card(
            node,
            uuid,
            index,
            model,
            slots,
            memory if in_mib else None,
            memory_used if in_mib else None,
            memory_used / memory if memory > 0 else None,
            _percent(vendor, cores, cores),
            _percent(vendor, cores_used, cores),
        )


def _percent(vendor: Vendor | None, cores: int, total: int) -> int:
    """Cores of a card in percent of it: units and named cores are counted, and rounded up."""
    if vendor is None or vendor.cores_kind is CoresKind.PERCENT or total <= 0:
        return cores
    return -(-cores * 100 // total)


def _devices() -> Mapping[str, int]:
    alive = models.Node.objects.filter(deleted=False)
    is_there = Q(registered=True, node__in=alive.values("name"))
    found = models.Device.objects.aggregate(
        of_registered=Count("id", filter=is_there),
        of_healthy=Count("id", filter=is_there & Q(healthy=True)),
        of_cordoned=Count("id", filter=is_there & Q(cordoned=True)),
        of_unregistered=Count("id", filter=Q(registered=False)),
    )
    return {name.removeprefix("of_"): number for name, number in found.items()}


def _instances() -> Iterator[Instance]:
    """The MIG instances of charged pods; an unreadable text names none."""
    entries = models.UsageEntry.objects.filter(device__mode=MIG_MODE, device__registered=True)
    held: dict[str, dict[str, tuple[str, int]]] = {}
    for uid, node, uuid, index in entries.values_list(
        "pod_id", "device__node", "device__uuid", "device__index"
    ):
        held.setdefault(uid, {})[uuid] = (node, index)
    pods = models.Pod.objects.filter(entries__device__mode=MIG_MODE, ended_by="").distinct().order_by("uid")
    seen: set[tuple[str, str, str]] = set()
    for pod in pods.only("uid", "annotations", "containers", "inits_released"):
        for one in _placed(pod):
            node, index = held.get(pod.uid, {}).get(one.gpu_uuid, ("", 0))
            if not node or not one.mig_uuid or (node, one.gpu_uuid, one.mig_uuid) in seen:
                continue
            seen.add((node, one.gpu_uuid, one.mig_uuid))
            assert one.gpu_instance_id is not None
            assert one.compute_instance_id is not None
            yield Instance(
                *(node, one.gpu_uuid, index, one.mig_uuid, one.profile),
                *(one.gpu_instance_id, one.compute_instance_id, one.placement.start, one.placement.size),
            )


def _placed(pod: models.Pod) -> list[MigAllocation]:
    try:
        return list(codec.decode_mig_allocations(pod.annotations.get(codec.MIG_ALLOCATIONS, "")))
    except UnreadableAnnotation:
        return []


# --- pods -----------------------------------------------------------------------------------------


def _shares() -> Iterator[Share]:
    """Container by container, the rows of what is charged; inits that were given back are left out."""
    vendors = config.vendor_by_key()
    totals = {
        (node, uuid): cores
        for node, uuid, cores in streamed.rows(
            models.Device.objects.values_list("node", "uuid", "cores_total")
        )
    }
    sums: dict[tuple[str, str, str, int, str], tuple[int | None, int]] = {}
    for pod in usage.charged():
        for container in pod.containers:
            for part in container.devices:
                # Of two pods of one name, one on its way out, one series is made.
                place = (pod.namespace, pod.node, pod.name, container.position, part.uuid)
                vendor = vendors.get(part.vendor)
                memory, cores = sums.get(place, (0, 0))
                in_mib = vendor is None or vendor.memory_is_mib
                sums[place] = (
                    memory + part.memory_mib if in_mib and memory is not None else None,
                    cores + _percent(vendor, part.cores, totals.get((pod.node, part.uuid), 0)),
                )
    return (Share(*place, *amounts) for place, amounts in sums.items() if place[-1])

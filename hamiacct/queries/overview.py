"""The whole fleet at a glance: its cards by node, the worst first, and what is not as it should be.

However large the cluster, each part is a constant number of queries and answers a bounded number of rows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from django.db import connection
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    Count,
    Exists,
    F,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber

from hamiacct import models
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.words import EventState, FindingCode, PodState, SubjectKind
from hamiacct.queries import findings, folds, quotas
from hamiacct.queries.usage import DEVICES, IN_A_NODE, Room

NODES_A_PAGE = 24
CARDS_A_NODE = 64
MOST_QUOTAS = 500
PER_MILLE = 1000
NO_SIZE = 1_000_000
MOST_COUNTED = 10_000
OF_MACHINES = (SubjectKind.DEVICE, SubjectKind.NODE)
ODD = models.Finding.objects.filter(subject_kind__in=OF_MACHINES)
Key = TypeVar("Key")
Notes = dict[Key, list[findings.Note]]
LIVING = (PodState.STEADY, PodState.PEAK, PodState.RESERVED, PodState.CLAIMED, PodState.UNSCHEDULED)
SHOWN = Q(registered=True) | Q(slots_used__gt=0) | Q(memory_mib_used__gt=0)
"""The devices worth a card: those that are offered, and those that somebody holds all the same."""


class Order(StrEnum):
    """Which nodes come first."""

    FULLEST = "fullest"
    EMPTIEST = "emptiest"
    ODDEST = "oddest"  # those without findings are left out
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Card:
    """A device, memory in MiB. `inits_mib` is what it gets back when the inits running on it are done."""

    id: int
    node: str
    uuid: str
    index: int
    vendor: str
    model: str
    healthy: bool
    cordoned: bool
    registered: bool
    total_mib: int
    used_mib: int
    inits_mib: int
    slots_total: int
    slots_used: int
    cores_total: int
    cores_used: int
    notes: tuple[findings.Note, ...]

    @property
    def steady_mib(self) -> int:
        """What stays held after that."""
        return self.used_mib - self.inits_mib

    @property
    def free_mib(self) -> int:
        """What nobody holds."""
        return max(0, self.total_mib - self.used_mib)

    @property
    def over_mib(self) -> int:
        """By how much more is held than there is."""
        return max(0, self.used_mib - self.total_mib)


@dataclass(frozen=True, slots=True)
class Rack:
    """A node and its cards. `others` is how many cards were left out."""

    name: str
    cards: tuple[Card, ...]
    notes: tuple[findings.Note, ...]
    others: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some nodes of the fleet; `has_more` tells whether another page follows."""

    racks: tuple[Rack, ...]
    number: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class Oddity:
    """How many findings of a code there are, and the newest of them."""

    newest: models.Finding
    number: int


@dataclass(frozen=True, slots=True)
class Oddities:
    """What is odd, the most frequent first."""

    by_code: tuple[Oddity, ...]

    @property
    def number(self) -> int:
        """How many findings there are."""
        return sum(one.number for one in self.by_code)


@dataclass(frozen=True, slots=True)
class QuotaBar:
    """One limit of a ResourceQuota in accounted units (MiB, or cores), and what its pods hold."""

    id: int
    namespace: str
    name: str
    key: str
    is_memory: bool
    used: int
    hard: int

    @property
    def over_by(self) -> int:
        """By how much it is exceeded."""
        return max(0, self.used - self.hard)

    @property
    def remaining(self) -> int:
        """What is left of it."""
        return max(0, self.hard - self.used)

    @property
    def share(self) -> float:
        """How full it is; a limit of zero is full."""
        return self.used / self.hard if self.hard else 1.0 + bool(self.used)


@dataclass(frozen=True, slots=True)
class RefusedEvent:
    """An event that could not be read, and waits for somebody."""

    id: int
    received_at: datetime
    type: str
    kind: str
    name: str
    detail: str


def page(*, node: str, vendor: str, is_odd: bool, order: Order, number: int) -> tuple[Page, Oddities]:
    """One page of the fleet, and what is odd in the whole cluster; three queries.

    `node` is the beginning of a name; `is_odd` leaves out nodes without findings.
    """
    devices = _wanted(node, vendor, is_odd)
    by_node: dict[str, list[models.Device]] = defaultdict(list)
    wanted = _first_of(devices, order, number)
    rows = DEVICES.filter(SHOWN, node__in=wanted)
    for device in (rows.filter(vendor=vendor) if vendor else rows).order_by(*IN_A_NODE):
        by_node[device.node].append(device)
    odd, of_nodes, of_devices = _oddities(list(by_node))
    number_of = {
        name: len(of_nodes[name]) + sum(len(of_devices[name, row.uuid]) for row in of_it)
        for name, of_it in by_node.items()
    }
    names = sorted(by_node, key=lambda name: _place(name, by_node[name], order, number_of[name]))
    chosen = {name: by_node[name][:CARDS_A_NODE] for name in names[:NODES_A_PAGE]}
    back = folds.coming_back([device.pk for of_it in chosen.values() for device in of_it])
    racks = tuple(
        Rack(
            name,
            tuple(_card(device, back.get(device.pk, 0), of_devices) for device in of_it),
            tuple(of_nodes[name]),
            len(by_node[name]) - len(of_it),
        )
        for name, of_it in chosen.items()
    )
    return Page(racks, number, len(names) > NODES_A_PAGE), odd


def _wanted(node: str, vendor: str, is_odd: bool) -> QuerySet[models.Device]:
    devices = models.Device.objects.filter(SHOWN)
    if node:
        devices = devices.filter(node__startswith=node)
    if vendor:
        devices = devices.filter(vendor=vendor)
    if is_odd:
        devices = devices.filter(Exists(ODD.filter(node=OuterRef("node"))))
    return devices


def _first_of(devices: QuerySet[models.Device], order: Order, number: int) -> QuerySet[Any, Any]:
    """The nodes of a page, and one more where there are more, in an order that `_place` repeats."""
    first = (number - 1) * NODES_A_PAGE
    nodes = devices.values("node").order_by()
    if order is Order.NAME:
        ordered = nodes.distinct().order_by("node")
    elif order is Order.ODDEST:
        has_cards = Exists(devices.filter(node=OuterRef("node")))
        counted = ODD.filter(has_cards).values("node").order_by().annotate(number=Count("id"))
        return counted.order_by("-number", "node").values("node")[first : first + NODES_A_PAGE + 1]
    else:
        sign = "-" if order is Order.FULLEST else ""
        ordered = nodes.annotate(fullest=Max(SHARE), held=Sum("memory_mib_used")).order_by(
            f"{sign}fullest", f"{sign}held", "node"
        )
    return ordered.values("node")[first : first + NODES_A_PAGE + 1]


def _place(
    name: str, devices: Sequence[models.Device], order: Order, findings_number: int
) -> tuple[Any, ...]:
    """Where a node stands in its page. A node is as full as its fullest card."""
    if order is Order.NAME:
        return (name,)
    if order is Order.ODDEST:
        return (-findings_number, name)
    sign = -1 if order is Order.FULLEST else 1
    fullest = max(_share(device) for device in devices)
    return (sign * fullest, sign * sum(device.memory_mib_used for device in devices), name)


def _share(device: models.Device) -> int:
    """How full a card is, in thousandths; one that is held and has no size is the fullest of all."""
    if device.memory_mib_total:
        return device.memory_mib_used * PER_MILLE // device.memory_mib_total
    return NO_SIZE if device.memory_mib_used else 0


SHARE = Case(
    When(memory_mib_total__gt=0, then=F("memory_mib_used") * PER_MILLE / F("memory_mib_total")),
    When(memory_mib_used__gt=0, then=Value(NO_SIZE)),
    default=Value(0),
    output_field=BigIntegerField(),
)


def _oddities(nodes: Sequence[str]) -> tuple[Oddities, Notes[str], Notes[tuple[str, str]]]:
    """What is odd about these nodes and their devices, and the newest finding of each code; one query."""
    of_nodes: Notes[str] = defaultdict(list)
    of_devices: Notes[tuple[str, str]] = defaultdict(list)
    newest = []
    here = Case(
        When(subject_kind__in=OF_MACHINES, node__in=nodes, then=Value(True)),
        default=Value(False),
        output_field=BooleanField(),
    )
    nth = Window(RowNumber(), partition_by=[F("code")], order_by=F("id").desc())
    rows = models.Finding.objects.annotate(
        nth=nth, number=Window(Count("id"), partition_by=[F("code")]), here=here
    ).filter(Q(nth=1) | Q(here=True))
    for row in rows.order_by("id"):
        if row.nth == 1:
            newest.append(Oddity(row, row.number))
        if row.here:
            note = findings.Note(FindingCode(row.code), row.detail, row.since)
            if row.subject_kind == SubjectKind.NODE:
                of_nodes[row.node].append(note)
            else:
                of_devices[row.node, row.name].append(note)
    newest.sort(key=lambda one: (-one.number, one.newest.code))
    return Oddities(tuple(newest)), of_nodes, of_devices


def _card(row: models.Device, inits_mib: int, notes: Notes[tuple[str, str]]) -> Card:
    return Card(
        row.pk,
        row.node,
        row.uuid,
        row.index,
        row.vendor,
        row.model,
        row.healthy,
        row.cordoned,
        row.registered,
        row.memory_mib_total,
        row.memory_mib_used,
        min(inits_mib, row.memory_mib_used),
        row.slots_total,
        row.slots_used,
        row.cores_total,
        row.cores_used,
        tuple(notes.get((row.node, row.uuid), ())),
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """The cluster in a few numbers, memory in MiB; registered cards by how full they are in memory.

    Pods are counted to ten thousand of each state, and no further.
    """

    nodes: int
    cards: int
    unregistered: int
    unhealthy: int
    cordoned: int
    memory: Room
    empty: int
    below_half: int
    above_half: int
    full: int
    over: int
    pods_by_state: Mapping[PodState, int]


def totals() -> Totals:
    """The cluster's totals; one query."""
    with connection.cursor() as cursor:
        cursor.execute(TOTALS, [list(LIVING), MOST_COUNTED])
        *numbers, total, used, free, by_state = cursor.fetchone()
    nodes, cards, unregistered, unhealthy, cordoned, empty, below_half, above_half, full, over = numbers
    counted = {PodState(state): number for state, number in json.loads(by_state).items()}
    return Totals(
        nodes,
        cards,
        unregistered,
        unhealthy,
        cordoned,
        Room(int(total), int(used), int(free)),
        empty,
        below_half,
        above_half,
        full,
        over,
        {state: counted.get(state, 0) for state in LIVING},
    )


TOTALS = """
SELECT (SELECT count(*) FROM hamiacct_node WHERE NOT deleted),
  count(*) FILTER (WHERE registered),
  count(*) FILTER (WHERE NOT registered),
  count(*) FILTER (WHERE registered AND NOT healthy),
  count(*) FILTER (WHERE registered AND cordoned),
  count(*) FILTER (WHERE registered AND memory_mib_used = 0),
  count(*) FILTER (WHERE registered AND memory_mib_used > 0 AND memory_mib_used * 2 <= memory_mib_total),
  count(*) FILTER (WHERE registered AND memory_mib_used * 2 > memory_mib_total
    AND memory_mib_used < memory_mib_total),
  count(*) FILTER (WHERE registered AND memory_mib_used > 0 AND memory_mib_used = memory_mib_total),
  count(*) FILTER (WHERE registered AND memory_mib_used > memory_mib_total),
  coalesce(sum(memory_mib_total) FILTER (WHERE registered), 0),
  coalesce(sum(memory_mib_used) FILTER (WHERE registered), 0),
  coalesce(sum(greatest(memory_mib_total - memory_mib_used, 0)) FILTER (WHERE registered), 0),
  (SELECT coalesce(json_object_agg(state, number), '{}')::text FROM unnest(%s::text[]) AS state,
    LATERAL (SELECT count(*) AS number
      FROM (SELECT 1 FROM hamiacct_pod AS pod WHERE pod.state = state.state LIMIT %s) AS bounded) AS counted)
FROM hamiacct_device
"""


def quota_bars(limit: int) -> tuple[QuotaBar, ...]:
    """The limits that are fullest; of very many those are looked at whose pods hold most. One query."""
    totals_ = models.QuotaUsage.objects.filter(quota__deleted=False).select_related("quota")
    largest = totals_.order_by("-memory_mib", "-cores", "id")[:MOST_QUOTAS]
    bars = [bar for total in largest for bar in _bars(total.quota, {total.vendor: total}) if bar.used]
    return tuple(sorted(bars, key=lambda bar: (-bar.share, bar.namespace, bar.name, bar.key))[:limit])


def bars_of(quota: models.ResourceQuota) -> list[QuotaBar]:
    """Every limit of one quota; its `usage` must be loaded. Values that are no numbers limit nothing."""
    return _bars(quota, {total.vendor: total for total in quota.usage.all()})


def _bars(quota: models.ResourceQuota, used: Mapping[str, models.QuotaUsage]) -> list[QuotaBar]:
    bars = []
    for stored in quota.limits:
        hard = quotas.scaled(stored)
        if hard is None:
            continue
        total = used.get(stored["vendor"])
        is_memory = stored["dimension"] == Dimension.MEMORY
        amount = 0 if total is None else total.memory_mib if is_memory else total.cores
        bars.append(QuotaBar(quota.pk, quota.namespace, quota.name, stored["key"], is_memory, amount, hard))
    return bars


def refused_events(limit: int) -> tuple[RefusedEvent, ...]:
    """The refused events that wait for somebody, the newest first, and one more where there are more."""
    rows = models.Event.objects.filter(state=EventState.REFUSED).order_by("-id").defer("body")[: limit + 1]
    return tuple(
        RefusedEvent(
            row.pk, row.received_at, row.type, row.kind, f"{row.namespace}/{row.name}".lstrip("/"), row.detail
        )
        for row in rows
    )

"""HAMi's numbers beside ours: what a version of it books, what it says itself, and what is right.

Every difference is a pod's, on a card. The sums of cards and namespaces are the books' own, moved by the
differences of their pods; so only pods that may be counted otherwise are read, unless HAMi's own metrics are
given, which may be wrong about any pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import JSONObject

from hamiacct import config, models, rows
from hamiacct.accounting import hami
from hamiacct.accounting.amounts import NOTHING, Amount
from hamiacct.accounting.comparison import (
    Card,
    Comparison,
    Gone,
    Holder,
    Namespace,
    Share,
    total_of,
)
from hamiacct.accounting.hami import Formula
from hamiacct.accounting.pods import ContainerClass, DeviceKey
from hamiacct.accounting.words import ChargedAs, PodState, ReservationState, Whereabouts
from hamiacct.kube.hami_metrics import Card as CardName
from hamiacct.kube.hami_metrics import Holding, Reported
from hamiacct.queries import streamed
from hamiacct.queries.arrays import among

DEFAULT_FORMULA = Formula.V2_10
AT_ONCE = 2_000
STANDING = [state for state in ReservationState if state.stands]

CHARGED = models.Pod.objects.exclude(charged_as=ChargedAs.NOTHING)


@dataclass(slots=True)
class _Found:
    """What the pods say, while they are read."""

    shares: list[Share] = field(default_factory=list)
    by_card: dict[CardName, list[Share]] = field(default_factory=lambda: defaultdict(list))
    by_namespace: dict[tuple[str, str], list[Share]] = field(default_factory=lambda: defaultdict(list))
    quota_cores: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    unclaimed: dict[Holding, int] = field(default_factory=dict)


def compare(
    formula: Formula = DEFAULT_FORMULA,
    reported: Reported | None = None,
    *,
    node: str = "",
    namespace: str = "",
    everything: bool = False,
) -> Comparison:
    """The comparison; six queries at most, whatever the number of pods.

    `node` and `namespace` leave out what does not concern them; the sums of what is shown stay whole.
    Cards and namespaces without a difference are left out unless `everything` is asked for.
    """
    devices = _devices()
    found = _read_pods(formula, reported, devices)

    def is_asked_for(one: Share | Gone) -> bool:
        return node in ("", one.node) and namespace in ("", one.namespace)

    shares = [share for share in found.shares if is_asked_for(share)]
    cards = [
        card
        for card in _cards(devices, found, reported)
        if node in ("", card.node)
        and (not namespace or any(map(is_asked_for, card.shares)))
        and (everything or card.differs or not card.over_by.is_nothing)
    ]
    namespaces = [
        one
        for one in _namespaces(found, reported)
        if namespace in ("", one.namespace)
        and (not node or any(map(is_asked_for, one.shares)))
        and (everything or one.differs)
    ]
    return Comparison(
        formula,
        len(devices),
        CHARGED.count(),
        _with_holders(sorted(cards, key=_worst_card)),
        tuple(sorted(namespaces, key=_worst_namespace)),
        _largest(shares, lambda share: share.short),
        _largest(shares, lambda share: share.over),
        tuple(gone for gone in _gone(found.unclaimed) if is_asked_for(gone)),
    )


def knows(*, node: str = "", namespace: str = "") -> bool:
    """Whether the books have heard of both; "" is everywhere."""
    nodes = models.Node.objects.filter(name=node)
    pods = models.Pod.objects.filter(namespace=namespace)
    quotas = models.ResourceQuota.objects.filter(namespace=namespace)
    devices = models.Device.objects.filter(node=node)
    return (not node or nodes.exists() or devices.exists()) and (
        not namespace or pods.exists() or quotas.exists()
    )


@dataclass(frozen=True, slots=True)
class _Device:
    """What is read of a device's row."""

    node: str
    uuid: str
    vendor: str
    index: int
    registered: bool
    slots_total: int
    memory_mib_total: int
    cores_total: int
    slots_used: int
    memory_mib_used: int
    cores_used: int


Devices = Mapping[CardName, _Device]


def _devices() -> dict[CardName, _Device]:
    """Every device of the books; one query."""
    columns = [column.name for column in fields(_Device)]
    every_device = (_Device(*row) for row in models.Device.objects.values_list(*columns))
    return {CardName(row.node, row.uuid): row for row in every_device}


# --- pods ----------------------------------------------------------------------------------------


def _read_pods(formula: Formula, reported: Reported | None, devices: Devices) -> _Found:
    """Every pod that may be counted otherwise, and what of HAMi's own numbers no pod answers for."""
    found = _Found(unclaimed=dict(reported.pods) if reported else {})
    vendors = config.vendor_by_key()
    for share, quota_cores in _shares(_pods_to_read(everyone=reported is not None), formula, reported):
        found.unclaimed.pop(Holding(share.namespace, share.name, share.node, share.device), None)
        if not share.differs:
            continue
        found.shares.append(share)
        place, scope = CardName(share.node, share.device), (share.namespace, share.vendor)
        found.by_card[place].append(share)
        found.by_namespace[scope].append(share)
        total = devices[place].cores_total if place in devices else 0
        found.quota_cores[scope] += (
            vendors[share.vendor].quota_cores_of(share.hami.cores, total) - quota_cores
        )
    found.unclaimed = {holding: size for holding, size in found.unclaimed.items() if size}
    return found


def _pods_to_read(*, everyone: bool) -> QuerySet[models.Pod]:
    """Pods that are charged; of these, unless everyone is asked for, those a formula may count otherwise.

    A pod of apps alone is the sum of its rows in every version, where a row means no more than it says.
    """
    if everyone:
        return CHARGED.all()
    special = [vendor.key for vendor in config.vendors() if hami.may_differ(vendor)]
    with_inits = Q(containers__contains=[{"class": ContainerClass.INIT.value}])
    with_sidecars = Q(containers__contains=[{"class": ContainerClass.SIDECAR.value}])
    return CHARGED.filter(with_inits | with_sidecars | Q(allocations__has_any_keys=special))


def _shares(
    pods: QuerySet[models.Pod], formula: Formula, reported: Reported | None
) -> Iterator[tuple[Share, int]]:
    """Each pod on each of its cards, with its cores in the quota's unit; one query.

    A pod comes with its entries and its hold in one row of one statement, so that both numbers are of one
    moment.
    """
    vendors = config.vendor_by_key()
    entries = models.UsageEntry.objects.filter(pod=OuterRef("pk")).values(
        json=JSONObject(
            node=F("device__node"),
            uuid=F("device__uuid"),
            vendor=F("vendor"),
            slots=F("slots"),
            memory_mib=F("memory_mib"),
            cores=F("cores"),
            quota_cores=F("quota_cores"),
        )
    )
    holds = models.Reservation.objects.filter(pod_uid=OuterRef("pk"), state__in=STANDING)
    told = pods.annotate(entries_now=ArraySubquery(entries), held=Subquery(holds.values("allocations")))
    for row in streamed.rows(told.only(*SHOWN_OF_A_POD), at_once=AT_ONCE):
        by_hold = row.charged_as == ChargedAs.HELD and row.held
        if by_hold:
            row.allocations = row.held
        counted = hami.booked(
            rows.containers_of(row),
            rows.allocations_of(row),
            vendors,
            formula,
            inits_released=row.inits_released and not by_hold,
        )
        held = {DeviceKey(entry["node"], entry["uuid"], entry["vendor"]): entry for entry in row.entries_now}
        for key in {*counted, *held}:
            entry = held.get(key, {})
            yield _share(row, key, counted[key], entry, reported), entry.get("quota_cores", 0)


SHOWN_OF_A_POD = (
    "uid",
    "namespace",
    "name",
    "state",
    "charged_as",
    "inits_released",
    "containers",
    "allocations",
)


def _share(
    row: models.Pod, key: DeviceKey, counted: Amount, entry: Mapping[str, Any], reported: Reported | None
) -> Share:
    said: int | None = None
    if reported is not None and row.state != PodState.RESERVED:  # of a hold of ours HAMi cannot know
        said = reported.pods.get(Holding(row.namespace, row.name, key.node, key.uuid), 0)
    right = Amount(entry["slots"], entry["memory_mib"], entry["cores"]) if entry else NOTHING
    state = PodState(row.state)
    return Share(row.uid, row.namespace, row.name, state, *key, counted, said, right)


def _largest(shares: Iterable[Share], amount: Callable[[Share], Amount]) -> tuple[Share, ...]:
    """Those that have any of this amount, the most memory first."""

    def size(share: Share) -> tuple[int, int, int, str, str, str]:
        of = amount(share)
        return -of.memory_mib, -of.cores, -of.slots, share.namespace, share.name, share.device

    return tuple(sorted((share for share in shares if not amount(share).is_nothing), key=size))


# --- cards and namespaces ------------------------------------------------------------------------


def _cards(devices: Devices, found: _Found, reported: Reported | None) -> Iterator[Card]:
    """Every card of the books, with what HAMi says of it. Of one it does not register it says nothing."""
    for place, row in devices.items():
        shares = tuple(found.by_card.get(place, ()))
        right = Amount(row.slots_used, row.memory_mib_used, row.cores_used)
        yield Card(
            row.node,
            row.uuid,
            row.vendor,
            row.index,
            row.registered,
            Amount(row.slots_total, row.memory_mib_total, row.cores_total),
            _moved(right, shares),
            None if reported is None else reported.cards.get(place),
            right,
            shares,
        )


def _with_holders(cards: Iterable[Card]) -> tuple[Card, ...]:
    """The cards; those that hold more than they have with all their pods. One query, or none."""
    cards = tuple(cards)
    over = [(card.node, card.uuid) for card in cards if not card.over_by.is_nothing]
    if not over:
        return cards
    holders: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    entries = models.UsageEntry.objects.filter(
        device__in=among(models.Device.objects.order_by(), ("node", "uuid"), over)
    )
    for node, device, *pod in entries.values_list(
        "device__node", "device__uuid", "pod_id", "pod__namespace", "pod__name"
    ).order_by("pod__namespace", "pod__name", "pod_id"):
        holders[node, device].append(Holder(*pod))
    return tuple(replace(card, holders=tuple(holders[card.node, card.uuid])) for card in cards)


def _namespaces(found: _Found, reported: Reported | None) -> Iterator[Namespace]:
    """What every namespace holds of every vendor; also what HAMi alone says that one holds. One query."""
    vendors = config.vendor_by_key()
    said: dict[tuple[str, str], int] = {}
    for vendor in config.vendors():
        if reported is not None and vendor.memory_name and vendor.quota_memory:
            for (namespace, resource), used in reported.quotas.items():
                if resource == vendor.memory_name:
                    said[namespace, vendor.key] = used
    held = {
        (row.namespace, row.vendor): Amount(row.slots, row.memory_mib, row.cores)
        for row in models.NamespaceUsage.objects.all()
    }
    for scope in {*held, *said, *found.by_namespace}:
        right, shares = held.get(scope, NOTHING), tuple(found.by_namespace.get(scope, ()))
        hami_cores = right.cores + found.quota_cores.get(scope, 0)
        names_memory = bool(vendors[scope[1]].memory_name)
        yield Namespace(
            *scope,
            replace(_moved(right, shares), cores=hami_cores),
            said.get(scope) if names_memory else None,
            right,
            shares,
        )


def _moved(right: Amount, shares: Iterable[Share]) -> Amount:
    """A sum of the books as HAMi's formula has it: moved by what its pods differ by."""
    return right.plus(total_of(share.hami.minus(share.right) for share in shares))


def _worst_card(card: Card) -> tuple[Any, ...]:
    """Cards that hold more than they have, then the most that is not counted, then the most held back."""
    over_by = card.over_by
    return (
        (-over_by.memory_mib, -over_by.cores, -over_by.slots),
        card.hami.memory_mib - card.right.memory_mib >= 0,
        -abs(card.hami.memory_mib - card.right.memory_mib),
        (card.node, card.vendor, card.index, card.uuid),
    )


def _worst_namespace(one: Namespace) -> tuple[Any, ...]:
    """The most that is not counted, then the most held back."""
    over = one.hami.memory_mib - one.right.memory_mib
    return over >= 0, -abs(over), one.namespace, one.vendor


# --- for nobody ----------------------------------------------------------------------------------


def _gone(unclaimed: Mapping[Holding, int]) -> tuple[Gone, ...]:
    """What HAMi holds for pods that hold nothing there: the most memory first; one query, or none."""
    names = sorted({(holding.namespace, holding.pod) for holding in unclaimed})
    if not names:
        return ()
    known: dict[tuple[str, str], Whereabouts] = {}
    rows_of_them = among(models.Pod.objects.order_by(), ("namespace", "name"), names)
    for namespace, name, ended_by in rows_of_them.values_list("namespace", "name", "ended_by"):
        lives = known.get((namespace, name)) is Whereabouts.ELSEWHERE or not ended_by
        known[namespace, name] = Whereabouts.ELSEWHERE if lives else Whereabouts.ENDED
    found = [
        Gone(*holding, size, known.get((holding.namespace, holding.pod), Whereabouts.UNKNOWN))
        for holding, size in unclaimed.items()
    ]
    return tuple(sorted(found, key=lambda one: (-one.memory_mib, one.namespace, one.name, one.device)))

"""What of a namespace is limited, used and exceeded, and what nobody here enforces (decisions 16, 17)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hamiacct import config, models, rows
from hamiacct.accounting import quantities
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.errors import UnreadableQuantity
from hamiacct.accounting.footprint import footprint_of
from hamiacct.accounting.pods import Container, Phase
from hamiacct.accounting.quota import Dimension, selects
from hamiacct.accounting.vendors import Vendor
from hamiacct.accounting.words import PodState
from hamiacct.queries import findings

MOST = 2**63 - 1
REQUESTS = "requests."
OF_THE_APISERVER = "the apiserver charges requests, on admission; nobody here enforces them"
TERMINAL_PHASES = tuple(phase.value for phase in Phase if phase.is_terminal)


@dataclass(frozen=True, slots=True)
class Bound:
    """One ResourceQuota's limit on a resource: `spec` as written, the rest in accounted units.

    `hard` and `headroom` are None where the value is no integer and so no limit.
    """

    name: str
    key: str
    spec: str
    hard: int | None
    used: int

    @property
    def headroom(self) -> int | None:
        """What is left of it."""
        return None if self.hard is None else max(0, self.hard - self.used)

    @property
    def over_by(self) -> int:
        """By how much it is exceeded."""
        return 0 if self.hard is None else max(0, self.used - self.hard)


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of a vendor in one namespace: what all its pods hold, and every limit on it."""

    resource: str
    vendor: str
    used: int
    quotas: tuple[Bound, ...]

    @property
    def hard(self) -> int | None:
        """The tightest limit; None without one."""
        return min((quota.hard for quota in self.quotas if quota.hard is not None), default=None)

    @property
    def headroom(self) -> int | None:
        """The smallest headroom; None without a limit."""
        return min((quota.headroom for quota in self.quotas if quota.headroom is not None), default=None)

    @property
    def over_by(self) -> int:
        """The largest excess."""
        return max((quota.over_by for quota in self.quotas), default=0)


@dataclass(frozen=True, slots=True)
class NotEnforced:
    """A key that limits nothing here, why, and what the apiserver charges for it, where it does."""

    quota: str
    key: str
    reason: str
    apiserver_used: int | None


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """The quota state of a namespace. One that nothing is known of is limited by nothing and uses nothing."""

    namespace: str
    resources: tuple[Resource, ...]
    not_enforced: tuple[NotEnforced, ...]
    findings: tuple[findings.Finding, ...]


def of_namespace(namespace: str) -> NamespaceQuota:
    """The quota state of a namespace; four queries, five where a quota has keys of the apiserver."""
    quotas = list(
        models.ResourceQuota.objects.filter(namespace=namespace, deleted=False)
        .prefetch_related("usage")
        .order_by("name")
    )
    totals = {
        total.vendor: (total.memory_mib, total.cores)
        for total in models.NamespaceUsage.objects.filter(namespace=namespace)
    }
    return NamespaceQuota(
        namespace,
        tuple(_resources(quotas, totals)),
        tuple(_not_enforced(quotas)),
        findings.of_quotas(namespace),
    )


def of_all() -> Mapping[str, tuple[Resource, ...]]:
    """Every namespace's resources that are limited, or used, or have been; three queries."""
    by_namespace: dict[str, list[models.ResourceQuota]] = {}
    for quota in (
        models.ResourceQuota.objects.filter(deleted=False).prefetch_related("usage").order_by("name")
    ):
        by_namespace.setdefault(quota.namespace, []).append(quota)
    totals: dict[str, dict[str, tuple[int, int]]] = {}
    for total in models.NamespaceUsage.objects.all():
        totals.setdefault(total.namespace, {})[total.vendor] = (total.memory_mib, total.cores)
    return {
        namespace: tuple(_resources(by_namespace.get(namespace, ()), totals.get(namespace, {})))
        for namespace in sorted({*by_namespace, *totals})
    }


Totals = Mapping[str, tuple[int, int]]


def _resources(quotas: Sequence[models.ResourceQuota], totals: Totals) -> Iterable[Resource]:
    """Every resource that is limited, or of a vendor that the namespace uses or has used."""
    bounds: dict[tuple[str, str], list[Bound]] = {}
    for quota in quotas:
        used = {total.vendor: (total.memory_mib, total.cores) for total in quota.usage.all()}
        for stored in quota.limits:
            bound = Bound(quota.name, stored["key"], stored["spec"], scaled(stored), _of(used, stored))
            bounds.setdefault((stored["vendor"], stored["dimension"]), []).append(bound)
    for vendor in config.vendors():
        for dimension, resource in _names(vendor).items():
            limits = bounds.get((vendor.key, dimension), ())
            if limits or vendor.key in totals:
                stored = {"vendor": vendor.key, "dimension": dimension}
                yield Resource(resource, vendor.key, _of(totals, stored), tuple(limits))


def _names(vendor: Vendor) -> Mapping[Dimension, str]:
    names = {}
    if vendor.quota_memory and vendor.memory_name:
        names[Dimension.MEMORY] = vendor.memory_name
    if vendor.quota_cores and vendor.cores_name:
        names[Dimension.CORES] = vendor.cores_name
    return names


def _of(totals: Totals, limit: Mapping[str, Any]) -> int:
    memory_mib, cores = totals.get(limit["vendor"], (0, 0))
    return memory_mib if limit["dimension"] == Dimension.MEMORY else cores


def scaled(limit: Mapping[str, Any]) -> int | None:
    """A stored limit in the unit usage is counted in; None where its value is no integer (decision 17)."""
    amount: int | None = limit["amount"]
    vendor = config.vendor_by_key().get(limit["vendor"])
    if amount is None or vendor is None or limit["dimension"] != Dimension.MEMORY:
        return amount
    return min(vendor.scaled_limit(amount), MOST)


def is_over(limit: Mapping[str, Any], used: Amount) -> bool:
    """Whether what is used of the limit's vendor is over it; never over what is no limit."""
    hard = scaled(limit)
    return hard is not None and (
        used.memory_mib > hard if limit["dimension"] == Dimension.MEMORY else used.cores > hard
    )


def _not_enforced(quotas: Sequence[models.ResourceQuota]) -> Iterable[NotEnforced]:
    charging = [quota for quota in quotas if quota.requests_keys]
    pods = list(_charged_by_the_apiserver(charging[0].namespace)) if charging else []
    for quota in quotas:
        used = apiserver_total(quota, pods)
        for key in sorted(quota.requests_keys):
            resource = key.removeprefix(REQUESTS)
            yield NotEnforced(quota.name, key, OF_THE_APISERVER, used.get(resource, 0))
        for stored in quota.not_enforced:
            yield NotEnforced(quota.name, stored["key"], stored["reason"], None)


def _charged_by_the_apiserver(namespace: str) -> Iterable[models.Pod]:
    """It charges a pod from its creation to its end, whatever its state in between."""
    return (
        models.Pod.objects.filter(namespace=namespace)
        .exclude(state=PodState.ENDED)
        .exclude(phase__in=TERMINAL_PHASES)
        .only(
            "uid",
            "containers",
            "priority_class",
            "active_deadline_seconds",
            "best_effort",
            "cross_namespace_affinity",
        )
    )


def apiserver_total(quota: models.ResourceQuota, pods: Iterable[models.Pod]) -> dict[str, int]:
    """What the apiserver charges this quota for these pods, by resource name."""
    used: dict[str, int] = {}
    if not quota.requests_keys:
        return used
    requirements = rows.requirements_of(quota)
    for pod in pods:
        if not selects(requirements, rows.quota_facts_of(pod)):
            continue
        for resource, amount in apiserver_charge(rows.containers_of(pod)).items():
            used[resource] = used.get(resource, 0) + amount
    return used


def apiserver_charge(containers: Sequence[Container]) -> dict[str, int]:
    """What the apiserver charges a pod for each managed resource, as `requests.<name>`.

    The same fold as ours over the pod's totals; it knows no devices, multiplies nothing by a count and
    applies no factor (semantics 8). A request that was left out is the limit.
    """
    steps = [(container.kind, Usage(_requested(container))) for container in containers]
    return {resource: amount.slots for resource, amount in footprint_of(steps).effective.items()}


def _requested(container: Container) -> Iterable[tuple[str, Amount]]:
    """Quantities as plain numbers, in the first dimension of an amount; unreadable ones are not charged."""
    for resource, text in {**container.limits, **container.requests}.items():
        try:
            yield resource, Amount(slots=quantities.rounded_up(text))
        except UnreadableQuantity:
            continue

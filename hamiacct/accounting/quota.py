"""ResourceQuota objects: what they select, limit and refuse (decision 16, semantics 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.footprint import footprint_of
from hamiacct.accounting.pods import Container, QuotaFacts
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.vendors import Vendor


class Dimension(StrEnum):
    """What a managed resource name limits. There is no quota on slots or counts."""

    MEMORY = "memory"
    CORES = "cores"


class ScopeOperator(StrEnum):
    """Operators of `scopeSelector.matchExpressions`."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class ScopeRequirement:
    """One condition; all of a quota's conditions must match."""

    scope: str
    operator: str = ScopeOperator.EXISTS
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """`limits.<resource>` of one quota. `amount` is as written; None where the value is no integer."""

    key: str
    resource: str
    vendor: str
    dimension: Dimension
    spec: str
    amount: int | None


@dataclass(frozen=True, slots=True)
class NotEnforced:
    """A key of a managed resource that nobody here enforces, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quota:
    """One ResourceQuota object, decoded.

    `limits` are the keys that are enforced; `requests_keys` the apiserver's own
    (`requests.<managed name>` -> value as written); `not_enforced` the keys that look right and are not.
    """

    namespace: str
    name: str
    resource_version: int
    limits: tuple[Limit, ...] = ()
    requests_keys: Mapping[str, str] = field(default_factory=dict)
    not_enforced: tuple[NotEnforced, ...] = ()
    requirements: tuple[ScopeRequirement, ...] = ()
    unknown_scopes: tuple[str, ...] = ()


def _scope_holds(scope: str, facts: QuotaFacts) -> bool | None:
    """Whether the pod is in the scope; None for a scope nobody knows."""
    deadline = facts.active_deadline_seconds
    is_terminating = deadline is not None and deadline >= 0
    known = {
        "Terminating": is_terminating,
        "NotTerminating": not is_terminating,
        "BestEffort": facts.best_effort,
        "NotBestEffort": not facts.best_effort,
        "PriorityClass": bool(facts.priority_class),
        "CrossNamespacePodAffinity": facts.cross_namespace_affinity,
    }
    return known.get(scope)


KNOWN_SCOPES = frozenset(
    (
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    )
)


def requirement_matches(requirement: ScopeRequirement, facts: QuotaFacts) -> bool:
    """Whether one scope condition selects a pod with these facts; an unknown scope never does."""
    holds = _scope_holds(requirement.scope, facts)
    if holds is None:
        return False
    if requirement.scope != "PriorityClass":
        return holds if requirement.operator == ScopeOperator.EXISTS else False
    match requirement.operator:
        case ScopeOperator.IN:
            return facts.priority_class in requirement.values
        case ScopeOperator.NOT_IN:
            return facts.priority_class not in requirement.values
        case ScopeOperator.EXISTS:
            return holds
        case ScopeOperator.DOES_NOT_EXIST:
            return not holds
        case _:
            return False


def selects(requirements: tuple[ScopeRequirement, ...], facts: QuotaFacts) -> bool:
    """Whether a quota with these conditions selects the pod; without conditions it selects every pod."""
    return not requirements or all(requirement_matches(requirement, facts) for requirement in requirements)


# --- judging a pod ---------------------------------------------------------------------------------

Requests = Sequence[DeviceRequest]


@dataclass(frozen=True, slots=True)
class Standing:
    """A limit in force for a pod, and what is used of it, both in accounted units (decision 17)."""

    quota: str
    resource: str
    vendor: str
    dimension: Dimension
    hard: int
    used: int


@dataclass(frozen=True, slots=True)
class Check:
    """One limit, judged. What is used may be over the limit already."""

    resource: str
    quota: str
    requested: int
    used: int
    hard: int

    @property
    def allowed(self) -> bool:
        """Whether there is room; equality passes."""
        return self.used + self.requested <= self.hard


@dataclass(frozen=True, slots=True)
class Undetermined:
    """What a container asks and nobody can size before a card is chosen."""

    container: str
    detail: str


def effective_request(containers: Sequence[Container], requests: Sequence[Requests]) -> Usage[str]:
    """What a pod asks, by vendor key: the fold over its containers, per device times the count.

    Where amounts have no size yet they count as 0 (decision 18); `undetermined` names those.
    """
    steps = [
        (container.kind, Usage({request.vendor: _amount(request) for request in asked}))
        for container, asked in zip(containers, requests, strict=True)
    ]
    return footprint_of(steps).effective


def _amount(request: DeviceRequest) -> Amount:
    if request.card_decides:
        return Amount(request.count)
    return Amount(request.count, request.memory_mib * request.count, request.cores * request.count)


def undetermined(
    containers: Sequence[Container], requests: Sequence[Requests], vendors: Mapping[str, Vendor]
) -> tuple[Undetermined, ...]:
    """The requests for memory whose size depends on the card: percentages, whole cards, profiles."""
    return tuple(
        Undetermined(container.name, _unsized(request, vendors[request.vendor]))
        for container, asked in zip(containers, requests, strict=True)
        for request in asked
        if vendors[request.vendor].quota_memory and (request.card_decides or not request.memory_mib)
    )


def _unsized(request: DeviceRequest, vendor: Vendor) -> str:
    share = "the whole memory"
    if request.card_decides:
        share = "a share of the memory"
    elif 0 < request.memory_percent < 100:
        share = f"{request.memory_percent} % of the memory"
    devices = f"{request.count} {vendor.key} device{'s' if request.count > 1 else ''}"
    return f"{share} of {devices} has no size in {vendor.memory_name} before a card is chosen"


def checks(requested: Usage[str], standings: Iterable[Standing]) -> tuple[Check, ...]:
    """Every limit on what is asked; what is not asked is not judged (decision 16)."""
    found = []
    for standing in standings:
        asked = requested[standing.vendor]
        amount = asked.memory_mib if standing.dimension is Dimension.MEMORY else asked.cores
        if amount > 0:
            found.append(Check(standing.resource, standing.quota, amount, standing.used, standing.hard))
    return tuple(found)


def denial(judged: Iterable[Check]) -> str:
    """Why the pod is refused, in HAMi's words and then in numbers; "" where nothing refuses it."""
    exceeded = [
        f"{check.resource} requested {check.requested}, used {check.used}, limited {check.hard}"
        f" (ResourceQuota {check.quota})"
        for check in judged
        if not check.allowed
    ]
    return f"exceeding resource quota: {'; '.join(exceeded)}" if exceeded else ""

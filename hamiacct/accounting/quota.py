"""ResourceQuota objects: which pods they select, what they limit (decision 16, semantics 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hamiacct.accounting.pods import QuotaFacts


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
    return all(requirement_matches(requirement, facts) for requirement in requirements)

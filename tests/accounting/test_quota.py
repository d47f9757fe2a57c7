"""Which pods a ResourceQuota selects (S8.2)."""

import pytest

from hamiacct.accounting.pods import QuotaFacts
from hamiacct.accounting.quota import ScopeOperator, ScopeRequirement, selects

PLAIN = QuotaFacts()
JOB = QuotaFacts(active_deadline_seconds=60)
BURSTABLE = QuotaFacts(best_effort=False)
URGENT = QuotaFacts(priority_class="urgent")
NEAR_OTHERS = QuotaFacts(cross_namespace_affinity=True)


def test_a_quota_without_scopes_selects_every_pod() -> None:
    assert all(selects((), facts) for facts in (PLAIN, JOB, BURSTABLE, URGENT, NEAR_OTHERS))


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("Terminating", JOB, PLAIN),
        ("Terminating", QuotaFacts(active_deadline_seconds=0), QuotaFacts(active_deadline_seconds=-1)),
        ("NotTerminating", PLAIN, JOB),
        ("BestEffort", PLAIN, BURSTABLE),
        ("NotBestEffort", BURSTABLE, PLAIN),
        ("PriorityClass", URGENT, PLAIN),
        ("CrossNamespacePodAffinity", NEAR_OTHERS, PLAIN),
    ],
)
def test_a_scope_selects_the_pods_inside_it(scope: str, inside: QuotaFacts, outside: QuotaFacts) -> None:
    assert selects((ScopeRequirement(scope),), inside)
    assert not selects((ScopeRequirement(scope),), outside)


@pytest.mark.parametrize(
    ("operator", "values", "urgent", "without"),
    [
        (ScopeOperator.IN, ("urgent", "high"), True, False),
        (ScopeOperator.IN, ("high",), False, False),
        (ScopeOperator.NOT_IN, ("urgent",), False, True),
        (ScopeOperator.NOT_IN, ("high",), True, True),
        (ScopeOperator.EXISTS, (), True, False),
        (ScopeOperator.DOES_NOT_EXIST, (), False, True),
        ("Resembles", ("urgent",), False, False),
    ],
)
def test_priority_classes(operator: str, values: tuple[str, ...], urgent: bool, without: bool) -> None:
    requirement = (ScopeRequirement("PriorityClass", operator, values),)
    assert selects(requirement, URGENT) is urgent
    assert selects(requirement, PLAIN) is without


def test_all_scopes_must_match() -> None:
    both = (ScopeRequirement("Terminating"), ScopeRequirement("NotBestEffort"))
    assert selects(both, QuotaFacts(active_deadline_seconds=60, best_effort=False))
    assert not selects(both, JOB)
    assert not selects(both, BURSTABLE)


@pytest.mark.parametrize("facts", [PLAIN, JOB, BURSTABLE, URGENT])
def test_an_unknown_scope_selects_nobody(facts: QuotaFacts) -> None:
    assert not selects((ScopeRequirement("VolumeAttributesClass"),), facts)
    assert not selects((ScopeRequirement("Terminating", "In", ("x",)),), facts)

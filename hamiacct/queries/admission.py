"""Whether a pod may come to be, and whether the quotas of its namespace have room for it.

Nothing is stored by asking (decision 20).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from hamiacct import config
from hamiacct.accounting import admission, quota
from hamiacct.accounting.admission import Admitted, Scheduling
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import Pod
from hamiacct.accounting.quota import Check, Dimension, Standing, Undetermined
from hamiacct.queries import moments, quotas
from hamiacct.queries.moments import Moment, Own, Quota

JUDGED_BY_WHAT_IS_KNOWN = "hamiacct judged the quota by what it knows: "


@dataclass(frozen=True, slots=True)
class QuotaCheck:
    """Every limit on what a pod asks, judged. `stale` says that the books may not tell all (decision 25)."""

    namespace: str
    checks: tuple[Check, ...]
    undetermined: tuple[Undetermined, ...]
    stale: bool
    as_of: datetime

    @property
    def message(self) -> str:
        """Why there is no room; "" where there is."""
        return quota.denial(self.checks)

    @property
    def allowed(self) -> bool:
        """Whether every limit has room."""
        return all(check.allowed for check in self.checks)


@dataclass(frozen=True, slots=True)
class Review:
    """Whether a pod is admitted, why not, and what is written into it if it is.

    `admitted` is None where nothing is to be written. `checks` are empty where no quota was asked.
    """

    allowed: bool
    message: str = ""
    admitted: Admitted | None = None
    checks: tuple[Check, ...] = ()
    warnings: tuple[str, ...] = ()


def check_quota(pod: Pod, *, at: datetime) -> QuotaCheck:
    """Whether the quotas of the pod's namespace have room for what it asks, as admission would leave it.

    UnreadableRequest where a container asks for what nobody can grant.
    """
    found = admission.admitted(pod, config.vendors())
    unsized = quota.undetermined(found.pod.containers, found.requests, config.vendor_by_key())
    if not found.asks_for_something:
        return QuotaCheck(pod.namespace, (), unsized, False, at)
    seen = moments.of_quotas(found.pod, at=at)
    return QuotaCheck(pod.namespace, _checks(found, seen), unsized, bool(seen.doubt), at)


def review(pod: Pod, *, at: datetime) -> Review:
    """The steps of admission in order (semantics 5); the pod's namespace is the request's.

    Malformed where what the pod asks cannot be read.
    """
    verdict = admission.judge(pod, config.vendors(), scheduling())
    found = verdict.admitted
    if found is None:
        return Review(verdict.allowed, verdict.message)
    if not found.asks_for_something:
        return Review(True, admitted=found)
    if not pod.namespace:
        raise Malformed("the request names no namespace")
    seen = moments.of_quotas(found.pod, at=at)
    checks = _checks(found, seen)
    warnings = (f"{JUDGED_BY_WHAT_IS_KNOWN}{seen.doubt}",) if seen.doubt else ()
    if refusal := quota.denial(checks):
        return Review(False, refusal, None, checks, warnings)
    return Review(True, "", found, checks, warnings)


def scheduling() -> Scheduling:
    """Whose pods ours are, as configured."""
    chosen = settings.HAMIACCT
    return Scheduling(chosen.scheduler_name, chosen.force_overwrite_default_scheduler)


def _checks(found: Admitted, seen: Moment) -> tuple[Check, ...]:
    requested = quota.effective_request(found.pod.containers, found.requests)
    return quota.checks(requested, standings(found.pod, seen)) if len(requested) else ()


def standings(pod: Pod, seen: Moment | None = None) -> list[Standing]:
    """Every limit of every ResourceQuota that selects the pod (decision 16), and what others use of it.

    As `seen`; without it as it is now.
    """
    seen = seen or moments.of_quotas(pod, at=timezone.now())
    return [
        Standing(
            one.name,
            limit["resource"],
            limit["vendor"],
            Dimension(limit["dimension"]),
            hard,
            _used_by_others(one, limit, seen.own),
        )
        for one in seen.quotas
        if quota.selects(one.requirements, pod.quota_facts)
        for limit in one.limits
        if (hard := quotas.scaled(limit)) is not None
    ]


def _used_by_others(counting: Quota, limit: Mapping[str, Any], own: Own) -> int:
    """What the quota counts; a pod that is charged already is not asked to fit beside itself."""
    vendor, in_memory = limit["vendor"], limit["dimension"] == Dimension.MEMORY
    memory_mib, cores = counting.usage.get(vendor, (0, 0))
    mine = own.in_quotas[vendor]
    if quota.selects(counting.requirements, own.facts):
        memory_mib, cores = memory_mib - mine.memory_mib, cores - mine.cores
    return memory_mib if in_memory else cores

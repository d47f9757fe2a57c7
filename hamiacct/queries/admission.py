"""Whether a pod may come to be, and whether the quotas of its namespace have room for it.

Nothing is stored by asking (decision 20).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from hamiacct import config, models, rows
from hamiacct.accounting import admission, quota
from hamiacct.accounting.admission import Admitted, Scheduling
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import Pod
from hamiacct.accounting.quota import Check, Dimension, Standing, Undetermined
from hamiacct.queries import inbox, quotas

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
    doubt = inbox.doubt(at) if found.asks_for_something else ""
    return QuotaCheck(pod.namespace, _checks(found), unsized, bool(doubt), at)


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
    checks = _checks(found)
    doubt = inbox.doubt(at)
    warnings = (f"{JUDGED_BY_WHAT_IS_KNOWN}{doubt}",) if doubt else ()
    if refusal := quota.denial(checks):
        return Review(False, refusal, None, checks, warnings)
    return Review(True, "", found, checks, warnings)


def scheduling() -> Scheduling:
    """Whose pods ours are, as configured."""
    chosen = settings.HAMIACCT
    return Scheduling(chosen.scheduler_name, chosen.force_overwrite_default_scheduler)


def _checks(found: Admitted) -> tuple[Check, ...]:
    requested = quota.effective_request(found.pod.containers, found.requests)
    return quota.checks(requested, standings(found.pod)) if len(requested) else ()


def standings(pod: Pod) -> list[Standing]:
    """Every limit of every ResourceQuota that selects the pod (decision 16), and what others use of it."""
    found = models.ResourceQuota.objects.filter(namespace=pod.namespace, deleted=False)
    selecting = [
        row
        for row in found.prefetch_related("usage").order_by("name")
        if quota.selects(rows.requirements_of(row), pod.quota_facts)
    ]
    own = _own_usage(pod.uid) if selecting and pod.uid else None
    return [
        Standing(
            row.name,
            limit["resource"],
            limit["vendor"],
            Dimension(limit["dimension"]),
            hard,
            _used_by_others(row, limit, own),
        )
        for row in selecting
        for limit in row.limits
        if (hard := quotas.scaled(limit)) is not None
    ]


@dataclass(frozen=True, slots=True)
class _Own:
    """What the pod itself counts in quotas by now, and the row by which they select it."""

    row: models.Pod
    usage: Usage[str]


def _own_usage(uid: str) -> _Own | None:
    row = models.Pod.objects.filter(uid=uid).prefetch_related("entries").first()
    return _Own(row, _by_vendor(row.entries.all())) if row is not None else None


def _by_vendor(entries: Iterable[models.UsageEntry]) -> Usage[str]:
    usage: Usage[str] = Usage()
    for entry in entries:
        usage = usage.plus(Usage({entry.vendor: Amount(0, entry.memory_mib, entry.quota_cores)}))
    return usage


def _used_by_others(row: models.ResourceQuota, limit: Mapping[str, Any], own: _Own | None) -> int:
    """What the quota counts; a pod that is charged already is not asked to fit beside itself."""
    total = next((one for one in row.usage.all() if one.vendor == limit["vendor"]), None)
    used = Amount(0, total.memory_mib, total.cores) if total is not None else Amount()
    if own is not None and quota.selects(rows.requirements_of(row), rows.quota_facts_of(own.row)):
        used = used.minus(own.usage[limit["vendor"]])
    return used.memory_mib if limit["dimension"] == Dimension.MEMORY else used.cores

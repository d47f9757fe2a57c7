"""ResourceQuota events: a quota's limits and its own usage change in one step.

The namespace's lock is taken first, so no pod is posted meanwhile and no gap reads as unlimited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from hamiacct import config, models, rows
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.quota import Quota, selects
from hamiacct.accounting.words import EventType, Outcome
from hamiacct.kube import manifests
from hamiacct.operations import findings
from hamiacct.operations.pod_events import STALE, Settle, Verdict, leave_unsettled
from hamiacct.operations.streams import Seen, Stream


def apply(
    seen: Sequence[Seen], stream: Stream, *, at: datetime, settle: Settle = leave_unsettled
) -> list[Verdict]:
    """Applies what was seen of quotas, in the caller's transaction (decisions 8 and 16).

    The caller holds the namespaces' locks and gives them in the order of their names.
    """
    touched: set[int] = set()
    verdicts = [_apply_one(one, stream, touched, at) for one in seen]
    settle(verdicts)
    findings.look_at_quotas(touched, at=at)
    return verdicts


def _apply_one(seen: Seen, stream: Stream, touched: set[int], at: datetime) -> Verdict:
    row = (
        models.ResourceQuota.objects.filter(namespace=seen.namespace, name=seen.name)
        .select_for_update(no_key=True)
        .first()
    )
    if seen.history < stream.history or stream.knows_newer(row, seen):
        return STALE
    deleted = seen.type is EventType.DELETED
    if deleted:
        quota = Quota(seen.namespace, seen.name, seen.resource_version)
    else:
        try:
            quota = manifests.quota_from_manifest(seen.manifest, config.vendors())
        except Malformed as fault:
            return Verdict.refused(fault)
    row = row or models.ResourceQuota(namespace=seen.namespace, name=seen.name)
    before = (row.pk is None, row.deleted, row.requirements)
    row.resource_version, row.history, row.deleted = seen.resource_version, seen.history, deleted
    row.deleted_at = (row.deleted_at or at) if deleted else None
    _take_over(row, quota)
    row.save()
    if before != (False, row.deleted, row.requirements):
        _count(row)  # other limits on the same pods leave what they hold as it is
    touched.add(row.pk)
    return Verdict(Outcome.APPLIED)


def forget(quota_ids: Sequence[int], version: int, stream: Stream, *, at: datetime) -> int:
    """Quotas that a full list does not hold: gone, as if deleted at its version; namespaces are locked.

    Those of which something newer was heard stay. Answers how many went.
    """
    living = models.ResourceQuota.objects.filter(pk__in=quota_ids, deleted=False)
    gone = []
    for row in living.select_for_update(no_key=True).order_by("namespace", "name"):
        if row.history == stream.history and row.resource_version > version:
            continue
        row.resource_version, row.history, row.deleted = version, stream.history, True
        row.deleted_at = at
        _take_over(row, Quota(row.namespace, row.name, version))
        row.save()
        _count(row)
        gone.append(row.pk)
    findings.look_at_quotas(gone, at=at)
    return len(gone)


def _take_over(row: models.ResourceQuota, quota: Quota) -> None:
    row.limits = [asdict(limit) for limit in quota.limits]
    row.requests_keys = dict(quota.requests_keys)
    row.not_enforced = [asdict(item) for item in quota.not_enforced]
    row.requirements = [asdict(requirement) for requirement in quota.requirements]
    row.unknown_scopes = list(quota.unknown_scopes)


def _count(row: models.ResourceQuota) -> None:
    """Makes the quota's own usage the sum over the pods it selects; a deleted one counts nothing."""
    models.QuotaUsage.objects.filter(quota=row).delete()
    models.QuotaUsage.objects.bulk_create(
        [
            models.QuotaUsage(quota=row, vendor=vendor, memory_mib=total.memory_mib, cores=total.cores)
            for vendor, total in sorted(usage_of(row).items())
        ]
    )


def usage_of(row: models.ResourceQuota) -> dict[str, Amount]:
    """What the pods a quota selects hold, per vendor, summed from their entries."""
    totals: dict[str, Amount] = defaultdict(Amount)
    if row.deleted:
        return totals
    requirements = rows.requirements_of(row)
    entries = models.UsageEntry.objects.filter(pod__namespace=row.namespace).select_related("pod")
    for entry in entries.only(
        "vendor",
        "memory_mib",
        "quota_cores",
        "pod__priority_class",
        "pod__active_deadline_seconds",
        "pod__best_effort",
        "pod__cross_namespace_affinity",
    ):
        if selects(requirements, rows.quota_facts_of(entry.pod)):
            totals[entry.vendor] = totals[entry.vendor].plus(Amount(0, entry.memory_mib, entry.quota_cores))
    return totals

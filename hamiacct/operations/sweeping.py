"""What time alone brings: late findings, expired handshakes, old events, next month's partition."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction

from hamiacct import models
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.words import EventState, FindingCode, Kind
from hamiacct.operations import findings, locks, node_events, pod_events, tombstones
from hamiacct.operations.findings import Found, Subject
from hamiacct.queries import inbox, quotas

LOOK_AT_ONCE = 500
DELETE_AT_ONCE = 5_000
MONTHS_AHEAD = 3
ABSURD_TIMES = 100
ABSURD_CODES = frozenset((FindingCode.QUOTA_VALUE_ABSURD,))


def look_at_the_clock(*, at: datetime) -> int:
    """Findings that only time raises, and handshakes that have run out; answers how many were looked at."""
    looked = 0
    while True:
        with transaction.atomic():
            some = pod_events.look_again(at=at, limit=LOOK_AT_ONCE)
        looked += some
        if some < LOOK_AT_ONCE:
            break
    due = models.Node.objects.filter(handshake_expires_at__lte=at, deleted=False)
    names = list(due.order_by("name").values_list("name", flat=True))
    for start in range(0, len(names), LOOK_AT_ONCE):
        some_names = names[start : start + LOOK_AT_ONCE]
        with transaction.atomic():
            locks.share_stream(Kind.NODE)
            locks.take(locks.Space.NODE, some_names)
            node_events.expire_handshakes(some_names, at=at)
    looked += len(names)
    with transaction.atomic():
        _look_for_absurd_limits(at=at)
    return looked


def _look_for_absurd_limits(*, at: datetime) -> None:
    """Limits over a hundred times what the fleet has, once the books are complete (decision 16)."""
    fleet: dict[tuple[str, str], int] = {}
    devices = models.Device.objects.filter(registered=True).values_list(
        "vendor", "memory_mib_total", "cores_total"
    )
    for vendor, memory_mib, cores in devices:
        for dimension, amount in ((Dimension.MEMORY, memory_mib), (Dimension.CORES, cores)):
            fleet[vendor, dimension] = fleet.get((vendor, dimension), 0) + amount
    if not fleet or not inbox.is_complete():
        return
    wanted: dict[Subject, list[Found]] = {}
    for quota in models.ResourceQuota.objects.filter(deleted=False):
        subject = findings.quota_subject(quota)
        wanted[subject] = []
        for limit in quota.limits:
            hard = quotas.scaled(limit)
            total = fleet.get((limit["vendor"], limit["dimension"]), 0)
            if hard is not None and total and hard > ABSURD_TIMES * total:
                detail = f"{limit['key']}: {hard} is more than {ABSURD_TIMES} times the fleet's {total}"
                wanted[subject].append(Found(FindingCode.QUOTA_VALUE_ABSURD, detail, limit["key"]))
    findings.sync(wanted, ABSURD_CODES, at=at)


def forget_the_old(*, keep_days: int, at: datetime) -> int:
    """Deletes settled events older than that, and what is gone once a newer list is applied (decision 35).

    Refused events stay until somebody handles them; the ledger is never swept. Answers how many rows went.
    """
    before = at - timedelta(days=keep_days)
    gone = 0
    while True:
        old = models.Event.objects.filter(
            state__in=(EventState.APPLIED, EventState.STALE, EventState.DISMISSED), settled_at__lt=before
        )
        ids = list(old.values_list("pk", flat=True)[:DELETE_AT_ONCE])
        models.Event.objects.filter(pk__in=ids).delete()
        gone += len(ids)
        if len(ids) < DELETE_AT_ONCE:
            return gone + tombstones.forget(before, at=at)


def forget_decisions(*, keep_days: int, at: datetime) -> int:
    """Deletes refusals older than that; answers how many."""
    old = models.Decision.objects.filter(at__lt=at - timedelta(days=keep_days))
    gone, _ = models.Decision.objects.filter(pk__in=old.order_by("at").values("pk")[:DELETE_AT_ONCE]).delete()
    return gone


def ensure_partitions(*, at: datetime) -> int:
    """Makes the ledger's partitions of this month and the next ones; answers how many it made."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT hamiacct_ensure_ledger_partitions(%s::date, %s)", [at.date(), MONTHS_AHEAD])
        (made,) = cursor.fetchone()
    return int(made)

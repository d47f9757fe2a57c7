"""What an operator does to pods in the books (decision 36)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from hamiacct import models
from hamiacct.accounting.words import Kind
from hamiacct.operations import locks, pod_events, streams

RELEASE_AT_ONCE = 500


def release(uids: Sequence[str], *, by: str = "an operator", at: datetime) -> frozenset[str]:
    """Takes pods from the books: what they hold is given back, their holds end (decision 36).

    Not for good: an event above the version last seen of the pod revives it, and so does a full list that
    holds it. Pods that have ended or are being bound just now, and UIDs nobody has heard of, stay as they
    are. 500 at a time, each time in one transaction and a constant number of statements; if that is cut
    short, the rest is as it was. `by` is who did it, for the ledger. Answers which it released.
    """
    ordered = sorted(set(uids))
    return frozenset(
        uid
        for start in range(0, len(ordered), RELEASE_AT_ONCE)
        for uid in _release_page(ordered[start : start + RELEASE_AT_ONCE], by=by, at=at)
    )


def _release_page(uids: Sequence[str], *, by: str, at: datetime) -> list[str]:
    with transaction.atomic():
        locks.share_stream(Kind.POD)
        names = models.Pod.objects.filter(uid__in=uids).values_list("namespace", "name")
        locks.take(locks.Space.POD_NAME, {locks.name_key(*name) for name in names})
        return pod_events.end_by_hand(uids, streams.of_kind(Kind.POD), by=by, at=at)

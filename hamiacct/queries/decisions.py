"""Refusals that are kept: why not, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from hamiacct import models
from hamiacct.accounting.words import Question, Refusal
from hamiacct.queries import pages


@dataclass(frozen=True, slots=True)
class Decision:
    """One refusal. `reasons` are node names by reason, `checks` the limits that were judged."""

    at: datetime
    question: Question
    namespace: str
    pod: str
    pod_uid: str
    verdict: Refusal
    message: str
    reasons: Mapping[str, Sequence[str]]
    checks: Sequence[Mapping[str, Any]]


def page(
    *, pod: str, namespace: str, verdict: Refusal | None, after: pages.Key | None, limit: int
) -> pages.Page[Decision]:
    """Refusals, newest first; an empty filter selects all. `pod` is a name or a uid."""
    rows = models.Decision.objects.all()
    if pod:
        rows = rows.filter(Q(pod=pod) | Q(pod_uid=pod))
    if namespace:
        rows = rows.filter(namespace=namespace)
    if verdict:
        rows = rows.filter(verdict=verdict)
    if after is not None:
        rows = rows.filter(id__lt=after[0])
    found = list(rows.order_by("-id")[: limit + 1])
    following = (found[limit - 1].pk,) if len(found) > limit else None
    return pages.Rows(found[:limit], following).map(_decision)


def _decision(row: models.Decision) -> Decision:
    return Decision(
        row.at,
        Question(row.question),
        row.namespace,
        row.pod,
        row.pod_uid,
        Refusal(row.verdict),
        row.message,
        row.reasons,
        row.checks,
    )

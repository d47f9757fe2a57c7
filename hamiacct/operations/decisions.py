"""Refusals, kept so that somebody can ask why not. Simulations and dry runs leave none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hamiacct import models
from hamiacct.accounting.words import Question, Refusal

MAX_MESSAGE = 4000
MAX_NODES_PER_REASON = 100


def record(
    question: Question,
    verdict: Refusal,
    *,
    namespace: str,
    pod: str,
    pod_uid: str = "",
    message: str = "",
    reasons: Mapping[str, Sequence[str]] | None = None,
    checks: Sequence[Mapping[str, Any]] = (),
    at: datetime,
) -> None:
    """Stores one refusal: `reasons` are node names by reason, `checks` the quota numbers."""
    models.Decision.objects.create(
        at=at,
        question=question,
        namespace=namespace,
        pod=pod,
        pod_uid=pod_uid,
        verdict=verdict,
        message=message[:MAX_MESSAGE],
        reasons={reason: list(nodes)[:MAX_NODES_PER_REASON] for reason, nodes in (reasons or {}).items()},
        checks=[dict(check) for check in checks],
    )

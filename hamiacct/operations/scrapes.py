"""What a scrape reads, all at one moment."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from hamiacct.operations import audit
from hamiacct.queries import metrics


def state(*, per_pod: bool, at: datetime) -> metrics.State:
    """The state of the books in one snapshot of the database."""
    with transaction.atomic():
        audit.read_one_snapshot()
        return metrics.state(at, per_pod=per_pod)

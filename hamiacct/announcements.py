"""What happened, told once it is committed to whoever counts; operations know nobody who listens.

Receivers get their argument as `what` and must not fail: a fault of theirs is logged and changes nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db import transaction
from django.dispatch import Signal

from hamiacct.accounting.words import Kind, Outcome

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Settled:
    """Events of the inbox, and what became of them. `received_at` is when they were stored."""

    kind: Kind
    outcome: Outcome
    received_at: datetime
    number: int


events_settled = Signal()  # what: Sequence[Settled]
holds_moved_on = Signal()  # what: Sequence[ReservationState], each hold's new state


def tell(signal: Signal, what: object) -> None:
    """Tells it when the current transaction is committed, at once without one; never when it is undone."""
    transaction.on_commit(partial(_send, signal, what))


def _send(signal: Signal, what: object) -> None:
    for receiver, answer in signal.send_robust(sender=None, what=what):
        if isinstance(answer, Exception):
            log.warning("%r did not hear of it: %r", receiver, answer)

"""Celery tasks: each makes one call. What to do is in the database; a message says only who woke whom."""

from __future__ import annotations

import logging

from django.conf import settings
from django.utils import timezone

from hamiacct import config
from hamiacct.accounting.binding import Binding
from hamiacct.accounting.errors import Malformed, Unavailable
from hamiacct.celery import app, wake, woken
from hamiacct.kube import client
from hamiacct.kube.binding import Steps
from hamiacct.operations import audit, bindings, inbox, reservations, sweeping
from hamiacct.queries import holds

log = logging.getLogger(__name__)


@app.task
def drain_inbox() -> int:
    """Applies what waits. The wake-up is taken down first, so whoever comes later wakes again.

    Where much waits, another worker is woken to drain beside this one.
    """
    woken()
    if inbox.is_much():
        wake()
    settled = inbox.drain(at=timezone.now())
    if settled:
        log.info("settled %d events", settled)
    return settled


@app.task
def sweep_inbox() -> int:
    """Applies what was left waiting: by a lost wake-up, a killed worker, a lock held too long."""
    return inbox.drain(at=timezone.now())


@app.task
def sweep_holds() -> int:
    """Ends the holds whose time is up."""
    return reservations.expire(at=timezone.now())


@app.task
def settle_bindings() -> int:
    """Asks the cluster what became of the bindings that nobody finished: bound, or undone (decision 30)."""
    if not settings.HAMIACCT.scheduler_mode:  # then nothing is written to the cluster, nor undone
        return 0
    left = holds.left_over(at=timezone.now())
    cluster = client.connect(settings.HAMIACCT.kubeconfig) if left else None
    if cluster is None:
        return 0
    return sum(_settle(Steps(cluster, config.vendors(), timezone.now), binding) for binding in left)


def _settle(steps: Steps, binding: Binding) -> bool:
    """Settles one; the next sweep tries again what cannot be told now."""
    try:
        is_bound = steps.undo(binding, may_come_late=True)
    except (Unavailable, Malformed) as fault:
        log.warning("whether %s/%s is bound cannot be told: %s", binding.namespace, binding.name, fault)
        return False
    settled = bindings.succeed if is_bound else bindings.fail
    return settled(binding, at=timezone.now())


@app.task
def sweep_findings() -> int:
    """Raises and clears what only time tells."""
    return sweeping.look_at_the_clock(at=timezone.now())


@app.task
def sweep_old() -> int:
    """Deletes settled events, tombstones and kept refusals that are too old to keep."""
    now, kept = timezone.now(), settings.HAMIACCT
    forgotten = sweeping.forget_the_old(keep_days=kept.keep_events_days, at=now)
    return forgotten + sweeping.forget_decisions(keep_days=kept.keep_decisions_days, at=now)


@app.task
def ensure_partitions() -> int:
    """Makes the ledger's partitions of the months to come."""
    return sweeping.ensure_partitions(at=timezone.now())


@app.task
def run_audit() -> bool:
    """Compares the books, once an hour, and keeps what was found."""
    return audit.run_if_due(at=timezone.now())

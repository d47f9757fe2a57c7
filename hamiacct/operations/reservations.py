"""Reservations: check and charge in one transaction, and how a hold ends (decisions 26 to 29).

The snapshot proposes, the locked rows decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from hamiacct import models
from hamiacct.accounting.errors import Conflict, NotFound
from hamiacct.accounting.words import Kind, ReservationState, Rule
from hamiacct.operations import locks, pod_events, streams

EXPIRE_AT_ONCE = 200


def release(pod_uid: str, *, at: datetime) -> None:
    """Gives a hold back. NotFound where none was ever heard of, Conflict where it is bound or confirmed.

    A hold that has ended already stays as it is.
    """
    with transaction.atomic():
        hold = _locked(pod_uid)
        state = ReservationState(hold.state)
        if state in (ReservationState.BOUND, ReservationState.CONFIRMED, ReservationState.BINDING):
            raise Conflict(f"the reservation of pod {pod_uid} is {state}", state=state)
        if state is ReservationState.HELD:
            pod_events.end_holds(
                [pod_uid], ReservationState.RELEASED, Rule.RELEASED, streams.of_kind(Kind.POD), at=at
            )


def mark_bound(pod_uid: str, *, at: datetime) -> models.Reservation:
    """The caller has bound the pod: the hold no longer expires. Conflict where it has ended."""
    with transaction.atomic():
        hold = _locked(pod_uid)
        state = ReservationState(hold.state)
        if not state.stands:
            if state is ReservationState.CONFIRMED:
                return hold
            raise Conflict(f"the reservation of pod {pod_uid} is {state}", state=state)
        hold.state, hold.changed_at = ReservationState.BOUND, at
        hold.bound_version = streams.of_kind(Kind.POD).applied_version
        hold.save(update_fields=["state", "changed_at", "bound_version"])
        return hold


def expire(*, at: datetime) -> int:
    """Ends the holds whose time is up; answers how many."""
    due = models.Reservation.objects.filter(state=ReservationState.HELD, expires_at__lte=at)
    names = list(due.order_by("pod_uid").values_list("pod_uid", "namespace", "name"))
    return sum(
        _expire_page(names[start : start + EXPIRE_AT_ONCE], at=at)
        for start in range(0, len(names), EXPIRE_AT_ONCE)
    )


def _expire_page(names: Sequence[tuple[str, str, str]], *, at: datetime) -> int:
    """Ends those of the holds that are still due once their names are locked."""
    with transaction.atomic():
        locks.share_stream(Kind.POD)
        locks.take(locks.Space.POD_NAME, {locks.name_key(namespace, name) for _, namespace, name in names})
        due = models.Reservation.objects.filter(
            pod_uid__in=[uid for uid, *_ in names], state=ReservationState.HELD, expires_at__lte=at
        )
        uids = list(due.values_list("pod_uid", flat=True))
        return pod_events.end_holds(
            uids, ReservationState.EXPIRED, Rule.EXPIRED, streams.of_kind(Kind.POD), at=at
        )


def _locked(pod_uid: str) -> models.Reservation:
    """The reservation, with its pod's name locked. NotFound where none was ever heard of."""
    locks.share_stream(Kind.POD)
    hold = models.Reservation.objects.filter(pod_uid=pod_uid).first()
    if hold is None:
        raise NotFound(f"no reservation of pod {pod_uid}")
    locks.take(locks.Space.POD_NAME, [locks.name_key(hold.namespace, hold.name)])
    return models.Reservation.objects.select_for_update().get(pod_uid=pod_uid)

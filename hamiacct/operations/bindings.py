"""The transactions around a bind: to `binding`, and from there to `bound`, back to `held`, or to its end.

Between two of them the network is asked, with no transaction open (decision 30). An attempt is known by the
time at which it began; one that was settled meanwhile, by beat or by an event, finds its hold moved on and
changes nothing.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from hamiacct import announcements, models
from hamiacct.accounting.binding import Binding
from hamiacct.accounting.errors import Conflict
from hamiacct.accounting.words import FindingCode, Kind, ReservationState, Rule
from hamiacct.operations import findings, locks, pod_events, streams
from hamiacct.operations.findings import Found
from hamiacct.queries import holds

MAX_LABEL = 63


def begin(pod_uid: str, node: str, *, at: datetime) -> Binding | None:
    """The pod's hold goes from `held` to `binding`; None where no hold stands.

    Conflict where it is for another node, or is being bound by somebody else, or is bound.
    """
    with transaction.atomic():
        hold = _locked(pod_uid)
        if hold is None:
            return None
        state = ReservationState(hold.state)
        if state in (ReservationState.BINDING, ReservationState.BOUND, ReservationState.CONFIRMED):
            raise Conflict(f"the hold of pod {pod_uid} is {state} already", state=state)
        if state is not ReservationState.HELD or hold.expires_at <= at:
            return None
        if hold.node != node:
            raise Conflict(f"pod {pod_uid} has its devices on {hold.node}, not on {node}", node=hold.node)
        hold.state, hold.changed_at = ReservationState.BINDING, at
        hold.save(update_fields=["state", "changed_at"])
        return holds.binding_of(hold)


def succeed(binding: Binding, *, at: datetime) -> bool:
    """The pod is bound: its hold no longer expires. False where the attempt was settled before."""
    with transaction.atomic():
        hold = _locked(binding.uid)
        row = models.Pod.objects.filter(uid=binding.uid).first()
        if row is not None:
            found = [Found(FindingCode.LABEL_TOO_LONG, _too_long(binding))] if _has_no_label(binding) else []
            findings.sync({pod_events.subject_of(row): found}, pod_events.BINDING_CODES, at=at)
        if hold is None or not _is_current(hold, binding):
            return False
        hold.state, hold.changed_at = ReservationState.BOUND, at
        hold.bound_version = streams.of_kind(Kind.POD).applied_version
        hold.save(update_fields=["state", "changed_at", "bound_version"])
        announcements.tell(announcements.holds_moved_on, [ReservationState.BOUND])
        return True


def give_back(binding: Binding, *, at: datetime) -> bool:
    """Somebody else is on the way to the node: the hold is `held` again and runs out when it would have."""
    with transaction.atomic():
        hold = _locked(binding.uid)
        if hold is None or not _is_current(hold, binding):
            return False
        hold.state, hold.changed_at = ReservationState.HELD, at
        hold.save(update_fields=["state", "changed_at"])
        return True


def fail(binding: Binding, *, at: datetime) -> bool:
    """The pod is not bound, nor will it be by this attempt: its hold is given up."""
    with transaction.atomic():
        hold = _locked(binding.uid)
        if hold is None or not _is_current(hold, binding):
            return False
        _release(binding.uid, at)
        return True


def drop(pod_uid: str, *, at: datetime) -> bool:
    """The pod or its node is gone from the cluster: a hold that nobody is binding is given up."""
    with transaction.atomic():
        hold = _locked(pod_uid)
        if hold is None or hold.state != ReservationState.HELD:
            return False
        _release(pod_uid, at)
        return True


def _release(pod_uid: str, at: datetime) -> None:
    stream = streams.of_kind(Kind.POD)
    pod_events.end_holds([pod_uid], ReservationState.RELEASED, Rule.RELEASED, stream, at=at)


def _is_current(hold: models.Reservation, binding: Binding) -> bool:
    """Whether the hold still is on the way that this attempt began."""
    return hold.state == ReservationState.BINDING and hold.changed_at == binding.at


def _has_no_label(binding: Binding) -> bool:
    return len(binding.node) > MAX_LABEL


def _too_long(binding: Binding) -> str:
    return f"{len(binding.node)} characters of node name are no label value; the pod has the annotation alone"


def _locked(pod_uid: str) -> models.Reservation | None:
    """The reservation, its pod's name locked; None where there never was one."""
    names = models.Reservation.objects.filter(pod_uid=pod_uid).values_list("namespace", "name").first()
    if names is None:
        return None
    locks.take_pod(*names)
    return models.Reservation.objects.select_for_update(no_key=True).get(pod_uid=pod_uid)

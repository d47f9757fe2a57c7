"""Holds on their way to a node: as values that the wire understands, and those that were left there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hamiacct import models, rows
from hamiacct.accounting.binding import Binding
from hamiacct.accounting.errors import UnreadableAnnotation
from hamiacct.accounting.fit import Placement
from hamiacct.accounting.footprint import Footprint
from hamiacct.accounting.words import ReservationState
from hamiacct.kube import annotations as codec

LEFT_OVER_SECONDS = 60
AT_ONCE = 5


@dataclass(frozen=True, slots=True)
class LastHold:
    """The last hold of a pod, whatever became of it."""

    placement: Placement
    state: ReservationState


def last_of(pod_uid: str) -> LastHold | None:
    """The last hold of this uid; None where there never was one."""
    row = models.Reservation.objects.filter(pod_uid=pod_uid).first()
    return None if row is None else LastHold(_placement_of(row), ReservationState(row.state))


def left_over(*, at: datetime) -> list[Binding]:
    """Bindings that nobody finished in time, not more than can be looked at in one go.

    Any of them: those of which nothing can be told for long must not keep others waiting.
    """
    begun_before = at - timedelta(seconds=LEFT_OVER_SECONDS)
    found = models.Reservation.objects.filter(state=ReservationState.BINDING, changed_at__lte=begun_before)
    return [binding_of(row) for row in found.order_by("?")[:AT_ONCE]]


def knows_node(name: str) -> bool:
    """Whether the books know a node of this name that was not deleted."""
    return models.Node.objects.filter(name=name, deleted=False).exists()


def binding_of(row: models.Reservation) -> Binding:
    """A hold in `binding` as what is written on the cluster for it; it began when its state last changed."""
    return Binding(row.pod_uid, row.namespace, row.name, row.node, row.changed_at, _placement_of(row))


def _placement_of(row: models.Reservation) -> Placement:
    """What is held, without its footprint: the pod is charged already."""
    allocations = rows.hold_of(row).allocations
    uuids = {one.uuid for allocation in allocations.values() for group in allocation.groups for one in group}
    devices = models.Device.objects.filter(node=row.node, uuid__in=uuids).order_by("vendor", "order", "uuid")
    try:
        mig = codec.decode_mig_allocations(row.annotations.get(codec.MIG_ALLOCATIONS) or "")
    except UnreadableAnnotation:
        mig = ()
    found = tuple(rows.fit_device_of(device, 0) for device in devices)
    return Placement(row.node, allocations, Footprint(), row.score, mig, found)

"""Holds as they stand or ended, and the quotas that stood against one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from hamiacct import config, models, rows
from hamiacct.accounting import fit, quota
from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.errors import NotFound
from hamiacct.accounting.fit import Misfit, Placement
from hamiacct.accounting.holdings import Held, footprint_of_pod
from hamiacct.accounting.pods import Allocation, Container, ContainerClass
from hamiacct.accounting.quota import Check
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.words import ReservationState
from hamiacct.queries import admission, fits
from hamiacct.queries.fits import Question


@dataclass(frozen=True, slots=True)
class Reservation:
    """The last hold of a pod. `charge` is what it held, or holds while the state stands.

    `annotations` and `labels` are what to write on the pod; None removes a key.
    """

    pod_uid: str
    node: str
    state: ReservationState
    expires_at: datetime
    score: float
    containers: tuple[Container, ...]
    allocations: Mapping[str, Allocation]
    charge: Held
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str]


def of_pod(uid: str) -> Reservation:
    """The last hold of a pod. NotFound where none was ever heard of."""
    row = models.Reservation.objects.filter(pod_uid=uid).first()
    if row is None:
        raise NotFound(f"no reservation of pod {uid}")
    allocations = dict(rows.hold_of(row).allocations)
    containers = _containers(uid, allocations.values())
    return Reservation(
        row.pod_uid,
        row.node,
        ReservationState(row.state),
        row.expires_at,
        row.score,
        containers,
        allocations,
        footprint_of_pod(containers, allocations, config.vendor_by_key()).effective,
        row.annotations,
        row.labels,
    )


def _containers(uid: str, allocations: Iterable[Allocation]) -> tuple[Container, ...]:
    """The pod's containers; nameless ones where its row was swept and only the hold is left."""
    pod = models.Pod.objects.filter(uid=uid).first()
    if pod is not None:
        return rows.containers_of(pod)
    number = max((len(allocation.groups) for allocation in allocations), default=0)
    return tuple(Container(position, "", ContainerClass.APP) for position in range(number))


def checks_against(question: Question, failed: Iterable[Misfit]) -> tuple[Check, ...]:
    """Every limit on what the pod would be charged on a node that refused it for its quota's sake.

    With the sizes that the node's cards give percentages and whole cards; the first such node by name.
    """
    names = sorted(misfit.node for misfit in failed if Reason.QUOTA in misfit.reasons)
    for node in fits.offers(question.pod.uid, names):
        placement = fit.place(node, question.ask)
        if isinstance(placement, Placement):
            cores_of = {device.uuid: device.total.cores for device in node.devices}
            return quota.checks(_by_vendor(placement.charge, cores_of), admission.standings(question.pod))
    return ()


def _by_vendor(charge: Held, cores_of: Mapping[str, int]) -> Usage[str]:
    """A charge in the units of quotas."""
    vendors = config.vendor_by_key()
    amounts: dict[str, Amount] = {}
    for key, amount in charge.items():
        cores = vendors[key.vendor].quota_cores_of(amount.cores, cores_of.get(key.uuid, 0))
        one = Amount(amount.slots, amount.memory_mib, cores)
        amounts[key.vendor] = amounts.get(key.vendor, Amount()).plus(one)
    return Usage(amounts)

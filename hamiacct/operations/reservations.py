"""Reservations: check and charge in one transaction, and how a hold ends (decisions 26 to 29).

The snapshot proposes, the locked rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import connection, transaction

from hamiacct import announcements, config, models, rows
from hamiacct.accounting import fit, holdings
from hamiacct.accounting.asks import Ask, Room
from hamiacct.accounting.errors import Conflict, Malformed, NoRoom, NotFound, QuotaExceeded, Unavailable
from hamiacct.accounting.fit import Misfit, Placement, Verdict
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.pods import Groups, Pod
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.words import ChargedAs, Kind, PodState, ReservationState, Rule
from hamiacct.kube import patches
from hamiacct.operations import ledger, locks, pod_events, streams
from hamiacct.operations.ledger import Posting
from hamiacct.queries import fits, fleet
from hamiacct.queries.fits import Question

EXPIRE_AT_ONCE = 200
CANDIDATES = 5
ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Held:
    """A hold just taken, the placement it stands for, and what was proposed where a choice was made."""

    reservation: models.Reservation
    placement: Placement
    proposed: fits.Fit | None = None


Judge = Callable[[FitNode, Ask, Room], Verdict]


def reserve(
    question: Question, *, nodes: Sequence[str] | None = None, ttl_seconds: int, at: datetime
) -> Held:
    """Chooses a node and holds the placement on it: check and charge in one transaction (decisions 26, 28).

    An old hold or claim of the pod is given back in the same transaction. NoRoom (QuotaExceeded where a
    node would fit but for the quotas) with the reasons by node; Conflict for a pod that is bound or over;
    Unavailable where the books are not complete, or others were faster too often.
    """
    _check_asks(question)
    for _ in range(ROUNDS):
        found = fits.find(question, nodes=nodes, limit=CANDIDATES, at=at)
        names = [candidate.node for candidate in found.candidates]
        held = _take(question, names, fit.place, ttl_seconds)
        if held is not None:
            return replace(held, proposed=found)
        if not names:
            raise _refusal(question, found.failed, nodes)
    raise Unavailable("others were faster on every candidate")


def claim(
    question: Question, node: str, allocations: Mapping[str, Groups], *, ttl_seconds: int, at: datetime
) -> Held:
    """Holds exactly the placement sent, validated like ours (decision 29); errors as in `reserve`."""
    _check_asks(question)
    fits.check_books(at)

    def judge(offered: FitNode, ask: Ask, room: Room) -> Verdict:
        verdict = fit.verify(offered, ask, room, allocations)
        if isinstance(verdict, Misfit):
            failed.append(verdict)
        return verdict

    failed: list[Misfit] = []
    held = _take(question, [node], judge, ttl_seconds)
    if held is None:
        reasons = failed or [Misfit(node, Reason.NODE_UNREGISTERED, {Reason.NODE_UNREGISTERED: 1})]
        raise _refusal(question, tuple(reasons), [node])
    return held


def _check_asks(question: Question) -> None:
    if not question.pod.uid:
        raise Malformed("a reservation needs the pod's uid", "/pod/metadata/uid")
    if question.ask.is_empty:
        raise Malformed("the pod asks for nothing that is managed here", "/pod/spec")


def _refusal(question: Question, failed: tuple[Misfit, ...], nodes: Sequence[str] | None) -> Conflict:
    """Which of the two refusals it is: the quota's, exactly where some node would fit without it."""
    if fits.is_about_quota(failed):
        offered = fits.offers(question.pod.uid, nodes)
        refused = {misfit.node for misfit in failed if Reason.QUOTA in misfit.reasons}
        if any(
            isinstance(fit.place(node, question.ask), Placement) for node in offered if node.name in refused
        ):
            return QuotaExceeded("the pod fits, but not within its namespace's quotas", failed=failed)
    return NoRoom("no node takes the pod", failed=failed)


def _take(question: Question, names: Sequence[str], judge: Judge, ttl_seconds: int) -> Held | None:
    """Judges the candidates again on locked rows, in order, and holds the first that still fits.

    None where none does: then an old hold of the pod is gone, too.
    """
    pod = question.pod
    with transaction.atomic():
        locks.share_stream(Kind.POD)
        locks.take(locks.Space.POD_NAME, [locks.name_key(pod.namespace, pod.name)])
        now = _database_now()
        row = models.Pod.objects.filter(uid=pod.uid).select_for_update(no_key=True).first()
        hold = models.Reservation.objects.filter(pod_uid=pod.uid).select_for_update(no_key=True).first()
        _check_free(pod, row, hold)
        held = fits.held_by(pod.uid)
        asked_for = {*names, *(key.node for key in held)}
        nodes = {node.name: node for node in fleet.load(asked_for, lock=True, apart_from=pod.uid)}
        locks.take(locks.Space.NAMESPACE, [pod.namespace])
        ledger.locked_quotas([pod.namespace])
        room = fits.room_for(pod)
        for name in names:
            node = nodes.get(name)
            verdict = judge(fits.without(node, held), question.ask, room) if node is not None else None
            if isinstance(verdict, Placement):
                reservation = _write(question, verdict, row, held, now, ttl_seconds)
                return Held(reservation, verdict)
        if hold is not None and ReservationState(hold.state).stands:
            stream = streams.of_kind(Kind.POD)
            pod_events.end_holds([pod.uid], ReservationState.RELEASED, Rule.RELEASED, stream, at=now)
        return None


def _check_free(pod: Pod, row: models.Pod | None, hold: models.Reservation | None) -> None:
    """Conflict where the pod is bound or over, or is being bound just now: then nothing changes."""
    if hold is not None and hold.state in (ReservationState.BINDING, ReservationState.BOUND):
        raise Conflict(f"the reservation of pod {pod.uid} is {hold.state}", state=hold.state)
    if row is None:
        return
    if (row.namespace, row.name) != (pod.namespace, pod.name):
        raise Conflict(f"pod {pod.uid} is {row.namespace}/{row.name}")
    if row.ended_by and row.ended_by != Rule.RELEASED:
        raise Conflict(f"pod {pod.uid} has ended: {row.ended_by}", state=row.state)
    if row.node:
        raise Conflict(f"pod {pod.uid} is bound to {row.node}", state=row.state)


def _database_now() -> datetime:
    """The database's clock: holds of several replicas run out by one clock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    assert isinstance(now, datetime)
    return now


def _write(
    question: Question,
    placement: Placement,
    row: models.Pod | None,
    held: holdings.Held,
    now: datetime,
    ttl_seconds: int,
) -> models.Reservation:
    """The hold, the pod's row and the posting of the difference."""
    pod = question.pod
    if row is None:
        row = _born(pod)
    # What is held is held for the containers asked about, whatever an earlier question or event showed.
    row.containers = pod_events.with_shape_of(rows.containers_json(pod.containers), row.containers)
    row.state, row.rule, row.charged_as = PodState.RESERVED, Rule.RESERVED, ChargedAs.HELD
    row.ended_by, row.ended_version, row.ended_at = "", 0, None
    row.changed_at = now
    row.save()
    annotations, labels = patches.annotations_of(placement, pod, config.vendors(), now)
    reservation, _ = models.Reservation.objects.update_or_create(
        pod_uid=pod.uid,
        defaults={
            "namespace": pod.namespace,
            "name": pod.name,
            "node": placement.node,
            "state": ReservationState.HELD,
            "allocations": rows.allocations_json(placement.allocations),
            "annotations": annotations,
            "labels": labels,
            "score": placement.score,
            "created_at": now,
            "expires_at": now + timedelta(seconds=ttl_seconds),
            "changed_at": now,
            "bound_version": 0,
        },
    )
    facts = rows.quota_facts_of(row)
    reason = f"held on {placement.node} until {reservation.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    posting = Posting(
        pod.uid,
        pod.namespace,
        held,
        placement.charge,
        Rule.RESERVED,
        reason,
        row.resource_version,
        facts,
        facts,
    )
    ledger.post([posting], at=now)
    return reservation


def _born(pod: Pod) -> models.Pod:
    """The row of a pod the books have not heard of; version 0, so that every event of it counts."""
    facts = pod.quota_facts
    return models.Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        phase=pod.phase,
        resource_version=0,
        history=streams.of_kind(Kind.POD).history,
        containers=rows.containers_json(pod.containers),
        priority_class=facts.priority_class,
        active_deadline_seconds=facts.active_deadline_seconds,
        best_effort=facts.best_effort,
        cross_namespace_affinity=facts.cross_namespace_affinity,
        scheduler_name=pod.scheduler_name,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
    )


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
        if state is not ReservationState.BOUND:
            announcements.tell(announcements.holds_moved_on, [ReservationState.BOUND])
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

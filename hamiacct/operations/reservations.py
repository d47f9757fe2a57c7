"""Reservations: check and charge in one transaction, and how a hold ends (decisions 26 to 29).

The snapshot proposes, the locked rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction

from hamiacct import announcements, config, models, rows
from hamiacct.accounting import fit
from hamiacct.accounting.asks import Ask, Room
from hamiacct.accounting.errors import Conflict, Malformed, NoRoom, NotFound, QuotaExceeded, Unavailable
from hamiacct.accounting.fit import Misfit, Placement, Verdict
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.pods import Groups, Pod
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.words import Kind, ReservationState, Rule
from hamiacct.kube import patches
from hamiacct.operations import claims, ledger, locks, pod_events, streams
from hamiacct.operations.ledger import Posting
from hamiacct.queries import fits
from hamiacct.queries.fits import Question
from hamiacct.queries.moments import Moment

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
    question: Question,
    *,
    nodes: Sequence[str] | None = None,
    ttl_seconds: int,
    verdicts: bool = False,
    at: datetime,
    seen: Moment | None = None,
) -> Held:
    """Chooses a node and holds the placement on it: check and charge in one transaction (decisions 26, 28).

    An old hold or claim of the pod is given back in the same transaction. NoRoom (QuotaExceeded where a
    node would fit but for the quotas) with the reasons by node; Conflict for a pod that is bound or over;
    Unavailable where the books are not complete, or others were faster too often. `seen` is what
    `fits.look` saw, where the caller has looked already; with `verdicts` what was proposed says of every
    other node why not.
    """
    _check_asks(question)
    for _ in range(ROUNDS):
        found = fits.find(question, nodes=nodes, limit=CANDIDATES, verdicts=verdicts, at=at, seen=seen)
        seen = None
        if not found.candidates and not verdicts:
            found = fits.find(question, nodes=nodes, limit=CANDIDATES, at=at)
        for candidate in found.candidates:
            held = _take(question, candidate.node, fit.place, ttl_seconds)
            if held is not None:
                return replace(held, proposed=found)
        _give_up(question.pod)
        if not found.candidates:
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
    held = _take(question, node, judge, ttl_seconds)
    if held is None:
        _give_up(question.pod)
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


def _take(question: Question, name: str, judge: Judge, ttl_seconds: int) -> Held | None:
    """Judges one candidate again on locked rows, and holds it if it still fits; else nothing is changed.

    One transaction a candidate: what was locked for one that did not fit is free before the next is tried.
    """
    pod = question.pod
    with transaction.atomic():
        now = locks.take_pod(pod.namespace, pod.name)
        known = claims.known(pod.uid)
        _check_free(pod, known)
        held = known.own.held
        offered = claims.offered({name, *(key.node for key in held)}, pod, known.own, at=now)
        node = offered.nodes.get(name)
        if node is None:
            return None
        verdict = judge(fits.without(node, held), question.ask, fits.room_for(pod, offered.seen))
        if isinstance(verdict, Misfit):
            return None
        return Held(_write(question, verdict, known, offered.locked, now, ttl_seconds), verdict)


def _give_up(pod: Pod) -> None:
    """No candidate took the pod: an old hold of it is gone, too (decision 28)."""
    with transaction.atomic():
        now = locks.take_pod(pod.namespace, pod.name)
        state = claims.known(pod.uid).hold_state
        if state is not None and state.stands:
            _end([pod.uid], ReservationState.RELEASED, Rule.RELEASED, at=now)


def _check_free(pod: Pod, known: claims.Known) -> None:
    """Conflict where the pod is bound or over, or is being bound just now: then nothing changes."""
    row, state = known.row, known.hold_state
    if state in (ReservationState.BINDING, ReservationState.BOUND):
        raise Conflict(f"the reservation of pod {pod.uid} is {state}", state=state)
    if row is None:
        return
    if (row.namespace, row.name) != (pod.namespace, pod.name):
        raise Conflict(f"pod {pod.uid} is {row.namespace}/{row.name}")
    if row.ended_by and row.ended_by != Rule.RELEASED:
        raise Conflict(f"pod {pod.uid} has ended: {row.ended_by}", state=row.state)
    if row.node:
        raise Conflict(f"pod {pod.uid} is bound to {row.node}", state=row.state)


def _write(
    question: Question,
    placement: Placement,
    known: claims.Known,
    locked: ledger.Locked,
    now: datetime,
    ttl_seconds: int,
) -> models.Reservation:
    """The hold, the pod's row and the posting of the difference."""
    pod, row = question.pod, known.row
    annotations, labels = patches.annotations_of(placement, pod, config.vendors(), now)
    hold = models.Reservation(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=placement.node,
        state=ReservationState.HELD,
        allocations=rows.allocations_json(placement.allocations),
        annotations=annotations,
        labels=labels,
        score=placement.score,
        created_at=now,
        expires_at=now + timedelta(seconds=ttl_seconds),
        changed_at=now,
        bound_version=0,
    )
    containers = rows.containers_json(pod.containers)
    if row is not None:
        # What is held is held for the containers asked about, whatever an earlier question or event showed.
        containers = pod_events.with_shape_of(containers, row.containers)
    claims.write(pod, hold, containers, history=known.history)
    facts = known.own.facts if row is not None else pod.quota_facts
    reason = f"held on {placement.node} until {hold.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    version = row.resource_version if row is not None else 0
    posting = Posting(
        pod.uid,
        pod.namespace,
        known.own.held,
        placement.charge,
        Rule.RESERVED,
        reason,
        version,
        facts,
        facts,
    )
    ledger.post([posting], at=now, locked=None if len(known.own.held) else locked)
    return hold


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
            _end([pod_uid], ReservationState.RELEASED, Rule.RELEASED, at=at)


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
        return _end(uids, ReservationState.EXPIRED, Rule.EXPIRED, at=at)


def _end(uids: Sequence[str], state: ReservationState, rule: Rule, *, at: datetime) -> int:
    return pod_events.end_holds(uids, state, rule, streams.of_kind(Kind.POD), at=at)


def _locked(pod_uid: str) -> models.Reservation:
    """The reservation, with its pod's name locked. NotFound where none was ever heard of."""
    names = models.Reservation.objects.filter(pod_uid=pod_uid).values_list("namespace", "name").first()
    if names is None:
        raise NotFound(f"no reservation of pod {pod_uid}")
    locks.take_pod(*names)
    return models.Reservation.objects.select_for_update().get(pod_uid=pod_uid)

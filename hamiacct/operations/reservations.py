"""Reservations: check and charge in one transaction, and how a hold ends (decisions 26 to 29).

The snapshot proposes, the locked rows decide. Claims and releases that wait in one process are decided
together, in one transaction, one after the other in the order in which they came (`together`, `claims`):
each gets its own answer or its own refusal, as if it had been alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.conf import settings
from django.db import connection, transaction

from hamiacct import announcements, models
from hamiacct.accounting import fit
from hamiacct.accounting.asks import Ask, Room
from hamiacct.accounting.errors import (
    Conflict,
    Malformed,
    NoRoom,
    NotFound,
    QuotaExceeded,
)
from hamiacct.accounting.fit import Misfit, Placement, Verdict
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.pods import Groups, Pod
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.words import Kind, ReservationState, Rule
from hamiacct.operations import claims, locks, pod_events, streams
from hamiacct.operations.rounds import Answer, Claim, Held, HoldsAreDue, NoPlace, Release, Round, Wish
from hamiacct.operations.together import Outcome, Together
from hamiacct.queries import fits
from hamiacct.queries.fits import Question
from hamiacct.queries.statements import trusting

EXPIRE_AT_ONCE = 200
MOST_TOGETHER = 16


def reserve(
    question: Question,
    *,
    nodes: Sequence[str] | None = None,
    ttl_seconds: int,
    verdicts: bool = False,
    at: datetime,
) -> Held:
    """Chooses a node and holds the placement on it: check and charge in one transaction (decisions 26, 28).

    An old hold or claim of the pod is given back in the same transaction, and holds whose time is up are
    ended before. NoRoom (QuotaExceeded where a node would fit but for the quotas) with the reasons by node;
    Conflict for a pod that is bound or over; Unavailable where the books are not complete, or others were
    faster too often, or too many were before. With `verdicts` what was proposed says of every other node
    why not.
    """
    return _held(Claim(_checked(question), nodes, fit.place, ttl_seconds, verdicts, at))


def claim(
    question: Question, node: str, allocations: Mapping[str, Groups], *, ttl_seconds: int, at: datetime
) -> Held:
    """Holds exactly the placement sent, validated like ours (decision 29); errors as in `reserve`."""

    def judge(offered: FitNode, ask: Ask, room: Room) -> Verdict:
        return fit.verify(offered, ask, room, allocations)

    return _held(Claim(_checked(question), [node], judge, ttl_seconds, False, at))


def release(pod_uid: str, *, at: datetime) -> None:
    """Gives a hold back. NotFound where none was ever heard of, Conflict where it is bound or confirmed.

    A hold that has ended already stays as it is.
    """
    _ask(Release(pod_uid, at))


def _checked(question: Question) -> Question:
    if not question.pod.uid:
        raise Malformed("a reservation needs the pod's uid", "/pod/metadata/uid")
    if question.ask.is_empty:
        raise Malformed("the pod asks for nothing that is managed here", "/pod/spec")
    return question


def _held(wish: Claim) -> Held:
    answer = _ask(wish)
    if isinstance(answer, NoPlace):
        if answer.is_held:
            _give_up(wish.question.pod)
        raise _refusal(wish.question, answer.failed, wish.nodes)
    assert isinstance(answer, Held)
    return answer


def _ask(wish: Wish) -> Answer:
    if connection.in_atomic_block:  # nobody else is to be told what may yet be undone
        return _queue.apart(wish)
    return _queue.ask(wish, patience_seconds=settings.HAMIACCT.lock_timeout_seconds)


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


def _give_up(pod: Pod) -> None:
    """No candidate took the pod: an old hold of it goes, too (decision 28), unless a bind has it by now."""
    with transaction.atomic():
        now = locks.take_pod(pod.namespace, pod.name)
        hold = claims.read([pod.uid], at=now).pods[pod.uid].hold
        if hold is not None and hold.state is ReservationState.HELD:
            _end([pod.uid], ReservationState.RELEASED, Rule.RELEASED, at=now)


# --- together ----------------------------------------------------------------------------------------


def _serve(wishes: Sequence[Wish]) -> list[Outcome[Answer, Wish]]:
    """Decides wishes of different pods, in order, in one transaction."""
    at = max(wish.at for wish in wishes)
    names = claims.names_of([wish.uid for wish in wishes if isinstance(wish, Release)])

    def outcomes(*, ends_due: bool) -> list[Outcome[Answer, Wish]]:
        # What was claimed or given back and not told of is claimed or given back once more, to the same end.
        return trusting(lambda _: Round(wishes, names, at).outcomes(ends_due=ends_due))

    try:
        return outcomes(ends_due=True)
    except HoldsAreDue:
        expire(at=at)
        return outcomes(ends_due=False)


_queue: Together[Wish, Answer] = Together(_serve, lambda wish: wish.uid, most=MOST_TOGETHER)


# --- what else becomes of holds ----------------------------------------------------------------------


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

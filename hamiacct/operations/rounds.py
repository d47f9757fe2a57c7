"""A round: wishes for holds and for their end, decided one after the other in one transaction (decision 26).

The snapshot proposes candidates, each as those before it leave the fleet; the locked rows decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from hamiacct import announcements, config, models, rows
from hamiacct.accounting import holdings, lifecycle
from hamiacct.accounting.asks import Ask, Room
from hamiacct.accounting.errors import (
    AccountingError,
    Conflict,
    NotFound,
    Unavailable,
)
from hamiacct.accounting.fit import Misfit, Placement, Verdict
from hamiacct.accounting.lifecycle import Decision
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.pods import Pod, QuotaFacts
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.words import Kind, ReservationState, Rule
from hamiacct.kube import patches
from hamiacct.operations import claims, findings, ledger, locks, pod_events, streams
from hamiacct.operations.claims import Books, Ground, Known, Offered, Taken
from hamiacct.operations.findings import Found, Subject
from hamiacct.operations.ledger import Posting
from hamiacct.operations.together import Again, Apart, Granted, Outcome, Refused
from hamiacct.queries import fits, fleet
from hamiacct.queries.fits import Question

# So many nodes are tried in a round but the first, in which the best alone is.
CANDIDATES = 5
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Held:
    """A hold just taken, the placement it stands for, and what was proposed where a choice was made."""

    reservation: Taken
    placement: Placement
    proposed: fits.Fit


Judge = Callable[[FitNode, Ask, Room], Verdict]


@dataclass(frozen=True, slots=True)
class Claim:
    """A pod wants a hold: on one of the nodes, or on any where they are None, as `judge` places it.

    `tries` is how often others were faster.
    """

    question: Question
    nodes: Sequence[str] | None
    judge: Judge
    ttl_seconds: int
    verdicts: bool
    at: datetime
    tries: int = 0

    @property
    def uid(self) -> str:
        return self.question.pod.uid

    @property
    def name(self) -> tuple[str, str]:
        """Of its pod, with the namespace before it."""
        return self.question.pod.namespace, self.question.pod.name

    @property
    def only_node(self) -> str | None:
        """The one node that comes into question: there is nothing to choose then."""
        return self.nodes[0] if self.nodes is not None and len(self.nodes) == 1 else None


@dataclass(frozen=True, slots=True)
class Release:
    """A hold is given back."""

    uid: str
    at: datetime


@dataclass(frozen=True, slots=True)
class NoPlace:
    """No node takes the pod, for these reasons; an old hold of it is gone, unless `is_held` still."""

    failed: tuple[Misfit, ...]
    is_held: bool = False


Wish = Claim | Release
Answer = Held | NoPlace | None


class HoldsAreDue(Exception):
    """Holds whose time is up are to be ended first."""


@dataclass(slots=True)
class Round:
    """Wishes on their way: who still is to be decided, what is to be written, and what each is told.

    `proposed` has the candidates of each claim that chooses, `ends` what becomes of each pod whose hold
    stands if that is given up, `ended` the same of those whose hold is. `expected` is what pods will be
    charged if candidates were chosen rightly, `charged` what they are; `is_surprised` where these differ.
    Of the `unsure` nobody can say yet that there is no candidate.
    """

    wishes: Sequence[Wish]
    names: Mapping[str, tuple[str, str]]
    at: datetime
    told: dict[str, Outcome[Answer, Wish]] = field(default_factory=dict)
    living: dict[str, Wish] = field(default_factory=dict)
    proposed: dict[str, fits.Fit] = field(default_factory=dict)
    ends: dict[str, Decision] = field(default_factory=dict)
    ended: dict[str, Decision] = field(default_factory=dict)
    expected: dict[str, holdings.Held] = field(default_factory=dict)
    charged: dict[str, holdings.Held] = field(default_factory=dict)
    is_surprised: bool = False
    unsure: set[str] = field(default_factory=set)
    taken: list[dict[str, Any]] = field(default_factory=list)
    postings: list[Posting] = field(default_factory=list)

    def outcomes(self, *, ends_due: bool) -> list[Outcome[Answer, Wish]]:
        """One for each wish."""
        with transaction.atomic():
            now = self._lock_names()
            if self.living:
                books = self._read()
                now = books.now or now
                if ends_due and books.seen.has_due_holds and any(self._claims()):
                    raise HoldsAreDue
                self._look_at(books)
            if self.living:
                self._propose(books)
                self._decide(books, now)
        return [self.told[wish.uid] for wish in self.wishes]

    def _claims(self) -> Iterator[Claim]:
        return (wish for wish in self.living.values() if isinstance(wish, Claim))

    def _namespace(self, wish: Wish) -> str:
        return self._name(wish)[0]

    def _name(self, wish: Wish) -> tuple[str, str]:
        return wish.name if isinstance(wish, Claim) else self.names[wish.uid]

    def _tell(self, uid: str, outcome: Outcome[Answer, Wish]) -> None:
        """The wish is decided."""
        self.told[uid] = outcome
        self.living.pop(uid, None)

    def _lock_names(self) -> datetime:
        """Takes the names, and tells the time; of several wishes those whose name is not free go apart."""
        for wish in self.wishes:
            self.living[wish.uid] = wish
            if isinstance(wish, Release) and wish.uid not in self.names:
                self._tell(wish.uid, Refused(NotFound(f"no reservation of pod {wish.uid}")))
        if len(self.wishes) == 1:
            return self.at  # its name is locked by what reads its pod
        named = {uid: self._name(wish) for uid, wish in self.living.items()}
        now, free = locks.take_free_pods(named.values())
        for uid, name in named.items():
            if name not in free:
                self._tell(uid, Apart())
        return now

    def _read(self) -> Books:
        [name, *others] = [self._name(wish) for wish in self.living.values()]
        choose = any(wish.only_node is None for wish in self._claims())
        return claims.read(
            list(self.living),
            at=self.at,
            name=None if others or len(self.wishes) > 1 else name,
            namespaces={wish.name[0] for wish in self._claims()} if choose else (),
        )

    # --- what can be told without any device

    def _look_at(self, books: Books) -> None:
        """Refuses what the pods' own state refuses, and decides what pods are charged without their holds."""
        for uid, wish in list(self.living.items()):
            known = books.pods[uid]
            try:
                if isinstance(wish, Claim):
                    fits.check(books.seen)
                    _check_free(wish.question.pod, known)
                elif not _is_to_end(uid, known):
                    self._tell(uid, Granted(None))
            except AccountingError as fault:
                self._tell(uid, Refused(fault))
            if uid in self.living and known.is_held and known.row is not None:
                self.ends[uid] = _end_of(known.row, known)
                if isinstance(wish, Release) and not self._ends_simply(uid, known):
                    self._end_apart(uid)

    def _ends_simply(self, uid: str, known: Known) -> bool:
        """Whether the pod without its hold is charged for no device but those that it holds already."""
        return all(key in known.entries for key in self.ends[uid].charge.usage)

    def _end_apart(self, uid: str) -> None:
        """Ends a hold beside which other devices come into play: by itself, for they are locked in order."""
        if len(self.wishes) == 1:
            pod_events.end_holds(
                [uid], ReservationState.RELEASED, Rule.RELEASED, streams.of_kind(Kind.POD), at=self.at
            )
            self._tell(uid, Granted(None))
        else:
            self._tell(uid, Apart())

    # --- candidates

    def _propose(self, books: Books) -> None:
        """Looks for candidates, each as those before it leave the fleet if they get what they are after."""
        if books.choice is None or all(wish.only_node is not None for wish in self._claims()):
            return
        offer, ground = books.choice.open()
        for uid, wish in self.living.items():
            known, namespace = books.pods[uid], self._namespace(wish)
            seen = ground.moment(books.seen, namespace, known.own)
            best: Verdict | None = None
            if isinstance(wish, Claim) and wish.only_node is not None:
                best = _placed(
                    wish, ground.changed.get(wish.only_node) or offer.node(wish.only_node), known, seen
                )
            elif isinstance(wish, Claim):
                self.proposed[uid] = found = _proposal(wish, seen, offer, ground.changed)
                best = next(iter(found.candidates), None)
                if best is None and offer.doubtful & ground.changed.keys():
                    self.unsure.add(uid)  # what those before it give back of such cards is not seen yet
            if isinstance(wish, Claim) and isinstance(best, Placement):
                self.expected[uid] = best.charge
                ground.move(namespace, known.own, best.charge, _facts(wish, known))
            elif uid in self.ends:
                self.expected[uid] = self.ends[uid].charge.usage
                ground.move(namespace, known.own, self.ends[uid].charge.usage, known.own.facts)

    def _nodes(self, wish: Claim) -> list[str]:
        """The nodes that are tried in this round, best first."""
        if wish.only_node is not None:
            return [wish.only_node]
        candidates = self.proposed[wish.uid].candidates
        return [one.node for one in (candidates if wish.tries else candidates[:1])]

    # --- the locked rows decide

    def _decide(self, books: Books, now: datetime) -> None:
        """Judges one after the other on what is locked, and writes what came of it."""
        living = {uid: books.pods[uid] for uid in self.living}
        nodes = {name for wish in self._claims() for name in self._nodes(wish)}
        if not any(self._claims()):
            now = self.at
        offered = claims.lock(nodes, living, {self._namespace(wish) for wish in self.living.values()})
        for uid, wish in list(self.living.items()):
            if isinstance(wish, Claim):
                self._tell(uid, self._judge(wish, books, offered, now))
            else:
                self._end(uid, offered.pods[uid], offered.ground)
                self._tell(uid, Granted(None))
            self.is_surprised |= self.charged.get(uid) != self.expected.get(uid)
        also = [
            *claims.taken(self.taken, history=books.history, at=now),
            *claims.ended(self.ended, ReservationState.RELEASED, at=now),
        ]
        ledger.post(self.postings, at=now, locked=offered.locked, also=also)
        self._tell_of_ends(books, now)

    def _judge(self, wish: Claim, books: Books, offered: Offered, now: datetime) -> Outcome[Answer, Wish]:
        """The first of the nodes that takes the pod by now, held; or why there is none."""
        failed: list[Misfit] = []
        known = offered.pods[wish.uid]
        for name in self._nodes(wish):
            verdict = _verdict(wish, name, known, offered, books.seen)
            if verdict is None:
                return Again(wish)
            if isinstance(verdict, Placement):
                return Granted(self._hold(wish, verdict, known, offered.ground, now))
            failed.append(verdict)
        if wish.only_node is None and failed:  # there were candidates: somebody was faster
            if wish.tries + 1 < ROUNDS:
                return Again(replace(wish, tries=wish.tries + 1))
            self._gives_up(wish.uid, known, offered.ground)
            return Refused(Unavailable("others were faster on every candidate"))
        if wish.only_node is None:
            if self.is_surprised or wish.uid in self.unsure:
                return Again(wish)  # it found no place beside what others were after, and did not get
            failed = list(self.proposed[wish.uid].failed)
        is_gone = self._gives_up(wish.uid, known, offered.ground)
        return Granted(NoPlace(tuple(failed), is_held=not is_gone))

    def _hold(self, wish: Claim, placement: Placement, known: Known, ground: Ground, now: datetime) -> Held:
        """The placement, taken: what is written of it, and the difference to what the pod was charged."""
        pod, row = wish.question.pod, known.row
        taken = _taken(wish, placement, now)
        containers = rows.containers_json(pod.containers)
        if row is not None:
            # What is held is held for the containers asked about, whatever was asked or shown before.
            containers = pod_events.with_shape_of(containers, row.containers)
        facts = _facts(wish, known)
        reason = f"held on {placement.node} until {taken.expires_at:%Y-%m-%d %H:%M:%S} UTC"
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
        ground.move(pod.namespace, known.own, placement.charge, facts)
        self.charged[pod.uid] = placement.charge
        self.taken.append(claims.document_of(taken, pod, containers))
        self.postings.append(posting)
        proposed = self.proposed.get(pod.uid) or fits.Fit((placement,), (), True, wish.at)
        return Held(taken, placement, proposed)

    def _gives_up(self, uid: str, known: Known, ground: Ground) -> bool:
        """Whether the pod holds nothing any more: an old hold of it goes (decision 28)."""
        if uid in self.ends:
            if not self._ends_simply(uid, known):
                return False
            self._end(uid, known, ground)
        return True

    def _end(self, uid: str, known: Known, ground: Ground) -> None:
        """The hold is over: what its pod is charged is computed from the last that was seen of it."""
        decision, row, hold = self.ends[uid], known.row, known.hold
        assert row is not None
        assert hold is not None
        self.ended[uid] = decision
        self.charged[uid] = decision.charge.usage
        ground.move(row.namespace, known.own, decision.charge.usage, known.own.facts)
        self.postings.append(
            Posting(
                uid,
                row.namespace,
                known.own.held,
                decision.charge.usage,
                decision.rule,
                f"the hold on {hold.node} is {ReservationState.RELEASED}",
                row.resource_version,
                known.own.facts,
                known.own.facts,
            )
        )

    def _tell_of_ends(self, books: Books, at: datetime) -> None:
        """What was odd about pods while they were held is looked at anew, and told is that they are not."""
        wanted: dict[Subject, tuple[Found, ...]] = {}
        for uid, decision in self.ended.items():
            known = books.pods[uid]
            if known.row is not None and (known.has_findings or decision.oddities):
                found = (Found(one.code, one.detail, one.key) for one in decision.oddities)
                wanted[pod_events.subject_of(known.row)] = tuple(found)
        findings.sync(wanted, pod_events.POD_CODES, at=at)
        if self.ended:
            states = [ReservationState.RELEASED] * len(self.ended)
            announcements.tell(announcements.holds_moved_on, states)


def _check_free(pod: Pod, known: Known) -> None:
    """Conflict where the pod is bound or over, or is being bound just now: then nothing changes."""
    row = known.row
    if known.hold is not None and known.hold.state in (ReservationState.BINDING, ReservationState.BOUND):
        state = known.hold.state
        raise Conflict(f"the reservation of pod {pod.uid} is {state}", state=state)
    if row is None:
        return
    if (row.namespace, row.name) != (pod.namespace, pod.name):
        raise Conflict(f"pod {pod.uid} is {row.namespace}/{row.name}")
    if row.ended_by and row.ended_by != Rule.RELEASED:
        raise Conflict(f"pod {pod.uid} has ended: {row.ended_by}", state=row.state)
    if row.node:
        raise Conflict(f"pod {pod.uid} is bound to {row.node}", state=row.state)


def _is_to_end(uid: str, known: Known) -> bool:
    """Whether a hold is there to be given back; NotFound and Conflict as of `release`."""
    if known.hold is None:
        raise NotFound(f"no reservation of pod {uid}")
    state = known.hold.state
    if state in (ReservationState.BOUND, ReservationState.CONFIRMED, ReservationState.BINDING):
        raise Conflict(f"the reservation of pod {uid} is {state}", state=state)
    return state is ReservationState.HELD and known.row is not None


def _end_of(row: models.Pod, known: Known) -> Decision:
    """What becomes of a pod whose hold is given up."""
    charge = rows.charge_of(row, known.own.held)
    return lifecycle.after_hold(
        charge, rows.pod_of(row), Rule.RELEASED, config.vendor_by_key(), config.charge_policy()
    )


def _proposal(wish: Claim, seen: fits.Moment, offer: fleet.Offer, changed: Mapping[str, FitNode]) -> fits.Fit:
    """The best nodes for a claim; why each refuses it where none does not, or where it wants to know."""

    def found(*, verdicts: bool) -> fits.Fit:
        return fits.find_in(
            offer,
            wish.question,
            seen,
            nodes=wish.nodes,
            limit=CANDIDATES if wish.verdicts or wish.tries else 1,
            verdicts=verdicts,
            at=wish.at,
            changed=changed,
        )

    first = found(verdicts=wish.verdicts)
    return first if first.candidates or wish.verdicts else found(verdicts=True)


def _verdict(wish: Claim, name: str, known: Known, offered: Offered, seen: fits.Moment) -> Verdict | None:
    """Whether a locked node takes the pod, beside those that were here before; None where only the next
    round can tell: what pods say of such cards is read, and those before this one are not to be read yet.
    """
    pod, node = wish.question.pod, offered.ground.node(name)
    if node is not None and name in offered.doubtful:
        if name in offered.ground.changed:
            return None
        node = next(iter(fleet.load([name], apart_from=pod.uid)), None)
    if node is None:
        return Misfit(name, Reason.NODE_UNREGISTERED, {Reason.NODE_UNREGISTERED: 1})
    return _placed(wish, node, known, offered.ground.moment(seen, pod.namespace, known.own))


def _placed(wish: Claim, node: FitNode, known: Known, seen: fits.Moment) -> Verdict:
    """Whether a node takes the pod, without what the pod itself holds of it."""
    room = fits.room_for(wish.question.pod, seen)
    return wish.judge(fits.without(node, known.own.held), wish.question.ask, room)


def _facts(wish: Claim, known: Known) -> QuotaFacts:
    """How quotas see the pod: as its last event showed it, where there was one."""
    return known.own.facts if known.row is not None else wish.question.pod.quota_facts


def _taken(wish: Claim, placement: Placement, now: datetime) -> Taken:
    pod = wish.question.pod
    annotations, labels = patches.annotations_of(placement, pod, config.vendors(), now)
    return Taken(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=placement.node,
        state=ReservationState.HELD,
        allocations=rows.allocations_json(placement.allocations),
        annotations=annotations,
        labels=labels,
        score=placement.score,
        expires_at=now + timedelta(seconds=wish.ttl_seconds),
    )

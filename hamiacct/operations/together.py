"""Wishes that wait in one process are served together: many at the cost of a few (docs/adr/0014).

Whoever asks while nobody serves serves at once: its own wish, and those that came meanwhile, in the order in
which they came. Whoever asks while somebody serves waits for an answer, or for its turn to serve. So a quiet
process serves one wish at a time with nobody's help, and a busy one as many as came during the last round.
Nothing here knows what is wished for, or of a database.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from hamiacct.accounting.errors import Unavailable

Wish = TypeVar("Wish")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Granted(Generic[Answer]):
    """A wish was served, with this answer."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Refused:
    """A wish was refused; `fault` is raised where it was asked."""

    fault: Exception


@dataclass(frozen=True, slots=True)
class Again(Generic[Wish]):
    """A wish is to be served by the next round, before those that came after it, in this form."""

    wish: Wish


@dataclass(frozen=True, slots=True)
class Apart:
    """A wish is to be served by itself, by the thread that asked: it would keep the others waiting."""


Outcome = Granted[Answer] | Refused | Again[Wish] | Apart


class _Turn(Enum):
    """What a place in the queue is told."""

    WAIT = auto()
    SERVE = auto()
    APART = auto()
    DONE = auto()


class _Place(Generic[Wish, Answer]):
    """A wish in the queue, and the thread that waits beside it."""

    __slots__ = ("_told", "outcome", "turn", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.turn = _Turn.WAIT
        self.outcome: Granted[Answer] | Refused | None = None
        self._told = threading.Lock()
        self._told.acquire()

    def tell(self, turn: _Turn) -> None:
        """Wakes the thread with this news."""
        self.turn = turn
        self._told.release()

    def listen(self, seconds: float = -1) -> bool:
        """Waits for news; False where none came within so many seconds."""
        return self._told.acquire(timeout=seconds)


class Together(Generic[Wish, Answer]):
    """A queue of wishes, served in rounds.

    `serve` is given up to `most` wishes of which no two have the same key, and answers one outcome for each.
    If it fails on several, each is served by itself; if it fails on one, that is the wish's own fault.
    Every round takes those that have waited longest, so nobody is passed over; whoever has an answer to its
    own wish hands the next round on, so nobody serves for ever.
    """

    def __init__(
        self,
        serve: Callable[[Sequence[Wish]], Sequence[Outcome[Answer, Wish]]],
        key: Callable[[Wish], Hashable],
        *,
        most: int,
    ) -> None:
        self._serve, self._key, self._most = serve, key, most
        self._lock = threading.Lock()
        self._waiting: deque[_Place[Wish, Answer]] = deque()
        self._is_served = False

    def ask(self, wish: Wish, *, patience_seconds: float) -> Answer:
        """The answer to a wish. Unavailable where its turn did not come in time; then nothing was done.

        What the wish is refused with is raised here, and so is what failed when it was served by itself.
        """
        place: _Place[Wish, Answer] = _Place(wish)
        with self._lock:
            self._waiting.append(place)
            leads = not self._is_served
            self._is_served = True
        if leads or self._is_to_serve(place, patience_seconds):
            self._lead(place)
        if place.turn is _Turn.APART:
            return self.apart(place.wish)
        return _answer(place.outcome)

    def _is_to_serve(self, place: _Place[Wish, Answer], patience_seconds: float) -> bool:
        """Waits until the wish is served or it is its turn to serve; whether it is the latter."""
        if not place.listen(patience_seconds):
            with self._lock:
                if place in self._waiting and place.turn is _Turn.WAIT:
                    self._waiting.remove(place)
                    raise Unavailable("there were too many before this one")
            place.listen()  # its round has begun, and ends when the database answers or gives up
        return place.turn is _Turn.SERVE

    def _lead(self, own: _Place[Wish, Answer]) -> None:
        """Serves rounds until the own wish is answered, then hands on."""
        own.turn = _Turn.SERVE
        try:
            while own.turn is _Turn.SERVE:
                self._round(own)
        finally:
            self._hand_on()

    def _round(self, own: _Place[Wish, Answer]) -> None:
        with self._lock:
            places = self._next()
        outcomes: Sequence[Outcome[Answer, Wish]] = [Apart()] * len(places)
        try:
            outcomes = self._serve([place.wish for place in places])
            assert len(outcomes) == len(places), "every wish has an outcome"
        except Exception as fault:  # noqa: BLE001  # whatever it is, it is told by whoever is served by itself.
            if len(places) == 1:
                outcomes = [Refused(fault)]
        finally:
            self._tell(places, outcomes, own)

    def _next(self) -> list[_Place[Wish, Answer]]:
        """Takes those that waited longest out of the queue, up to the second of one key."""
        chosen: dict[Hashable, _Place[Wish, Answer]] = {}
        while self._waiting and len(chosen) < self._most:
            key = self._key(self._waiting[0].wish)
            if key in chosen:
                break
            chosen[key] = self._waiting.popleft()
        return list(chosen.values())

    def _tell(
        self,
        places: Sequence[_Place[Wish, Answer]],
        outcomes: Sequence[Outcome[Answer, Wish]],
        own: _Place[Wish, Answer],
    ) -> None:
        """Wakes whoever has an answer; the others are in the queue again, where they were."""
        back: list[_Place[Wish, Answer]] = []
        news: list[tuple[_Place[Wish, Answer], _Turn]] = []
        for place, outcome in zip(places, outcomes, strict=True):
            match outcome:
                case Again(wish):
                    place.wish = wish
                    back.append(place)
                case Apart():
                    news.append((place, _Turn.APART))
                case _:
                    place.outcome = outcome
                    news.append((place, _Turn.DONE))
        with self._lock:
            self._waiting.extendleft(reversed(back))
        for place, turn in news:
            if place is own:
                place.turn = turn
            else:
                place.tell(turn)

    def _hand_on(self) -> None:
        """Who waits longest serves next."""
        with self._lock:
            if self._waiting:
                self._waiting[0].tell(_Turn.SERVE)
            else:
                self._is_served = False

    def apart(self, wish: Wish) -> Answer:
        """Serves one wish by itself, until it is answered; for who may serve nobody else."""
        while True:
            [outcome] = self._serve([wish])
            match outcome:
                case Again(changed):
                    wish = changed
                case Apart():
                    raise AssertionError("a wish by itself keeps nobody waiting")
                case _:
                    return _answer(outcome)


def _answer(outcome: Granted[Answer] | Refused | None) -> Answer:
    if isinstance(outcome, Refused):
        raise outcome.fault
    assert outcome is not None, "whoever is told that it is served has an answer"
    return outcome.answer

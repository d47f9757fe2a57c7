"""A queue whose wishes are served in rounds: everybody gets an answer of its own, in the order of arrival."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hamiacct.accounting.errors import Unavailable
from hamiacct.operations.together import Again, Apart, Granted, Outcome, Refused, Together
from tests.waiting import until

SOON = 10.0


class Desk:
    """Serves words: each is answered in capitals, or as `ways` says. The first round waits to be let go.

    Words are told apart by what is before a dash.
    """

    def __init__(self, *, most: int = 4, **ways: Callable[[str], Outcome[str, str]]) -> None:
        self.queue: Together[str, str] = Together(self.serve, lambda word: word.partition("-")[0], most=most)
        self.rounds: list[list[str]] = []
        self.ways = ways
        self.has_begun, self.may_go = threading.Event(), threading.Event()

    def serve(self, words: Sequence[str]) -> list[Outcome[str, str]]:
        self.rounds.append(list(words))
        self.has_begun.set()
        assert self.may_go.wait(SOON)
        return [self.ways.get(word, lambda word: Granted(word.upper()))(word) for word in words]

    def ask(self, word: str, patience_seconds: float = SOON) -> str:
        return self.queue.ask(word, patience_seconds=patience_seconds)


def asked(desk: Desk, *words: str) -> dict[str, Future[str]]:
    """The first word is being served when the others come, one after the other; then all is let go."""
    pool = ThreadPoolExecutor(len(words))
    answers = {}
    for number, word in enumerate(words):
        answers[word] = pool.submit(desk.ask, word)
        if not number:
            assert desk.has_begun.wait(SOON)
        until(lambda number=number: len(desk.queue._waiting) == number)
    desk.may_go.set()
    pool.shutdown()
    return answers


def test_who_asks_while_nobody_serves_serves_itself() -> None:
    desk = Desk()
    desk.may_go.set()
    assert [desk.ask("a"), desk.ask("b")] == ["A", "B"]
    assert desk.rounds == [["a"], ["b"]]


def test_who_comes_meanwhile_is_served_together_in_rounds_that_are_bounded() -> None:
    desk = Desk(most=3)
    answers = asked(desk, "a", "b", "c", "d", "e", "f")
    assert {word: answer.result() for word, answer in answers.items()} == {
        word: word.upper() for word in "abcdef"
    }
    assert desk.rounds == [["a"], ["b", "c", "d"], ["e", "f"]]


def test_two_wishes_for_one_thing_are_never_in_one_round_and_keep_their_order() -> None:
    desk = Desk()
    asked(desk, "a", "b-1", "c", "b-2", "d")
    assert desk.rounds == [["a"], ["b-1", "c"], ["b-2", "d"]]


def test_a_refusal_is_raised_where_it_was_asked_and_spoils_nobody() -> None:
    desk = Desk(b=lambda _: Refused(KeyError("no")))
    answers = asked(desk, "a", "b", "c")
    assert isinstance(answers["b"].exception(), KeyError)
    assert (answers["a"].result(), answers["c"].result()) == ("A", "C")


def test_what_is_to_be_served_again_is_before_those_that_came_after_it() -> None:
    desk = Desk(most=2, c=lambda _: Again("c-2"))
    answers = asked(desk, "a", "b", "c", "d", "e")
    assert desk.rounds == [["a"], ["b", "c"], ["c-2", "d"], ["e"]]
    assert answers["c"].result() == "C-2"


def test_whoever_serves_goes_on_while_its_own_wish_is_to_be_served_again() -> None:
    desk = Desk(a=lambda _: Again("a-2"))
    answers = asked(desk, "a", "b")
    assert desk.rounds == [["a"], ["a-2", "b"]]
    assert (answers["a"].result(), answers["b"].result()) == ("A-2", "B")


def test_what_goes_apart_is_served_by_itself_by_its_own_thread() -> None:
    serving: dict[str, list[str]] = {}

    def apart_at_first(word: str) -> Outcome[str, str]:
        threads = serving.setdefault(word, [])
        threads.append(threading.current_thread().name)
        return Apart() if len(threads) == 1 else Granted("late")

    desk = Desk(c=apart_at_first, d=apart_at_first)
    answers = asked(desk, "a", "b", "c", "d")
    assert [answers[word].result() for word in "abcd"] == ["A", "B", "late", "late"]
    assert sorted(desk.rounds[2:]) == [["c"], ["d"]]
    assert len({serving["c"][1], serving["d"][1]}) == 2


def fails(word: str) -> Outcome[str, str]:
    raise ZeroDivisionError(word)


def test_after_a_fault_each_is_served_by_itself_and_one_alone_is_at_fault() -> None:
    desk = Desk(c=fails)
    answers = asked(desk, "a", "b", "c", "d")
    assert isinstance(answers["c"].exception(), ZeroDivisionError)
    assert [answers[word].result() for word in "abd"] == ["A", "B", "D"]
    assert sorted(desk.rounds[2:]) == [["b"], ["c"], ["d"]]


def test_one_that_fails_alone_is_not_tried_twice_and_the_next_one_is_served() -> None:
    desk = Desk(a=fails)
    desk.may_go.set()
    with pytest.raises(ZeroDivisionError):
        desk.ask("a")
    assert desk.ask("b") == "B"
    assert desk.rounds == [["a"], ["b"]]


def test_a_thread_that_dies_while_it_serves_leaves_nobody_behind() -> None:
    def dies(word: str) -> Outcome[str, str]:
        raise SystemExit

    desk = Desk(a=dies)
    pool = ThreadPoolExecutor(3)
    first = pool.submit(desk.ask, "a")
    assert desk.has_begun.wait(SOON)
    others = [pool.submit(desk.ask, word) for word in "bc"]
    until(lambda: len(desk.queue._waiting) == 2)
    desk.may_go.set()
    assert [other.result() for other in others] == ["B", "C"]
    assert isinstance(first.exception(), SystemExit)
    assert desk.ask("d") == "D"


def test_who_has_waited_too_long_is_sent_away_and_nothing_was_done() -> None:
    desk = Desk()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(desk.ask, "a")
        assert desk.has_begun.wait(SOON)
        second = pool.submit(desk.ask, "b", 0.01)
        assert isinstance(second.exception(), Unavailable)
        desk.may_go.set()
        assert first.result() == "A"
    assert desk.rounds == [["a"]]
    assert desk.ask("c") == "C"


def test_many_threads_for_long_get_each_its_own_answer() -> None:
    served: list[str] = []
    running = threading.Semaphore(1)

    def serve(words: Sequence[str]) -> list[Outcome[str, str]]:
        assert running.acquire(blocking=False), "two rounds at once"
        served.extend(words)
        running.release()
        return [Granted(word.upper()) for word in words]

    queue: Together[str, str] = Together(serve, lambda word: word, most=4)

    def work(name: int) -> Any:
        words = [f"w{name}-{number}" for number in range(100)]
        return [queue.ask(word, patience_seconds=SOON) for word in words] == [word.upper() for word in words]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert len(served) == len(set(served)) == 800

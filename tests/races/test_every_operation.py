"""Something goes wrong at every single round trip of every operation that writes: done again, all is right.

The session ends before a statement or after it, COMMIT among them, of which the client then cannot know what
became; or the server answers with a fault, its own or of two that waited for each other. Both where a process
does the thing for the first time, its statements not yet prepared, and where it has done so before.

PROOF=all tries every round trip with every fault; else so many of each operation's as FAULT_SAMPLE says
(0.5: of every other operation one), chosen by FAULT_SEED (1).
"""

import importlib
import inspect
import os
import pkgutil
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import psycopg
import pytest
from django.db import Error, connection
from pytest_django import DjangoDbBlocker

from hamiacct import operations
from hamiacct.operations import audit
from hamiacct.queries import fits, fleet
from tests.live import database_url
from tests.races import deeds
from tests.races.deeds import DEEDS, Deed
from tests.races.site import say
from tests.races.tables import Photograph
from tests.races.wire import Fault, Wire

pytestmark = pytest.mark.django_db(transaction=True)

ALL = os.environ.get("PROOF") == "all"
SAMPLE = float(os.environ.get("FAULT_SAMPLE", "0.5"))
SEED = os.environ.get("FAULT_SEED", "1")

LEFT_BEHIND = """
SELECT pid, state, query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND (state LIKE 'idle in transaction%' OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))
"""


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """A deed to which nothing happened: its round trips, what came of it, and who was called."""

    round_trips: int
    essence: dict[str, list[str]]
    called: frozenset[CodeType]


class Bench:
    """The books of `deeds.furnish`, put back before each try; and the wire to them."""

    def __init__(self) -> None:
        self.direct = psycopg.connect(database_url(), autocommit=True)
        self.wire = Wire(int(connection.settings_dict["PORT"]))
        self._first_day = Photograph.taken(self.direct).back(self.direct)
        deeds.furnish()
        self._furnished = Photograph.taken(self.direct).back(self.direct)
        self._port = connection.settings_dict["PORT"]
        connection.close()
        connection.settings_dict["PORT"] = str(self.wire.port)
        self._known: dict[str, Undisturbed] = {}
        self.tries = 0
        self.struck: set[tuple[str, bool, int]] = set()

    def close(self) -> None:
        connection.close()
        connection.settings_dict["PORT"] = self._port
        self._put_back(self._first_day)
        self.direct.close()
        self.wire.close()

    def begin(self, deed: Deed, *, warm: bool) -> Any:
        """Everything as it was; what the deed is done to. Warm: a session that has done it before."""
        connection.close()
        if warm:
            self._put_back(self._furnished)
            deed.act(deed.prepare())
        self._put_back(self._furnished)
        subject = deed.prepare()
        if not warm:
            connection.close()
        return subject

    def _put_back(self, statements: str) -> None:
        self.direct.execute(statements)
        fleet.forget()

    def undisturbed(self, deed: Deed) -> Undisturbed:
        """What comes of the deed when nothing happens."""
        if deed.name not in self._known:
            called: set[CodeType] = set()
            subject = self.begin(deed, warm=False)
            before = Photograph.taken(self.direct)
            with self.wire.counting() as cold, noting_calls(called):
                deed.act(subject)
            self._finish(deed)
            photograph = Photograph.taken(self.direct)
            deed.undo()
            assert photograph != before, f"{deed} writes nothing"
            self._known[deed.name] = Undisturbed(
                cold.seen, photograph.essence(deed.without), frozenset(called)
            )
        return self._known[deed.name]

    def round_trips(self, deed: Deed, *, warm: bool) -> int:
        """How many the deed takes, at first or from then on."""
        if not warm:
            return self.undisturbed(deed).round_trips
        subject = self.begin(deed, warm=True)
        with self.wire.counting() as plan:
            deed.act(subject)
        self._finish(deed)
        deed.undo()
        return plan.seen

    def _finish(self, deed: Deed) -> None:
        connection.close_if_unusable_or_obsolete()  # as the end of a request does
        if deed.then is not None:
            deed.then()

    def strike(self, deed: Deed, number: int, fault: Fault, *, warm: bool) -> None:
        """The round trip of that number meets the fault; then the deed is done again."""
        self.tries += 1
        self.struck.add((deed.name, warm, number))
        expected = self.undisturbed(deed)
        deed.undo()
        subject = self.begin(deed, warm=warm)
        with self.wire.struck(number, fault) as plan:
            failed = self._acted(deed, subject)
        assert plan.has_struck, (plan, "it never came to that")
        connection.close_if_unusable_or_obsolete()  # as the end of a request does
        if failed:
            try:
                deed.act(subject)
            except deed.answers:
                assert deed.in_parts or fault is Fault.ANSWER_LOST, "only what was done may be answered so"
        self._finish(deed)
        self._nothing_is_left_behind()
        essence = Photograph.taken(self.direct).essence(deed.without)
        for table, rows in expected.essence.items():
            assert essence[table] == rows, table
        assert audit.audit().discrepancies == ()
        self._what_is_kept_is_what_is_stored()
        deed.undo()

    def _acted(self, deed: Deed, subject: Any) -> bool:
        """Whether whoever asked for it was told of a failure."""
        try:
            deed.act(subject)
        except Error:
            return True
        return False

    def _what_is_kept_is_what_is_stored(self) -> None:
        """What this process keeps of the fleet, through all that went wrong, is what another would read."""
        kept = fits.offers("", None)
        fleet.forget()
        assert kept == fits.offers("", None)

    def _nothing_is_left_behind(self) -> None:
        """No session holds a lock or a transaction; one that was cut off takes a moment to notice."""
        end = time.monotonic() + 5
        while left := self.direct.execute(LEFT_BEHIND).fetchall():
            assert time.monotonic() < end, left
            time.sleep(0.01)


class noting_calls:  # noqa: N801  # reads as what it does
    """Remembers the code of every function that is called in the block."""

    def __init__(self, called: set[CodeType]) -> None:
        self.called = called

    def __enter__(self) -> None:
        self.before = sys.getprofile()
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self.before)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.called.add(frame.f_code)


@pytest.fixture(scope="module")
def bench(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Bench]:
    with django_db_blocker.unblock():
        bench = Bench()
        yield bench
        bench.close()
        say(f"{bench.tries} faults at {len(bench.struck)} round trips of {len(DEEDS)} operations")


def chosen(bench: Bench, deed: Deed) -> Iterator[tuple[int, Fault, bool]]:
    """Which faults are tried: all there are, or some."""
    if ALL:
        for warm, faults in ((False, [*Fault]), (True, [Fault.QUESTION_LOST, Fault.ANSWER_LOST])):
            for number in range(bench.round_trips(deed, warm=warm)):
                yield from ((number, fault, warm) for fault in faults)
        return
    rng = random.Random(f"{SEED} {deed}")
    for _ in range(int(SAMPLE + rng.random())):
        warm = rng.random() < 0.3
        yield rng.randrange(bench.round_trips(deed, warm=warm)), rng.choice([*Fault]), warm


@pytest.mark.parametrize("deed", DEEDS, ids=str)
def test_whatever_goes_wrong_is_made_good_by_doing_it_again(bench: Bench, deed: Deed) -> None:
    for number, fault, warm in chosen(bench, deed):
        try:
            bench.strike(deed, number, fault, warm=warm)
        except Exception as failure:  # any failure is told with where it was struck, and goes on its way
            failure.add_note(f"{deed}: round trip {number}, {'not ' * (not warm)}done before: {fault}")
            raise


# --- none is forgotten ---------------------------------------------------------------------------------

READ = "it only reads"
EXCUSED = {
    "audit.audit": READ,
    "scrapes.state": READ,
    "inbox.is_much": READ,
    "bulk.is_too_much": READ,
}


def public_functions() -> dict[str, CodeType]:
    """Every function of `hamiacct.operations` that others may call."""
    found = {}
    for module in pkgutil.iter_modules(operations.__path__):
        whole = importlib.import_module(f"{operations.__name__}.{module.name}")
        for name, function in inspect.getmembers(whole, inspect.isfunction):
            if function.__module__ == whole.__name__ and not name.startswith("_"):
                found[f"{module.name}.{name}"] = function.__code__
    return found


def test_every_operation_is_done_here_or_excused(bench: Bench) -> None:
    called = frozenset().union(*(bench.undisturbed(deed).called for deed in DEEDS))
    missing = {name for name, code in public_functions().items() if code not in called}
    assert missing == EXCUSED.keys()

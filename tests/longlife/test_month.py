"""A busy cluster for days on end: tables are swept, indexes used, memory and time per decision stay flat.

`make prove-month` lives through thirty days (DAYS=n, PODS_A_DAY=n: others); the suite through a few short
ones. Every day the books agree.
"""

import dataclasses
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median

import pytest
from django.conf import settings
from pytest_django import DjangoDbBlocker

from tests.longlife import month, service
from tests.longlife.cluster import Cluster, Size
from tests.longlife.month import BEGINS, REFUSED_A_DAY, Day, Month

DAYS = int(os.environ.get("DAYS", "0"))
USUAL = Size(
    nodes=40,
    pods_a_day=int(os.environ.get("PODS_A_DAY", "300")),
    namespaces=30,
    ticks_a_day=8,
    lives_hours=20,
)
SHORT = Size(nodes=6, pods_a_day=40, namespaces=4, ticks_a_day=3, nodes_replaced_a_day=2, lives_hours=8)
SHORT_DAYS = 3

# Never swept, and said so in docs/operations.md, "What grows".
KEPT = ("hamiacct_ledgerentry", "django_admin_log")
# Nobody has looked into these for a month, and why they are there all the same.
UNUSED = {
    "hamiacct_usageentry_pkey": "the number of an entry, which Django wants; found by pod and device",
    "hamiacct_namespaceusage_pkey": "the number of a total, which Django wants; found by name and vendor",
    "hamiacct_quotausage_pkey": "the number of a total, which Django wants; found by quota and vendor",
    "hamiacct_listmark_pkey": "the number of a mark, which Django wants; found by kind and namespace",
    "hamiacct_cluster_pkey": "a table of one row",
    "hamiacct_watchlease_pkey": "a table of one row",
    "hamiacct_ledgerhead_pkey": "a table of one row",
    "hamiacct_auditrun_pkey": "a table of one row",
    "hamiacct_feed_pkey": "a table of three rows",
    "hamiacct_watch_pkey": "a table of three rows, and no watcher in this month",
    "hamiacct_apitoken_name_key": "a table of one token here; a name is given once",
    "hamiacct_apitoken_digest_key": "a table of one token here",
    "hamiacct_apitoken_pkey": "a table of one token here",
    "hamiacct_watch_kind_0ad946a4_like": "a table of three rows",
    "decision_by_pod": "by name or by uid is one question, and refusals are few enough to be gone through",
    "device_by_uuid": "a card whose node nobody knows, from a search of the admin",
}


@contextmanager
def quiet() -> Iterator[None]:
    """Without a line for each request: pytest keeps them all until the test is over."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@pytest.fixture
def living(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Month]:
    with quiet(), django_db_blocker.unblock(), service.running(tmp_path, BEGINS) as running:
        if DAYS:
            lives = Month(running, Cluster(USUAL, BEGINS), samples=30, looks_every=3)
        else:
            lives = Month(running, Cluster(SHORT, BEGINS), samples=1, looks_every=DAYS + 10)
        lives.begin()
        yield lives


@pytest.mark.skipif(not DAYS, reason="DAYS is not set: make prove-month sets it")
def test_a_month(living: Month, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(DAYS):
        living.live(1)
        with capsys.disabled():
            tell(living.days[-1])
    unused = month.unused_indexes()
    with capsys.disabled():
        report(living.days, unused)
    check(living.days, settings.HAMIACCT.keep_events_days)
    assert unused - UNUSED.keys() == set()
    is_flat(living.days)


def test_some_short_days(living: Month, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same life, kept for a day instead of a week."""
    kept = dataclasses.replace(settings.HAMIACCT, keep_events_days=1, keep_decisions_days=1)
    monkeypatch.setattr(settings, "HAMIACCT", kept)
    living.live(SHORT_DAYS)
    check(living.days, 1)


def check(days: list[Day], keep_days: int) -> None:
    """The books agreed every day, and the tables are as large as when the first rows were swept."""
    assert [day.number for day in days if day.discrepancies] == []
    settled, last = days[keep_days + 1], days[-1]
    lately = sum(day.shown for day in days[-keep_days - 1 :])
    assert last.rows["hamiacct_event"] <= lately + REFUSED_A_DAY * len(days), "events that are kept"
    usual = {table: rows for table, rows in settled.rows.items() if not table.startswith(KEPT)}
    grown = {
        table: (rows, last.rows[table]) for table, rows in usual.items() if last.rows[table] > 1.3 * rows + 25
    }
    assert grown == {}, "rows of tables, when the first were swept and at the end"
    dead = {table: rows for table, rows in last.dead.items() if rows > 0.3 * last.rows[table] + 1000}
    assert dead == {}
    numbered, there, apart = month.lines_of_the_ledger()
    assert numbered == there > 0
    assert apart == 0
    in_order = {table: rows for table, rows in last.read_in_order.items() if rows > 50_000}
    assert in_order == {}, "rows of history that decisions have gone through"


def is_flat(days: list[Day]) -> None:
    """Neither memory, nor disk, nor time per decision grow with history."""
    keep_days = settings.HAMIACCT.keep_events_days
    settled, last = days[keep_days + 1], days[-1]
    assert last.resident_mib < settled.resident_mib + 16
    assert last.database_mib < settled.database_mib + 16
    swollen = {
        table: (size, last.bytes[table])
        for table, size in settled.bytes.items()
        if not table.startswith(KEPT) and last.bytes[table] > 1.5 * size + 2**20
    }
    assert swollen == {}
    for name in last.seconds:
        first = median(day.seconds[name] / day.yardstick for day in days[1:6])
        then = median(day.seconds[name] / day.yardstick for day in days[-5:])
        assert then < 1.5 * first, f"{name}: {first:.3f} of the yardstick at first, {then:.3f} at last"


def tell(day: Day) -> None:
    """One line a day."""
    names = ("event", "pod", "reservation", "node", "ledgerentry")
    rows = {name: day.rows[f"hamiacct_{name}"] for name in names}
    milliseconds = {name: round(1000 * seconds, 1) for name, seconds in day.seconds.items()}
    say(
        f"day {day.number + 1}: {day.shown} events, {rows}, CPU ms {milliseconds}"
        f" beside {1000 * day.yardstick:.0f}, RSS {day.resident_mib:.0f} MiB,"
        f" backend {day.database_mib:.0f} MiB"
    )


def report(days: list[Day], unused: set[str]) -> None:
    """What there is to know at the end."""
    last = days[-1]
    say(f"rows { ({table: rows for table, rows in last.rows.items() if rows}) }")
    say(f"dead { ({table: rows for table, rows in last.dead.items() if rows}) }")
    say(f"MiB { ({table: round(size / 2**20, 2) for table, size in last.bytes.items() if size > 2**18}) }")
    say(f"read in order by decisions: {days[1].read_in_order}, at last {last.read_in_order}")
    say(f"indexes without a look: {sorted(unused)}; of the ledger: {month.indexes_of_the_ledger()}")
    for name in last.seconds:
        some = (days[1:6], days[-5:])
        first, then = (mean(day.seconds[name] / day.yardstick for day in of_them) for of_them in some)
        say(f"{name}: {first:.3f} of the yardstick in the first days, {then:.3f} in the last")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

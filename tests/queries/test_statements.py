"""A prepared statement answers the same, with a cursor between here and the server or without one."""

import os
import select
import socket
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from hamiacct.queries import statements
from hamiacct.queries.statements import Statement, in_turn

pytestmark = pytest.mark.django_db(transaction=True)

ECHO = Statement(
    "echo",
    "text, bigint, timestamptz, text[], bigint[], bigint",
    "SELECT $1, $2, $3, $4, $5, $6, true, $1 IS NULL, array_length($4, 1)",
)
HALF = Statement("half", "bigint", "SELECT 1 / $1")
SAY = Statement("say", "text", "SELECT set_config('application_name', $1, true)")
SAID = Statement("said", "", "SELECT current_setting('application_name')")
PID = Statement("pid", "", "SELECT pg_backend_pid()")
NOW = datetime(2026, 12, 1, 14, 30, 1, 5, tzinfo=UTC)
PLAIN = ("team-a", 7, NOW, ["n1", "n2"], [1, -2], None)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of statements that went without a cursor."""
    names: list[str] = []
    inner = statements._answered

    def told(server: Any, name: str, texts: Any) -> Any:
        names.append(name)
        return inner(server, name, texts)

    monkeypatch.setattr(statements, "_answered", told)
    return names


@pytest.mark.parametrize(
    "parameters",
    [
        PLAIN,
        ("", 2**62, NOW, [], [], 0),
        ('it\'s \\ "quoted" {a,b} %s $1', 0, NOW, ["a,b", 'c"d', "e\\f", "{}", "NULL", "", " "], [], 1),
        (None, None, None, None, None, None),
        ("straße \U0001f600", 1, NOW, ["straße"], [1], 1),
    ],
)
def test_both_ways_read_and_write_alike(parameters: tuple[Any, ...], answered: list[str]) -> None:
    first = ECHO.row(*parameters)
    assert answered == []  # it is prepared by a cursor
    again = ECHO.row(*parameters)
    with CaptureQueriesContext(connection) as taken:
        by_cursor = ECHO.row(*parameters)
    assert len(taken) == 1
    assert first == again == by_cursor
    assert by_cursor[:6] == parameters
    assert answered == ["echo"] * all(str(one).isascii() for one in parameters)
    with transaction.atomic():  # in one text with another, and with what begins the transaction
        assert in_turn((PID, ()), (ECHO, parameters), (ECHO, parameters))[1:] == [[first], [first]]
        assert in_turn((ECHO, parameters), (PID, ()))[0] == [first]


def test_what_no_text_can_hold_is_refused_either_way() -> None:
    ECHO.row(*PLAIN)
    with pytest.raises((DataError, ValueError), match="NUL"):
        ECHO.row("a\0b", *PLAIN[1:])
    with pytest.raises(UnicodeEncodeError):
        ECHO.row("\udc80", *PLAIN[1:])
    assert ECHO.row(*PLAIN)[:6] == PLAIN


def test_faults_are_told_as_by_a_cursor(answered: list[str]) -> None:
    HALF.row(1)
    with pytest.raises(DataError, match="division by zero") as quick:
        HALF.row(0)
    assert answered == ["half"]
    with CaptureQueriesContext(connection), pytest.raises(DataError) as slow:
        HALF.row(0)
    assert type(quick.value.__cause__) is type(slow.value.__cause__)
    assert HALF.row(1) == (1,)


def test_statements_in_turn_have_what_those_before_did_and_end_at_the_first_that_fails() -> None:
    HALF.row(1)
    SAID.row()
    SAY.row("now")
    with transaction.atomic():
        assert in_turn((SAY, ("one",)), (SAID, ()), (SAY, ("two",))) == [[("one",)], [("one",)], [("two",)]]
        assert in_turn((SAID, ()), (HALF, (1,))) == [[("two",)], [(1,)]]
        assert in_turn() == []
    assert SAID.row() != ("two",)  # said for the transaction alone
    with pytest.raises(DataError), transaction.atomic():
        in_turn((SAY, ("one",)), (HALF, (0,)), (SAY, ("two",)))
    assert SAID.row() != ("one",)


def test_a_lost_connection_is_replaced_but_within_a_transaction(answered: list[str]) -> None:
    (first,) = PID.row()
    with transaction.atomic():
        assert PID.row() == (first,)
        assert PID.row() == (first,)
        assert answered == ["pid", "pid"]
    _end(first)
    (second,) = PID.row()
    assert second != first
    with pytest.raises(OperationalError), transaction.atomic():  # noqa: PT012  # the transaction is lost
        PID.row()
        _end(second)
        PID.row()
    assert PID.row()[0] not in (first, second)


def test_what_could_not_be_sent_is_a_lost_connection() -> None:
    """The driver learns of it in writing; where there is something to read it takes the line for good."""
    (first,) = PID.row()
    with connection.cursor() as cursor:
        cursor.execute("LISTEN news")
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("NOTIFY news")
    other.close()
    select.select([connection.connection.fileno()], [], [], 10)
    with socket.socket(fileno=os.dup(connection.connection.fileno())) as line:
        line.shutdown(socket.SHUT_WR)
    assert PID.row() != (first,)


def _end(pid: int) -> None:
    """Ends a session, from another one, and waits until it is gone."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    other.close()


def test_what_was_prepared_before_a_fault_is_not_prepared_twice() -> None:
    """A statement that is prepared stays so when its transaction is given up."""
    statement = Statement("hamiacct_test_fault", "int", "SELECT $1 + 1")

    def broken(execute: Any, sql: str, *rest: Any) -> Any:
        answer = execute(sql, *rest)
        if sql.startswith("PREPARE"):
            raise RuntimeError(sql)
        return answer

    with pytest.raises(RuntimeError), transaction.atomic(), connection.execute_wrapper(broken):
        statement.rows(1)
    assert statement.rows(1) == [(2,)]
    assert statement.rows(2) == [(3,)]

"""Statements that the hot questions ask: planned once per connection, read as tuples.

The object-relational mapper takes longer to write such a statement anew than PostgreSQL to answer it, and
the cursors between here and the server take longer than both. So a statement whose parameters are plain is
handed to the server as it is; any other goes by a cursor, which says and does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ConnStatus, Escaping, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

_prepared: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
"""What each connection to the server has prepared already."""
_tried: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
"""What each was told to prepare, whatever came of it."""

Row = tuple[Any, ...]
Answer = TypeVar("Answer")

_BEGUN, _TO_BEGIN = TransactionStatus.INTRANS, TransactionStatus.IDLE


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with numbered parameters ($1, $2, ...) of these types, known to the server by `name`."""

    name: str
    types: str
    sql: str

    def rows(self, *parameters: Any) -> list[Row]:
        """The rows of the answer.

        Django asks a connection for a sign of life before its first use in a request; here the statement
        is that sign: where the connection turns out to be gone, another one is asked, once.
        """
        return trusting(partial(self._asked, parameters))

    def row(self, *parameters: Any) -> Row:
        """The only row."""
        (row,) = self.rows(*parameters)
        return row

    def _asked(self, parameters: Sequence[Any], asked: BaseDatabaseWrapper) -> list[Row]:
        asked.ensure_connection()
        server = asked.connection
        known = _prepared.setdefault(server, set())
        texts = _texts_of(parameters)
        if self.name not in known or texts is None or not _is_plain(asked):
            return self._by_cursor(parameters, asked, known)
        with asked.wrap_database_errors:
            return _answered(server, self.name, texts)

    def _by_cursor(self, parameters: Sequence[Any], asked: BaseDatabaseWrapper, known: set[str]) -> list[Row]:
        with asked.cursor() as cursor:
            if self.name not in known:
                self._prepare(cursor, asked.connection)
                known.add(self.name)
            places = f"({', '.join(['%s'] * len(parameters))})" if parameters else ""
            cursor.execute(f"EXECUTE {self.name} {places}", parameters)
            rows: list[Row] = cursor.fetchall()
        return rows

    def _prepare(self, cursor: CursorWrapper, server: object) -> None:
        """What is prepared outlives a transaction that is given up, so after a fault the server is asked."""
        tried = _tried.setdefault(server, set())
        if self.name in tried:
            cursor.execute("SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE name = %s)", [self.name])
            (is_prepared,) = cursor.fetchone()
            if is_prepared:
                return
        tried.add(self.name)
        types = f"({self.types})" if self.types else ""
        cursor.execute(f"PREPARE {self.name} {types} AS {self.sql}")


Asked = tuple[Statement, Sequence[Any]]
"""A statement with its parameters."""


def in_turn(*statements: Asked) -> list[list[Row]]:
    """The answers to statements of one transaction, each asked when the one before it was answered.

    They are sent in one go where all of them are plain. Each sees what is committed by the time it begins,
    and has what those before it locked.
    """
    if not statements:
        return []
    asked = connections[DEFAULT_DB_ALIAS]
    assert asked.in_atomic_block, "several statements are one transaction"
    asked.ensure_connection()
    server = asked.connection
    known = _prepared.setdefault(server, set())
    plain = [
        (statement.name, texts)
        for statement, parameters in statements
        if statement.name in known and (texts := _texts_of(parameters)) is not None
    ]
    if len(plain) < len(statements) or not _is_plain(asked):
        return [statement.rows(*parameters) for statement, parameters in statements]
    with asked.wrap_database_errors:
        return _answered_in_turn(server, plain)


def trusting(work: Callable[[BaseDatabaseWrapper], Answer]) -> Answer:
    """What the work on this thread's connection answers, which is not asked for a sign of life before.

    Where it turns out to be gone the work is done once more, on another: it must be such that this does no
    harm. In a transaction it is the work of whoever began that.
    """
    asked = connections[DEFAULT_DB_ALIAS]
    if asked.in_atomic_block:
        return work(asked)
    asked.health_check_done = True  # type: ignore[attr-defined]  # Django's own flag
    try:
        return work(asked)
    except (OperationalError, InterfaceError):
        if _is_alive(asked):
            raise
        asked.close()
        return work(asked)


def _is_alive(asked: BaseDatabaseWrapper) -> bool:
    return asked.connection is not None and asked.is_usable()


# --- without a cursor --------------------------------------------------------------------------------


def _is_plain(asked: BaseDatabaseWrapper) -> bool:
    """Whether nobody listens between here and the server, and no transaction has to be given up."""
    if asked.queries_logged or asked.execute_wrappers or asked.needs_rollback:
        return False
    server = asked.connection
    return bool(server.autocommit or server.pgconn.transaction_status in (_BEGUN, _TO_BEGIN))


def _answered(server: Any, name: str, texts: Sequence[bytes | None]) -> list[Row]:
    """The rows that a prepared statement answers; values are read as a cursor would read them."""
    if not server.autocommit and server.pgconn.transaction_status == _TO_BEGIN:
        result = server.pgconn.exec_(b"BEGIN; " + _execute(server, name, texts))
    else:
        result = server.pgconn.exec_prepared(name.encode(), texts)
    if server.pgconn.status != ConnStatus.OK:
        raise psycopg.OperationalError(f"the connection is lost: {result.get_error_message()}")
    if result.status != ExecStatus.TUPLES_OK:
        raise _fault_of(result)
    return _read(server, result)


def _fault_of(result: PGresult) -> psycopg.Error:
    """What failed. Of a fault without a code the server knows nothing: the line was lost in sending."""
    fault = error_from_result(result)
    return fault if fault.sqlstate else psycopg.OperationalError(str(fault))


def _answered_in_turn(
    server: Any, statements: Sequence[tuple[str, Sequence[bytes | None]]]
) -> list[list[Row]]:
    """The same for several, sent as one text, which ends at the first that fails."""
    texts = [_execute(server, name, parameters) for name, parameters in statements]
    if not server.autocommit and server.pgconn.transaction_status == _TO_BEGIN:
        texts.insert(0, b"BEGIN")
    server.pgconn.send_query(b"; ".join(texts))
    results = server.wait(execute(server.pgconn))
    if server.pgconn.status != ConnStatus.OK:
        raise psycopg.OperationalError("the connection is lost")
    for result in results:
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise _fault_of(result)
    return [_read(server, result) for result in results if result.status == ExecStatus.TUPLES_OK]


def _read(server: Any, result: Any) -> list[Row]:
    reader = Transformer(server)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple)


def _execute(server: Any, name: str, texts: Sequence[bytes | None]) -> bytes:
    """The same as a text, to be sent with another in one go."""
    escaping = Escaping(server.pgconn)
    values = b", ".join(b"NULL" if text is None else escaping.escape_literal(text) for text in texts)
    return b"EXECUTE %s (%s)" % (name.encode(), values) if texts else b"EXECUTE " + name.encode()


def _texts_of(parameters: Sequence[Any]) -> list[bytes | None] | None:
    """The parameters as PostgreSQL reads them; None where one of them is not of the plain kinds."""
    texts: list[bytes | None] = []
    for parameter in parameters:
        text = _text_of(parameter)
        if text is None and parameter is not None:
            return None
        texts.append(text)
    return texts


def _text_of(parameter: Any) -> bytes | None:
    """One parameter; None for NULL, and for what only a cursor can write or refuse."""
    kind = type(parameter)
    if kind is str:
        # A text of the server's ends at a NUL.
        return None if "\0" in parameter or not parameter.isascii() else parameter.encode()
    if kind is int:
        return b"%d" % parameter
    if kind is datetime:
        return None if parameter.tzinfo is None else parameter.isoformat().encode()
    if kind is list:
        return _array_of(parameter)
    return None


def _array_of(items: Sequence[Any]) -> bytes | None:
    """A list of texts or of numbers in the form of an array."""
    if all(type(item) is int for item in items):
        return b"{%s}" % b",".join(b"%d" % item for item in items)
    if all(type(item) is str and item.isascii() and "\0" not in item for item in items):
        quoted = [item.replace("\\", "\\\\").replace('"', '\\"') for item in items]
        return ('{"' + '","'.join(quoted) + '"}').encode()
    return None

"""Many rows in one statement: arrays or one JSON text in, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from django.db import connection


def execute(statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Runs `statement` once with one array parameter per column of `rows`; nothing without rows."""
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])


def text(rows: Sequence[Any]) -> str:
    """The rows as one JSON text: one parameter, written ten times as fast as an array of each column."""
    return orjson.dumps(rows).decode()


def plan_anew() -> None:
    """Statements of this transaction are planned by the tables as they are.

    A plan that was kept from when a table was almost empty reads all of it, for every row that is looked for,
    until somebody analyses the table. A batch is worth the milliseconds.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")


# Out of memory, beyond one of the server's limits, or beyond the time a statement may take.
TOO_MUCH_STATES = frozenset(("53200", "54000", "57014"))


def is_too_much(fault: Exception) -> bool:
    """Whether the database is there and well, and was asked to do more at once than it can."""
    return getattr(fault.__cause__, "sqlstate", None) in TOO_MUCH_STATES

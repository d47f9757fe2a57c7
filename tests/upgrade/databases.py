"""Databases at a migration's state, on the server of the tests: made, filled, migrated, looked at."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from psycopg import sql

from tests.upgrade import store, story

STATES = Path(__file__).parent / "states"
MONTHS = 3


_numbers = count()
_templates: list[str] = []
"""Databases that are kept to be copied, one a migration, as far as anybody asked for them."""


@contextmanager
def at(name: str) -> Iterator[None]:
    """A new database as the migrations up to that one make it; this thread's connection is to it meanwhile.

    Each is a copy of the one before, migrated by one more.
    """
    names = store.names()
    for number, each in enumerate(names[: names.index(name) + 1]):
        if number == len(_templates):
            before = _templates[-1] if _templates else "template1"
            template = f"upgrade_{os.getpid()}_{each}"
            _create(template, before)
            _templates.append(template)
            with _connected_to(template):
                migrate(each)
    copy = f"upgrade_{os.getpid()}_{next(_numbers)}"
    _create(copy, _templates[names.index(name)])
    try:
        with _connected_to(copy):
            yield
    finally:
        _drop(copy)


def drop_templates() -> None:
    """Leaves the server as it was."""
    while _templates:
        _drop(_templates.pop())


@contextmanager
def _connected_to(name: str) -> Iterator[None]:
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


def _create(name: str, template: str) -> None:
    made = "CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy"
    _execute(sql.SQL(made).format(sql.Identifier(name), sql.Identifier(template)))


def _drop(name: str) -> None:
    _execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _execute(statement: sql.Composed) -> None:
    with psycopg.connect(settings.HAMIACCT.database_url, autocommit=True) as server:
        server.execute(statement)


def migrate(name: str | None = None) -> None:
    """Migrates everything of ours to that migration, without one to the newest."""
    executor = MigrationExecutor(connection)
    targets = executor.loader.graph.leaf_nodes("hamiacct") if name is None else [("hamiacct", name)]
    executor.migrate(targets)
    connection.close()


def state(name: str) -> story.Rows:
    """The rows that are kept of a migration's days."""
    found: story.Rows = json.loads((STATES / f"{name}.json").read_text())
    return found


def fill(rows: Mapping[str, list[dict[str, Any]]]) -> None:
    """Rows into a database that migrations alone have written in."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        for table, of_table in rows.items():
            if table == "hamiacct_ledgerentry":
                first = date.fromisoformat(min(row["at"] for row in of_table)[:10])
                cursor.execute("SELECT hamiacct_ensure_ledger_partitions(%s, %s)", [first, MONTHS])
            elif table in ("hamiacct_feed", "hamiacct_ledgerhead"):
                cursor.execute(f"DELETE FROM {table}")
            cursor.execute(
                f"INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, %s::json)",
                [json.dumps(of_table)],
            )
            if "id" in of_table[0] and _is_numbered(table):
                cursor.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
                )
        cursor.execute("SET session_replication_role = origin")


def _is_numbered(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id') IS NOT NULL", [table])
        return bool(cursor.fetchone()[0])


def rows() -> story.Rows:
    """Every row of ours as it is now."""

    def execute(statement: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    return story.rows(execute)

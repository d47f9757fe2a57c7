"""Databases, callers, and the service as it runs in earnest."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from psycopg import sql
from pytest_django import DjangoDbBlocker
from rest_framework.test import APIClient

from devservers.pytest_plugin import OPERATOR_TOKEN
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from hamiacct.queries import fleet
from tests.live import LiveStack


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """Names the database after this process, so that two runs can share one server."""
    connection.settings_dict["TEST"]["NAME"] = f"test_hamiacct_{os.getpid()}"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Django's own, with a way back to the first day.

    After a test that commits, every table must be as the migrations left it. The ledger refuses to be
    emptied, to everybody but a superuser who says that no trigger counts; nobody else ever says so.
    """
    with django_db_blocker.unblock():
        tables = _tables()
        first_day = {table: rows for table in tables if (rows := _rows(table)) is not None}

    def back_to_the_first_day(_: list[str]) -> None:
        # On a replica no foreign key is checked either, so the order of the tables does not matter.
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")
            names = sql.SQL(", ").join(map(sql.Identifier, tables))
            cursor.execute(sql.SQL("TRUNCATE {}").format(names))
            for table, rows in first_day.items():
                insert = "INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, %s::json)"
                cursor.execute(sql.SQL(insert).format(sql.Identifier(table)), [rows])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.ops, "execute_sql_flush", back_to_the_first_day)
        yield


def _tables() -> list[str]:
    """Every table that is no partition of another, but the record of migrations."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
            " AND relname <> 'django_migrations' ORDER BY relname"
        )
        return [name for (name,) in cursor.fetchall()]


def _rows(table: str) -> str | None:
    """The table's rows as a JSON text; None without any."""
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT json_agg(t)::text FROM {} AS t").format(sql.Identifier(table)))
        found = cursor.fetchone()
        return found[0] if found else None


@pytest.fixture(autouse=True)
def fresh_fleet() -> None:
    """Each test has a database of its own, and what this process keeps of another is forgotten."""
    fleet.forget()


@pytest.fixture
def api() -> APIClient:
    """A client of the HTTP interface with an operator's token."""
    return client_with(OPERATOR_TOKEN)


@pytest.fixture
def api_as(db: None) -> Callable[[Role], APIClient]:
    """Makes a client whose token has the given role."""

    def client(role: Role) -> APIClient:
        return client_with(tokens.create(f"a {role}", role, at=datetime.now(UTC)))

    return client


def client_with(token: str) -> APIClient:
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    return client


@pytest.fixture
def live_stack(transactional_db: None, tmp_path: Path) -> Iterator[Callable[..., LiveStack]]:
    """Starts the service in processes of its own on this test's database, and ends it with the test.

    stack = live_stack()                            web and one worker, on Redis
    stack = live_stack(beat=True)                   and beat
    stack = live_stack(redis=False)                 the web process alone
    stack = live_stack(HAMIACCT_MAX_LAG_SECONDS=1)  with a setting
    """
    started: list[LiveStack] = []

    def start(*, redis: bool = True, worker: bool = True, beat: bool = False, **settings: Any) -> LiveStack:
        folder = tmp_path / f"stack-{len(started)}"
        folder.mkdir()
        named = {name: str(value) for name, value in settings.items()}
        stack = LiveStack(folder, with_redis=redis, settings=named)
        started.append(stack)
        if redis:
            stack.flush_redis()
            if worker:
                stack.start_worker()
            if beat:
                stack.start_beat()
        stack.start_web()
        return stack

    yield start
    for stack in started:
        stack.close()

"""The service of today in this process, on a server and a clock of its own.

Time is what the story says: `timezone.now` for the service, `clock_timestamp()` for the database, which finds
ours before its own. Everything else is as in earnest: the HTTP interface, the tasks of the beat table, one
connection for the whole time, so that what was prepared on the first day is asked on the last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone

from devservers.postgres import Postgres
from hamiacct import celery, tasks
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from hamiacct.queries import fleet

CLOCK = """
CREATE SCHEMA story;
CREATE FUNCTION story.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT current_setting(''story.now'')::timestamptz';
ALTER DATABASE hamiacct SET search_path = public, story, pg_catalog;
ALTER DATABASE hamiacct SET story.now = '2000-01-01';
"""
# A day takes seconds here, so a minute between two looks of the vacuum would be hours.
HASTE = ("autovacuum_naptime = '1s'", "autovacuum_vacuum_cost_delay = 0")


class Service:
    """What the story does with it."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.caller, self.browser = Client(HTTP_HOST="localhost"), Client(HTTP_HOST="localhost")

    def begin(self) -> None:
        """Somebody who calls, and somebody who looks."""
        token = tokens.create("of the story", Role.OPERATOR, at=self.now)
        self.caller.defaults["HTTP_AUTHORIZATION"] = f"Bearer {token}"
        User.objects.create_superuser("somebody")

    def at(self, now: datetime) -> None:
        """It is that time now."""
        self.now = now
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('story.now', %s, false)", [now.isoformat()])

    def post(self, path: str, body: Any, *, may_fail: bool = False) -> Any:
        answer = self.caller.post(path, json.dumps(body), content_type="application/json")
        refused = may_fail and answer.status_code in (403, 409)
        assert answer.status_code < 300 or refused, (path, answer.status_code, answer.content[:500])
        return answer.json() if answer.content else None

    def delete(self, path: str) -> None:
        assert self.caller.delete(path).status_code < 300

    def get(self, path: str) -> Any:
        answer = self.caller.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.content[:500])
        return answer.json() if "json" in answer["Content-Type"] else answer.content

    def look_at_the_admin(self, *paths: str) -> None:
        """Somebody signs in, looks, and never signs out."""
        browser = Client(HTTP_HOST="localhost")
        browser.force_login(User.objects.get(), "django.contrib.auth.backends.ModelBackend")
        for path in paths:
            answer = browser.get(path)
            assert answer.status_code == 200, (path, answer.status_code)

    def list(self, body: Any) -> None:
        """A full list, confirmed where it would end much."""
        answer = self.caller.post("/api/v1/snapshots", json.dumps(body), content_type="application/json")
        if answer.status_code == 409 and "would_end" in answer.json():
            self.post(f"/api/v1/snapshots?confirm={answer.json()['would_end']}", body)
        else:
            assert answer.status_code == 200, answer.content[:500]

    def beat(self) -> None:
        """Every task of the beat table, once."""
        for name in celery.BEAT:
            getattr(tasks, name.rpartition(".")[2])()


@contextmanager
def running(folder: Path, now: datetime) -> Iterator[Service]:
    """The service on an empty database, until the end; then the connection is what it was."""
    server = Postgres(folder, durable=False)
    before = dict(connection.settings_dict)
    connection.close()
    service = Service(now)
    try:
        connection.settings_dict |= {"NAME": "hamiacct", "PORT": server.port, "HOST": "127.0.0.1"}
        connection.settings_dict["USER"] = "hamiacct"
        call_command("migrate", verbosity=0)
        with connection.cursor() as cursor:
            for statement in filter(str.strip, CLOCK.split(";\n")):
                cursor.execute(statement)
            for setting in HASTE:
                cursor.execute(f"ALTER SYSTEM SET {setting}")
            cursor.execute("SELECT pg_reload_conf()")
        connection.close()
        fleet.forget()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(timezone, "now", lambda: service.now)
            service.at(now)
            service.begin()
            yield service
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)
        fleet.forget()
        server.stop()


def seconds_of(work: Callable[[], object]) -> float:
    """CPU seconds that a work takes, here and in the database's process, which counts by the hundredth."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    backend = psutil.Process(pid)
    before = time.process_time() + sum(backend.cpu_times()[:2])
    work()
    return time.process_time() + sum(backend.cpu_times()[:2]) - before

"""manage.py audit, as a process of its own: what it prints, and what cron makes of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from rest_framework.test import APIClient

from hamiacct import models
from tests import watch
from tests.live import database_url

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.django_db(transaction=True)


def run(*words: str, url: str = "") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HAMIACCT_DATABASE_URL": url or database_url()}
    command = [sys.executable, "manage.py", "audit", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def books(api: APIClient) -> Callable[[], None]:
    """A card, a pod on it, and a way to make the books disagree behind everybody's back."""
    sent = watch.events(
        watch.node("n1", watch.card("GPU-a")),
        watch.pod("web", "GPU-a 2048 10"),
        watch.quota("gpu", hard={"limits.nvidia.com/gpumem": "4096"}),
    )
    answer = api.post("/api/v1/events", sent)
    assert {result["outcome"] for result in answer.json()["results"]} == {"applied"}

    def disagree() -> None:
        models.Device.objects.filter(uuid="GPU-a").update(memory_mib_used=3000)

    return disagree


def test_books_that_agree(books: Callable[[], None]) -> None:
    ran = run()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == ("compared 1 pods, 1 entries, 1 devices, 1 namespaces, 1 quotas\nthe books agree\n")


def test_books_that_disagree_are_shown_and_put_right(books: Callable[[], None]) -> None:
    books()
    ran = run()
    assert ran.returncode == 1
    assert "the books disagree in one place" in ran.stderr
    (line,) = [line.split() for line in ran.stdout.splitlines() if "GPU-a" in line]
    assert line == ["devices", "n1/GPU-a", "memory_mib", "3000", "2048"]

    ran = run("--repair")
    assert (ran.returncode, ran.stderr) == (0, "")
    (line,) = [line.split() for line in ran.stdout.splitlines() if "GPU-a" in line]
    assert line == ["devices", "n1/GPU-a", "memory_mib", "3000", "2048"]
    assert ran.stdout.endswith("the books agree\n")
    assert models.LedgerEntry.objects.filter(rule="repaired").count() == 1
    assert run().returncode == 0


def test_an_entry_that_is_wrong_is_not_put_right_by_force(books: Callable[[], None]) -> None:
    """Entries are the truth of a repair; the pod's next event posts the difference."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE hamiacct_usageentry SET memory_mib = 1000")
    ran = run("--repair")
    assert ran.returncode == 1
    assert "entries" in ran.stdout
    assert "disagree in one place" in ran.stderr


def test_a_database_that_is_away_is_no_disagreement() -> None:
    ran = run(url="postgresql://nobody@127.0.0.1:1/none")
    assert ran.returncode == 2
    assert "the books cannot be read" in ran.stderr
    assert "Traceback" not in ran.stderr

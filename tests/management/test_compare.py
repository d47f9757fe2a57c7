"""manage.py compare: the first thing that an operator of HAMi sees."""

import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from hamiacct import models
from tests import watch
from tests.live import database_url
from tests.say import say_manifest

ROOT = Path(__file__).parents[2]
LONG = "GPU-6bf3809b-d8c1-5c3b-8ef3-536aeb3cd364"

pytestmark = pytest.mark.django_db

# What HAMi 2.10 says of the cluster below, and of a pod that is no more.
SAYS = f"""\
hami_gpu_memory_allocated_bytes{{device_uuid="{LONG}",node="n1"}} {20432 << 20}
hami_vgpu_memory_allocated_bytes{{device_uuid="{LONG}",namespace="team-a",node="n1",pod="web"}} {10240 << 20}
hami_vgpu_memory_allocated_bytes{{device_uuid="{LONG}",namespace="team-b",node="n1",pod="train"}} {8192 << 20}
hami_vgpu_memory_allocated_bytes{{device_uuid="{LONG}",namespace="team-a",node="n1",pod="long-gone"}} {2000 << 20}
hami_vgpu_memory_allocated_bytes{{device_uuid="GPU-b",namespace="team-a",node="n1",pod="plain"}} {4096 << 20}
"""  # noqa: E501  # lines as they are


class Ran(NamedTuple):
    """What a run printed, and what cron makes of it."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str) -> Ran:
    """In this process; what goes to the terminal and to scripts is the same in one of its own."""
    out = StringIO()
    try:
        call_command("compare", *words, stdout=out)
    except CommandError as error:
        return Ran(error.returncode, out.getvalue(), str(error))
    return Ran(0, out.getvalue(), "")


def run_alone(*words: str, url: str) -> Ran:
    """As a process of its own."""
    env = {**os.environ, "HAMIACCT_DATABASE_URL": url}
    command = [sys.executable, "manage.py", "compare", *words]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def send(api: APIClient) -> Callable[..., None]:
    def send(*objects: Any) -> None:
        answer = api.post("/api/v1/events", watch.events(*objects)).json()
        assert {result["outcome"] for result in answer["results"]} == {"applied"}, answer

    assert api.post("/api/v1/snapshots?complete=1").status_code == 200
    return send


@pytest.fixture
def _booked_by_the_old_rule(send: Callable[..., None]) -> None:
    """The annotations are the same in every version; what 2.10 made of them was not.

    On one card a sidecar beside its app, and a peak that a running sidecar holds back. They come to more than
    the card has, and HAMi offers room on it.
    """
    send(
        watch.node("n1", watch.card(LONG, memory=22000), watch.card("GPU-b")),
        say_manifest(f"sidecar 10240 on {LONG}, running", f"app 10240 on {LONG}", name="web", uid="u-web"),
        say_manifest(
            f"init 8192 on {LONG}, succeeded",
            f"sidecar 1024 on {LONG}, running",
            f"app 2048 on {LONG}",
            name="train",
            uid="u-train",
            namespace="team-b",
        ),
        say_manifest("app 4096 on GPU-b", name="plain", uid="u-plain"),
    )


def sections(page: str) -> dict[str, list[list[str]]]:
    """The tables of a page: their titles, in order, and the cells of their rows."""
    found: dict[str, list[list[str]]] = {}
    blocks = [block.splitlines() for block in page.split("\n\n") if block.strip()]
    for title, table in zip(blocks[1::2], blocks[2::2], strict=True):
        rule = next(number for number, line in enumerate(table) if set(line.strip()) == {"─"})
        found[title[-1]] = [line.split() for line in table[rule + 1 :]]
    return found


def test_every_pod_counted_short_is_named_with_both_numbers(_booked_by_the_old_rule: None) -> None:
    ran = run()
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (
        "1 card holds more than its total; 1 pod is counted 10 GiB and 1 slot short; "
        "1 pod holds back 5 GiB that would be free.\n"
    ) in ran.stdout
    found = sections(ran.stdout)
    assert list(found) == [
        "Cards that hold more than they have",
        "Pods that HAMi counts short",
        "Peaks that are held back: room that would be free",
        "By card",
        "By namespace, as quotas count",
    ]
    (row,) = found["Pods that HAMi counts short"]
    assert row[:5] == ["team-a/web", "n1", LONG, "10240", "20480"]
    (row,) = found["Peaks that are held back: room that would be free"]
    assert row[:5] == ["team-b/train", "n1", LONG, "8192", "3072"]
    (row,) = found["Cards that hold more than they have"]
    assert row[:6] == ["n1", LONG, "team-a/web,", "team-b/train", "18432", "23552"]
    assert [row[0] for row in found["By namespace, as quotas count"]] == ["team-a", "team-b"]


def test_a_version_that_counts_sidecars(_booked_by_the_old_rule: None) -> None:
    ran = run("--formula", "2723")
    assert ran.returncode == 0
    assert list(sections(ran.stdout)) == ["Cards that hold more than they have"]


@pytest.mark.django_db(transaction=True)
def test_scripts_are_told_by_the_exit_status(_booked_by_the_old_rule: None) -> None:
    ran = run_alone("--fail-on-difference", "--namespace", "team-a", url=database_url())
    assert ran.returncode == 1
    assert ran.stderr == "CommandError: HAMi and the books differ\n"
    assert "team-a/web" in ran.stdout
    elsewhere = run("--fail-on-difference", "--node", "n9")
    assert (elsewhere.returncode, elsewhere.stderr) == (
        2,
        "the books have not heard of that node or namespace",
    )


def test_nothing_differs(send: Callable[..., None]) -> None:
    send(watch.node("n1", watch.card("GPU-a")), say_manifest("init 10, running", "app 100"))
    ran = run("--fail-on-difference")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("\nNothing differs.\n")
    assert "1 card and 1 pod compared" in ran.stdout
    (row,) = sections(run("--all").stdout)["By card"]
    assert row == ["n1", "GPU-a", "100", "100", "0", "1", "24576"]


def test_what_hami_says_itself_from_a_file(_booked_by_the_old_rule: None, tmp_path: Path) -> None:
    page = tmp_path / "metrics.txt"
    page.write_text(SAYS, encoding="utf-8")
    ran = run("--hami-metrics", str(page))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "HAMi holds 2 GiB for 1 pod that holds nothing there" in ran.stdout
    found = sections(ran.stdout)
    assert found["What HAMi holds for pods that hold nothing there"] == [
        ["team-a/long-gone", "unknown", "n1", LONG, "2000"]
    ]
    (row,) = found["Pods that HAMi counts short"]
    assert row[:6] == ["team-a/web", "n1", LONG, "10240", "10240", "20480"]
    assert [row[1] for row in found["By card"]] == [LONG]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"kind: Pod\n", "names neither cards nor pods"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_metrics(
    _booked_by_the_old_rule: None, tmp_path: Path, text: bytes | None, problem: str
) -> None:
    """The comparison is shown all the same; the status says that something could not be found out."""
    page = tmp_path / "metrics.txt"
    if text is not None:
        page.write_bytes(text)
    ran = run("--hami-metrics", str(page))
    assert ran.returncode == 2
    assert problem in ran.stderr
    assert "team-a/web" in ran.stdout
    assert "Traceback" not in ran.stderr


def test_metrics_that_are_set_and_answer_nothing(
    _booked_by_the_old_rule: None, settings: LazySettings
) -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/metrics"
        settings.HAMIACCT = replace(settings.HAMIACCT, hami_metrics_url=address)
        ran = run()
    assert ran.returncode == 2
    assert "cannot be reached" in ran.stderr
    assert "team-a/web" in ran.stdout


@pytest.mark.parametrize("columns", ["20", "60", "80"])
def test_a_narrow_terminal_loses_no_digit(
    _booked_by_the_old_rule: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    said = tmp_path / "metrics"
    said.write_text(SAYS)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    narrow = run("--hami-metrics", str(said)).stdout
    monkeypatch.undo()
    wide = run("--hami-metrics", str(said)).stdout
    sizes, headings = re.compile(r"\b[0-9]{4,}\b"), ("over by", "short by", "held back")
    assert Counter(sizes.findall(wide)) <= Counter(sizes.findall(narrow))
    assert all(heading in narrow for heading in headings if heading in wide)
    assert re.findall("^What HAMi holds.*$", re.sub("\x1b[^m]*m", "", narrow), re.MULTILINE) == [
        "What HAMi holds for pods that hold nothing there"
    ]


def test_for_programs_it_is_what_the_interface_answers(_booked_by_the_old_rule: None, api: APIClient) -> None:
    ran = run("--json", "--formula", "2.8")
    found = json.loads(ran.stdout)
    answered = api.get("/api/v1/compare?formula=2.8").json()
    assert {**found, "as_of": ""} == {**answered, "as_of": ""}


def test_books_that_are_not_complete_cannot_tell(_booked_by_the_old_rule: None) -> None:
    models.Feed.objects.update(declared_complete_at=None)
    ran = run()
    assert ran.returncode == 2
    assert "the books may not tell all" in ran.stderr
    assert "team-a/web" in ran.stdout


def test_a_database_that_is_away() -> None:
    ran = run_alone(url="postgresql://nobody@127.0.0.1:1/none")
    assert ran.returncode == 2
    assert "the books cannot be read" in ran.stderr
    assert "Traceback" not in ran.stderr

"""Scrapes of real web servers and workers: what they count adds up, whoever is asked or killed."""

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from devservers import launch
from devservers.processes import free_port
from devservers.pytest_plugin import OPERATOR_TOKEN
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.operations import audit, watching
from tests import watch
from tests.asking import asking
from tests.house.test_monitoring import EXPRESSIONS, OF_PROMETHEUS, selectors
from tests.live import LiveStack
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

NEVER_BACK = (
    "hamiacct_events_settled_total",
    "hamiacct_apply_seconds_count",
    "hamiacct_decisions_total",
    "hamiacct_http_requests_total",
    "hamiacct_tasks_total",
)


@dataclass(frozen=True, slots=True)
class Several:
    """Two web servers of two processes each and two workers of two, by the ports that are scraped."""

    stack: LiveStack
    webs: tuple[int, int]
    workers: tuple[int, int]

    def scrapes(self) -> list[str]:
        return [fetched(port) for port in (*self.webs, *self.workers)]

    def sum_of(self, sample: str, **labels: str) -> float:
        """The sum over all scrapes of a sample's series that have these labels."""
        return sum(
            one.value
            for text in self.scrapes()
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == sample and one.labels.items() >= labels.items()
        )

    def sums(self) -> dict[str, float]:
        return {name: self.sum_of(name) for name in NEVER_BACK}


def fetched(port: int, **headers: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return str(response.read().decode())


def answers(port: int) -> bool:
    """Whether a scrape is answered; a worker that has counted nothing yet says nothing."""
    try:
        fetched(port)
    except OSError:
        return False
    return True


@pytest.fixture
def several(live_stack: Callable[..., LiveStack]) -> Several:
    webs, workers = (free_port(), free_port()), (free_port(), free_port())
    stack = live_stack(worker=False, HAMIACCT_METRICS_OPEN=1, HAMIACCT_TRUST_EVENTS=1)
    words = ["hamiacct.server", "--port", str(webs[1])]
    stack.processes["web-2"] = launch.python("web-2", words, stack.env, stack.folder / "web-2.log")
    for name, port in zip(("worker", "worker-2"), workers, strict=True):
        stack.env["HAMIACCT_METRICS_PORT"] = str(port)
        stack.start_worker(name)
    launch.wait_for_web(stack.processes["web-2"], webs[1])
    until(lambda: all(map(answers, workers)))
    return Several(stack, (stack.port, webs[1]), workers)


def test_scrapes_add_up_and_never_go_back(several: Several) -> None:
    webs = cycle(several.webs)
    events_are_counted_once(several, webs)
    decisions_are_counted_once(several, webs)
    holds_are_counted_by_their_ends(several)
    the_logs_say_whose_request_woke_a_worker(several)
    every_name_that_is_asked_for_is_told(several)
    nothing_goes_back_when_processes_are_killed(several, webs)


def send(several: Several, objects: list[dict[str, Any]], webs: Iterator[int], **headers: str) -> None:
    """Each in a call of its own, which is answered when it is applied."""
    for one in objects:
        body = {"events": [{"type": "ADDED", "object": one}]}
        assert posted(next(webs), "/api/v1/events?wait=20", body, **headers)["results"]


def posted(port: int, path: str, body: Any, **headers: str) -> Any:
    given = {"Authorization": f"Bearer {OPERATOR_TOKEN}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=json.dumps(body).encode(), headers=given
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read() or "null")


def events_are_counted_once(several: Several, webs: Iterator[int]) -> None:
    pods = [watch.pod(f"p{number}", "GPU-a 10 0") for number in range(20)]
    send(several, [watch.node("n1", watch.card("GPU-a", slots=100)), *pods, pods[0]], webs)
    # The answer may be out before the worker has counted what it committed.
    until(lambda: several.sum_of("hamiacct_events_settled_total") == 22)
    assert several.sum_of("hamiacct_events_settled_total", kind="Node", outcome="applied") == 1
    assert several.sum_of("hamiacct_events_settled_total", kind="Pod", outcome="applied") == 20
    assert several.sum_of("hamiacct_events_settled_total", kind="Pod", outcome="stale") == 1
    assert several.sum_of("hamiacct_apply_seconds_count", kind="Pod") == 21
    assert several.sum_of("hamiacct_http_requests_total", route="api/v1/events", status="200") == 22


def decisions_are_counted_once(several: Several, webs: Iterator[int]) -> None:
    for number in range(12):
        pod = asking(f"q{number}", gpumem=100 if number % 3 else 10**6)
        assert posted(next(webs), "/api/v1/fit", {"pod": pod})["fits"] is bool(number % 3)
        assert posted(next(webs), "/api/v1/quota/check", {"pod": pod})["allowed"]
    decided = "hamiacct_decisions_total"
    assert several.sum_of(decided) == several.sum_of("hamiacct_decision_seconds_count") == 24
    assert several.sum_of(decided, question="fit", verdict="allowed") == 8
    assert several.sum_of(decided, question="fit", verdict="no-fit", reason="CardInsufficientMemory") == 4
    assert several.sum_of(decided, question="quota-check", verdict="allowed") == 12


def holds_are_counted_by_their_ends(several: Several) -> None:
    web = several.webs[0]
    for name in ("bound", "released"):
        posted(web, "/api/v1/reservations", {"pod": asking(name, gpumem=10)})
    posted(web, "/api/v1/reservations/uid-bound/bound", None)
    posted(web, "/api/v1/reservations/uid-bound/bound", None)  # once more changes nothing
    several.stack.call("DELETE", "/api/v1/reservations/uid-released")
    assert several.sum_of("hamiacct_reservations_ended_total", end="bound") == 1
    assert several.sum_of("hamiacct_reservations_ended_total", end="released") == 1
    assert several.sum_of("hamiacct_reservations_ended_total") == 2


def the_logs_say_whose_request_woke_a_worker(several: Several) -> None:
    logs = [several.stack.folder / f"{name}.log" for name in ("worker", "worker-2")]
    send(several, [watch.pod("woken", "GPU-a 10 0")], iter(several.webs), **{"X-Request-ID": "who-woke-them"})
    until(lambda: any("who-woke-them" in log.read_text() for log in logs))
    [woken] = [line for log in logs for line in lines_of(log) if line.get("woken_by") == "who-woke-them"]
    assert woken["task"] == "hamiacct.tasks.drain_inbox"
    assert woken["event"] == "settled 1 events"
    assert {"level", "logger", "timestamp", "task_id"} <= woken.keys()


def lines_of(log: Path) -> list[Mapping[str, Any]]:
    """All of it: whatever a worker says is JSON."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.strip()]


def every_name_that_is_asked_for_is_told(several: Several) -> None:
    """What rules and dashboard ask for, of a service that has seen something of everything."""
    now = timezone.now()
    assert audit.run_if_due(at=now)
    assert watching.take_lease("somebody", at=now)
    for kind in Kind:
        watching.note(kind, WatchState.WATCHING, version=1, at=now)
    quota = {"limits.nvidia.com/gpumem": "1000"}
    metadata = watch.metadata("gpu", None, namespace="team-a")
    one = {"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": quota}}
    send(several, [one], iter(several.webs))
    texts = several.scrapes()
    told = {
        sample.name
        for text in texts
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    asked = {selector.name for _, expression in EXPRESSIONS for selector in selectors(expression)}
    assert asked - told == set(OF_PROMETHEUS)
    for text in texts:
        approved(text)
    for port in (several.webs[0], several.workers[0]):
        list(openmetrics(fetched(port, Accept="application/openmetrics-text;version=1.0.0")))


def approved(text: str) -> None:
    """By promtool, where it is. Its advice on names (status 3) is about HAMi's, which are kept."""
    program = shutil.which("promtool")
    if program is None:
        return
    checked = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert "error" not in checked.stderr, checked.stderr
    assert checked.returncode in (0, 3), checked.stderr


def nothing_goes_back_when_processes_are_killed(several: Several, webs: Iterator[int]) -> None:
    before = several.sums()
    for name in ("web", "worker"):
        [victim, *_] = [pid for pid in several.stack.children(name) if is_one_of_many(pid)]
        os.kill(victim, signal.SIGKILL)
    until(lambda: all(map(answers, (*several.webs, *several.workers))))
    after = several.sums()
    assert all(after[name] >= before[name] for name in NEVER_BACK), (before, after)
    send(several, [watch.pod(f"r{number}", "GPU-a 10 0") for number in range(6)], webs)
    name = "hamiacct_events_settled_total"
    until(lambda: several.sum_of(name) == before[name] + 6)
    for process in ("web", "worker"):
        log = lines_of(several.stack.folder / f"{process}.log")
        assert any("exit" in line["event"] and line["level"] == "error" for line in log), process


def is_one_of_many(pid: int) -> bool:
    """Not the process that Python's own multiprocessing keeps beside them."""
    return "resource_tracker" not in " ".join(psutil.Process(pid).cmdline())

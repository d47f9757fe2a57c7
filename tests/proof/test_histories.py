"""Histories that Hypothesis makes up; after every step all books say what the model says.

HISTORIES (default 24) is how many, SEED (1) where chance begins. A history that fails is printed as steps,
the shortest that still fails.
"""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test
from rest_framework.test import APIClient

from hamiacct.queries import fleet, holds
from tests.kubeapi.server import ApiServer
from tests.proof import tally
from tests.proof.desk import Desk
from tests.proof.machine import Accounts, Claims, Scheduler

HISTORIES = int(os.environ.get("HISTORIES", "24"))
SEED = int(os.environ.get("SEED", "1"))
AT_ONCE = 100
STEPS = int(os.environ.get("STEPS", "15"))
SHRINK = os.environ.get("SHRINK", "1") == "1"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scheduler(desk: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An API server, and the service in scheduler mode; beat need not wait."""
    with ApiServer() as cluster:
        settings.HAMIACCT = dataclasses.replace(
            settings.HAMIACCT,
            scheduler_mode=True,
            kubeconfig=cluster.kubeconfig(tmp_path),
            bind_lock_wait_seconds=0.0,
        )
        monkeypatch.setattr(holds, "LEFT_OVER_SECONDS", 0)
        Scheduler.cluster, Scheduler.empty = cluster, cluster.backup()
        yield


@pytest.fixture
def desk(api: APIClient, settings: Any) -> Iterator[None]:
    """The books are complete from the start, as `make run` has it."""
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, trust_events=True)
    Desk.api = api
    yield
    fleet.forget()
    tally.keep()


def shares(histories: int) -> list[tuple[int, int]]:
    """Numbers of runs, and how many histories each has."""
    starts = range(0, histories, AT_ONCE)
    return [(number, min(AT_ONCE, histories - start)) for number, start in enumerate(starts)]


@pytest.mark.parametrize(("number", "histories"), shares(HISTORIES - HISTORIES // 4 * 2))
def test_all_books_say_what_the_model_says(desk: None, number: int, histories: int) -> None:
    run(Accounts, SEED * 1000 + number, histories)


@pytest.mark.parametrize(("number", "histories"), shares(HISTORIES // 4))
def test_so_they_do_where_many_ask_for_room(desk: None, number: int, histories: int) -> None:
    run(Claims, SEED * 1000 + number, histories)


@pytest.mark.parametrize(("number", "histories"), shares(HISTORIES // 4))
def test_so_they_do_where_the_service_binds_the_pods(scheduler: None, number: int, histories: int) -> None:
    run(Scheduler, SEED * 1000 + number, histories)


def run(machine: type[Desk], seed: int, histories: int, *, shrink: bool = SHRINK) -> None:
    """So many histories of one kind."""
    run_state_machine_as_test(
        hypothesis.seed(seed)(machine),
        settings=hypothesis.settings(
            max_examples=histories,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        ),
    )

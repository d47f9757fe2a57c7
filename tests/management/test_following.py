"""Following one kind in this process: what holds it up, and what it does about lists it may not believe."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.utils import timezone

from hamiacct import models
from hamiacct.accounting.errors import AnotherCluster
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.management import following
from hamiacct.management.following import Follower
from hamiacct.management.terms import Backoff, Term
from hamiacct.management.watcher import Cluster
from hamiacct.operations import inbox, watching
from tests import watch
from tests.kubeapi.faults import Ending
from tests.kubeapi.server import ApiServer
from tests.live import database_url
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

AN_HOUR = 3600.0


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def faults() -> list[Exception]:
    """Why there was no going on."""
    return []


@pytest.fixture
def follow(cluster: ApiServer, tmp_path: Path, faults: list[Exception]) -> Iterator[Callable[[], Term]]:
    """Begins to follow pods; ends with the test."""
    begun: list[tuple[Term, threading.Thread]] = []
    kubeconfig = cluster.kubeconfig(tmp_path)

    def begin() -> Term:
        watching.take_lease("a test", at=timezone.now())
        term = Term("a test", faults.append, time.monotonic() + AN_HOUR)
        term.listed[Kind.NODE].set()
        term.listed[Kind.QUOTA].set()
        thread = threading.Thread(target=Follower(Kind.POD, term, Cluster(kubeconfig)).run)
        thread.start()
        begun.append((term, thread))
        cluster.wait(lambda: cluster.watching("pods") == 1, 30)
        return term

    yield begin
    for term, thread in begun:
        term.over.set()
        thread.join(10)
        assert not thread.is_alive()


def state() -> tuple[WatchState, str]:
    row = models.Watch.objects.get(kind=Kind.POD)
    return WatchState(row.state), row.detail


def charged() -> int:
    return models.Pod.objects.filter(ended_by="").count()


def test_nothing_more_is_read_while_workers_are_behind(
    cluster: ApiServer, follow: Callable[[], Term], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(following, "MAX_BACKLOG_EVENTS", 4)
    monkeypatch.setattr(following, "BACKLOG_LOOK_SECONDS", 0.01)
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, redis_url="redis://nobody-asks.invalid")
    follow()
    for number in range(5):
        cluster.create(watch.pod(f"p{number}", "GPU-a 1 1"))
    until(lambda: models.Event.objects.count() == 5)
    cluster.create(watch.pod("one-too-many", "GPU-a 1 1"))
    until(lambda: state() == (WatchState.BACKING_OFF, "more than 4 events wait for workers"))
    assert models.Event.objects.count() == 5
    inbox.drain(at=timezone.now())
    until(lambda: models.Event.objects.count() == 6)
    until(lambda: state()[0] is WatchState.WATCHING)


def test_nothing_is_applied_past_the_lease_until_it_is_renewed(
    cluster: ApiServer, follow: Callable[[], Term]
) -> None:
    term = follow()
    term.valid_until = 0.0
    cluster.create(watch.pod("p", "GPU-a 1 1"))
    time.sleep(0.4)  # for nothing to happen
    assert not models.Event.objects.exists()
    term.valid_until = time.monotonic() + AN_HOUR
    until(lambda: charged() == 1)


def test_a_list_that_no_second_one_confirms_ends_nothing_and_is_shown(
    cluster: ApiServer, follow: Callable[[], Term], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "REFUSED_SECONDS", 0.5)
    for number in range(60):
        cluster.create(watch.pod(f"p{number}", "GPU-a 1 1"))
    follow().over.set()
    cluster.wait(lambda: cluster.watching("pods") == 1)
    for number in range(25):
        cluster.delete("Pod", f"p{number}", "team-a")
    first, second = (cluster.hold("LIST", "/pods") for _ in range(2))
    first.go.set()
    thread = threading.Thread(target=follow)
    thread.start()
    assert second.reached.wait(30)
    for number in range(25, 50):
        cluster.delete("Pod", f"p{number}", "team-a")
    second.go.set()
    until(lambda: state()[0] is WatchState.WATCHING and "would end 50 of 60" in state()[1])
    assert charged() == 60
    until(lambda: charged() == 10)  # the third says what the second said
    until(lambda: state() == (WatchState.WATCHING, ""))
    thread.join()


@pytest.mark.parametrize("how", ["at a list", "at a watch"])
def test_another_cluster_that_took_the_place_of_ours_is_noticed_while_it_is_followed(
    cluster: ApiServer,
    follow: Callable[[], Term],
    faults: list[Exception],
    how: str,
) -> None:
    cluster.create(watch.pod("ours", "GPU-a 1 1"))
    follow()
    held = cluster.hold("WATCH", "/pods") if how == "at a list" else None
    cluster.end_watches("pods", Ending.WELL if held else Ending.CUT)
    if held:
        assert held.reached.wait(30)
    cluster.cluster_uid = "uid-of-another"
    cluster.delete("Pod", "ours", "team-a")
    cluster.create(watch.pod("of-another", "GPU-a 1 1"))
    if held:
        cluster.forget()
        held.go.set()
    until(lambda: faults)
    assert isinstance(faults[0], AnotherCluster)
    assert [pod.name for pod in models.Pod.objects.filter(ended_by="")] == ["ours"]


def test_waits_grow_to_half_a_minute_and_no_two_are_alike() -> None:
    backoff = Backoff()
    waits = [backoff.next() for _ in range(12)]
    assert 0.25 <= waits[0] <= 0.5
    assert all(15 <= wait <= 30 for wait in waits[-3:])
    assert len(set(waits)) == len(waits)
    assert backoff.next(at_least=300) == 300
    backoff.reset()
    assert backoff.next() <= 0.5


def test_what_the_books_were_too_busy_for_is_tried_again(
    cluster: ApiServer, follow: Callable[[], Term], caplog: pytest.LogCaptureFixture
) -> None:
    """Where only a watcher runs nobody else sweeps."""
    caplog.set_level("INFO")
    follow()
    with psycopg.connect(database_url()) as another:
        another.execute("SELECT FROM hamiacct_feed WHERE kind = 'Pod' FOR UPDATE")
        cluster.create(watch.pod("p", "GPU-a 1 1"))
        until(lambda: "wait for the next sweep" in caplog.text)
        assert not charged()
    until(lambda: charged() == 1, 5)

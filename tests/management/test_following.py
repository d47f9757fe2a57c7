"""Following one kind in this process: what holds it up, and what it does about lists it may not believe."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from hamiacct import models
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.kube import client
from hamiacct.kube.client import Client
from hamiacct.management import following
from hamiacct.management.following import Follower
from hamiacct.management.terms import Backoff, Term
from hamiacct.operations import inbox
from tests import watch
from tests.kubeapi.server import ApiServer

pytestmark = pytest.mark.django_db(transaction=True)

AN_HOUR = 3600.0


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def follow(cluster: ApiServer, tmp_path: Path) -> Iterator[Callable[[], Term]]:
    """Begins to follow pods; ends with the test."""
    begun: list[tuple[Term, threading.Thread]] = []
    kubeconfig = cluster.kubeconfig(tmp_path)

    def connect() -> Client:
        found = client.connect(kubeconfig)
        assert found is not None
        return found

    def begin() -> Term:
        term = Term("a test", lambda fault: None, time.monotonic() + AN_HOUR)
        term.listed[Kind.NODE].set()
        term.listed[Kind.QUOTA].set()
        thread = threading.Thread(target=Follower(Kind.POD, term, connect).run)
        thread.start()
        begun.append((term, thread))
        cluster.wait(lambda: cluster.watching("pods") == 1, 30)
        return term

    yield begin
    for term, thread in begun:
        term.over.set()
        thread.join(10)
        assert not thread.is_alive()


def until(is_so: Callable[[], Any], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(0.02)


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
    for number in range(30):
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
    cluster.delete("Pod", "p25", "team-a")
    second.go.set()
    until(lambda: state()[0] is WatchState.WATCHING and "would end 26 of 30" in state()[1])
    assert charged() == 30
    until(lambda: charged() == 4)  # the third says what the second said
    until(lambda: state() == (WatchState.WATCHING, ""))
    thread.join()


def test_waits_grow_to_half_a_minute_and_no_two_are_alike() -> None:
    backoff = Backoff()
    waits = [backoff.next() for _ in range(12)]
    assert 0.25 <= waits[0] <= 0.5
    assert all(15 <= wait <= 30 for wait in waits[-3:])
    assert len(set(waits)) == len(waits)
    assert backoff.next(at_least=300) == 300
    backoff.reset()
    assert backoff.next() <= 0.5

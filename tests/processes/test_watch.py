"""The watcher as it runs: a process, a cluster that speaks HTTP, and books that are right from then on."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone

from devservers.processes import Process
from hamiacct import models
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.operations import audit, watching
from tests import watch
from tests.kubeapi.faults import Ending, Fault
from tests.kubeapi.server import ApiServer
from tests.live import LiveStack
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

CARDS = [watch.card("GPU-a"), watch.card("GPU-b")]
SECONDS_TO_END = 2.0
SECONDS_TO_TAKE_OVER = 15.0


class World:
    """A cluster of one node, the watchers of it, and what the books say."""

    def __init__(self, cluster: ApiServer, folder: Path, **settings: str) -> None:
        self.cluster = cluster
        kubeconfig = cluster.kubeconfig(folder)
        self.stack = LiveStack(
            folder, with_redis=False, settings={"HAMIACCT_KUBECONFIG": str(kubeconfig), **settings}
        )
        cluster.create(watch.node("n1", *CARDS))

    def start(self, name: str = "watcher") -> None:
        self.stack.start_watcher(name)

    def start_and_follow(self) -> None:
        """Returns when all three kinds are watched."""
        self.start()
        self.until_followed()

    def until_followed(self) -> None:
        for resource in ("nodes", "resourcequotas", "pods"):
            self.cluster.wait(lambda resource=resource: self.cluster.watching(resource) == 1, 30)  # type: ignore[misc]

    def add_pod(self, name: str, memory_mib: int = 1024) -> dict[str, Any]:
        return self.cluster.create(watch.pod(name, f"GPU-a {memory_mib} 10"))

    def asked(self) -> list[str]:
        """What was asked about pods."""
        return [call.verb for call in self.cluster.requests if call.resource == "pods"]

    def used_mib(self) -> int:
        return sum(models.Device.objects.values_list("memory_mib_used", flat=True))

    def log(self, name: str = "watcher") -> str:
        return (self.stack.folder / f"{name}.log").read_text()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ApiServer() as cluster:
        world = World(cluster, tmp_path)
        yield world
        world.stack.close()


def agreed() -> bool:
    return audit.audit().ok


def states() -> dict[Kind, tuple[WatchState, str]]:
    return {Kind(row.kind): (WatchState(row.state), row.detail) for row in models.Watch.objects.all()}


def test_the_books_are_right_from_the_start_and_follow(world: World) -> None:
    world.add_pod("there-before")
    world.cluster.create(watch.quota("q", hard={"limits.nvidia.com/gpumem": "5000"}))
    world.start_and_follow()
    assert world.used_mib() == 1024
    world.add_pod("came-later", 2048)
    until(lambda: world.used_mib() == 3072)
    world.cluster.change("Pod", "there-before", {"status": {"phase": "Succeeded"}}, "team-a")
    until(lambda: world.used_mib() == 2048)
    assert all(feed.listed_at for feed in models.Feed.objects.all())
    assert {state for state, _ in states().values()} == {WatchState.WATCHING}


def test_what_happened_while_all_was_down_is_found_by_the_first_list(world: World) -> None:
    world.add_pod("deleted-meanwhile")
    world.add_pod("stays", 2048)
    world.start_and_follow()
    world.stack.kill("watcher")
    world.cluster.delete("Pod", "deleted-meanwhile", "team-a")
    world.add_pod("came-and-went", 4096)
    world.cluster.delete("Pod", "came-and-went", "team-a")
    watching.give_up_lease(models.WatchLease.objects.get().holder)  # a killed one's runs out: seen elsewhere
    world.start_and_follow()
    until(lambda: world.used_mib() == 2048)
    ended = models.Pod.objects.get(name="deleted-meanwhile")
    assert (ended.ended_by, models.Pod.objects.filter(name="came-and-went").count()) == ("absent", 0)
    assert not models.LedgerEntry.objects.filter(pod_uid="uid-came-and-went").exists()
    assert agreed()


def test_a_version_that_is_gone_brings_a_new_list(world: World) -> None:
    world.add_pod("deleted")
    world.start_and_follow()
    for is_status, memory_mib in ((False, 2048), (True, 4096)):
        asked = len(world.asked())
        held = world.cluster.hold("WATCH", "/pods")
        world.cluster.end_watches("pods", Ending.WELL)
        assert held.reached.wait(30)
        world.cluster.delete("Pod", "deleted", "team-a")
        world.add_pod("deleted", memory_mib)
        world.cluster.forget()
        if is_status:
            world.cluster.fail("WATCH", "/pods", Fault.EXPIRED)
        held.go.set()
        until(lambda expected=memory_mib: world.used_mib() == expected)  # type: ignore[misc]
        world.until_followed()
        assert world.asked()[asked:] == ["watch", "list", "watch"]
    assert agreed()


def test_a_stream_that_is_cut_in_the_middle_of_an_event_goes_on_where_it_was(world: World) -> None:
    world.cluster.fail("WATCH", "/pods", Ending.CUT_WITHIN, after=1)
    world.start_and_follow()
    for number in range(5):
        world.add_pod(f"p{number}")
    until(lambda: world.used_mib() == 5 * 1024)
    asked = [call for call in world.cluster.requests if call.resource == "pods"]
    assert [call.verb for call in asked] == ["list", "watch", "watch"]
    assert int(asked[2].query["resourceVersion"]) == int(asked[1].query["resourceVersion"]) + 1
    assert models.Event.objects.count() == 5


def test_an_api_server_that_goes_away_is_said_once_and_caught_up_with(world: World) -> None:
    world.start_and_follow()
    world.cluster.go_away()
    until(lambda: {state for state, _ in states().values()} == {WatchState.BACKING_OFF})
    world.add_pod("created-meanwhile")
    until(lambda: "cannot be reached" in states()[Kind.POD][1])
    world.cluster.fail("WATCH", "/pods", Fault.FAILED_BEFORE)
    world.cluster.fail("WATCH", "/pods", Fault.THROTTLED)
    world.cluster.come_back()
    until(lambda: world.used_mib() == 1024)
    until(lambda: {state for state, _ in states().values()} == {WatchState.WATCHING})
    assert world.log().count("Pod: backing-off") == 1
    assert world.asked().count("list") == 1


def test_a_database_that_ends_every_session_loses_nothing(world: World) -> None:
    world.start_and_follow()
    for number in range(6):
        world.add_pod(f"p{number}")
        terminate_sessions()
    until(lambda: world.used_mib() == 6 * 1024)
    until(lambda: {state for state, _ in states().values()} == {WatchState.WATCHING})
    assert agreed()


def terminate_sessions() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_credentials_that_are_not_taken_any_more_are_read_anew(tmp_path: Path, world: World) -> None:
    token = tmp_path / "token"
    token.write_text("a-token")
    world.cluster.kubeconfig(tmp_path, token_file=token)
    world.start_and_follow()
    expire(world, "a-token")
    world.add_pod("when-the-token-file-was-old")
    world.cluster.tokens.add("a-second-token")
    token.write_text("a-second-token")
    until(lambda: world.used_mib() == 1024)
    expire(world, "a-second-token")
    world.add_pod("when-the-kubeconfig-was-old", 2048)
    world.cluster.tokens.add("a-third-token")
    world.cluster.kubeconfig(tmp_path, token="a-third-token")
    until(lambda: world.used_mib() == 3072)


def expire(world: World, token: str) -> None:
    world.cluster.revoke(token)
    world.cluster.end_watches()
    until(lambda: "401" in states()[Kind.POD][1])


def test_another_cluster_is_refused(world: World) -> None:
    world.start_and_follow()
    world.stack.stop("watcher")
    world.cluster.cluster_uid = "uid-of-another"
    world.add_pod("of-another-cluster")
    world.start()
    process = world.stack.processes["watcher"]
    until(lambda: process.status is not None)
    assert process.status == 1
    assert "run manage.py adopt-cluster" in process.last_words()
    assert world.used_mib() == 0


def test_a_cluster_that_was_restored_wins_over_the_books(world: World) -> None:
    world.add_pod("of-the-backup")
    backup = world.cluster.backup()
    world.start_and_follow()
    world.add_pod("after-the-backup", 2048)
    until(lambda: world.used_mib() == 3072)
    world.cluster.restore(backup)
    world.stack.stop("watcher")  # a watch from a version of the future waits until it is the present
    world.start_and_follow()
    assert (world.used_mib(), models.Feed.objects.get(kind=Kind.POD).history) == (1024, 2)
    world.add_pod("after-the-restore", 4096)
    until(lambda: world.used_mib() == 5120)
    assert agreed()


def test_a_second_list_confirms_that_many_pods_are_gone(world: World) -> None:
    for number in range(30):
        world.add_pod(f"p{number}", 100)
    world.start_and_follow()
    world.stack.stop("watcher")
    for number in range(25):
        world.cluster.delete("Pod", f"p{number}", "team-a")
    lists = world.asked().count("list")
    world.start_and_follow()
    assert world.used_mib() == 500
    assert world.asked().count("list") == lists + 2
    assert "would end 25 of 30" in world.log()


def test_what_tells_the_books_nothing_is_not_stored(world: World) -> None:
    foreign = {"kind": "Pod", "metadata": {"name": "web", "namespace": "team-a"}, "spec": {"containers": []}}
    world.cluster.create(foreign)
    world.add_pod("ours")
    world.start_and_follow()
    assert [pod.name for pod in models.Pod.objects.all()] == ["ours"]
    world.cluster.create({**foreign, "metadata": {"name": "web-2", "namespace": "team-a"}})
    world.cluster.change("Pod", "web", {"status": {"phase": "Running"}}, "team-a")
    noise = [{"metadata": {"labels": {"app": str(number)}}} for number in range(3)]
    world.cluster.change("Pod", "ours", noise[0], "team-a")  # the first after a list is stored
    until(lambda: models.Event.objects.filter(state="applied").count() == 1)
    world.cluster.change("Pod", "ours", noise[1], "team-a")
    world.cluster.change("Pod", "ours", noise[2], "team-a")
    world.cluster.change(
        "Pod", "ours", {"metadata": {"annotations": None}, "spec": {"containers": []}}, "team-a"
    )
    until(lambda: models.Event.objects.filter(state="applied").count() == 2)
    world.cluster.delete("Pod", "web", "team-a")
    until(lambda: models.Event.objects.exclude(state="waiting").count() == 3)
    stored = models.Event.objects.order_by("pk").values_list("type", "name")
    assert list(stored) == [("MODIFIED", "ours"), ("MODIFIED", "ours"), ("DELETED", "web")]


def test_everything_is_listed_again_in_time(world: World) -> None:
    world.stack.env["HAMIACCT_RESYNC_SECONDS"] = "1"
    world.start_and_follow()
    world.cluster.wait(lambda: world.asked().count("list") >= 3)


def test_another_watcher_takes_over_from_one_that_ends_and_from_one_that_is_killed(world: World) -> None:
    world.start_and_follow()
    for name in ("second", "third"):
        world.start(name)
    until(lambda: all("standing by" in world.log(name) for name in ("second", "third")))
    assert [world.cluster.watching(plural) for plural in ("nodes", "resourcequotas", "pods")] == [1, 1, 1]
    world.stack.stop("watcher")
    world.add_pod("when-it-had-ended")
    until(lambda: world.used_mib() == 1024, watching.LEASE_SECONDS - 2)  # before its lease had run out
    follows, stands_by = sorted(
        ("second", "third"), key=lambda name: "holds the lease" not in world.log(name)
    )
    world.stack.kill(follows)
    began = time.monotonic()
    world.add_pod("when-it-was-killed", 2048)
    until(lambda: world.used_mib() == 3072, SECONDS_TO_TAKE_OVER)
    assert time.monotonic() - began < SECONDS_TO_TAKE_OVER
    assert "holds the lease" in world.log(stands_by)


def test_who_slept_through_the_term_of_another_begins_anew(world: World) -> None:
    """What it had read is of another time, perhaps of another history."""
    world.start_and_follow()
    sleeper = world.stack.processes["watcher"].pid
    os.kill(sleeper, signal.SIGSTOP)
    models.WatchLease.objects.update(expires_at=timezone.now())
    assert watching.take_lease("another", at=timezone.now())
    watching.give_up_lease("another")
    os.kill(sleeper, signal.SIGCONT)
    until(lambda: world.log().count("holds the lease and watches") == 2)
    assert "the lease is lost" in world.log()
    world.cluster.wait(lambda: world.asked().count("list") == 2, 30)


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("a quiet stream", signal.SIGTERM),
        ("a call without an answer", signal.SIGTERM),
        ("a lock", signal.SIGTERM),
        ("a quiet stream", signal.SIGINT),
    ],
)
def test_it_ends_at_once_wherever_it_waits(world: World, where: str, number: signal.Signals) -> None:
    held = world.cluster.hold("LIST", "/pods") if where == "a call without an answer" else None
    world.start()
    if held:
        assert held.reached.wait(30)
    else:
        world.until_followed()
    with psycopg.connect(world.stack.database_url) as blocking:
        if where == "a lock":
            blocking.execute("LOCK TABLE hamiacct_event, hamiacct_watchlease IN ACCESS EXCLUSIVE MODE")
            world.add_pod("not-to-be-stored")
            until(lambda: somebody_waits_for(blocking))
        took = seconds_to_end(world.stack.processes["watcher"], number)
    if held:
        held.go.set()
    assert took < SECONDS_TO_END
    assert world.stack.processes["watcher"].status == 0
    if where != "a lock":
        assert models.WatchLease.objects.get().holder == ""
        assert {state for state, _ in states().values()} == {WatchState.STOPPED}


def somebody_waits_for(blocking: psycopg.Connection[Any]) -> bool:
    found = blocking.execute(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'hamiacct_event'::regclass"
    ).fetchone()
    return bool(found and found[0])


def seconds_to_end(process: Process, number: signal.Signals) -> float:
    began = time.monotonic()
    os.kill(process.pid, number)
    until(lambda: process.status is not None)
    return time.monotonic() - began


def test_with_a_broker_workers_apply_what_comes(world: World) -> None:
    world.stack.redis_url = world.stack.env["HAMIACCT_REDIS_URL"] = os.environ["HAMIACCT_TEST_REDIS_URL"]
    world.stack.flush_redis()
    world.stack.start_worker(concurrency=1)
    world.start_and_follow()
    world.add_pod("p")
    until(lambda: world.used_mib() == 1024)
    assert models.Event.objects.get().state == "applied"

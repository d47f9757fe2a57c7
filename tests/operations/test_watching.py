"""Who watches, which cluster it is, and what is shown of it (decisions 8 and 25)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from hamiacct import models
from hamiacct.accounting.errors import AnotherCluster, Conflict, LeaseLost
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.operations import inbox, snapshots, watching
from hamiacct.queries import inbox as backlog
from hamiacct.queries.watching import Watch, watcher
from tests import watch
from tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)

pytestmark = pytest.mark.django_db


def let_it_run_out() -> None:
    models.WatchLease.objects.update(expires_at=datetime.now(UTC) - timedelta(milliseconds=1))


def holder() -> str:
    return models.WatchLease.objects.get().holder


# --- the lease -----------------------------------------------------------------------------------


def test_the_first_takes_it_and_the_second_does_not() -> None:
    assert watching.take_lease("w1", at=NOW)
    assert not watching.take_lease("w2", at=NOW)
    assert holder() == "w1"


def test_it_is_renewed_by_its_holder_and_is_his_since_he_took_it() -> None:
    watching.take_lease("w1", at=NOW)
    first = models.WatchLease.objects.get().expires_at
    assert watching.take_lease("w1", at=LATER)
    row = models.WatchLease.objects.get()
    assert row.expires_at > first
    assert row.since == NOW


def test_it_runs_out_by_the_clock_of_the_database() -> None:
    """Whatever time a watcher's own machine has."""
    far_ahead = NOW + timedelta(days=36_500)
    watching.take_lease("w1", at=NOW - timedelta(days=36_500))
    assert not watching.take_lease("w2", at=far_ahead)
    let_it_run_out()
    assert watching.take_lease("w2", at=LATER)
    assert (holder(), models.WatchLease.objects.get().since) == ("w2", LATER)
    assert not watching.take_lease("w1", at=far_ahead)


def test_it_is_taken_for_ten_seconds() -> None:
    watching.take_lease("w1", at=NOW)
    left = models.WatchLease.objects.get().expires_at - datetime.now(UTC)
    assert timedelta(seconds=8) < left <= timedelta(seconds=watching.LEASE_SECONDS + 1)


def test_one_that_was_given_up_is_taken_at_once() -> None:
    watching.take_lease("w1", at=NOW)
    watching.give_up_lease("w1")
    assert watching.take_lease("w2", at=NOW)


def test_one_that_ran_out_is_renewed_only_if_nobody_had_it_meanwhile() -> None:
    watching.take_lease("w1", at=NOW)
    let_it_run_out()
    assert watching.renew_lease("w1")
    let_it_run_out()
    watching.take_lease("w2", at=NOW)
    watching.give_up_lease("w2")
    assert not watching.renew_lease("w1")
    assert holder() == ""


def test_it_is_given_up_by_its_holder_alone() -> None:
    watching.take_lease("w1", at=NOW)
    watching.give_up_lease("w2")
    assert holder() == "w1"


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_takes_it() -> None:
    ready = threading.Barrier(8)

    def take(number: int) -> bool:
        try:
            ready.wait(10)
            return watching.take_lease(f"w{number}", at=NOW)
        finally:
            connection.close()

    for _ in range(5):
        models.WatchLease.objects.all().delete()
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(take, range(8))) == 1


@pytest.mark.django_db(transaction=True)
def test_while_a_history_begins_under_it_nobody_takes_it() -> None:
    """A lease that runs out between the look at it and the commit is taken after the commit."""
    watching.take_lease("w1", at=NOW)
    order: list[str] = []

    def take() -> bool:
        try:
            let_it_run_out()
            taken = watching.take_lease("w2", at=NOW)
            order.append("taken")
            return taken
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            watching.check_lease("w1")
            taking = pool.submit(take)
            until(somebody_waits)
            order.append("committed")
        assert taking.result(10)
    assert order == ["committed", "taken"]


def somebody_waits() -> bool:
    """Whether another session waits for this transaction to end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
        )
        return bool(cursor.fetchone()[0])


def test_nobody_holds_no_lease() -> None:
    watching.take_lease("w1", at=NOW)
    watching.give_up_lease("w1")
    with transaction.atomic(), pytest.raises(LeaseLost):
        watching.check_lease("w1")


# --- the cluster ---------------------------------------------------------------------------------


def test_the_first_cluster_is_remembered_and_another_is_refused() -> None:
    watching.see_cluster("uid-1", at=NOW)
    watching.see_cluster("uid-1", at=LATER)
    with pytest.raises(AnotherCluster, match="adopt-cluster") as refused:
        watching.see_cluster("uid-2", at=LATER)
    assert refused.value.numbers == {"known": "uid-1", "found": "uid-2"}
    assert refused.value.code == "another-cluster"
    assert models.Cluster.objects.get().since == NOW


def told(*objects: dict) -> None:
    inbox.receive([watch.event(one) for one in objects], at=NOW)
    inbox.drain(at=NOW)


def test_the_lists_of_an_adopted_cluster_win_though_its_versions_are_lower() -> None:
    told(watch.node("n1", watch.card("GPU-a"), version=9000), watch.pod("old", "GPU-a 1000 1", version=9001))
    told(watch.quota("gpu", version=9002))
    for kind in Kind:
        snapshots.finish(listed(kind, 9010, holds_all=True), at=NOW)
    watching.see_cluster("uid-1", at=NOW)
    watching.note(Kind.POD, WatchState.WATCHING, version=9010, at=NOW)
    assert backlog.is_complete()
    watching.adopt_cluster("uid-2", at=LATER)
    watching.see_cluster("uid-2", at=LATER)
    assert not backlog.is_complete(), "until its lists were applied nobody knows what is free"
    assert models.Watch.objects.get(kind=Kind.POD).version == 0, "no watch goes on from the other's version"
    for kind in Kind:
        assert snapshots.finish(listed(kind, 50), at=LATER).ended == 1
    assert backlog.is_complete()
    assert not models.UsageEntry.objects.exists()


def listed(kind: Kind, version: int, *, holds_all: bool = False) -> snapshots.Listing:
    listing = snapshots.begin(kind, version)
    if holds_all:
        snapshots.apply_page(listing, [], seen=["n1", "uid-old", "team-a\0gpu"], at=NOW)
    return listing


def test_what_was_on_its_way_from_the_other_cluster_is_past() -> None:
    inbox.receive([watch.event(watch.pod("late", "GPU-a 1000 1", version=9001))], at=NOW)
    watching.adopt_cluster("uid-2", at=LATER)
    inbox.drain(at=LATER)
    assert not models.Pod.objects.exists()


def test_who_watched_the_other_cluster_and_was_paused_does_not_go_on() -> None:
    watching.take_lease("w1", at=NOW)
    let_it_run_out()
    watching.adopt_cluster("uid-2", at=NOW)
    assert not watching.renew_lease("w1")


def test_no_cluster_is_adopted_while_another_is_watched() -> None:
    watching.see_cluster("uid-1", at=NOW)
    watching.take_lease("w1", at=NOW)
    with pytest.raises(Conflict, match="w1"):
        watching.adopt_cluster("uid-2", at=NOW)
    watching.see_cluster("uid-1", at=NOW)
    assert set(models.Feed.objects.values_list("history", flat=True)) == {1}
    watching.give_up_lease("w1")
    watching.adopt_cluster("uid-2", at=NOW)


# --- what is shown -------------------------------------------------------------------------------


def test_nothing_is_shown_where_none_has_ever_run() -> None:
    assert watcher(NOW) is None


def test_since_moves_when_the_state_does_and_heard_when_a_version_came() -> None:
    watching.note(Kind.POD, WatchState.WATCHING, version=5, at=NOW)
    watching.note(Kind.POD, WatchState.WATCHING, version=6, at=LATER)
    assert shown() == Watch(Kind.POD, WatchState.WATCHING, "", NOW, 6, LATER, 30.0)
    much_later = LATER + timedelta(seconds=20)
    watching.note(Kind.POD, WatchState.BACKING_OFF, detail="connection refused", at=much_later)
    assert shown() == Watch(
        Kind.POD, WatchState.BACKING_OFF, "connection refused", much_later, 6, LATER, 30.0
    )


def shown() -> Watch:
    found = watcher(LATER + timedelta(seconds=30))
    assert found is not None
    (one,) = found.watches
    return one


def test_who_lost_the_lease_has_nothing_to_say() -> None:
    watching.take_lease("w1", at=NOW)
    let_it_run_out()
    watching.note(Kind.POD, WatchState.BACKING_OFF, holder="w1", at=NOW)
    watching.take_lease("w2", at=NOW)
    watching.note(Kind.POD, WatchState.WATCHING, holder="w2", at=NOW)
    watching.note(Kind.POD, WatchState.STOPPED, holder="w1", at=LATER)
    assert models.Watch.objects.get().state == WatchState.WATCHING


def test_a_long_detail_is_cut() -> None:
    watching.note(Kind.POD, WatchState.BACKING_OFF, detail="x" * 5000, at=NOW)
    assert len(models.Watch.objects.get().detail) == watching.MAX_DETAIL


def test_a_holder_is_alive_until_his_lease_runs_out() -> None:
    watching.take_lease("w1", at=NOW)
    first = watcher(NOW)
    assert first is not None
    assert (first.holder, first.is_alive, first.since, first.cluster_uid) == ("w1", True, NOW, "")
    let_it_run_out()
    then = watcher(NOW)
    assert then is not None
    assert (then.holder, then.is_alive) == ("w1", False)

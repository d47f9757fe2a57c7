"""A full list that comes in pages says what the whole one says, however it is cut short, overtaken or mixed
with other news (decisions 7, 8, 26, 33)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import combinations
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from hamiacct import config, models
from hamiacct.accounting.errors import LeaseLost, OlderThanApplied, Overtaken, SnapshotRefused, TooManyAbsent
from hamiacct.accounting.words import Kind, ReservationState
from hamiacct.kube import manifests
from hamiacct.operations import audit, inbox, kinds, reservations, snapshots, watching
from hamiacct.queries import fits
from hamiacct.queries import inbox as books
from tests import watch
from tests.model.delivery import deliveries
from tests.model.service import Answer, InTheRequest, Pair

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.django_db


def told(*objects: dict[str, Any], type_: str = "ADDED") -> None:
    """Watch events, applied."""
    inbox.receive([watch.event(one, type_) for one in objects], at=NOW)
    inbox.drain(at=NOW)


def pod(name: str, *, version: int, memory: int = 1000, **more: Any) -> dict[str, Any]:
    """A bound pod with one card, as an item of a list: without its kind."""
    manifest = watch.pod(name, f"GPU-a {memory} 1", version=version, **more)
    return {field: value for field, value in manifest.items() if field != "kind"}


def event(item: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "Pod", **item}


def many(count: int, *, version: int = 10) -> list[dict[str, Any]]:
    return [pod(f"p{number:03}", version=version + number) for number in range(count)]


def listed(
    pages: Sequence[Sequence[Any]], version: int, *, confirmed: frozenset[str] | None = None, **options: Any
) -> snapshots.SnapshotResult:
    """A complete list of pods, page by page."""
    listing = snapshots.begin(Kind.POD, version, **options)
    for page in pages:
        snapshots.apply_page(listing, page, at=NOW)
    return snapshots.finish(listing, confirmed=confirmed, at=NOW)


def held() -> dict[str, int]:
    """What each pod holds of the card; the books must agree."""
    assert audit.audit().discrepancies == ()
    return dict(models.UsageEntry.objects.values_list("pod_id", "memory_mib"))


def reserve(name: str, memory: int = 1000) -> None:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    manifest = {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    question = fits.question_of(manifests.pod_from_manifest(manifest, config.vendors()))
    reservations.reserve(question, ttl_seconds=900, at=NOW)


@contextmanager
def another_day() -> Iterator[None]:
    """What happens inside is undone."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def _a_card(db: None) -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10_000_000, slots=10_000), version=1))
    snapshots.declare_complete(at=NOW)


# --- as the whole list ---------------------------------------------------------------------------


class InPages(InTheRequest):
    """The service, but full lists of the whole cluster come in pages of three, as from the watcher."""

    def post(self, path: str, body: Any) -> Answer:
        query = parse_qs(urlsplit(path).query)
        version = body.get("metadata", {}).get("resourceVersion")
        if "/snapshots" not in path or version is None or "namespace" in query:
            return super().post(path, body)
        return self._in_pages(Kind(body["kind"].removesuffix("List")), int(version), body["items"], query)

    def _in_pages(self, kind: Kind, version: int, items: Sequence[Any], query: Any) -> Answer:
        try:
            is_new = "history" in query
            if is_new:
                watching.take_lease("w1", at=NOW)
            listing = snapshots.begin(kind, version, new_history=is_new, holder="w1" if is_new else "")
            for start in range(0, len(items), 3):
                snapshots.apply_page(listing, items[start : start + 3], at=NOW)
            return Answer(200, {"ended": snapshots.finish(listing, at=NOW).ended})
        except SnapshotRefused as refused:
            return Answer(409, refused.numbers)


@pytest.mark.parametrize("seed", range(101, 102))
def test_random_books_are_those_of_the_model(api: APIClient, seed: int) -> None:
    models.Node.objects.all().delete()
    models.Device.objects.all().delete()
    models.Feed.objects.update(applied_version=0)
    Pair(InPages(api)).follow(deliveries(seed, steps=14))


def test_the_counts_are_those_of_the_whole_list() -> None:
    told(event(pod("same", version=10)), event(pod("moves", version=11)), event(pod("goes", version=12)))
    same, moved, new = (
        pod("same", version=10),
        pod("moves", version=20, memory=3000),
        pod("new", version=21),
    )
    listing = snapshots.begin(Kind.POD, 50)
    first = snapshots.apply_page(listing, [moved, new], at=NOW)
    second = snapshots.apply_page(listing, [same], at=NOW)
    result = snapshots.finish(listing, at=NOW)
    assert (first.added, first.changed, first.unchanged) == (1, 1, 0)
    assert (second.added, second.changed, second.unchanged) == (0, 0, 1)
    assert (result.added, result.changed, result.unchanged, result.ended) == (1, 1, 1, 1)
    assert held() == {"uid-same": 1000, "uid-moves": 3000, "uid-new": 1000}


def test_a_pod_that_is_only_named_is_there() -> None:
    told(event(pod("a", version=10)), event(pod("b", version=11)))
    listing = snapshots.begin(Kind.POD, 50)
    snapshots.apply_page(listing, [], seen=["uid-a", "uid-no-gpu"], at=NOW)
    assert snapshots.finish(listing, at=NOW).ended == 1
    assert held() == {"uid-a": 1000}


def test_lists_of_all_kinds_complete_the_books() -> None:
    models.Feed.objects.update(declared_complete_at=None)
    for kind in Kind:
        assert not books.is_complete()
        snapshots.finish(snapshots.begin(kind, 50), at=NOW)
    assert books.is_complete()


# --- items that cannot be read -------------------------------------------------------------------


def test_an_item_that_cannot_be_read_counts_as_seen_and_is_told_with_its_place() -> None:
    told(event(pod("a", version=10)), event(pod("b", version=11)))
    broken = pod("b", version=30)
    broken["spec"]["containers"] = "none"
    faceless = pod("c", version=31)
    del faceless["metadata"]["name"]
    listing = snapshots.begin(Kind.POD, 50)
    snapshots.apply_page(listing, [pod("a", version=10)], at=NOW)
    page = snapshots.apply_page(listing, [broken, faceless], at=NOW)
    assert sorted(one.pointer.split("/")[2] for one in page.rejected) == ["1", "2"]
    assert snapshots.finish(listing, at=NOW).ended == 0
    assert held() == {"uid-a": 1000, "uid-b": 1000}


@pytest.mark.parametrize("how", ["an item without one", "a name without one"])
def test_something_without_an_identity_makes_the_list_end_nothing(how: str) -> None:
    told(event(pod("a", version=10)))
    nameless = pod("b", version=30)
    del nameless["metadata"]["uid"]
    listing = snapshots.begin(Kind.POD, 50)
    if how == "an item without one":
        snapshots.apply_page(listing, [nameless], at=NOW)
    else:
        snapshots.apply_page(listing, [], seen=[kinds.identity(Kind.POD, nameless)], at=NOW)
    assert snapshots.finish(listing, at=NOW).ended == 0
    assert held() == {"uid-a": 1000}
    told(event(pod("late", version=40)))
    assert held() == {"uid-a": 1000, "uid-late": 1000}, "the list is no mark below which news are past"


def test_an_item_of_another_kind_makes_the_list_end_nothing() -> None:
    told(event(pod("a", version=10)))
    listing = snapshots.begin(Kind.POD, 50)
    page = snapshots.apply_page(listing, [watch.node("n2", version=20)], at=NOW)
    assert page.rejected[0].pointer == "/items/0/kind"
    assert snapshots.finish(listing, at=NOW).ended == 0


# --- the guard -----------------------------------------------------------------------------------


def test_too_many_absent_ones_are_ended_when_a_second_list_says_the_same() -> None:
    told(*map(event, many(30)))
    with pytest.raises(TooManyAbsent) as refused:
        listed([many(5)], 500)
    assert refused.value.would_end == 25
    assert refused.value.absent == {f"uid-p{number:03}" for number in range(5, 30)}
    assert len(held()) == 30
    result = listed([many(5)], 501, confirmed=refused.value.absent)
    assert (result.ended, result.would_end) == (25, 25)
    assert len(held()) == 5


def test_a_second_list_that_holds_more_confirms_what_both_do_not_hold() -> None:
    told(*map(event, many(40)))
    with pytest.raises(TooManyAbsent) as refused:
        listed([], 500)
    assert listed([many(10)], 501, confirmed=refused.value.absent).ended == 30


def test_pods_that_go_between_the_two_lists_do_not_unsay_what_both_do_not_hold() -> None:
    told(*map(event, many(100)))
    with pytest.raises(TooManyAbsent) as refused:
        listed([many(60)], 500)
    assert listed([many(41)], 501, confirmed=refused.value.absent).ended == 59
    assert len(held()) == 41


def test_a_second_list_that_misses_other_ones_confirms_nothing() -> None:
    told(*map(event, many(60)))
    with pytest.raises(TooManyAbsent) as refused:
        listed([many(30)], 500)
    with pytest.raises(TooManyAbsent) as again:
        listed([many(60)[30:]], 501, confirmed=refused.value.absent)
    assert len(held()) == 60
    assert again.value.absent.isdisjoint(refused.value.absent)


# --- cut short, overtaken, mixed with other news -------------------------------------------------


def test_a_list_that_ends_after_any_page_ends_nothing_and_the_next_one_is_right() -> None:
    told(*map(event, many(6)))
    truth = [pod("p001", version=11, memory=1000), pod("p003", version=70, memory=5), pod("n", version=71)]
    for pages in range(len(truth) + 1):
        with another_day():
            listing = snapshots.begin(Kind.POD, 100)
            for item in truth[:pages]:
                snapshots.apply_page(listing, [item], at=NOW)
            assert len(held()) == 6 + (pages == 3)
            listed([[item] for item in truth], 101)
            assert held() == {"uid-p001": 1000, "uid-p003": 5, "uid-n": 1000}


@contextmanager
def the_database_leaves_at(words: str) -> Iterator[None]:
    """Each statement with these words fails as it does when the server went away."""

    def fail(execute: Any, sql: str, *rest: Any) -> Any:
        if words in sql:
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, *rest)

    with connection.execute_wrapper(fail), pytest.raises(OperationalError):
        yield


def test_a_page_that_failed_is_applied_again_and_counts_once() -> None:
    listing = snapshots.begin(Kind.POD, 100)
    nameless = pod("nameless", version=12)
    del nameless["metadata"]["name"]
    page = [pod("a", version=10), nameless]
    with the_database_leaves_at("UPDATE hamiacct_feed"):
        snapshots.apply_page(listing, page, at=NOW)
    assert held() == {}
    snapshots.apply_page(listing, page, at=NOW)
    last = snapshots.apply_page(listing, [nameless], at=NOW)
    result = snapshots.finish(listing, at=NOW)
    assert (result.added, [one.index for one in result.rejected]) == (1, [1, 2])
    assert [one.index for one in last.rejected] == [2]
    assert held() == {"uid-a": 1000}


@pytest.mark.parametrize("again", ["the same end", "another list"])
def test_an_end_that_was_cut_short_is_made_up_for(again: str) -> None:
    """The list was marked, and what it did not hold was not ended any more."""
    told(event(pod("a", version=10)), event(pod("b", version=11)))
    listing = snapshots.begin(Kind.POD, 100)
    snapshots.apply_page(listing, [pod("a", version=10)], at=NOW)
    with the_database_leaves_at("hamiacct_pods_store"):
        snapshots.finish(listing, at=NOW)
    assert models.ListMark.objects.get(kind=Kind.POD).version == 100
    assert set(held()) == {"uid-a", "uid-b"}
    if again == "the same end":
        assert snapshots.finish(listing, at=NOW).ended == 1
    else:
        assert listed([[pod("a", version=10)]], 101).ended == 1
    assert held() == {"uid-a": 1000}


def test_of_two_lists_at_once_the_newer_one_is_right_whatever_the_order() -> None:
    """X was deleted and Y created between the two; neither was told by an event."""
    told(event(pod("x", version=10)), event(pod("z", version=11)))
    older = [[pod("x", version=10), pod("w", version=12)], [pod("z", version=11)]]
    newer = [[pod("y", version=150)], [pod("z", version=160, memory=7)]]
    orders = list(combinations(range(8), 4))
    assert len(orders) == 70
    for order in orders:
        with another_day():
            steps = {False: list_in_steps(older, 100), True: list_in_steps(newer, 200)}
            for turn in range(8):
                next(steps[turn in order], None)
            assert held() == {"uid-y": 1000, "uid-z": 7}, order
            mark = models.ListMark.objects.get(kind=Kind.POD)
            assert mark.version == 200, order


def list_in_steps(pages: Sequence[Sequence[Any]], version: int) -> Iterator[None]:
    """A list that takes turns with another; one that is refused is given up."""
    try:
        listing = snapshots.begin(Kind.POD, version)
        yield
        for page in pages:
            snapshots.apply_page(listing, page, at=NOW)
            yield
        snapshots.finish(listing, at=NOW)
        yield
    except SnapshotRefused:
        return


def test_a_list_does_not_bring_back_what_a_newer_one_of_the_namespace_did_not_hold() -> None:
    listing = snapshots.begin(Kind.POD, 100)
    body = manifests.list_items({"kind": "PodList", "metadata": {"resourceVersion": "200"}, "items": []})
    snapshots.apply(body, namespace="team-a", at=NOW)
    snapshots.apply_page(listing, [pod("gone", version=10)], at=NOW)
    snapshots.finish(listing, at=NOW)
    assert held() == {}


def test_what_is_born_while_the_list_comes_in_stays() -> None:
    told(event(pod("a", version=10)))
    listing = snapshots.begin(Kind.POD, 100)
    told(event(pod("young", version=101)))
    snapshots.apply_page(listing, [pod("a", version=10)], at=NOW)
    told(event(pod("younger", version=102)))
    result = snapshots.finish(listing, at=NOW)
    assert (result.ended, result.would_end) == (0, 0)
    assert set(held()) == {"uid-a", "uid-young", "uid-younger"}


def test_what_is_deleted_while_the_list_comes_in_stays_deleted() -> None:
    told(event(pod("a", version=10)))
    listing = snapshots.begin(Kind.POD, 100)
    told(event(pod("a", version=101)), type_="DELETED")
    told(event(pod("b", version=102)), type_="DELETED")
    snapshots.apply_page(listing, [pod("a", version=10), pod("b", version=11)], at=NOW)
    snapshots.finish(listing, at=NOW)
    assert held() == {}


@pytest.mark.parametrize("way", ["held", "binding", "bound"])
@pytest.mark.parametrize("pages_before", [0, 1])
def test_a_hold_taken_while_the_list_comes_in_stays(way: str, pages_before: int) -> None:
    told(event(pod("a", version=10)))
    listing = snapshots.begin(Kind.POD, 100)
    if pages_before:
        snapshots.apply_page(listing, [pod("a", version=10)], at=NOW)
    reserve("young")
    if way == "binding":
        models.Reservation.objects.update(state=ReservationState.BINDING)
    if way == "bound":
        reservations.mark_bound("uid-young", at=NOW)
    snapshots.apply_page(listing, [pod("a", version=10)], at=NOW)
    result = snapshots.finish(listing, at=NOW)
    assert (result.ended, result.would_end) == (0, 0)
    assert held() == {"uid-a": 1000, "uid-young": 1000}


def test_a_hold_that_was_bound_before_the_list_ends_with_it() -> None:
    reserve("old")
    reservations.mark_bound("uid-old", at=NOW)
    result = listed([], 100)
    assert (result.ended, result.would_end) == (1, 1)
    assert held() == {}


# --- histories -----------------------------------------------------------------------------------


def test_a_list_older_than_what_is_applied_is_refused_and_changes_nothing() -> None:
    told(event(pod("a", version=1000)))
    with pytest.raises(OlderThanApplied) as refused:
        snapshots.begin(Kind.POD, 999)
    assert refused.value.numbers == {"version": 999, "applied_version": 1000}
    assert models.Feed.objects.get(kind=Kind.POD).history == 1


def test_a_restored_cluster_begins_a_history_in_which_its_list_wins() -> None:
    told(event(pod("kept", version=1000)), event(pod("after-the-backup", version=1001)))
    told(event(pod("deleted-after-it", version=1002)))
    told(event(pod("deleted-after-it", version=1003)), type_="DELETED")
    watching.take_lease("w1", at=NOW)
    pages = [[pod("kept", version=30, memory=5)], [pod("deleted-after-it", version=40)]]
    assert listed(pages, 50, new_history=True, holder="w1").ended == 1
    assert held() == {"uid-kept": 5, "uid-deleted-after-it": 1000}
    told(event(pod("kept", version=51, memory=6)), type_="MODIFIED")
    assert held()["uid-kept"] == 6


def test_a_history_that_was_begun_and_not_listed_to_its_end_is_ended_by_the_next_list() -> None:
    told(event(pod("a", version=1000)), event(pod("b", version=1001)))
    watching.take_lease("w1", at=NOW)
    listing = snapshots.begin(Kind.POD, 50, new_history=True, holder="w1")
    snapshots.apply_page(listing, [pod("a", version=30)], at=NOW)
    assert set(held()) == {"uid-a", "uid-b"}
    assert listed([[pod("a", version=30)]], 60).ended == 1
    assert models.Feed.objects.get(kind=Kind.POD).history == 2


@pytest.mark.parametrize("fate", ["never held it", "expired", "taken over", "given up"])
def test_no_history_begins_for_a_watcher_without_the_lease(fate: str) -> None:
    """A watcher that was paused with an old list in hand."""
    told(event(pod("a", version=1000)))
    if fate != "never held it":
        watching.take_lease("w1", at=NOW)
    if fate in ("expired", "taken over"):
        models.WatchLease.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    if fate == "taken over":
        assert watching.take_lease("w2", at=NOW)
    if fate == "given up":
        watching.give_up_lease("w1")
    with pytest.raises(LeaseLost):
        snapshots.begin(Kind.POD, 50, new_history=True, holder="w1")
    assert models.Feed.objects.get(kind=Kind.POD).history == 1
    assert held() == {"uid-a": 1000}


@pytest.mark.parametrize("step", ["page", "finish"])
def test_a_list_of_an_older_history_stops(step: str) -> None:
    told(event(pod("a", version=10)))
    listing = snapshots.begin(Kind.POD, 100)
    watching.take_lease("w1", at=NOW)
    listed([[pod("a", version=5)]], 20, new_history=True, holder="w1")
    page = [pod("b", version=50)]
    goes_on = (
        partial(snapshots.apply_page, listing, page) if step == "page" else partial(snapshots.finish, listing)
    )
    with pytest.raises(Overtaken):
        goes_on(at=NOW)
    assert held() == {"uid-a": 1000}


# --- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 200])
def test_a_page_costs_the_same_number_of_queries_whatever_its_size_and_place(
    size: int, counted: Callable[[], int]
) -> None:
    listing = snapshots.begin(Kind.POD, 10_000)
    costs = []
    for page in range(3):
        items = [pod(f"q{page}-{number}", version=10 + number) for number in range(size)]
        start = counted()
        snapshots.apply_page(listing, items, at=NOW)
        new = counted()
        snapshots.apply_page(listing, items, at=NOW)
        costs.append((new - start, counted() - new))
    assert len(set(costs)) == 1
    of_new, of_known = costs[0]
    assert of_new <= 35
    assert of_known <= 20


@pytest.fixture
def counted() -> Iterator[Callable[[], int]]:
    """How many queries were sent so far."""
    with CaptureQueriesContext(connection) as queries:
        yield lambda: len(queries)

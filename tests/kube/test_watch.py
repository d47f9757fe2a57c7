"""Following a kind, against a server that speaks HTTP: pages, streams, ends of every sort."""

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hamiacct.accounting.errors import Unavailable
from hamiacct.kube import client, stream, watch
from hamiacct.kube.client import Client, Gone, Silent, Throttled, Unauthorized, Unreadable
from hamiacct.kube.watch import Away, Batch, ListPage, News
from tests import watch as say
from tests.kubeapi.faults import Ending, Fault
from tests.kubeapi.server import ApiServer


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAGE_ITEMS", 2)
    monkeypatch.setattr(watch, "QUIET_SECONDS", 0.1)


@pytest.fixture
def connect(cluster: ApiServer, tmp_path: Path) -> Callable[[], Client]:
    kubeconfig = cluster.kubeconfig(tmp_path)

    def connected() -> Client:
        found = client.connect(kubeconfig)
        assert found is not None
        return found

    return connected


@pytest.fixture
def news(connect: Callable[[], Client]) -> Iterator[Iterator[News]]:
    """The news of pods; nothing is ever due."""
    following = watch.follow(connect, "Pod", is_due=lambda: False, watch_seconds=lambda: 60)
    yield following
    following.close()


def names(items: Any) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def until(news: Iterator[News], is_it: Callable[[News], bool]) -> News:
    return next(one for one in news if is_it(one))


def until_event(news: Iterator[News]) -> Batch:
    found = until(news, lambda one: isinstance(one, Batch) and bool(one.events))
    assert isinstance(found, Batch)
    return found


def until_listed(news: Iterator[News]) -> ListPage:
    found = until(news, lambda one: isinstance(one, ListPage) and one.is_last)
    assert isinstance(found, ListPage)
    return found


def verbs(cluster: ApiServer) -> list[str]:
    return [call.verb for call in cluster.requests]


# --- lists


def test_a_list_comes_in_pages_of_one_version(cluster: ApiServer, news: Iterator[News]) -> None:
    for name in ("a", "b", "c"):
        cluster.create(say.pod(name))
    first, last = next(news), next(news)
    assert isinstance(first, ListPage)
    assert isinstance(last, ListPage)
    assert (names(first.items), first.is_first, first.is_last) == (["a", "b"], True, False)
    assert (names(last.items), last.is_first, last.is_last) == (["c"], False, True)
    assert first.version == last.version == cluster.store.version
    assert {item["kind"] for item in (*first.items, *last.items)} == {"Pod"}


def test_a_list_whose_token_is_gone_starts_over_without_it(cluster: ApiServer, news: Iterator[News]) -> None:
    for name in ("a", "b", "c"):
        cluster.create(say.pod(name))
    assert isinstance(next(news), ListPage)
    cluster.delete("Pod", "a", "team-a")
    cluster.forget()
    again = next(news)
    assert isinstance(again, ListPage)
    assert (names(again.items), again.is_first, again.is_last) == (["b", "c"], True, True)
    assert "continue" not in cluster.requests[-1].query


def test_a_list_that_is_never_done_in_time_rests(cluster: ApiServer, news: Iterator[News]) -> None:
    for name in ("a", "b", "c"):
        cluster.create(say.pod(name))
    seen: list[News] = []
    for _ in range(4):
        seen.append(next(news))
        cluster.create(say.pod(f"new-{len(seen)}"))
        cluster.forget()
    assert [type(one) for one in seen] == [ListPage, ListPage, Away, ListPage]


@pytest.mark.parametrize("fault", [Fault.FAILED_BEFORE, Fault.CUT_BEFORE, Fault.CUT_WITHIN, Fault.FORBIDDEN])
def test_a_page_that_fails_is_asked_for_again(cluster: ApiServer, news: Iterator[News], fault: Fault) -> None:
    for name in ("a", "b", "c"):
        cluster.create(say.pod(name))
    assert isinstance(next(news), ListPage)
    cluster.fail("LIST", "/pods", fault)
    assert isinstance(next(news), Away)
    last = next(news)
    assert isinstance(last, ListPage)
    assert (names(last.items), last.is_first) == (["c"], False)


def test_a_page_that_fails_again_and_again_has_the_list_start_over(
    cluster: ApiServer, news: Iterator[News]
) -> None:
    """A server that was restored, or replaced by an older one, may never know the token."""
    for name in ("a", "b", "c"):
        cluster.create(say.pod(name))
    assert isinstance(next(news), ListPage)
    cluster.fail("LIST", "/pods", Fault.FAILED_BEFORE, watch.PAGE_TRIES)
    assert [type(next(news)) for _ in range(watch.PAGE_TRIES)] == [Away] * watch.PAGE_TRIES
    again = next(news)
    assert isinstance(again, ListPage)
    assert (names(again.items), again.is_first) == (["a", "b"], True)


def test_pods_that_are_done_are_not_listed_and_no_label_is_asked_for(
    cluster: ApiServer, news: Iterator[News]
) -> None:
    cluster.create(say.pod("done", phase="Succeeded"))
    cluster.create(say.pod("lives"))
    assert names(until_listed(news).items) == ["lives"]
    cluster.create(say.pod("later"))
    until_event(news)
    for call in cluster.requests:
        assert call.query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"
        assert "labelSelector" not in call.query


# --- streams


def test_events_come_in_order_and_reach_a_version(cluster: ApiServer, news: Iterator[News]) -> None:
    until_listed(news)
    cluster.create(say.pod("a"))
    created = until_event(news)
    cluster.change("Pod", "a", {"status": {"phase": "Failed"}}, "team-a")
    left = until_event(news)
    assert [event["type"] for event in (*created.events, *left.events)] == ["ADDED", "DELETED"]
    assert left.version == cluster.store.version


def test_what_comes_within_a_moment_is_one_batch_of_no_more_than_its_size(
    cluster: ApiServer, news: Iterator[News], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "BATCH_EVENTS", 3)
    monkeypatch.setattr(watch, "MOMENT_SECONDS", 1.0)
    until_listed(news)
    assert next(news) == Batch([], cluster.store.version)  # quiet, so it is watched
    for number in range(5):
        cluster.create(say.pod(f"p{number}"))
    assert [len(until_event(news).events) for _ in range(2)] == [3, 2]


def test_bookmarks_move_the_version_and_are_no_events(cluster: ApiServer, news: Iterator[News]) -> None:
    cluster.bookmark_seconds = 0.05
    until_listed(news)
    cluster.create(say.node("n"))  # of another kind
    assert until(news, lambda one: isinstance(one, Batch) and one.version == cluster.store.version)
    assert verbs(cluster) == ["list", "watch"]


@pytest.mark.parametrize("ending", [Ending.WELL, Ending.CUT, Ending.CUT_WITHIN, Ending.HALF, Ending.FAILED])
def test_a_stream_that_ends_goes_on_from_its_last_version(
    cluster: ApiServer, news: Iterator[News], ending: Ending
) -> None:
    cluster.fail("WATCH", "/pods", ending, after=2)
    until_listed(news)
    seen: list[str] = []
    was_away = False
    for number in range(4):
        cluster.create(say.pod(f"p{number}"))
    while len(seen) < 4:
        match next(news):
            case Batch(events, _):
                seen += names([event["object"] for event in events])
            case Away():
                was_away = True
    assert seen == ["p0", "p1", "p2", "p3"]
    assert was_away == (ending is not Ending.WELL)
    assert verbs(cluster) == ["list", "watch", "watch"]
    first, second = (int(call.query["resourceVersion"]) for call in cluster.requests[1:])
    assert second == first + 2


@pytest.mark.parametrize("fault", [Fault.EXPIRED, Ending.EXPIRED])
def test_a_version_that_is_gone_brings_a_list(
    cluster: ApiServer, news: Iterator[News], fault: Fault | Ending
) -> None:
    until_listed(news)
    assert isinstance(next(news), Batch)
    cluster.fail("WATCH", "/pods", fault)
    cluster.end_watches("pods")
    cluster.create(say.pod("created"))
    until_listed(news)
    assert verbs(cluster)[-3:] == ["watch", "watch", "list"]


def test_a_version_that_is_gone_as_soon_as_it_was_listed_brings_a_rest(
    cluster: ApiServer, news: Iterator[News]
) -> None:
    cluster.fail("WATCH", "/pods", Fault.EXPIRED, times=2)
    seen = [type(one) for one in itertools.islice(news, 4)]
    assert seen == [ListPage, Away, ListPage, Away]


def test_a_stream_that_ends_as_soon_as_it_began_brings_a_rest(
    cluster: ApiServer, news: Iterator[News]
) -> None:
    until_listed(news)
    assert isinstance(next(news), Batch)
    is_well = threading.Event()

    def end_each() -> None:
        while not is_well.wait(0.005):
            cluster.end_watches("pods", Ending.WELL)

    threading.Thread(target=end_each, daemon=True).start()
    assert [type(one) for one in itertools.islice(news, 2)] == [Away, Away]
    is_well.set()
    assert until(news, lambda one: isinstance(one, Batch))
    assert verbs(cluster).count("list") == 1


def test_a_line_that_is_no_event_brings_a_list(
    cluster: ApiServer, news: Iterator[News], monkeypatch: pytest.MonkeyPatch
) -> None:
    until_listed(news)
    assert isinstance(next(news), Batch)
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 1000)
    cluster.chunk_bytes = 500
    cluster.create(say.pod("long", "GPU-a 1024 10", requests=[{"x" * 5000: "1"}]))
    fault = until(news, lambda one: isinstance(one, Away))
    assert isinstance(fault, Away)
    assert isinstance(fault.fault, Unreadable)
    assert names(until_listed(news).items) == ["long"]


def test_a_silent_stream_brings_a_list(
    cluster: ApiServer, news: Iterator[News], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "QUIET_SECONDS", 0.3)
    until_listed(news)
    fault = until(news, lambda one: isinstance(one, Away))
    assert isinstance(fault, Away)
    assert isinstance(fault.fault, Silent)
    until_listed(news)


def test_a_list_that_is_due_comes_between_two_batches(
    cluster: ApiServer, connect: Callable[[], Client]
) -> None:
    is_due = False
    news = watch.follow(connect, "Pod", is_due=lambda: is_due, watch_seconds=lambda: 60)
    until_listed(news)
    assert isinstance(next(news), Batch)
    is_due = True
    assert isinstance(next(news), ListPage)
    news.close()


def test_who_takes_nothing_reads_no_more(
    cluster: ApiServer, connect: Callable[[], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_WAITING_BYTES", 2000)
    version = cluster.store.version
    with stream.reading(connect(), "Pod", version=version, seconds=60, field_selector="") as reader:
        for number in range(50):
            cluster.create(say.pod(f"p{number}"))
        assert reader.take(1, wait_seconds=5, moment_seconds=0)
        assert reader._waiting_bytes < 4000
        taken = 1
        while taken < 50:
            lines = reader.take(500, wait_seconds=5, moment_seconds=0)
            assert lines
            taken += len(lines)


# --- errors


def answered(cluster: ApiServer, connect: Callable[[], Client]) -> Unavailable:
    with pytest.raises(Unavailable) as raised:
        connect().page("Pod", limit=1)
    return raised.value


def test_each_refusal_has_its_name(cluster: ApiServer, connect: Callable[[], Client]) -> None:
    cluster.fail("LIST", "/pods", Fault.UNAUTHORIZED)
    assert isinstance(answered(cluster, connect), Unauthorized)
    cluster.fail("LIST", "/pods", Fault.EXPIRED)
    assert isinstance(answered(cluster, connect), Gone)
    cluster.retry_after_seconds = 7
    cluster.fail("LIST", "/pods", Fault.THROTTLED)
    throttled = answered(cluster, connect)
    assert isinstance(throttled, Throttled)
    assert throttled.retry_after_seconds == 7


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({"code": 410, "reason": "Expired"}, Gone),
        ({"reason": "Gone"}, Gone),
        ({"code": 401, "reason": "Unauthorized"}, Unauthorized),
        ({"code": 429, "reason": "TooManyRequests"}, Throttled),
        ({"code": 500, "reason": "InternalError"}, Unavailable),
        ({}, Unavailable),
    ],
)
def test_an_error_in_the_stream_is_what_its_status_says(status: dict[str, Any], wanted: type) -> None:
    line = client.orjson.dumps({"type": "ERROR", "object": {"kind": "Status", "message": "why", **status}})
    with pytest.raises(Unavailable, match="why") as raised:
        client.event_of(line)
    assert type(raised.value) is wanted


@pytest.mark.parametrize("line", [b"{", b"[]", b"3", b'{"type": "ADDED"}', b'{"object": 3}'])
def test_a_line_without_an_object_is_no_event(line: bytes) -> None:
    with pytest.raises(Unreadable):
        client.event_of(line)


def test_events_before_a_fault_are_not_lost() -> None:
    good = client.orjson.dumps({"type": "ADDED", "object": say.pod("a")})
    events, fault = stream.events_of([good, b"{", good])
    assert len(events) == 1
    assert isinstance(fault, Unreadable)

"""The design's cases by the numbers; and what a restart of everything changes: nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from tests import watch
from tests.conversations.books import Books, Held, over_the_wire
from tests.live import LiveStack
from tests.say import say_manifest

MEMORY = "nvidia.com/gpumem"
CARD = watch.card("GPU-a", memory=24576)


def memory_used(books: Books) -> int:
    """MiB used of the one card; the quota must say the same."""
    used = books.used("n1", "GPU-a").memory_mib
    assert books.quota_used("team-a", MEMORY) == used
    return used


# --- oversubscription prevented (S4.1) -----------------------------------------------------------


def test_a_sidecar_and_an_app_leave_no_room_for_12_gi(books: Books) -> None:
    books.applied(watch.node("n1", CARD), say_manifest("sidecar 10240", "app 10240"))
    assert memory_used(books) == 20480
    assert books.get("/api/v1/nodes/n1/devices/GPU-a")["memory_mib"]["free"] == 4096


# --- shrink restored (S4.4, S7.2) ----------------------------------------------------------------

ORDERS = pytest.mark.parametrize(
    ("order", "peak"),
    [(("sidecar", "init"), 22528), (("init", "sidecar"), 20480)],
    ids=["sidecar first", "init first"],
)
SIZES = {"init": 20480, "sidecar": 2048}


def pod(order: tuple[str, str], **runs: str) -> dict[str, Any]:
    """Init 20Gi, sidecar 2Gi, app 10Gi; `runs` is what the statuses say."""
    phrases = [f"{kind} {SIZES[kind]}, {runs.get(kind, 'absent')}" for kind in order]
    return say_manifest(*phrases, "app 10240")


@ORDERS
def test_one_life_from_the_peak_to_the_end(books: Books, order: tuple[str, str], peak: int) -> None:
    books.applied(watch.node("n1", CARD))
    at_the_peak = [
        pod(order),
        pod(order, init="waiting"),
        pod(order, init="running", sidecar="running"),
        pod(order, init="running", sidecar="succeeded"),
        pod(order, init="failed", sidecar="failed"),
        pod(order, init="running", sidecar="waiting"),
    ]
    for manifest in at_the_peak:
        books.applied(manifest)
        assert memory_used(books) == peak
        assert books.pod("u-1")["state"] == "peak"

    assert books.event(pod(order, init="succeeded", sidecar="running"))["rule"] == "shrunk"
    assert memory_used(books) == 12288

    # A crash loop and exit-0 gaps of the sidecar; then everything again, as a resync shows it.
    for run in ("failed", "waiting", "running", "succeeded", "waiting", "running"):
        books.applied(pod(order, init="succeeded", sidecar=run))
        assert books.used("n1", "GPU-a") == Held(2, 12288, 0)
    for manifest in at_the_peak:
        assert books.event(manifest)["outcome"] == "stale"
        assert memory_used(books) == 12288

    lines = books.get("/api/v1/ledger?pod=u-1")["items"]
    posted = [(line["rule"], line["memory_mib"]) for line in lines]
    assert posted == [("charged", peak), ("shrunk", 12288 - peak)]

    over = pod(order, init="succeeded", sidecar="succeeded")
    over["status"]["phase"] = "Succeeded"
    assert books.event(over)["rule"] == "terminal"
    assert memory_used(books) == 0


@ORDERS
def test_why_it_is_that_much(books: Books, order: tuple[str, str], peak: int) -> None:
    books.applied(pod(order, init="running", sidecar="running"))
    told = books.get("/api/v1/pods/u-1/explain")
    assert [step["class"] for step in told["steps"]] == [*order, "app"]
    [last] = told["steps"][-1]["steady"]
    assert last["memory_mib"] == told["steady"][0]["memory_mib"] == 12288
    assert told["effective"][0]["memory_mib"] == told["charged"][0]["memory_mib"] == peak
    assert str(peak) in told["sentence"]


def test_without_sidecars_it_is_as_before(books: Books) -> None:
    books.applied(say_manifest("init 20480, running", "app 10240"))
    assert memory_used(books) == 20480
    books.applied(say_manifest("init 20480, succeeded", "app 10240"))
    assert memory_used(books) == 10240
    books.applied(say_manifest("init 20480, succeeded", "app 10240", phase="Failed"))
    assert memory_used(books) == 0


# --- a restart (S7.2c) ---------------------------------------------------------------------------


@pytest.mark.parametrize("redis", [True, False], ids=["with workers", "web alone"])
def test_a_released_pod_stays_released_across_a_restart_of_everything(
    live_stack: Callable[..., LiveStack], redis: bool
) -> None:
    order = ("sidecar", "init")
    stack = live_stack(redis=redis)
    books = Books(over_the_wire(stack))
    books.applied(watch.node("n1", CARD))
    books.applied(pod(order, init="running", sidecar="running"))
    assert memory_used(books) == 22528
    books.applied(pod(order, init="succeeded", sidecar="running"))
    assert memory_used(books) == 12288

    for name in sorted(stack.processes):
        stack.kill(name)
    if redis:
        stack.flush_redis()
        stack.start_worker()
    stack.start_web()

    assert memory_used(books) == 12288
    # What a watch tells after a restart: the pod anew, here with its sandbox made again too.
    for manifest in (
        pod(order, init="succeeded", sidecar="running"),
        pod(order, init="running", sidecar="waiting"),
        pod(order),
    ):
        books.applied(manifest, type_="ADDED")
        assert memory_used(books) == 12288
    books.full_list(pod(order, init="waiting"), version=10**9)
    assert memory_used(books) == 12288
    assert books.pod("u-1")["inits_released"]
    books.full_list(version=10**9 + 1)
    assert memory_used(books) == 0

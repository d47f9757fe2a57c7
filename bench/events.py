"""Events: how many a second, how late, and how many at once; full lists; a recording replayed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from time import monotonic, perf_counter

from bench import fleets
from bench.client import one_by_one
from bench.figures import percentile
from bench.stack import LOOK_SECONDS, OLDEST_WAITING
from bench.trial import PGBENCH, Trial

BATCH = 500
STREAM_BATCH = 50
STREAM_PATIENCE_SECONDS = 120
CLIENTS_OF_PGBENCH = 8

Events = list[fleets.Object]


# --- full lists -----------------------------------------------------------------------------------


def load(trial: Trial) -> None:
    """The full lists: inventory, quotas, pods; then the same pods once more, of which nothing is new.

    The web process that has read them keeps what that took: its peak is a figure, and whoever measures
    something else starts it again first.
    """
    lists = (
        ("nodes", trial.fleet.node_list(), trial.fleet.nodes),
        ("quotas", trial.fleet.quota_list(), fleets.NAMESPACES),
        ("pods", trial.fleet.pod_list(trial.pods), trial.pods),
    )
    connection = trial.stack.connect()
    for what, body, items in lists:
        trial.stack.forget_peaks()
        seconds = _timed(lambda body=body: connection.call("POST", "/api/v1/snapshots", body))  # type: ignore[misc]
        rate, peak = items / seconds, trial.stack.peaks_mib()["web"]
        trial.add(
            f"snapshot-{what}", f"snapshot of {items:,} {what}", "s", [seconds], note=f"{rate:,.0f} a second"
        )
        trial.add(
            f"snapshot-{what}-memory", f"snapshot of {items:,} {what}: peak of the web process", "MiB", [peak]
        )
    body = lists[-1][1]
    body["metadata"]["resourceVersion"] = str(next(trial.fleet.versions))
    seconds = _timed(lambda: connection.call("POST", "/api/v1/snapshots", body))
    trial.add("snapshot-again", f"the same {trial.pods:,} pods once more", "s", [seconds])
    connection.close()


def _timed(call: Callable[[], fleets.Object]) -> float:
    before = perf_counter()
    answer = call()
    taken = perf_counter() - before
    assert not answer["rejected"], answer["rejected"][:3]
    return taken


# --- many -----------------------------------------------------------------------------------------


def come_and_go(trial: Trial, number: int) -> Events:
    """Pods that appear on cards with room, whose inits are done, and that go: so many events in all."""
    placed = [trial.fleet.place() for _ in range(number // 3)]
    made = [
        {"type": kind, "object": one.manifest(next(trial.fleet.versions), done=is_done)}
        for kind, is_done in (("ADDED", False), ("MODIFIED", True), ("DELETED", True))
        for one in placed
    ]
    for one in placed:
        trial.fleet.take_back(one)
    return made


def requests_of(trial: Trial, events: Events, batch: int = BATCH) -> list[bytes]:
    request = trial.stack.connect().request
    return [
        request("POST", "/api/v1/events", {"events": events[start : start + batch]})
        for start in range(0, len(events), batch)
    ]


def _send(trial: Trial, requests: Sequence[bytes]) -> None:
    connection = trial.stack.connect()
    posted = one_by_one(connection, requests)
    connection.close()
    assert set(posted.statuses) == {202}, posted.statuses


def applied_per_second(trial: Trial) -> None:
    """From the call to applied, and from stored to applied, each between two runs of pgbench."""
    trial.stack.drained()
    whole: list[float] = []
    stored: list[float] = []
    yardsticks = [_pgbench(trial)]
    for place in range(trial.extent.rounds + 1):
        for measured, found in ((_from_the_call, whole), (_from_stored, stored)):
            rate = measured(trial)
            if place:  # the first round warms
                found.append(rate)
                yardsticks.append(_pgbench(trial))
    between = [(one + other) / 2 for one, other in pairwise(yardsticks)]
    trial.add(
        "events-stored",
        f"events, from stored to applied, two workers, batches of {BATCH}",
        "/s",
        stored,
        beside=(PGBENCH, between[1::2]),
    )
    trial.add(
        "events-call",
        f"events, from the call to applied, batches of {BATCH}",
        "/s",
        whole,
        beside=(PGBENCH, between[::2]),
    )
    trial.add("pgbench-8", PGBENCH, "/s", yardsticks, note="transactions, between the rounds of events")


def _pgbench(trial: Trial) -> float:
    return trial.stack.pgbench(CLIENTS_OF_PGBENCH, trial.extent.seconds)


def _from_the_call(trial: Trial) -> float:
    events = come_and_go(trial, trial.extent.events)
    requests = requests_of(trial, events)
    before = perf_counter()
    _send(trial, requests)
    trial.stack.drained()
    return len(events) / (perf_counter() - before)


def _from_stored(trial: Trial) -> float:
    events = come_and_go(trial, trial.extent.events)
    requests = requests_of(trial, events)
    with trial.stack.paused_workers():
        _send(trial, requests)
        before = perf_counter()
    trial.stack.drained()
    return len(events) / (perf_counter() - before)


def burst(trial: Trial) -> None:
    """Everything at once, as after an outage: until all is applied, and what it takes meanwhile."""
    events = come_and_go(trial, trial.extent.burst)
    requests = requests_of(trial, events)
    trial.stack.drained()
    trial.stack.forget_peaks()
    before = perf_counter()
    _send(trial, requests)
    sent = perf_counter() - before
    trial.stack.drained()
    taken = perf_counter() - before
    name = f"burst of {len(events):,} events"
    trial.add("burst", f"{name}, until applied", "s", [taken], note=f"stored after {sent:.2f} s")
    peaks = trial.stack.peaks_mib()
    for role in ("web", "worker"):
        trial.add(f"burst-memory-{role}", f"{name}: peak of a {role} process", "MiB", [peaks[role]])


# --- a stream -------------------------------------------------------------------------------------


def stream(trial: Trial) -> None:
    """A rate that is held: how long after it was due each batch was applied."""
    extent = trial.extent
    events = come_and_go(trial, round(extent.stream_rate * extent.stream_seconds))
    requests = requests_of(trial, events, STREAM_BATCH)
    newest = [
        max(int(one["object"]["metadata"]["resourceVersion"]) for one in events[start : start + STREAM_BATCH])
        for start in range(0, len(events), STREAM_BATCH)
    ]
    trial.stack.drained()
    begin = monotonic() + 0.1
    due = [begin + place * STREAM_BATCH / extent.stream_rate for place in range(len(requests))]
    stored: list[float] = []
    lags: list[float] = []
    watcher = threading.Thread(target=_watch, args=(trial, newest, due, stored, lags), daemon=True)
    watcher.start()
    connection = trial.stack.connect()
    for request, moment in zip(requests, due, strict=True):
        threading.Event().wait(max(0.0, moment - monotonic()))
        answer = connection.send(request)
        assert answer.status == 202, answer
        stored.append(monotonic())
    watcher.join(STREAM_PATIENCE_SECONDS)
    assert len(lags) == len(requests), f"{len(lags)} of {len(requests)} batches were applied in time"
    rate = len(events) / (stored[-1] - begin)
    name = f"stream of {extent.stream_rate:,} events a second, {extent.stream_seconds:g} s: due to applied"
    milliseconds = [lag * 1000 for lag in lags]
    trial.add(
        "stream",
        name,
        "ms",
        [percentile(milliseconds, 0.5)],
        p99s=[percentile(milliseconds, 0.99)],
        note=f"{rate:,.0f} a second were sent",
    )


def _watch(
    trial: Trial, newest: Sequence[int], due: Sequence[float], stored: Sequence[float], lags: list[float]
) -> None:
    """Notes of each batch, in their order, how long after it was due none of its events waited any longer."""
    quiet, end = threading.Event(), due[-1] + STREAM_PATIENCE_SECONDS
    with trial.stack.database() as database:
        while len(lags) < len(newest) and monotonic() < end:
            there = len(stored)  # before we look: what is stored afterwards is not seen
            [oldest] = database.execute(OLDEST_WAITING).fetchone() or (None,)
            now = monotonic()
            while len(lags) < there and (oldest is None or oldest > newest[len(lags)]):
                lags.append(now - due[len(lags)])
            quiet.wait(LOOK_SECONDS)


# --- a recording ----------------------------------------------------------------------------------


def replay(trial: Trial) -> None:
    """manage.py replay of a recorded watch."""
    path = trial.stack.folder / "recorded.ndjson"
    number = 0
    with path.open("w") as file:
        for event in _recorded(trial):
            file.write(json.dumps(event, separators=(",", ":")) + "\n")
            number += 1
    trial.stack.drained()
    ran = trial.stack.manage("replay", str(path))
    path.unlink()
    name = f"replay of {number:,} events"
    rate = number / ran.seconds
    trial.add("replay", name, "s", [ran.seconds], note=f"{rate:,.0f} a second")
    trial.add("replay-memory", f"{name}: peak of its process", "MiB", [ran.peak_mib])


def _recorded(trial: Trial) -> Iterator[fleets.Object]:
    """A few thousand at a time, so that there is room for those that live at once."""
    left = trial.extent.replayed
    while left > 2:
        some = come_and_go(trial, min(left, 6_000))
        yield from some
        left -= len(some)

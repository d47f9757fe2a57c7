"""Good lives between events that somebody has bent: nothing but the bent ones suffers, and nothing is a 500.

BAD_ROUNDS (default 25) is how many calls are bent, MODEL_FIRST_SEED (1) where the seeds begin.
"""

import copy
import json
import os
import random
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests import watch
from tests.live import LiveStack
from tests.model.books import Event
from tests.model.lives import Cluster, Profile, manifest, watch_event
from tests.model.service import everything

FIRST = int(os.environ.get("MODEL_FIRST_SEED", "1"))
ROUNDS = int(os.environ.get("BAD_ROUNDS", "25"))
MIB = 2**20

NASTY: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**400,
    1.5,
    1e308,
    "",
    " ",
    "0",
    "-1",
    "1e9",
    "9" * 400,
    "\0",
    "a\0b",
    "\ufffd",
    "ÄÖ€😀",
    "x" * 254,
    "x" * 70_000,
    "..//%2F?#",
    "'; DROP TABLE hamiacct_pod; --",
    "{}",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30T00:00:00Z",
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"\0": "\0"},
    [{} for _ in range(1100)],
)
TEXTS = (",", ":", ";", "GPU", "-", "999999999999", "\0", " ", "[", "{", '"', "\n")


class Bender:
    """Bends JSON values at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"bad input {seed}")

    def bent(self, value: Any) -> Any:
        """A copy with one to three places changed."""
        value = copy.deepcopy(value)
        for _ in range(self.random.choice((1, 1, 2, 3))):
            places = list(_places(value))
            if places:
                holder, key = self.random.choice(places)
                self._bend(holder, key)
        return value

    def _bend(self, holder: Any, key: Any) -> None:
        rng, old = self.random, holder[key]
        roll = rng.random()
        if roll < 0.15:
            del holder[key]
        elif roll < 0.25 and isinstance(old, list | dict):
            holder[key] = nested(rng.choice((10, 100, 250)), old)
        elif roll < 0.6 and isinstance(old, str) and old:
            holder[key] = self._cut(old)
        else:
            holder[key] = copy.deepcopy(rng.choice(NASTY))

    def _cut(self, text: str) -> str:
        """The text cut anywhere, or with something put in."""
        rng = self.random
        place = rng.randrange(len(text) + 1)
        if rng.random() < 0.5:
            return text[:place]
        return text[:place] + rng.choice(TEXTS) + text[place + rng.choice((0, 1)) :]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value below its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def nested(levels: int, core: Any) -> Any:
    """The value inside many others."""
    for level in range(levels):
        core = [core] if level % 2 else {"in": core}
    return core


def good_pod(number: int, version: int) -> dict[str, Any]:
    return watch.pod(f"good-{number}", "GOOD 100 1", namespace="good", version=version)


def good_usage(api: APIClient) -> tuple[int, int]:
    """Slots and memory of the good pods, as the device has them."""
    body = api.get("/api/v1/nodes/n1/devices/GOOD").json()
    return body["slots"]["used"], body["memory_mib"]["used"]


@pytest.mark.django_db
def test_bent_events_hurt_nobody_else(api: APIClient) -> None:
    bender = Bender(FIRST)
    cluster = Cluster(FIRST, Profile())
    for round_ in range(ROUNDS):
        events = [cluster.step() for _ in range(20)]
        bodies = [bender.bent(watch_event(event)) for event in events]
        place = bender.random.randrange(len(bodies))
        bodies.insert(place, watch.event(good_pod(round_, 10 + round_)))
        answer = api.post("/api/v1/events", {"events": bodies}, format="json")
        assert answer.status_code == 200, answer.content
        body = answer.json()
        results = {result["index"]: result for result in body["results"]}
        assert results[place]["outcome"] == "applied"
        rejected = {one["index"] for one in body["rejected"]}
        # An event that is neither would wait for ever.
        assert rejected | results.keys() == set(range(len(bodies))), answer.content
        assert good_usage(api) == (round_ + 1, 100 * (round_ + 1))
        audit = api.get("/api/v1/audit").json()
        assert audit["ok"], audit["discrepancies"]
    nothing_is_a_fault_of_ours(api)


@pytest.mark.django_db
def test_bent_lists_hurt_nobody_else(api: APIClient) -> None:
    """What cannot be read and may be anything ends nothing; what has an identity counts as seen."""
    bender = Bender(FIRST)
    cluster = Cluster(FIRST, Profile())
    api.post("/api/v1/events", watch.events(good_pod(0, 1)), format="json")
    for round_ in range(ROUNDS):
        for _ in range(20):
            cluster.step()
        kind = bender.random.choice(("Pod", "Node", "ResourceQuota"))
        items = [bender.bent(manifest(view)) for view in cluster.views(kind)]
        if kind == "Pod":
            items.append(good_pod(0, 1))
        metadata = {"resourceVersion": str(cluster.version)}
        full = {"kind": f"{kind}List", "metadata": metadata, "items": items}
        if bender.random.random() < 0.3:
            full = bender.bent(full)
        answer = api.post(f"/api/v1/snapshots?kind={kind}", full, format="json")
        assert answer.status_code in (200, 400, 409), answer.content
        audit = api.get("/api/v1/audit").json()
        assert audit["ok"], (round_, audit)
    nothing_is_a_fault_of_ours(api)


def nothing_is_a_fault_of_ours(api: APIClient) -> None:
    """Whatever was taken can be read, listed and explained."""

    def get(path: str) -> Any:
        answer = api.get(path)
        assert answer.status_code < 500, (path, answer.content)
        return Read(answer.status_code, answer.json())

    for pod in everything(get, "/api/v1/pods"):
        uid = urllib.parse.quote(pod["uid"], safe="")
        get(f"/api/v1/pods/{uid}")
        get(f"/api/v1/pods/{uid}/explain")
        get(f"/api/v1/namespaces/{urllib.parse.quote(pod['namespace'], safe='')}/quota")
    for device in everything(get, "/api/v1/devices"):
        names = (urllib.parse.quote(device[field], safe="") for field in ("node", "uuid"))
        get("/api/v1/nodes/{}/devices/{}".format(*names))
    for path in ("nodes", "ledger", "findings"):
        assert sum(1 for _ in everything(get, f"/api/v1/{path}")) >= 0
    assert get("/api/v1/cluster").body["inbox"]["waiting"] == 0


class Read:
    """Status and body of an answer."""

    def __init__(self, status: int, body: Any) -> None:
        self.status, self.body = status, body


@pytest.mark.django_db
def test_one_bad_event_among_ten_thousand(api: APIClient) -> None:
    pods = [
        watch.pod(f"pod-{number % 1_000}", "GOOD 1 0", namespace="good", version=number + 1)
        for number in range(9_999)
    ]
    pods.insert(5_000, {**copy.deepcopy(pods[0]), "metadata": {"name": "nobody"}})
    answer = api.post("/api/v1/events", watch.events(*pods), format="json")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["accepted"], [one["index"] for one in body["rejected"]]) == (9_999, [5_000])
    assert len(body["results"]) == 9_999
    assert good_usage(api) == (1_000, 1_000)


@pytest.mark.django_db
def test_an_allocation_cut_anywhere_charges_the_last_good_amount(api: APIClient) -> None:
    """Where a cut leaves whole groups, they are what it says; where it does not, nothing is believed."""
    groups = ("GOOD 4096 50", "GOOD 1024 0 + OTHER 512 0")
    text = watch.pod("cut", *groups)["metadata"]["annotations"][watch.ALLOCATED]
    whole = (3, 5120)
    for length in range(len(text) + 1):
        name = f"cut-{length}"
        first = watch.pod(name, *groups, namespace="good", version=1000 + 10 * length)
        cut = copy.deepcopy(first)
        cut["metadata"]["resourceVersion"] = str(1001 + 10 * length)
        cut["metadata"]["annotations"][watch.ALLOCATED] = text[:length]
        answer = api.post("/api/v1/events", watch.events(first, cut, type_="MODIFIED"), format="json")
        assert {result["outcome"] for result in answer.json()["results"]} == {"applied"}
        pod = api.get(f"/api/v1/pods/uid-{name}").json()
        codes = [note["code"] for note in pod["findings"]]
        charged = sum(one["slots"] for one in pod["usage"]), sum(one["memory_mib"] for one in pod["usage"])
        if "undecodable-annotation" in codes:
            assert charged == (whole[0], whole[1] + 512), (text[:length], pod)
        else:
            assert text[:length][-1:] in ("", ":", ";"), (text[:length], pod)
            entries = text[:length].count(":")
            assert charged[0] == entries, (text[:length], pod)


@pytest.mark.django_db
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_truncated_json_changes_nothing(api: APIClient, share: float) -> None:
    body = json.dumps(watch.events(*(good_pod(number, number + 1) for number in range(50)))).encode()
    cut = body[: int(share * len(body))]
    for path in ("events", "snapshots"):
        answer = api.post(f"/api/v1/{path}", cut, content_type="application/json")
        assert answer.status_code == 400
        assert answer.json()["type"] == "/problems/malformed"
    assert not api.get("/api/v1/pods").json()["items"]


@pytest.mark.django_db
def test_an_empty_or_half_list_does_not_empty_the_books(api: APIClient) -> None:
    pods = [good_pod(number, number + 1) for number in range(50)]
    api.post("/api/v1/events", watch.events(*pods), format="json")
    empty = {"kind": "PodList", "metadata": {"resourceVersion": "100"}, "items": []}
    half = {**empty, "items": pods[:25]}
    part = {**empty, "items": pods[:25], "metadata": {"resourceVersion": "100", "continue": "more"}}
    nameless = {"kind": "PodList", "metadata": {}, "items": []}
    statuses = [
        api.post("/api/v1/snapshots", body, format="json").status_code
        for body in (empty, half, part, nameless)
    ]
    assert statuses == [409, 409, 409, 200]
    assert good_usage(api) == (50, 5000)


def test_forty_mebibytes_are_too_large_and_the_next_call_is_served(live_stack: Any) -> None:
    stack: LiveStack = live_stack(redis=False)
    big = json.dumps(watch.events(good_pod(0, 1))).encode().ljust(40 * MIB)
    assert stack.post("/api/v1/events", big).status == 413
    assert stack.post("/api/v1/snapshots?kind=Pod", b"[" * (40 * MIB)).status == 400
    lines = b"{" * 1000 + b"\n"
    answer = stack.post("/api/v1/events", lines * 5000, content_type="application/x-ndjson")
    assert (answer.status, len(answer.body["rejected"])) == (200, 5000)
    assert stack.post("/api/v1/events", watch.events(good_pod(0, 1))).status == 200


def test_a_bent_event_is_told_apart_from_a_good_one() -> None:
    """The tests above would be worth nothing if nothing were ever bent."""
    event = watch_event(Event("ADDED", Cluster(1, Profile()).step().view))
    bender = Bender(1)
    assert sum(bender.bent(event) != event for _ in range(100)) > 90

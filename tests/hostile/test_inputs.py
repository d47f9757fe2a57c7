"""Whatever is sent, the answer is one that helps: never a 5xx, never late, and nobody else's event is lost.

What was refused has changed nothing, and whatever was taken can be read.
"""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from django.db import connection

from tests import watch
from tests.hostile import material
from tests.hostile.chance import chances, examples, some
from tests.hostile.conftest import Caller, books, good_pod, good_usage
from tests.hostile.mutations import Bender

pytestmark = pytest.mark.django_db

IN_A_CALL = 40
TYPES = ("ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK")


def parses(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def pointed_at(document: Any, pointer: str) -> bool:
    """Whether a pointer leads into a document: all of it but the last name, which may be what is missing."""
    *way, _ = pointer.split("/")[1:] or [""]
    for name in way:
        name = name.replace("~1", "/").replace("~0", "~")
        try:
            document = document[int(name)] if isinstance(document, list) else document[name]
        except (LookupError, ValueError, TypeError):
            return False
    return True


class Faults:
    """Good events between bent ones: the good ones are applied, whatever becomes of the others."""

    def __init__(self, caller: Caller, name: str) -> None:
        self.caller = caller
        self.bender = Bender(chances(name))
        self.good = 0
        self.version = 1000

    def bent(self) -> bytes:
        """One bent event, newer than those before it, often in a place where another is."""
        rng = self.bender.chances
        self.version += 1
        shown = rng.choice(material.objects())
        metadata = {**shown["metadata"], "resourceVersion": str(self.version)}
        event = {"type": rng.choice(TYPES), "object": {**shown, "metadata": metadata}}
        return self.bender.text(self.bender.value(event))

    def call(self, texts: list[bytes], *, as_lines: bool) -> dict[str, Any]:
        """Sends the texts with a good event at some place; it must be applied."""
        place = self.bender.chances.randrange(len(texts) + 1)
        good = json.dumps(watch.event(good_pod(self.good))).encode()
        sent = [*texts[:place], good, *texts[place:]]
        self.good += 1
        if as_lines:
            answer = self.caller.post("/api/v1/events", b"\n".join(sent), "application/x-ndjson")
        else:
            answer = self.caller.post("/api/v1/events", b'{"events": [' + b",".join(sent) + b"]}")
        assert answer.status == 200, answer.raw[:500]
        assert good_usage(self.caller.api) == (self.good, 100 * self.good), (place, sent)
        return dict(answer.body)


def test_bent_events_hurt_nobody_else(caller: Caller, sound: Callable[[], None]) -> None:
    faults = Faults(caller, "events")
    for _ in range(max(1, examples(120) // IN_A_CALL)):
        texts = [faults.bent() for _ in range(IN_A_CALL)]
        readable = [text for text in texts if parses(text)]
        body = faults.call(readable, as_lines=False)
        # Each is accounted for: an event that is neither would wait for ever.
        told = {one["index"] for one in body["rejected"]} | {one["index"] for one in body["results"]}
        assert told == set(range(len(readable) + 1))
        faults.call([text.replace(b"\n", b" ") for text in texts], as_lines=True)
        sound()


def test_damaged_bodies_of_events_are_refused_whole_or_taken(
    caller: Caller, sound: Callable[[], None]
) -> None:
    bender = Bender(chances("bodies of events"))
    for number in range(examples(30)):
        pods = [good_pod(10 * number + place) for place in range(3)]
        body = bender.bytes_of(json.dumps(watch.events(*pods)).encode())
        before = books()
        kind = bender.chances.choice(
            ("application/json", "application/x-ndjson", "application/x-www-form-urlencoded")
        )
        answer = caller.post("/api/v1/events", body, kind)
        assert answer.status in (200, 400, 413, 415)
        if answer.status != 200:
            assert books() == before
            assert answer.body["type"].startswith("/problems/")


def test_bent_lists_hurt_nobody_else(caller: Caller, sound: Callable[[], None]) -> None:
    bender = Bender(chances("lists"))
    caller.post("/api/v1/events", json.dumps(watch.events(good_pod(0))).encode())
    for number in range(examples(40)):
        kind = bender.chances.choice(tuple(material.LIST_KINDS))
        items = bender.chances.sample(material.of_kind(kind), k=min(12, len(material.of_kind(kind))))
        items = [good_pod(0), *items] if kind == "Pod" else items
        full = material.a_list(kind, items, 2_000_000 + number)
        # The good pod itself is bent in no list, or it might rightly end.
        full["items"] = [*full["items"][:1], *map(bender.value, full["items"][1:])]
        body = bender.text(bender.value(full) if bender.chances.random() < 0.2 else full)
        dry = bender.chances.choice(("", "&dry_run=1"))
        before = books()
        answer = caller.post(f"/api/v1/snapshots?kind={kind}{dry}", body)
        assert answer.status in (200, 400, 409), answer.raw[:500]
        if answer.status != 200 or dry:
            assert books() == before
        if number % 10 == 9:
            sound()


@pytest.mark.parametrize("fault", ["data_exception", "program_limit_exceeded"])
def test_an_item_that_meets_a_fault_of_ours_holds_up_no_list(
    caller: Caller, sound: Callable[[], None], fault: str
) -> None:
    """The database refuses a row, which nothing that was checked before could tell."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" RAISE EXCEPTION 'no' USING ERRCODE = '{fault}'; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON hamiacct_pod FOR EACH ROW"
            " WHEN (NEW.name = 'good-1') EXECUTE FUNCTION refuse()"
        )
    full = material.a_list("Pod", [good_pod(number) for number in range(5)], 3_000_000)
    answer = caller.post("/api/v1/snapshots?kind=Pod", json.dumps(full).encode())
    assert (answer.status, answer.body["added"]) == (200, 4)
    assert [(one["index"], one["code"]) for one in answer.body["rejected"]] == [(1, "internal-error")]
    assert good_usage(caller.api) == (4, 400)


def test_what_a_list_does_not_hold_ends_whatever_it_is_called(caller: Caller) -> None:
    """Two quotas whose namespaces and names read the same, one after the other."""
    names = (("a/b", "c"), ("a", "b/c"), ("a\nb", "/"), ("/", ""), ("é", "x"), ("stays", "stays"))
    quotas = [
        watch.quota(name or "-", namespace=space, version=number)
        for number, (space, name) in enumerate(names)
    ]
    caller.post("/api/v1/events", json.dumps(watch.events(*quotas)).encode())
    full = json.dumps(material.a_list("ResourceQuota", quotas[-1:], 100)).encode()
    answer = caller.post("/api/v1/snapshots?kind=ResourceQuota", full)
    assert (answer.body["unchanged"], answer.body["ended"]) == (1, len(names) - 1)


def test_bent_reviews_are_answered(caller: Caller, sound: Callable[[], None]) -> None:
    bender = Bender(chances("reviews"))
    before = books()
    for _ in range(examples(50)):
        review = material.a_review(bender.chances.choice(material.of_kind("Pod")))
        path = bender.chances.choice(("/webhook", "/webhook/validate"))
        answer = caller.post(path, bender.body(review))
        assert answer.status in (200, 400), answer.raw[:500]
        if answer.status == 200:
            response = answer.body["response"]
            assert isinstance(response["allowed"], bool)
            assert response["allowed"] or response["status"]["message"]
    assert books() == before


@pytest.fixture
def complete(caller: Caller) -> None:
    """Books in which every vendor has a card, and which are complete."""
    events = watch.events(*material.nodes(), material.a_quota("gpu"))
    assert caller.post("/api/v1/events", json.dumps(events).encode()).status == 200
    assert caller.post("/api/v1/snapshots?complete=1", b"").status == 200


def huge(size: int) -> dict[str, bytes]:
    """Values that are large in one way each."""
    return {
        "a text": b'"' + b"x" * size * 10 + b'"',
        "a text of escapes": b'"' + rb"\u00e4" * size + b'"',
        "a list": b"[" + b"0," * size + b"0]",
        "a list of objects": b"[" + b"{}," * size + b"{}]",
        "an object": b"{" + b",".join(b'"a%d":0' % number for number in range(size)) + b"}",
        "one name again and again": b"{" + b'"a":0,' * size + b'"a":0}',
        "a number": b"9" * size,
        "a fraction": b"0." + b"9" * size,
        "depth": b"[" * size + b"]" * size,
        "depth of objects": b'{"a":' * size + b"0" + b"}" * size,
        "blanks": b" " * size * 10 + b"0",
    }


@pytest.mark.parametrize("what", huge(1))
def test_what_is_huge_takes_its_time_and_no_more(caller: Caller, what: str) -> None:
    """100,000 of it in the place of a value, in a message of each sort; `Caller` knows the bound."""
    text = huge(100_000)[what]
    pod = material.a_pod("p", material.LAYOUTS[0], material.VENDORS[0])
    for place in some(("uid", "annotations", "labels", "name"), 1, what):
        marked = {**pod, "metadata": {**pod["metadata"], place: "HUGE"}}
        before = books()
        for path, message in (
            ("/api/v1/fit", {"pod": marked}),
            ("/webhook", material.a_review(marked)),
            ("/extender/filter", {"Pod": marked, "NodeNames": ["all"]}),
            ("/api/v1/snapshots?kind=Pod&dry_run=1", material.a_list("Pod", [marked], 9_000_000)),
        ):
            caller.post(path, json.dumps(message).encode().replace(b'"HUGE"', text), may_be_unavailable=True)
        assert books() == before
        event = json.dumps(watch.event(marked)).encode().replace(b'"HUGE"', text)
        good = json.dumps(watch.event(good_pod(0))).encode()
        answer = caller.post("/api/v1/events", event + b"\n" + good, "application/x-ndjson")
        assert (answer.status, good_usage(caller.api)) == (200, (1, 100))


QUESTIONS = ("/api/v1/fit", "/api/v1/capacity", "/api/v1/quota/check", "/api/v1/explain")


def test_bent_questions_change_nothing(caller: Caller, complete: None, sound: Callable[[], None]) -> None:
    bender = Bender(chances("questions"))
    before = books()
    for _ in range(examples(50)):
        question: dict[str, Any] = {"pod": bender.chances.choice(material.of_kind("Pod"))}
        path = bender.chances.choice(QUESTIONS)
        if path in ("/api/v1/fit", "/api/v1/capacity"):
            question |= {"nodes": ["all", "node-nvidia"]}
        if path == "/api/v1/fit":
            question |= {"limit": 5, "node_policy": "spread", "gpu_policy": "binpack", "verdicts": True}
        if path == "/api/v1/capacity":
            question |= {"at_most": 10}
        if path == "/api/v1/quota/check":
            question |= {"namespace": "team-a"}
        body = bender.body(question)
        answer = caller.post(path, body)
        assert answer.status in (200, 400), (answer.raw[:500], body[:500])
        if answer.status == 400 and parses(body):
            for fault in answer.body.get("errors", ()):
                assert pointed_at(orjson.loads(body), fault["pointer"]), (fault, body)
    assert books() == before


def test_bent_reservations_hold_a_place_or_nothing(
    caller: Caller, complete: None, sound: Callable[[], None]
) -> None:
    bender = Bender(chances("reservations"))
    for number in range(examples(40)):
        pod = bender.chances.choice(material.of_kind("Pod"))
        named = {
            **pod,
            "metadata": {**pod["metadata"], "uid": f"claimed-{number}", "name": f"claimed-{number}"},
        }
        rows = [{"position": 0, "container": "c0", "devices": [{"uuid": "NVIDIA-0", "vendor": "NVIDIA"}]}]
        rows[0]["devices"][0] |= {"memory_mib": 10, "cores": 1}  # type: ignore[index]
        claim: dict[str, Any] = {"pod": named, "nodes": ["node-nvidia", "all"], "ttl_seconds": 900}
        if bender.chances.random() < 0.3:
            claim |= {"node": "node-nvidia", "allocation": rows}
        before = books()
        answer = caller.post("/api/v1/reservations", bender.body(claim))
        assert answer.status in (201, 400, 403, 409), answer.raw[:500]
        if answer.status != 201:
            assert books() == before
        if number % 20 == 19:
            sound()


def test_bent_extender_calls_are_answered_as_the_protocol_wants(
    caller: Caller, complete: None, sound: Callable[[], None]
) -> None:
    bender = Bender(chances("extender"))
    for _ in range(examples(40)):
        pod = bender.chances.choice(material.of_kind("Pod"))
        asked: dict[str, Any] = {"Pod": pod}
        if bender.chances.random() < 0.5:
            asked["NodeNames"] = ["node-nvidia", "all", "nowhere"]
        else:
            asked["Nodes"] = {"items": bender.chances.sample(material.of_kind("Node"), k=3)}
        binding = {"PodName": "p", "PodNamespace": "team-a", "PodUID": "u", "Node": "node-nvidia"}
        path, call = bender.chances.choice(
            (("filter", asked), ("filter", asked), ("prioritize", asked), ("bind", binding))
        )
        answer = caller.post(f"/extender/{path}", bender.body(call))
        assert answer.status == 200, answer.raw[:500]
        if path == "prioritize":
            assert all(0 <= one["Score"] <= 10 for one in answer.body)
        elif path == "filter":
            chosen = answer.body["Nodes"] or answer.body["NodeNames"]
            assert answer.body["Error"] or answer.body["FailedNodes"] or chosen is not None
        else:
            assert answer.body["Error"]

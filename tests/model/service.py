"""The service beside the model: every step is sent to both, and after each all books are compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rest_framework.test import APIClient

from tests.live import LiveStack
from tests.model.books import FINDINGS, VENDORS, Books, Refused
from tests.model.delivery import Call, FullList, Step
from tests.model.lives import NAMESPACES, watch_event


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: Any


class Service(Protocol):
    """Whatever answers requests."""

    def get(self, path: str) -> Answer: ...
    def post(self, path: str, body: Any) -> Answer: ...


@dataclass(frozen=True)
class InTheRequest:
    """The service in this process: events are applied in the request."""

    api: APIClient

    def get(self, path: str) -> Answer:
        response = self.api.get(path)
        return Answer(response.status_code, response.json())

    def post(self, path: str, body: Any) -> Answer:
        response = self.api.post(path, body, format="json")
        return Answer(response.status_code, response.json())


@dataclass(frozen=True)
class ThroughWorkers:
    """The service in processes of its own: a call waits until workers have applied what it sent."""

    stack: LiveStack

    def get(self, path: str) -> Answer:
        answer = self.stack.get(path)
        return Answer(answer.status, answer.body)

    def post(self, path: str, body: Any) -> Answer:
        answer = self.stack.post(path + ("?wait=60" if path.endswith("/events") else ""), body)
        return Answer(answer.status, answer.body)


@dataclass
class Pair:
    """The model, the service, and what the ledger's lines add up to so far."""

    service: Service
    books: Books = field(default_factory=Books)
    seq: int = 0
    replayed: dict[tuple[str, str, str], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0, 0])
    )

    def take(self, step: Step) -> None:
        """Sends one step to both, and holds the answers against each other."""
        if isinstance(step, Call):
            self._take_call(step)
        else:
            self._take_list(step)

    def _take_call(self, call: Call) -> None:
        expected = self.books.apply(call.events)
        body = {"events": [watch_event(event) for event in call.events]}
        answer = self.service.post("/api/v1/events", body)
        assert answer.status == 200, answer
        assert not answer.body["rejected"], answer
        outcomes = [result["outcome"] for result in answer.body["results"]]
        for event, outcome, wanted in zip(call.events, outcomes, expected, strict=True):
            assert outcome == wanted, (event, outcome, wanted)

    def _take_list(self, full: FullList) -> None:
        options = [f"namespace={full.namespace}"] if full.namespace else []
        options += ["history=new"] if full.new_history else []
        expected = self._expected_of(full, None)
        answer = self._send_list(full, options)
        if isinstance(expected, Refused):
            assert answer.status == 409, (full, answer)
            if expected.would_end is None:
                return
            assert answer.body["would_end"] == expected.would_end
            answer = self._send_list(full, [*options, f"confirm={expected.would_end}"])
            expected = self._expected_of(full, expected.would_end)
        assert answer.status == 200, (full, answer)
        assert answer.body["ended"] == expected, (full, answer)

    def _send_list(self, full: FullList, options: Sequence[str]) -> Answer:
        return self.service.post(f"/api/v1/snapshots?{'&'.join(options)}", full.body())

    def _expected_of(self, full: FullList, confirm: int | None) -> int | Refused:
        """How many the model ends, or why it does not."""
        try:
            return self.books.take_list(
                full.kind,
                full.version,
                full.views,
                namespace=full.namespace,
                new_history=full.new_history,
                confirm=confirm,
            )
        except Refused as refused:
            return refused

    def follow(self, steps: Iterable[Step]) -> None:
        """Sends steps one by one and compares all books after each; says which step it was that failed."""
        for number, step in enumerate(steps):
            try:
                self.take(step)
                self.agree()
            except AssertionError as failure:
                failure.add_note(f"after step {number}: {step}"[:2000])
                raise

    def agree(self) -> None:
        """Every book of the service says what the model says."""
        self._pods_agree()
        self._devices_agree()
        self._namespaces_agree()
        self._ledger_agrees()
        audit = self.service.get("/api/v1/audit").body
        assert audit["ok"], audit["discrepancies"]

    def _pods_agree(self) -> None:
        stored = {pod["uid"]: pod for pod in everything(self.service.get, "/api/v1/pods")}
        assert stored.keys() == self.books.pods.keys()
        for uid, account in self.books.pods.items():
            pod = stored[uid]
            usage = {
                (one["node"], one["device"], one["vendor"]): (one["slots"], one["memory_mib"], one["cores"])
                for one in pod["usage"]
            }
            held = {tuple(device): tuple(share) for device, share in account.held.items()}
            assert usage == held, (uid, usage, held, account)
            assert pod["state"] == account.state, account
            findings = {note["code"] for note in pod["findings"]} & FINDINGS
            assert findings == account.findings, (uid, findings, account.findings, account)
            if account.lives:
                assert pod["inits_released"] == account.released, account

    def _devices_agree(self) -> None:
        stored = {(one["node"], one["uuid"]): one for one in everything(self.service.get, "/api/v1/devices")}
        sizes = ("slots", "memory_mib", "cores")
        used = {place: tuple(one[size]["used"] for size in sizes) for place, one in stored.items()}
        totals = {place: tuple(share) for place, share in self.books.device_totals().items()}
        assert {place: amounts for place, amounts in used.items() if any(amounts)} == totals
        registered = {place for place, one in stored.items() if one["registered"]}
        assert registered == {place for place, card in self.books.cards.items() if card.registered}
        for place in registered:
            total = self.books.cards[place].total
            assert tuple(stored[place][size]["total"] for size in sizes) == total
            for size in sizes:
                room = stored[place][size]
                assert room["free"] == max(0, room["total"] - room["used"])

    def _namespaces_agree(self) -> None:
        known = {name for vendor in VENDORS.values() for name in (vendor.memory_name, vendor.cores_name)}
        for namespace in NAMESPACES:
            body = self.service.get(f"/api/v1/namespaces/{namespace}/quota").body
            used = {one["resource"]: one["used"] for one in body["resources"] if one["resource"] in known}
            wanted = self.books.namespace_used(namespace)
            assert {name: amount for name, amount in used.items() if amount} == {
                name: amount for name, amount in wanted.items() if amount
            }
            bounds = {
                (quota["name"], quota["key"]): (quota["hard"], quota["used"])
                for one in body["resources"]
                for quota in one["quotas"]
            }
            assert bounds == self.books.quotas_of(namespace)

    def _ledger_agrees(self) -> None:
        for line in everything(self.service.get, f"/api/v1/ledger?after={self.seq}"):
            self.seq += 1
            assert line["seq"] == self.seq, "the ledger has a gap"
            place = (line["pod_uid"], line["node"], line["device"])
            sums = self.replayed[place]
            for number, size in enumerate(("slots", "memory_mib", "cores")):
                sums[number] += line[size]
                assert sums[number] >= 0, (line, "below zero")
        held = {
            (uid, device.node, device.uuid): list(share)
            for uid, account in self.books.pods.items()
            for device, share in account.held.items()
        }
        assert {place: sums for place, sums in self.replayed.items() if any(sums)} == held


def everything(get: Callable[[str], Answer], path: str) -> Iterator[dict[str, Any]]:
    """All items of a list, page by page."""
    joint = "&" if "?" in path else "?"
    cursor = ""
    while True:
        answer = get(f"{path}{joint}limit=1000{cursor}")
        assert answer.status == 200, answer
        yield from answer.body["items"]
        if answer.body["next"] is None:
            return
        cursor = f"&cursor={answer.body['next']}"

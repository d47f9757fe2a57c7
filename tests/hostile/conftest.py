"""The books as one value, and calls that are watched: how long they take, and what they must not change."""

import hashlib
import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import connection
from rest_framework.test import APIClient

from tests import watch
from tests.model.service import everything

SECONDS = 1.0
SECONDS_A_MIB = 1.0
"""What a call may take of a processor: so much, and so much more for each MiB of its body."""

# What is no news of the cluster: refusals are kept, tokens are marked as used, sessions come and go.
OF_THE_BOOKS = (
    "device",
    "event",
    "feed",
    "finding",
    "ledgerentry",
    "listmark",
    "namespaceusage",
    "node",
    "pod",
    "quotausage",
    "reservation",
    "resourcequota",
    "usageentry",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and what it took."""

    status: int
    body: Any
    raw: bytes
    seconds: float


def books() -> str:
    """A digest of all that the books hold."""
    digest = hashlib.sha256()
    with connection.cursor() as cursor:
        for table in OF_THE_BOOKS:
            cursor.execute(
                f"SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM hamiacct_{table} AS t"
            )
            digest.update(repr(cursor.fetchone()).encode())
    return digest.hexdigest()


def why(response: Any) -> str:
    """What happened in a view that failed."""
    fault = getattr(response, "exc_info", None)
    return "".join(traceback.format_exception(*fault)) if fault else ""


class Caller:
    """Calls the application, and says what is wrong with an answer whatever was asked."""

    def __init__(self, api: APIClient) -> None:
        self.api = api

    def post(
        self,
        path: str,
        body: bytes,
        content_type: str = "application/json",
        *,
        may_be_unavailable: bool = False,
    ) -> Answer:
        """One call. Fails where it takes too long, or is a fault of ours."""
        began = time.process_time()
        response = self.api.generic("POST", path, body, content_type=content_type)
        seconds = time.process_time() - began
        raw = b"".join(response) if response.streaming else response.content
        said = (path, response.status_code, raw[:500], seconds, body[:2000])
        assert response.status_code < 500 or (may_be_unavailable and response.status_code == 503), (
            said,
            why(response),
        )
        assert seconds <= SECONDS + SECONDS_A_MIB * len(body) / 2**20, said
        assert "json" in response.headers["Content-Type"], said
        return Answer(response.status_code, json.loads(raw), raw, seconds)

    def get(self, path: str) -> Any:
        """A read, which whatever was stored must not spoil."""
        response = self.api.get(path)
        assert response.status_code < 500, (path, response.content)
        return Read(response.status_code, response.json())


@dataclass(frozen=True, slots=True)
class Read:
    """Status and body of an answer."""

    status: int
    body: Any


@pytest.fixture
def caller(api: APIClient, db: None) -> Caller:
    return Caller(api)


def good_pod(number: int) -> dict[str, Any]:
    """A pod that nobody bends, on a card that no other pod names."""
    return watch.pod(f"good-{number}", "GOOD 100 1", namespace="good", version=1_000_000 + number)


def good_usage(api: APIClient) -> tuple[int, int]:
    """Slots and memory of the good pods, as the card has them."""
    body = api.get("/api/v1/nodes/n1/devices/GOOD").json()
    return body["slots"]["used"], body["memory_mib"]["used"]


@pytest.fixture
def sound(caller: Caller) -> Iterator[Callable[[], None]]:
    """Whether the books are sound: they agree, nothing waits, all can be read. Seen at the end too."""

    def sound() -> None:
        audit = caller.get("/api/v1/audit").body
        assert audit["ok"], audit["discrepancies"]
        assert caller.get("/api/v1/cluster").body["inbox"]["waiting"] == 0
        for path in ("pods", "nodes", "devices", "findings", "ledger", "decisions"):
            assert sum(1 for _ in everything(caller.get, f"/api/v1/{path}")) >= 0

    yield sound
    sound()

"""GET /api/v1/audit, POST /api/v1/audit/repair"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from hamiacct import models
from tests.watch import card, node, pod

pytestmark = pytest.mark.django_db


@pytest.fixture
def _one_pod(send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")), pod("web", "GPU-a 1000 10"))


def test_books_that_agree(api: APIClient, _one_pod: None) -> None:
    found = api.get("/api/v1/audit").json()
    assert found["ok"] is True
    assert found["discrepancies"] == []
    assert found["checked"]["pods"] == found["checked"]["entries"] == 1


def test_a_total_that_was_changed_is_found_and_put_right(api: APIClient, _one_pod: None) -> None:
    models.Device.objects.update(memory_mib_used=7)
    found = api.get("/api/v1/audit").json()
    assert found["ok"] is False
    [discrepancy] = found["discrepancies"]
    assert discrepancy["book"] == "devices"
    assert "GPU-a" in discrepancy["key"]

    [repair] = api.post("/api/v1/audit/repair").json()["repaired"]
    assert repair["book"] == "devices"
    assert repair["was"] == discrepancy["stored"]
    assert repair["is"] == discrepancy["expected"]
    assert api.get("/api/v1/audit").json()["ok"] is True
    assert api.get("/api/v1/nodes/n1/devices/GPU-a").json()["memory_mib"]["used"] == 1000


def test_a_wrong_replay_gets_a_line_and_is_told_as_it_was_and_is(api: APIClient, _one_pod: None) -> None:
    entry = models.UsageEntry.objects.get()
    models.UsageEntry.objects.update(memory_mib=1500)
    told = {one["book"]: one for one in api.get("/api/v1/audit").json()["discrepancies"]}
    assert told["replay"]["stored"]["memory_mib"] == entry.memory_mib == 1000

    repaired = {one["book"]: one for one in api.post("/api/v1/audit/repair").json()["repaired"]}
    assert repaired["replay"]["was"] == told["replay"]["stored"]
    assert repaired["replay"]["is"] == told["replay"]["expected"]
    [*_, line] = api.get("/api/v1/ledger?pod=uid-web").json()["items"]
    assert (line["rule"], line["memory_mib"]) == ("repaired", 500)


def test_there_is_nothing_to_repair_twice(api: APIClient, _one_pod: None) -> None:
    assert api.post("/api/v1/audit/repair").json() == {"repaired": []}

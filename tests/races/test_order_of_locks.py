"""Whoever locks devices locks them in one order, or two wait for each other (decision 26)."""

import threading
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connections

from hamiacct import models
from hamiacct.operations import inbox
from tests import watch
from tests.live import database_url

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOCK = "SELECT FROM hamiacct_device WHERE node = %s FOR NO KEY UPDATE"


def test_news_of_several_nodes_one_after_the_other_lock_all_their_devices_in_order() -> None:
    """The first round of events changes only the second node, the second round only the first."""
    node_a, node_b = watch.node("a", watch.card("GPU")), watch.node("b", watch.card("GPU"))
    inbox.receive([watch.event(node_a), watch.event(node_b)], at=NOW)
    inbox.drain(at=NOW)
    tick = watch.node("a", watch.card("GPU"), **{watch.HANDSHAKE: "Reported 2026-01-02"})
    news = [tick, watch.node("b", watch.card("GPU", slots=3)), watch.node("a", watch.card("GPU", slots=3))]
    inbox.receive([watch.event(one) for one in news], at=NOW)
    with psycopg.connect(database_url()) as another:
        another.execute(LOCK, ["a"])
        drain = threading.Thread(target=drained)
        drain.start()
        until_somebody_waits_for(another)
        another.execute(LOCK + " NOWAIT", ["b"])
    drain.join()
    assert set(models.Device.objects.values_list("slots_total", flat=True)) == {3}


def drained() -> None:
    try:
        inbox.drain(at=NOW)
    finally:
        connections.close_all()


def until_somebody_waits_for(session: psycopg.Connection[Any]) -> None:
    ends = time.monotonic() + 10
    while not session.execute(
        "SELECT FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
    ).rowcount:
        assert time.monotonic() < ends, "nobody waits"
        time.sleep(0.01)

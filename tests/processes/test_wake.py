"""Waking a worker: once for many events, and never at the price of a request."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from devservers.launch import ROOT
from devservers.valkey import Valkey

QUEUE = "hamiacct"
WAKE = "from hamiacct import celery; celery.wake(); celery.wake(); celery.wake()"


@pytest.fixture
def broker() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory() as folder:
        server = Valkey(Path(folder))
        yield server
        server.stop()


def run(code: str, broker: Valkey) -> None:
    env = os.environ | {"HAMIACCT_REDIS_URL": broker.url, "DJANGO_SETTINGS_MODULE": "hamiacct.settings"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, timeout=30)


def test_three_wakes_send_one_message_until_the_worker_has_looked(broker: Valkey) -> None:
    run(WAKE, broker)
    with redis.Redis.from_url(broker.url) as client:
        assert client.llen(QUEUE) == 1
        run(f"{WAKE}; celery.woken(); celery.wake()", broker)
        assert client.llen(QUEUE) == 2


def test_a_lost_broker_neither_fails_nor_holds_up(broker: Valkey) -> None:
    timed = (
        f"import time; began = time.monotonic(); {WAKE}; celery.woken(); assert time.monotonic() - began < 5"
    )
    broker.kill()
    run(timed, broker)


def test_a_broker_lost_between_the_mark_and_the_message_neither_fails_nor_holds_up(broker: Valkey) -> None:
    # The mark goes to a server that lives, the message to one that does not.
    dead = "from hamiacct import celery; celery.app.conf.broker_url = 'redis://127.0.0.1:1/0'; celery.wake()"
    began = time.monotonic()
    run(dead, broker)
    assert time.monotonic() - began < 10
    with redis.Redis.from_url(broker.url) as client:
        assert client.llen(QUEUE) == 0


@pytest.mark.parametrize(
    "words", [["worker", "--concurrency", "1"], ["beat", "--pidfile="]], ids=lambda words: words[0]
)
def test_without_a_broker_worker_and_beat_say_so_and_end(words: list[str]) -> None:
    env = {name: text for name, text in os.environ.items() if name != "HAMIACCT_REDIS_URL"}
    command = [sys.executable, "-m", "celery", "-A", "hamiacct.celery", *words]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode != 0
    assert "HAMIACCT_REDIS_URL is empty" in ran.stderr + ran.stdout

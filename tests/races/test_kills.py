"""Everything that can die dies while events are applied: nothing is lost and nothing is doubled.

KILL_SECONDS (default 3) is how long each goes on, RACE_FIRST_SEED (1) where the seeds begin.
"""

import contextlib
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
from django.db import connection

from devservers.valkey import Valkey
from tests.live import LiveStack
from tests.races import crowd

SECONDS = float(os.environ.get("KILL_SECONDS", "3"))
Start = Callable[..., LiveStack]
Blow = Callable[[], None]


class Killer:
    """Deals one blow after the other to a running service, at random moments; counts them by name."""

    def __init__(self, stack: LiveStack, broker: Valkey | None, seed: int) -> None:
        self.stack, self.broker = stack, broker
        self.random = random.Random(f"kills {seed}")
        self.dealt: Counter[str] = Counter()

    def blow(self, *blows: Blow) -> None:
        """One of the blows, after a moment that nobody can foresee."""
        time.sleep(self.random.random() * 0.4)
        chosen = self.random.choice(blows)
        chosen()
        self.dealt[chosen.__name__] += 1

    def worker_child(self) -> None:
        """One process of a worker's pool."""
        self._kill_below(self.random.choice(("one", "two")))

    def worker(self) -> None:
        """A worker and its pool, as a machine that is switched off; another comes up."""
        name = self.random.choice(("one", "two"))
        self.stack.kill(name)
        self.stack.start_worker(name)

    def web_child(self) -> None:
        """One process of the web server, whatever it was about to store or to answer."""
        self.revive()
        self._kill_below("web")

    def web(self) -> None:
        """The web server as a whole; it comes up again at the same place."""
        self.revive()
        self.stack.kill("web")
        self.stack.start_web()

    def revive(self) -> None:
        """What an init system would do: the web server gives up when its children die too often."""
        if self.stack.processes["web"].status is not None:
            self.stack.start_web()

    def _kill_below(self, name: str) -> None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            children = self.stack.children(name)
            if children:
                os.kill(self.random.choice(children), signal.SIGKILL)

    def flush(self) -> None:
        """The broker forgets everything."""
        assert self.broker is not None
        with redis.Redis.from_url(self.broker.url) as client:
            client.flushall()

    def hang(self) -> None:
        """The broker stops answering for a while."""
        assert self.broker is not None
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(0.7)
        os.kill(self.broker.pid, signal.SIGCONT)

    def lost_broker_connections(self) -> None:
        """Everybody is cut off from the broker, and comes back to it."""
        assert self.broker is not None
        with redis.Redis.from_url(self.broker.url) as client:
            client.client_kill_filter(_type="normal")
            client.client_kill_filter(_type="pubsub")

    def sessions(self) -> None:
        """Every session of the database is ended by its server."""
        connection.close()  # this test's own is one of them
        with psycopg.connect(self.stack.database_url, autocommit=True) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture
def broker() -> Iterator[Valkey]:
    with tempfile.TemporaryDirectory() as folder:
        server = Valkey(Path(folder))
        yield server
        server.stop()


def test_workers_broker_database_and_web_die_at_random(
    live_stack: Start, broker: Valkey, record_property: Callable[[str, object], None]
) -> None:
    stack = live_stack(worker=False, beat=True, HAMIACCT_REDIS_URL=broker.url)
    stack.start_worker("one")
    stack.start_worker("two")
    killer = Killer(stack, broker, crowd.FIRST)
    events = strike(
        stack,
        killer,
        killer.worker_child,
        killer.worker,
        killer.web_child,
        killer.flush,
        killer.hang,
        killer.lost_broker_connections,
        killer.sessions,
    )
    crowd.comes_to(stack, events)
    crowd.switch_off(stack)
    record_property("blows", dict(killer.dealt))


def test_without_a_broker_web_and_database_die_at_random(
    live_stack: Start, record_property: Callable[[str, object], None]
) -> None:
    stack = live_stack(redis=False)
    killer = Killer(stack, None, crowd.FIRST)
    events = strike(stack, killer, killer.web_child, killer.web, killer.sessions)
    crowd.comes_to(stack, events)
    record_property("blows", dict(killer.dealt))


def strike(stack: LiveStack, killer: Killer, *blows: Blow) -> list[crowd.Event]:
    """Tells of a cluster while blows are dealt; answers all that was told."""
    cluster = crowd.Cluster(crowd.FIRST, crowd.STEADY)
    clients = crowd.Crowd(stack)
    told: list[crowd.Event] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not clients.is_busy:
            happened = [cluster.step() for _ in range(300)]
            told += happened
            clients.send(crowd.shuffled_calls(len(told), happened))
        killer.blow(*blows)
    told += (buried := cluster.bury())
    clients.send([buried])
    while not clients.are_done_within(0.2):
        killer.revive()  # the web server gives up some moments after a blow, the last one included
    clients.finish()
    return told


def test_the_broker_is_gone_for_good_and_beat_with_it(live_stack: Start, broker: Valkey) -> None:
    """What was sent meanwhile waits in the database, and is applied by whoever comes up later."""
    stack = live_stack(worker=False, HAMIACCT_REDIS_URL=broker.url)
    broker.kill()
    _, events = crowd.history(crowd.FIRST, steps=200)
    clients = crowd.Crowd(stack)
    clients.send(crowd.shuffled_calls(1, events))
    clients.finish()
    assert stack.get("/api/v1/cluster").body["inbox"]["waiting"] == 2 * len(events)
    stack.kill("web")
    again = live_stack(redis=False)
    crowd.comes_to(again, events)

"""SIGKILL and worse for each part of a site, at moments that nobody can foresee."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

import psutil
import psycopg
import redis

from tests.races.site import BEAT, WATCHERS, WEB, WORKERS, Site


class Blows:
    """Deals them in decks: each comes once, in an order of chance, before any comes again."""

    def __init__(self, site: Site, seed: str) -> None:
        self.site = site
        self.random = random.Random(f"blows {seed}")
        self.dealt: Counter[str] = Counter()
        first = [self.database, self.watcher, self.beat, self.broker]
        others = [
            self.session,
            self.web_child,
            self.worker,
            self.worker_child,
            self.web,
            self.all_sessions,
            self.broker_forgets,
            self.broker_hangs,
            self.broker_cuts_off,
        ]
        self._kinds: list[Callable[[], None]] = [*first, *others]
        self._deck = self._shuffled(others) + self._shuffled(first)

    def deal(self) -> None:
        """The next blow, after a moment; what ended by itself meanwhile is started again."""
        time.sleep(self.random.random() * 0.5)
        self.site.look_after()
        blow = self._deck.pop()
        blow()
        self.dealt[blow.__name__] += 1
        self._deck = self._deck or self._shuffled(self._kinds)

    def _shuffled(self, kinds: list[Callable[[], None]]) -> list[Callable[[], None]]:
        return self.random.sample(kinds, k=len(kinds))

    def _one_of(self, names: Sequence[str]) -> str:
        return self.random.choice(self.site.running(names))

    # --- ours

    def worker(self) -> None:
        """A worker and its pool."""
        self.site.kill(self._one_of(WORKERS))

    def worker_child(self) -> None:
        """The process of a worker's pool."""
        self._below(self._one_of(WORKERS))

    def web(self) -> None:
        """The web server as a whole."""
        self.site.kill(WEB)

    def web_child(self) -> None:
        """One process of the web server."""
        self._below(WEB)

    def beat(self) -> None:
        self.site.kill(BEAT)

    def watcher(self) -> None:
        """The one that watches, or the one that stands by."""
        name = self._one_of(WATCHERS)
        self.site.kill(name)
        if len(self.site.running(WATCHERS)) == 1:
            # Nobody stands by: that the lease of a killed one runs out is seen where there is time for it.
            with contextlib.suppress(psycopg.Error):  # the database may lie down from an earlier blow
                self.site.rows("UPDATE hamiacct_watchlease SET holder = '' RETURNING holder")

    def _below(self, name: str) -> None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):  # it ended by itself meanwhile
            children = self.site.stack.children(name)
            if children:
                os.kill(self.random.choice(children), signal.SIGKILL)

    # --- PostgreSQL

    def database(self) -> None:
        """The postmaster; for a moment nobody is there, then another on the same data."""
        self.site.database.kill()
        time.sleep(self.random.random() * 0.3)
        self.site.database.start_again()

    def session(self) -> None:
        """The process of one session: the postmaster takes no chances, ends all others and recovers."""
        with contextlib.suppress(psycopg.Error, ProcessLookupError):  # database or session are gone already
            found = self.site.rows(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() ORDER BY pid"
            )
            if found:
                os.kill(self.random.choice(found)[0], signal.SIGKILL)

    def all_sessions(self) -> None:
        """Every session is ended by the server."""
        with contextlib.suppress(psycopg.Error):  # the database may lie down from an earlier blow
            self.site.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    # --- the broker

    def broker(self) -> None:
        """Gone with all that it held; another comes up at the same place."""
        self.site.broker.kill()
        time.sleep(self.random.random() * 0.3)
        self.site.broker.start_again()

    def broker_forgets(self) -> None:
        """Everything that it holds is lost."""
        with redis.Redis.from_url(self.site.broker.url) as client:
            client.flushall()

    def broker_hangs(self) -> None:
        """It stops answering for a while."""
        os.kill(self.site.broker.pid, signal.SIGSTOP)
        time.sleep(0.7)
        os.kill(self.site.broker.pid, signal.SIGCONT)

    def broker_cuts_off(self) -> None:
        """Everybody is cut off from it, and comes back."""
        with redis.Redis.from_url(self.site.broker.url) as client:
            client.client_kill_filter(_type="normal")
            client.client_kill_filter(_type="pubsub")

"""The watcher's process: who holds the lease follows the cluster, one thread a kind; the others stand by.

The main thread only listens for signals, so nothing that hangs (a quiet stream, a connect, a lock) keeps the
process from ending. The threads are left where they are: whatever they had open is a transaction.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from django.db import Error, connection
from django.utils import timezone

from hamiacct.accounting.errors import AnotherCluster, Unavailable
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.kube import client
from hamiacct.kube.client import Client
from hamiacct.management.following import Follower
from hamiacct.management.terms import Term
from hamiacct.operations import watching

log = logging.getLogger(__name__)

RENEW_SECONDS = 3.0
STANDBY_SECONDS = 1.0
MARGIN_SECONDS = 1.0
"""How long before the lease runs out nothing more is applied under it."""
FAREWELL_SECONDS = 0.8


class Signals:
    """Hears SIGTERM and SIGINT, in whatever thread they arrive, and whoever calls from inside."""

    def __init__(self) -> None:
        self._heard, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _do_nothing)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def wait(self) -> None:
        """Returns when somebody wants us to end."""
        select.select([self._heard], [], [])

    def call(self) -> None:
        """What a signal does."""
        self._writer.send(b"\0")


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """The number was written to the socket already; this stands in for the default, which ends us at once."""


class Cluster:
    """The cluster to follow. A client that is new, or in doubt, is looked at first: credentials change, and
    behind an address another cluster may have taken the place of ours.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._seen: Client | None = None

    def connect(self) -> Client:
        """A client of the cluster of these books. AnotherCluster, or Unavailable where it cannot be told."""
        found = client.connect(self._kubeconfig)
        if found is None:
            raise Unavailable("there is no kubeconfig, and this is not a pod of a cluster")
        if found is not self._seen:
            uid = found.cluster_uid()
            try:
                watching.see_cluster(uid, at=timezone.now())
            except Error as fault:
                connection.close()
                raise Unavailable(f"the database: {fault}".strip()) from fault
            self._seen = found
        return found

    def doubt(self) -> None:
        """Whoever connects next looks again which cluster this is."""
        self._seen = None


class Watcher:
    """Takes the lease, follows while it holds it, and begins again when it lost it."""

    def __init__(self, kubeconfig: Path | None, call: Callable[[], None]) -> None:
        self._cluster = Cluster(kubeconfig)
        self._call = call
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._ends = threading.Event()
        self._term: Term | None = None
        self._threads: list[threading.Thread] = []
        self._is_told = False
        self.fault: Exception | None = None

    def start(self) -> None:
        """Begins, in threads of its own. Calls when it cannot go on; `fault` says why."""
        self._thread(self._look_after_the_lease, "lease")

    def stop(self) -> None:
        """Ends everything, gives the lease up, and does not wait long for anything."""
        self._ends.set()
        term, self._term = self._term, None
        if term is not None:
            term.over.set()
            self._thread(self._say_farewell, "farewell").join(FAREWELL_SECONDS)
        for thread in self._threads:
            thread.join(0.02)  # one that is writing a line of the log is not interrupted

    def fail(self, fault: Exception) -> None:
        """There is no going on."""
        self.fault = fault
        self._call()

    def _thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        return thread

    def _look_after_the_lease(self) -> None:
        try:
            self._look_at_the_cluster()
            while not self._ends.is_set():
                self._renew()
                self._ends.wait(STANDBY_SECONDS if self._term is None else RENEW_SECONDS)
        except Exception as fault:  # without a lease nothing goes on: whoever started us starts us again
            log.exception("the lease could not be looked after")
            self.fail(fault)

    def _look_at_the_cluster(self) -> None:
        """One who watches another cluster need not stand by; what cannot be told now is told later."""
        try:
            self._cluster.connect()
        except AnotherCluster as fault:
            self.fail(fault)
            self._ends.wait()
        except Unavailable as fault:
            log.warning("which cluster this is cannot be told yet: %s", fault)

    def _renew(self) -> None:
        """Takes or renews the lease. Where that cannot be told, whoever holds it knows until when."""
        asked_at = time.monotonic()
        try:
            if (
                self._term is not None
            ):  # what is on its way is of this term: who had to take it anew begins anew
                has_lease = watching.renew_lease(self._holder)
            else:
                has_lease = watching.take_lease(self._holder, at=timezone.now())
        except Error as fault:
            connection.close()
            self._tell("the lease cannot be looked at, the database: %s", str(fault).strip())
            return
        if self._ends.is_set():
            watching.give_up_lease(self._holder)  # it may have been taken after the farewell
            return
        if not has_lease:
            self._lose()
            self._tell("standing by: another watcher holds the lease")
            return
        self._is_told = False
        valid_until = asked_at + watching.LEASE_SECONDS - MARGIN_SECONDS
        if self._term is None:
            self._begin(valid_until)
        else:
            self._term.valid_until = valid_until

    def _tell(self, text: str, *values: object) -> None:
        """Once, until the lease is held."""
        if not self._is_told:
            log.warning(text, *values)
        self._is_told = True

    def _begin(self, valid_until: float) -> None:
        log.info("%s holds the lease and watches", self._holder)
        self._term = term = Term(self._holder, self.fail, valid_until)
        for kind in (Kind.NODE, Kind.QUOTA, Kind.POD):
            self._thread(Follower(kind, term, self._cluster).run, kind.value)

    def _lose(self) -> None:
        if self._term is not None:
            log.warning("the lease is lost: nothing more is applied")
            self._term.over.set()
            self._term = None

    def _say_farewell(self) -> None:
        try:
            for kind in Kind:
                watching.note(kind, WatchState.STOPPED, holder=self._holder, at=timezone.now())
            watching.give_up_lease(self._holder)
        except Error as fault:
            log.warning("the lease could not be given up, it runs out by itself: %s", str(fault).strip())
        finally:
            connection.close()

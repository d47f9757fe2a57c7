"""One kind of the cluster, followed: what comes is applied, and what goes wrong is said once and waited out.

A list goes through `operations.snapshots` page by page; events go into the inbox in batches, behind a sieve.
What could not be stored is kept and tried again, and nothing more is read meanwhile, so nothing is lost.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.db import DataError, Error, InterfaceError, InternalError, OperationalError, connection
from django.utils import timezone

from hamiacct import celery
from hamiacct.accounting.errors import (
    AccountingError,
    AnotherCluster,
    LeaseLost,
    OlderThanApplied,
    SnapshotRefused,
    TooManyAbsent,
)
from hamiacct.accounting.words import Kind, WatchState
from hamiacct.kube import client, watch
from hamiacct.kube.client import Client, Throttled, Unauthorized
from hamiacct.kube.watch import Away, Batch, ListPage
from hamiacct.management.sieve import Sieve
from hamiacct.management.terms import Backoff, Over, Term
from hamiacct.operations import inbox, snapshots, watching
from hamiacct.operations.snapshots import Listing
from hamiacct.queries import inbox as waiting

log = logging.getLogger(__name__)

T = TypeVar("T")

AWAY = (OperationalError, InterfaceError, InternalError)
"""The database is away, or busy: nothing is wrong with what was to be written."""

MAX_BACKLOG_EVENTS = 20_000
"""With more events waiting for workers nothing more is read, until half of them are applied."""
BACKLOG_LOOK_SECONDS = 1.0
NOTE_SECONDS = 5.0
"""How often the version is noted while all is well."""
FIRST_LISTS_SECONDS = 30.0
"""How long pods wait for the first lists of nodes and quotas, which they are judged by."""
REFUSED_SECONDS = 60.0
"""When a list is tried again that would have ended too much."""
WATCH_SECONDS = (300, 600)
JITTER = (0.9, 1.1)

DETAIL_OF_WAITING = "the first lists of nodes and quotas come before"


class Cluster(Protocol):
    """What is followed. `connect` gives a client of it, or AnotherCluster; in doubt it looks again."""

    def connect(self) -> Client: ...
    def doubt(self) -> None: ...


class _ListAgain(Exception):
    """The list is not believed, or was overtaken: another one is asked for."""


class Follower:
    """One kind during one term. `run` is a thread's."""

    def __init__(self, kind: Kind, term: Term, cluster: Cluster) -> None:
        self._kind = kind
        self._term = term
        self._cluster = cluster
        self._sieve = Sieve(kind)
        self._backoff = Backoff()
        self._said: tuple[WatchState | None, str] = None, ""
        self._noted_at: float | None = None
        self._backlog_seen_at = 0.0
        self._due_at = 0.0
        self._version = 0
        self._listing: Listing | None = None
        self._was_older = False
        self._absent: frozenset[str] | None = None
        self._refusal = ""

    def run(self) -> None:
        """Follows until the term is over. Whatever fails, it begins anew with a list, after a while."""
        try:
            self._let_others_begin()
            while True:
                try:
                    self._follow()
                except _ListAgain:
                    continue
                except LeaseLost as fault:  # it may be ours again with the next renewal
                    self._rest(str(fault))
                except (Over, AnotherCluster):
                    raise
                except Exception as fault:  # a bug in one kind stops no other: it rests and lists anew
                    log.exception("following %s failed", self._kind)
                    self._rest(f"{type(fault).__name__}: {fault}")
        except Over:
            return
        except AnotherCluster as fault:
            self._term.fail(fault)
        finally:
            connection.close()

    def _let_others_begin(self) -> None:
        if self._kind is not Kind.POD:
            return
        ends = time.monotonic() + FIRST_LISTS_SECONDS
        self._say(WatchState.STANDING_BY, DETAIL_OF_WAITING)
        for kind in (Kind.NODE, Kind.QUOTA):
            while not self._term.listed[kind].wait(0.1) and time.monotonic() < ends:
                self._term.check()

    def _follow(self) -> None:
        news_of = watch.follow(
            self._cluster.connect, self._kind, is_due=self._is_due, watch_seconds=self._watch_seconds
        )
        with closing(news_of):
            for news in news_of:
                self._term.check()
                match news:
                    case Away(fault):
                        self._stay_away(fault)
                    case ListPage():
                        self._backoff.reset()
                        self._take_page(news)
                    case Batch(events, version):
                        self._backoff.reset()
                        self._take_batch(events)
                        is_heard = bool(events) or version > self._version
                        self._say(WatchState.WATCHING, self._refusal, version if is_heard else 0)
                        self._version = version

    def _is_due(self) -> bool:
        return time.monotonic() >= self._due_at

    def _watch_seconds(self) -> int:
        """By chance, so that not all watches of all kinds begin anew at once; none outlasts the next list."""
        left = self._due_at - time.monotonic()
        return max(1, round(min(random.uniform(*WATCH_SECONDS), left + 1)))  # noqa: S311  # no secret

    # --- what came

    def _take_page(self, page: ListPage) -> None:
        """Applies a page; after the last, ends what the list did not hold."""
        try:
            self._say(WatchState.LISTING, "", page.version)
            if page.is_first:
                self._look_whose_it_is()
                self._sieve.forget()
                self._listing = self._with_books(lambda: self._begin(page.version))
            listing = self._listing
            assert listing is not None
            self._with_books(lambda: self._apply(listing, page.items))
            if page.is_last:
                self._with_books(lambda: self._finish(listing))
                self._listing = None
                self._term.listed[self._kind].set()
                self._say(WatchState.WATCHING, self._refusal, page.version)
        except SnapshotRefused as fault:  # another list overtook this one
            self._rest(str(fault))
            raise _ListAgain from fault

    def _look_whose_it_is(self) -> None:
        """A list of another cluster would replace the books, as a history or confirmed by a second one."""
        self._cluster.doubt()
        try:
            self._cluster.connect()
        except AccountingError as fault:
            self._stay_away(fault)
            raise _ListAgain from fault

    def _begin(self, version: int) -> Listing:
        """Of two lists that are older than what is applied, the second begins a history (decision 8)."""
        try:
            listing = snapshots.begin(self._kind, version)
        except OlderThanApplied as fault:
            if not self._was_older:
                log.warning("a list of %s is looked at again: %s", self._kind, fault)
                self._was_older = True
                raise _ListAgain from fault
            log.warning("the cluster was restored, says a second list of %s: %s", self._kind, fault)
            listing = snapshots.begin(self._kind, version, new_history=True, holder=self._term.holder)
        self._was_older = False
        return listing

    def _apply(self, listing: Listing, items: Sequence[Any]) -> None:
        kept, seen = self._sieve.page(items)
        counts = snapshots.apply_page(listing, kept, seen=seen, at=timezone.now())
        for one in counts.rejected:
            log.warning(
                "an item of the list of %s cannot be read: %s %s", self._kind, one.pointer, one.detail
            )

    def _finish(self, listing: Listing) -> None:
        """The sweep. What it refuses is believed when a second list in a row says the same (decision 33)."""
        try:
            result = snapshots.finish(listing, confirmed=self._absent, at=timezone.now())
        except TooManyAbsent as fault:
            is_first, self._absent = self._absent is None, fault.absent
            log.warning("a list of %s ends nothing: %s", self._kind, fault)
            if is_first:
                raise _ListAgain from fault
            self._refusal = str(fault)
            self._due_at = time.monotonic() + min(REFUSED_SECONDS, settings.HAMIACCT.resync_seconds)
            return
        self._absent, self._refusal = None, ""
        self._due_at = time.monotonic() + settings.HAMIACCT.resync_seconds * random.uniform(*JITTER)  # noqa: S311
        log.info(
            "%s listed at %s: %s added, %s changed, %s unchanged, %s ended",
            *(self._kind, result.version, result.added, result.changed, result.unchanged, result.ended),
        )

    def _take_batch(self, events: Sequence[Any]) -> None:
        """Stores a batch, and has it applied: by a worker, or here where there is no broker."""
        if not events:
            return
        self._let_workers_catch_up()
        stored = self._with_books(lambda: self._store(events))
        if not stored:
            return
        if settings.HAMIACCT.redis_url:
            celery.wake()
        else:
            self._settle(stored)

    def _settle(self, stored: Sequence[int]) -> None:
        """Has it applied, if need be again: where only a watcher runs nobody else sweeps."""
        backoff = Backoff()
        while not self._with_books(lambda: inbox.settle(stored, at=timezone.now())):
            self._term.wait(backoff.next())

    def _store(self, events: Sequence[Any]) -> list[int]:
        """The ids of what was stored. An event that cannot be holds up no other."""
        try:
            sifted = self._sieve.batch(events)
            receipt = inbox.receive(sifted.events, at=timezone.now())
        except Exception as fault:  # whatever one event does, the others of its batch are stored
            if isinstance(fault, Error) and not isinstance(fault, DataError):
                raise  # it is not about the events
            if len(events) == 1:
                log.exception("an event of %s could not be stored", self._kind)
                return []
            return [id_ for event in events for id_ in self._store([event])]
        self._sieve.stored(sifted)
        for one in receipt.rejected:
            log.warning("an event of %s cannot be read: %s %s", self._kind, one.pointer, one.detail)
        return [id_ for _, id_ in receipt.stored]

    def _let_workers_catch_up(self) -> None:
        """Reads no more while too much waits; the API server keeps what comes, or has us list again."""
        now = time.monotonic()
        if not settings.HAMIACCT.redis_url or now - self._backlog_seen_at < BACKLOG_LOOK_SECONDS:
            return
        self._backlog_seen_at = now
        most = MAX_BACKLOG_EVENTS
        while (number := self._with_books(lambda: waiting.backlog(timezone.now()).waiting)) > most:
            self._say(WatchState.BACKING_OFF, f"more than {MAX_BACKLOG_EVENTS} events wait for workers")
            log.debug("%s events wait", number)
            most = MAX_BACKLOG_EVENTS // 2
            celery.wake()
            self._term.wait(BACKLOG_LOOK_SECONDS)

    # --- what goes wrong

    def _stay_away(self, fault: AccountingError) -> None:
        """Waits before the next try, as long as was asked for."""
        if isinstance(fault, AnotherCluster):
            raise fault
        self._cluster.doubt()
        if isinstance(fault, Unauthorized):
            client.forget_connections()
        self._rest(str(fault), fault.retry_after_seconds if isinstance(fault, Throttled) else 0)

    def _rest(self, detail: str, at_least_seconds: float = 0.0) -> None:
        self._say(WatchState.BACKING_OFF, detail)
        self._term.wait(self._backoff.next(at_least_seconds))

    def _with_books(self, work: Callable[[], T]) -> T:
        """Does it as soon as the database lets us, and the lease is held."""
        backoff = Backoff()
        while True:
            self._term.check()
            try:
                return work()
            except AWAY as fault:
                connection.close()
                self._say(WatchState.BACKING_OFF, f"the database: {fault}".strip())
                self._term.wait(backoff.next())

    def _say(self, state: WatchState, detail: str, version: int = 0) -> None:
        """Logs a change of state, once, and notes it. A `version` says that something was heard."""
        before, detail_before = self._said
        if state is not before or (state is WatchState.WATCHING and detail != detail_before):
            level = logging.WARNING if state is WatchState.BACKING_OFF else logging.INFO
            log.log(level, "%s: %s%s", self._kind, state, f", {detail}" if detail else "")
        if (state, detail) != self._said:
            self._noted_at = None
        self._said = state, detail
        now = time.monotonic()
        if self._noted_at is not None and (now - self._noted_at < NOTE_SECONDS or not version):
            return
        try:
            watching.note(
                self._kind,
                state,
                detail=detail,
                version=version,
                holder=self._term.holder,
                at=timezone.now(),
            )
            self._noted_at = now
        except Error:  # then it is noted with the next news
            connection.close()

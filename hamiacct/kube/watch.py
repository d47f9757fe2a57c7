"""List, watch, and list again when the version is gone: what a cluster tells about one kind, for ever.

    pages of a list ─► batches of events ─► (cut: go on from the last version) ─► (410, or due: list again)

Nothing is decided here but the order of things. Whoever follows waits, counts and stores; he takes the next
news when he is done with the last. While he does not, nothing is read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hamiacct.accounting.errors import AccountingError, Unavailable
from hamiacct.kube import stream
from hamiacct.kube.client import Client, Gone, Manifest, Silent, Unreadable, is_version

PAGE_ITEMS = 500
BATCH_EVENTS = 500
QUIET_SECONDS = 0.5
"""How long nothing may come before the follower is told so: he may have other things to look after."""
MOMENT_SECONDS = 0.05
"""What comes within this time of an event is stored together with it."""

PAGE_TRIES = 3
"""How often a page is asked for before the list starts over: a server that was restored or replaced meanwhile
may never know its token.
"""

LIVING_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""Leaving the selection arrives as DELETED, which releases the pod. Never a label selector: a label that is
taken off a living pod would look the same."""
FIELD_SELECTORS = {"Pod": LIVING_PODS}


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a full list at `version`. A list that starts over shows a first page again."""

    items: Sequence[Any]
    version: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Events in their order; they reach up to `version`. Without events: nothing happened up to it."""

    events: Sequence[Manifest]
    version: int


@dataclass(frozen=True, slots=True)
class Away:
    """Nothing can be read just now. It is tried again when the next news is asked for."""

    fault: AccountingError


News = ListPage | Batch | Away


def follow(
    connect: Callable[[], Client],
    kind: str,
    *,
    is_due: Callable[[], bool],
    watch_seconds: Callable[[], int],
) -> Generator[News, None, None]:
    """The news of a kind, endlessly. It lists again when `is_due` says so, asked between two batches.

    `connect` gives the client to use, asked before each call, since credentials change; `watch_seconds` how
    long the next watch may last. To list again before it is due, follow anew.
    """
    while True:
        version = yield from _listed(connect, kind)
        yield from _watched(connect, kind, version, is_due, watch_seconds)


def _listed(connect: Callable[[], Client], kind: str) -> Generator[News, None, int]:
    """A whole list; returns its version. A page that fails is asked for again; a list without its token, when
    that is too old or fails again and again.
    """
    token = ""
    fell_back = False
    failures = 0
    while True:
        try:
            page = connect().page(
                kind, limit=PAGE_ITEMS, token=token, field_selector=FIELD_SELECTORS.get(kind, "")
            )
        except AccountingError as fault:
            if isinstance(fault, Gone) and token and not fell_back:
                token, fell_back = (
                    "",
                    True,
                )  # at once, but once: a list that is never done in time needs a rest
                continue
            failures += 1
            token = "" if isinstance(fault, Gone) or failures >= PAGE_TRIES else token
            yield Away(fault)
            continue
        failures = 0
        yield ListPage(page.items, page.version, is_first=not token, is_last=not page.next_token)
        if not page.next_token:
            return page.version
        token = page.next_token


def _watched(
    connect: Callable[[], Client],
    kind: str,
    version: int,
    is_due: Callable[[], bool],
    watch_seconds: Callable[[], int],
) -> Iterator[News]:
    """Watches from the last version, again after each end, until only a list helps, or one is due."""
    has_heard = False
    while not is_due():
        is_short = True
        try:
            for news in _stream(connect(), kind, version, watch_seconds()):
                version, has_heard, is_short = max(version, news.version), True, False
                yield news
                if is_due():
                    return
        except Gone as fault:
            if not has_heard:  # too old as soon as it was listed: a list at once would be so as well
                yield Away(fault)
            return
        except (Unreadable, Silent) as fault:
            yield Away(fault)
            return
        except AccountingError as fault:
            yield Away(fault)
        else:
            if is_short:
                yield Away(Unavailable("the watch ended as soon as it began"))


def _stream(cluster: Client, kind: str, version: int, seconds: int) -> Iterator[Batch]:
    """One stream to its end."""
    selector = FIELD_SELECTORS.get(kind, "")
    with stream.reading(cluster, kind, version=version, seconds=seconds, field_selector=selector) as reader:
        while True:
            lines = reader.take(BATCH_EVENTS, wait_seconds=QUIET_SECONDS, moment_seconds=MOMENT_SECONDS)
            if lines is None:
                return
            events, fault = stream.events_of(lines)
            version = max([version, *map(_version_of, events)])
            if events or not lines:
                yield Batch([event for event in events if event.get("type") != "BOOKMARK"], version)
            if fault:
                raise fault


def _version_of(event: Manifest) -> int:
    """The version that an event reaches; 0 where none can be read, which others will complain about."""
    metadata = event["object"].get("metadata")
    text = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return int(text) if is_version(text) else 0

"""HAMi's own metrics, fetched: within a size and a time, and what stands in the way is told, not raised.

A comparison answers without them too, so a page that cannot be read is a page with a problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import httpx2

from hamiacct.accounting.errors import Malformed, Unavailable
from hamiacct.kube import hami_metrics

CONNECT_SECONDS = 2.0
SILENT_SECONDS = 5.0
PAGE_SECONDS = 15.0
PAGE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """What HAMi says, from where; None with the problem that kept it from being read."""

    source: str
    reported: hami_metrics.Reported | None
    problem: str = ""


def hami(source: str) -> Page | None:
    """What stands at the address; None without one. Of the address no password is shown."""
    return _page(_without_secrets(source), _fetched(source)) if source else None


def hami_file(path: Path) -> Page:
    """The same from a file, as somebody saved it."""
    return _page(str(path), _lines_of(path))


def is_address(source: str) -> bool:
    """Whether it is an address rather than a file."""
    return urlsplit(source).scheme in ("http", "https")


def _page(source: str, lines: Iterable[str]) -> Page:
    try:
        return Page(source, hami_metrics.read(lines))
    except Malformed as fault:
        return Page(source, None, fault.detail)
    except Unavailable as fault:
        return Page(source, None, fault.detail)


def _without_secrets(address: str) -> str:
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _lines_of(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8") as page:
            yield from page
    except OSError as fault:
        raise Unavailable(f"cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise Malformed(f"this is no UTF-8 text: {fault.reason} at byte {fault.start}") from fault


def _fetched(address: str) -> Iterator[str]:
    """The lines of the page, as they come. Unavailable where they do not, all of them, in time."""
    given_up_at = monotonic() + PAGE_SECONDS
    limits = httpx2.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
    try:
        with (
            httpx2.Client(timeout=limits, trust_env=False) as client,
            client.stream("GET", address, headers={"Accept": "text/plain"}) as response,
        ):
            if response.status_code != 200:
                raise Unavailable(f"answers {response.status_code}")
            yield from _lines(_bounded(response.iter_text(), given_up_at))
    except (httpx2.HTTPError, httpx2.InvalidURL) as fault:
        raise Unavailable(f"cannot be reached: {fault or type(fault).__name__}") from fault


def _bounded(texts: Iterable[str], given_up_at: float) -> Iterator[str]:
    """The texts, until they are too many or come too late: lines may never end."""
    size = 0
    for text in texts:
        size += len(text)
        if size > PAGE_BYTES:
            raise Unavailable(f"is larger than {PAGE_BYTES >> 20} MiB")
        if monotonic() > given_up_at:
            raise Unavailable(f"is not read to its end within {PAGE_SECONDS:.0f} s")
        yield text


def _lines(texts: Iterable[str]) -> Iterator[str]:
    """The lines of a text that comes in pieces."""
    begun: list[str] = []
    for text in texts:
        first, *others = text.split("\n")
        begun.append(first)
        for other in others:
            yield "".join(begun)
            begun = [other]
    yield "".join(begun)

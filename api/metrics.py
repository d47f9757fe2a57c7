"""GET /metrics: the books at one moment, and what this group of processes has counted."""

from __future__ import annotations

import io
import platform
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from prometheus_client.exposition import choose_encoder
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from api.endpoint import Endpoint
from hamiacct import metrics
from hamiacct.accounting.words import WatchState
from hamiacct.operations import scrapes
from hamiacct.queries.metrics import Card, State

log = structlog.get_logger("hamiacct.metrics")

BYTES_PER_MIB = 2**20
LINES_AT_ONCE = 5000
GZIP = 16 + zlib.MAX_WBITS

Sample = tuple[str, float]
"""The labels as they are written, and the value."""
Family = tuple[str, Iterable[Sample]]


class Metrics(Endpoint):
    """GET /metrics"""

    def get_authenticators(self) -> list[BaseAuthentication]:
        """Nobody is asked for a token where that is so set."""
        return [] if settings.HAMIACCT.metrics_open else super().get_authenticators()

    def get_permissions(self) -> Sequence[Any]:
        """As above."""
        return [] if settings.HAMIACCT.metrics_open else super().get_permissions()

    @extend_schema(
        summary="Metrics, as Prometheus reads them",
        responses={
            (200, "text/plain"): OpenApiTypes.STR,
            (200, "application/openmetrics-text"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request) -> HttpResponse:
        """Gauges of the books, read at one moment, then what the processes behind this port have counted.

        OpenMetrics where it is asked for. Without a database the second part is still told.
        """
        encode, media_type = choose_encoder(request.headers.get("Accept", ""))
        books = _books()
        counted = encode(metrics.measured())
        parts = _parts(books, counted)
        headers = {"Vary": "Accept, Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            parts = _gzipped(parts)
        return HttpResponse(_whole(parts), content_type=media_type, headers=headers)


def _whole(parts: Iterable[bytes]) -> bytes:
    """The parts in one, none of them kept beside it: of a large cluster they are 40 MB."""
    text = io.BytesIO()
    for part in parts:
        text.write(part)
    return text.getvalue()


def _books() -> State | None:
    """None where the database does not answer."""
    try:
        return scrapes.state(per_pod=settings.HAMIACCT.metrics_per_pod, at=timezone.now())
    except (OperationalError, InterfaceError) as fault:
        log.warning("a scrape without the books", error=repr(fault))
        return None


def _parts(books: State | None, counted: bytes) -> Iterator[bytes]:
    families = [_of_the_process(books is not None), *(_families(books) if books else ())]
    for name, samples in (family for group in families for family in group):
        yield from written(name, samples)
    yield counted


def _gzipped(parts: Iterable[bytes]) -> Iterator[bytes]:
    """At the lowest level, which is four times as fast as the usual one and enough for text like this."""
    packer = zlib.compressobj(1, wbits=GZIP)
    for part in parts:
        if packed := packer.compress(part):
            yield packed
    yield packer.flush()


# --- the text ---------------------------------------------------------------------------------------


def written(name: str, samples: Iterable[Sample]) -> Iterator[bytes]:
    """One family in the text format, which for gauges is the same in OpenMetrics; nothing without a sample.

    By hand: a quarter of a million objects of the library's would take ten times as long.
    """
    rest = iter(samples)
    some = list(islice(rest, LINES_AT_ONCE))
    if some:
        yield f"# HELP {name} {metrics.STATE[name].help}\n# TYPE {name} gauge\n".encode()
    while some:
        yield "".join(
            [f"{name}{{{labels}}} {value!r}\n" if labels else f"{name} {value!r}\n" for labels, value in some]
        ).encode()
        some = list(islice(rest, LINES_AT_ONCE))


def labelled(name: str, *texts: object) -> str:
    """The values of the family's labels, in its order."""
    names = metrics.STATE[name].labels
    return ",".join([f'{label}="{_escaped(str(text))}"' for label, text in zip(names, texts, strict=True)])


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return text


def _by(name: str, numbers: Iterable[tuple[object, float]]) -> Family:
    """A family with one label."""
    return name, [(labelled(name, word), number) for word, number in numbers]


def _one(name: str, number: float) -> Family:
    return name, [("", number)]


# --- what is told -----------------------------------------------------------------------------------


def _of_the_process(is_database_up: bool) -> list[Family]:
    name = "hamiacct_build_info"
    runs = labelled(
        name, metrics.VERSION, platform.python_version(), f"{platform.system()}/{platform.machine()}"
    )
    return [(name, [(runs, 1)]), _one("hamiacct_database_up", int(is_database_up))]


def _families(books: State) -> list[list[Family]]:
    return [
        _of_cards(books),
        _of_quotas(books),
        _of_pods(books),
        _of_the_books(books),
        _of_the_watcher(books),
    ]


def _of_cards(books: State) -> list[Family]:
    cards = books.cards
    name = "hamiacct_gpu_memory_limit_bytes"
    labels = [labelled(name, card.node, card.uuid, card.device_index, card.model) for card in cards]
    held = [
        f'{text},device_cores="{card.cores_percent_used}"' for text, card in zip(labels, cards, strict=True)
    ]
    instance = "hamiacct_node_gpu_mig_instance_info"

    def of(texts: list[str], values: Iterable[float | None]) -> Iterator[Sample]:
        return ((text, value) for text, value in zip(texts, values, strict=True) if value is not None)

    def overview(text: str, card: Card) -> str:
        return f'{text},device_memory_limit="{card.memory_mib}"'

    return [
        (name, of(labels, (_bytes(card.memory_mib) for card in cards))),
        ("hamiacct_gpu_core_limit_ratio", of(labels, (card.cores_percent for card in cards))),
        ("hamiacct_gpu_memory_allocated_bytes", of(held, (_bytes(card.memory_mib_used) for card in cards))),
        ("hamiacct_gpu_shared_count", of(labels, (card.slots_used for card in cards))),
        ("hamiacct_gpu_core_allocated_ratio", of(labels, (card.cores_percent_used for card in cards))),
        ("hamiacct_node_gpu_memory_allocated_ratio", of(labels, (card.memory_share for card in cards))),
        (
            "hamiacct_node_gpu_overview",
            (
                (overview(text, card), card.memory_mib_used * BYTES_PER_MIB)
                for text, card in zip(held, cards, strict=True)
                if card.memory_mib_used is not None
            ),
        ),
        (instance, [(labelled(instance, *one), 1) for one in books.instances]),
    ]


def _bytes(memory_mib: int | None) -> int | None:
    return None if memory_mib is None else memory_mib * BYTES_PER_MIB


def _of_quotas(books: State) -> list[Family]:
    """In the unit a resource is accounted in, the label included: HAMi's own has that one raw (G-31)."""
    used, limit, over = (f"hamiacct_resource_quota_{word}" for word in ("used", "limit", "over"))
    found = [(space, one) for space, resources in books.quotas.items() for one in resources]
    limited = [(space, one, one.hard) for space, one in found if one.hard is not None]
    return [
        (used, [(labelled(used, space, one.resource, one.hard or 0), one.used) for space, one in found]),
        (limit, [(labelled(limit, space, one.resource), hard) for space, one, hard in limited]),
        (over, [(labelled(over, space, one.resource), one.over_by) for space, one, _ in limited]),
    ]


def _of_pods(books: State) -> list[Family]:
    memory, cores = "hamiacct_vgpu_memory_allocated_bytes", "hamiacct_vgpu_core_allocated_ratio"
    return [
        (
            memory,
            [
                (labelled(memory, *one[:5]), one.memory_mib * BYTES_PER_MIB)
                for one in books.shares
                if one.memory_mib is not None
            ],
        ),
        (cores, [(labelled(cores, *one[:5]), one.cores_percent) for one in books.shares]),
    ]


def _of_the_books(books: State) -> list[Family]:
    audit = books.audit
    return [
        _by("hamiacct_devices", books.devices.items()),
        _by("hamiacct_pods", books.pods.items()),
        _by("hamiacct_reservations", books.reservations.items()),
        _one("hamiacct_binding_oldest_seconds", books.binding_oldest_seconds),
        _by("hamiacct_findings", books.findings.items()),
        _by("hamiacct_inbox_events", (("waiting", books.waiting), ("refused", books.refused))),
        _one("hamiacct_inbox_lag_seconds", books.lag_seconds),
        _one("hamiacct_books_complete", int(books.is_complete)),
        _by("hamiacct_audit_discrepancies", audit.discrepancies.items() if audit else ()),
        *([_one("hamiacct_audit_last_run_timestamp_seconds", audit.at.timestamp())] if audit else ()),
        *([_one("hamiacct_audit_duration_seconds", audit.seconds)] if audit else ()),
    ]


def _of_the_watcher(books: State) -> list[Family]:
    if books.watcher is None:
        return []
    name, watches = "hamiacct_watcher_state", books.watcher.watches
    return [
        _one("hamiacct_watcher_alive", int(books.watcher.is_alive)),
        (
            name,
            [
                (labelled(name, one.kind, state), int(one.state is state))
                for one in watches
                for state in WatchState
            ],
        ),
        _by(
            "hamiacct_watcher_silent_seconds",
            ((one.kind, one.silent_seconds) for one in watches if one.silent_seconds is not None),
        ),
    ]

"""Every metric there is: its name, its labels, its help; and how those that processes count are added up.

What the database knows (STATE) is read by the scrape itself. What only processes know (MEASURED) is counted
where it happens. A web server and a Celery worker are several processes each, so each group of them counts
in files of one folder, which outlive a killed process; whoever is asked answers for the whole group
(docs/adr/0010-metrics.md).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from django.dispatch import receiver
from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server, values
from prometheus_client.multiprocess import MultiProcessCollector

from hamiacct import announcements
from hamiacct.accounting.reasons import Reason
from hamiacct.accounting.words import Question, Refusal

PREFIX = "hamiacct_"
VERSION = "0.1.0"  # as pyproject.toml has it, which is not there where this runs


class Gauge(NamedTuple):
    """A gauge that a scrape reads from the database. Its name says its unit."""

    labels: tuple[str, ...]
    help: str


_CARD = ("node", "device_uuid", "device_index", "device_type")
_SHARE = ("namespace", "node", "pod", "container_index", "device_uuid")

STATE: Mapping[str, Gauge] = {
    f"{PREFIX}{name}": gauge
    for name, gauge in {
        # --- cards: registered devices on nodes that exist (semantics 9 of HAMi's own names) ---
        "gpu_memory_limit_bytes": Gauge(
            _CARD, "Memory of a card; none where its memory is not counted in MiB."
        ),
        "gpu_core_limit_ratio": Gauge(_CARD, "Cores of a card, in percent of it."),
        "gpu_memory_allocated_bytes": Gauge((*_CARD, "device_cores"), "Memory that pods hold of a card."),
        "gpu_shared_count": Gauge(_CARD, "Slots that pods hold of a card."),
        "gpu_core_allocated_ratio": Gauge(_CARD, "Cores that pods hold of a card, in percent of it."),
        "node_gpu_memory_allocated_ratio": Gauge(_CARD, "Held memory of a card over all of it, from 0 to 1."),
        "node_gpu_overview": Gauge(
            (*_CARD, "device_cores", "device_memory_limit"),
            "Memory that pods hold of a card, in bytes; the label device_memory_limit is in MiB.",
        ),
        "node_gpu_mig_instance_info": Gauge(
            (
                *("node", "device_uuid", "device_index", "mig_uuid", "profile"),
                *("gpu_instance_id", "compute_instance_id", "placement_start", "placement_size"),
            ),
            "1 for each MIG instance of a pod whose runtime identity is known.",
        ),
        # --- quotas ---
        "resource_quota_used": Gauge(
            ("namespace", "quota_name", "limit"),
            "What a namespace's pods hold of a resource; it and the label limit are in accounted units.",
        ),
        "resource_quota_limit": Gauge(
            ("namespace", "quota_name"), "The tightest limit on a resource, in the unit it is accounted in."
        ),
        "resource_quota_over": Gauge(
            ("namespace", "quota_name"),
            "By how much the pods that a ResourceQuota selects exceed it, at most; accounted units.",
        ),
        # --- pods, only with HAMIACCT_METRICS_PER_POD ---
        "vgpu_memory_allocated_bytes": Gauge(_SHARE, "Memory in a container's rows of its pod's allocation."),
        "vgpu_core_allocated_ratio": Gauge(_SHARE, "Cores in a container's rows, in percent of the card."),
        # --- the books ---
        "devices": Gauge(("state",), "Devices: registered, and of these healthy and cordoned; unregistered."),
        "pods": Gauge(("state",), "Pods by their state in the books."),
        "reservations": Gauge(("state",), "The last hold of each pod, by its state."),
        "binding_oldest_seconds": Gauge(
            (), "How long the oldest hold in state binding has been there; 0 for none."
        ),
        "findings": Gauge(("code",), "What is odd, by code."),
        "inbox_events": Gauge(
            ("state",), "Events that wait, and events that were refused and not handled yet."
        ),
        "inbox_lag_seconds": Gauge((), "For how long the oldest waiting event has waited."),
        "books_complete": Gauge(
            (), "1 when a full list of every kind was applied, or the books were declared so."
        ),
        "audit_discrepancies": Gauge(("book",), "Places where a book differed in the last periodic audit."),
        "audit_last_run_timestamp_seconds": Gauge((), "When the last periodic audit ran."),
        "audit_duration_seconds": Gauge((), "How long the last periodic audit took."),
        # --- the watcher ---
        "watcher_alive": Gauge((), "1 while a watcher holds the lease; without a line none has ever run."),
        "watcher_state": Gauge(
            ("kind", "state"), "1 for what the watcher does about a kind, 0 for the rest."
        ),
        "watcher_silent_seconds": Gauge(
            ("kind",), "How long ago the API server sent something about a kind."
        ),
        "database_up": Gauge(
            (), "Whether the database answered this scrape; without it the lines of the books are missing."
        ),
        "build_info": Gauge(("version", "python_version", "platform"), "1; what runs."),
    }.items()
}

# --- what processes count -------------------------------------------------------------------------

REGISTRY = CollectorRegistry()

ALLOWED = "allowed"
NO_REASON = ""
OTHER = "other"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOW = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

# Each has labels: one without would have its value made at import, before it is known where to keep it.
DECISIONS = Counter(
    f"{PREFIX}decisions",
    "Answers to questions about pods: allowed, or why not. The reason is the one that most nodes gave.",
    ("question", "verdict", "reason"),
    registry=REGISTRY,
)
DECISION_SECONDS = Histogram(
    f"{PREFIX}decision_seconds",
    "How long an answer to a question about a pod took.",
    ("question",),
    buckets=_FAST,
    registry=REGISTRY,
)
EVENTS = Counter(
    f"{PREFIX}events_settled",
    "Events of the inbox, by what became of them.",
    ("kind", "outcome"),
    registry=REGISTRY,
)
APPLY_SECONDS = Histogram(
    f"{PREFIX}apply_seconds",
    "From an event's storing to the commit that settled it.",
    ("kind",),
    buckets=_SLOW,
    registry=REGISTRY,
)
HOLDS = Counter(
    f"{PREFIX}reservations_ended",
    "Holds that no longer expire or no longer stand: bound, confirmed, released, expired. "
    "A hold that is bound is confirmed or released later, and counted again then.",
    ("end",),
    registry=REGISTRY,
)
REQUESTS = Counter(
    f"{PREFIX}http_requests",
    "Requests answered, by route and status; all of the admin's pages are one route.",
    ("method", "route", "status"),
    registry=REGISTRY,
)
REQUEST_SECONDS = Histogram(
    f"{PREFIX}http_request_seconds",
    "How long an answer took, by route.",
    ("method", "route"),
    buckets=_FAST,
    registry=REGISTRY,
)
TASKS = Counter(
    f"{PREFIX}tasks",
    "Tasks that a worker ran, by how they ended: success, failure, retry.",
    ("task", "state"),
    registry=REGISTRY,
)
TASK_SECONDS = Histogram(
    f"{PREFIX}task_seconds", "How long a task ran.", ("task",), buckets=_SLOW, registry=REGISTRY
)

MEASURED = (
    *(DECISIONS, DECISION_SECONDS, EVENTS, APPLY_SECONDS, HOLDS),
    *(REQUESTS, REQUEST_SECONDS, TASKS, TASK_SECONDS),
)


class Decision:
    """One question while it is being answered."""

    __slots__ = ("reason", "verdict")

    def __init__(self) -> None:
        self.verdict, self.reason = "", NO_REASON


_current = threading.local()


@contextmanager
def decision(question: Question) -> Iterator[Decision]:
    """Measures the answer to a question; it is counted if it has a verdict by the end."""
    began, one = time.perf_counter(), Decision()
    _current.decision = one
    try:
        yield one
    except Exception:  # a bug, or somebody's fault: no answer, and counted as such
        refuse_unless_told(Refusal.ERROR)
        raise
    finally:
        _current.decision = None
        if one.verdict:
            DECISIONS.labels(question, one.verdict, one.reason).inc()
            DECISION_SECONDS.labels(question).observe(time.perf_counter() - began)


def refuse(verdict: Refusal, reasons: Mapping[str, Sequence[str]] | None = None) -> None:
    """The question that this thread answers is refused. `reasons` are nodes by reason."""
    one = getattr(_current, "decision", None)
    if one is not None:
        one.verdict, one.reason = verdict, _first(reasons or {})


def refuse_unless_told(verdict: Refusal) -> None:
    """The question was not answered; if it was refused before that, the refusal stands."""
    one = getattr(_current, "decision", None)
    if one is not None and not one.verdict:
        one.verdict = verdict


def _first(reasons: Mapping[str, Sequence[str]]) -> str:
    """The reason that most nodes gave, of the closed list of them."""
    if not reasons:
        return NO_REASON
    given = min(reasons, key=lambda reason: (-len(reasons[reason]), reason))
    return given if given in _REASONS else OTHER


_REASONS = frozenset(reason.value for reason in Reason)


def answered(method: str, route: str | None, status: int, seconds: float) -> None:
    """A request was answered. `route` is None where no path matched."""
    method = method if method in METHODS else OTHER
    route = route or ""
    route = "admin/" if route.startswith("admin/") else route
    REQUESTS.labels(method, route, str(status)).inc()
    REQUEST_SECONDS.labels(method, route).observe(seconds)


def ran(task: str, state: str, seconds: float) -> None:
    """A worker ran a task."""
    TASKS.labels(task, state.lower()).inc()
    TASK_SECONDS.labels(task).observe(seconds)


@receiver(announcements.events_settled, dispatch_uid="hamiacct.metrics.events")
def _count_events(what: Sequence[announcements.Settled], **_: Any) -> None:
    now = time.time()
    for one in what:
        EVENTS.labels(one.kind, one.outcome).inc(one.number)
        observed, seconds = APPLY_SECONDS.labels(one.kind), max(0.0, now - one.received_at.timestamp())
        for _once in range(one.number):
            observed.observe(seconds)


@receiver(announcements.holds_moved_on, dispatch_uid="hamiacct.metrics.holds")
def _count_holds(what: Sequence[str], **_: Any) -> None:
    for state in what:
        HOLDS.labels(state).inc()


# --- the files of a group of processes ------------------------------------------------------------

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the name by which prometheus_client itself asks for it
_NAMED = "hamiacct-metrics-"


def share() -> None:
    """From now on this process and those it starts count in files of one new folder.

    Called once by the first process of a group. The folder goes with it; what a killed group left behind is
    removed by the next.
    """
    _remove_leftovers()
    folder = tempfile.mkdtemp(prefix=f"{_NAMED}{os.getpid()}-")
    os.environ[FOLDER] = folder
    # Chosen at import otherwise, which was before this.
    values.ValueClass = values.MultiProcessValue()
    atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    """A forked child that ends leaves the folder to the rest."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers() -> None:
    """Folders of groups whose first process is no more, or had the number that is ours now."""
    for left in Path(tempfile.gettempdir()).glob(f"{_NAMED}*-*"):
        owner = left.name.removeprefix(_NAMED).partition("-")[0]
        if owner.isdigit() and (int(owner) == os.getpid() or not Path(f"/proc/{owner}").exists()):
            shutil.rmtree(left, ignore_errors=True)


def measured() -> CollectorRegistry:
    """What the processes of this group have counted, those that are gone included."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=folder)
    return registry


class _Group:
    """Asked at every scrape, since files come and go."""

    def collect(self) -> Iterator[Any]:
        """The families as they are now."""
        return iter(measured().collect())


def serve(port: int) -> Any:
    """Answers scrapes of what this group has counted, on every address; answers the listening server."""
    server, _ = start_http_server(port, registry=_Group())
    return server

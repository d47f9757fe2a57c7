"""The Celery app and the beat table.

The truth is in PostgreSQL; a message only wakes somebody up. So losing every message costs no more than the
time until the next sweep, and publishing one never makes a request wait or fail.
"""

import gc
import logging
import os
import time
from typing import Any

import redis
import structlog
from celery import Celery, signals
from django.conf import settings
from kombu.exceptions import OperationalError

from hamiacct import metrics

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hamiacct.settings")

# task -> seconds between two runs. Each may run late, twice, or beside itself. The last three are due
# more rarely, but a table held in memory starts anew with its process, so they are asked for often.
BEAT = {
    "hamiacct.tasks.sweep_inbox": 5.0,
    "hamiacct.tasks.sweep_holds": 5.0,
    "hamiacct.tasks.settle_bindings": 15.0,
    "hamiacct.tasks.sweep_findings": 60.0,
    "hamiacct.tasks.run_audit": 600.0,
    "hamiacct.tasks.sweep_old": 3600.0,
    "hamiacct.tasks.ensure_partitions": 3600.0,
}

BROKER = settings.HAMIACCT.redis_url

# Set while a wake-up is on its way, so that a thousand events send one; a lost wake-up lets it lapse.
ON_ITS_WAY = "hamiacct:wake-up-on-its-way"
ON_ITS_WAY_SECONDS = 15
# Under this name a wake-up carries the id of the request that sent it, for the log alone.
WOKEN_BY = "woken_by"

log = logging.getLogger(__name__)
flags = redis.Redis.from_url(BROKER, socket_connect_timeout=1, socket_timeout=1) if BROKER else None

app = Celery("hamiacct")
app.conf.update(
    broker_url=BROKER or "memory://",
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        # A killed worker's task comes back after this many seconds; the interval says how often we look.
        "visibility_timeout": 120,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_connect_timeout": 1,
        "socket_timeout": 10,
        # Without these a publisher would try to connect for ever.
        "max_retries": 1,
        "interval_start": 0,
        "interval_max": 0,
    },
    # An acknowledgement before the work is done loses the work with its process.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    worker_prefetch_multiplier=1,
    task_publish_retry=False,
    task_ignore_result=True,
    task_default_queue="hamiacct",
    task_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    worker_hijack_root_logger=False,
    beat_scheduler="celery.beat:Scheduler",
    beat_max_loop_interval=5,
    beat_schedule={
        task: {"task": task, "schedule": every, "options": {"expires": every}} for task, every in BEAT.items()
    },
)
app.autodiscover_tasks(["hamiacct"])


@signals.setup_logging.connect
def keep_our_logging(**_: Any) -> None:
    """Connected so that Celery leaves logging as hamiacct.logs has set it up."""
    logging.captureWarnings(True)


@signals.celeryd_init.connect
@signals.beat_init.connect
def need_a_broker(**_: Any) -> None:
    """Without one nobody would ever send or hear anything, and it would look as if all were well."""
    if not BROKER:
        raise SystemExit("HAMIACCT_REDIS_URL is empty: without a broker worker and beat have nothing to do")


@signals.celeryd_init.connect
def count_together(instance: Any = None, **_: Any) -> None:
    """Before a worker starts its pool: its processes count in one folder; what it prints is its log."""
    metrics.share()
    logging.captureWarnings(True)
    instance.quiet = True


@signals.worker_ready.connect
def answer_scrapes(**_: Any) -> None:
    """Of all that the pool counts, in the process that outlives the others."""
    if settings.HAMIACCT.metrics_port:
        _listening.append(metrics.serve(settings.HAMIACCT.metrics_port))


@signals.worker_process_init.connect
def leave_the_port_alone(**_: Any) -> None:
    """A process that was forked later must not hold the port when the one that answers is gone."""
    while _listening:
        _listening.pop().socket.close()


@signals.worker_process_init.connect
def leave_what_is_loaded_alone(**_: Any) -> None:
    """What is loaded now stays for good: the garbage collector would look through it with every batch.

    A batch makes tens of thousands of objects, of which none is garbage before it ends.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


COLLECT_AFTER_OBJECTS = 20_000

_listening: list[Any] = []
_began: dict[str, float] = {}


@signals.task_prerun.connect
def begin(task_id: str, task: Any, **_: Any) -> None:
    """Every line that the task logs says which task it was, and whose request woke it."""
    _began[task_id] = time.perf_counter()
    woken_by = task.request.get(WOKEN_BY) or (task.request.headers or {}).get(WOKEN_BY)
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(task=task.name, task_id=task_id)
    if woken_by:
        structlog.contextvars.bind_contextvars(woken_by=woken_by)


@signals.task_postrun.connect
def end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    """Counts the task."""
    metrics.ran(task.name, state or "unknown", time.perf_counter() - _began.pop(task_id, time.perf_counter()))
    structlog.contextvars.clear_contextvars()


def _request_id() -> str:
    """The id of the request that this thread answers; "" outside of one."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def wake() -> None:
    """Tells a worker that events wait, once however many do. Never fails: what nobody is told of is swept."""
    if flags is None:
        return
    try:
        if flags.set(ON_ITS_WAY, 1, nx=True, ex=ON_ITS_WAY_SECONDS):
            app.send_task("hamiacct.tasks.drain_inbox", headers={WOKEN_BY: _request_id()})
    except (redis.RedisError, OperationalError) as fault:
        log.warning("no worker could be woken; the next sweep finds what waits: %s", fault)


def woken() -> None:
    """What a woken worker says *before* it looks, so that whoever comes after its look wakes it again."""
    if flags is None:
        return
    try:
        flags.delete(ON_ITS_WAY)
    except redis.RedisError as fault:
        log.warning("the wake-up stays marked as on its way for %s s: %s", ON_ITS_WAY_SECONDS, fault)

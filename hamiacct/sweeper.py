"""The beat table without a beat: where there is no broker, the web process sweeps for itself."""

import logging
import threading
import time

from django.db import InterfaceError, OperationalError, close_old_connections

from hamiacct import celery

log = logging.getLogger(__name__)


def start() -> threading.Thread:
    """Runs every task of the beat table in this process, at its intervals, until the process ends."""
    thread = threading.Thread(target=sweep_forever, name="sweeper", daemon=True)
    thread.start()
    return thread


def sweep_forever() -> None:
    celery.app.loader.import_default_modules()
    due = dict.fromkeys(celery.BEAT, 0.0)
    while True:
        for name in sorted(due, key=due.__getitem__):
            if due[name] <= time.monotonic():
                run(name)
                due[name] = time.monotonic() + celery.BEAT[name]
        time.sleep(max(0.0, min(due.values()) - time.monotonic()))


def run(name: str) -> None:
    close_old_connections()
    try:
        celery.app.tasks[name]()
    except (OperationalError, InterfaceError) as fault:
        log.warning("%s waits for its next turn: %s", name, fault)  # the database is away, which others tell
    except Exception:  # Whatever went wrong with one sweep, the next is due all the same.
        log.exception("%s failed", name)

"""Work that is done once the answer was sent, in the thread that sent it, so that nobody waits for it.

For what may be lost where a process dies, and whose failure is no part of the answer: kept refusals.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog
from django.core.signals import request_finished, request_started
from django.db import Error
from django.dispatch import receiver

log = structlog.get_logger("hamiacct.api")

MAX_WAITING = 100

Work = Callable[[], object]


class _Waiting(threading.local):
    """The work of the request that this thread is at, bounded: of more the oldest is forgotten."""

    def __init__(self) -> None:
        self.work: deque[Work] = deque(maxlen=MAX_WAITING)


_waiting = _Waiting()


def do(work: Work) -> None:
    """Has the work done after the answer to the current request."""
    _waiting.work.append(work)


@receiver(request_started, dispatch_uid="hamiacct.forget")
def _forget(**_: Any) -> None:
    """A request that never came to its end leaves its work to nobody else."""
    _waiting.work.clear()


@receiver(request_finished, dispatch_uid="hamiacct.catch_up")
def _catch_up(**_: Any) -> None:
    """Does what waits. The answer is out, so what the database refuses is logged and that is all."""
    while _waiting.work:
        work = _waiting.work.popleft()
        try:
            work()
        except Error as error:
            log.warning("lost", what=repr(work), error=repr(error))

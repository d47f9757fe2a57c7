"""Waiting for what others do, in threads and processes, where nothing tells that it is done."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
from django.db import connections


def until(is_so: Callable[[], Any], seconds: float = 30.0, every: float = 0.02) -> None:
    """Returns when it is so; TimeoutError where it does not come to that."""
    ends = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(every)


def in_a_thread(work: Callable[[], Any]) -> Future[Any]:
    """What comes of it, in a thread with a connection of its own."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except Exception as fault:  # noqa: BLE001  # told where the answer is asked
            answer.set_exception(fault)
        finally:
            connections.close_all()

    threading.Thread(target=run).start()
    return answer


def somebody_waits_for(session: psycopg.Connection[Any]) -> bool:
    """Whether a lock of this session keeps somebody waiting."""
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    return bool(session.execute(waiting).rowcount)

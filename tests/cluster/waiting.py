"""Waiting for what other processes do, where nothing tells that it is done."""

import time
from collections.abc import Callable
from typing import Any


def until(is_so: Callable[[], Any], seconds: float = 10.0, every: float = 0.05) -> None:
    """Returns when it is so; TimeoutError where it does not come to that."""
    ends = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > ends:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(every)

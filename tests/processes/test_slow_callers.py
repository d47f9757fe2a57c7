"""Callers that stop half-way, or drip: they hold a connection, never a thread, and that not for long."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pytest

from devservers.pytest_plugin import OPERATOR_TOKEN
from tests.live import LiveStack

CALLERS = 64
SECONDS = 10  # of the server, for headers and for the body of a small request
LINES = f"Host: localhost\r\nAuthorization: Bearer {OPERATOR_TOKEN}\r\nContent-Type: application/json\r\n"


@pytest.fixture
def stack(live_stack: Callable[..., LiveStack]) -> LiveStack:
    return live_stack(redis=False)


@pytest.fixture
def caller(stack: LiveStack) -> Iterator[Callable[[str], socket.socket]]:
    """Makes a caller that has sent so much and says no more."""
    with ExitStack() as sockets:

        def call(text: str) -> socket.socket:
            opened = socket.create_connection(("127.0.0.1", stack.port), timeout=4 * SECONDS)
            opened.sendall(text.encode())
            return sockets.enter_context(opened)

        yield call


def half_a_body(path: str) -> str:
    return f'POST {path} HTTP/1.1\r\n{LINES}Content-Length: 500\r\n\r\n{{"pod": '


def all_that_comes(opened: socket.socket) -> bytes:
    """What is answered until the connection is closed from the other side."""
    parts = []
    while part := opened.recv(65536):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def dripping(sockets: dict[socket.socket, bytes]) -> Iterator[None]:
    """Each sends these bytes again and again meanwhile, twice a second."""
    over = threading.Event()

    def drip() -> None:
        while not over.wait(0.5):
            for opened, drop in sockets.items():
                with suppress(OSError):  # it was told, or closed
                    opened.sendall(drop)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_who_stops_half_way_is_told_and_nobody_waits_for_him(
    stack: LiveStack, caller: Callable[[str], socket.socket]
) -> None:
    paths = ("/api/v1/fit", "/api/v1/events", "/api/v1/snapshots", "/extender/filter", "/webhook", "/nowhere")
    half_sent = [caller(half_a_body(paths[number % len(paths)])) for number in range(CALLERS - 1)]
    chunk = f"POST /api/v1/snapshots HTTP/1.1\r\n{LINES}Transfer-Encoding: chunked\r\n\r\n5\r\n[null\r\n"
    half_sent.append(caller(chunk))
    headless = [caller(f"POST /api/v1/fit HTTP/1.1\r\n{LINES}") for _ in range(CALLERS)]
    drops = dict.fromkeys(half_sent[:6], b" ") | {half_sent[-1]: b"1\r\n \r\n"}
    drops |= {headless[0]: b"X-A: b\r\n", headless[1]: b"X"}
    with dripping(drops):
        all_are_told_in_time(stack, half_sent, headless)


def all_are_told_in_time(
    stack: LiveStack, half_sent: list[socket.socket], headless: list[socket.socket]
) -> None:
    began = time.monotonic()
    for path in ("/livez", "/readyz", "/api/v1/cluster"):
        assert stack.get(path, timeout=SECONDS / 2).status in (200, 503)
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}
    assert stack.post("/api/v1/fit", {"pod": pod}, timeout=SECONDS / 2).status == 200
    assert time.monotonic() - began < SECONDS / 2
    with ThreadPoolExecutor(2 * CALLERS) as pool:
        answers = list(pool.map(all_that_comes, half_sent))
        silent = list(pool.map(all_that_comes, headless))
    assert time.monotonic() - began < 2 * SECONDS
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 "), answer
        assert b"application/problem+json" in head
        assert json.loads(body)["type"] == "/problems/request-timeout"
    # A header is half a request; what to answer in is not known yet.
    assert all(not answer or answer.startswith(b"HTTP/1.1 408 ") for answer in silent)

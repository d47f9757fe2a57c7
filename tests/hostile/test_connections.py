"""Requests that are hardly HTTP, and callers who keep a connection: others are answered all the while.

One service for all of them, as it runs in earnest. After each trial it answers at once, and at the end it
has as many sockets as at the beginning.
"""

import json
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import psutil
import pytest

from devservers.pytest_plugin import OPERATOR_TOKEN
from tests import watch
from tests.hostile.chance import chances, examples
from tests.live import LiveStack
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 0.2
SOON_SECONDS = 3.0
"""How long anybody else waits for an answer meanwhile, on a machine that has other things to do."""
HEADERS = f"Host: localhost\r\nAuthorization: Bearer {OPERATOR_TOKEN}\r\n"
LAST = "Connection: close\r\n\r\n"
POD = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}


@pytest.fixture(scope="module")
def stack(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """The web process alone."""
    started = LiveStack(tmp_path_factory.mktemp("hostile"), with_redis=False, settings={})
    started.start_web()
    yield started
    started.close()


def said(stack: LiveStack, *parts: bytes | str, patience: float = 20.0, seconds: float = 20.0) -> bytes:
    """All that is answered to what was sent, until the other side closes.

    Who hears nothing for so long as he has patience says that he will send no more.
    """
    with socket.create_connection(("127.0.0.1", stack.port), timeout=seconds) as opened:
        with suppress(ConnectionError):  # it may have heard enough
            for part in parts:
                opened.sendall(part.encode("latin-1") if isinstance(part, str) else part)
        parts = []
        with suppress(ConnectionError):  # the server may close at once; what it said before counts
            while True:
                if not select.select([opened], [], [], patience)[0]:
                    opened.shutdown(socket.SHUT_WR)
                    parts.append(everything_from(opened))
                    break
                if not (part := opened.recv(65536)):
                    break
                parts.append(part)
        return b"".join(parts)


def everything_from(opened: socket.socket) -> bytes:
    parts = []
    with suppress(ConnectionError):  # as above
        while part := opened.recv(65536):
            parts.append(part)
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    """The status of the first answer; 0 where there is none, since the connection was closed."""
    if not answer:
        return 0
    assert answer.startswith(b"HTTP/1."), answer[:200]
    return int(answer.split(b" ", 2)[1])


def is_well(stack: LiveStack) -> None:
    """Somebody else is answered at once: a probe, a read and a question."""
    began = time.monotonic()
    assert stack.get("/livez", timeout=SOON_SECONDS).status == 200
    assert stack.get("/api/v1/nodes", timeout=SOON_SECONDS).status == 200
    assert stack.post("/api/v1/fit", {"pod": POD}, timeout=SOON_SECONDS).status == 200
    assert time.monotonic() - began < SOON_SECONDS


def web_processes(stack: LiveStack) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in (stack.processes["web"].pid, *stack.children("web"))]


def sockets(stack: LiveStack) -> int:
    """How many callers' connections the service keeps."""
    return sum(
        1
        for process in web_processes(stack)
        for one in process.net_connections("tcp")
        if one.laddr.port == stack.port and one.status not in (psutil.CONN_LISTEN, psutil.CONN_TIME_WAIT)
    )


def memory_mib(stack: LiveStack) -> float:
    return sum(process.memory_info().rss for process in web_processes(stack)) / 2**20


# --- hardly HTTP -----------------------------------------------------------------------------------

GET = "GET /api/v1/pods HTTP/1.1\r\n" + HEADERS
POST = "POST /api/v1/events HTTP/1.1\r\n" + HEADERS + "Content-Type: application/json\r\n"
CHUNKED = f"{POST}Transfer-Encoding: chunked\r\n{LAST}"
EVENTS = '{"events": []}'

# What is sent, and the statuses that will do; 0 is a closed connection.
HARDLY_HTTP: dict[str, tuple[str | bytes, set[int]]] = {
    "HTTP/1.0": ("GET /livez HTTP/1.0\r\n\r\n", {200, 400}),
    "HTTP/1.0 with a host": (f"GET /livez HTTP/1.0\r\nHost: localhost\r\n{LAST}", {200}),
    "HTTP/0.9": ("GET /livez\r\n\r\n", {0, 400}),
    "HTTP/9.9": (f"GET /livez HTTP/9.9\r\n{HEADERS}{LAST}", {0, 400, 505}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), {0, 400, 505}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600), {0, 400}),
    "bytes": (bytes(range(256)) * 8, {0, 400}),
    "no method": (f" /livez HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400}),
    "an unknown method": (f"FROB /api/v1/pods HTTP/1.1\r\n{HEADERS}{LAST}", {400, 405, 501}),
    "a method in small letters": (f"get /api/v1/pods HTTP/1.1\r\n{HEADERS}{LAST}", {200, 400, 405, 501}),
    "a long method": ("G" * 100_000 + f" /livez HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 405, 414, 431, 501}),
    "TRACE": (f"TRACE /api/v1/pods HTTP/1.1\r\n{HEADERS}{LAST}", {400, 405, 501}),
    "CONNECT": (f"CONNECT example.com:443 HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 404, 405, 501}),
    "OPTIONS *": (f"OPTIONS * HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404, 405}),
    "GET *": (f"GET * HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "an absolute URI": (f"GET http://localhost/livez HTTP/1.1\r\n{HEADERS}{LAST}", {200}),
    "the absolute URI of another": (
        f"GET http://evil.example/api/v1/pods HTTP/1.1\r\n{HEADERS}{LAST}",
        {400},
    ),
    "another host": (f"GET /api/v1/pods HTTP/1.1\r\nHost: evil.example\r\n{LAST}", {400}),
    "two hosts": (f"{GET}Host: evil.example\r\n{LAST}", {400}),
    "two hosts, ours the last": (
        f"GET /api/v1/pods HTTP/1.1\r\nHost: evil.example\r\n{HEADERS}{LAST}",
        {400},
    ),
    "two hosts that are one": (f"{GET}Host: localhost\r\n{LAST}", {400}),
    "no host": (f"GET /api/v1/pods HTTP/1.1\r\nAuthorization: Bearer {OPERATOR_TOKEN}\r\n{LAST}", {400}),
    "an empty host": (f"GET /api/v1/pods HTTP/1.1\r\nHost: \r\n{LAST}", {400}),
    "a host that is none": (f"GET /api/v1/pods HTTP/1.1\r\nHost: a b/c\\d@\r\n{LAST}", {400}),
    "a NUL in the path": (f"GET /api/v1/pods/a\0b HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400}),
    "a percent-encoded NUL": (f"GET /api/v1/pods/%00 HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "a NUL in the query": (f"GET /api/v1/pods?namespace=%00 HTTP/1.1\r\n{HEADERS}{LAST}", {400}),
    "half an escape": (f"GET /api/v1/pods/%zz%4 HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "no UTF-8 in the path": (f"GET /api/v1/pods/%ff%fe HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "no UTF-8 in the query": (f"GET /api/v1/pods?node=%ff HTTP/1.1\r\n{HEADERS}{LAST}", {200, 400}),
    "half a pair in the path": (f"GET /api/v1/pods/%ed%a0%80 HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "raw bytes in the path": (f"GET /api/v1/pods/\xff\xfe HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 404}),
    "dots in the path": (f"GET /static/../../../../etc/passwd HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "encoded dots": (f"GET /static/%2e%2e/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "encoded slashes": (f"GET /static/..%2f..%2f..%2fetc%2fpasswd HTTP/1.1\r\n{HEADERS}{LAST}", {400, 404}),
    "backslashes": (f"GET /static/..\\..\\settings.py HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 404}),
    "many slashes": (f"GET {'/' * 5000} HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 404, 414}),
    "a long path": (f"GET /{'a' * 60_000} HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 404, 414, 431}),
    "a path of a MiB": (f"GET /{'a' * 2**20} HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 404, 414, 431}),
    "a long query": (f"GET /api/v1/pods?{'node=a&' * 8000} HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400, 414, 431}),
    "a fragment": (f"GET /livez#a HTTP/1.1\r\n{HEADERS}{LAST}", {0, 200, 400, 404}),
    "a space in the path": (f"GET /a b HTTP/1.1\r\n{HEADERS}{LAST}", {0, 400}),
    "10,000 headers": (GET + "".join(f"X-{n}: {n}\r\n" for n in range(10_000)) + LAST, {0, 400, 431}),
    "a header of a MiB": (f"{GET}X-Long: {'a' * 2**20}\r\n{LAST}", {0, 400, 431}),
    "a token of 300 KB": (
        f"GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'a' * 300_000}\r\n{LAST}",
        {0, 401, 431},
    ),
    "a header without a colon": (f"{GET}X-None\r\n{LAST}", {0, 400}),
    "a header without a name": (f"{GET}: none\r\n{LAST}", {0, 400}),
    "a header with a blank before the colon": (f"{GET}X-Blank : 1\r\n{LAST}", {0, 400}),
    "a folded header": (f"{GET}X-Folded: a\r\n b\r\n{LAST}", {0, 200, 400}),
    "a NUL in a header": (f"{GET}X-Nul: a\0b\r\n{LAST}", {0, 400}),
    "a lone CR in a header": (f"{GET}X-Cr: a\rX-Other: b\r\n{LAST}", {0, 400}),
    "bytes in a header": (f"{GET}X-Bytes: \xff\xfe\r\n{LAST}", {200, 400}),
    "line ends without CR": (GET.replace("\r", "") + LAST.replace("\r", ""), {0, 200, 400}),
    "a length that is no number": (f"{POST}Content-Length: abc\r\n{LAST}{EVENTS}", {0, 400}),
    "a negative length": (f"{POST}Content-Length: -1\r\n{LAST}{EVENTS}", {0, 400}),
    "a length with a sign": (f"{POST}Content-Length: +14\r\n{LAST}{EVENTS}", {0, 400}),
    "a length in other digits": (f"{POST}Content-Length: \xb2\r\n{LAST}{EVENTS}", {0, 400}),
    "a huge length": (f"{POST}Content-Length: {10**30}\r\n{LAST}{EVENTS}", {0, 400, 413}),
    "two lengths": (f"{POST}Content-Length: 14\r\nContent-Length: 15\r\n{LAST}{EVENTS}", {0, 400}),
    "two lengths in one": (f"{POST}Content-Length: 14, 15\r\n{LAST}{EVENTS}", {0, 400}),
    "an unknown transfer coding": (f"{POST}Transfer-Encoding: frob\r\n{LAST}{EVENTS}", {0, 400, 501}),
    "chunked is not the last": (f"{POST}Transfer-Encoding: chunked, gzip\r\n{LAST}{EVENTS}", {0, 400, 501}),
    "a chunk length that is no number": (f"{CHUNKED}xyz\r\n{EVENTS}\r\n0\r\n\r\n", {0, 400}),
    "a huge chunk length": (f"{CHUNKED}{'F' * 17}\r\n{EVENTS}\r\n", {0, 400}),
    "a chunk longer than it says": (f"{CHUNKED}3\r\n{EVENTS}\r\n0\r\n\r\n", {0, 400}),
    "a chunk extension without end": (f"{CHUNKED}e;{'a' * 2**20}", {0, 400, 413}),
    "10,000 trailers": (
        f"{CHUNKED}e\r\n{EVENTS}\r\n0\r\n" + "X: 1\r\n" * 10_000 + "\r\n",
        {0, 200, 400, 413, 431},
    ),
    "gzip": (f"{POST}Content-Encoding: gzip\r\nContent-Length: 14\r\n{LAST}{EVENTS}", {415}),
    "an unknown expectation": (
        f"{POST}Expect: nonsense\r\nContent-Length: 14\r\n{LAST}{EVENTS}",
        {0, 200, 417},
    ),
    "an upgrade": (
        f"{GET}Connection: close, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n",
        {200, 400, 426},
    ),
    "a body with a GET": (f"{GET}Content-Length: 5\r\n{LAST}hello", {200, 400}),
    "two tokens": (f"{GET}Authorization: Bearer {OPERATOR_TOKEN}\r\n{LAST}", {401}),
}


@pytest.mark.parametrize("name", HARDLY_HTTP)
def test_what_is_hardly_http_is_refused_or_closed_and_the_next_is_served(stack: LiveStack, name: str) -> None:
    sent, will_do = HARDLY_HTTP[name]
    began = time.monotonic()
    # Without an answer the caller closes his side: then there is nothing more to wait for.
    answer = said(stack, sent, patience=PATIENCE_SECONDS)
    status = status_of(answer)
    assert status in will_do, answer[:500]
    assert time.monotonic() - began < SOON_SECONDS, answer[:200]
    if status in (400, 404, 405, 413, 415) and b"application/problem+json" in answer:
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == status
    assert stack.get("/livez", timeout=SOON_SECONDS).status == 200


def test_what_is_bent_at_random_is_refused_or_closed(stack: LiveStack) -> None:
    rng = chances("requests")
    good = (f"{POST}Content-Length: 14\r\n{LAST}{EVENTS}").encode()
    for _ in range(examples(40)):
        bent = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            place = rng.randrange(len(bent))
            bent[place : place + rng.choice((0, 1, 5))] = rng.choice(
                (b"", b"\0", b"\r", b"\n", b"\r\n\r\n", b" ", b":", b"\xff", b"%", b"0", b"Z" * 100)
            )
        answer = said(stack, bytes(bent), patience=PATIENCE_SECONDS)
        assert status_of(answer) < 500, (bytes(bent), answer)
    is_well(stack)


def test_a_request_within_a_request_is_not_answered(stack: LiveStack) -> None:
    """Who says both how long a body is and that it comes in chunks wants two readers to disagree."""
    inner = f"GET /api/v1/cluster HTTP/1.1\r\n{HEADERS}\r\n"
    for both in (
        f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
        f"Content-Length: {5 + len(inner)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}",
        f"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{inner}",
        f"Content-Length: 0\r\nContent-Length: {len(inner)}\r\n\r\n{inner}",
        f"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n{inner}",
    ):
        answer = said(stack, POST + both, patience=PATIENCE_SECONDS)
        assert answer.count(b"HTTP/1.1 ") <= 1, (both, answer)
    is_well(stack)


def test_requests_on_one_line_are_answered_in_their_order(stack: LiveStack) -> None:
    ids = [f"in-order-{number}" for number in range(100)]
    asked = "".join(f"{GET}X-Request-Id: {one}\r\n\r\n" for one in ids[:-1])
    answer = said(stack, asked, f"{GET}X-Request-Id: {ids[-1]}\r\n{LAST}")
    told = [line.partition(b": ")[2] for line in answer.split(b"\r\n") if line.startswith(b"x-request-id: ")]
    assert told == [one.encode() for one in ids]
    bodies = f"{POST}Content-Length: 14\r\n\r\n{EVENTS}" * 20 + f"{GET}{LAST}"
    assert said(stack, bodies).count(b"HTTP/1.1 200 ") == 21


# --- who keeps a connection --------------------------------------------------------------------------


def test_a_body_that_ends_before_its_time_changes_nothing(stack: LiveStack) -> None:
    event = json.dumps(watch.events(watch.pod("cut-off", "GPU-a 1 1"))).encode()
    half = event[: len(event) // 2]
    for kind, more in (
        ("all but the last byte", f"{POST}Content-Length: {len(event) + 1}\r\n{LAST}".encode() + event),
        ("half", f"{POST}Content-Length: {len(event)}\r\n{LAST}".encode() + half),
        ("half a chunk", f"{CHUNKED}{len(event):x}\r\n".encode() + half),
        (
            "a chunk of two",
            f"{CHUNKED}{len(half):x}\r\n".encode() + half + b"\r\n",
        ),
        ("nothing", f"{CHUNKED}".encode()),
    ):
        answer = said(stack, more, patience=0)
        assert status_of(answer) in (0, 400), (kind, answer)
    assert stack.get("/api/v1/pods").body["items"] == []


def test_thousands_of_idle_connections_hold_up_nobody(stack: LiveStack) -> None:
    """Some say nothing, some half a head, some have been answered and stay."""
    number = max(600, min(examples(600), 3000))
    before, memory = sockets(stack), memory_mib(stack)
    parts = (b"", b"GET /livez HTTP/1.1\r\nHost: loc", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with ExitStack() as opened:
        callers = [
            opened.enter_context(socket.create_connection(("127.0.0.1", stack.port), timeout=20))
            for _ in range(number)
        ]
        for place, one in enumerate(callers):
            one.sendall(parts[place % len(parts)])
        for one in callers[2 :: len(parts)]:
            assert one.recv(1)
        is_well(stack)
        assert memory_mib(stack) - memory < 100
    until(lambda: sockets(stack) <= before, 20)


def test_bodies_that_are_too_long_are_refused_without_being_kept(stack: LiveStack) -> None:
    before = memory_mib(stack)
    chunk = b"100000\r\n" + b"a" * 2**20 + b"\r\n"

    def flood(path: str) -> int:
        head = CHUNKED.replace("/api/v1/events", path)
        return status_of(said(stack, head, *[chunk] * 40, b"0\r\n\r\n", seconds=60))

    paths = ("/api/v1/fit", "/webhook", "/extender/filter", "/api/v1/events", "/livez", "/nowhere")
    with ThreadPoolExecutor(len(paths)) as pool:
        floods = [pool.submit(flood, path) for path in paths]
        while not all(one.done() for one in floods):
            assert stack.get("/livez", timeout=SOON_SECONDS).status == 200
        assert [one.result() for one in floods] == [413, 400, 200, 413, 405, 404]
    # What was read goes back to the allocator, which need not give all of it back to the machine.
    assert memory_mib(stack) - before < 200
    is_well(stack)

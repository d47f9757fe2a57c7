"""In front of the application: bodies are read, and seats given out, before a thread is needed.

One event loop a process reads what callers send, however slowly, and keeps them waiting, at no more cost than
their connection; a thread gets a request that is all there, works on it, and answers. What does not arrive in
time is answered 408, what finds no seat in time 503, and 429 who alone fills a waiting room; the last two say
after how many seconds to come back. Nothing here knows what a request is
about, but for its kind (docs/adr/0013).
"""

from __future__ import annotations

import asyncio
import io
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

import orjson
import structlog
from django.conf import settings
from django.db import connections
from granian.rsgi import Scope

from api import problems
from api.problems import Problem
from hamiacct import metrics, middleware
from hamiacct.seats import AT_ONCE, Kind, Seats, Turned, kind_of
from hamiacct.wsgi import application

log = structlog.get_logger("hamiacct.request")

MIB = 2**20
# A body may take so long, and a second more for each 256 KiB that have arrived.
BODY_SECONDS = 10.0
BYTES_A_SECOND = 256 * 1024
# Of longer bodies, or such that do not say how long they are, so many are in memory at once.
SMALL_BYTES = MIB
LARGE_AT_ONCE = 4
# More than the views read: what is over their limit is theirs to refuse, with the limit that counts.
MOST_BYTES = {Kind.EVENTS: 33 * MIB, Kind.LISTS: 257 * MIB}
MOST_BYTES_OF_OTHERS = 9 * MIB
# A thread without work gives its database connection back.
IDLE_SECONDS = 60.0
# Who is sent away comes back after so many seconds, one sooner, the other later.
COME_BACK_SECONDS = (1, 4)

Headers = list[tuple[str, str]]

ENVIRON: dict[str, Any] = {
    "SCRIPT_NAME": "",
    "wsgi.errors": sys.stderr,
    "wsgi.input_terminated": True,
    "wsgi.multiprocess": True,
    "wsgi.multithread": True,
    "wsgi.run_once": False,
    "wsgi.version": (1, 0),
}
NAMED_ALONE = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}


class HTTPProtocol(Protocol):
    """What the web server lends for one request: its body, whole or in parts, and a way to answer."""

    def __call__(self) -> Awaitable[bytes]: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...
    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None: ...


def _written(_: bytes) -> NoReturn:
    """WSGI's way to write without returning, which Django does not go."""
    raise NotImplementedError


class Answer(Protocol):
    """What Django's handler returns: the parts of a body, to be closed when they are sent."""

    def __iter__(self) -> Any: ...
    def close(self) -> None: ...


class SentAway(Exception):
    """A request that the application never sees."""

    def __init__(self, problem: Problem, detail: str) -> None:
        self.problem, self.detail = problem, detail
        super().__init__(detail)


class Request:
    """One request, on its way to a thread."""

    __slots__ = ("began", "done", "environ", "kind", "proto", "timer")

    def __init__(self, proto: HTTPProtocol, environ: dict[str, Any], kind: Kind, began: float) -> None:
        self.proto, self.environ, self.kind, self.began = proto, environ, kind, began
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def caller(self) -> str:
        """Who asks, as far as that can be told without asking the database."""
        return str(self.environ.get("HTTP_AUTHORIZATION") or self.environ["REMOTE_ADDR"])

    def answer(self) -> None:
        """Has the application answer; in a thread."""
        status: int = 500
        headers: Headers = []

        def start(line: str, named: Headers, _: object = None, /) -> Callable[[bytes], object]:
            nonlocal status, headers
            status, headers = int(line[:3]), named
            return _written

        answer: Answer = application(self.environ, start)
        try:
            self.proto.response_bytes(status, headers, b"".join(answer))
        finally:
            answer.close()  # what is done when the answer is out is done here


class Thread:
    """A thread that answers one request at a time, with a database connection of its own."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._given: SimpleQueue[Request] = SimpleQueue()
        threading.Thread(target=self._work, name="answers", daemon=True).start()

    def give(self, request: Request) -> None:
        self._given.put(request)

    def _work(self) -> NoReturn:
        while True:
            try:
                request = self._given.get(timeout=IDLE_SECONDS)
            except Empty:
                connections.close_all()
                continue
            try:
                request.answer()
            except Exception:  # Whatever became of one request, the thread is for the next.
                log.exception("unanswered")
                respond(request.proto, request.environ, problems.INTERNAL_ERROR, "", request.began)
            finally:
                self._front.is_free(self, request)


class Front:
    """The application that the web server knows."""

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._seats: Seats[Request] = Seats()
        self._patience = settings.HAMIACCT.lock_timeout_seconds
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        # The last one that became free is the next to work: few connections to the database do most of it.
        self._threads = [Thread(self) for _ in range(sum(AT_ONCE.values()))]

    async def __rsgi__(self, scope: Scope, proto: HTTPProtocol) -> None:
        began = time.monotonic()
        environ = dict(ENVIRON)
        try:
            _describe(scope, environ)
            kind = kind_of(environ["PATH_INFO"])
            length = _announced(environ)
            if length is not None and length <= SMALL_BYTES:
                environ["wsgi.input"] = io.BytesIO(await _small(proto, length))
                await self._seated(Request(proto, environ, kind, began))
                return
            body = _Large(self._large)
            try:
                environ["wsgi.input"] = io.BytesIO(await body.read(proto, kind))
                await self._seated(Request(proto, environ, kind, began))
            finally:
                body.forget()
        except SentAway as away:
            respond(proto, environ, away.problem, away.detail, began)

    async def _seated(self, request: Request) -> None:
        """Gives the request a seat, at once or when it is its turn, and waits until it is answered."""
        if self._seats.take(request.kind):
            self._threads.pop().give(request)
        else:
            match self._seats.wait(request.kind, request, request.caller):
                case Turned.FULL:
                    raise SentAway(problems.UNAVAILABLE, f"too many {request.kind} wait already")
                case Turned.TOO_MANY_OF_ONE:
                    raise SentAway(problems.THROTTLED, f"too many {request.kind} of this caller wait already")
            request.timer = self._loop.call_later(self._patience, self._too_late, request)
        await request.done

    def _too_late(self, request: Request) -> None:
        self._seats.give_up(request.kind, request)
        request.done.set_exception(
            SentAway(problems.UNAVAILABLE, f"there were too many {request.kind} before this one")
        )

    def is_free(self, thread: Thread, request: Request) -> None:
        """The thread has answered the request; called by the thread."""
        self._loop.call_soon_threadsafe(self._next, thread, request)

    def _next(self, thread: Thread, answered: Request) -> None:
        request = self._seats.leave(answered.kind)
        if request is None:
            self._threads.append(thread)
        else:
            assert request.timer is not None
            request.timer.cancel()
            thread.give(request)
        if not answered.done.done():
            answered.done.set_result(None)


# --- what is read -----------------------------------------------------------------------------------


def _describe(scope: Scope, environ: dict[str, Any]) -> None:
    """Writes what is known of a request without its body, under WSGI's names."""
    server, _, port = scope.server.rpartition(":")
    try:
        path = scope.path.encode().decode("latin-1")
    except Exception:  # noqa: BLE001  # whatever the server raises for a path that is no text
        raise SentAway(problems.MALFORMED, "the path is no UTF-8") from None
    environ |= {
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "SERVER_NAME": server.strip("[]"),
        "SERVER_PORT": port,
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
        "REQUEST_METHOD": scope.method,
        "PATH_INFO": path,
        "QUERY_STRING": scope.query_string,
        "wsgi.url_scheme": scope.scheme,
    }
    for name, value in _headers(scope):
        key = NAMED_ALONE.get(name) or f"HTTP_{name.upper().replace('-', '_')}"
        if key in environ:
            value = f"{environ[key]}{'; ' if name == 'cookie' else ','}{value}"
        environ[key] = value
    if scope.authority:  # named in the request line, which counts for more than the header (RFC 9112, 3.2.2)
        environ["HTTP_HOST"] = scope.authority
    hosts = environ["HTTP_HOST"].count(",") + 1 if "HTTP_HOST" in environ else 0
    if hosts > 1 or (not hosts and scope.http_version == "1.1"):
        raise SentAway(problems.MALFORMED, "a request names one host, in one header")


def _headers(scope: Scope) -> Iterable[tuple[str, str]]:
    """The headers; of one that no encoding is known of the value is empty."""
    try:
        return scope.headers.items()
    except Exception:  # noqa: BLE001  # whatever the server raises for such a value
        return [(name, scope.headers.get(name, "")) for name in dict.fromkeys(scope.headers.keys())]


def _announced(environ: dict[str, Any]) -> int | None:
    """How long the body is; None where it does not say."""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    length = environ.get("CONTENT_LENGTH", "")
    return int(length) if length.isdecimal() else 0


def _late(seconds: float) -> SentAway:
    return SentAway(problems.REQUEST_TIMEOUT, f"the body had to be here within {seconds:.0f} s")


def _broken(fault: Exception) -> SentAway:
    """What the server raises is its own; it says that the caller went away."""
    log.debug("broken off", error=repr(fault))
    return SentAway(problems.MALFORMED, "the body ended before all of it had arrived")


async def _small(proto: HTTPProtocol, length: int) -> bytes:
    """A body of a known, small length, all at once."""
    if not length:
        return b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return bytes(await proto())
    except TimeoutError:
        raise _late(BODY_SECONDS) from None
    except Exception as fault:  # the server has no error of its own for a body that broke off
        raise _broken(fault) from fault


class _Large:
    """A body that may be large: what is more than small of it is read while few others are in memory."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places, self._has_place = places, False

    async def read(self, proto: HTTPProtocol, kind: Kind) -> bytes:
        """What of the body is worth keeping; the rest is read and thrown away."""
        most = MOST_BYTES.get(kind, MOST_BYTES_OF_OTHERS)
        chunks: list[bytes] = []
        size, seconds = 0, BODY_SECONDS
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(began + seconds) as deadline:
                async for chunk in proto:
                    size += len(chunk)
                    seconds = BODY_SECONDS + size / BYTES_A_SECOND
                    deadline.reschedule(began + seconds)
                    if size > SMALL_BYTES and not self._has_place:
                        await self._places.acquire()
                        self._has_place = True
                    if size - len(chunk) <= most:
                        chunks.append(chunk)
        except TimeoutError:
            raise _late(seconds) from None
        except Exception as fault:  # as above
            raise _broken(fault) from fault
        return b"".join(chunks)

    def forget(self) -> None:
        """The body is no longer in memory."""
        if self._has_place:
            self._places.release()


# --- what is answered without the application ----------------------------------------------------------


def respond(
    proto: HTTPProtocol, environ: dict[str, Any], problem: Problem, detail: str, began: float
) -> None:
    """Answers with a problem, and logs it as any other answer."""
    request_id = middleware.id_of(environ.get("HTTP_X_REQUEST_ID", ""))
    headers = [("content-type", problems.MEDIA_TYPE), ("x-request-id", request_id)]
    if problem.retry == "yes":
        headers.append(("retry-after", str(random.randint(*COME_BACK_SECONDS))))  # noqa: S311  # no secret
    if problem in (problems.REQUEST_TIMEOUT, problems.MALFORMED):
        headers.append(("connection", "close"))
    body = {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": detail or problem.explanation,
        "instance": problems.instance_of(environ.get("PATH_INFO", "").encode("latin-1").decode()),
        "request_id": request_id,
    }
    proto.response_bytes(problem.status, headers, orjson.dumps(body))
    seconds = time.monotonic() - began
    method = environ.get("REQUEST_METHOD", "")
    log.warning(
        "request",
        request_id=request_id,
        method=method,
        route=None,
        status=problem.status,
        ms=round(seconds * 1000, 1),
        detail=detail,
    )
    metrics.answered(method, None, problem.status, seconds)


application_in_front = Front()

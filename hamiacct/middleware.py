"""What every request gets: an id, one line in the log, and a policy that keeps foreign scripts out."""

import re
import time
import uuid
from collections.abc import Callable

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from hamiacct import metrics

GetResponse = Callable[[HttpRequest], HttpResponse]

log = structlog.get_logger("hamiacct.request")

PROBES = ("/livez", "/readyz", "/metrics")
A_CALLERS_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
# The admin's scripts evaluate expressions in its pages; nothing else needs more than its own origin.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)


def id_of(asked: str) -> str:
    """The id of a request: what its caller calls it, when that is sane."""
    return asked if A_CALLERS_ID.fullmatch(asked) else uuid.uuid4().hex


def request_log(get_response: GetResponse) -> GetResponse:
    """Gives the request `request_id` (the caller's X-Request-ID when it is sane) and logs one line about it.

    The line holds the route, never the path: a path may carry a webhook's secret, and routes can be counted.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        began = time.monotonic()
        request_id = id_of(request.headers.get("X-Request-ID", ""))
        request.request_id = request_id  # type: ignore[attr-defined]  # ours, read by api.errors
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        response = get_response(request)
        response.headers["X-Request-ID"] = request_id
        match = request.resolver_match
        level = "error" if response.status_code >= 500 else "info"
        route, seconds = match.route if match else None, time.monotonic() - began
        getattr(log, level)(
            "request",
            method=request.method,
            route=route,
            status=response.status_code,
            ms=round(seconds * 1000, 1),
        )
        metrics.answered(request.method or "", route, response.status_code, seconds)
        return response

    return middleware


def probes(get_response: GetResponse) -> GetResponse:
    """Lets probes and scrapes be asked under any name: a kubelet and Prometheus ask for the pod's address.

    No answer depends on the name.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path_info in PROBES:
            request.META["HTTP_HOST"] = settings.HAMIACCT.allowed_hosts[0].removeprefix(".")
        return get_response(request)

    return middleware


def tls_before_us(get_response: GetResponse) -> GetResponse:
    """Lets forms be sent where TLS is ended before us, on a port of its own.

    A browser says that such a form comes from `https://name:port`. We were called by `name:port` without TLS,
    and would want it to come from `http://name:port`: it is the same place.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        place = request.META.get("HTTP_HOST", "")
        if place and not request.is_secure() and request.META.get("HTTP_ORIGIN") == f"https://{place}":
            request.META["HTTP_ORIGIN"] = f"http://{place}"
        return get_response(request)

    return middleware


def content_security_policy(get_response: GetResponse) -> GetResponse:
    """Adds the policy to every answer that does not bring its own."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return middleware

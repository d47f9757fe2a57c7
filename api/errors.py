"""Error class to problem: one table, one shape of body (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import structlog
from django.core import exceptions as django_exceptions
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.request import UnreadablePostError
from rest_framework import exceptions
from rest_framework.response import Response

from api import problems
from hamiacct.accounting import errors

log = structlog.get_logger("hamiacct.api")

LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL's code for a lock timeout


class Fault(NamedTuple):
    """One thing wrong with a request: a JSON pointer into it, and what is wrong there."""

    pointer: str
    detail: str


class BadRequest(Exception):
    """A request with one or more faults, all told at once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.detail for fault in self.faults))


class TooLarge(Exception):
    """A body, or a number of things in it, over a limit."""


TABLE: Mapping[type[BaseException], problems.Problem] = {
    errors.Malformed: problems.MALFORMED,
    errors.NotFound: problems.NOT_FOUND,
    errors.Conflict: problems.CONFLICT,
    errors.NoRoom: problems.INSUFFICIENT_CAPACITY,
    errors.QuotaExceeded: problems.QUOTA_EXCEEDED,
    errors.SnapshotRefused: problems.SNAPSHOT_REFUSED,
    errors.Unavailable: problems.UNAVAILABLE,
    BadRequest: problems.MALFORMED,
    TooLarge: problems.TOO_LARGE,
    exceptions.ParseError: problems.MALFORMED,
    exceptions.ValidationError: problems.MALFORMED,
    exceptions.NotAuthenticated: problems.UNAUTHENTICATED,
    exceptions.AuthenticationFailed: problems.UNAUTHENTICATED,
    exceptions.PermissionDenied: problems.FORBIDDEN,
    exceptions.NotFound: problems.NOT_FOUND,
    exceptions.MethodNotAllowed: problems.METHOD_NOT_ALLOWED,
    exceptions.UnsupportedMediaType: problems.UNSUPPORTED_MEDIA_TYPE,
    exceptions.Throttled: problems.THROTTLED,
    django_exceptions.PermissionDenied: problems.FORBIDDEN,
    django_exceptions.SuspiciousOperation: problems.MALFORMED,
    Http404: problems.NOT_FOUND,
    UnreadablePostError: problems.MALFORMED,
    OperationalError: problems.UNAVAILABLE,
    InterfaceError: problems.UNAVAILABLE,
}


def problem_of(error: BaseException) -> problems.Problem | None:
    """The problem of the error's nearest class in the table; None where it is a bug."""
    return next((TABLE[base] for base in type(error).__mro__ if base in TABLE), None)


def body(
    request: HttpRequest, problem: problems.Problem, detail: str, members: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The members of a problem document, `members` being the ones of this problem alone."""
    return {
        "type": problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": detail,
        "instance": problems.instance_of(request.path),
        "request_id": getattr(request, "request_id", ""),
        **(members or {}),
    }


def problem_response(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Django REST framework's exception handler; None lets a bug through to `server_error`."""
    problem = problem_of(error)
    if problem is None:
        return None
    if problem is problems.UNAVAILABLE:
        log.warning("unavailable", error=repr(error))
    request = context["request"]._request
    members: dict[str, object] = dict(getattr(error, "numbers", {}))
    if faults := _faults(error):
        members["errors"] = [fault._asdict() for fault in faults]
    return answer(request, problem, in_words(error), members, _headers(error, problem))


def answer(
    request: HttpRequest,
    problem: problems.Problem,
    detail: str,
    members: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as the answer of a view."""
    return Response(
        body(request, problem, detail, members),
        status=problem.status,
        headers={"Retry-After": "1"} if headers is None and problem.retry == "yes" else dict(headers or {}),
        content_type=problems.MEDIA_TYPE,
    )


def in_words(error: BaseException) -> str:
    """What went wrong, for people."""
    if isinstance(error, exceptions.ValidationError):
        return "; ".join(fault.detail for fault in _faults(error))
    if isinstance(error, exceptions.APIException):
        return str(error.detail)
    if isinstance(error, (OperationalError, InterfaceError)):
        if getattr(error.__cause__, "sqlstate", None) == LOCK_NOT_AVAILABLE:
            return "somebody else holds a lock that this needs; it was not free in time"
        return "the database does not answer"
    if isinstance(error, UnreadablePostError):
        return "the body ended before all of it had arrived"
    return str(error) or (type(error).__doc__ or "").partition("\n")[0]


def _faults(error: BaseException) -> list[Fault]:
    if isinstance(error, BadRequest):
        return list(error.faults)
    if isinstance(error, errors.Malformed) and error.pointer:
        return [Fault(error.pointer, error.detail)]
    if isinstance(error, exceptions.ValidationError):
        return list(_flattened(error.detail, ""))
    return []


def _flattened(detail: Any, pointer: str) -> Iterable[Fault]:
    """A serializer's nested errors as one list."""
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            here = pointer if key == "non_field_errors" else f"{pointer}/{escaped(str(key))}"
            yield from _flattened(inner, here)
    elif isinstance(detail, (list, tuple)):
        for index, inner in enumerate(detail):
            is_nested = isinstance(inner, (Mapping, list, tuple))
            yield from _flattened(inner, f"{pointer}/{index}" if is_nested else pointer)
    else:
        yield Fault(pointer, str(detail))


def escaped(part: str) -> str:
    """One part of a JSON pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1")


def _headers(error: Exception, problem: problems.Problem) -> dict[str, str]:
    if problem is problems.UNAUTHENTICATED:
        return {"WWW-Authenticate": getattr(error, "auth_header", "") or "Bearer"}
    if problem is problems.UNAVAILABLE:
        return {"Retry-After": str(getattr(error, "retry_after_seconds", 1))}
    if problem is problems.THROTTLED:
        return {"Retry-After": str(getattr(error, "wait", None) or 1)}
    return {}


def _plain(request: HttpRequest, problem: problems.Problem, detail: str) -> HttpResponse:
    return JsonResponse(
        body(request, problem, detail), status=problem.status, content_type=problems.MEDIA_TYPE
    )


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400: what never reached a view, such as a foreign host name."""
    return _plain(request, problems.MALFORMED, str(exception))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler403."""
    return _plain(request, problems.FORBIDDEN, str(exception) or problems.FORBIDDEN.title)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404: a path that is not in the table of paths."""
    return _plain(request, problems.NOT_FOUND, "there is nothing at this path")


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: a bug; called while its exception is being handled."""
    log.error("uncaught", exc_info=True)
    return _plain(request, problems.INTERNAL_ERROR, problems.INTERNAL_ERROR.explanation)

"""Logging in at /admin/: whose failures are counted together, and what is said to who failed too often."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

SAID = "Too many attempts to log in failed. Wait a quarter of an hour, or have manage.py axes_reset run.\n"
MAX_NAME = 150  # of Django's users; the form takes longer ones, which nobody can have


def name_to_count(request: HttpRequest | None, credentials: Mapping[str, Any] | None = None) -> str:
    """The name under which an attempt is counted, of a length that can be stored."""
    given = (credentials or {}).get("username")
    if given is None and request is not None:
        given = request.POST.get("username")
    return str(given or "")[:MAX_NAME]


def locked_out(
    request: HttpRequest, response: HttpResponse | None, credentials: Mapping[str, Any] | None
) -> HttpResponse:
    """The answer instead of the login page; whether the password was right this time is not said."""
    seconds = int(settings.AXES_COOLOFF_TIME.total_seconds())
    return HttpResponse(SAID, "text/plain; charset=utf-8", status=429, headers={"Retry-After": str(seconds)})

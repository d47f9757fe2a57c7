"""Who is calling, and what each role may call."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, ClassVar

from django.conf import settings
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from hamiacct.accounting.words import Role
from hamiacct.operations import tokens as token_operations
from hamiacct.queries import tokens

VIEWERS = frozenset({Role.VIEWER, Role.SCHEDULER, Role.OPERATOR})
SCHEDULERS = frozenset({Role.SCHEDULER, Role.OPERATOR})
INGESTERS = frozenset({Role.INGESTER, Role.OPERATOR})
OPERATORS = frozenset({Role.OPERATOR})

BOOTSTRAP = "bootstrap"
CHALLENGE = 'Bearer realm="hamiacct"'


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling: the name of the token, and its role."""

    name: str
    role: Role
    is_authenticated: ClassVar[bool] = True  # asked for by Django REST framework


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <token>`."""

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        """The caller; None without the header."""
        header = request.headers.get("Authorization")
        if header is None:
            return None
        scheme, _, token = header.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise AuthenticationFailed("the header Authorization must read: Bearer <token>")
        return _caller_of(token), None

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401."""
        return CHALLENGE


WEBHOOK = "kube-apiserver"


class WebhookAuthentication(TokenAuthentication):
    """kube-apiserver: by token, by certificate, or by nothing, as HAMIACCT_WEBHOOK_AUTH says.

    It presents a bearer token only where it is configured to; the token may be the last part of the path.
    """

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        """The caller; None where nothing was presented."""
        mode = settings.HAMIACCT.webhook_auth
        if mode == "none":
            return Caller(WEBHOOK, Role.SCHEDULER), None
        if mode == "cert":
            # The listener has seen the certificate: with a CA it lets nobody through without one.
            if request._request.is_secure():
                return Caller(WEBHOOK, Role.SCHEDULER), None
            raise AuthenticationFailed("a client certificate is needed, on the listener that asks for one")
        presented = super().authenticate(request)
        token = request.parser_context["kwargs"].get("token")
        if presented is None and token:
            return _caller_of(token), None
        return presented


EXTENDED = "kube-scheduler"


class ExtenderAuthentication(TokenAuthentication):
    """kube-scheduler: by token, by certificate, from loopback, or by nothing, as HAMIACCT_EXTENDER_AUTH says.

    It sends extenders no bearer token; what it can do is user and password in `urlPrefix`, and then the
    password is the token.
    """

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        """The caller; None where nothing was presented."""
        mode = settings.HAMIACCT.extender_auth
        if mode == "token":
            password = _basic_password(request.headers.get("Authorization", ""))
            return (_caller_of(password), None) if password else super().authenticate(request)
        if mode == "cert" and not request._request.is_secure():
            raise AuthenticationFailed("a client certificate is needed, on the listener that asks for one")
        if mode == "loopback" and not _is_loopback(request.META.get("REMOTE_ADDR", "")):
            raise AuthenticationFailed("only a process on the same machine may call this")
        return Caller(EXTENDED, Role.SCHEDULER), None

    def authenticate_header(self, request: Request) -> str:
        """The challenges of a 401."""
        return f'{CHALLENGE}, Basic realm="hamiacct"'


def _basic_password(header: str) -> str:
    """The password of basic authentication; "" where the header is none."""
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        pair = base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        return ""
    return pair.partition(b":")[2].decode("utf-8", "surrogateescape")


def _is_loopback(address: str) -> bool:
    """Whether the peer is this machine; its address, never what a header says of it."""
    try:
        peer = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(peer, "ipv4_mapped", None)
    return peer.is_loopback or (mapped is not None and mapped.is_loopback)


def _caller_of(plain: str) -> Caller:
    bootstrap = settings.HAMIACCT.bootstrap_token
    if bootstrap and hmac.compare_digest(_bytes(plain), _bytes(bootstrap)):
        return Caller(BOOTSTRAP, Role.OPERATOR)
    token = tokens.find(_bytes(plain))
    now = timezone.now()
    if token is None:
        raise AuthenticationFailed("nobody has this token")
    if token.is_revoked:
        raise AuthenticationFailed("this token was revoked")
    if token.has_expired(now):
        raise AuthenticationFailed("this token has expired")
    if token.is_due(now):
        token_operations.touch(token.id, at=now)
    return Caller(token.name, token.role)


def _bytes(token: str) -> bytes:
    return token.encode("utf-8", "surrogateescape")


class StaffSession(BaseAuthentication):
    """Somebody of the staff, logged in at `/admin/`, reads what a browser shows without a token."""

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        """The caller; None where nobody is logged in."""
        user = getattr(request._request, "user", None)
        if user is None or not (user.is_active and user.is_staff):
            return None
        return Caller(user.get_username(), Role.VIEWER), None


class RoleMayCall(BasePermission):
    """The view's `callers` name the roles, per method; a method it does not know is left to its 405."""

    message = "the role of this token does not include this call"

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the caller's role is one of them."""
        if not isinstance(request.user, Caller):
            return False
        callers: Mapping[str, frozenset[Role]] = view.callers
        method = "GET" if request.method == "HEAD" else request.method
        return method not in callers or request.user.role in callers[method]


class BearerScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document names the tokens."""

    target_class = "api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """An HTTP bearer scheme."""
        return {"type": "http", "scheme": "bearer"}


class WebhookScheme(BearerScheme):
    """The same token, in the header or in the path."""

    target_class = "api.auth.WebhookAuthentication"
    name = "webhook"


class ExtenderScheme(BearerScheme):
    """The same token, in the header or as the password of basic authentication."""

    target_class = "api.auth.ExtenderAuthentication"
    name = "extender"


class SessionScheme(OpenApiAuthenticationExtension):
    """How the OpenAPI document names somebody logged in."""

    target_class = "api.auth.StaffSession"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Django's cookie."""
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}

"""What every view of the interface shares: who may call it, its parameters, its shape of error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import orjson
from django.http import HttpRequest, HttpResponseBase
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder
from rest_framework.views import APIView

from api import bodies, parameters, problems
from api.auth import VIEWERS, RoleMayCall, TokenAuthentication
from hamiacct import metrics
from hamiacct.accounting.words import Question, Refusal, Role


class Part(ABC):
    """A large part of an answer that writes itself in less time than the values in it take to be made."""

    @abstractmethod
    def text(self) -> bytes:
        """As JSON."""

    @abstractmethod
    def value(self) -> Any:
        """The same as values."""


def _written(one: object) -> orjson.Fragment:
    """What the quick writer cannot write by itself."""
    if isinstance(one, Part):
        return orjson.Fragment(one.text())
    raise TypeError(type(one).__name__)


class _Slow(JSONEncoder):
    """The framework's own writer, which is asked for what the quick one cannot write."""

    def default(self, obj: Any) -> Any:
        return obj.value() if isinstance(obj, Part) else super().default(obj)


class AsciiJson(JSONRenderer):
    """JSON in ASCII: a text that no encoding can carry, echoed from a request, still has an escape.

    The quick writer knows no escapes beyond those of JSON, and not every type. It writes what is ASCII as it
    is, which is nearly everything; the rest the framework's own writes once more.
    """

    ensure_ascii = True
    encoder_class = _Slow

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The bytes of the answer."""
        if data is not None:
            with suppress(orjson.JSONEncodeError):  # what it cannot write, the framework writes below
                written = orjson.dumps(data, _written, orjson.OPT_UTC_Z)
                if written.isascii():
                    return written
        rendered: bytes = super().render(data, accepted_media_type, renderer_context)
        return rendered


class AlwaysJson(BaseContentNegotiation):
    """There is one form of answer, so what a client says it accepts is not asked."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> Any:
        """The first; bodies are read by `api.bodies`."""
        return next(iter(parsers), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The first."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type or ""


class FaultSerializer(serializers.Serializer[Any]):
    """One thing wrong with a request."""

    pointer = serializers.CharField(help_text="A JSON pointer into the body, or into /query.")
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """A problem document (RFC 9457); problems with numbers have further members."""

    type = serializers.CharField(help_text="A path that explains this type of problem.")
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(allow_blank=True)
    instance = serializers.CharField()
    request_id = serializers.CharField(allow_blank=True)
    errors = FaultSerializer(many=True, required=False)  # type: ignore[assignment]  # a field, by then


# What any call may be answered with, whatever it asks; others are named by the views they concern.
ANY_CALL = frozenset(
    {
        problems.MALFORMED,
        problems.UNAUTHENTICATED,
        problems.FORBIDDEN,
        problems.THROTTLED,
        problems.UNAVAILABLE,
    }
)
OF_BODIES = frozenset({problems.TOO_LARGE, problems.UNSUPPORTED_MEDIA_TYPE})


class Described(AutoSchema):
    """Takes from the view what the view already says: its parameters and its problems."""

    view: Endpoint  # type: ignore[override]  # no other view has this schema

    def get_override_parameters(self) -> list[OpenApiParameter]:  # type: ignore[override]  # a narrower list
        """The declared query parameters."""
        return [parameter.openapi() for parameter in self.view.parameters]

    def get_tags(self) -> list[str]:
        """The first word of the path after the version."""
        return [self.path.removeprefix("/api/v1/").strip("/").partition("/")[0]]

    def get_operation_id(self) -> str:
        """The method and the noun: getPods."""
        return f"{self.method.lower()}{type(self.view).__name__}"

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        by_status: dict[int, list[str]] = {}
        for problem in sorted(self.view.any_call | self.view.problems, key=lambda problem: problem.type):
            by_status.setdefault(problem.status, []).append(problem.type)
        for status, types in sorted(by_status.items()):
            answer = OpenApiResponse(ProblemSerializer, description=", ".join(types))
            bodies[str(status)] = self._get_response_for_code(
                answer, str(status), [problems.MEDIA_TYPE], direction
            )
        return bodies


class Endpoint(APIView):
    """A view: parse, one call, shape. `given` holds the query parameters once a method runs."""

    authentication_classes: Sequence[type[BaseAuthentication]] = (TokenAuthentication,)
    permission_classes: Sequence[type[BasePermission]] = (RoleMayCall,)
    renderer_classes: Sequence[type[BaseRenderer]] = (AsciiJson,)
    parser_classes: Sequence[type[BaseParser]] = ()
    content_negotiation_class = AlwaysJson
    http_method_names: Sequence[str] = ("get", "post", "delete", "head")
    schema = Described()

    callers: ClassVar[Mapping[str, frozenset[Role]]] = {"GET": VIEWERS}
    parameters: ClassVar[tuple[parameters.Parameter, ...]] = ()
    any_call: ClassVar[frozenset[problems.Problem]] = ANY_CALL
    problems: ClassVar[frozenset[problems.Problem]] = frozenset()
    question: ClassVar[Question | None] = None  # what an answer is counted as, by verdict and time

    given: dict[str, Any]

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """An answer that nobody has called a refusal is a yes; one to a request that is wrong is neither."""
        if self.question is None:
            return super().dispatch(request, *args, **kwargs)
        with metrics.decision(self.question) as decision:
            response = super().dispatch(request, *args, **kwargs)
            if not decision.verdict and response.status_code < 400:
                decision.verdict = metrics.ALLOWED
            elif not decision.verdict and response.status_code >= 500:
                decision.verdict = Refusal.ERROR
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Who is calling, then what with."""
        super().initial(request, *args, **kwargs)
        if request.method in self.allowed_methods:
            self.given = parameters.read(request.query_params, self.parameters)

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """A refusal is answered once the body is there, wanted or not."""
        if response.status_code >= 400:
            bodies.drain(request._request)
        return super().finalize_response(request, response, *args, **kwargs)

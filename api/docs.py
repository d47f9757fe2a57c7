"""The interface, described: the OpenAPI document, pages to read it with, and every problem explained."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpResponse
from django.template.loader import render_to_string
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import problems
from api.auth import StaffSession, TokenAuthentication
from api.endpoint import Endpoint
from api.health import OpenEndpoint
from api.parameters import Parameter
from hamiacct.accounting.errors import NotFound


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document of this process's paths."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return schema


class Schema(Endpoint):
    """GET /api/v1/schema"""

    authentication_classes = (TokenAuthentication, StaffSession)

    @extend_schema(summary="This document", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request) -> Response:
        """Generated from the code that answers; the repository holds the same text."""
        return Response(document())


class Docs(Endpoint, SpectacularSwaggerSplitView):  # type: ignore[misc]  # ours comes first
    """GET /api/v1/docs: for somebody logged in at /admin/, since a browser sends no token by itself."""

    authentication_classes = (TokenAuthentication, StaffSession)
    parameters = (Parameter("script", "The page's script instead of the page."),)
    title = "hamiacct"

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """The page, or its script: both from this service alone."""
        found = SpectacularSwaggerSplitView.get(self, request)
        return HttpResponse(
            render_to_string(found.template_name, found.data), content_type=found.content_type or "text/html"
        )


class ProblemTypeSerializer(serializers.Serializer[Any]):
    """A problem type, explained."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    retry = serializers.CharField(help_text="When the same request may be answered otherwise.")
    explanation = serializers.CharField()


class Problem(OpenEndpoint):
    """GET /problems/{name}"""

    problems = frozenset({problems.NOT_FOUND})

    @extend_schema(summary="A problem type, explained", responses=ProblemTypeSerializer)
    def get(self, request: Request, name: str) -> Response:
        """What the `type` of a problem document leads to."""
        problem = problems.BY_NAME.get(name)
        if problem is None:
            raise NotFound(f"there is no problem type {name}; there are {', '.join(problems.BY_NAME)}")
        return Response(
            {
                "type": problem.type,
                "title": problem.title,
                "status": problem.status,
                "retry": problem.retry,
                "explanation": problem.explanation,
            }
        )

"""Pages over HTTP: `limit`, and an opaque `cursor` that only this service can have made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.core import signing
from rest_framework import serializers

from api.errors import BadRequest, Fault
from api.parameters import Integer, Parameter
from hamiacct.queries.pages import Key, Page

Item = TypeVar("Item")

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000

LIMIT = Integer("limit", "How many items at most.", 1, MAX_LIMIT, DEFAULT_LIMIT)
CURSOR = Parameter("cursor", "The `next` of the page before.")
PAGING = (LIMIT, CURSOR)


def key_of(cursor: str, name: str) -> Key | None:
    """The key in a cursor that the list `name` gave out; BadRequest for any other text."""
    if not cursor:
        return None
    try:
        return tuple(signing.Signer(salt=name).unsign_object(cursor))
    except (signing.BadSignature, ValueError):
        fault = Fault("/query/cursor", "cursor: must be the `next` of a page of this list")
        raise BadRequest([fault]) from None


def shaped(page: Page[Item], shape: Callable[[Item], dict[str, Any]], name: str) -> dict[str, Any]:
    """The answer of a list: its items, and the cursor of the following page or null."""
    following = None if page.next is None else signing.Signer(salt=name).sign_object(page.next)
    return {"items": [shape(item) for item in page.items], "next": following}


def page_of(item: type[serializers.Serializer[Any]], name: str) -> type[serializers.Serializer[Any]]:
    """The serializer of a page of such items; `name` is its component's name in the OpenAPI document."""
    fields = {
        "items": item(many=True),
        "next": serializers.CharField(allow_null=True, help_text="The cursor of the following page."),
        "__doc__": "One page of a list.",
    }
    return type(name, (serializers.Serializer,), fields)

"""Bodies of requests: bounded while they arrive, JSON or one JSON text a line, never a surprise later."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO, cast

import orjson
from django.http import HttpRequest
from django.http.request import UnreadablePostError
from rest_framework.exceptions import UnsupportedMediaType

from api.errors import TooLarge
from hamiacct.accounting.errors import Malformed
from hamiacct.kube import recordings

JSON = "application/json"
LINES = "application/x-ndjson"
# What curl calls any body unless it is told otherwise: nothing is said by it.
UNSAID = "application/x-www-form-urlencoded"

MIB = 2**20
CHUNK_BYTES = 256 * 1024
# More than this is not waited for, whoever sends it.
DRAINED_BYTES = 512 * MIB

# The escape of a surrogate; where it has no partner no other reader notices.
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")


def media_type(request: HttpRequest, *readable: str) -> str:
    """The body's media type. UnsupportedMediaType unless it is one of `readable`, uncompressed.

    Where UNSAID is readable, so is a body without a type.
    """
    kind = (request.content_type or "").lower()
    if not kind and UNSAID in readable:
        kind = UNSAID
    if kind not in readable:
        wanted = " or ".join(one for one in readable if one != UNSAID)
        raise UnsupportedMediaType(kind, f"send {wanted}, not {kind or 'a body without a type'}")
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(kind, f"send the body uncompressed, not as {encoding}")
    return kind


def is_there(request: HttpRequest) -> bool:
    """Whether the request has a body."""
    return request.headers.get("Content-Length", "0") not in ("", "0") or _is_chunked(request)


def read(request: HttpRequest, limit_bytes: int) -> bytes:
    """The whole body. TooLarge above the limit, Malformed where it ends before its announced length."""
    return bytes(read_large(request, limit_bytes))


def read_large(request: HttpRequest, limit_bytes: int) -> bytearray:
    """The same as `read`, for bodies that should not be held twice."""
    announced = request.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise TooLarge(f"the body has {announced} bytes, the limit is {limit_bytes}")
    body = bytearray()
    for chunk in _chunks(request):
        body += chunk
        if len(body) > limit_bytes:
            raise TooLarge(f"the body has more than {limit_bytes} bytes")
    if announced.isdecimal() and len(body) < int(announced):
        raise Malformed(f"the body ended after {len(body)} of {announced} bytes")
    return body


def _chunks(request: HttpRequest) -> Iterator[bytes]:
    stream = _stream(request)
    while chunk := stream.read(CHUNK_BYTES):
        yield chunk


def _stream(request: HttpRequest) -> BinaryIO:
    """Django reads no body without a length; one in chunks is read below it, where the server ends it."""
    if _is_chunked(request) and request.META.get("wsgi.input_terminated"):
        return cast(BinaryIO, request.META["wsgi.input"])
    return cast(BinaryIO, request)


def _is_chunked(request: HttpRequest) -> bool:
    return "chunked" in request.headers.get("Transfer-Encoding", "").lower()


def drain(request: HttpRequest) -> None:
    """Reads the rest of a body and throws it away.

    A client that is still sending would see a broken connection, and never the answer that says why.
    """
    size = 0
    with suppress(UnreadablePostError):  # then nobody is there to answer
        for chunk in _chunks(request):
            size += len(chunk)
            if size > DRAINED_BYTES:
                return


def parsed(body: bytes) -> object:
    """The JSON value of a body. Malformed with the position of the fault.

    NaN, Infinity, half a surrogate pair, invalid UTF-8 and nesting deeper than 1,024 levels are no JSON
    here. Of a name that occurs twice in an object the last counts, as with the apiserver. A number that
    no double holds is read as its text, so that it spoils nothing but the field it stands in.
    """
    try:
        return orjson.loads(body.removeprefix(recordings.BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        if not body.strip():
            raise Malformed("the body is empty") from None
        if error.msg.startswith("number is infinit") and not HALF_PAIR.search(body):
            with suppress(ValueError, RecursionError):  # the first reader's fault tells more
                return json.loads(body, parse_int=_number, parse_float=_number, parse_constant=_number)
        raise Malformed(f"no JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None


def _number(text: str) -> int | float | str:
    """As the first reader has it: 64 bits or a double; or, beyond both, the text."""
    if text in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(text)
    if len(text) <= 20 and text.removeprefix("-").isdigit() and -(2**63) <= int(text) < 2**64:
        return int(text)
    value = float(text)
    return text if math.isinf(value) else value


def texts_of_lines(body: bytes) -> Iterator[bytes]:
    """The JSON texts of a body: one a line, or objects over several lines as kubectl prints them."""
    return (one.text for one in recordings.texts_of(body.split(b"\n")))


def counted(texts: Iterable[bytes], limit: int) -> list[bytes]:
    """The texts as a list. TooLarge where there are more than `limit`."""
    found = []
    for text in texts:
        found.append(text)
        if len(found) > limit:
            raise TooLarge(f"more than {limit} events in one call")
    return found

"""The problem types of RFC 9457 that this service answers with, each with an explanation for people."""

from __future__ import annotations

from dataclasses import dataclass

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem type. `name` is the last part of its `type`; `retry` says when asking again helps."""

    name: str
    status: int
    title: str
    retry: str
    explanation: str

    @property
    def type(self) -> str:
        """The path under which the service explains it."""
        return f"/problems/{self.name}"


MALFORMED = Problem(
    "malformed",
    400,
    "The request cannot be read",
    "no",
    "A part of the request is missing, has the wrong type or cannot be parsed. `detail` says what and "
    "where; `errors` lists the faults, each with a JSON pointer into the body, or into `/query` for a "
    "query parameter.",
)
UNAUTHENTICATED = Problem(
    "unauthenticated",
    401,
    "No valid token",
    "no",
    "The request needs `Authorization: Bearer <token>` with a token that exists, has not expired and was "
    "not revoked. `manage.py token create NAME --role ROLE` makes one.",
)
FORBIDDEN = Problem(
    "forbidden",
    403,
    "The token's role may not do this",
    "no",
    "The token is valid, but its role does not include this call. Viewers read, schedulers read and ask, "
    "ingesters send events and snapshots, operators do everything.",
)
QUOTA_EXCEEDED = Problem(
    "quota-exceeded",
    403,
    "A ResourceQuota has no room for this",
    "when usage changes",
    "Some node would have room, but a ResourceQuota of the namespace does not. `checks` names the quota, "
    "the resource, and what was requested, is used and is allowed.",
)
NOT_FOUND = Problem(
    "not-found",
    404,
    "There is no such thing",
    "no",
    "The path is not one of this service's, or the books do not know the pod, node or device it names.",
)
METHOD_NOT_ALLOWED = Problem(
    "method-not-allowed",
    405,
    "The path does not know this method",
    "no",
    "The header `Allow` lists the methods of this path.",
)
REQUEST_TIMEOUT = Problem(
    "request-timeout",
    408,
    "The request took too long to arrive",
    "yes",
    "Not all of the body had arrived in time; nothing of it was looked at. The connection is closed.",
)
CONFLICT = Problem(
    "conflict",
    409,
    "The books say otherwise",
    "when usage or data changes",
    "The request contradicts what the books hold now. `detail` says what stands against it.",
)
INSUFFICIENT_CAPACITY = Problem(
    "insufficient-capacity",
    409,
    "No node has room for this",
    "when usage or data changes",
    "No node fits, quotas left aside. `failed` and `reasons` name every node and why it does not.",
)
SNAPSHOT_REFUSED = Problem(
    "snapshot-refused",
    409,
    "The list was not taken as the truth",
    "when usage or data changes",
    "A full list ends whatever it does not hold, so one that looks partial, old or wrong is refused. "
    "`would_end` is how many charged pods it would end; if that is right, send it again with "
    "`?confirm=` and exactly that number.",
)
TOO_LARGE = Problem(
    "too-large",
    413,
    "The request is too large",
    "no",
    "The body, or the number of events in it, is over the limit that `detail` names. Send it in parts.",
)
UNSUPPORTED_MEDIA_TYPE = Problem(
    "unsupported-media-type",
    415,
    "The body's media type is not read here",
    "no",
    "`detail` names the media types this path reads. Compressed bodies are not read.",
)
THROTTLED = Problem(
    "throttled",
    429,
    "Too many requests",
    "yes",
    "The header `Retry-After` says after how many seconds to ask again.",
)
INTERNAL_ERROR = Problem(
    "internal-error",
    500,
    "A fault in this service",
    "no",
    "This is a bug. The log holds its details under the `request_id` of this answer.",
)
UNAVAILABLE = Problem(
    "unavailable",
    503,
    "Not now",
    "yes",
    "The database does not answer, a lock was not free in time, or the books are not complete or too old "
    "to answer from. The header `Retry-After` says after how many seconds to ask again.",
)

ALL = (
    MALFORMED,
    UNAUTHENTICATED,
    FORBIDDEN,
    QUOTA_EXCEEDED,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    REQUEST_TIMEOUT,
    CONFLICT,
    INSUFFICIENT_CAPACITY,
    SNAPSHOT_REFUSED,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    THROTTLED,
    INTERNAL_ERROR,
    UNAVAILABLE,
)
BY_NAME = {problem.name: problem for problem in ALL}


def instance_of(path: str) -> str:
    """The path of a request as answers may repeat it: what follows a webhook's is a secret (docs/api.md)."""
    before, found, after = path.partition("/webhook/")
    if not found:
        return path
    is_validating = after == "validate" or after.startswith("validate/")
    return f"{before}/webhook{'/validate' if is_validating else ''}"

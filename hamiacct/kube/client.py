"""The API server, and the only code here that speaks over a network.

Objects come as the JSON they are; what is wrong with them is asked elsewhere. Every call has a time limit,
for each part of its answer and for the whole, and is sent once: whoever calls decides what to do about a
failure, because only he knows what a change that may have been made means.

  NotFound      there is no such object (404)
  Conflict      a precondition does not hold: another uid, another resourceVersion, bound already (409)
  Unavailable   not done: refused, throttled, or never sent
    Unclear       may have been done: the answer is a 5xx, or was lost
    Unauthorized  the credentials are not taken any more (401)
    Throttled     too many calls (429), or a read answered by 503: when to come back is said
    Gone          the version or the continue token is too old (410, or an ERROR in a stream)
    Unreadable    a line of a stream that is no event; asking for it again brings it again
    Silent        a stream that showed nothing for longer than a living one can
"""

from __future__ import annotations

import os
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import httpcore2
import httpx2
import msgspec
import orjson
import yaml
from lightkube.config import client_adapter
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from hamiacct.accounting.errors import Conflict, NotFound, Unavailable

Manifest = dict[str, Any]

IDENTITY = "kube-system"

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0
PAGE_SECONDS = 30.0
"""A page of a list is read from etcd and may be megabytes."""
WHOLE_ANSWER = 2
"""How many times as long as for one part of an answer is waited for the whole: who drips holds nobody up."""
QUIET_SECONDS = 150.0
"""A watch that shows nothing for so long is dead: bookmarks come about once a minute, and one may be late."""
MAX_LINE_BYTES = 16 * 2**20
"""More than any event: etcd takes objects of 1.5 MiB, and JSON is some times as long."""
MAX_RETRY_AFTER_SECONDS = 300

PLURALS = {"Pod": "pods", "Node": "nodes", "ResourceQuota": "resourcequotas"}

# What lightkube raises about a kubeconfig, depending on its content: it reads most of it unlooked at.
UNUSABLE = (
    ConfigError,
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    OSError,
    msgspec.MsgspecError,
    yaml.YAMLError,
)

# What a token that is a file or a program's output may raise with each call: no such program, no JSON in it.
UNREADABLE_CREDENTIALS = (ConfigError, LookupError, ValueError, OSError)

MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = "hamiacct"

# What may stand between two slashes: names of Kubernetes, and nothing that a path could be led astray with.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class Unclear(Unavailable):
    """Nobody can tell from the answer whether the change was made; only a look at the object can."""


class Unauthorized(Unavailable):
    """The credentials are not taken: they expired, or were taken back."""


class Throttled(Unavailable):
    """The API server asks to be left alone for `retry_after_seconds`."""


class Gone(Unavailable):
    """What was asked to go on from is too old: only a new list helps."""


class Unreadable(Unavailable):
    """A line of a stream is no event, or too long. It would come again, so only a new list helps."""


class Silent(Unavailable):
    """A stream showed nothing, not even a bookmark. Either nobody is there any more, or it was begun from a
    version of the future, as every version is once a cluster was restored; only a list can tell.
    """


class Page(NamedTuple):
    """A page of a list. `version` is the list's, the same on each; `next_token` is "" on the last."""

    items: list[Any]
    version: int
    next_token: str


class Client:
    """One API server. May be shared by threads."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def close(self) -> None:
        """Ends the kept connections."""
        self._http.close()

    def pod(self, namespace: str, name: str) -> Manifest:
        """A Pod as it is now."""
        return self._call("GET", f"/api/v1/namespaces/{_part(namespace)}/pods/{_part(name)}")

    def node(self, name: str) -> Manifest:
        """A Node as it is now."""
        return self._call("GET", f"/api/v1/nodes/{_part(name)}")

    def namespace(self, name: str) -> Manifest:
        """A Namespace as it is now."""
        return self._call("GET", f"/api/v1/namespaces/{_part(name)}")

    def cluster_uid(self) -> str:
        """The UID of kube-system, which lives as long as its cluster: by it one is told from another."""
        uid = self.namespace(IDENTITY).get("metadata", {}).get("uid")
        if not isinstance(uid, str) or not uid:
            raise Unavailable(f"the namespace {IDENTITY} has no uid, so nobody knows which cluster this is")
        return uid

    def page(
        self, kind: str, *, limit: int, token: str = "", field_selector: str = "", label_selector: str = ""
    ) -> Page:
        """A page of the whole cluster's list of a kind; the first has no token. Gone where that is too old.

        No version is asked for, so that it is the newest: one server of several may know only an older one.
        """
        path = f"/api/v1/{PLURALS[kind]}"
        chosen = {"limit": str(limit), "continue": token}
        chosen |= {"fieldSelector": field_selector, "labelSelector": label_selector}
        given = {name: value for name, value in chosen.items() if value}
        document = self._call("GET", path, params=given, seconds=PAGE_SECONDS)
        items, metadata = document.get("items"), document.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(items, list) or not isinstance(metadata, dict) or not is_version(version):
            raise Unavailable(f"GET {path}: the answer is no list with a version")
        for item in items:
            if isinstance(item, dict):
                item.setdefault("kind", kind)  # said once, by the list
        return Page(items, int(version), metadata.get("continue") or "")

    @contextmanager
    def watch(
        self, kind: str, *, version: int, seconds: int, field_selector: str = ""
    ) -> Iterator[Iterator[bytes]]:
        """The stream of what happened to a kind after this version, bookmarks included, line by line.

        Entered, it is open. It ends by itself after about so many seconds; cut, it ends with Unavailable,
        and a line that had not come whole is not shown: it comes again. `event_of` reads a line.
        """
        path = f"/api/v1/{PLURALS[kind]}"
        chosen = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(version),
            "timeoutSeconds": str(seconds),
            "fieldSelector": field_selector,
        }
        given = {name: value for name, value in chosen.items() if value}
        limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS, read=QUIET_SECONDS)
        # Not compressed: a compressor may hold an event back until there are more.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        with (
            _unavailable_where_lost(f"the watch of {path}"),
            self._opened("GET", path, params=given, headers=headers, timeout=limits) as response,
        ):
            if response.status_code >= 300:
                with _whole_within(WHOLE_ANSWER * ANSWER_SECONDS):
                    response.read()
                raise _fault(response, f"GET {path}?watch", True)
            yield _lines(response.iter_bytes())

    @contextmanager
    def _opened(self, method: str, path: str, **given: Any) -> Iterator[httpx2.Response]:
        """An answer that is read while it comes: its head in time, its body for as long as it goes on."""
        with _whole_within(QUIET_SECONDS):
            opened = self._http.stream(method, path, **given)
            response = opened.__enter__()
        try:
            yield response
        finally:
            opened.__exit__(None, None, None)

    def lease(self, namespace: str, name: str) -> Manifest:
        """A Lease as it is now."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{_part(namespace)}/leases/{_part(name)}"
        return self._call("GET", path)

    def patch_pod(self, namespace: str, name: str, changes: Mapping[str, Any]) -> Manifest:
        """Merges the changes (RFC 7386) into a Pod; answers it as it is then.

        `metadata.uid` and `metadata.resourceVersion` among them are preconditions.
        """
        path = f"/api/v1/namespaces/{_part(namespace)}/pods/{_part(name)}"
        return self._call("PATCH", path, changes, MERGE_PATCH)

    def patch_node(self, name: str, changes: Mapping[str, Any]) -> Manifest:
        """Merges the changes into a Node, as `patch_pod` does."""
        return self._call("PATCH", f"/api/v1/nodes/{_part(name)}", changes, MERGE_PATCH)

    def bind(self, namespace: str, name: str, *, uid: str, version: str, node: str) -> None:
        """Puts the Pod on the node, if it is still the one with this uid at this resourceVersion."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{_part(namespace)}/pods/{_part(name)}/binding"
        self._call("POST", path, binding)

    def create_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        """Creates an Event."""
        self._call("POST", f"/api/v1/namespaces/{_part(namespace)}/events", event)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
        *,
        params: Mapping[str, str] | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> Manifest:
        """One call, sent once."""
        is_read = method == "GET"
        try:
            with _whole_within(WHOLE_ANSWER * seconds):
                response = self._http.request(
                    method,
                    path,
                    params={**(params or {}), **({} if is_read else {"fieldManager": FIELD_MANAGER})},
                    content=None if body is None else orjson.dumps(body),
                    headers={
                        "Accept": "application/json",
                        **({} if body is None else {"Content-Type": kind}),
                    },
                    timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS),
                )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Unavailable(f"the API server cannot be reached: {error or type(error).__name__}") from error
        except httpx2.HTTPError as error:
            raise _lost(f"{method} {path}: no answer: {error or type(error).__name__}", is_read) from error
        except (
            UNREADABLE_CREDENTIALS
        ) as error:  # a token that is a file, or a program's output, is read with each call
            raise Unavailable(f"the credentials cannot be used: {error}") from error
        if response.status_code >= 300:
            raise _fault(response, f"{method} {path}", is_read)
        try:
            document = orjson.loads(response.content)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            raise _lost(f"{method} {path}: the answer is no JSON object", is_read)
        return document


# --- time ----------------------------------------------------------------------------------------


_limits = threading.local()


@contextmanager
def _whole_within(seconds: float) -> Iterator[None]:
    """What this thread sends and hears meanwhile is over within so many seconds.

    The limits of the HTTP client are for each read alone, so a byte now and then would hold a call for ever.
    """
    _limits.ends = time.monotonic() + seconds
    try:
        yield
    finally:
        _limits.ends = None


def _left(seconds: float | None) -> float | None:
    """What is left of the time for one read or write. Raises what its end raises."""
    ends = getattr(_limits, "ends", None)
    if ends is None:
        return seconds
    left = ends - time.monotonic()
    if left <= 0:
        raise httpcore2.ReadTimeout("the whole answer took too long")
    return left if seconds is None else min(seconds, left)


class _Connection(httpcore2.NetworkStream):
    """A connection that heeds the limit of the call it is used for."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Connection(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore2.SyncBackend):
    """Connections of that sort."""

    def connect_tcp(self, *args: Any, **given: Any) -> httpcore2.NetworkStream:
        return _Connection(super().connect_tcp(*args, **given))


class _Transport(httpx2.HTTPTransport):
    """The HTTP client's own way, over such connections."""

    def __init__(self, verify: ssl.SSLContext) -> None:
        super().__init__(verify=verify, trust_env=False)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=verify,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Network(),
        )


# --- streams -------------------------------------------------------------------------------------


@contextmanager
def _unavailable_where_lost(what: str) -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise Unavailable(f"the API server cannot be reached: {error or type(error).__name__}") from error
    except httpx2.ReadTimeout as error:
        raise Silent(f"{what} showed nothing for {QUIET_SECONDS:.0f} s, not even a bookmark") from error
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise Unavailable(f"{what} was cut: {error or type(error).__name__}") from error
    except UNREADABLE_CREDENTIALS as error:
        raise Unavailable(f"the credentials cannot be used: {error}") from error


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The whole lines of a stream. Unreadable where one is too long, Unavailable where the last is cut.

    Silent where parts of a line come and come, and it is never whole.
    """
    begun = bytearray()
    heard_at = time.monotonic()
    for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        if ends:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > QUIET_SECONDS:
            raise Silent(f"no line was whole within {QUIET_SECONDS:.0f} s")
        for end in ends:
            line = bytes(begun) + end if begun else end
            begun.clear()
            if line.strip():
                yield line
        begun += rest
        if len(begun) > MAX_LINE_BYTES:
            raise Unreadable(f"an event is longer than {MAX_LINE_BYTES} bytes")
    if begun.strip():
        raise Unavailable("the watch was cut in the middle of an event")


def event_of(line: bytes) -> Manifest:
    """The event of a line. Of an ERROR what it says: Gone, Unauthorized, Throttled or Unavailable."""
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"a line of the watch is no JSON: {error}") from error
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise Unreadable("a line of the watch is no event")
    if event.get("type") != "ERROR":
        return event
    status: Manifest = event["object"]
    code, message = status.get("code"), str(status.get("message", ""))[:500]
    is_gone = status.get("reason") in ("Expired", "Gone")  # as some servers say it, without a code
    raise _fault_of(410 if is_gone else code if isinstance(code, int) else 500, f"the watch: {message}", 0)


def _lost(detail: str, is_read: bool) -> Unavailable:
    """A read changes nothing, whatever became of it."""
    return Unavailable(detail) if is_read else Unclear(detail)


def _fault(response: httpx2.Response, what: str, is_read: bool) -> NotFound | Conflict | Unavailable:
    """The answer's status in our tree, with the API server's own words."""
    status = response.status_code
    detail = f"{what}: {status} {_message(response)}".rstrip()
    if status == 404:
        return NotFound(detail)
    if status == 409:
        return Conflict(detail)
    if status >= 500 and not is_read:
        return Unclear(detail)
    return _fault_of(status, detail, _retry_after_seconds(response))


def _fault_of(status: int, detail: str, retry_after_seconds: int) -> Unavailable:
    """Why nothing was done, by the status of an answer or of an ERROR."""
    if status == 401:
        return Unauthorized(detail)
    if status == 410:
        return Gone(detail)
    if status == 429 or (status == 503 and retry_after_seconds):
        return Throttled(detail, max(retry_after_seconds, 1))
    return Unavailable(detail)


def _retry_after_seconds(response: httpx2.Response) -> int:
    """What Retry-After says in seconds, within reason; 0 where it says nothing that can be read."""
    text = response.headers.get("Retry-After", "").strip()
    return min(int(text), MAX_RETRY_AFTER_SECONDS) if text.isascii() and text.isdigit() else 0


def is_version(text: object) -> TypeGuard[str]:
    """Whether this is a resourceVersion as the books count them: a whole number."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20


def _message(response: httpx2.Response) -> str:
    try:
        status = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return message[:500] if isinstance(message, str) else ""


def _part(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise NotFound(f"nothing in a cluster is called {name[:80]!r}")
    return name


# --- which cluster -------------------------------------------------------------------------------


def connect(kubeconfig: Path | None) -> Client | None:
    """The cluster of the kubeconfig, or the one this process runs in; None where there is neither.

    The client is made once per kubeconfig, and anew when that was written anew. Unavailable where the
    configuration cannot be used.
    """
    if kubeconfig is not None:
        try:
            written = kubeconfig.stat().st_mtime_ns
        except OSError as error:
            raise Unavailable(f"{kubeconfig} cannot be read: {error.strerror}") from error
        return _connected(kubeconfig, written)
    in_cluster = os.environ.get("KUBERNETES_SERVICE_HOST") and Path(SERVICE_ACCOUNT, "token").is_file()
    return _connected(None, 0) if in_cluster else None


def forget_connections() -> None:
    """Whoever connects next reads every credential anew: a certificate is a file beside the kubeconfig.

    Clients that are in use stay as they are.
    """
    _connected.cache_clear()


@lru_cache(maxsize=4)
def _connected(kubeconfig: Path | None, written: int) -> Client:
    # Of the environment nothing is used: a CA bundle named there would stand in for the cluster's own, and
    # a proxy for the outside world does not know the way to an API server.
    limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    try:
        if kubeconfig is None:
            found = KubeConfig.from_service_account(SERVICE_ACCOUNT)
        else:
            found = KubeConfig.from_file(kubeconfig)
        chosen = found.get()
        assert chosen is not None  # without a context it raises
        user = chosen.user or User()
        tls = client_adapter.verify_cluster(chosen.cluster, user, chosen.abs_file, trust_env=False)
        parameters = client_adapter.ConnectionParams(
            timeout=limits, trust_env=False, transport=_Transport(tls)
        )
        return Client(client_adapter.Client(chosen._replace(user=user), parameters))
    except UNUSABLE as it:
        raise Unavailable(f"{kubeconfig or 'the service account'} cannot be used: {it!r}") from it

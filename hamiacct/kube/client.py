"""The API server, and the only code here that speaks over a network.

Objects come as the JSON they are; what is wrong with them is asked elsewhere. Every call has a time limit
and is sent once: whoever calls decides what to do about a failure, because only he knows what a change
that may have been made means.

  NotFound      there is no such object (404)
  Conflict      a precondition does not hold: another uid, another resourceVersion, bound already (409)
  Unavailable   not done: refused, throttled, or never sent
    Unclear     may have been done: the answer is a 5xx, or was lost
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

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

CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 5.0

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

MERGE_PATCH = "application/merge-patch+json"
FIELD_MANAGER = "hamiacct"

# What may stand between two slashes: names of Kubernetes, and nothing that a path could be led astray with.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class Unclear(Unavailable):
    """Nobody can tell from the answer whether the change was made; only a look at the object can."""


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
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "application/json"
    ) -> Manifest:
        """One call, sent once."""
        is_read = method == "GET"
        try:
            response = self._http.request(
                method,
                path,
                params={} if is_read else {"fieldManager": FIELD_MANAGER},
                content=None if body is None else orjson.dumps(body),
                headers={"Accept": "application/json", **({} if body is None else {"Content-Type": kind})},
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Unavailable(f"the API server cannot be reached: {error or type(error).__name__}") from error
        except httpx2.HTTPError as error:
            raise _lost(f"{method} {path}: no answer: {error or type(error).__name__}", is_read) from error
        except ConfigError as error:  # a token that is a file, or a program's output, is read with each call
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
    return _lost(detail, is_read) if status >= 500 else Unavailable(detail)


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


@lru_cache(maxsize=4)
def _connected(kubeconfig: Path | None, written: int) -> Client:
    # Of the environment nothing is used: a CA bundle named there would stand in for the cluster's own, and
    # a proxy for the outside world does not know the way to an API server.
    limits = httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
    parameters = client_adapter.ConnectionParams(timeout=limits, trust_env=False)
    try:
        found = KubeConfig.from_service_account() if kubeconfig is None else KubeConfig.from_file(kubeconfig)
        chosen = found.get()
        assert chosen is not None  # without a context it raises
        return Client(client_adapter.Client(chosen._replace(user=chosen.user or User()), parameters))
    except UNUSABLE as it:
        raise Unavailable(f"{kubeconfig or 'the service account'} cannot be used: {it!r}") from it

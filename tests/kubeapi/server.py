"""An API server for tests: real HTTP on loopback, a store in memory, and faults on demand.

It keeps what a real one promises and this service relies on: one resourceVersion for everything, which a
patch that changes nothing leaves alone; preconditions in merge patches and Bindings; lists in pages at one
version; watches that begin where they are told to, with bookmarks, or with 410 where that is too old.

    with ApiServer() as api:
        api.create(watch.node("n1"))
        api.fail("POST", "/binding", Fault.CUT_AFTER)     # once; `times` says how often
        ... api.url, api.kubeconfig(folder)
"""

import copy
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]

KINDS = {"pods": "Pod", "nodes": "Node", "resourcequotas": "ResourceQuota", "events": "Event"}
KINDS |= {"namespaces": "Namespace"}
PATH = re.compile(
    r"/api/v1(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
TRUE = {"1", "t", "T", "TRUE", "true", "True"}


class Fault(StrEnum):
    """What goes wrong with a call: before anything was done, or after it was."""

    CONFLICT = "409"
    FORBIDDEN = "403"
    THROTTLED = "429"
    FAILED_BEFORE = "500 before"
    FAILED_AFTER = "500 after"
    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"

    @property
    def is_done(self) -> bool:
        """Whether the call was carried out nevertheless."""
        return self in (Fault.FAILED_AFTER, Fault.CUT_AFTER)


class Refusal(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        self.body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.body |= {"code": code, "reason": reason, "message": message}
        self.code = code
        super().__init__(message)


@dataclass
class Store:
    """Every object, and every change in order. `horizon` is the oldest version a watch may begin at."""

    version: int = 1000
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    log: list[tuple[int, str, Object]] = field(default_factory=list)
    horizon: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, type_: str, kind: str, item: Object) -> Object:
        self.version += 1
        metadata = item["metadata"]
        metadata["resourceVersion"] = str(self.version)
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        item = {"kind": kind, "apiVersion": "v1", **item}
        if type_ == "DELETED":
            self.objects.pop(key)
        else:
            self.objects[key] = item
        self.log.append((self.version, type_, copy.deepcopy(item)))
        self.changed.notify_all()
        return item

    def read(self, kind: str, namespace: str, name: str) -> Object:
        try:
            return self.objects[kind, namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f"{kind} {name!r} not found") from None

    def list(self, kind: str, namespace: str) -> list[Object]:
        keys = sorted(key for key in self.objects if key[0] == kind and namespace in ("", key[1]))
        return [self.objects[key] for key in keys]


def merged(target: Any, changes: Any) -> Any:
    """RFC 7386."""
    if not isinstance(changes, dict):
        return changes
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class ApiServer:
    """The server. What tests do to the store directly they do like any client: one version each."""

    def __init__(self) -> None:
        self.store = Store()
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self._faults: list[list[Any]] = []
        self._lock = threading.Lock()
        self._numbers = count(1)
        self.is_closing = False

        class Handler(Calls):
            api = self

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> "ApiServer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_closing = True
        with self.store.changed:
            self.store.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig of this server."""
        path = folder / "kubeconfig.yaml"
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {"token": "a-token"}}
        whole = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
        path.write_text(json.dumps(whole))  # JSON is YAML
        return path

    # --- what a test does to the cluster

    def fail(self, method: str, path_end: str, fault: Fault, times: int = 1) -> None:
        """The next calls of this method whose path ends so meet the fault."""
        with self._lock:
            self._faults.append([method, path_end, fault, times])

    def fault_of(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for one in self._faults:
                if one[0] == method and path.endswith(one[1]) and one[3] > 0:
                    one[3] -= 1
                    found: Fault = one[2]
                    return found
        return None

    def create(self, item: Object) -> Object:
        """A new object as the manifest has it; a uid is given where it has none."""
        item = copy.deepcopy(item)
        item["metadata"].setdefault("uid", f"uid-of-{item['metadata']['name']}-{next(self._numbers)}")
        with self.store.changed:
            return self.store.write("ADDED", item["kind"], item)

    def change(self, kind: str, name: str, changes: Object, namespace: str = "") -> Object:
        """A merge patch without preconditions."""
        with self.store.changed:
            found = self.store.read(kind, namespace, name)
            return self.store.write("MODIFIED", kind, merged(found, changes))

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        with self.store.changed:
            self.store.write("DELETED", kind, copy.deepcopy(self.store.read(kind, namespace, name)))

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        with self.store.changed:
            return copy.deepcopy(self.store.read(kind, namespace, name))

    def forget(self) -> None:
        """A compaction: every version up to now is too old to watch from."""
        with self.store.changed:
            self.store.horizon = self.store.version


class Calls(BaseHTTPRequestHandler):
    """One connection."""

    api: ApiServer
    protocol_version = "HTTP/1.1"
    # A small answer must not wait for the client's acknowledgement of its head.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self.answer(self.read)

    def do_POST(self) -> None:
        self.answer(self.post)

    def do_PATCH(self) -> None:
        self.answer(self.patch)

    def do_DELETE(self) -> None:
        self.answer(self.delete)

    def answer(self, act: Callable[[], Object | None]) -> None:
        parts = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        self.body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        self.api.calls.append((self.command, parts.path))
        self.api.before(self.command, parts.path)
        fault = self.api.fault_of(self.command, parts.path)
        try:
            match = PATH.fullmatch(parts.path)
            if match is None or match["plural"] not in KINDS:
                raise Refusal(404, "NotFound", "the server could not find the requested resource")
            self.namespace, self.name, self.sub = match["namespace"] or "", match["name"], match["sub"]
            self.kind = KINDS[match["plural"]]
            if fault is Fault.CONFLICT:
                raise Refusal(409, "Conflict", "the object has been modified")
            if fault is Fault.FORBIDDEN:
                raise Refusal(403, "Forbidden", "forbidden")
            if fault is Fault.THROTTLED:
                raise Refusal(429, "TooManyRequests", "too many requests")
            if fault is None or fault.is_done:
                document, code = act(), 201 if self.command == "POST" else 200
            if fault in (Fault.FAILED_BEFORE, Fault.FAILED_AFTER):
                raise Refusal(500, "InternalError", "etcdserver: request timed out")
        except Refusal as refusal:
            document, code = refusal.body, refusal.code
        if fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER):
            self.close_connection = True
        elif document is not None:  # a watch has answered already
            self.reply(code, document)

    def reply(self, code: int, document: Object) -> None:
        text = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    # --- reading

    def read(self) -> Object | None:
        if self.name:
            with self.api.store.changed:
                return copy.deepcopy(self.api.store.read(self.kind, self.namespace, self.name))
        if self.query.get("watch") in TRUE:
            return self.watch()
        return self.page()

    def page(self) -> Object:
        """A list, or a page of one. All pages show the version of the first."""
        store = self.api.store
        with store.changed:
            version, start = store.version, 0
            if "continue" in self.query:
                version, start = map(int, self.query["continue"].split("."))
                if version < store.horizon:
                    raise Refusal(410, "Expired", "the provided continue parameter is too old")
            items = [item for item in self.at_version(version) if self.is_selected(item)]
        limit = int(self.query.get("limit", 0)) or len(items)
        metadata: Object = {"resourceVersion": str(version)}
        if start + limit < len(items):
            metadata |= {
                "continue": f"{version}.{start + limit}",
                "remainingItemCount": len(items) - start - limit,
            }
        return {
            "kind": f"{self.kind}List",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": items[start : start + limit],
        }

    def at_version(self, version: int) -> list[Object]:
        """The objects as they were then, by replay of the log."""
        found: dict[tuple[str, str], Object] = {}
        for when, type_, item in self.api.store.log:
            place = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
            if when > version or item["kind"] != self.kind or self.namespace not in ("", place[0]):
                continue
            found[place] = item
            if type_ == "DELETED":
                del found[place]
        return [found[place] for place in sorted(found)]

    def is_selected(self, item: Object) -> bool:
        """The field selector: `status.phase!=Succeeded,status.phase!=Failed` and the like."""
        for part in filter(None, self.query.get("fieldSelector", "").split(",")):
            path, sign, wanted = re.split(r"(!=|==|=)", part, maxsplit=1)
            value: Any = item
            for step in path.split("."):
                value = value.get(step, {}) if isinstance(value, dict) else {}
            if ((value or "") == wanted) == (sign == "!="):
                return False
        return True

    def watch(self) -> None:
        """Chunked events until the time is up, the client leaves, or the server does."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.events():
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def events(self) -> Iterator[Object]:
        store, ends = self.api.store, time.monotonic() + float(self.query.get("timeoutSeconds", 60))
        with store.changed:
            since = int(self.query.get("resourceVersion", "") or store.version)
            if since < store.horizon:
                expired = Refusal(410, "Expired", f"too old resource version: {since} ({store.horizon})")
                yield {"type": "ERROR", "object": expired.body}
                return
            seen = 0
        while not self.api.is_closing:
            with store.changed:
                fresh, seen = store.log[seen:], len(store.log)
                left = ends - time.monotonic()
                if not fresh:
                    if left <= 0:
                        break
                    store.changed.wait(left)
            for when, type_, item in fresh:
                in_scope = item["kind"] == self.kind and self.namespace in (
                    "",
                    item["metadata"].get("namespace", ""),
                )
                if when > since and in_scope:
                    # What leaves a selector is gone, as far as this watcher is concerned.
                    yield {"type": type_ if self.is_selected(item) else "DELETED", "object": item}
        if self.query.get("allowWatchBookmarks") in TRUE:
            metadata = {"resourceVersion": str(store.version)}
            yield {
                "type": "BOOKMARK",
                "object": {"kind": self.kind, "apiVersion": "v1", "metadata": metadata},
            }

    # --- writing

    def post(self) -> Object:
        store = self.api.store
        with store.changed:
            if self.sub == "binding":
                return self.bind()
            item = {**self.body, "kind": self.kind}
            metadata = item["metadata"]
            if "name" not in metadata:
                metadata["name"] = f"{metadata['generateName']}{next(self.api._numbers):05}"
            if (self.kind, self.namespace, metadata["name"]) in store.objects:
                raise Refusal(409, "AlreadyExists", f"{metadata['name']!r} already exists")
            metadata |= {"namespace": self.namespace} if self.namespace else {}
            metadata.setdefault("uid", f"uid-{next(self.api._numbers)}")
            return copy.deepcopy(store.write("ADDED", self.kind, item))

    def bind(self) -> Object:
        """What assigning a pod asks: its uid, its version, and that it is neither bound nor going."""
        pod = copy.deepcopy(self.api.store.read("Pod", self.namespace, self.name))
        self.check_preconditions(pod, self.body["metadata"])
        if pod["metadata"].get("deletionTimestamp"):
            raise Refusal(409, "Conflict", f"pod {self.name} is being deleted, cannot be assigned to a host")
        if pod.setdefault("spec", {}).get("nodeName"):
            raise Refusal(
                409, "Conflict", f"pod {self.name} is already assigned to node {pod['spec']['nodeName']!r}"
            )
        pod["spec"]["nodeName"] = self.body["target"]["name"]
        self.api.store.write("MODIFIED", "Pod", pod)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def patch(self) -> Object:
        store = self.api.store
        if self.headers["Content-Type"] != "application/merge-patch+json":
            raise Refusal(415, "UnsupportedMediaType", "merge patches only")
        with store.changed:
            found = store.read(self.kind, self.namespace, self.name)
            self.check_preconditions(found, self.body.get("metadata", {}))
            changes = {"status": self.body.get("status")} if self.sub == "status" else self.body
            changed = merged(copy.deepcopy(found), changes)
            if self.sub != "status" and "status" in found:
                changed["status"] = found["status"]
            if changed == found:
                return copy.deepcopy(found)
            return copy.deepcopy(store.write("MODIFIED", self.kind, changed))

    def check_preconditions(self, found: Object, wanted: Object) -> None:
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) and wanted[name] != found["metadata"][name]:
                raise Refusal(
                    409,
                    "Conflict",
                    f"precondition failed: {name} {wanted[name]} is not {found['metadata'][name]}",
                )

    def delete(self) -> Object:
        """With grace the pod is first seen going."""
        store = self.api.store
        with store.changed:
            item = copy.deepcopy(store.read(self.kind, self.namespace, self.name))
            if int(self.query.get("gracePeriodSeconds", 0)) and not item["metadata"].get("deletionTimestamp"):
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                item["metadata"]["deletionTimestamp"] = now
                return copy.deepcopy(store.write("MODIFIED", self.kind, item))
            return store.write("DELETED", self.kind, item)

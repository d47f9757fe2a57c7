"""An API server for tests: real HTTP on loopback, a store in memory, and faults on demand.

It keeps what a real one promises and this service relies on: one resourceVersion for everything, which a
patch that changes nothing leaves alone; preconditions in merge patches and Bindings; lists in pages at one
version; watches that begin where they are told to, with bookmarks, or with 410 where that is too old.

    with ApiServer() as api:
        api.create(watch.node("n1"))
        api.fail("POST", "/binding", Fault.CUT_AFTER)     # once; `times` says how often
        api.fail("WATCH", "/pods", Ending.CUT_WITHIN, after=3)    # GET means any of get, list, watch
        slow = api.hold("LIST", "/nodes"); slow.reached.wait(5); slow.go.set()
        api.wait(lambda: api.watching("pods") == 1)
        ... api.url, api.kubeconfig(folder)
"""

import bisect
import contextlib
import copy
import gzip
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from tests.kubeapi.faults import Ending, Fault, Held, Trouble
from tests.kubeapi.selectors import BadSelector, Selector
from tests.kubeapi.store import Backup, Change, Object, Refusal, Store, merged, token, untoken

__all__ = ["ApiServer", "Ending", "Fault", "Refusal"]

CORE, COORDINATION = "", "coordination.k8s.io"
KINDS = {
    (CORE, "pods"): "Pod",
    (CORE, "nodes"): "Node",
    (CORE, "resourcequotas"): "ResourceQuota",
    (CORE, "events"): "Event",
    (CORE, "namespaces"): "Namespace",
    (COORDINATION, "leases"): "Lease",
}
GROUPS = {kind: group for (group, _), kind in KINDS.items()}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[a-z0-9.]+))/v1(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?"
)
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
# Whatever else a parameter says is a yes, if it says nothing at all (seen of 1.36.1).
NO = {"0", "false"}
TOKEN = "a-token"
GRACE_SECONDS = 30
COMPRESSED_FROM_BYTES = 128 * 1024
# What encoders leave of an object that was never filled in.
EMPTY: dict[str, Object] = {
    "Pod": {"spec": {"containers": None}, "status": {}},
    "ResourceQuota": {"spec": {}, "status": {}},
}
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked, as authorization sees it, with the query."""

    verb: str
    resource: str
    sub: str
    namespace: str
    name: str
    query: dict[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Watching:
    """A watch under way, with how it is to end where that is not of itself."""

    resource: str
    end: Ending | None = None


class ApiServer:
    """The server. What tests do to the store directly they do like any client: one version each."""

    def __init__(self, *, cluster_uid: str = "uid-of-the-cluster") -> None:
        self.store = Store()
        self.calls: list[tuple[str, str]] = []
        self.requests: list[Call] = []
        self.verbs: set[tuple[str, str, str]] = set()
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.tokens = {TOKEN}
        self.bookmark_seconds = 60.0
        self.watch_seconds = 1800.0  # the longest watch, and one that says nothing of its length
        self.retry_after_seconds = 1
        self.chunk_bytes = 0  # above 0, streams come in chunks of this size
        self.is_closing = False
        self._troubles: list[Trouble] = []
        self._held: list[Held] = []
        self._rules: list[tuple[str, str, Object]] = []
        self._denied: set[tuple[str, str, str]] = set()
        self._watches: set[Watching] = set()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._port = 0
        self.cluster_uid = cluster_uid
        self._listen()
        self.url = f"http://127.0.0.1:{self._port}"

    def _listen(self) -> None:
        class Handler(Calls):
            api = self

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

        self._http = Server(("127.0.0.1", self._port), Handler)
        self._http.daemon_threads = True
        self._port = self._http.server_address[1]
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
        if self._thread.is_alive():
            self.go_away()

    def kubeconfig(
        self, folder: Path, *, token: str = TOKEN, token_file: Path | None = None, name: str = "kubeconfig"
    ) -> Path:
        """A kubeconfig of this server."""
        path = folder / f"{name}.yaml"
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        credentials = {"tokenFile": str(token_file)} if token_file else {"token": token}
        user = {"name": "u", "user": credentials}
        whole = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
        path.write_bytes(orjson.dumps(whole))  # JSON is YAML
        return path

    # --- what a test does to the cluster

    def create(self, item: Object) -> Object:
        """A new object as the manifest has it; a uid is given where it has none."""
        item = copy.deepcopy(item)
        item["metadata"].setdefault("uid", f"uid-of-{item['metadata']['name']}-{next(self._numbers)}")
        with self.store.changed:
            return self.store.write("ADDED", item["kind"], item, api_version_of(item["kind"]))

    def change(self, kind: str, name: str, changes: Object, namespace: str = "") -> Object:
        """A merge patch without preconditions."""
        with self.store.changed:
            found = self.store.read(kind, namespace, name)
            return self.store.write("MODIFIED", kind, merged(found, copy.deepcopy(changes)))

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        """Gone at once."""
        with self.store.changed:
            self.store.write("DELETED", kind, self.store.read(kind, namespace, name))

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        with self.store.changed:
            return copy.deepcopy(self.store.read(kind, namespace, name))

    def list(self, kind: str) -> list[Object]:
        """All of a kind, in the order of lists."""
        with self.store.changed:
            return list(self.store.snapshot(kind).items)

    @property
    def cluster_uid(self) -> str:
        """The uid of the namespace kube-system, which says which cluster this is."""
        uid: str = self.store.objects["Namespace", "", "kube-system"]["metadata"]["uid"]
        return uid

    @cluster_uid.setter
    def cluster_uid(self, uid: str) -> None:
        metadata = {"name": "kube-system", "uid": uid, "resourceVersion": "4"}
        with self.store.changed:
            self.store.objects["Namespace", "", "kube-system"] = {
                "kind": "Namespace",
                "apiVersion": "v1",
                "metadata": metadata,
                "status": {"phase": "Active"},
            }

    def forget(self) -> None:
        """A compaction: every version up to now is too old to watch from, or to go on with a list of."""
        with self.store.changed:
            self.store.horizon = self.store.version

    def backup(self) -> Backup:
        """Everything as it is, to be restored."""
        with self.store.changed:
            return self.store.backup()

    def restore(self, backup: Backup) -> None:
        """The cluster as it was then, version and all. Nothing that was connected stays so."""
        with self.store.changed:
            self.store.restore(backup)
        self.cut()

    # --- what goes wrong

    def fail(
        self, method: str, path_end: str, fault: Fault | Ending, times: int = 1, *, after: int = 0
    ) -> None:
        """The next calls of this method whose path ends so meet the fault.

        The method is HTTP's, or one of LIST, WATCH and the other verbs. A watch meets its ending after so
        many events.
        """
        with self._lock:
            self._troubles.append(Trouble(method, path_end, fault, times, after))

    def heal(self) -> None:
        """No call meets a fault any more."""
        with self._lock:
            self._troubles.clear()

    def trouble_of(self, methods: tuple[str, ...], path: str) -> Trouble | None:
        with self._lock:
            for one in self._troubles:
                if one.meets(methods, path):
                    one.times -= 1
                    return one
        return None

    def hold(self, method: str, path_end: str) -> Held:
        """The next call of this method whose path ends so gets no answer until `go` is set."""
        held = Held(method, path_end)
        with self._lock:
            self._held.append(held)
        return held

    def held_of(self, methods: tuple[str, ...], path: str) -> Held | None:
        with self._lock:
            for held in self._held:
                if held.method in methods and path.endswith(held.path_end):
                    self._held.remove(held)
                    return held
        return None

    def revoke(self, token: str = TOKEN) -> None:
        """Calls with this token are answered 401 from now on."""
        self.tokens.discard(token)

    def deny(self, verb: str, resource: str, sub: str = "") -> None:
        """403 for this verb on this resource."""
        self._denied.add((verb, resource, sub))

    def permit(self) -> None:
        """Everything is allowed again."""
        self._denied.clear()
        self._rules.clear()

    def restrict(self, rules: Sequence[Object], namespace: str = "", *, token: str = "") -> None:
        """403 for what no rule allows: those of a ClusterRole, or of a Role in its namespace. They add up.

        With a token, for those who come with it alone.
        """
        self._rules += [(token, namespace, rule) for rule in rules]

    def end_watches(self, resource: str = "", how: Ending = Ending.WELL) -> None:
        """Every watch of the resource, or of any, ends so."""
        with self.store.changed:
            for one in self._watches:
                if resource in ("", one.resource):
                    one.end = how
            self.store.changed.notify_all()

    def cut(self) -> None:
        """Every connection is gone."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):  # the client was faster
                connection.shutdown(socket.SHUT_RDWR)
        with self.store.changed:
            for one in self._watches:
                one.end = Ending.CUT
            self.store.changed.notify_all()

    def go_away(self) -> None:
        """Nobody listens here, and what was connected is cut."""
        self._http.shutdown()
        self._http.server_close()
        self.cut()

    def come_back(self) -> None:
        """At the same address."""
        self._listen()
        self._thread.start()

    # --- what a test waits for

    def watching(self, resource: str) -> int:
        """How many watches of the resource are under way."""
        return sum(1 for one in self._watches if one.resource == resource and one.end is None)

    def wait(self, is_so: Callable[[], bool], seconds: float = 10.0) -> None:
        """Returns when it is so: looked at after every change, call, and beginning or end of a watch."""
        with self.store.changed:
            if not self.store.changed.wait_for(is_so, seconds):
                raise TimeoutError(f"not within {seconds} s; the last calls were {self.calls[-10:]}")

    # --- what a call needs to know

    def note(self, call: Call, method: str, path: str) -> None:
        with self.store.changed:
            self.calls.append((method, path))
            self.requests.append(call)
            self.verbs.add((call.verb, call.resource, call.sub))
            self.store.changed.notify_all()

    def is_allowed(self, call: Call, group: str, token: str) -> bool:
        if (call.verb, call.resource, call.sub) in self._denied:
            return False
        rules = [(namespace, rule) for whose, namespace, rule in self._rules if whose in ("", token)]
        if not rules:
            return True
        resource = f"{call.resource}/{call.sub}" if call.sub else call.resource
        return any(
            namespace in ("", call.namespace)
            and {group, "*"} & set(rule.get("apiGroups", ()))
            and {resource, "*"} & set(rule.get("resources", ()))
            and {call.verb, "*"} & set(rule.get("verbs", ()))
            # Names say nothing of what has none yet.
            and (not rule.get("resourceNames") or call.name in rule["resourceNames"])
            for namespace, rule in rules
        )

    def joined(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def left(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    @contextlib.contextmanager
    def watched(self, resource: str) -> Iterator[Watching]:
        one = Watching(resource)
        with self.store.changed:
            self._watches.add(one)
            self.store.changed.notify_all()
        try:
            yield one
        finally:
            with self.store.changed:
                self._watches.discard(one)
                self.store.changed.notify_all()


class Calls(BaseHTTPRequestHandler):
    """One connection."""

    api: ApiServer
    protocol_version = "HTTP/1.1"
    # A small answer must not wait for the client's acknowledgement of its head.
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.api.joined(self.connection)

    def finish(self) -> None:
        self.api.left(self.connection)
        with contextlib.suppress(OSError):  # what was left to send has nobody to go to
            super().finish()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client has left, or was cut off
            super().handle()

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
        asked = parse_qs(parts.query, keep_blank_values=True)
        self.query = {key: values[-1] for key, values in asked.items()}
        self.body = orjson.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        self.trouble: Trouble | None = None
        held: Held | None = None
        try:
            call, group = self.call_of(parts.path)
            methods = (self.command, call.verb.upper())
            self.api.note(call, self.command, parts.path)
            self.api.before(self.command, parts.path)
            if held := self.api.held_of(methods, parts.path):
                held.reached.set()
                held.go.wait(60)
            self.authorize(call, group)
            self.trouble = self.api.trouble_of(methods, parts.path)
            document, code = self.carried_out(act)
        except Refusal as refusal:
            document, code = refusal.body, refusal.code
        if held:
            held.over.set()
        if self.fault in (Fault.CUT_BEFORE, Fault.CUT_AFTER):
            self.close_connection = True
        elif document is not None:  # a watch has answered already
            self.reply(code, document)

    def says(self, parameter: str) -> bool:
        return parameter in self.query and self.query[parameter].lower() not in NO

    def number(self, parameter: str) -> int:
        text = self.query.get(parameter) or "0"
        if not re.fullmatch(r"-?\d+", text):
            raise Refusal(400, "BadRequest", f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    def call_of(self, path: str) -> tuple[Call, str]:
        match = PATH.fullmatch(path)
        if match is None or (match["group"] or CORE, match["plural"]) not in KINDS:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        group = match["group"] or CORE
        self.kind = KINDS[group, match["plural"]]
        self.plural, self.sub = match["plural"], match["sub"] or ""
        self.namespace, self.name = match["namespace"] or "", match["name"] or ""
        verb = VERBS.get(self.command, "get")
        if verb == "get" and not self.name:
            verb = "watch" if self.says("watch") else "list"
        return Call(verb, self.plural, self.sub, self.namespace, self.name, self.query), group

    def authorize(self, call: Call, group: str) -> None:
        """Without any token one is asked nothing: that is a test itself."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if given and given not in self.api.tokens:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if not self.api.is_allowed(call, group, given):
            name = f' "{call.name}"' if call.name else ""
            scope = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
            resource = f"{call.resource}/{call.sub}" if call.sub else call.resource
            raise Refusal(
                403,
                "Forbidden",
                f'{call.resource}{name} is forbidden: User "u" cannot {call.verb} resource "{resource}"'
                f' in API group "{group}" {scope}',
            )

    @property
    def fault(self) -> Fault | Ending | None:
        return self.trouble.fault if self.trouble else None

    def carried_out(self, act: Callable[[], Object | None]) -> tuple[Object | None, int]:
        """The answer, or the fault that is one."""
        fault = self.fault
        if fault is Fault.CONFLICT:
            raise Refusal(409, "Conflict", "the object has been modified")
        if fault is Fault.FORBIDDEN:
            raise Refusal(403, "Forbidden", "forbidden")
        if fault is Fault.UNAUTHORIZED:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if fault is Fault.THROTTLED:
            raise Refusal(429, "TooManyRequests", "Too many requests, please try again later.")
        if fault is Fault.EXPIRED:
            raise Refusal(410, "Expired", "too old resource version")
        if fault is Fault.FAILED_BEFORE or fault is Fault.CUT_BEFORE:
            raise Refusal(500, "InternalError", "etcdserver: request timed out")
        document = act()
        if fault is Fault.FAILED_AFTER:
            raise Refusal(500, "InternalError", "etcdserver: request timed out")
        return document, 201 if self.command == "POST" else 200

    def reply(self, code: int, document: Object) -> None:
        text = orjson.dumps(document)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        if code in (429, 504):
            self.send_header("Retry-After", str(self.api.retry_after_seconds))
        if len(text) > COMPRESSED_FROM_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            text = gzip.compress(text, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.fault is Fault.CUT_WITHIN:
            text = text[: len(text) // 2]
            self.close_connection = True
        self.wfile.write(text)

    # --- reading

    def read(self) -> Object | None:
        if self.name:
            with self.api.store.changed:
                return self.api.store.read(self.kind, self.namespace, self.name)
        try:
            self.is_selected = Selector(
                self.kind, self.query.get("fieldSelector", ""), self.query.get("labelSelector", "")
            )
        except BadSelector as error:
            raise Refusal(400, "BadRequest", str(error)) from None
        return self.watch() if self.says("watch") else self.page()

    def is_here(self, item: Object) -> bool:
        return self.namespace in ("", item["metadata"].get("namespace", ""))

    def page(self) -> Object:
        """A list, or a page of one. All pages show the version of the first."""
        start = ""
        with self.api.store.changed:
            if "continue" in self.query:
                if self.query.get("resourceVersion", "") not in ("", "0"):
                    raise Refusal(
                        400,
                        "BadRequest",
                        "specifying resource version is not allowed when using continue",
                    )
                version, start = untoken(self.query["continue"])
                snapshot = self.api.store.snapshot_at(self.kind, version, start)
            else:
                self.api.store.check_reached(int(self.query.get("resourceVersion") or 0))
                snapshot = self.api.store.snapshot(self.kind)
        # "Any version will do" is answered from memory, and at once.
        is_any = self.query.get("resourceVersion") == "0"
        limit = len(snapshot.items) if is_any else self.number("limit") or len(snapshot.items)
        found: list[Object] = []
        metadata: Object = {"resourceVersion": str(snapshot.version)}
        last = len(snapshot.items)
        for place in range(bisect.bisect_left(snapshot.paths, start), last):
            item = snapshot.items[place]
            if not self.is_here(item) or not self.is_selected(item):
                continue
            if len(found) == limit:
                # With a selector nobody counts what is left.
                rest = snapshot.items[place:] if self.namespace else ()
                left = sum(map(self.is_here, rest)) if self.namespace else last - place
                metadata["continue"] = token(snapshot.version, snapshot.paths[place])
                metadata |= {} if self.is_selected.is_narrow else {"remainingItemCount": left}
                break
            found.append(item)
        return {
            "kind": f"{self.kind}List",
            "apiVersion": api_version_of(self.kind),
            "metadata": metadata,
            "items": found,
        }

    def watch(self) -> None:
        """Chunked events until the time is up, the client leaves, or the server does."""
        fault = Ending.CUT_WITHIN if self.fault is Fault.CUT_WITHIN else self.fault
        after = self.trouble.after if self.trouble and isinstance(fault, Ending) else None
        self.check_watch()
        with self.api.watched(self.plural) as watching:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.flush()
            last: Object = self.bookmark(self.api.store.version)
            for number, event in enumerate(self.events(watching)):
                if number == after:
                    watching.end, last = Ending(str(fault)), event
                    break
                self.send(event)
        match watching.end:
            case Ending.CUT:
                self.close_connection = True
                return
            case Ending.CUT_WITHIN:
                self.send_half(last, is_cut=True)
                self.close_connection = True
                return
            case Ending.HALF:
                self.send_half(last, is_cut=False)
            case Ending.FAILED:
                self.send_refusal(Refusal(500, "InternalError", "etcdserver: no leader"))
            case Ending.EXPIRED:
                self.send_refusal(Refusal(410, "Expired", "The resourceVersion of the watch is too old."))
        self.wfile.write(b"0\r\n\r\n")

    def check_watch(self) -> None:
        version = self.query.get("resourceVersion") or "0"
        if not version.isdigit():
            reason = f'strconv.ParseUint: parsing "{version}": invalid syntax'
            raise Refusal(500, "", f'resourceVersion: Invalid value: "{version}": {reason}')
        matches = self.query.get("resourceVersionMatch") == "NotOlderThan"
        if "sendInitialEvents" in self.query and not matches:
            raise Refusal(
                422,
                "Invalid",
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents'
                " requires setting resourceVersionMatch to NotOlderThan",
            )
        self.number("timeoutSeconds")

    def send(self, event: Object) -> None:
        line = orjson.dumps(event) + b"\n"
        size = self.api.chunk_bytes or len(line)
        for start in range(0, len(line), size):
            self.chunk(line[start : start + size])

    def send_refusal(self, refusal: Refusal) -> None:
        self.send({"type": "ERROR", "object": refusal.body})

    def send_half(self, event: Object, *, is_cut: bool) -> None:
        """Half an event: in half a chunk, or in a whole one."""
        line = orjson.dumps(event) + b"\n"
        half = line[: len(line) // 2]
        if not is_cut:
            self.chunk(half)
            return
        self.wfile.write(f"{len(line):x}\r\n".encode() + half)
        self.wfile.flush()

    def chunk(self, part: bytes) -> None:
        self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.flush()

    def events(self, watching: Watching) -> Iterator[Object]:
        """Ends when it is time, or when `watching` says how it ends."""
        store, api = self.api.store, self.api
        seconds = min(self.number("timeoutSeconds") or api.watch_seconds, api.watch_seconds)
        ends = time.monotonic() + seconds
        wants_bookmarks = self.says("allowWatchBookmarks")
        since, initial = self.beginning()
        if initial is None:
            expired = Refusal(410, "Expired", f"too old resource version: {since} ({store.horizon})")
            yield {"type": "ERROR", "object": expired.body}
            return
        yield from ({"type": "ADDED", "object": item} for item in initial)
        if self.says("sendInitialEvents") and wants_bookmarks:
            yield self.bookmark(since, {INITIAL_EVENTS_END: "true"})
        next_bookmark = time.monotonic() + api.bookmark_seconds
        while True:
            with store.changed:
                fresh = store.changes_after(since)
                now = time.monotonic()
                if api.is_closing or watching.end is not None:
                    break
                if not fresh:
                    since = max(since, store.version)
                    if now >= ends:
                        break
                    due = min(ends, next_bookmark) if wants_bookmarks else ends
                    if now < due:
                        store.changed.wait(due - now)
                        continue
            for change in fresh:
                since = change.version
                if event := self.event_of(change):
                    yield event
            if wants_bookmarks and now >= next_bookmark:
                next_bookmark = now + api.bookmark_seconds
                yield self.bookmark(since)
        if wants_bookmarks and watching.end is None:
            yield self.bookmark(since)

    def beginning(self) -> tuple[int, list[Object] | None]:
        """The version a watch begins after, and what it shows first; None where the version is too old."""
        store = self.api.store
        given = self.query.get("resourceVersion", "")
        with store.changed:
            asks = "sendInitialEvents" in self.query
            is_whole = self.says("sendInitialEvents") if asks else given in ("", "0")
            if is_whole:
                items = store.snapshot(self.kind).items
                return store.version, [one for one in items if self.is_here(one) and self.is_selected(one)]
            since = store.version if given in ("", "0") else int(given)
            return since, [] if since >= store.horizon else None

    def event_of(self, change: Change) -> Object | None:
        """The change as this watch sees it: what enters its selector is new, what leaves it is gone.

        What is gone is shown as it was last selected, with the version at which it went.
        """
        if change.item["kind"] != self.kind or not self.is_here(change.item):
            return None
        is_in = change.type != "DELETED" and self.is_selected(change.item)
        was_in = change.before is not None and self.is_selected(change.before)
        if is_in:
            return {"type": "MODIFIED" if was_in else "ADDED", "object": change.item}
        if not was_in:
            return None
        assert change.before is not None
        metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
        return {"type": "DELETED", "object": {**change.before, "metadata": metadata}}

    def bookmark(self, version: int, annotations: dict[str, str] | None = None) -> Object:
        metadata: Object = {"resourceVersion": str(version)}
        if annotations:
            metadata["annotations"] = annotations
        item = {"kind": self.kind, "apiVersion": api_version_of(self.kind), "metadata": metadata}
        return {"type": "BOOKMARK", "object": item | EMPTY.get(self.kind, {})}

    # --- writing

    def post(self) -> Object:
        store = self.api.store
        with store.changed:
            if self.sub == "binding":
                return self.bind()
            metadata = dict(self.body["metadata"])
            if "name" not in metadata:
                metadata["name"] = f"{metadata['generateName']}{next(self.api._numbers):05}"
            if (self.kind, self.namespace, metadata["name"]) in store.objects:
                raise Refusal(409, "AlreadyExists", f'{self.plural} "{metadata["name"]}" already exists')
            metadata |= {"namespace": self.namespace} if self.namespace else {}
            metadata |= {"uid": f"uid-{next(self.api._numbers)}", "creationTimestamp": rfc3339(now())}
            item = {**self.body, "kind": self.kind, "metadata": metadata}
            if self.kind == "Pod":
                item["status"] = {"phase": "Pending"}
            return store.write("ADDED", self.kind, item, api_version_of(self.kind))

    def bind(self) -> Object:
        """What assigning a pod asks: its uid, its version, and that it is neither bound nor going."""
        pod = self.api.store.read("Pod", self.namespace, self.name)
        wanted = self.body["metadata"]
        for name, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            found = pod["metadata"][name]
            if wanted.get(name) and wanted[name] != found:
                raise self.conflict(
                    f"StorageError: invalid object, Code: 4,"
                    f" Key: /registry/pods/{self.namespace}/{self.name},"
                    f" ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {title} in precondition:"
                    f" {wanted[name]}, {title} in object meta: {found}"
                )
        if pod["metadata"].get("deletionTimestamp"):
            raise self.conflict(f"pod {self.name} is being deleted, cannot be assigned to a host")
        if node := pod.get("spec", {}).get("nodeName"):
            raise self.conflict(f'pod {self.name} is already assigned to node "{node}"')
        told = {name: wanted[name] for name in ("annotations", "labels") if name in wanted}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(now())}
        others = [
            one for one in pod.get("status", {}).get("conditions", ()) if one["type"] != scheduled["type"]
        ]
        changes = {"metadata": told, "spec": {"nodeName": self.body["target"]["name"]}}
        pod = merged(pod, changes | {"status": {"conditions": [*others, scheduled]}})
        self.api.store.write("MODIFIED", "Pod", pod)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def patch(self) -> Object:
        store = self.api.store
        if self.headers["Content-Type"] != "application/merge-patch+json":
            raise Refusal(415, "UnsupportedMediaType", "merge patches only")
        with store.changed:
            found = store.read(self.kind, self.namespace, self.name)
            self.check_patch(found, self.body.get("metadata", {}))
            if self.sub == "status":  # labels and annotations go with it, a specification does not
                changes = {key: self.body[key] for key in ("metadata", "status") if key in self.body}
            else:
                changes = {key: value for key, value in self.body.items() if key != "status"}
            changed = merged(found, changes)
            if changed == found:
                return found
            return store.write("MODIFIED", self.kind, changed)

    def check_patch(self, found: Object, wanted: Object) -> None:
        """The version is a precondition; the uid is something that never changes."""
        version, uid = wanted.get("resourceVersion"), wanted.get("uid")
        if version and version != found["metadata"]["resourceVersion"]:
            raise self.conflict(
                "the object has been modified; please apply your changes to the latest version and try again"
            )
        if uid and uid != found["metadata"]["uid"]:
            raise Refusal(
                422,
                "Invalid",
                f'{self.kind} "{self.name}" is invalid: metadata.uid: Invalid value: "{uid}":'
                " field is immutable",
            )

    def conflict(self, why: str) -> Refusal:
        resource = f"{self.plural}/{self.sub}" if self.sub else self.plural
        return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{self.name}": {why}')

    def delete(self) -> Object:
        """A pod is first seen going, even one that nothing waits for; and stays where its node has to say."""
        store = self.api.store
        with store.changed:
            item = store.read(self.kind, self.namespace, self.name)
            for name, wanted in (self.body or {}).get("preconditions", {}).items():
                if wanted != item["metadata"][name]:
                    raise self.conflict(f"Precondition failed: {name} in precondition: {wanted}")
            grace = self.grace_of(item)
            known = item["metadata"].get("deletionGracePeriodSeconds")
            stays = bool(grace or item["metadata"].get("finalizers"))
            if stays and known is not None and known <= grace:
                return item
            if stays or self.kind == "Pod":
                end = rfc3339(now() + timedelta(seconds=grace))
                going = {"deletionTimestamp": end, "deletionGracePeriodSeconds": grace}
                item = store.write("MODIFIED", self.kind, merged(item, {"metadata": going}))
            return item if stays else store.write("DELETED", self.kind, item)

    def grace_of(self, item: Object) -> int:
        spec = item.get("spec", {})
        is_over = item.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if self.kind != "Pod" or not spec.get("nodeName") or is_over:
            return 0
        asked = self.query.get("gracePeriodSeconds", (self.body or {}).get("gracePeriodSeconds"))
        return int(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS) if asked is None else asked)


def api_version_of(kind: str) -> str:
    group = GROUPS[kind]
    return f"{group}/v1" if group else "v1"


def now() -> datetime:
    return datetime.now(UTC)


def rfc3339(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")

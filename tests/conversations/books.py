"""The service as its callers see it: events go in over HTTP, and what the books say is read over HTTP."""

from typing import Any, NamedTuple, Protocol

from rest_framework.test import APIClient

from tests.live import LiveStack
from tests.watch import versions


class Held(NamedTuple):
    """What is held of a card, or by a pod: slots, MiB, cores."""

    slots: int = 0
    memory_mib: int = 0
    cores: int = 0


class Wire(Protocol):
    """How a call is made: status and body of the answer."""

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]: ...


def in_process(api: APIClient) -> Wire:
    """Calls of the process that runs the test; events are applied in the request."""

    def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        response = getattr(api, method.lower())(path, body, format="json")
        return response.status_code, response.json() if response.content else None

    return call


def over_the_wire(stack: LiveStack) -> Wire:
    """Calls of a service in processes of its own."""

    def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = stack.call(method, path, body)
        return answer.status, answer.body

    return call


class Books:
    """One conversation with the service. After every call that may change something, the books must agree."""

    def __init__(self, call: Wire) -> None:
        self.call = call

    def post_events(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        """Sends watch events in one call, waits until they are applied, and answers the results."""
        status, body = self.call("POST", "/api/v1/events?wait=20", {"events": list(events)})
        assert status == 200, body
        assert not body["rejected"], body
        self.agree()
        results: list[dict[str, Any]] = body["results"]
        return results

    def event(self, object_: dict[str, Any], type_: str = "MODIFIED") -> dict[str, Any]:
        """Sends one object as one event; answers its result."""
        (result,) = self.post_events({"type": type_, "object": object_})
        return result

    def applied(self, *objects: dict[str, Any], type_: str = "MODIFIED") -> None:
        """Sends objects as events of one type; each must be applied."""
        results = self.post_events(*({"type": type_, "object": one} for one in objects))
        assert [one["outcome"] for one in results] == ["applied"] * len(objects), results

    def full_list(self, *items: dict[str, Any], version: int, kind: str = "Pod") -> dict[str, Any]:
        """Sends a full list; answers its result."""
        listing = {"kind": f"{kind}List", "metadata": {"resourceVersion": str(version)}, "items": list(items)}
        status, body = self.call("POST", "/api/v1/snapshots", listing)
        assert status == 200, body
        self.agree()
        result: dict[str, Any] = body
        return result

    def agree(self) -> None:
        """Replay, entries and all totals say the same."""
        assert self.get("/api/v1/audit")["discrepancies"] == []

    def get(self, path: str) -> Any:
        status, body = self.call("GET", path)
        assert status == 200, body
        return body

    def pod(self, uid: str) -> dict[str, Any]:
        """The pod as read; one the books do not know holds nothing."""
        status, body = self.call("GET", f"/api/v1/pods/{uid}")
        return body if status == 200 else {"usage": [], "findings": [], "state": None}

    def held_by(self, uid: str) -> dict[str, Held]:
        """What a pod holds, by device."""
        return {
            one["device"]: Held(one["slots"], one["memory_mib"], one["cores"])
            for one in self.pod(uid)["usage"]
        }

    def findings_of(self, uid: str) -> list[str]:
        """The codes of a pod's findings."""
        return [one["code"] for one in self.pod(uid)["findings"]]

    def used(self, node: str, uuid: str) -> Held:
        """What is used of a device; nothing of one the books do not know."""
        status, body = self.call("GET", f"/api/v1/nodes/{node}/devices/{uuid}")
        if status == 404:
            return Held()
        return Held(*(body[name]["used"] for name in Held._fields))

    def quota(self, namespace: str) -> dict[str, Any]:
        """The resources of a namespace, by name."""
        resources = self.get(f"/api/v1/namespaces/{namespace}/quota")["resources"]
        return {one["resource"]: one for one in resources}

    def quota_used(self, namespace: str, resource: str) -> int:
        """What the namespace uses of a resource."""
        used: int = self.quota(namespace).get(resource, {"used": 0})["used"]
        return used


def complete(manifest: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A cut-down object with what shorthand leaves out: kind, name and a version above all before it."""
    own = manifest.get("metadata", {})
    uid = own.get("uid", "pod-1")
    filled = {"uid": uid, "name": uid, "namespace": "team-a", "resourceVersion": str(next(versions))}
    return {"kind": "Pod", **manifest, "metadata": {**filled, **own, **metadata}}

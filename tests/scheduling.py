"""A cluster of a test's own and the service in scheduler mode, and what must be true of both afterwards."""

import re
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from rest_framework.test import APIClient

from api import telling
from hamiacct import config, models
from hamiacct.kube import manifests
from hamiacct.operations import audit, inbox, reservations, snapshots
from hamiacct.queries import fits
from tests import watch
from tests.kubeapi.server import ApiServer

MUTEX = "hami.io/mutex.lock"
OURS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ,team-a,p")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """The cluster, the service, and what a test looks at in both."""

    def __init__(self, cluster: ApiServer, client: APIClient) -> None:
        self.cluster = cluster
        self.client = client

    def add_node(self, name: str, *cards: dict[str, Any], **more: Any) -> None:
        manifest = {**watch.node(name, *cards), **more}
        self.cluster.create(manifest)
        tell(manifest)

    def add_pod(self, name: str = "p", *, inits: int = 0, hold: bool = True, **limits: str) -> dict[str, Any]:
        """An unbound pod in the cluster, and a hold for it. Its first container asks, be it an init."""
        asked = limits or {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
        containers = [{"name": f"c{number}", "resources": {}} for number in range(inits + 1)]
        containers[0]["resources"] = {"limits": asked}
        spec = {"initContainers": containers[:inits], "containers": containers[inits:]}
        metadata = {
            "name": name,
            "namespace": "team-a",
            "uid": f"uid-{name}",
            "annotations": {"mine": "kept"},
        }
        manifest = self.cluster.create({"kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
        if hold:
            self.hold(name)
        return manifest

    def add_lease(self, *, holder: str, seconds_ago: float = 0) -> None:
        self.cluster.create(lease(holder=holder, seconds_ago=seconds_ago))

    def hold(self, name: str = "p", node: str = "n1") -> reservations.Held:
        question = fits.question_of(manifests.pod_from_manifest(self.pod(name), config.vendors()))
        return reservations.reserve(question, nodes=[node], ttl_seconds=900, at=NOW)

    def bind(self, name: str = "p", node: str = "n1", **more: str) -> str:
        """The Error."""
        body = {"PodName": name, "PodNamespace": "team-a", "PodUID": f"uid-{name}", "Node": node, **more}
        answer = self.client.post("/extender/bind", body)
        assert answer.status_code == 200
        assert set(answer.json()) == {"Error"}
        error: str = answer.json()["Error"]
        return error

    def pod(self, name: str = "p") -> dict[str, Any]:
        return self.cluster.get("Pod", name, "team-a")

    def lock(self, node: str = "n1", key: str = MUTEX) -> str | None:
        text: str | None = self.cluster.get("Node", node)["metadata"]["annotations"].get(key)
        return text

    def set_lock(self, text: str | None, node: str = "n1", key: str = MUTEX) -> None:
        self.cluster.change("Node", node, {"metadata": {"annotations": {key: text}}})

    def state(self, name: str = "p") -> str | None:
        found = models.Reservation.objects.filter(pod_uid=f"uid-{name}").first()
        return found.state if found else None

    def events(self) -> list[tuple[str, str, str]]:
        """What pods were told, once all that waits was sent."""
        sent = threading.Event()
        assert telling._teller._queue(partial(sent.set))
        assert sent.wait(10)
        found = [item for (kind, *_), item in self.cluster.store.objects.items() if kind == "Event"]
        return [(one["type"], one["reason"], one["message"]) for one in found]

    # --- what must be true afterwards

    def is_bound(self, name: str = "p", node: str = "n1", lock: re.Pattern[str] | None = OURS) -> None:
        pod = self.pod(name)
        assert pod["spec"]["nodeName"] == node
        told = pod["metadata"]["annotations"]
        assert told["hami.io/vgpu-node"] == node
        assert told["hami.io/bind-phase"] == "allocating"
        assert self.state(name) == "bound"
        if lock is not None:
            assert lock.fullmatch(self.lock(node) or "")
        self.books_agree()
        # The pod's own event says the same, and the hold has done its work.
        tell(pod)
        assert self.state(name) == "confirmed"
        assert not models.Finding.objects.filter(code="placement-differs").exists()
        self.books_agree()

    def is_untouched(self, state: str, name: str = "p", lock: str | None = None) -> None:
        """Not bound, nothing of a placement on the pod, no lock but the one that was there before."""
        pod = self.pod(name)
        assert "nodeName" not in pod["spec"]
        assert pod["metadata"]["annotations"] == {"mine": "kept"}
        assert not pod["metadata"].get("labels")
        assert self.lock() == lock
        assert self.state(name) == state
        used = sum(models.Device.objects.values_list("memory_mib_used", flat=True))
        assert used == (3000 if state == "held" else 0)
        self.books_agree()

    def books_agree(self) -> None:
        assert audit.audit().discrepancies == ()


def tell(*objects: dict[str, Any]) -> None:
    """The books hear of these."""
    receipt = inbox.receive([watch.event(one) for one in objects], at=NOW)
    assert not receipt.rejected
    inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    snapshots.declare_complete(at=NOW)


def lease(*, holder: str, seconds_ago: float = 0) -> dict[str, Any]:
    """HAMi's lease, as its scheduler renewed it so long ago, for 15 seconds."""
    renewed = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": f"{renewed:%FT%T.%fZ}"}
    return {
        "kind": "Lease",
        "metadata": {"name": "hami-scheduler", "namespace": "kube-system"},
        "spec": spec,
    }


def seconds_ago(seconds: int, holder: str = "") -> str:
    time = (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{time},{holder}" if holder else time

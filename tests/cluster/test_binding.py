"""Bind on a cluster, as an account that may do what its role in deploy/rbac.yaml says and no more."""

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from hamiacct import config
from hamiacct.kube import manifests
from hamiacct.operations import audit, reservations
from hamiacct.queries import fits, fleet
from tests import watch
from tests.cluster.clusters import Cluster, Object
from tests.scheduling import MUTEX, seconds_ago, tell
from tests.waiting import until


class World:
    """A node with a card, an unbound pod with a hold on it, and the service in scheduler mode."""

    def __init__(self, cluster: Cluster, client: APIClient) -> None:
        self.cluster = cluster
        self.client = client
        self.namespace = cluster.add_namespace("bind")
        self.node = f"{self.namespace}-n"
        told = {
            watch.REGISTER: json.dumps([{"index": 0, **watch.card("GPU-a")}]),
            watch.HANDSHAKE: "Reported",
        }
        tell({"kind": "Node", **cluster.add_node(self.node, told)})
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/p"
        self.made = self.add_pod()
        question = fits.question_of(manifests.pod_from_manifest(self.made, config.vendors()))
        reservations.reserve(question, nodes=[self.node], ttl_seconds=900, at=datetime.now(UTC))

    def add_pod(self, name: str = "p") -> Object:
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
        container = {"name": "c", "image": "none", "resources": {"limits": limits}}
        manifest = {
            "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [container]},
        }
        return self.cluster.add("pods", self.namespace, manifest)

    def bind(self) -> str:
        """The Error."""
        asked = {"PodName": "p", "PodNamespace": self.namespace, "PodUID": self.made["metadata"]["uid"]}
        answer = self.client.post("/extender/bind", asked | {"Node": self.node})
        assert answer.status_code == 200
        error: str = answer.json()["Error"]
        return error

    def pod(self) -> Object:
        return self.cluster.call("GET", self.path)

    def lock(self) -> str | None:
        node = self.cluster.call("GET", f"/api/v1/nodes/{self.node}")
        text: str | None = node["metadata"]["annotations"].get(MUTEX)
        return text

    def set_lock(self, text: str) -> None:
        self.cluster.patch(f"/api/v1/nodes/{self.node}", {"metadata": {"annotations": {MUTEX: text}}})

    def is_told(self, type_: str, reason: str) -> None:
        """An event says so, sooner or later."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        until(lambda: (type_, reason) in [(one["type"], one["reason"]) for one in self.cluster.list(path)])

    def is_untouched(self) -> None:
        pod = self.pod()
        assert "nodeName" not in pod["spec"]
        assert not pod["metadata"].get("annotations")
        assert audit.audit().ok


@pytest.fixture
def world(cluster: Cluster, api: APIClient, db: None, settings: Any, tmp_path: Path) -> Iterator[World]:
    fleet.forget()
    settings.HAMIACCT = dataclasses.replace(
        settings.HAMIACCT, scheduler_mode=True, bind_lock_wait_seconds=0.0
    )
    world = World(cluster, api)
    account = cluster.account(tmp_path, "hamiacct-scheduler")
    settings.HAMIACCT = dataclasses.replace(settings.HAMIACCT, kubeconfig=account)
    yield world
    fleet.forget()


def test_a_bound_pod_carries_its_placement(world: World) -> None:
    assert world.bind() == ""
    pod = world.pod()
    assert pod["spec"]["nodeName"] == world.node
    told = pod["metadata"]["annotations"]
    assert told["hami.io/vgpu-node"] == world.node
    assert told[watch.ALLOCATED] == "GPU-a,NVIDIA,3000,0:;"
    assert (world.lock() or "").endswith(f",{world.namespace},p")
    world.is_told("Normal", "BindingSucceed")
    tell({"kind": "Pod", **pod})
    assert audit.audit().ok


def test_a_lock_of_a_living_pod_is_respected(world: World) -> None:
    world.add_pod("other")
    lock = seconds_ago(1, f"{world.namespace},other")
    world.set_lock(lock)
    assert f"is held by {world.namespace}/other" in world.bind()
    world.is_untouched()
    assert world.lock() == lock
    world.is_told("Warning", "BindingFailed")


def test_another_pod_of_the_same_name_is_not_bound(world: World) -> None:
    world.cluster.delete(world.path)
    world.add_pod()
    assert world.bind() != ""
    world.is_untouched()
    assert world.lock() is None


def test_a_pod_that_is_bound_already_is_not_bound_again(world: World) -> None:
    world.cluster.bind(world.path, "p", "elsewhere")
    assert world.bind() != ""
    assert world.pod()["spec"]["nodeName"] == "elsewhere"
    assert not world.pod()["metadata"].get("annotations")
    assert world.lock() is None

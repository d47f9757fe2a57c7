"""Pods, nodes and quotas as Kubernetes shows them, in one line each."""

from typing import Any

from hamiacct import config

VENDORS = config.read_vendors(None)
BY_KEY = {vendor.key: vendor for vendor in VENDORS}
NVIDIA = BY_KEY["NVIDIA"]
ALLOCATED = NVIDIA.allocated_key


def pod(*, annotations: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """A pod on n1; `spec`, `status` and `metadata` add to what every pod has."""
    metadata = {
        "uid": "u-1",
        "namespace": "team-a",
        "name": "web-0",
        "resourceVersion": "10",
        "annotations": {"hami.io/vgpu-node": "n1", **(annotations or {})},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | parts.get("metadata", {}),
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]} | parts.get("spec", {}),
        "status": {"phase": "Running"} | parts.get("status", {}),
    }


def node(annotations: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """The node n1; `capacity` and `allocatable` are its status."""
    metadata = {"name": "n1", "resourceVersion": "7", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def quota(hard: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """The quota gpu of team-a."""
    metadata = {"name": "gpu", "namespace": "team-a", "resourceVersion": "5"}
    return {"kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard or {}, **spec}}

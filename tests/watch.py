"""Kubernetes objects as a watch shows them, in one line each; versions go up by themselves."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

versions = count(100)

REGISTER = "hami.io/node-nvidia-register"
HANDSHAKE = "hami.io/node-handshake"
ALLOCATED = "hami.io/vgpu-devices-allocated"


def metadata(name: str, version: int | None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resourceVersion": str(next(versions) if version is None else version), **more}


def card(uuid: str, *, memory: int = 24576, slots: int = 10, cores: int = 100, **more: Any) -> dict[str, Any]:
    """One card as an NVIDIA node registers it."""
    described = {"id": uuid, "count": slots, "devmem": memory, "devcore": cores, "type": "NVIDIA-A10"}
    return {**described, "mode": "hami-core", "health": True, **more}


def node(name: str, *cards: dict[str, Any], version: int | None = None, **annotations: str) -> dict[str, Any]:
    """A node that registers these cards."""
    numbered = [{"index": index, **one} for index, one in enumerate(cards)]
    told = {REGISTER: json.dumps(numbered), HANDSHAKE: "Reported 2026-01-01", **annotations}
    return {"kind": "Node", "metadata": metadata(name, version, annotations=told), "status": {}}


def pod(
    name: str,
    *groups: str,
    inits: int = 0,
    node: str = "n1",
    namespace: str = "team-a",
    uid: str = "",
    version: int | None = None,
    phase: str = "Running",
    requests: Sequence[dict[str, str]] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A bound pod; each group is one container's part of its allocation, the first `inits` being inits.

    A container asks for as many cards as it has, unless `requests` says otherwise.

    pod("web", "GPU-a 2048 10")                     one container on one card
    pod("web", "", "GPU-a 2048 10 + GPU-b 1024 0")  the second of two containers, on two cards
    """
    parts = [[entry.split() for entry in group.split("+") if entry.strip()] for group in groups]
    text = "".join(
        "".join(f"{uuid},NVIDIA,{memory},{cores}:" for uuid, memory, cores in part) + ";" for part in parts
    )
    asked = requests or [{"nvidia.com/gpu": str(len(part))} if part else {} for part in parts]
    containers = [
        {"name": f"c{number}", "resources": {"limits": one}} for number, one in enumerate(asked or [{}])
    ]
    told = {"hami.io/vgpu-node": node, ALLOCATED: text} if groups else {}
    return {
        "kind": "Pod",
        "metadata": metadata(name, version, namespace=namespace, uid=uid or f"uid-{name}", annotations=told),
        "spec": {
            "nodeName": node,
            "initContainers": containers[:inits],
            "containers": containers[inits:],
            **spec,
        },
        "status": {"phase": phase},
    }


def quota(name: str, *, namespace: str = "team-a", version: int | None = None, **spec: Any) -> dict[str, Any]:
    """A ResourceQuota."""
    return {"kind": "ResourceQuota", "metadata": metadata(name, version, namespace=namespace), "spec": spec}


def event(object_: Any, type_: str = "ADDED") -> dict[str, Any]:
    """One watch event."""
    return {"type": type_, "object": object_}


def events(*objects: Any, type_: str = "ADDED") -> dict[str, Any]:
    """The body of one call."""
    return {"events": [event(object_, type_) for object_ in objects]}

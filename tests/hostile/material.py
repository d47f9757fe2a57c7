"""Good documents to bend: those of tests/data, and one of each form that is read here, of every vendor."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

from hamiacct import config
from hamiacct.accounting.vendors import Vendor
from tests import cases, watch

Manifest = dict[str, Any]

VENDORS = config.read_vendors(None)
LAYOUTS = (
    "{0},{1},1024,10:;{0},{1},2048,20:;{0},{1},512,5:;",
    ";{0},{1},2048,20:{0}-b,{1},1,1:;",
    ",,0,0:;{0},{1},100,0:;",
    "{0}[1-2],{1},5120,14:;;;",
    "{0},{1},2048,20:;",
)
LIST_KINDS = {"Pod": "PodList", "Node": "NodeList", "ResourceQuota": "ResourceQuotaList"}


def registers_of(vendor: Vendor) -> dict[str, str]:
    """A good register of the vendor's, by annotation."""
    inventory = vendor.inventory
    card = {
        "id": f"{vendor.key}-0",
        "count": 10,
        "devmem": 24576,
        "devcore": 100,
        "type": vendor.key,
        "numa": 0,
    }
    card |= {"mode": "hami-core", "health": True, "index": 0, "custominfo": {"minor": 0, "links": [1, 2]}}
    profile = {"name": "1g.5gb", "memoryMB": 5120, "core": 14, "sliceCount": 1}
    card["migProfiles"] = [{**profile, "placements": [{"start": 0, "size": 1}, {"start": 1, "size": 1}]}]
    metax = {"uuid": f"{vendor.key}-0", "model": "MXC500", "totalDevCount": 4, "totalVRam": 65536}
    metax |= {"totalCompute": 100, "numa": 0, "healthy": True, "qosPolicy": "best-effort", "linkZone": 1}
    drs = {
        "devices": [{"index": "0", "minor": "0", "capacity": "6"}],
        "profiles": {"3g.24gb": "1", "1g.8gb": "2"},
    }
    texts = {
        "json": json.dumps([card, {**card, "id": f"{vendor.key}-1", "index": 1}]),
        "delimited": f"{card['id']},10,32768,100,A,0,true:{card['id']}-b,4,65536,8,B,1,true,1,mig:",
        "metax-json": json.dumps([metax]),
        "drs-json": json.dumps(drs),
    }
    return {inventory.annotation: texts[inventory.form]} if inventory.form in texts else {}


def a_node(name: str, *vendors: Vendor) -> Manifest:
    """A node with cards of these vendors, with all else that is read of nodes."""
    annotations: dict[str, str] = {"hami.io/device-cordon": f"{vendors[0].key}-1"}
    amounts: dict[str, str] = {}
    for vendor in vendors:
        annotations |= registers_of(vendor)
        inventory = vendor.inventory
        if inventory.handshake:
            annotations[inventory.handshake] = "Requesting_2026-08-21 00:00:00"
        if inventory.pair_scores:
            annotations[inventory.pair_scores] = json.dumps(
                [{"uuid": f"{vendor.key}-0", "score": {f"{vendor.key}-1": 100}}]
            )
        annotations |= dict.fromkeys(inventory.switches, "true")
        if vendor.lock:
            annotations[vendor.lock["key"]] = "2026-08-21T10:00:00Z,team-a,web-0"
        for resource in (
            inventory.capacity_name,
            inventory.memory_capacity_name,
            inventory.cores_capacity_name,
        ):
            if resource:
                amounts[resource] = "8"
    node = watch.node(name)
    node["metadata"]["annotations"] = annotations
    node["metadata"]["labels"] = {"zone": "a", "kubernetes.io/hostname": name}
    node["spec"] = {"unschedulable": False}
    node["status"] = {"capacity": amounts, "allocatable": dict(amounts)}
    return node


def a_pod(name: str, layout: str, *vendors: Vendor) -> Manifest:
    """A pod with allocations of these vendors, with all else that is read of pods."""
    pod = watch.pod(name, "", "", "", inits=1)
    annotations = pod["metadata"]["annotations"]
    limits: dict[str, str] = {}
    for vendor in vendors:
        annotations[vendor.allocated_key] = layout.format(f"{vendor.key}-0", vendor.key)
        if vendor.slots_annotation:
            annotations[vendor.slots_annotation] = "2"
        for names in vendor.selectors.values():
            annotations |= dict.fromkeys(names, f"{vendor.key}-0,{vendor.key}-1")
        for resource in vendor.resource_names:
            limits[resource] = "1"
    annotations |= {
        "hami.io/vgpu-time": "1787270400",
        "hami.io/bind-time": "1787270401",
        "hami.io/bind-phase": "allocating",
        "hami.io/node-scheduler-policy": "spread",
        "hami.io/gpu-scheduler-policy": "binpack",
        "hami.io/device-scoring-weights": "slot=1,core=2,memory=3",
        "hami.io/vgpu-mig-allocations": json.dumps(
            [
                {
                    "containerIndex": 1,
                    "deviceIndex": 0,
                    "gpuUUID": "GPU-a",
                    "profile": "1g.5gb",
                    "placement": {"start": 6, "size": 1},
                    "migUUID": "MIG-a",
                    "gpuInstanceID": 7,
                    "computeInstanceID": 0,
                }
            ]
        ),
    }
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        container["resources"] = {
            "limits": dict(limits),
            "requests": {**limits, "cpu": "500m", "memory": "1Gi"},
        }
        container["securityContext"] = {"privileged": False}
        container["env"] = [{"name": "A", "value": "b"}]
    term = {"namespaces": ["a"], "namespaceSelector": {}, "topologyKey": "zone"}
    pod["spec"] |= {
        "schedulerName": "hami-scheduler",
        "priorityClassName": "high",
        "activeDeadlineSeconds": 60,
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
            },
        },
    }
    pod["metadata"]["labels"] = {"hami.io/vgpu-node": "n1", "hami.io/webhook": "ignore"}
    pod["status"] = {
        "phase": "Running",
        "initContainerStatuses": [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}],
        "conditions": [],
    }
    return pod


def a_quota(name: str) -> Manifest:
    """A quota with everything that is read of quotas."""
    hard = {
        "limits.nvidia.com/gpumem": "20000",
        "requests.nvidia.com/gpu": "8",
        "limits.nvidia.com/gpucores": "800",
    }
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "low"]}
    quota = watch.quota(name, hard=hard, scopes=["NotTerminating", "BestEffort"])
    quota["spec"]["scopeSelector"] = {"matchExpressions": [expression]}
    return quota


@cache
def _of_the_field_reports() -> tuple[Manifest, ...]:
    """The objects of events in the field's reports, each whole enough to be stored."""
    found = []
    numbers = count(1)
    for case in cases.read("field-reports.json"):
        for event in case["input"].get("events") or ():
            shown = event.get("object") if isinstance(event, dict) else None
            if isinstance(shown, dict) and shown.get("kind") in LIST_KINDS:
                found.append(_whole(shown, next(numbers)))
    for case in cases.read():
        given = case["input"]
        if isinstance(given, dict) and isinstance(given.get("pod"), dict):
            found.append(_whole({"kind": "Pod", **given["pod"]}, next(numbers)))
    assert len(found) > 50
    return tuple(found)


def _whole(shown: Manifest, number: int) -> Manifest:
    whole = copy.deepcopy(shown)
    metadata = whole.setdefault("metadata", {})
    metadata["resourceVersion"] = str(number)
    metadata.setdefault("name", f"reported-{number}")
    if whole["kind"] != "Node":
        metadata.setdefault("namespace", "team-a")
    if whole["kind"] == "Pod":
        metadata.setdefault("uid", f"uid-{number}")
    return whole


def pods(layouts: tuple[str, ...] = LAYOUTS) -> Iterator[Manifest]:
    """A pod of each vendor in each layout, and one of all vendors."""
    for layout in layouts:
        yield a_pod("all", layout, *VENDORS)
        for vendor in VENDORS:
            yield a_pod(f"pod-{vendor.key.lower()}", layout, vendor)


def nodes() -> Iterator[Manifest]:
    """A node of each vendor, and one of all."""
    yield a_node("all", *VENDORS)
    for vendor in VENDORS:
        yield a_node(f"node-{vendor.key.lower()}", vendor)


@cache
def objects() -> tuple[Manifest, ...]:
    """Everything worth bending."""
    return (*pods(), *nodes(), a_quota("gpu"), *_of_the_field_reports())


def of_kind(kind: str) -> list[Manifest]:
    """The objects of one kind."""
    return [one for one in objects() if one["kind"] == kind]


def a_list(kind: str, items: list[Manifest], version: int) -> Manifest:
    """A full list."""
    return {"kind": LIST_KINDS[kind], "metadata": {"resourceVersion": str(version)}, "items": items}


def a_review(pod: Manifest) -> Manifest:
    """kube-apiserver's question about a new pod."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "team-a",
            "name": "web-0",
            "dryRun": False,
            "object": pod,
        },
    }

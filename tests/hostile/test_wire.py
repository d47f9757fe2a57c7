"""The readers of the wire alone, with thousands of bent objects: an answer or `Malformed`, and soon.

What is kept of an object reads as the whole does, and can be stored; the sieve of the watcher never stumbles.
How long a reader takes grows with what it reads, and not with its square.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from hamiacct.accounting.errors import Malformed, UnreadableAnnotation
from hamiacct.kube import (
    admission,
    annotations,
    extender,
    manifests,
    node_locks,
    recordings,
    registration,
    relevance,
)
from tests.hostile import material
from tests.hostile.chance import chances, examples
from tests.hostile.material import VENDORS
from tests.hostile.mutations import Bender

AT = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 0.5
"""What one object may take; the largest here have a MiB."""

READERS: dict[str, Callable[[Any], Any]] = {
    "Pod": lambda manifest: manifests.pod_from_manifest(manifest, VENDORS),
    "Node": lambda manifest: registration.node_from_manifest(manifest, VENDORS, AT, UTC),
    "ResourceQuota": lambda manifest: manifests.quota_from_manifest(manifest, VENDORS),
}


def outcome(read: Callable[[Any], Any], manifest: Any) -> Any:
    """What was read, or in which words it was refused."""
    try:
        return read(manifest)
    except Malformed as fault:
        return fault.detail, fault.pointer


def test_thousands_of_bent_objects() -> None:
    bender = Bender(chances("objects"))
    refused = read = 0
    for _ in range(examples(500)):
        shown = bender.chances.choice(material.objects())
        text = bender.text(bender.value(shown))
        try:
            manifest = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        kind = shown["kind"]
        began = time.process_time()
        whole = outcome(READERS[kind], manifest)
        kept = manifests.keep(kind, manifest, VENDORS)
        stored = orjson.loads(orjson.dumps(kept))
        again = outcome(READERS[kind], stored)
        relevance.concerns_us(kind, manifest, VENDORS)
        relevance.digest(kind, manifest, VENDORS)
        outcome(manifests.envelope, {"type": "ADDED", "object": manifest})
        outcome(manifests.list_items, {"kind": f"{kind}List", "items": [manifest]})
        assert time.process_time() - began < SECONDS, text[:2000]
        assert again == whole, text[:2000]
        assert b"\\u0000" not in orjson.dumps(kept)
        refused += isinstance(whole, tuple)
        read += not isinstance(whole, tuple)
    assert min(refused, read) > (refused + read) / 20


def fault_of(decode: Callable[[str], Any], text: str) -> UnreadableAnnotation | None:
    """Why a text is none; None where it is one."""
    try:
        decode(text)
    except UnreadableAnnotation as fault:
        return fault
    return None


DECODERS: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "allocation": (
        annotations.decode_groups,
        tuple(layout.format("GPU-a", "NVIDIA") for layout in material.LAYOUTS),
    ),
    "mig": (
        annotations.decode_mig_allocations,
        (material.a_pod("p", "", VENDORS[0])["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"],),
    ),
    "lock": (
        lambda text: node_locks.parse(text),
        ("2026-08-21T10:00:00Z", "2026-08-21T10:00:00Z,team-a,web-0"),
    ),
    **{
        f"register of {vendor.key}": (
            lambda text, key=key: READERS["Node"]({"metadata": {"name": "n1", "annotations": {key: text}}}),
            (register,),
        )
        for vendor in VENDORS
        for key, register in material.registers_of(vendor).items()
    },
}


@pytest.mark.parametrize("name", DECODERS)
def test_annotations_cut_doubled_and_turned(name: str) -> None:
    decode, texts = DECODERS[name]
    bender = Bender(chances(name))
    for _ in range(examples(100)):
        text = bender.chances.choice(texts)
        for _ in range(bender.chances.choice((1, 1, 2))):
            text = bender._embedded(text) if text[:1] in ("[", "{") else bender.cut(text)
        began = time.process_time()
        fault = fault_of(decode, text)
        assert time.process_time() - began < SECONDS, text[:500]
        assert fault is None or (0 <= fault.offset <= len(text) + 1 and len(fault.detail) < 600)


def test_recordings_of_anything_end() -> None:
    bender = Bender(chances("recordings"))
    pretty = json.dumps({"type": "ADDED", "object": material.a_quota("q")}, indent=4).encode()
    for _ in range(examples(150)):
        body = b"\n".join(bender.bytes_of(pretty)[:20_000] for _ in range(3))
        for items_apart in (False, True):
            texts = list(recordings.texts_of(body.split(b"\n"), items_apart=items_apart))
            assert sum(len(one.text) for one in texts) <= 2 * len(body) + 100


def test_messages_of_kube_apiserver_and_kube_scheduler() -> None:
    bender = Bender(chances("messages"))
    pod = material.a_pod("p", material.LAYOUTS[0], *VENDORS)
    for _ in range(examples(150)):
        for read, message in (
            (admission.review_from, material.a_review(pod)),
            (extender.extender_args, {"Pod": pod, "NodeNames": ["a", "b"]}),
            (extender.extender_args, {"pod": pod, "nodes": {"items": [material.a_node("n", VENDORS[0])]}}),
            (extender.binding_args, {"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "n"}),
        ):
            text = bender.text(bender.value(message))
            try:
                document = orjson.loads(text)
            except orjson.JSONDecodeError:
                continue
            found = outcome(read, document)
            if isinstance(found, admission.Review) and found.is_about_a_new_pod:
                outcome(lambda review: admission.pod_of(review, VENDORS), found)


# --- time against size -------------------------------------------------------------------------------


def long_pod(size: int) -> dict[str, Any]:
    """Each list and text of a pod so long."""
    pod = material.a_pod("p", material.LAYOUTS[0], *VENDORS)
    spec, metadata = pod["spec"], pod["metadata"]
    spec["containers"] = [
        {"name": f"c{n}", "resources": {"limits": {"nvidia.com/gpu": "1"}}} for n in range(size)
    ]
    spec["initContainers"] = [{"name": f"i{n}"} for n in range(size)]
    spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] *= size
    pod["status"]["initContainerStatuses"] = [
        {"name": f"i{n}", "state": {"running": {}}} for n in range(size)
    ]
    metadata["annotations"][VENDORS[0].allocated_key] = "GPU-a,NVIDIA,1,1:;" * size
    metadata["annotations"]["nvidia.com/use-gpuuuid"] = "GPU-a," * size
    metadata["annotations"] |= {f"a/{n}": "x" for n in range(size)}
    return pod


def long_node(size: int) -> dict[str, Any]:
    node = material.a_node("n", *VENDORS)
    cards = json.loads(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])
    many = [{**cards[0], "id": f"GPU-{n}", "custominfo": {}} for n in range(size)]
    node["metadata"]["annotations"]["hami.io/node-nvidia-register"] = json.dumps(many)
    node["metadata"]["annotations"]["hami.io/node-dcu-register"] = "".join(
        f"D{n},1,1,1,a,0,true:" for n in range(size)
    )
    node["metadata"]["annotations"]["hami.io/device-cordon"] = ",".join(f"GPU-{n}" for n in range(size))
    node["metadata"]["labels"] = {f"l/{n}": "x" for n in range(size)}
    node["status"]["capacity"] = dict.fromkeys(
        node["status"]["capacity"], str(10**size if size < 17 else 10**17)
    )
    return node


def long_quota(size: int) -> dict[str, Any]:
    quota = material.a_quota("q")
    quota["spec"]["hard"] |= {f"limits.nvidia.com/a{n}": "1" for n in range(size)}
    quota["spec"]["scopes"] *= size
    quota["spec"]["scopeSelector"]["matchExpressions"] *= size
    return quota


@pytest.mark.parametrize(
    ("kind", "make"), [("Pod", long_pod), ("Node", long_node), ("ResourceQuota", long_quota)]
)
def test_time_grows_with_the_size_and_not_with_its_square(kind: str, make: Callable[[int], Any]) -> None:
    """Four times as much takes at most ten times as long; what is over a limit costs nothing more."""

    def seconds(size: int) -> float:
        manifest = make(size)

        def once() -> float:
            began = time.process_time()
            outcome(READERS[kind], manifest)
            outcome(READERS[kind], manifests.keep(kind, manifest, VENDORS))
            return time.process_time() - began

        return min(once() for _ in range(3))

    short, long = seconds(250), seconds(1000)
    assert long < 10 * max(short, 0.002), (short, long)
    assert seconds(10_000) < SECONDS

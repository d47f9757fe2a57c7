"""The story that the recording tells: `python -m demo.cluster` writes `events.ndjson` anew.

Eight nodes of five vendors, five ResourceQuotas, and pods in every stage of their lives, written as the
apiserver's watches would have shown them: the nodes' registers as HAMi's device plugins write them, the pods'
allocations as HAMi's scheduler writes them. Everything is made up, nothing is random: the same story gives
the same bytes.
"""

import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from demo.load import RECORDED_UNTIL, RECORDING

SELVES = uuid.UUID("6d1f2a54-0c43-4d39-9f0e-5a8e6f1c2b70")
Manifest = dict[str, Any]


def id_of(*words: object) -> str:
    """A uuid that is always the same for the same words."""
    return str(uuid.uuid5(SELVES, "/".join(map(str, words))))


def stamp(moment: datetime) -> str:
    """As Kubernetes writes times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Recording:
    """What the watches showed, one event after the other; versions and the clock only go up."""

    def __init__(self) -> None:
        self.events: list[Manifest] = []
        self.clock = RECORDED_UNTIL - timedelta(hours=2)
        self._version = 481_200

    def show(self, type_: str, manifest: Manifest) -> None:
        """One event."""
        self._version += 7
        self.clock += timedelta(seconds=20)
        assert self.clock <= RECORDED_UNTIL, "the story is longer than the recording"
        seen = deepcopy(manifest)
        seen["metadata"]["resourceVersion"] = str(self._version)
        self.events.append({"type": type_, "object": seen})

    def skip_to(self, before_the_end: timedelta) -> None:
        """Nothing happens until so long before the end."""
        self.clock = max(self.clock, RECORDED_UNTIL - before_the_end)

    def lines(self) -> str:
        """The recording, one event a line."""
        return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in self.events)


# --- vendors, nodes and cards --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vendor:
    """What HAMi's scheduler and plugins write for a vendor; `factor` is MiB per unit of a memory request."""

    key: str
    count: str
    memory: str
    cores: str
    allocated: str
    factor: int = 1


NVIDIA = Vendor(
    "NVIDIA", "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores", "hami.io/vgpu-devices-allocated"
)
ASCEND = Vendor(
    "Ascend910B3",
    "huawei.com/Ascend910B3",
    "huawei.com/Ascend910B3-memory",
    "huawei.com/Ascend910B3-core",
    "hami.io/Ascend910B3-devices-allocated",
)
MLU = Vendor(
    "MLU",
    "cambricon.com/vmlu",
    "cambricon.com/mlu.smlu.vmemory",
    "cambricon.com/mlu.smlu.vcore",
    "hami.io/cambricon-mlu-devices-allocated",
    256,
)
DCU = Vendor(
    "DCU", "hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores", "hami.io/dcu-devices-allocated"
)


@dataclass(frozen=True, slots=True)
class Card:
    """One device of a node."""

    node: str
    uuid: str
    vendor: Vendor = NVIDIA


def gpus(node: str, count: int) -> list[Card]:
    """The node's NVIDIA cards."""
    return [Card(node, f"GPU-{id_of(node, index)}") for index in range(count)]


def nvidia_register(cards: Sequence[Card], model: str, memory_mib: int, **more: Any) -> str:
    """`hami.io/node-nvidia-register`, where zeros are left out. Half of the cards are on either NUMA node."""
    listed = []
    for index, card in enumerate(cards):
        one = {
            "id": card.uuid,
            "index": index,
            "count": 10,
            "devmem": memory_mib,
            "devcore": 100,
            "type": model,
            "numa": int(index >= len(cards) / 2),
            "mode": "hami-core",
            "health": True,
            **more,
        }
        listed.append({name: value for name, value in one.items() if value})
    return json.dumps(listed, separators=(",", ":"))


def node(name: str, annotations: Mapping[str, str], capacity: Mapping[str, str], **labels: str) -> Manifest:
    """A Node, with the parts of it that matter here."""
    amounts = {"cpu": "64", "memory": "527939184Ki", "pods": "110", **capacity}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": id_of("node", name),
            "creationTimestamp": stamp(RECORDED_UNTIL - timedelta(days=97)),
            "labels": {"kubernetes.io/hostname": name, **labels},
            "annotations": dict(annotations),
        },
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def nvidia_node(name: str, register: str, cards: Sequence[Card], **more: str) -> Manifest:
    """A node whose NVIDIA plugin has answered the scheduler's handshake."""
    annotations = {
        "hami.io/node-handshake": "Reported 2026-01-05 09:58:12.403 +0000 UTC m=+412331.288680645",
        "hami.io/node-nvidia-register": register,
        **more,
    }
    return node(name, annotations, {NVIDIA.count: str(10 * len(cards))}, gpu="on")


# --- pods ----------------------------------------------------------------------------------------


def asks(memory: int, cores: int = 0, count: int = 1, vendor: Vendor = NVIDIA) -> dict[str, str]:
    """The limits of a container: cards, memory of each in the vendor's unit, cores of each."""
    limits = {vendor.count: str(count), vendor.memory: str(memory)}
    return limits | ({vendor.cores: str(cores)} if cores else {})


def container(name: str, limits: Mapping[str, str] | None = None) -> Manifest:
    """A container."""
    return {
        "name": name,
        "image": f"{name}:1.4",
        "resources": {"limits": {"cpu": "4", "memory": "16Gi", **(limits or {})}},
    }


def sidecar(name: str, limits: Mapping[str, str] | None = None) -> Manifest:
    """An init container that is started before the others and never ends by itself."""
    return container(name, limits) | {"restartPolicy": "Always"}


STATES: dict[str, Manifest] = {
    "waiting": {"waiting": {"reason": "PodInitializing"}},
    "running": {"running": {"startedAt": stamp(RECORDED_UNTIL - timedelta(hours=1))}},
    "done": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    "failed": {"terminated": {"exitCode": 1, "reason": "Error"}},
    "backing off": {"waiting": {"reason": "CrashLoopBackOff"}},
}


@dataclass(slots=True)
class Pod:
    """A pod as it lives: each method changes the manifest and shows the change."""

    recording: Recording
    namespace: str
    name: str
    apps: Sequence[Manifest]
    inits: Sequence[Manifest] = ()
    generation: int = 0
    spec: Mapping[str, Any] = field(default_factory=dict)
    manifest: Manifest = field(init=False)

    def __post_init__(self) -> None:
        spec: Manifest = {"schedulerName": "hami-scheduler", "containers": list(self.apps), **self.spec}
        if self.inits:
            spec["initContainers"] = list(self.inits)
        self.manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": id_of("pod", self.namespace, self.name, self.generation),
                "creationTimestamp": stamp(self.recording.clock),
                "labels": {"app": self.name.rstrip("0123456789").rstrip("-")},
                "annotations": {},
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        self.recording.show("ADDED", self.manifest)

    def changed(self) -> "Pod":
        """Shows the manifest as it is now."""
        self.recording.show("MODIFIED", self.manifest)
        return self

    def annotate(self, **annotations: str) -> "Pod":
        """Annotations by their names with `_` for `-`, in HAMi's own group."""
        named = {f"hami.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
        self.manifest["metadata"]["annotations"] |= named
        return self

    def claim(self, cards: Mapping[str, Sequence[Card]], groups: str | None = None) -> "Pod":
        """The scheduler has chosen: per container its cards, as it writes them. `groups` is its own text."""
        chosen = next(card for own in cards.values() for card in own)
        vendor, seconds = chosen.vendor, str(int(self.recording.clock.timestamp()))
        annotations = self.manifest["metadata"]["annotations"]
        annotations |= {"hami.io/vgpu-node": chosen.node, "hami.io/vgpu-time": seconds}
        if groups is None:
            groups = "".join(group_of(one, cards.get(one["name"], ())) for one in (*self.inits, *self.apps))
        annotations[vendor.allocated] = groups
        self.manifest["metadata"]["labels"]["hami.io/vgpu-node"] = chosen.node
        return self.changed()

    def bind(self) -> "Pod":
        """The scheduler has bound it, the device plugin has allocated."""
        seconds = str(int(self.recording.clock.timestamp()))
        self.annotate(bind_phase="success", bind_time=seconds)
        self.manifest["spec"]["nodeName"] = self.manifest["metadata"]["annotations"]["hami.io/vgpu-node"]
        return self.changed()

    def stand(self, phase: str = "Running", **states: str) -> "Pod":
        """The kubelet reports: the phase, and the state of containers by name (`_` for `-`)."""
        states = {name.replace("_", "-"): state for name, state in states.items()}
        rest = "running" if phase == "Running" else "waiting"
        self.manifest["status"] = {
            "phase": phase,
            "containerStatuses": [status_of(one, states.get(one["name"], rest)) for one in self.apps],
        }
        if self.inits:
            self.manifest["status"]["initContainerStatuses"] = [
                status_of(one, states.get(one["name"], "waiting")) for one in self.inits
            ]
        return self.changed()

    def run(self, cards: Mapping[str, Sequence[Card]], groups: str | None = None, **states: str) -> "Pod":
        """Claimed, bound and standing as its states say."""
        still_initializing = any(states.get(one["name"].replace("-", "_")) != "done" for one in regular(self))
        phase = "Pending" if still_initializing else "Running"
        return self.claim(cards, groups).bind().stand(phase, **states)

    def terminate(self, grace_seconds: int = 300) -> "Pod":
        """Somebody deletes it; its containers have some time left."""
        gone_at = self.recording.clock + timedelta(seconds=grace_seconds)
        self.manifest["metadata"]["deletionTimestamp"] = stamp(gone_at)
        self.manifest["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
        return self.changed()

    def delete(self) -> None:
        """It is gone."""
        self.recording.show("DELETED", self.manifest)


def regular(pod: Pod) -> list[Manifest]:
    """The init containers that run to completion."""
    return [one for one in pod.inits if "restartPolicy" not in one]


def group_of(one: Manifest, cards: Sequence[Card]) -> str:
    """The container's group in an allocation: its request on each of its cards."""
    limits = one["resources"]["limits"]
    return (
        "".join(
            f"{card.uuid},{card.vendor.key},"
            f"{int(limits[card.vendor.memory]) * card.vendor.factor},{limits.get(card.vendor.cores, 0)}:"
            for card in cards
        )
        + ";"
    )


def status_of(one: Manifest, state: str) -> Manifest:
    """A container's status."""
    return {"name": one["name"], "ready": state == "running", "restartCount": 0, "state": STATES[state]}


def quota(namespace: str, name: str, hard: Mapping[str, str], **spec: Any) -> Manifest:
    """A ResourceQuota."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace, "uid": id_of("quota", namespace, name)},
        "spec": {"hard": dict(hard), **spec},
    }


# --- the story -----------------------------------------------------------------------------------

A100 = gpus("a100-1", 4)
A10 = gpus("a10-1", 4)
L40S, L40S_2 = gpus("l40s-1", 4), gpus("l40s-2", 2)
MIG = gpus("mig-1", 2)
NPU = [Card("ascend-1", id_of("ascend-1", index).upper(), ASCEND) for index in range(8)]
CAMBRICON = [Card("mlu-1", f"mlu-1-cambricon-mlu-{index}", MLU) for index in range(4)]
HYGON = [Card("dcu-1", f"DCU-T6Q{index}20{index}7", DCU) for index in range(4)]

MIG_PROFILES = [
    {
        "name": "1g.5gb",
        "memoryMB": 4864,
        "core": 14,
        "sliceCount": 1,
        "placements": [{"start": start, "size": 1} for start in range(7)],
    },
    {
        "name": "3g.20gb",
        "memoryMB": 19968,
        "core": 42,
        "sliceCount": 3,
        "placements": [{"start": 0, "size": 4}, {"start": 4, "size": 4}],
    },
]


def nodes(recording: Recording) -> None:
    """What each plugin registers. One card is cordoned, one is ill."""
    a100 = nvidia_register(A100, "NVIDIA A100-SXM4-80GB", 81920)
    recording.show("ADDED", nvidia_node("a100-1", a100, A100, **{"hami.io/device-cordon": A100[3].uuid}))
    recording.show("ADDED", nvidia_node("a10-1", nvidia_register(A10, "NVIDIA A10", 24576), A10))
    listed = json.loads(nvidia_register(L40S, "NVIDIA L40S", 46068))
    del listed[2]["health"]
    recording.show("ADDED", nvidia_node("l40s-1", json.dumps(listed, separators=(",", ":")), L40S))
    recording.show("ADDED", l40s_2(L40S_2))
    mig = nvidia_register(MIG, "NVIDIA A100-SXM4-40GB", 40960, mode="mig", migProfiles=MIG_PROFILES)
    recording.show("ADDED", nvidia_node("mig-1", mig, MIG))
    recording.show("ADDED", ascend_node())
    # Cambricon's plugin only counts: 100 cores a card, and memory in units of 256 MiB.
    counted = {MLU.cores: "400", MLU.memory: "768", MLU.count: "400"}
    recording.show("ADDED", node("mlu-1", {}, counted, mlu="on"))
    recording.show("ADDED", dcu_node())


def l40s_2(cards: Sequence[Card]) -> Manifest:
    """The node that will lose a card."""
    return nvidia_node("l40s-2", nvidia_register(cards, "NVIDIA L40S", 46068), cards)


def ascend_node() -> Manifest:
    """Two rings of four NPUs."""
    listed = [
        {
            "id": card.uuid,
            "index": index,
            "count": 4,
            "devmem": 65536,
            "devcore": 20,
            "type": ASCEND.key,
            "numa": index // 4,
            "health": True,
            "devicevendor": ASCEND.key,
            "custominfo": {"NetworkID": index // 4},
        }
        for index, card in enumerate(NPU)
    ]
    annotations = {
        "hami.io/node-register-Ascend910B3": json.dumps(listed, separators=(",", ":")),
        "hami.io/node-handshake-Ascend910B3": "Requesting_2026-01-05 09:59:30",
    }
    return node("ascend-1", annotations, {ASCEND.count: "8"}, ascend="on")


def dcu_node() -> Manifest:
    """A register in the delimited form."""
    listed = "".join(
        f"{card.uuid},4,65520,120,DCU-K100_AI,{index // 2},true,{index},hami-core:"
        for index, card in enumerate(HYGON)
    )
    annotations = {
        "hami.io/node-dcu-register": listed,
        "hami.io/node-handshake-dcu": "Reported 2026-01-05 09:58:40",
    }
    return node("dcu-1", annotations, {DCU.count: "16"}, dcu="on")


def quotas(recording: Recording) -> None:
    """Limits; one namespace's will be lowered below its use at the end."""
    recording.show("ADDED", quota("default", "gpu", {"limits.nvidia.com/gpumem": "65536"}))
    recording.show("ADDED", vision_quota(98304))
    hard = {
        "limits.nvidia.com/gpumem": "320Ki",  # 327680, as kubectl may write it
        "limits.nvidia.com/gpucores": "400",
        "requests.nvidia.com/gpu": "16",
    }
    recording.show("ADDED", quota("nlp", "gpu", hard))
    # In Cambricon's units of 256 MiB: 24576 MiB.
    recording.show("ADDED", quota("speech", "mlu", {"limits.cambricon.com/mlu.smlu.vmemory": "96"}))
    hard = {"limits.nvidia.com/gpumem": "16384"}
    recording.show("ADDED", quota("batch", "short-jobs", hard, scopes=["Terminating"]))


def vision_quota(memory_mib: int) -> Manifest:
    """The quota of the namespace vision."""
    return quota("vision", "gpu", {"limits.nvidia.com/gpumem": str(memory_mib)})


def sidecars(recording: Recording) -> None:
    """The design's three cases, each alone on a card of 24 GiB."""
    both = Pod(
        recording,
        "default",
        "sidecar-and-app",
        [container("app", asks(10240))],
        [sidecar("proxy", asks(10240))],
    )
    both.run({"proxy": [A10[0]], "app": [A10[0]]}, proxy="running")
    both.stand(proxy="failed").stand(proxy="backing off").stand(proxy="running")

    proxy, fetch = sidecar("proxy", asks(2048)), container("fetch", asks(20480))
    for name, card, inits in (
        ("sidecar-first", A10[1], [proxy, fetch]),
        ("init-first", A10[2], [fetch, proxy]),
    ):
        pod = Pod(recording, "default", name, [container("app", asks(10240))], inits)
        pod.run({"proxy": [card], "fetch": [card], "app": [card]}, proxy="running", fetch="running")
        pod.stand(proxy="running", fetch="done")
        # The sidecar crashes, and once it exits 0 between two restarts: neither gives anything back.
        pod.stand(proxy="failed", fetch="done").stand(proxy="backing off", fetch="done")
        pod.stand(proxy="done", fetch="done").stand(proxy="running", fetch="done")


def vision(recording: Recording) -> None:
    """Replicas, notebooks, and a namespace over a limit that came later."""
    for number, card in enumerate((L40S[0], L40S[0], L40S[1], L40S[1])):
        replica = Pod(recording, "vision", f"detector-{number}", [container("detector", asks(8192, 25))])
        replica.run({"detector": [card]})
    labels = Pod(
        recording,
        "vision",
        "label-studio-0",
        [container("studio", asks(4096, 10)), container("embedder", asks(2048, 10))],
    )
    labels.run({"studio": [L40S[3]], "embedder": [L40S[3]]})
    # An annotation is cut off: the last good amount stays, and a finding says where it breaks.
    tracker = Pod(recording, "vision", "tracker-0", [container("tracker", asks(10240, 20))])
    tracker.run({"tracker": [L40S[1]]})
    tracker.manifest["metadata"]["annotations"][NVIDIA.allocated] = f"{L40S[1].uuid},NVIDIA,102"
    tracker.changed()
    # The register of l40s-2 will lose this card.
    stranded = Pod(recording, "vision", "renderer-0", [container("renderer", asks(24576, 50))])
    stranded.run({"renderer": [L40S_2[1]]})
    plain = Pod(recording, "vision", "gallery-0", [container("gallery")])
    plain.manifest["spec"]["nodeName"] = "l40s-1"
    plain.stand()


def nlp(recording: Recording) -> None:
    """Large models: two cards a pod, inits that need more than what follows."""
    for number, cards in enumerate((A100[:2], A100[2:])):
        serving = Pod(
            recording, "nlp", f"llm-serve-{number}", [container("server", asks(40960, 50, count=2))]
        )
        serving.run({"server": cards})
    # Its second init runs, at the pod's peak.
    at_peak = Pod(
        recording,
        "nlp",
        "finetune-qa-0",
        [container("trainer", asks(24576, 30))],
        [sidecar("metrics", asks(1024)), container("fetch"), container("quantize", asks(32768, 40))],
    )
    card = [A100[0]]
    at_peak.run(
        {"metrics": card, "quantize": card, "trainer": card},
        metrics="running",
        fetch="done",
        quantize="running",
    )
    # Its init is done, and the memory it needed was given back.
    shrunk = Pod(
        recording,
        "nlp",
        "finetune-sum-0",
        [container("trainer", asks(20480, 30))],
        [container("quantize", asks(30720, 40))],
    )
    shrunk.run({"quantize": [A100[1]], "trainer": [A100[1]]}, quantize="running")
    shrunk.stand(quantize="done")
    # Its sidecar never stays up; what it holds is counted all the same.
    crashing = Pod(
        recording,
        "nlp",
        "embed-0",
        [container("embedder", asks(8192, 10))],
        [sidecar("cache", asks(4096)), container("warm", asks(16384))],
    )
    card = [A100[2]]
    crashing.run({"cache": card, "warm": card, "embedder": card}, cache="running", warm="running")
    crashing.stand(cache="running", warm="done").stand(cache="failed", warm="done")
    crashing.stand(cache="backing off", warm="done")
    # Its init fails, so its peak is held.
    failing = Pod(
        recording,
        "nlp",
        "evaluate-0",
        [container("evaluator", asks(8192))],
        [container("convert", asks(12288))],
    )
    failing.run({"convert": [A100[2]], "evaluator": [A100[2]]}, convert="running")
    failing.stand("Pending", convert="failed").stand("Pending", convert="backing off")
    # Its node restarted after the shrink, so its init runs again: memory that was given back is used.
    again = Pod(
        recording,
        "nlp",
        "rerank-0",
        [container("ranker", asks(6144))],
        [container("convert", asks(12288))],
    )
    again.run({"convert": [A100[3]], "ranker": [A100[3]]}, convert="running")
    again.stand(convert="done").stand("Pending", convert="running")


def lab(recording: Recording) -> None:
    """What goes wrong in a cluster that has grown for years."""
    # A name that is used again: the delete of the first pod was never seen.
    for generation, memory in enumerate((4096, 6144)):
        notebook = Pod(
            recording, "lab", "notebook-0", [container("notebook", asks(memory))], generation=generation
        )
        notebook.run({"notebook": [L40S_2[0]]})
    # Two pods on a card that has no room for both.
    for name, memory in (("sweep-a", 16384), ("sweep-b", 12288)):
        Pod(recording, "lab", name, [container("sweep", asks(memory))]).run({"sweep": [A10[3]]})
    # Placed by a release that wrote no rows for inits: it may mean either container.
    old = Pod(
        recording, "lab", "legacy-0", [container("model", asks(6144))], [container("prepare", asks(2048))]
    )
    old.run({"model": [L40S_2[0]]}, groups=f"{L40S_2[0].uuid},NVIDIA,6144,0:;", prepare="running")
    # On a card that its node never registered.
    lost = Pod(recording, "lab", "probe-0", [container("probe", asks(8192))])
    lost.run({"probe": [Card("l40s-2", f"GPU-{id_of('l40s-2', 'sold')}")]})


def slices(recording: Recording) -> None:
    """Slices of MIG cards: two as today's releases write them, one with the suffix of old ones."""
    for number, (profile, memory, cores, start, size) in enumerate(
        (("1g.5gb", 4864, 14, 0, 1), ("3g.20gb", 19968, 42, 4, 4))
    ):
        pod = Pod(recording, "batch", f"slice-{number}", [container("work", asks(memory, cores))])
        placed = {
            "containerIndex": 0,
            "deviceIndex": 0,
            "gpuUUID": MIG[0].uuid,
            "profile": profile,
            "placement": {"start": start, "size": size},
        }
        pod.annotate(vgpu_mig_allocations=json.dumps([placed], separators=(",", ":")))
        pod.run({"work": [MIG[0]]})
    old = Pod(recording, "batch", "slice-old", [container("work", asks(4864, 14))])
    old.run({"work": [MIG[1]]}, groups=f"{MIG[1].uuid}[1-0],NVIDIA,4864,14:;")


def others(recording: Recording) -> None:
    """Cards of other vendors."""
    half = Pod(recording, "batch", "npu-half-0", [container("work", asks(32768, vendor=ASCEND))])
    half.run({"work": [NPU[0]]})
    whole = Pod(recording, "batch", "npu-pair-0", [container("work", asks(65536, count=2, vendor=ASCEND))])
    whole.run({"work": NPU[4:6]})
    for name, memory, cores, card in (("asr-0", 32, 25, CAMBRICON[0]), ("tts-0", 48, 50, CAMBRICON[1])):
        Pod(recording, "speech", name, [container("work", asks(memory, cores, vendor=MLU))]).run(
            {"work": [card]}
        )
    hygon = Pod(recording, "batch", "simulate-0", [container("work", asks(16384, 30, vendor=DCU))])
    hygon.run({"work": [HYGON[0]]})


def jobs(recording: Recording) -> None:
    """Pods that end: well, badly, and out of sight."""
    deadline = {"activeDeadlineSeconds": 7200, "restartPolicy": "Never"}

    def job(name: str, memory: int, **spec: Any) -> Pod:
        pod = Pod(recording, "batch", name, [container("work", asks(memory))], spec={**deadline, **spec})
        return pod.run({"work": [L40S[0]]})

    job("preprocess-1", 4096).stand("Succeeded", work="done")
    job("preprocess-2", 4096).stand("Failed", work="failed")
    job("preprocess-3", 4096).stand("Succeeded", work="done").delete()
    job("evicted-1", 8192).terminate(30).delete()
    job("preprocess-4", 4096)


def the_last_minutes(recording: Recording) -> None:
    """What is under way when the recording ends."""
    recording.show("MODIFIED", l40s_2(L40S_2[:1]))
    recording.show("MODIFIED", vision_quota(49152))
    waiting = Pod(recording, "nlp", "llm-serve-2", [container("server", asks(81920, 100, count=4))])
    waiting.manifest["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}
    ]
    waiting.changed()
    Pod(recording, "vision", "notebook-1", [container("notebook", asks(8192))])
    Pod(recording, "vision", "notebook-2", [container("notebook", asks(8192))]).claim(
        {"notebook": [L40S_2[0]]}
    )
    leaving = Pod(recording, "vision", "annotate-0", [container("work", asks(16384))])
    leaving.run({"work": [L40S[3]]}).terminate()


def recorded() -> Recording:
    """The whole story."""
    recording = Recording()
    nodes(recording)
    quotas(recording)
    sidecars(recording)
    vision(recording)
    nlp(recording)
    lab(recording)
    slices(recording)
    others(recording)
    jobs(recording)
    recording.skip_to(timedelta(minutes=5))
    the_last_minutes(recording)
    return recording


if __name__ == "__main__":
    RECORDING.write_text(recorded().lines(), encoding="utf-8")
    print(f"{RECORDING}: {len(recorded().events)} events", file=sys.stderr)

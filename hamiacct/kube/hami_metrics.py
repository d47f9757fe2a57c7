"""What HAMi's scheduler says at its own /metrics, of which memory is read (docs/api.md).

Names as they are today, or those of `--legacy-metrics` and of releases before them. HAMi up to 2.9 has one
sample a container, later ones have a single one with the index 0: they are added.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client.parser import text_fd_to_metric_families

from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.holdings import device_uuid

BYTES_IN_A_MIB = 1_048_576

# What each kind of sample is called, the current name first, and which labels tell the subject.
Labels = tuple[str, ...]
PODS: Mapping[str, Labels] = {
    "hami_vgpu_memory_allocated_bytes": ("namespace", "pod", "node", "device_uuid"),
    "vGPUMemoryAllocated": ("podnamespace", "podname", "nodename", "deviceuuid"),
    "vGPUPodsDeviceAllocated": ("podnamespace", "podname", "nodename", "deviceuuid"),
}
CARDS: Mapping[str, Labels] = {
    "hami_gpu_memory_allocated_bytes": ("node", "device_uuid"),
    "GPUDeviceMemoryAllocated": ("nodeid", "deviceuuid"),
}
QUOTAS: Mapping[str, Labels] = {
    "hami_resource_quota_used": ("namespace", "quota_name"),
    "QuotaUsed": ("quotanamespace", "quotaName"),
}
NAMES = (*PODS, *CARDS, *QUOTAS)


class Holding(NamedTuple):
    """A pod and a card; HAMi's metrics know no uid."""

    namespace: str
    pod: str
    node: str
    device: str


class Card(NamedTuple):
    """A card of a node."""

    node: str
    device: str


class Quota(NamedTuple):
    """A resource in a namespace."""

    namespace: str
    resource: str


@dataclass(frozen=True, slots=True)
class Reported:
    """What HAMi says it has booked: MiB by pod and card, MiB by card, and the quotas' use as it counts it."""

    pods: Mapping[Holding, int]
    cards: Mapping[Card, int]
    quotas: Mapping[Quota, int]


def read(lines: Iterable[str]) -> Reported:
    """The samples of a page of Prometheus text. Malformed where it is none, or none of HAMi's scheduler."""
    found: dict[str, dict[tuple[str, ...], int]] = defaultdict(lambda: defaultdict(int))
    try:
        # Only the lines that are read are parsed: a page has ten times as many.
        for family in text_fd_to_metric_families(line for line in lines if line.startswith(NAMES)):  # type: ignore[arg-type]  # any lines do
            for sample in family.samples:
                labels = PODS.get(sample.name) or CARDS.get(sample.name) or QUOTAS.get(sample.name)
                if labels is not None:
                    subject = tuple(sample.labels[label] for label in labels)
                    found[sample.name][subject] += _whole(sample.value)
    except KeyError as error:
        raise Malformed(f"{sample.name} without the label {error.args[0]}") from error
    except (ValueError, IndexError) as error:
        raise Malformed(f"this is no Prometheus text: {error}") from error
    if not any(found.get(name) for name in (*PODS, *CARDS)):
        raise Malformed("this names neither cards nor pods: HAMi's scheduler does, by default on port 9395")
    pods: dict[Holding, int] = defaultdict(int)
    for (namespace, pod, node, uuid), size in _first(found, PODS).items():
        pods[Holding(namespace, pod, node, device_uuid(uuid))] += size
    return Reported(
        {holding: size // BYTES_IN_A_MIB for holding, size in pods.items()},
        {Card(*subject): size // BYTES_IN_A_MIB for subject, size in _first(found, CARDS).items()},
        {Quota(*subject): used for subject, used in _first(found, QUOTAS).items()},
    )


def _whole(value: float) -> int:
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} is no amount")
    return int(value)


def _first(
    found: Mapping[str, Mapping[tuple[str, ...], int]], names: Iterable[str]
) -> Mapping[tuple[str, ...], int]:
    """The samples of the first of these names that has any: legacy names tell the same again."""
    return next((found[name] for name in names if name in found), {})

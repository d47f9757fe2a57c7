"""Many pods' folds at once: beside a card, and for what the shrink will give back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Sum

from hamiacct import config, models, rows
from hamiacct.accounting.holdings import Held, Step, steps_of_pod
from hamiacct.accounting.pods import DeviceKey
from hamiacct.accounting.words import ChargedAs, PodState, Rule

HOLDERS = 200
OF_A_FOLD = (
    "uid",
    "namespace",
    "name",
    "state",
    "rule",
    "charged_as",
    "inits_released",
    "containers",
    "allocations",
)


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod on a device: what it holds there now, what will be left, and its fold on that device alone."""

    uid: str
    namespace: str
    name: str
    state: PodState
    rule: Rule
    slots: int
    memory_mib: int
    cores: int
    key: DeviceKey
    steps: tuple[Step, ...]

    @property
    def steady_mib(self) -> int:
        """What it will hold once its inits are done; never more than it holds."""
        if not self.steps or self.rule is Rule.RECHARGED:
            return self.memory_mib
        return min(self.memory_mib, self.steps[-1].footprint.steady[self.key].memory_mib)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A device with those who hold it, the largest first. `others` is how many were left out."""

    device: models.Device
    holders: tuple[Holder, ...]
    others: int


def on_device(device: models.Device) -> OnDevice:
    """Who holds what of a device, and why; two queries, one more where a pod is held by a reservation."""
    entries = models.UsageEntry.objects.filter(device=device).select_related("pod")
    found = list(
        entries.only(
            "vendor", "slots", "memory_mib", "cores", *(f"pod__{field}" for field in OF_A_FOLD)
        ).order_by("-memory_mib", "pod_id")[: HOLDERS + 1]
    )
    others = 0
    if len(found) > HOLDERS:
        others = models.UsageEntry.objects.filter(device=device).count() - HOLDERS
        found = found[:HOLDERS]
    steps = steps_of([entry.pod for entry in found])
    return OnDevice(
        device,
        tuple(
            Holder(
                entry.pod_id,
                entry.pod.namespace,
                entry.pod.name,
                PodState(entry.pod.state),
                Rule(entry.pod.rule),
                entry.slots,
                entry.memory_mib,
                entry.cores,
                DeviceKey(device.node, device.uuid, entry.vendor),
                steps[entry.pod_id],
            )
            for entry in found
        ),
        others,
    )


def coming_back(devices: Collection[int]) -> Mapping[int, int]:
    """The memory (MiB) that each device gets back when the inits running on it are done; one query."""
    entries = (
        models.UsageEntry.objects.filter(
            device__in=devices, pod__charged_as=ChargedAs.EFFECTIVE, pod__inits_released=False
        )
        .select_related("pod", "device")
        .only(
            "vendor", "memory_mib", "device__node", "device__uuid", *(f"pod__{field}" for field in OF_A_FOLD)
        )
    )
    found = list(entries)
    steady = steady_of([entry.pod for entry in found])
    back: dict[int, int] = {}
    for entry in found:
        left = steady[entry.pod_id][rows.key_of(entry)].memory_mib
        back[entry.device_id] = back.get(entry.device_id, 0) + max(0, entry.memory_mib - left)
    return back


def memory_of(uids: Collection[str]) -> Mapping[str, int]:
    """The memory (MiB) that each of these pods holds over all its devices; one query."""
    sums = models.UsageEntry.objects.filter(pod_id__in=uids).values("pod_id").order_by()
    return dict(sums.annotate(held=Sum("memory_mib")).values_list("pod_id", "held"))


def steady_of(pods: Iterable[models.Pod]) -> Mapping[str, Held]:
    """What each pod will hold once its inits are done, by uid."""
    return {
        uid: steps[-1].footprint.steady if steps else Held() for uid, steps in steps_of(list(pods)).items()
    }


def steps_of(pods: Sequence[models.Pod]) -> Mapping[str, tuple[Step, ...]]:
    """Each pod's fold, container by container, by uid; one query where a pod is held by a reservation."""
    vendors, layout = config.vendor_by_key(), config.annotation_layout()
    by_hold = [pod.uid for pod in pods if pod.charged_as == ChargedAs.HELD]
    holds = models.Reservation.objects.in_bulk(by_hold) if by_hold else {}
    found = {}
    for pod in pods:
        hold = holds.get(pod.uid)
        allocations = rows.hold_of(hold).allocations if hold is not None else rows.allocations_of(pod)
        # A vendor that is configured no more keeps its charge, but nothing can be told of how it came to be.
        known = {key: allocation for key, allocation in allocations.items() if key in vendors}
        found[pod.uid] = steps_of_pod(rows.containers_of(pod), known, vendors, layout)
    return found

"""Nodes and questions in few words, and those of HAMi's cases."""

from collections.abc import Mapping, Sequence
from typing import Any

from hamiacct import config
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.asks import Ask, Room, ask_of
from hamiacct.accounting.devices import MigProfile, Placement
from hamiacct.accounting.offers import FitDevice, FitNode
from hamiacct.accounting.pods import Container, ContainerClass
from hamiacct.accounting.quota import Dimension
from hamiacct.accounting.requests import DeviceRequest
from hamiacct.accounting.vendors import Vendor

VENDORS = config.read_vendors(None)
BY_KEY = {vendor.key: vendor for vendor in VENDORS}
NVIDIA = "NVIDIA"


def asking(
    *containers: Sequence[DeviceRequest] | DeviceRequest | None,
    kinds: Sequence[ContainerClass] | None = None,
    annotations: Mapping[str, str] | None = None,
    vendors: Sequence[Vendor] = VENDORS,
    gpu_policy: str = "",
) -> Ask:
    """A pod of app containers (or of these kinds) that asks for this, one argument a container."""
    requests = [(one,) if isinstance(one, DeviceRequest) else tuple(one or ()) for one in containers]
    shown = kinds or [ContainerClass.APP] * len(requests)
    given = {"hami.io/gpu-scheduler-policy": gpu_policy, **(annotations or {})}
    named = [Container(place, f"c{place}", kind) for place, kind in enumerate(shown)]
    return ask_of(named, requests, given, vendors)


def device(uuid: str, vendor: str = NVIDIA, **facts: Any) -> FitDevice:
    """A healthy card of 10 slots, 8000 MiB and 100 cores, with these facts instead."""
    total = Amount(facts.pop("slots", 10), facts.pop("memory_mib", 8000), facts.pop("cores", 100))
    used = Amount(facts.pop("used", 0), facts.pop("used_memory_mib", 0), facts.pop("used_cores", 0))
    return FitDevice(uuid, vendor, total, used, **{"model": vendor, **facts})


def node(*devices: FitDevice, name: str = "n1", **facts: Any) -> FitNode:
    """A node with these cards; those without an index have their place in the list."""
    return FitNode(name, devices, **facts)


def cards(count: int, vendor: str = NVIDIA, **facts: Any) -> list[FitDevice]:
    """So many equal cards: `d0`, `d1` and on."""
    return [device(f"d{place}", vendor, index=place, order=place, **facts) for place in range(count)]


# --- the cases -----------------------------------------------------------------------------------


def case_request(shown: Mapping[str, Any]) -> DeviceRequest:
    """`{nums, mem, pct, cores}`."""
    return DeviceRequest(shown.get("type", NVIDIA), shown["nums"], shown["mem"], shown["pct"], shown["cores"])


def case_devices(shown: Sequence[Mapping[str, Any]]) -> tuple[FitDevice, ...]:
    """Devices as the cases write them, in register order."""
    return tuple(
        FitDevice(
            uuid=one.get("id", f"d{place}"),
            vendor=case_vendor(one.get("type", NVIDIA)),
            total=Amount(one.get("count", 0), one.get("totalmem", 0), one.get("totalcore", 0)),
            used=Amount(one.get("used", 0), one.get("usedmem", 0), one.get("usedcores", 0)),
            index=one.get("index", 0),
            order=place,
            model=one.get("type", NVIDIA),
            numa=one.get("numa", 0),
            mode=one.get("mode", ""),
            healthy=one.get("health", True),
            mig_profiles=case_profiles(one.get("migProfiles", ())),
            mig_in_use=tuple(case_place(taken["placement"]) for taken in one.get("migInUse", ())),
        )
        for place, one in enumerate(shown)
    )


def case_vendor(model: str) -> str:
    """The vendor of a device that a case tells by its type alone; NVIDIA's where it names none."""
    if model in BY_KEY:
        return model
    return max((key for key in BY_KEY if key.lower() in model.lower()), key=len, default=NVIDIA)


def case_profiles(shown: Sequence[Mapping[str, Any]]) -> tuple[MigProfile, ...]:
    """MIG profiles as a register has them."""
    return tuple(
        MigProfile(
            one["name"],
            one["memoryMB"],
            one["core"],
            one["sliceCount"],
            tuple(case_place(place) for place in one["placements"]),
        )
        for one in shown
    )


def case_place(shown: Mapping[str, int]) -> Placement:
    return Placement(shown["start"], shown["size"])


def case_containers(pod: Mapping[str, Any]) -> list[tuple[str, ContainerClass]]:
    """Names and classes, by position."""
    spec = pod["spec"]
    inits = [
        (
            one["name"],
            ContainerClass.SIDECAR if one.get("restartPolicy") == "Always" else ContainerClass.INIT,
        )
        for one in spec.get("initContainers", ())
    ]
    return inits + [(one["name"], ContainerClass.APP) for one in spec["containers"]]


def case_ask(case: Mapping[str, Any]) -> Ask:
    """The question of a schedule or filter case."""
    containers = [
        Container(place, name, kind) for place, (name, kind) in enumerate(case_containers(case["pod"]))
    ]
    requests = [
        tuple(case_request(one) for one in (shown if isinstance(shown, list) else [shown]) if one)
        for shown in case["requests"]
    ]
    annotations = dict(case.get("annotations", {}))
    annotations.setdefault("hami.io/gpu-scheduler-policy", case.get("gpuPolicyDefault", ""))
    return ask_of(containers, requests, annotations, VENDORS)


def case_room(quota: Mapping[str, Mapping[str, Any]] | None) -> Room:
    """What `namespaceQuota` leaves; a name without a limit limits nothing."""
    names = {
        name: (vendor, dimension)
        for vendor in VENDORS
        for name, dimension in (
            (vendor.memory_name, Dimension.MEMORY),
            (vendor.cores_name, Dimension.CORES),
        )
        if name
    }
    return Room.of(
        (
            names[name][0].key,
            names[name][1],
            names[name][0].scaled_limit(entry["limit"]) - entry["used"]
            if names[name][1] is Dimension.MEMORY
            else entry["limit"] - entry["used"],
        )
        for name, entry in (quota or {}).items()
        if entry["limitSet"]
    )

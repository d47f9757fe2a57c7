"""HAMi's own cases of collapse, steady state and shrink gate, in the core.

Where HAMi is wrong, the right answer counts.

The same cases go through HTTP in tests/conversations.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from hamiacct import config
from hamiacct.accounting.holdings import Held, footprint_of_pod
from hamiacct.accounting.lifecycle import gate_is_open
from hamiacct.accounting.pods import FaultCode, Pod
from hamiacct.kube import manifests
from tests import cases

VENDORS = config.read_vendors(None)
BY_KEY = {vendor.key: vendor for vendor in VENDORS}


def pod_of(case: Mapping[str, Any]) -> Pod:
    return manifests.pod_from_manifest(case["pod"], VENDORS)


def results(pod: Pod, held: Held) -> dict[str, list[dict[str, Any]]]:
    """In the form of the cases: per vendor, sorted by uuid; a vendor that holds nothing is there, empty."""
    found: dict[str, list[dict[str, Any]]] = {key: [] for key in pod.allocations}
    for key, amount in held.items():
        shown = {"mem": amount.memory_mib, "cores": amount.cores, "slots": amount.slots}
        found[key.vendor].append({"uuid": key.uuid, **shown})
    return found


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("collapse"))
def test_effective_usage(case: Mapping[str, Any], expected: Any) -> None:
    pod = pod_of(case)
    if "error" in expected:
        assert [(fault.reason, fault.code) for fault in pod.faults] == [
            (expected["error"], FaultCode.OUTSIDE_POD)
        ]
        assert not pod.allocations
        return
    assert not pod.faults
    assert results(pod, footprint_of_pod(pod.containers, pod.allocations, BY_KEY).effective) == expected


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("steady"))
def test_steady_usage(case: Mapping[str, Any], expected: Any) -> None:
    pod = pod_of(case)
    assert results(pod, footprint_of_pod(pod.containers, pod.allocations, BY_KEY).steady) == expected


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("gate"))
def test_shrink_gate(case: Mapping[str, Any], expected: bool) -> None:
    assert gate_is_open(pod_of(case).containers) is expected

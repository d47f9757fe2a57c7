"""Which pods concern the books, and when two states of an object read the same."""

from typing import Any

import pytest

from hamiacct.kube import relevance
from tests.kube import objects
from tests.kube.objects import VENDORS


def foreign(**parts: Any) -> dict[str, Any]:
    """A pod that carries nothing of ours."""
    pod = objects.pod(**parts)
    pod["metadata"]["annotations"].pop("hami.io/vgpu-node", None)
    return pod


def is_ours(pod: Any) -> bool:
    return relevance.concerns_us("Pod", pod, VENDORS)


ASKS = {"name": "c", "resources": {"limits": {"nvidia.com/gpumem": "100"}}}


def test_a_pod_that_carries_nothing_of_ours_is_of_no_concern() -> None:
    assert not is_ours(foreign())
    cpu = {"name": "c", "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}}
    labels = {"labels": {"app": "web"}, "annotations": {"prometheus.io/scrape": "true"}}
    assert not is_ours(foreign(spec={"containers": [cpu], "initContainers": [cpu]}, metadata=labels))


@pytest.mark.parametrize(
    "parts",
    [
        {"spec": {"containers": [ASKS]}},
        {"spec": {"initContainers": [ASKS]}},
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": 1}}}]}},
        {"annotations": {objects.ALLOCATED: ""}},
        {"annotations": {"nvidia.com/use-gputype": "A10"}},
        {"metadata": {"labels": {"hami.io/webhook": "ignore"}}},
    ],
)
def test_any_trace_of_ours_is_a_concern(parts: dict[str, Any]) -> None:
    assert is_ours(foreign(**parts))


@pytest.mark.parametrize(
    "pod",
    [
        None,
        {},
        {"metadata": {}},
        {"metadata": 3, "spec": {}},
        {"metadata": {}, "spec": {"containers": 3}},
        {"metadata": {}, "spec": {"containers": [3]}},
        {"metadata": {}, "spec": {"containers": [{"resources": 3}]}},
        {"metadata": {}, "spec": {"containers": [{"resources": {"limits": 3}}]}},
    ],
)
def test_what_cannot_be_read_is_judged_elsewhere(pod: Any) -> None:
    assert is_ours(pod)


def test_nodes_and_quotas_are_a_concern() -> None:
    assert relevance.concerns_us("Node", objects.node(), VENDORS)
    assert relevance.concerns_us("ResourceQuota", objects.quota(), VENDORS)


def test_the_digest_is_of_what_is_read_and_of_no_version() -> None:
    def of(pod: dict[str, Any]) -> bytes:
        return relevance.digest("Pod", pod, VENDORS)

    before = of(objects.pod())
    assert before == of(objects.pod(metadata={"resourceVersion": "99", "labels": {"app": "web"}}))
    assert before == of(objects.pod(status={"conditions": [{"type": "Ready"}]}))
    assert before != of(objects.pod(status={"phase": "Failed"}))
    assert before != of(objects.pod(annotations={objects.ALLOCATED: "GPU-a,NVIDIA,1,1:;"}))
    assert before != of(objects.pod(metadata={"uid": "another"}))
    assert len(before) == relevance.DIGEST_BYTES

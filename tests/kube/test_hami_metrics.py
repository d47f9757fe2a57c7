"""HAMi's own metrics, as its scheduler prints them."""

import pytest

from hamiacct.accounting.errors import Malformed
from hamiacct.kube.hami_metrics import Card, Holding, Quota, read

# One pod on one card, as HAMi 2.10 prints it; samples that are not read are among them.
CURRENT = """\
# HELP hami_build_info hami build metadata exposed as labels with a constant value of 1.
# TYPE hami_build_info gauge
hami_build_info{build_date="2026-08-12",compiler="gc",version="v2.10.0"} 1
# HELP hami_gpu_memory_allocated_bytes Device memory allocated for a certain GPU
# TYPE hami_gpu_memory_allocated_bytes gauge
hami_gpu_memory_allocated_bytes{device_cores="100",device_index="0",device_type="NVIDIA",device_uuid="GPU-a",node="n1",zone="vGPU"} 1.073741824e+10
# HELP hami_gpu_memory_limit_bytes Device memory limit for a certain GPU
# TYPE hami_gpu_memory_limit_bytes gauge
hami_gpu_memory_limit_bytes{device_index="0",device_type="NVIDIA",device_uuid="GPU-a",node="n1",zone="vGPU"} 2.5769803776e+10
# HELP hami_resource_quota_used resourcequota usage for a certain device
# TYPE hami_resource_quota_used gauge
hami_resource_quota_used{limit="0",namespace="team-a",quota_name="nvidia.com/gpumem",zone="vGPU"} 10240
# HELP hami_vgpu_memory_allocated_bytes vGPU memory allocated from a container
# TYPE hami_vgpu_memory_allocated_bytes gauge
hami_vgpu_memory_allocated_bytes{container_index="0",device_uuid="GPU-a",namespace="team-a",node="n1",pod="web",zone="vGPU"} 1.073741824e+10
"""  # noqa: E501  # lines as they are
# The same with --legacy-metrics, as two containers were told before init containers were folded in.
LEGACY = """\
GPUDeviceMemoryAllocated{devicecores="100",deviceidx="0",devicetype="NVIDIA",deviceuuid="GPU-a",nodeid="n1",zone="vGPU"} 1.073741824e+10
QuotaUsed{limit="0",quotaName="nvidia.com/gpumem",quotanamespace="team-a",zone="vGPU"} 10240
vGPUMemoryAllocated{containeridx="0",deviceuuid="GPU-a",nodename="n1",podname="web",podnamespace="team-a",zone="vGPU"} 2.147483648e+09
vGPUMemoryAllocated{containeridx="1",deviceuuid="GPU-a",nodename="n1",podname="web",podnamespace="team-a",zone="vGPU"} 8.589934592e+09
"""  # noqa: E501


@pytest.mark.parametrize("text", [CURRENT, LEGACY, CURRENT + LEGACY], ids=["current", "legacy", "both"])
def test_what_is_booked_by_pod_card_and_quota(text: str) -> None:
    found = read(text.splitlines())
    assert found.pods == {Holding("team-a", "web", "n1", "GPU-a"): 10240}
    assert found.cards == {Card("n1", "GPU-a"): 10240}
    assert found.quotas == {Quota("team-a", "nvidia.com/gpumem"): 10240}


def test_a_row_of_an_old_mig_uuid_is_a_row_of_its_card() -> None:
    found = read(CURRENT.replace('GPU-a",namespace', 'GPU-a[1-0]",namespace').splitlines())
    assert found.pods == {Holding("team-a", "web", "n1", "GPU-a"): 10240}


def test_cards_without_pods_are_a_page_of_hami() -> None:
    found = read(line for line in CURRENT.splitlines() if "hami_vgpu" not in line)
    assert (found.pods, found.cards) == ({}, {Card("n1", "GPU-a"): 10240})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither cards nor pods"),
        ("<html><body>404</body></html>", "neither cards nor pods"),
        ("up 1\nhami_build_info 1\n", "neither cards nor pods"),
        ('hami_vgpu_memory_allocated_bytes{pod="web",node="n1"} 1', "without the label namespace"),
        ("hami_vgpu_memory_allocated_bytes{pod=web} 1", "no Prometheus text"),
        (CURRENT.replace("1.073741824e+10", "much"), "no Prometheus text"),
        (CURRENT.replace("1.073741824e+10", "NaN"), "nan is no amount"),
        (CURRENT.replace("1.073741824e+10", "-1"), "-1 is no amount"),
        ("hami_vgpu_memory_allocated_bytes{", "no Prometheus text"),
    ],
)
def test_a_page_that_says_nothing_of_this(text: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        read(text.splitlines())

"""HAMi's cases of metrics, and the field's, under our prefix: values in the unit the name says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests import cases, watch
from tests.api.test_metrics import of, samples
from tests.conversations.books import Books

REPORTS = {report["id"]: report for report in cases.read("field-reports.json")}
CASES = {case["id"]: case for case in cases.read() if case["kind"] == "metrics"}
Found = Mapping[str, Mapping[frozenset[tuple[str, str]], float]]


def ours(name: str) -> str:
    assert name.startswith("hami_")
    return name.replace("hami_", "hamiacct_", 1)


def scrape(api: APIClient) -> Found:
    response = api.get("/metrics")
    assert response.status_code == 200
    return samples(response.content.decode())


def test_every_case_is_told_here() -> None:
    assert CASES.keys() == {"metrics-01-memory-in-bytes", "metrics-03-quota-limit-only-when-set"}


def test_memory_is_in_bytes(books: Books, api: APIClient) -> None:
    case = CASES["metrics-01-memory-in-bytes"]
    given = case["input"]["device"]
    card = watch.card(given["uuid"], memory=given["totalmem"], cores=given["totalcore"], type=given["type"])
    halves = f"{given['uuid']} {given['usedmem'] // 2} {given['usedcores'] // 2}"
    books.post_events(
        *(
            {"type": "ADDED", "object": one}
            for one in (
                watch.node(given["node"], card),
                watch.pod("a", halves, node=given["node"]),
                watch.pod("b", halves, node=given["node"]),
            )
        )
    )
    labels = {
        "node": given["node"],
        "device_uuid": given["uuid"],
        "device_index": "0",
        "device_type": given["type"],
    }
    found = scrape(api)
    for name, value in case["expected"].items():
        assert of(found, ours(name), **labels) == [value]
    held = {**labels, "device_cores": "40"}
    assert of(found, "hamiacct_gpu_memory_allocated_bytes", **held) == [12000 * 2**20]
    assert of(found, "hamiacct_node_gpu_overview", **held, device_memory_limit="24576") == [12000 * 2**20]


def test_a_limit_is_told_only_where_one_is_set(books: Books, api: APIClient) -> None:
    case = CASES["metrics-03-quota-limit-only-when-set"]
    hard = {"limits.nvidia.com/gpumem": "3000"}
    quota = {
        "kind": "ResourceQuota",
        "metadata": watch.metadata("gpu", None, namespace="team-a"),
        "spec": {"hard": hard},
    }
    pod = watch.pod("p", "GPU-a 500 7")
    for one in (watch.node("n1", watch.card("GPU-a")), quota, pod):
        books.post_events({"type": "ADDED", "object": one})
    found = scrape(api)
    for name, wanted in case["expected"].items():
        told = {frozenset({**dict(series)}.items()): value for series, value in found[ours(name)].items()}
        assert told == {
            frozenset((label, text) for label, text in one.items() if label != "value"): one["value"]
            for one in wanted
        }
    assert of(found, "hamiacct_resource_quota_over", namespace="team-a") == [0]


def test_a_limit_is_in_the_unit_of_what_is_used(books: Books, api: APIClient) -> None:
    """Of a vendor with a factor HAMi tells the limit raw and what is used scaled (G-31)."""
    quota = {
        "kind": "ResourceQuota",
        "metadata": watch.metadata("mlu", None, namespace="team-a"),
        "spec": {"hard": {"limits.cambricon.com/mlu.smlu.vmemory": "10"}},
    }
    books.post_events({"type": "ADDED", "object": quota})
    name = "cambricon.com/mlu.smlu.vmemory"
    found = scrape(api)
    assert of(found, "hamiacct_resource_quota_limit", quota_name=name) == [2560]
    assert of(found, "hamiacct_resource_quota_used", quota_name=name, limit="2560") == [0]


# --- the field --------------------------------------------------------------------------------------


def test_br38_a_second_release_leaves_the_gauges_at_zero(books: Books, api: APIClient) -> None:
    report = REPORTS["BR-38"]
    told: list[tuple[list[float], list[float]]] = []
    for event in report["input"]["events"]:
        books.post_events(event)
        if event["object"]["kind"] == "Pod":
            found = scrape(api)
            quota = of(
                found, "hamiacct_resource_quota_used", namespace="team-a", quota_name="nvidia.com/gpumem"
            )
            told.append((quota, of(found, "hamiacct_gpu_memory_allocated_bytes", device_uuid="GPU-a")))
    wanted = report["expected"]["metric"]
    assert [quota for quota, _ in told] == [
        [value] for value in wanted["hami_resource_quota_used{namespace=team-a}"]
    ]
    assert [memory for _, memory in told] == [
        [value] for value in wanted["hami_gpu_memory_allocated_bytes{device_uuid=GPU-a}"]
    ]


def test_br39_a_node_that_is_gone_has_no_series(books: Books, api: APIClient) -> None:
    report = REPORTS["BR-39"]
    scrapes: dict[str, Found] = {}
    for step in report["input"]["events"]:
        if "scrape" in step:
            scrapes[f"scrape{step['scrape']}"] = scrape(api)
        else:
            books.post_events(step)
    for name, wanted in report["expected"].items():
        found = scrapes[name]
        used = of(found, "hamiacct_resource_quota_used", namespace="team-a", quota_name="nvidia.com/gpumem")
        assert used == [wanted["quota_used"]["team-a"]["gpumem"]]
    found = scrapes["scrape1"]
    assert series_with(found, "n1") == report["expected"]["scrape1"]["series_with_node_n1"]
    assert series_with(found, "n2") >= 1
    total = sum(of(found, "hamiacct_gpu_memory_limit_bytes"))
    assert total == report["expected"]["scrape1"]["cluster_total_mem"] * 2**20


def series_with(found: Found, node: str) -> int:
    return sum(("node", node) in labels for series in found.values() for labels in series)


# --- units ------------------------------------------------------------------------------------------


def test_an_unregistered_device_has_no_series_but_is_counted(books: Books, api: APIClient) -> None:
    books.post_events({"type": "ADDED", "object": watch.node("n1", watch.card("GPU-a"))})
    books.post_events({"type": "ADDED", "object": watch.pod("p", "GPU-x 500 7")})
    found = scrape(api)
    assert not any(("device_uuid", "GPU-x") in labels for series in found.values() for labels in series)
    assert of(found, "hamiacct_devices", state="unregistered") == [1]
    assert of(found, "hamiacct_findings", code="unregistered-device") == [1]


def node_with(capacity: Mapping[str, str], **annotations: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": watch.metadata("n1", None, annotations=annotations),
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def test_a_share_of_a_card_is_not_told_as_bytes(books: Books, api: APIClient) -> None:
    books.post_events({"type": "ADDED", "object": node_with({"enflame.com/gcu": "1"})})
    found = scrape(api)
    assert of(found, "hamiacct_gpu_core_limit_ratio", node="n1") == [100]
    assert of(found, "hamiacct_node_gpu_memory_allocated_ratio", node="n1") == [0]
    for name in ("gpu_memory_limit_bytes", "gpu_memory_allocated_bytes", "node_gpu_overview"):
        assert of(found, f"hamiacct_{name}", node="n1") == []


def test_compute_units_are_told_in_percent_of_the_card(books: Books, api: APIClient) -> None:
    register = '[{"id":"AMD-0","count":10,"devmem":65536,"devcore":304,"type":"MI300X","health":true}]'
    node = node_with({"amd.com/gpu": "1"}, **{"hami.io/node-amd-register": register})
    pod = watch.pod("p", "")
    pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "n1",
        "hami.io/amd-devices-allocated": "AMD-0,AMD,1000,76:;",
    }
    for one in (node, pod):
        books.post_events({"type": "ADDED", "object": one})
    found = scrape(api)
    assert of(found, "hamiacct_gpu_core_limit_ratio", device_uuid="AMD-0") == [100]
    assert of(found, "hamiacct_gpu_core_allocated_ratio", device_uuid="AMD-0") == [25]
    assert of(found, "hamiacct_gpu_memory_allocated_bytes", device_cores="25") == [1000 * 2**20]


def test_mig_instances_are_told_once_their_identity_is_known(books: Books, api: APIClient) -> None:
    card = watch.card("GPU-a", memory=40960, mode="mig")
    pod = watch.pod("p", "GPU-a 4864 0")
    placed = (
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb",'
        '"placement":{"start":6,"size":1}%s}]'
    )
    pod["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"] = placed % ""
    for one in (watch.node("n1", card), pod):
        books.post_events({"type": "ADDED", "object": one})
    name = "hamiacct_node_gpu_mig_instance_info"
    assert of(scrape(api), name) == []
    pod["metadata"]["annotations"]["hami.io/vgpu-mig-allocations"] = placed % (
        ',"migUUID":"MIG-1","gpuInstanceID":7,"computeInstanceID":0'
    )
    pod["metadata"]["resourceVersion"] = str(next(watch.versions))
    books.post_events({"type": "MODIFIED", "object": pod})
    found = scrape(api)
    assert of(found, name, node="n1", device_uuid="GPU-a", mig_uuid="MIG-1", gpu_instance_id="7") == [1]
    assert of(found, name, profile="1g.5gb", placement_start="6", placement_size="1") == [1]


def test_pods_are_told_only_where_that_is_set_and_by_their_containers(
    books: Books, api: APIClient, settings: Any
) -> None:
    card = watch.card("GPU-a")
    pod = watch.pod("p", "GPU-a 4000 0", "GPU-a 1000 20", inits=1)
    for one in (watch.node("n1", card), pod):
        books.post_events({"type": "ADDED", "object": one})
    assert "hamiacct_vgpu_memory_allocated_bytes" not in scrape(api)
    settings.HAMIACCT = replace(settings.HAMIACCT, metrics_per_pod=True)
    labels = {"namespace": "team-a", "node": "n1", "pod": "p", "device_uuid": "GPU-a"}
    found = scrape(api)
    memory, cores = "hamiacct_vgpu_memory_allocated_bytes", "hamiacct_vgpu_core_allocated_ratio"
    assert of(found, memory, container_index="0", **labels) == [4000 * 2**20]
    assert of(found, memory, container_index="1", **labels) == [1000 * 2**20]
    assert of(found, cores, container_index="1", **labels) == [20]
    pod["metadata"]["resourceVersion"] = str(next(watch.versions))
    name = pod["spec"]["initContainers"][0]["name"]
    done = [{"name": name, "state": {"terminated": {"exitCode": 0}}}]
    pod["status"]["initContainerStatuses"] = done
    books.post_events({"type": "MODIFIED", "object": pod})
    found = scrape(api)
    assert of(found, memory, **labels) == [1000 * 2**20]


@pytest.mark.parametrize("text", ['a"b', "a\\nb", "a\nb"])
def test_whatever_is_in_a_label_is_read_back(books: Books, api: APIClient, text: str) -> None:
    books.post_events({"type": "ADDED", "object": watch.node("n1", watch.card("GPU-a", type=text))})
    assert of(scrape(api), "hamiacct_gpu_memory_limit_bytes", device_type=text) == [24576 * 2**20]

"""HAMi's cases of fit, schedule, filter and quota inside fit, in the core. Where HAMi errs, right counts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hamiacct.accounting import fit, policies, reasons
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.fitting import rules
from hamiacct.accounting.fitting.scene import Outcome, Refused, Scene
from hamiacct.accounting.footprint import Footprint, footprint_of
from hamiacct.accounting.holdings import held_by_rows
from hamiacct.accounting.offers import FitNode
from hamiacct.accounting.pods import Allocation, Row
from hamiacct.accounting.policies import Standing
from hamiacct.accounting.selectors import choice_of
from hamiacct.kube import registration
from tests import cases
from tests.accounting.offered import (
    BY_KEY,
    NVIDIA,
    asking,
    case_ask,
    case_containers,
    case_devices,
    case_request,
    case_room,
)

VENDOR = BY_KEY[NVIDIA]


def vendor_step(case: Mapping[str, Any]) -> tuple[Outcome, int]:
    """The vendor's step alone on the case's devices, which are in the order that Fit is handed."""
    cordoned = registration.members(case.get("nodeAnnotations", {}).get(registration.CORDON, ""))
    devices = [replace(device, cordoned=device.uuid in cordoned) for device in case_devices(case["devices"])]
    annotations = case.get("annotations", {})
    ask = asking(case_request(case["request"]), annotations=annotations, gpu_policy=case["gpuPolicyDefault"])
    scene = Scene(
        node=FitNode("n1", tuple(devices), case.get("pairScores", {})),
        vendor=VENDOR,
        choice=choice_of(annotations, VENDOR),
        policy=ask.device_policy,
        kind=ask.containers[0].kind,
        request=ask.containers[0].requests[0],
        devices=tuple(reversed(devices)),
        footprint=Footprint(),
        placed=(),
        room=case_room(case.get("namespaceQuota")),
    )
    return rules.take(scene), len(devices)


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("fit-nvidia"))
def test_the_step_of_one_vendor(case: Mapping[str, Any], expected: Any) -> None:
    outcome, devices = vendor_step(case)
    if not expected["fit"]:
        assert isinstance(outcome, Refused)
        assert reasons.message(outcome.reasons, devices) == expected["reason"]
        return
    assert not isinstance(outcome, Refused), outcome
    uuids = [pick.row.uuid for pick in outcome]
    assert uuids == expected.get("devices", uuids)
    assert sorted(uuids) == sorted(expected.get("deviceSet", uuids))
    assert [pick.row.memory for pick in outcome] == expected.get("mem", [pick.row.memory for pick in outcome])
    assert [pick.row.cores for pick in outcome] == expected.get("cores", [pick.row.cores for pick in outcome])


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("schedule"))
def test_the_walk_over_a_pod(case: Mapping[str, Any], expected: Any) -> None:
    node = FitNode("n1", case_devices(case["devices"]))
    verdict = fit.place(node, case_ask(case), case_room(case.get("namespaceQuota")))
    if not expected["fit"]:
        assert isinstance(verdict, fit.Misfit)
        assert verdict.message == expected["reason"]
        return
    assert isinstance(verdict, fit.Placement), verdict
    if "rows" in expected:
        groups = verdict.allocations[NVIDIA].groups
        assert [[[row.uuid, row.memory, row.cores] for row in rows] for rows in groups] == expected["rows"]
    after = {device.uuid: device.used for device in node.devices}
    for key, amount in verdict.charge.items():
        after[key.uuid] = after[key.uuid].plus(amount)
    for uuid, usage in expected.get("usage", {}).items():
        assert (after[uuid].slots, after[uuid].memory_mib, after[uuid].cores) == (
            usage["slots"],
            usage["mem"],
            usage["cores"],
        )


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("filter"))
def test_the_best_of_several_nodes(case: Mapping[str, Any], expected: Any) -> None:
    ask = case_ask(case)
    verdicts = [
        fit.place(FitNode(name, case_devices(devices)), ask) for name, devices in case["nodes"].items()
    ]
    placements = [verdict for verdict in verdicts if isinstance(verdict, fit.Placement)]
    misfits = {one.node: one.message for one in verdicts if isinstance(one, fit.Misfit)}
    assert misfits == expected.get("failedNodes", misfits)
    if not expected.get("node"):
        assert not placements
        return
    best = fit.order_placements(placements, ask.node_policy)[0]
    assert best.node == expected["node"]
    [row] = best.allocations[NVIDIA].groups[-1]
    assert row.uuid in expected["appDeviceOneOf"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("fit-quota"))
def test_quota_inside_fit(case: Mapping[str, Any], expected: Any) -> None:
    containers = case_containers(case["pod"])
    inits = [name for name, kind in containers if kind != "app"]
    # The case of positions tells in its note that its rows begin with the first app.
    first = len(inits) if "note" in case else 0
    placed = case["alreadyAllocatedRows"]
    allocation = Allocation(NVIDIA, "n1", ())
    here = first + len(placed)

    def rows_of(shown: Any) -> list[Row]:
        return [Row(uuid, NVIDIA, memory, cores) for uuid, memory, cores in shown]

    groups = [[] for _ in range(first)] + [rows_of(rows) for rows in placed]
    steps = [
        (kind, held_by_rows(rows, allocation, VENDOR))
        for (_, kind), rows in zip(containers, groups, strict=False)
    ]
    rows = rows_of([*case["chosenForThisContainer"], case["candidate"]])
    devices = case_devices([{"id": uuid} for uuid in dict.fromkeys(row.uuid for row in rows)])
    by_uuid = {device.uuid: device for device in devices}
    ask = asking(case_request({"nums": len(rows), "mem": 0, "pct": 0, "cores": 0}))
    scene = Scene(
        node=FitNode("n1", devices),
        vendor=VENDOR,
        choice=ask.choice(NVIDIA),
        policy=ask.device_policy,
        kind=containers[here][1],
        request=ask.containers[0].requests[0],
        devices=devices,
        footprint=footprint_of(steps),
        placed=(),
        room=case_room(case["namespaceQuota"]),
    )
    picks = [scene.pick(by_uuid[row.uuid], row.memory, row.cores) for row in rows]
    assert scene.admits(picks) is expected["fit"]
    if "checkedTotal" in expected:
        judged = footprint_of([*steps, (scene.kind, scene.held_by(picks))]).effective
        assert judged.total.memory_mib == expected["checkedTotal"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("device-score"))
def test_device_score(case: Mapping[str, Any], expected: Any) -> None:
    [device] = case_devices([case["device"]])
    ask = asking([case_request(request) for request in case["requests"]])
    weights = policies.Weights(**case["weights"])
    score = fit.score_of(device, ask.containers[0], weights)
    assert score == pytest.approx(expected["score"], rel=1e-6)


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("node-score"))
def test_node_score(case: Mapping[str, Any], expected: Any) -> None:
    assert fit.base_score(case_devices(case["devices"])) == expected["score"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("device-order"))
def test_device_order(case: Mapping[str, Any], expected: Any) -> None:
    if "error" in expected:
        with pytest.raises(Malformed, match=f"(?i){expected['error']}"):
            policies.device_policy_of(case["policy"])
        return
    policy = policies.device_policy_of(case["policy"])

    def rank(shown: Mapping[str, Any]) -> tuple[float, ...]:
        standing = Standing(shown["score"], shown["numa"], shown["used"], shown["index"], 0)
        return policy.rank(standing, numa_bind=case["numaBind"])

    ordered = sorted(case["devices"], key=rank, reverse=True)
    assert [device["id"] for device in ordered] == expected["fitTriesInOrder"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("node-order"))
def test_node_order(case: Mapping[str, Any], expected: Any) -> None:
    if "error" in expected:
        with pytest.raises(Malformed, match=f"(?i){expected['error']}"):
            policies.node_policy_of(case["policy"])
        return
    ordered = policies.order_nodes(case["nodes"].items(), policies.node_policy_of(case["policy"]))
    assert ordered[0] == expected["chosen"]


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("failure-events"))
def test_texts_of_events(case: Mapping[str, Any], expected: Any) -> None:
    if "failedNodes" in case:
        texts = reasons.failure_texts(case["failedNodes"], case["nodeNamesInRequest"])
        assert sorted(texts) == sorted(expected["messagesAnyOrder"])
        return
    text = reasons.success_text(case["chosen"], case["scores"].items(), case["requestedNodes"])
    assert text == expected["message"]


def test_nodes_in_the_texts_of_events_are_sorted() -> None:
    text = reasons.success_text("b", [("b", 1.0), ("a", 2.345)], 3)
    assert text == "find fit node(b), 1 nodes not fit, 2 nodes fit(a:2.35,b:1.00)"
    assert reasons.by_reason(
        {"n2": "1/1 CardCordoned", "n1": "1/2 CardCordoned", "n3": "node unregistered"}
    ) == {"CardCordoned": ("n1", "n2")}

"""POST /api/v1/quota/check"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.test import APIClient

from hamiacct import config, models
from hamiacct.accounting.words import EventState
from tests import cases, watch
from tests.watch import card, node, quota

pytestmark = pytest.mark.django_db

PATH = "/api/v1/quota/check"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
SHORT = {"gpu": GPU, "gpumem": MEMORY, "gpucores": CORES}


@pytest.fixture(autouse=True)
def _books_are_complete(settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, trust_events=True)


def pod(*limits: dict[str, str], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{number}", "resources": {"limits": one}} for number, one in enumerate(limits)]
    return {"metadata": {"name": "web", "namespace": "team-a"}, "spec": {"containers": containers, **spec}}


@pytest.fixture
def check(api: APIClient) -> Callable[..., dict[str, Any]]:
    """Asks about a pod."""

    def check(asked: dict[str, Any], **more: Any) -> dict[str, Any]:
        response = api.post(PATH, {"pod": asked, **more})
        assert response.status_code == 200, response.content
        answer: dict[str, Any] = response.json()
        assert answer["allowed"] is all(one["allowed"] for one in answer["checks"])
        assert bool(answer["message"]) is not answer["allowed"]
        return answer

    return check


# --- what is answered ----------------------------------------------------------------------------


def test_an_answer(check: Callable[..., Any], send: Callable[..., Any]) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "20000", f"limits.{CORES}": "50"}))
    sidecar, init, app = (
        {"name": name, "resources": {"limits": {GPU: "1", MEMORY: memory}}}
        for name, memory in (("sidecar", "2048"), ("init", "20480"), ("app", "10240"))
    )
    asked = pod(initContainers=[{**sidecar, "restartPolicy": "Always"}, init], containers=[app])
    answer = check(asked)
    assert datetime.fromisoformat(answer.pop("as_of")) <= datetime.now(UTC)
    assert answer == {
        "allowed": False,
        "stale": False,
        "namespace": "team-a",
        "checks": [
            {
                "resource": MEMORY,
                "quota": "gpu",
                "requested": 22528,
                "used": 0,
                "hard": 20000,
                "allowed": False,
            }
        ],
        "undetermined": [],
        "message": "exceeding resource quota: nvidia.com/gpumem requested 22528, used 0, limited 20000"
        " (ResourceQuota gpu)",
    }


def test_the_namespace_of_the_question_wins(check: Callable[..., Any], send: Callable[..., Any]) -> None:
    send(quota("gpu", namespace="team-b", hard={f"limits.{MEMORY}": "1"}))
    asked = pod({GPU: "1", MEMORY: "2"})
    assert check(asked)["allowed"]
    assert not check(asked, namespace="team-b")["allowed"]
    assert check({**asked, "metadata": {}})["namespace"] == "default"


def test_equality_passes_and_one_more_does_not(check: Callable[..., Any], send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")), watch.pod("old", "GPU-a 600 0"))
    send(quota("gpu", hard={f"limits.{MEMORY}": "1000"}))
    assert check(pod({GPU: "1", MEMORY: "400"}))["allowed"]
    assert not check(pod({GPU: "1", MEMORY: "401"}))["allowed"]


def test_a_limit_of_zero_is_a_limit_for_whoever_asks(
    check: Callable[..., Any], send: Callable[..., Any]
) -> None:
    send(quota("none", hard={f"limits.{CORES}": "0", f"limits.{MEMORY}": "1.5"}))
    assert not check(pod({GPU: "1", MEMORY: "100", CORES: "1"}))["allowed"]
    assert check(pod({GPU: "1", MEMORY: "100"}))["checks"] == []


def test_a_quota_counts_and_judges_the_pods_it_selects(
    check: Callable[..., Any], send: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")), quota("jobs", hard={f"limits.{MEMORY}": "1000"}, scopes=["Terminating"]))
    send(watch.pod("web", "GPU-a 5000 0"), watch.pod("job", "GPU-a 900 0", activeDeadlineSeconds=9))
    assert check(pod({GPU: "1", MEMORY: "200"}))["checks"] == []
    [judged] = check(pod({GPU: "1", MEMORY: "200"}, activeDeadlineSeconds=9))["checks"]
    assert (judged["used"], judged["allowed"]) == (900, False)


def test_a_pod_that_is_charged_already_need_not_fit_beside_itself(
    check: Callable[..., Any], send: Callable[..., Any]
) -> None:
    send(node("n1", card("GPU-a")), quota("gpu", hard={f"limits.{MEMORY}": "1000"}))
    charged = watch.pod("web", "GPU-a 900 0", requests=[{GPU: "1", MEMORY: "900"}])
    send(charged)
    assert check(charged)["checks"][0]["used"] == 0
    other = {**charged, "metadata": {**charged["metadata"], "uid": "uid-other"}}
    assert not check(other)["allowed"]


def test_the_factor_is_applied_once_to_request_and_limit(
    check: Callable[..., Any], send: Callable[..., Any]
) -> None:
    mlu = config.vendor_by_key()["MLU"]
    send(quota("mlu", hard={f"limits.{mlu.memory_name}": "20"}))
    [judged] = check(pod({mlu.count_name: "1", mlu.memory_name: "20"}))["checks"]
    assert (judged["requested"], judged["hard"], judged["allowed"]) == (5120, 5120, True)


def test_what_has_no_size_yet_is_told_and_not_judged(
    check: Callable[..., Any], send: Callable[..., Any]
) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "1"}))
    answer = check(pod({GPU: "1", f"{MEMORY}-percentage": "50"}, {GPU: "1"}))
    assert answer["allowed"]
    assert [one["container"] for one in answer["undetermined"]] == ["c0", "c1"]


def test_a_count_alone_asks_for_all_cores(check: Callable[..., Any], send: Callable[..., Any]) -> None:
    send(quota("gpu", hard={f"limits.{CORES}": "150"}))
    assert check(pod({GPU: "1"}))["checks"][0]["requested"] == 100
    assert not check(pod({GPU: "2"}))["allowed"]


@pytest.mark.parametrize(
    ("limits", "requested"),
    [
        ({"hygon.com/dcunum": "2", "hygon.com/dcucores": "10"}, 20),
        ({"amd.com/gpu": "1", "amd.com/gpucores": "33"}, 33),
        ({"aws.amazon.com/neuroncore": "4"}, 4),
        ({"aws.amazon.com/neuron": "1"}, 2),
        ({"iluvatar.ai/MR-V100-vgpu": "2"}, 200),
        ({"mthreads.com/vgpu": "3"}, 48),
        ({"metax-tech.com/sgpu": "1", "metax-tech.com/vcore": "7"}, 7),
    ],
)
def test_cores_are_judged_in_the_unit_they_are_counted_in(
    check: Callable[..., Any], send: Callable[..., Any], limits: dict[str, str], requested: int
) -> None:
    vendor = config.vendor_by_resource()[next(iter(limits))]
    send(quota("cores", hard={f"limits.{vendor.cores_name}": str(requested)}))
    [judged] = check(pod(limits))["checks"]
    assert (judged["requested"], judged["allowed"]) == (requested, True)


# --- books that do not tell all ------------------------------------------------------------------


def test_stale_until_full_lists_were_applied(check: Callable[..., Any], settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, trust_events=False)
    assert check(pod({GPU: "1"}))["stale"]
    assert not check(pod({"cpu": "1"}))["stale"]


def test_stale_while_old_events_wait(check: Callable[..., Any]) -> None:
    waiting = models.Event.objects.create(
        received_at=datetime.now(UTC) - timedelta(seconds=25),
        kind="Pod",
        type="ADDED",
        name="old",
        resource_version=1,
        history=1,
        state=EventState.WAITING,
    )
    assert not check(pod({GPU: "1"}))["stale"]
    waiting.received_at -= timedelta(seconds=10)
    waiting.save()
    assert check(pod({GPU: "1"}))["stale"]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["16Gi", "-1", "1.5", "2147483648"])
def test_what_nobody_can_grant_is_malformed(api: APIClient, memory: str) -> None:
    response = api.post(PATH, {"pod": pod({"cpu": "1"}, {GPU: "1", MEMORY: memory})})
    assert response.status_code == 400
    [fault] = response.json()["errors"]
    assert fault["pointer"] == "/pod/spec/containers/1/resources"
    assert all(word in fault["detail"] for word in ("c1", MEMORY, memory))
    assert models.Decision.objects.get().verdict == "error"


@pytest.mark.parametrize(
    "body", [{}, [], {"pod": None}, {"pod": {}, "namespace": 7}, {"pod": {"spec": {"containers": 7}}}]
)
def test_a_body_without_a_pod_is_malformed(api: APIClient, body: Any) -> None:
    response = api.post(PATH, body)
    assert response.status_code == 400
    assert response.json()["type"] == "/problems/malformed"


def test_a_refusal_is_kept_and_nothing_else_is(
    api: APIClient, check: Callable[..., Any], send: Callable[..., Any]
) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "1000"}))
    for memory in ("1000", "1001"):
        check(pod({GPU: "1", MEMORY: memory}))
    kept = models.Decision.objects.get()
    assert (kept.question, kept.verdict, kept.namespace, kept.pod) == (
        "quota-check",
        "no-quota",
        "team-a",
        "web",
    )
    assert kept.checks[0]["requested"] == 1001
    assert not models.LedgerEntry.objects.exists()
    assert not models.Pod.objects.exists()


# --- cases ---------------------------------------------------------------------------------------


def asked_in_short(short: dict[str, Any]) -> dict[str, Any]:
    """The pod that a report's check means: cards, and amounts per card."""
    amounts = {"gpu": 1, **{key: value for key, value in short.items() if key in SHORT}}
    return pod({SHORT[key]: str(value) for key, value in amounts.items()})


def report(number: str) -> tuple[Any, Any]:
    [found] = [one for one in cases.read("field-reports.json") if one["id"] == number]
    return found["input"], found["expected"]


def run(steps: Iterable[Any], send: Callable[..., Any], check: Callable[..., Any]) -> list[dict[str, Any]]:
    """Sends the events among the steps and answers the checks."""
    answers = []
    for step in steps:
        if "check" in step:
            short = step["check"]
            answers.append(check(asked_in_short(short), namespace=short.get("ns", "team-a")))
        else:
            send(step["object"], type_=step["type"])
    return answers


def in_words(answers: Iterable[dict[str, Any]]) -> list[str]:
    return ["allowed" if answer["allowed"] else "denied" for answer in answers]


def test_amounts_are_charged_once_per_card(send: Callable[..., Any], check: Callable[..., Any]) -> None:
    given, expected = report("BR-11")
    run(given["events"], send, check)
    first = run([{"check": one} for one in given["check"]], send, check)
    then = run(given["then"], send, check)
    for answer, wanted in zip(first + then, expected["check"] + expected["then"], strict=True):
        violated = [one["resource"] for one in answer["checks"] if not one["allowed"]]
        assert answer["allowed"] is wanted["allowed"]
        assert violated == [SHORT[key] for key in wanted.get("violated", ())]


@pytest.mark.parametrize("reverse", [False, True])
def test_several_quotas_in_one_namespace(
    send: Callable[..., Any], check: Callable[..., Any], reverse: bool
) -> None:
    given, expected = report("BR-13")
    first, rest = given["events"][:2], given["events"][2:]
    answers = run([*(reversed(first) if reverse else first), *rest], send, check)
    assert in_words(answers) == expected["check_in_both_orders"]


def test_keys_that_nobody_enforces(send: Callable[..., Any], check: Callable[..., Any]) -> None:
    given, expected = report("BR-14")
    run(given["events"], send, check)
    answers = run([*({"check": one} for one in given["check"]), *given["then"]], send, check)
    assert in_words(answers) == expected["check"]


def test_drift_that_is_repaired(api: APIClient, send: Callable[..., Any], check: Callable[..., Any]) -> None:
    given, expected = report("BR-46")
    stored = given["given"]
    send(stored["node"], stored["quota"])
    for one in stored["running_pods"]:
        send(watch.pod(one["name"], f"{one['device']} {one['gpumem']} 0", namespace="shop"))
    drifted = stored["stored_quota_used"]["shop"]["gpumem"]
    models.QuotaUsage.objects.update(memory_mib=drifted)
    models.NamespaceUsage.objects.update(memory_mib=drifted)
    verdicts, repaired = [], []
    for step in given["steps"]:
        if step.startswith("check"):
            memory = step.rpartition("=")[2]
            verdicts += in_words([check(asked_in_short({"gpumem": memory}), namespace="shop")])
        else:
            repaired.append(api.post("/api/v1/audit/repair").json()["repaired"])
    assert verdicts == [expected["check_before"], expected["check_after"]]
    assert {one["book"] for one in repaired[0]} == {"namespaces", "quotas"}
    assert len(repaired[1]) == expected["second_reconcile_delta"]

"""POST /webhook and /webhook/validate: AdmissionReviews as kube-apiserver sends them."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError, connection
from rest_framework.test import APIClient

from hamiacct import models
from hamiacct.accounting.words import Role
from tests import cases, watch
from tests.patches import applied, patch_in
from tests.watch import card, node, quota

pytestmark = pytest.mark.django_db

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"


@pytest.fixture(autouse=True)
def _books_are_complete(settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, trust_events=True)


def pod(*limits: dict[str, str], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{number}", "resources": {"limits": one}} for number, one in enumerate(limits)]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web"},
        "spec": {"containers": containers, **spec},
    }


def review(object_: Any, **request: Any) -> dict[str, Any]:
    """A review as kube-apiserver 1.31 sends it."""
    shown = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "admin", "groups": ["system:authenticated"], "extra": {"x": ["y"]}},
        "object": object_,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": shown | request}


@pytest.fixture
def ask(api: APIClient) -> Callable[..., dict[str, Any]]:
    """Asks about a pod; answers the response, and sees that the apiserver would take the answer."""

    def ask(object_: Any, path: str = "/webhook?timeout=5s", **request: Any) -> dict[str, Any]:
        sent = review(object_, **request)
        answered = api.post(path, sent)
        assert answered.status_code == 200, answered.content
        answer: dict[str, Any] = answered.json()
        assert answer["apiVersion"] == sent["apiVersion"]
        assert answer["kind"] == "AdmissionReview"
        assert answer["response"]["uid"] == sent["request"]["uid"]
        response: dict[str, Any] = answer["response"]
        if not response["allowed"]:
            assert response["status"]["message"]
            assert "patch" not in response
        return answer | response

    return ask


@pytest.fixture
def used(api: APIClient) -> Callable[[str], int]:
    """The memory a namespace uses."""

    def used(namespace: str) -> int:
        found = api.get(f"/api/v1/namespaces/{namespace}/quota").json()["resources"]
        return next((one["used"] for one in found if one["resource"] == MEMORY), 0)

    return used


# --- the steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("admission"))
def test_hamis_cases(
    case: Any, expected: Any, ask: Callable[..., Any], send: Callable[..., Any], settings: Any
) -> None:
    settings.HAMIACCT = replace(
        settings.HAMIACCT,
        scheduler_name=case["config"]["schedulerName"],
        force_overwrite_default_scheduler=case["config"]["forceOverwriteDefaultScheduler"],
    )
    used_and_limited(case["config"].get("namespaceQuota") or {}, send)
    answer = ask(case["pod"])
    assert answer["allowed"] is expected["allowed"]
    if not expected["allowed"]:
        assert answer["status"]["code"] == expected.get("code", 403)
        assert answer["status"]["message"].startswith(expected["message"])
        return
    after = applied(case["pod"], patch_in(answer))
    before = case["pod"]["spec"].get("schedulerName")
    assert after["spec"].get("schedulerName") == (expected["schedulerName"] or before)


def used_and_limited(stated: dict[str, Any], send: Callable[..., Any]) -> None:
    """A namespace whose quota is limited and used as a case states it."""
    hard = {f"limits.{name}": str(one["limit"]) for name, one in stated.items() if one["limitSet"]}
    held = {name: one["used"] for name, one in stated.items()}
    if hard:
        send(quota("gpu", hard=hard))
    if held:
        send(
            node("n1", card("GPU-a", cores=1000)),
            watch.pod("old", f"GPU-a {held[MEMORY]} {held.get(CORES, 0)}"),
        )


@pytest.mark.parametrize(("case", "expected"), cases.of_kind("admission-quota"))
def test_hamis_cases_of_the_quota(
    case: Any,
    expected: Any,
    ask: Callable[..., Any],
    api: APIClient,
    send: Callable[..., Any],
    tmp_path: Any,
    settings: Any,
) -> None:
    config = tmp_path / "device-config.yaml"
    config.write_text(f"nvidia: {{memoryFactor: {case['memoryFactor']}}}")
    settings.HAMIACCT = replace(settings.HAMIACCT, device_config=config)
    used_and_limited(case["namespaceQuota"], send)
    answer = ask(case["pod"])
    assert answer["allowed"] is expected["admitted"]
    checked = api.post("/api/v1/quota/check", {"pod": case["pod"], "namespace": "team-a"}).json()
    assert checked["allowed"] is expected["admitted"]
    for check in checked["checks"]:
        assert check["requested"] == expected["effective"]["mem" if check["resource"] == MEMORY else "cores"]


def test_a_pod_that_asks_for_nothing_is_allowed_as_it_is(ask: Callable[..., Any]) -> None:
    answer = ask(pod({"cpu": "1"}, nodeName="n1"))
    assert answer["allowed"]
    assert "patch" not in answer
    assert "warnings" not in answer


def test_another_schedulers_pod_is_allowed_as_it_is(ask: Callable[..., Any]) -> None:
    answer = ask(pod({GPU: "1", MEMORY: "16Gi"}, schedulerName="volcano"))
    assert answer["allowed"]
    assert answer["status"]["message"] == "pod already has different scheduler assigned"
    assert "patch" not in answer


def test_a_pod_without_containers_is_denied(ask: Callable[..., Any]) -> None:
    assert ask(pod())["status"] == {
        "code": 403,
        "message": "pod has no containers",
        "reason": "Forbidden",
        "status": "Failure",
    }


@pytest.mark.parametrize("memory", ["16Gi", "1.5", "-1", "9223372036854775807", "lots"])
def test_what_nobody_can_grant_says_container_key_and_value(ask: Callable[..., Any], memory: str) -> None:
    status = ask(pod({"cpu": "1"}, {GPU: "1", MEMORY: memory}))["status"]
    assert status["code"] == 422
    assert all(word in status["message"] for word in ("container c1", MEMORY, memory))


def test_wishes_that_nobody_knows_are_refused(ask: Callable[..., Any]) -> None:
    asked = pod({GPU: "1", MEMORY: "1"})
    asked["metadata"]["annotations"] = {"hami.io/device-scoring-weights": "slot=0,core=0,memory=0"}
    assert ask(asked)["status"]["code"] == 422


@pytest.mark.parametrize("object_", [None, [], "pod", {"kind": "Pod", "spec": {"containers": "c"}}])
def test_a_pod_that_cannot_be_read_is_not_allowed(ask: Callable[..., Any], object_: Any) -> None:
    assert ask(object_)["status"]["code"] == 422


@pytest.mark.parametrize(
    ("object_", "request_"),
    [
        (pod({GPU: "1", MEMORY: "16Gi"}), {"operation": "UPDATE"}),
        (None, {"operation": "DELETE"}),
        ({"kind": "Binding"}, {"subResource": "binding"}),
        ({"kind": "Service"}, {"kind": {"group": "", "version": "v1", "kind": "Service"}}),
    ],
)
def test_a_review_of_anything_else_is_allowed(
    ask: Callable[..., Any], object_: Any, request_: dict[str, Any]
) -> None:
    answer = ask(object_, **request_)
    assert answer["allowed"]
    assert "patch" not in answer


def test_the_verdict_alone(ask: Callable[..., Any], send: Callable[..., Any]) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "1000"}))
    allowed = ask(pod({GPU: "1", MEMORY: "1000"}), "/webhook/validate?timeout=3s")
    assert allowed["allowed"]
    assert "patch" not in allowed
    denied = ask(pod({GPU: "1", MEMORY: "1001"}), "/webhook/validate")
    assert denied["status"]["message"] == (
        f"exceeding resource quota: {MEMORY} requested 1001, used 0, limited 1000 (ResourceQuota gpu)"
    )


def test_version_v1beta1(api: APIClient) -> None:
    answer = api.post(
        "/webhook", {**review(pod({GPU: "1"})), "apiVersion": "admission.k8s.io/v1beta1"}
    ).json()
    assert answer["apiVersion"] == "admission.k8s.io/v1beta1"
    assert answer["response"]["allowed"]
    assert patch_in(answer)


def test_every_quota_that_selects_the_pod_must_hold(
    ask: Callable[..., Any], send: Callable[..., Any]
) -> None:
    send(
        quota("all", hard={f"limits.{MEMORY}": "5000"}),
        quota("jobs", hard={f"limits.{MEMORY}": "100"}, scopes=["Terminating"]),
    )
    assert ask(pod({GPU: "1", MEMORY: "200"}))["allowed"]
    job = ask(pod({GPU: "1", MEMORY: "200"}, activeDeadlineSeconds=60))
    assert "(ResourceQuota jobs)" in job["status"]["message"]
    assert "(ResourceQuota all)" not in job["status"]["message"]


def test_a_request_without_any_namespace_is_no_way_around_a_quota(ask: Callable[..., Any]) -> None:
    assert ask(pod({GPU: "1", MEMORY: "200"}), namespace="")["status"]["code"] == 422
    assert ask(pod({"cpu": "1"}), namespace="")["allowed"]


# --- field reports -------------------------------------------------------------------------------


def report(number: str) -> tuple[Any, Any]:
    [found] = [one for one in cases.read("field-reports.json") if one["id"] == number]
    return found["input"], found["expected"]


def test_memory_with_a_unit_suffix(
    ask: Callable[..., Any], send: Callable[..., Any], api: APIClient, used: Callable[[str], int]
) -> None:
    given, expected = report("BR-26")
    for one in given["given"]:
        send(one)
    for asked, allowed, effective in zip(
        given["reviews"], expected["allowed"], expected["effective_gpumem"], strict=True
    ):
        asked_pod = pod({GPU: str(asked["gpu"]), MEMORY: asked["gpumem"]})
        assert ask(asked_pod)["allowed"] is allowed, asked
        checked = api.post("/api/v1/quota/check", {"pod": asked_pod, "namespace": "team-a"})
        if effective is None:
            assert checked.status_code == 400
            assert asked["gpumem"] in checked.json()["detail"]
        else:
            assert [one["requested"] for one in checked.json()["checks"]] == [effective]
    assert {name: {"gpumem": used(name)} for name in expected["quota_used_after"]} == expected[
        "quota_used_after"
    ]


def test_a_count_alone_is_a_whole_card(api: APIClient) -> None:
    given, expected = report("BR-27")
    answer = api.post("/webhook", given["review"]).json()
    assert answer["response"]["allowed"] is expected["allowed"]
    assert answer["response"]["uid"] == "r-9"
    assert answer["response"]["patchType"] == "JSONPatch"
    after = applied(given["review"]["request"]["object"], patch_in(answer))
    limits = {one["name"]: one["resources"]["limits"] for one in after["spec"]["containers"]}
    assert limits == expected["limits_after_patch"]


def test_an_answer_is_never_booked(
    ask: Callable[..., Any], send: Callable[..., Any], used: Callable[[str], int]
) -> None:
    given, expected = report("BR-28")
    send(node("n1", card("GPU-a")), given["quota"])
    words = re.compile(r"(\d+) x AdmissionReview(?: for (\S+)/(\w+))?.*\(gpumem (\d+)\)")
    allowed = []
    for step, after in zip(given["steps"], expected["quota_used_after_each_step"], strict=True):
        if isinstance(step, dict):
            send(step["object"], type_=step["type"])
        else:
            match = words.match(step)
            assert match
            times, namespace, name, memory = match.groups()
            asked = {**pod({GPU: "1", MEMORY: memory}), "metadata": {"name": name}}
            answers = {
                ask(asked, namespace=namespace or "team-a", dryRun="dryRun:true" in step)["allowed"]
                for _ in range(int(times))
            }
            allowed += answers
            assert len(answers) == 1
        assert used("team-a") == after
    assert allowed == expected["allowed"]


def test_the_namespace_is_the_requests(api: APIClient, send: Callable[..., Any]) -> None:
    given, expected = report("BR-29")
    send(*given["quotas"])
    found = [api.post("/webhook", one).json()["response"] for one in given["reviews"]]
    assert [{"uid": one["uid"], "allowed": one["allowed"]} for one in found] == expected["responses"]


# --- refusals are kept, and nothing else ---------------------------------------------------------


def test_a_refusal_is_kept_with_its_numbers(ask: Callable[..., Any], send: Callable[..., Any]) -> None:
    send(quota("gpu", hard={f"limits.{MEMORY}": "1000"}))
    ask({**pod({GPU: "1", MEMORY: "1001"}), "metadata": {"generateName": "web-"}})
    ask(pod({GPU: "1", MEMORY: "16Gi"}))
    ask(pod())
    kept = models.Decision.objects.order_by("id")
    assert [(one.question, one.verdict, one.namespace, one.pod) for one in kept] == [
        ("admission", "no-quota", "team-a", "web-"),
        ("admission", "error", "team-a", "web"),
        ("admission", "refused", "team-a", "web"),
    ]
    check = {"resource": MEMORY, "quota": "gpu", "requested": 1001, "used": 0, "hard": 1000, "allowed": False}
    assert kept[0].checks == [check]


def test_a_dry_run_leaves_no_trace(ask: Callable[..., Any]) -> None:
    before = contents()
    assert not ask(pod({GPU: "1", MEMORY: "16Gi"}), dryRun=True)["allowed"]
    assert not ask(pod(), dryRun=True)["allowed"]
    assert ask(pod({GPU: "1"}), dryRun=True)["allowed"]
    assert ask(pod({GPU: "1"}))["allowed"]
    assert contents() == before


def contents() -> dict[str, int]:
    """How many rows every table has."""
    with connection.cursor() as cursor:
        counts = {}
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT count(*) FROM "{table}"')
            counts[table] = cursor.fetchone()[0]
        return counts


# --- books that do not tell all ------------------------------------------------------------------


def test_a_warning_while_the_books_are_not_complete(ask: Callable[..., Any], settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, trust_events=False)
    [warning] = ask(pod({GPU: "1", MEMORY: "1"}))["warnings"]
    assert "no full list" in warning
    assert len(warning) <= 256
    assert "warnings" not in ask(pod({"cpu": "1"}))


@pytest.fixture
def lost_database() -> Iterator[None]:
    """Every query fails as it does when the server went away."""

    def fail(*_: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(fail):
        yield


def test_without_the_database_only_pods_that_ask_for_nothing_are_answered(
    api: APIClient, lost_database: None
) -> None:
    response = api.post("/webhook", review(pod({GPU: "1", MEMORY: "1"})))
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert api.post("/webhook", review(pod({"cpu": "1"}))).json()["response"]["allowed"]


# --- bodies that are no reviews ------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"{}", b'{"kind": "AdmissionReview"}', b"\xff\xfe", b"[" * 100_000]
)
@pytest.mark.parametrize("path", ["/webhook", "/webhook/validate"])
def test_what_is_no_review_is_malformed(api: APIClient, body: bytes, path: str) -> None:
    response = api.generic("POST", path, body, content_type="application/json")
    assert response.status_code == 400
    assert response.json()["type"] == "/problems/malformed"


def test_a_body_that_is_too_large_is_malformed_too(api: APIClient) -> None:
    body = b'{"kind": "' + b"x" * (8 * 2**20) + b'"}'
    assert api.generic("POST", "/webhook", body, content_type="application/json").status_code == 400


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/json; charset=utf-8"])
def test_the_media_type_is_not_looked_at(api: APIClient, media_type: str) -> None:
    body = json.dumps(review(pod({GPU: "1"})))
    assert api.generic("POST", "/webhook", body, content_type=media_type).status_code == 200


def test_an_unknown_parameter_is_malformed(api: APIClient) -> None:
    assert api.post("/webhook?timeuot=5s", review(pod({GPU: "1"}))).status_code == 400


# --- who may ask ---------------------------------------------------------------------------------


def status(path: str, settings: Any, mode: str, client: APIClient | None = None, **extra: Any) -> int:
    settings.HAMIACCT = replace(settings.HAMIACCT, webhook_auth=mode)
    return int((client or APIClient()).post(path, review(pod({GPU: "1"})), **extra).status_code)


@pytest.mark.parametrize("path", ["/webhook", "/webhook/validate"])
class TestWhoMayAsk:
    def test_a_token_in_the_header(
        self, path: str, settings: Any, api_as: Callable[[Role], APIClient]
    ) -> None:
        assert status(path, settings, "token", api_as(Role.SCHEDULER)) == 200
        assert status(path, settings, "token", api_as(Role.VIEWER)) == 403
        assert status(path, settings, "token") == 401

    def test_a_token_in_the_path(self, path: str, settings: Any, api_as: Callable[[Role], APIClient]) -> None:
        def secret(role: Role) -> str:
            return str(api_as(role)._credentials["HTTP_AUTHORIZATION"]).removeprefix("Bearer ")

        assert status(f"{path}/{secret(Role.SCHEDULER)}?timeout=5s", settings, "token") == 200
        assert status(f"{path}/{secret(Role.INGESTER)}", settings, "token") == 403
        assert status(f"{path}/nobodys", settings, "token") == 401

    def test_a_certificate_on_the_listener_that_asks_for_one(self, path: str, settings: Any) -> None:
        assert status(path, settings, "cert", secure=True) == 200
        assert status(path, settings, "cert") == 401
        assert status(path, settings, "cert", HTTP_X_FORWARDED_PROTO="https") == 401

    def test_anybody_where_nothing_is_asked(self, path: str, settings: Any) -> None:
        assert status(path, settings, "none") == 200

    def test_other_paths_still_ask_for_a_token(self, path: str, settings: Any) -> None:
        settings.HAMIACCT = replace(settings.HAMIACCT, webhook_auth="none")
        assert APIClient().get("/api/v1/pods").status_code == 401

    def test_a_secret_in_the_path_is_repeated_nowhere(
        self, path: str, settings: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        response = APIClient().post(f"{path}/a-secret", {})
        assert response.json()["instance"] == path
        assert "a-secret" not in response.content.decode()
        captured = capsys.readouterr()
        assert "a-secret" not in captured.out + captured.err

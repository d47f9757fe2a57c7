"""POST /api/v1/events"""

import http.client
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from rest_framework.test import APIClient

from api import events as api_events
from devservers.pytest_plugin import OPERATOR_TOKEN
from tests.live import LiveStack
from tests.watch import card, event, events, node, pod

pytestmark = pytest.mark.django_db

LINES = "application/x-ndjson"


def post(
    api: APIClient, body: Any, content_type: str = "application/json", query: str = "", **headers: str
) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return api.post(f"/api/v1/events{query}", raw, content_type=content_type, **headers)


def chunked(stack: LiveStack, parts: Iterable[bytes]) -> int:
    """The status of a body without an announced length."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
    headers = {"Authorization": f"Bearer {OPERATOR_TOKEN}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/events", iter(parts), headers, encode_chunked=True)
    status = connection.getresponse().status
    connection.close()
    return status


def lines(*objects: Any, indent: int | None = None) -> bytes:
    return b"".join(json.dumps(event(object_), indent=indent).encode() + b"\n" for object_ in objects)


def used(api: APIClient) -> int:
    return int(api.get("/api/v1/cluster").json()["memory_mib"]["used"])


def test_without_a_broker_events_are_applied_in_the_request(api: APIClient) -> None:
    response = post(api, events(node("n1", card("GPU-a")), pod("web", "GPU-a 1000 10")))
    assert response.status_code == 200
    assert response.json() == {
        "accepted": 2,
        "ignored": 0,
        "rejected": [],
        "results": [
            {"index": 0, "outcome": "applied", "rule": None, "detail": ""},
            {"index": 1, "outcome": "applied", "rule": "charged", "detail": ""},
        ],
    }
    assert used(api) == 1000


@pytest.mark.parametrize("indent", [None, 4])
def test_json_lines_as_kubectl_prints_them(api: APIClient, indent: int | None) -> None:
    body = lines(node("n1", card("GPU-a")), pod("web", "GPU-a 1000 10"), indent=indent)
    response = post(api, body, LINES)
    assert response.status_code == 200
    assert [result["outcome"] for result in response.json()["results"]] == ["applied", "applied"]
    assert used(api) == 1000


def test_one_bad_event_loses_no_other(api: APIClient) -> None:
    bad = pod("bad", "GPU-a 1 1")
    del bad["metadata"]["uid"]
    body = post(api, events(node("n1", card("GPU-a")), bad, pod("web", "GPU-a 1000 10"))).json()
    assert body["accepted"] == 2
    [rejected] = body["rejected"]
    assert (rejected["index"], rejected["code"]) == (1, "malformed")
    assert rejected["pointer"] == "/events/1/object/metadata/uid"
    assert [result["index"] for result in body["results"]] == [0, 2]
    assert used(api) == 1000


@pytest.mark.parametrize("bad", [None, 7, "text", [], {}, {"type": "ADDED"}, {"type": "WHAT", "object": {}}])
def test_what_is_no_event_is_rejected(api: APIClient, bad: Any) -> None:
    response = post(api, {"events": [bad, event(node("n1"))]})
    assert response.status_code == 200
    assert response.json()["accepted"] == 1
    assert response.json()["rejected"][0]["index"] == 0


@pytest.mark.parametrize(
    "cut", [b'{"type": "ADDED", "obj', b'{"a": NaN}', b"[" * 2000, b"\xff", b'"\\ud800"']
)
def test_a_line_that_is_no_json_is_rejected_with_its_index(api: APIClient, cut: bytes) -> None:
    body = lines(node("n1", card("GPU-a"))) + cut + b"\n" + lines(pod("web", "GPU-a 1000 10"))
    response = post(api, body, LINES)
    assert response.status_code == 200
    [rejected] = response.json()["rejected"]
    assert rejected["index"] == 1
    assert "no JSON" in rejected["detail"]
    assert response.json()["accepted"] == 2
    assert used(api) == 1000


def test_kinds_nobody_reads_are_ignored(api: APIClient) -> None:
    other = {"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"}}
    body = post(api, events(other, node("n1"))).json()
    assert body["ignored"] == 1
    assert body["results"][0] == {"index": 0, "outcome": "ignored", "rule": None, "detail": ""}


def test_an_event_sent_twice_is_stale(api: APIClient) -> None:
    again = events(pod("web", "GPU-a 1000 10"))
    post(api, again)
    [result] = post(api, again).json()["results"]
    assert result["outcome"] == "stale"
    assert result["rule"] is None


def test_no_events_are_no_fault(api: APIClient) -> None:
    assert post(api, {"events": []}).json() == {"accepted": 0, "ignored": 0, "rejected": [], "results": []}
    assert post(api, b"", LINES).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"7",
        b'{"events": {}}',
        b'{"items": []}',
        b'{"events": [NaN]}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:16]),
)
def test_a_body_that_is_no_list_of_events_is_malformed(api: APIClient, body: bytes) -> None:
    response = post(api, body)
    assert response.status_code == 400
    assert response.json()["type"] == "/problems/malformed"
    pointers = [error["pointer"] for error in response.json().get("errors", [])]
    assert "/" not in pointers  # a member without a name; the whole body is ""


def test_a_cut_off_body_says_where(api: APIClient) -> None:
    response = post(api, json.dumps(events(node("n1"))).encode()[:-10])
    assert response.status_code == 400
    assert "line 1, column" in response.json()["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "application/xml"])
def test_another_media_type_is_not_read(api: APIClient, content_type: str) -> None:
    response = post(api, b"{}", content_type)
    assert response.status_code == 415
    assert "application/x-ndjson" in response.json()["detail"]


def test_a_compressed_body_is_not_read(api: APIClient) -> None:
    assert post(api, b"{}", HTTP_CONTENT_ENCODING="gzip").status_code == 415


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON"])
def test_a_media_type_may_have_parameters(api: APIClient, content_type: str) -> None:
    assert post(api, {"events": []}, content_type).status_code == 200


@pytest.mark.parametrize("content_type", ["application/json", LINES])
def test_more_events_than_the_limit_are_too_large(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, content_type: str
) -> None:
    monkeypatch.setattr(api_events, "MAX_EVENTS", 2)
    many = [node(f"n{number}") for number in range(3)]
    response = post(api, events(*many) if content_type != LINES else lines(*many), content_type)
    assert response.status_code == 413
    assert response.json()["type"] == "/problems/too-large"
    assert api.get("/api/v1/nodes").json()["items"] == []


def test_a_body_over_the_limit_is_too_large(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_events, "MAX_BODY_BYTES", 20)
    assert post(api, b'{"events": []}      ').status_code == 200
    response = post(api, b'{"events": []}       ')
    assert response.status_code == 413
    assert "20" in response.json()["detail"]


@pytest.mark.parametrize("wait", ["soon", "-1", "nan"])
def test_a_time_that_is_none_is_malformed(api: APIClient, wait: str) -> None:
    assert post(api, {"events": []}, query=f"?wait={wait}").status_code == 400


ODD_TEXTS = ["\x00", "a\x00b", "\u2028", "x" * 100_000, "ü", ""]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: repr(text[:5]))
@pytest.mark.parametrize(
    "place", ["name", "namespace", "uid", "resourceVersion", "node", "phase", "container", "key"]
)
def test_no_text_anywhere_is_a_fault_of_ours(api: APIClient, text: str, place: str) -> None:
    odd = pod("web", "GPU-a 1 1")
    if place in odd["metadata"]:
        odd["metadata"][place] = text
    elif place == "node":
        odd["spec"]["nodeName"] = odd["metadata"]["annotations"]["hami.io/vgpu-node"] = text
    elif place == "phase":
        odd["status"]["phase"] = text
    elif place == "container":
        odd["spec"]["containers"][0]["name"] = text
    else:
        odd["metadata"]["annotations"][text] = text
    body = post(api, events(odd, node("n1", card("GPU-a")))).json()
    assert body["accepted"] + len(body["rejected"]) == 2
    assert body["results"][-1]["outcome"] == "applied"


@pytest.mark.parametrize("levels", [100, 1000])
def test_no_depth_is_a_fault_of_ours(api: APIClient, levels: int) -> None:
    deep = "deep"
    odd = pod("web", "GPU-a 1 1", affinity=deep, tolerations=[deep])
    odd["metadata"] |= {"labels": {"x": deep}, "managedFields": deep}
    odd["metadata"]["annotations"]["x"] = deep
    odd["status"]["containerStatuses"] = [deep]
    nested = b'{"a":' * levels + b"1" + b"}" * levels

    def body_of(document: Any) -> bytes:
        return json.dumps(document).encode().replace(b'"deep"', nested)

    body = post(api, body_of(events(odd, deep, node("n1", card("GPU-a"))))).json()
    assert body["accepted"] + len(body["rejected"]) == 3
    for manifest in (odd, deep):
        explained = api.post("/api/v1/explain", body_of({"pod": manifest}), content_type="application/json")
        assert explained.status_code in (200, 400)


@pytest.mark.parametrize("number", [-1, 2**31, 2**63, 10**30, 1e-300, 0.5])
def test_no_number_anywhere_is_a_fault_of_ours(api: APIClient, number: float) -> None:
    odd = pod("web", f"GPU-a {number} {number}", requests=[{"nvidia.com/gpumem": number}])  # type: ignore[dict-item]
    odd["metadata"]["deletionGracePeriodSeconds"] = odd["spec"]["activeDeadlineSeconds"] = number
    odd_version = pod("other", "GPU-a 1 1")
    odd_version["metadata"]["resourceVersion"] = str(number)
    body = post(api, events(odd, odd_version, node("n1", card("GPU-a", memory=number)))).json()  # type: ignore[arg-type]
    assert body["accepted"] + len(body["rejected"]) == 3


def test_a_call_waits_for_the_workers(live_stack: Callable[..., LiveStack]) -> None:
    stack = live_stack()
    body = events(node("n1", card("GPU-a")), pod("web", "GPU-a 1000 10"))
    answer = stack.post("/api/v1/events?wait=30", body)
    assert answer.status == 200
    assert [result["outcome"] for result in answer.body["results"]] == ["applied", "applied"]


def test_a_call_that_does_not_wait_is_answered_at_once(live_stack: Callable[..., LiveStack]) -> None:
    stack = live_stack(worker=False)
    answer = stack.post("/api/v1/events", events(node("n1")))
    assert answer.status == 202
    assert "results" not in answer.body
    waited = stack.post("/api/v1/events?wait=0.2", events(node("n2")))
    assert waited.status == 202
    assert waited.body["results"] == []


def test_bodies_over_the_wire(live_stack: Callable[..., LiveStack]) -> None:
    """Whole, in chunks, and far over the limit: what only a real server shows."""
    stack = live_stack(redis=False)
    body = json.dumps(events(node("n1"))).encode()
    assert stack.post("/api/v1/events", body).status == 200
    assert chunked(stack, [body[:20], body[20:]]) == 200
    assert chunked(stack, [body[:20]]) == 400
    large = b" " * (40 * 2**20)
    assert stack.post("/api/v1/events", large).status == 413
    assert stack.post("/api/v1/events", large, content_type="text/plain").status == 415
    assert stack.post("/api/v1/events", large, token=None).status == 401
    assert chunked(stack, [large]) == 413
    assert stack.post("/api/v1/events", body).status == 200

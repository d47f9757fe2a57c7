"""What kubectl 1.32 printed (tests/data/kubectl), sent as one sends it with curl."""

import json
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests import watch

pytestmark = pytest.mark.django_db

PRINTED = Path(__file__).parents[1] / "data/kubectl"
CURLS_OWN = "application/x-www-form-urlencoded"
JSON, LINES = "application/json", "application/x-ndjson"


def post(api: APIClient, path: str, body: bytes, content_type: str = CURLS_OWN) -> Any:
    return api.generic("POST", f"/api/v1/{path}", body, content_type)


def states(api: APIClient) -> dict[str, str]:
    return {one["name"]: one["state"] for one in api.get("/api/v1/pods").json()["items"]}


@pytest.mark.parametrize("content_type", [CURLS_OWN, LINES, ""])
@pytest.mark.parametrize("change", ["as it is", "crlf", "blank lines", "a byte order mark"])
def test_a_watch(api: APIClient, content_type: str, change: str) -> None:
    body = (PRINTED / "watch-events.ndjson").read_bytes()
    changed = {
        "as it is": body,
        "crlf": body.replace(b"\n", b"\r\n"),
        "blank lines": b"\n\n" + body.replace(b"\n", b"\n\r\n") + b"\n\n\n",
        "a byte order mark": b"\xef\xbb\xbf" + body,
    }
    answer = post(api, "events", changed[change], content_type)
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert [one["outcome"] for one in said["results"]] == ["applied"] * 6
    # The seventh is the error with which this watch ended: nothing that could be applied.
    assert [one["pointer"] for one in said["rejected"]] == ["/events/6/type"]
    assert states(api) == {"reader": "steady", "writer": "ended", "indexer": "steady"}


@pytest.mark.parametrize("content_type", [CURLS_OWN, JSON])
@pytest.mark.parametrize(
    ("name", "kind", "version"),
    [
        ("pods.json", "Pod", 1011),  # a List says no version: its highest item's counts
        ("raw-pods.json", "Pod", 1015),
        ("nodes.json", "Node", 1000),
        ("resourcequotas.json", "ResourceQuota", 1001),
        ("dump/nodes.json", "Node", 1015),
    ],
)
def test_lists(api: APIClient, content_type: str, name: str, kind: str, version: int) -> None:
    answer = post(api, "snapshots", (PRINTED / name).read_bytes(), content_type)
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert (said["kind"], said["version"], said["rejected"]) == (kind, version, [])
    assert said["added"] == (2 if kind == "Pod" else 1)


@pytest.mark.parametrize("change", [b"\xef\xbb\xbf", b"\r\n\n"])
def test_a_list_with_a_mark_or_blank_lines_around_it(api: APIClient, change: bytes) -> None:
    body = (PRINTED / "pods.json").read_bytes().replace(b"\n", b"\r\n")
    assert post(api, "snapshots", change + body + b"\r\n\n").json()["added"] == 2


def test_an_empty_list_says_its_kind_in_the_query(api: APIClient) -> None:
    body = (PRINTED / "empty.json").read_bytes()
    assert post(api, "snapshots", body).status_code == 400
    assert post(api, "snapshots?kind=Pod", body).json()["ended"] == 0


def test_a_list_of_several_kinds_is_told_so(api: APIClient) -> None:
    answer = post(api, "snapshots", (PRINTED / "mixed.json").read_bytes())
    assert (answer.status_code, answer.json()["detail"]) == (400, "a list must hold objects of one kind")


def test_events_in_one_object_need_no_type_either(api: APIClient) -> None:
    body = json.dumps(watch.events(watch.node("n1", watch.card("GPU-a"))), indent=2).encode()
    assert post(api, "events", body).json()["accepted"] == 1


def test_a_nul_in_a_text_is_no_trouble(api: APIClient) -> None:
    pod = watch.pod("web", "GPU-a 100 0")
    pod["metadata"]["annotations"]["example.com/x"] = "a\0b"
    pod["metadata"]["labels"] = {"app": "a\0b"}
    pod["spec"]["containers"][0]["env"] = [{"name": "X", "value": "\0"}]
    said = post(api, "events", json.dumps(watch.event(pod)).encode()).json()
    assert said["results"][0]["outcome"] == "applied"
    pod["metadata"] |= {"name": "w\0eb", "resourceVersion": "999999"}
    said = post(api, "events", json.dumps(watch.event(pod)).encode()).json()
    assert [one["pointer"] for one in said["rejected"]] == ["/events/0/object/metadata/name"]


@pytest.mark.parametrize("path", ["events", "snapshots"])
@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/yaml", "multipart/form-data; boundary=x"]
)
def test_another_type_is_another_type(api: APIClient, path: str, content_type: str) -> None:
    answer = post(api, path, (PRINTED / "pods.yaml").read_bytes(), content_type)
    assert answer.status_code == 415
    assert "send application/json" in answer.json()["detail"]
    assert "urlencoded" not in answer.json()["detail"]


def test_yaml_is_no_json(api: APIClient) -> None:
    answer = post(api, "snapshots", (PRINTED / "pods.yaml").read_bytes())
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/malformed")

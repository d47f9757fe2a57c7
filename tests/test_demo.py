"""The recorded cluster: what it holds, and that the real pipeline makes of it what its story says."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from rest_framework.test import APIClient

from demo import cluster, load
from devservers.pytest_plugin import OPERATOR_TOKEN
from tests.live import LiveStack

ROOT = Path(__file__).parents[1]
LINES = "application/x-ndjson"


def run_loader(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "demo.load", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def books(db: None, api: APIClient) -> Callable[[str], Any]:
    """Reads the books after the whole recording was sent in one call."""
    results = send(api, load.RECORDING.read_text())
    assert {result["outcome"] for result in results} == {"applied"}

    def read(path: str) -> Any:
        answer = api.get(path)
        assert answer.status_code == 200, answer.content
        return answer.json()

    return read


def send(api: APIClient, lines: str) -> list[Any]:
    answer = api.post("/api/v1/events", lines, content_type=LINES)
    assert answer.status_code == 200, answer.content
    assert not answer.json()["rejected"]
    return list(answer.json()["results"])


def pods_of(read: Callable[[str], Any]) -> dict[str, Any]:
    """Pods by namespace and name; of two that had one name, the living one."""
    items = read("/api/v1/pods?limit=1000")["items"]
    items.sort(key=lambda pod: pod["state"] != "ended")
    return {f"{pod['namespace']}/{pod['name']}": pod for pod in items}


def memory_of(pod: Any) -> int:
    return sum(held["memory_mib"] for held in pod["usage"])


def test_the_recording_is_what_its_story_writes() -> None:
    assert load.RECORDING.read_text() == cluster.recorded().lines(), "run python -m demo.cluster"


def test_the_books_agree(books: Callable[[str], Any]) -> None:
    audit = books("/api/v1/audit")
    assert audit["ok"], audit["discrepancies"]
    assert audit["checked"]["pods"] >= 36


def test_every_stage_of_a_pod_is_there(books: Callable[[str], Any]) -> None:
    pods = pods_of(books)
    there = {name: (pod["state"], memory_of(pod)) for name, pod in pods.items()}
    assert (
        there.items()
        >= {
            "vision/notebook-1": ("unscheduled", 0),
            "vision/notebook-2": ("claimed", 8192),
            "nlp/finetune-qa-0": ("peak", 1024 + 32768),
            "nlp/evaluate-0": ("peak", 12288),
            "nlp/finetune-sum-0": ("steady", 20480),
            "nlp/embed-0": ("steady", 4096 + 8192),
            "nlp/rerank-0": ("steady", 6144),
            "vision/annotate-0": ("steady", 16384),
            "vision/tracker-0": ("steady", 10240),
            "vision/renderer-0": ("steady", 24576),
            "lab/notebook-0": ("steady", 6144),
            "batch/preprocess-1": ("ended", 0),
            "batch/preprocess-2": ("ended", 0),
            "batch/preprocess-3": ("ended", 0),
        }.items()
    )
    phases = {pods[f"batch/preprocess-{number}"]["phase"] for number in (1, 2)}
    assert phases == {"Succeeded", "Failed"}
    rules = {name: books(f"/api/v1/pods/{pod['uid']}/explain")["rule"] for name, pod in pods.items()}
    assert rules["vision/annotate-0"] == "terminating"
    assert rules["batch/preprocess-3"] == "deleted"
    ended = books("/api/v1/pods?namespace=lab&state=ended")["items"]
    assert [pod["name"] for pod in ended] == ["notebook-0"]


@pytest.mark.parametrize(
    ("name", "effective", "postings"),
    [
        ("sidecar-and-app", 20480, [("charged", 20480)]),
        ("sidecar-first", 22528, [("charged", 22528), ("shrunk", 12288 - 22528)]),
        ("init-first", 20480, [("charged", 20480), ("shrunk", 12288 - 20480)]),
    ],
)
def test_the_designs_cases_by_the_numbers(
    books: Callable[[str], Any], name: str, effective: int, postings: list[tuple[str, int]]
) -> None:
    pod = pods_of(books)[f"default/{name}"]
    explained = books(f"/api/v1/pods/{pod['uid']}/explain")
    assert [held["memory_mib"] for held in explained["effective"]] == [effective]
    assert [(line["rule"], line["memory_mib"]) for line in explained["ledger"]] == postings
    assert memory_of(pod) == sum(memory for _, memory in postings)


def test_what_is_odd_is_found(books: Callable[[str], Any]) -> None:
    found = {(one["code"], one["subject"]["name"]) for one in books("/api/v1/findings")["items"]}
    assert found == {
        ("undecodable-annotation", "tracker-0"),
        ("init-rerun-after-shrink", "rerank-0"),
        ("ambiguous-layout", "legacy-0"),
        ("overcommitted", cluster.A10[3].uuid),
        ("usage-on-missing-device", cluster.L40S_2[1].uuid),
        ("unregistered-device", f"GPU-{cluster.id_of('l40s-2', 'sold')}"),
        ("limit-below-use", "gpu"),
    } | {(code, name) for code, name in found if code in ("claim-stale", "terminating-overdue")}


def test_quotas_below_use_with_a_factor_and_of_the_apiserver(books: Callable[[str], Any]) -> None:
    (memory, _) = books("/api/v1/namespaces/vision/quota")["resources"]
    assert memory["over_by"] > 0
    (memory, _) = books("/api/v1/namespaces/speech/quota")["resources"]
    assert (memory["quotas"][0]["spec"], memory["hard"], memory["used"]) == ("96", 24576, 20480)
    (key,) = books("/api/v1/namespaces/nlp/quota")["not_enforced"]
    assert (key["key"], key["apiserver_used"]) == ("requests.nvidia.com/gpu", 15)


def test_every_vendor_of_the_story_has_cards(books: Callable[[str], Any]) -> None:
    nodes = books("/api/v1/nodes")["items"]
    assert len(nodes) == 8
    registered = [device for node in nodes for device in node["devices"] if device["registered"]]
    assert {device["vendor"] for device in registered} == {"NVIDIA", "Ascend910B3", "MLU", "DCU"}
    assert {device["mode"] for device in registered} >= {"hami-core", "mig"}
    assert sum(device["cordoned"] for device in registered) == 1
    assert sum(not device["healthy"] for device in registered) == 1


@pytest.mark.django_db
def test_one_call_or_one_event_a_call_makes_the_same_books(api: APIClient) -> None:
    lines = load.RECORDING.read_text()
    with transaction.atomic():
        for line in lines.splitlines(keepends=True):
            (result,) = send(api, line)
            assert result["outcome"] == "applied", (line, result)
        one_by_one = state_of(api)
        transaction.set_rollback(True)
    assert state_of(api) == {}
    send(api, lines)
    assert state_of(api) == one_by_one


def state_of(api: APIClient) -> dict[str, Any]:
    """Where each pod stands and what it holds."""
    pods = api.get("/api/v1/pods?limit=1000").json()["items"]
    return {pod["uid"]: (pod["state"], pod["usage"], pod["inits_released"]) for pod in pods}


def test_times_are_moved_and_nothing_else() -> None:
    event = {
        "metadata": {
            "creationTimestamp": "2026-01-05T11:00:00Z",
            "resourceVersion": "1767610800",
            "annotations": {"hami.io/vgpu-time": "1767610800", "note": "2026-01-05T11:00:00Z or so"},
        }
    }
    moved = load.moved(event, timedelta(hours=1))
    assert moved == {
        "metadata": {
            "creationTimestamp": "2026-01-05T12:00:00Z",
            "resourceVersion": "1767610800",
            "annotations": {"hami.io/vgpu-time": "1767614400", "note": "2026-01-05T11:00:00Z or so"},
        }
    }


def test_the_recording_ends_now() -> None:
    """What was claimed minutes before its end is claimed minutes ago, so no demonstration begins stale."""
    times = [
        int(event["object"]["metadata"]["annotations"]["hami.io/vgpu-time"])
        for event in load.played(datetime.now(UTC) - load.RECORDED_UNTIL)
        if event["object"]["metadata"]["name"] == "notebook-2" and event["object"]["metadata"]["annotations"]
    ]
    age = datetime.now(UTC).timestamp() - times[-1]
    assert 0 < age < 300


@pytest.mark.parametrize("redis", [True, False], ids=["with workers", "in the request"])
def test_the_loader_sends_it_twice_and_says_what_it_saw(
    live_stack: Callable[..., LiveStack], redis: bool
) -> None:
    stack = live_stack(redis=redis)
    count = len(load.RECORDING.read_text().splitlines())
    for outcome in ("applied", "stale"):
        ran = run_loader("--url", stack.url, "--token", OPERATOR_TOKEN)
        assert ran.returncode == 0, ran.stderr
        assert f"{count} {outcome}" in ran.stdout
        assert "8 nodes, 31 devices" in ran.stdout
        assert "29 steady" in ran.stdout
        assert ran.stdout.endswith("the books agree\n")
        assert ran.stderr == ""


def test_the_loader_fails_where_it_cannot_send(live_stack: Callable[..., LiveStack]) -> None:
    stack = live_stack(redis=False)
    for url, token, reason in (
        (stack.url, "somebody-else", "nobody has this token"),
        ("http://127.0.0.1:1", OPERATOR_TOKEN, "cannot be asked"),
    ):
        ran = run_loader("--url", url, "--token", token)
        assert ran.returncode == 1
        assert reason in ran.stderr
        assert "Traceback" not in ran.stderr
    assert run_loader("--url", stack.url).returncode == 2


def test_the_loader_fails_where_something_was_not_applied(
    live_stack: Callable[..., LiveStack],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack = live_stack(redis=False)
    good, bad, nameless = (json.loads(line) for line in load.RECORDING.read_text().splitlines()[13:16])
    del bad["object"]["spec"]["containers"][0]["name"]
    bad["object"]["metadata"]["uid"] += "-bad"
    nameless["object"]["metadata"]["uid"] = ""
    recording = tmp_path / "events.ndjson"
    recording.write_text("".join(json.dumps(event) + "\n" for event in (good, bad, nameless)))
    monkeypatch.setattr(load, "RECORDING", recording)
    assert load.main(["--url", stack.url, "--token", OPERATOR_TOKEN]) == 1
    said = capsys.readouterr()
    assert "1 applied" in said.out
    assert "/spec/containers/0/name" in said.err
    assert "uid" in said.err


def test_the_readme_shows_what_the_books_answer(books: Callable[[str], Any]) -> None:
    """Line by line; what is left out there is an ellipsis."""
    text = (ROOT / "README.md").read_text()
    asked = re.findall(
        r"http://127\.0\.0\.1:8000(/\S+)' \| python3 -m json\.tool\n\n```json\n(.*?)```", text, re.S
    )
    assert len(asked) == 3
    for path, shown in asked:
        answered = [line.strip() for line in json.dumps(books(path), indent=4).splitlines()]
        place = 0
        for line in map(str.strip, shown.splitlines()):
            if line != "...":
                assert line in answered[place:], f"{path} does not answer {line}"
                place = answered.index(line, place) + 1


def test_the_readme_shows_what_compare_prints(books: Callable[[str], Any]) -> None:
    """Line by line, in order; what is left out there is an ellipsis."""
    (shown,) = re.findall(
        r"manage\.py compare\)\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S
    )
    printed = StringIO()
    with contextlib.suppress(CommandError):  # the books of this test are never declared complete
        call_command("compare", stdout=printed)
    told = printed.getvalue().splitlines()
    place = 0
    for line in shown.splitlines():
        if line != "...":
            assert line in told[place:], f"compare does not print {line}"
            place = told.index(line, place) + 1

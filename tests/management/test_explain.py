"""manage.py explain, as a process of its own with nothing of the service in its environment."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from demo import load

ROOT = Path(__file__).parents[2]

SIDECAR_FIRST = """
apiVersion: v1
kind: Pod
metadata:
  name: train
  namespace: team-a
  creationTimestamp: 2026-01-05T10:00:00Z
spec:
  initContainers:
    - name: proxy
      restartPolicy: Always
      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 2048}}
    - name: fetch
      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 20480}}
  containers:
    - name: app
      resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 10240, nvidia.com/gpucores: 30}}
"""
TEMPLATE = SIDECAR_FIRST[SIDECAR_FIRST.index("spec:") :].replace("\n", "\n      ")
DEPLOYMENT = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: trainers, namespace: team-b}}
spec:
  template:
      metadata: {{labels: {{app: trainers}}}}
      {TEMPLATE}
"""
SERVICE = "kind: Service\nmetadata: {name: web}\n"


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith(("HAMIACCT_", "PG"))}
    command = [sys.executable, "manage.py", "explain", *words]
    return subprocess.run(
        command, cwd=ROOT, env=env, input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def explained(text: str, *words: str) -> str:
    ran = run("-", *words, stdin=text)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


def cells(page: str, first: str) -> list[str]:
    """The words of the line that begins so."""
    (line,) = [line for line in page.splitlines() if line.strip().startswith(first)]
    return line.split(first, 1)[1].split()


def recorded(name: str, at: int) -> Any:
    """The recorded pod as its watch event of that place shows it."""
    events = [json.loads(line) for line in load.RECORDING.read_text().splitlines()]
    return [event["object"] for event in events if event["object"]["metadata"]["name"] == name][at]


def test_a_manifest_is_explained_by_its_requests() -> None:
    page = explained(SIDECAR_FIRST)
    assert page.startswith("Pod team-a/train, by its requests\n")
    none = ["·"] * 3
    assert cells(page, "proxy") == ["sidecar", "2048", "·", "1", "2048", "·", "1", *none]
    assert cells(page, "fetch") == ["init", "20480", "·", "1", "2048", "·", "1", "22528", "·", "2"]
    assert cells(page, "app") == ["app", "10240", "30", "1", "12288", "30", "2", "22528", "·", "2"]
    assert cells(page, "effective: the larger of both") == ["22528", "30", "2"]
    assert cells(page, "which is") == ["peak", "steady", "both"]
    assert cells(page, "would be charged") == ["22528", "30", "2"]
    assert "once its inits are done, 12288 MiB" in page
    assert "requests.nvidia.com/gpu 2" in page
    assert "requests.nvidia.com/gpumem 22528" in page


def test_the_readme_shows_this_page() -> None:
    section = (ROOT / "README.md").read_text().split("## A manifest, without a server")[1]
    shown = section.split("```text\n")[1].split("```")[0]
    page = [line.rstrip() for line in explained(SIDECAR_FIRST).splitlines()]
    assert page[: len(shown.splitlines())] == shown.splitlines()


def test_an_allocation_counts_where_there_is_one() -> None:
    pod = recorded("sidecar-first", 4)
    page = explained(json.dumps(pod))
    assert page.startswith("Pod default/sidecar-first, by its allocation on a10-1\n")
    assert cells(page, "effective: the larger of both") == ["22528", "0", "2"]
    assert cells(page, "charged") == ["12288", "0", "2"]
    assert "every regular init container exited 0" in page


def test_an_annotation_that_cannot_be_read_is_said() -> None:
    page = explained(json.dumps(recorded("tracker-0", -1)))
    assert "hami.io/vgpu-devices-allocated cannot be read: at offset 0" in page


@pytest.mark.parametrize("text", [SIDECAR_FIRST, json.dumps(recorded("sidecar-first", 4))])
@pytest.mark.django_db
def test_json_is_what_the_service_answers(api: APIClient, text: str) -> None:
    manifest = json.loads(text) if text.startswith("{") else None
    answer = json.loads(explained(text, "--json"))
    if manifest is not None:
        assert answer == api.post("/api/v1/explain", {"pod": manifest}).json()
    assert [step["class"] for step in answer["steps"]] == ["sidecar", "init", "app"]
    assert answer["apiserver"]["requests.nvidia.com/gpumem"] == 22528


def test_every_pod_of_a_file_is_explained(tmp_path: Path) -> None:
    second = SIDECAR_FIRST.replace("name: train", "name: again")
    file = tmp_path / "pods.yaml"
    file.write_text(f"{SIDECAR_FIRST}---\n{SERVICE}---\n{second}---\n")
    ran = run(str(file))
    assert ran.returncode == 0
    titles = [line for line in ran.stdout.splitlines() if line.startswith(("Pod ", "Service "))]
    assert titles == ["Pod team-a/train, by its requests", "Pod team-a/again, by its requests"]


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_a_list_is_explained_pod_by_pod(kind: str) -> None:
    pods = [recorded("sidecar-first", 4), recorded("init-first", 4)]
    if kind == "PodList":
        pods = [{name: part for name, part in pod.items() if name != "kind"} for pod in pods]
    page = explained(json.dumps({"kind": kind, "items": pods}))
    assert "Pod default/sidecar-first" in page
    assert "Pod default/init-first" in page


@pytest.mark.parametrize(
    ("kind", "nested"),
    [
        ("Deployment", "{{spec: {{template: {0}}}}}"),
        ("CronJob", "{{spec: {{jobTemplate: {{spec: {{template: {0}}}}}}}}}"),
        ("PodTemplate", "{{template: {0}}}"),
    ],
)
def test_of_what_makes_pods_the_template_is_explained(kind: str, nested: str) -> None:
    spec = recorded("sidecar-first", 0)["spec"]
    text = nested.format(json.dumps({"spec": spec})).replace("{", "{ ")
    page = explained(f"kind: {kind}\nmetadata: {{name: trainers, namespace: team-b}}\n{text[2:-1]}")
    assert page.startswith(f"{kind} team-b/trainers, its pod template, by its requests\n")
    assert cells(page, "effective: the larger of both") == ["22528", "0", "2"]


def test_a_deployment_as_people_write_it() -> None:
    assert "Deployment team-b/trainers, its pod template" in explained(DEPLOYMENT)


def test_a_pod_that_asks_for_nothing() -> None:
    page = explained("kind: Pod\nmetadata: {generateName: web-}\nspec: {containers: [{name: web}]}\n")
    assert page == (
        "Pod web-, by its requests\n"
        "It asks for nothing that is managed here.\n"
        "The apiserver would charge a ResourceQuota: nothing that is managed here.\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "standard input holds no Pod and nothing that makes one, but nothing"),
        (SERVICE, "but Service"),
        ("just words", "a document is no Kubernetes object but str"),
        ("kind: [", "standard input is neither YAML nor JSON: line 1, column 8"),
        ('{"kind": "Pod"', "neither YAML nor JSON"),
        ("a: " + "[" * 5000, "neither YAML nor JSON"),
        ("!!python/object:os.system {}", "neither YAML nor JSON"),
        ("a: " + "9" * 5000, "neither YAML nor JSON"),
        (
            "kind: Pod\nspec: {containers: [{image: a}]}",
            "Pod unnamed: /spec/containers/0/name: name is missing",
        ),
        (SIDECAR_FIRST.replace("2048", "2.5"), "nvidia.com/gpumem value 2.5 in container proxy"),
        ("kind: Deployment\nmetadata: {name: a}", "Deployment a has no pod template at /spec/template"),
        ("kind: Pod\nmetadata: []\nspec: 3", "must be an object"),
        ("&a {kind: List, items: [*a]}", "but List"),
    ],
)
def test_what_cannot_be_explained_is_said(text: str, reason: str) -> None:
    ran = run("-", stdin=text)
    assert ran.returncode == 1, ran.stdout
    assert reason in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_bad_pod_loses_no_good_one() -> None:
    bad = SIDECAR_FIRST.replace("name: proxy", "label: proxy")
    ran = run("-", stdin=f"{bad}---\n{SIDECAR_FIRST}")
    assert ran.returncode == 1
    assert "/spec/initContainers/0/name" in ran.stderr
    assert "would be charged" in ran.stdout


def test_files_that_are_none(tmp_path: Path) -> None:
    binary = tmp_path / "pod.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    for file, reason in (
        ("nowhere.yaml", "No such file"),
        (str(tmp_path), "Is a directory"),
        (str(binary), "UTF-8"),
    ):
        ran = run(file)
        assert ran.returncode == 1
        assert reason in ran.stderr
        assert "Traceback" not in ran.stderr
    assert run().returncode == 2


def test_other_commands_still_ask_for_their_settings() -> None:
    env = {name: text for name, text in os.environ.items() if not name.startswith("HAMIACCT_")}
    ran = subprocess.run(
        [sys.executable, "manage.py", "audit"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "HAMIACCT_DATABASE_URL: must be set" in ran.stderr


def test_a_setting_that_is_wrong_is_said_all_the_same() -> None:
    env = {**os.environ, "HAMIACCT_ANNOTATION_LAYOUT": "sideways"}
    ran = subprocess.run(
        [sys.executable, "manage.py", "explain", "-"],
        cwd=ROOT, env=env, input="", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "HAMIACCT_ANNOTATION_LAYOUT" in ran.stderr

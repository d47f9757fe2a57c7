"""The Helm chart: what it makes of its cases is valid, asks for no more than is used, and sets what exists.

A machine without Helm reads what `make chart` has rendered; a digest tells that it was made from this chart.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from hamiacct import environment

ROOT = Path(__file__).parents[2]
HELM = ROOT / "deploy" / "helm"
CHART = HELM / "hamiacct"
RENDERED = ROOT / "tests" / "data" / "chart"
CASES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
# Kinds of operators that are not Kubernetes' own.
FOREIGN = {"Certificate", "Issuer", "ServiceMonitor", "PrometheusRule"}
VERSIONS = ("1.27", "1.31", "1.35")

Document = dict[str, Any]


def documents(case: str) -> list[Document]:
    return [one for one in yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text()) if one]


def of_kind(case: str, kind: str) -> dict[str, Document]:
    return {one["metadata"]["name"]: one for one in documents(case) if one["kind"] == kind}


def pods(case: str) -> dict[str, Document]:
    """The pod templates, by the name of what makes the pods."""
    found = {**of_kind(case, "Deployment"), **of_kind(case, "Job")}
    return {name: one["spec"]["template"]["spec"] for name, one in found.items()}


def settings(pod: Document) -> dict[str, Any]:
    [container] = pod["containers"]
    names = [one["name"] for one in container["env"]]
    assert len(names) == len(set(names)), "set twice"
    return {one["name"]: one.get("value") for one in container["env"]}


def test_there_are_cases() -> None:
    assert CASES == ["all", "least"]
    assert sorted(path.stem for path in RENDERED.glob("*.yaml")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_it_was_rendered_from_this_chart(case: str) -> None:
    files = [path for path in CHART.rglob("*") if path.is_file() and "ci" not in path.parts]
    names = sorted((path.relative_to(HELM).as_posix() for path in files), key=str.encode)
    sources = hashlib.sha256(b"".join((HELM / name).read_bytes() for name in names)).hexdigest()
    values = hashlib.sha256((CHART / "ci" / f"{case}-values.yaml").read_bytes()).hexdigest()
    first = (RENDERED / f"{case}.yaml").read_text().split("\n", 1)[0]
    assert first == f"# chart {sources}, values {values}", "run `make chart`, with Helm 3 on the path"


@pytest.mark.skipif(not shutil.which("helm"), reason="no Helm on this machine")
def test_helm_still_renders_it_so(tmp_path: Path) -> None:
    subprocess.run(["helm", "lint", CHART, "--values", CHART / "ci" / "all-values.yaml"], check=True)
    before = {case: documents(case) for case in CASES}
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", symlinks=True)
    (tmp_path / "tests" / "data" / "chart").mkdir(parents=True)
    subprocess.run(["sh", tmp_path / "deploy" / "helm" / "render.sh"], check=True)
    for case in CASES:
        text = (tmp_path / "tests" / "data" / "chart" / f"{case}.yaml").read_text()
        assert [one for one in yaml.safe_load_all(text) if one] == before[case]


def rendered(release: str, *words: str) -> subprocess.CompletedProcess[str]:
    values = ("--set", "secret.existing=mine", "--kube-version", "1.31.0", *words)
    command = ["helm", "template", release, CHART, *values]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not shutil.which("helm"), reason="no Helm on this machine")
@pytest.mark.parametrize("release", ["my.release", f"a-very-{'long-' * 8}name"])
def test_services_are_called_what_a_service_may_be_called(release: str) -> None:
    names = [one["metadata"]["name"] for one in yaml.safe_load_all(rendered(release).stdout) if one]
    assert len(names) > 5
    assert all("." not in name and len(name) <= 63 for name in names), names


@pytest.mark.skipif(not shutil.which("helm"), reason="no Helm on this machine")
def test_nothing_is_set_twice() -> None:
    """What is among the settings is not said again, and what the chart says by itself is refused there."""
    made = rendered("a", "--set", "monitoring.serviceMonitor=true", "--set-string", "settings.METRICS_OPEN=0")
    assert made.stdout.count("HAMIACCT_METRICS_OPEN") == made.stdout.count("HAMIACCT_ALLOWED_HOSTS") > 0
    assert rendered("a", "--set", "settings.DATABASE_URL=postgresql://x/y").returncode != 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_every_object_is_one_of_kubernetes(case: str, version: str) -> None:
    seen = {one["kind"] for one in documents(case)}
    for one in documents(case):
        if one["kind"] not in FOREIGN:
            kubernetes_validate.validate(one, version, strict=True)
    assert {"Deployment", "Service", "Job", "ServiceAccount"} <= seen
    assert (seen >= FOREIGN) == (case == "all")


def test_the_least_release_is_a_web_process_and_a_watcher() -> None:
    assert pods("least").keys() == {"hamiacct", "hamiacct-watcher", "hamiacct-migrate"}
    parts = {"hamiacct", "hamiacct-webhook", "hamiacct-worker", "hamiacct-beat", "hamiacct-watcher"}
    assert pods("all").keys() == {*parts, "hamiacct-migrate"}
    hook = of_kind("least", "Job")["hamiacct-migrate"]["metadata"]["annotations"]
    secret = of_kind("least", "Secret")["hamiacct"]["metadata"]["annotations"]
    assert hook["helm.sh/hook"] == secret["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert int(secret["helm.sh/hook-weight"]) < int(hook["helm.sh/hook-weight"])
    assert of_kind("all", "Secret") == {}


@pytest.mark.parametrize("case", CASES)
def test_every_setting_is_one_and_has_a_value_that_is_read(case: str) -> None:
    from_the_secret = {
        "HAMIACCT_DATABASE_URL": "postgresql://h:s@db/books",
        "HAMIACCT_SECRET_KEY": "key",
        "HAMIACCT_REDIS_URL": "redis://redis",
        "HAMIACCT_BOOTSTRAP_TOKEN": "",
    }
    files = {"HAMIACCT_DEVICE_CONFIG", "HAMIACCT_TLS_CERT", "HAMIACCT_TLS_KEY", "HAMIACCT_TLS_CLIENT_CA"}
    for name, pod in pods(case).items():
        given = {key: text for key, text in settings(pod).items() if key.startswith("HAMIACCT_")}
        assert from_the_secret.keys() <= given.keys()
        mounts = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]
        for key in files & given.keys():
            assert any(given[key].startswith(mount) for mount in mounts), (name, key)
        here = {key: __file__ if key in files else text for key, text in given.items()}
        read = environment.read({**here, **from_the_secret})
        assert "$(POD_IP)" in read.allowed_hosts  # Prometheus calls a pod by its address


@pytest.mark.parametrize("case", CASES)
def test_pods_are_hardened_and_get_no_variables_of_services(case: str) -> None:
    for pod in pods(case).values():
        assert pod["enableServiceLinks"] is False  # HAMIACCT_SERVICE_HOST would be no setting of ours
        assert pod["securityContext"]["runAsNonRoot"] is True
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_the_commands_are_those_of_compose() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    compose = {name: services[name]["command"] for name in ("migrate", "web", "worker", "beat", "watcher")}
    chart = {
        one["containers"][0]["name"]: one["containers"][0]["command"] for name, one in pods("all").items()
    }
    webhook = chart.pop("webhook")
    assert chart == compose
    assert webhook == [word.replace("8000", "8443") for word in chart["web"]]


def rules(file: list[Document], name: str) -> list[Document]:
    [role] = [one for one in file if one["kind"] == "ClusterRole" and name in one["metadata"]["name"]]
    return sorted(role["rules"], key=str)


@pytest.mark.parametrize("role", ["watcher", "scheduler"])
def test_its_roles_are_those_of_the_manifest(role: str) -> None:
    def verbs(found: list[Document]) -> set[tuple[str, str, str, str]]:
        return {
            (group, resource, verb, name)
            for rule in found
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for name in rule.get("resourceNames", [""])
        }

    manifest = list(yaml.safe_load_all((ROOT / "deploy" / "rbac.yaml").read_text()))
    assert verbs(rules(documents("all"), role)) == verbs(rules(manifest, role))


def test_nobody_but_the_watcher_has_a_role_until_it_schedules() -> None:
    assert of_kind("least", "ClusterRole").keys() == {"hamiacct-watcher-gpu-accounts"}
    accounts = {name: pod.get("serviceAccountName") for name, pod in pods("least").items()}
    assert accounts == {
        "hamiacct": "hamiacct",
        "hamiacct-watcher": "hamiacct-watcher",
        "hamiacct-migrate": None,
    }
    assert pods("least")["hamiacct"]["automountServiceAccountToken"] is False
    [binding] = [one for name, one in of_kind("all", "ClusterRoleBinding").items() if "scheduler" in name]
    [account] = [one["name"] for one in binding["subjects"]]
    scheduling = {
        name
        for name, pod in pods("all").items()
        if pod.get("serviceAccountName") == account and pod["automountServiceAccountToken"]
    }
    assert scheduling == {"hamiacct", "hamiacct-webhook", "hamiacct-worker", "hamiacct-beat"}


def test_its_webhook_asks_as_the_manifest_does() -> None:
    manifest = yaml.safe_load((ROOT / "deploy" / "mutating-webhook.yaml").read_text())["webhooks"][0]
    [chart] = of_kind("all", "MutatingWebhookConfiguration").values()
    [webhook] = chart["webhooks"]
    for one, namespace in ((webhook, "gpu-accounts"), (manifest, "hamiacct")):
        one["namespaceSelector"]["matchExpressions"][0]["values"].remove(namespace)
    service = webhook.pop("clientConfig")["service"]
    manifest.pop("clientConfig")
    assert webhook == manifest
    assert service["path"] == "/webhook/a-schedulers-token"
    assert service["name"] in of_kind("all", "Service")
    certificate = of_kind("all", "Certificate")["hamiacct-webhook"]
    assert f"{service['name']}.{service['namespace']}.svc" in certificate["spec"]["dnsNames"]
    hosts = settings(pods("all")["hamiacct-webhook"])["HAMIACCT_ALLOWED_HOSTS"]
    assert f"{service['name']}.{service['namespace']}.svc" in hosts.split(",")


def test_what_is_scraped_has_a_port_of_that_name() -> None:
    [monitor] = of_kind("all", "ServiceMonitor").values()
    ports = {port["name"] for one in of_kind("all", "Service").values() for port in one["spec"]["ports"]}
    assert {one["port"] for one in monitor["spec"]["endpoints"]} == ports == {"http", "https", "metrics"}
    [alerts] = of_kind("all", "PrometheusRule").values()
    assert alerts["spec"] == yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yaml").read_text())

"""The manifests under deploy/: what they promise, and every name of the vendors' table in them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hamiacct import config, environment
from hamiacct.kube import admission
from hamiacct.kube.annotations import VGPU_NODE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VENDORS = config.read_vendors(None)
NAMES = {name for vendor in VENDORS for name in vendor.resource_names}
ALLOCATIONS = {key for vendor in VENDORS for key in (vendor.allocated_key, vendor.slots_annotation) if key}
OURS = ["kube-system", "hamiacct"]
NOT_OURS = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": OURS}


def documents(file: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / file).read_text()))


def quoted(expression: str) -> list[str]:
    return re.findall(r"'([^']*/[^']*)'", expression)


def listed(expression: str) -> set[str]:
    """The names in an expression, each written once."""
    names = quoted(expression)
    assert len(names) == len(set(names))
    return set(names)


def webhook(file: str, kind: str) -> Any:
    [document] = documents(file)
    assert document["kind"] == kind
    [found] = document["webhooks"]
    return found


def policies() -> dict[str, Any]:
    """The policies by name, each bound so that it denies."""
    found = documents("admission-policy.yaml")
    bound = {
        one["spec"]["policyName"]
        for one in found
        if one["kind"] == "ValidatingAdmissionPolicyBinding" and one["spec"]["validationActions"] == ["Deny"]
    }
    named = {
        one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "ValidatingAdmissionPolicy"
    }
    assert named.keys() == bound
    return named


def variables(policy: Any) -> dict[str, str]:
    return {one["name"]: one["expression"] for one in policy["variables"]}


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("*.yaml")), ids=lambda file: file.name)
def test_every_manifest_is_one(file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text()):
        assert document["apiVersion"]
        assert document["kind"]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("mutating-webhook.yaml", "MutatingWebhookConfiguration"),
        ("validating-webhook.yaml", "ValidatingWebhookConfiguration"),
    ],
)
def test_both_webhooks_are_asked_about_new_pods(file: str, kind: str) -> None:
    found = webhook(file, kind)
    [rule] = found["rules"]
    assert (rule["operations"], rule["apiGroups"], rule["resources"]) == (["CREATE"], [""], ["pods"])
    assert {f"admission.k8s.io/{version}" for version in found["admissionReviewVersions"]} == set(
        admission.VERSIONS
    )
    assert found["sideEffects"] == "NoneOnDryRun"
    assert NOT_OURS in found["namespaceSelector"]["matchExpressions"]
    assert found["name"].count(".") >= 2


def test_the_mutating_webhook_stops_nobody() -> None:
    found = webhook("mutating-webhook.yaml", "MutatingWebhookConfiguration")
    assert (found["failurePolicy"], found["timeoutSeconds"], found["reinvocationPolicy"]) == (
        "Ignore",
        5,
        "IfNeeded",
    )
    assert found["clientConfig"]["service"]["path"].startswith("/webhook/")
    assert "matchConditions" not in found


def test_the_quota_webhook_stops_only_pods_it_is_about() -> None:
    found = webhook("validating-webhook.yaml", "ValidatingWebhookConfiguration")
    assert (found["failurePolicy"], found["timeoutSeconds"]) == ("Fail", 3)
    assert found["namespaceSelector"]["matchLabels"]
    assert found["clientConfig"]["service"]["path"].startswith("/webhook/validate/")
    [condition] = found["matchConditions"]
    assert listed(condition["expression"]) == NAMES


def test_pods_with_devices_are_our_schedulers() -> None:
    policy = policies()["hamiacct-scheduler"]
    [rule] = policy["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    assert NOT_OURS in policy["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert listed(variables(policy)["managed"]) == NAMES
    default, _ = environment.SETTINGS["scheduler_name"]
    [validation] = policy["validations"]
    assert f"schedulerName == '{default}'" in validation["expression"]


def test_allocations_are_written_by_schedulers() -> None:
    policy = policies()["hamiacct-allocations"]
    [rule] = policy["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE"], ["pods", "pods/status"])
    assert listed(variables(policy)["keys"]) == ALLOCATIONS | {VGPU_NODE}
    [condition] = policy["matchConditions"]
    assert "system:serviceaccount:hamiacct:hamiacct" in condition["expression"]


def test_kube_scheduler_leaves_every_managed_name_to_us() -> None:
    [found] = documents("kube-scheduler.yaml")
    assert found["percentageOfNodesToScore"] == 100
    default, _ = environment.SETTINGS["scheduler_name"]
    assert [profile["schedulerName"] for profile in found["profiles"]] == [default]
    [extender] = found["extenders"]
    assert (extender["filterVerb"], extender["bindVerb"]) == ("filter", "bind")
    assert extender["urlPrefix"].startswith("https://")
    assert extender["enableHTTPS"]
    assert not extender["tlsConfig"]["insecure"]
    assert extender["nodeCacheCapable"]
    assert extender["ignorable"] is False
    assert extender["httpTimeout"] == "30s"
    names = [one["name"] for one in extender["managedResources"] if one["ignoredByScheduler"]]
    assert len(names) == len(extender["managedResources"]) == len(set(names))
    assert set(names) == NAMES


def roles() -> dict[str, set[tuple[str, str, str, str]]]:
    """What each ClusterRole allows: group, resource, name ("" for any), verb."""
    return {
        one["metadata"]["name"]: {
            (group, resource, name, verb)
            for rule in one["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
            for verb in rule["verbs"]
        }
        for one in documents("rbac.yaml")
        if one["kind"] == "ClusterRole"
    }


def test_roles_allow_what_is_said_and_no_more() -> None:
    read = {"get", "list", "watch"}
    assert roles() == {
        "hamiacct-watcher": {
            *(("", kind, "", verb) for kind in ("pods", "nodes", "resourcequotas") for verb in read),
            ("", "namespaces", "kube-system", "get"),
        },
        "hamiacct-scheduler": {
            *(("", kind, "", verb) for kind in ("pods", "nodes") for verb in ("get", "patch")),
            ("", "pods/binding", "", "create"),
            ("", "events", "", "create"),
            ("coordination.k8s.io", "leases", "hami-scheduler", "get"),
        },
    }


def test_each_role_is_one_accounts() -> None:
    found = documents("rbac.yaml")
    accounts = {one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"}
    bound = {
        one["roleRef"]["name"]: [subject["name"] for subject in one["subjects"]]
        for one in found
        if one["kind"] == "ClusterRoleBinding"
    }
    assert bound == {"hamiacct-watcher": ["hamiacct-watcher"], "hamiacct-scheduler": ["hamiacct"]}
    assert accounts == {name for names in bound.values() for name in names}
    # kubectl apply -l leaves the scheduler's part out.
    parts = {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in found}
    assert parts == {"watcher", "scheduler"}


def test_our_kube_scheduler_does_not_hold_hamis_lease() -> None:
    """Else nobody could tell whose it is, and this service would refuse to start beside its own scheduler."""
    [found] = documents("kube-scheduler.yaml")
    election = found["leaderElection"]
    default, _ = environment.SETTINGS["hami_lease"]
    assert f"{election['resourceNamespace']}/{election['resourceName']}" == "kube-system/hamiacct-scheduler"
    assert default == "kube-system/hami-scheduler"
    assert {name for _, kind, name, _ in roles()["hamiacct-scheduler"] if kind == "leases"} == {
        default.partition("/")[2]
    }

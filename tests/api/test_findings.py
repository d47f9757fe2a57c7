"""GET /api/v1/findings"""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.watch import card, node, pod, quota

pytestmark = pytest.mark.django_db
Listed = Callable[[str], list[Any]]


@pytest.fixture
def _three_findings(send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a", memory=1000)))
    send(pod("over", "GPU-a 1500 0"))
    send(quota("odd", hard={"limits.nvidia.com/gpumem": "x"}))
    send(pod("lost", "GPU-x 1 0", node="n2", namespace="team-b"))


def codes(items: list[Any]) -> list[str]:
    return [item["code"] for item in items]


def test_findings_are_listed_oldest_first(listed: Listed, _three_findings: None) -> None:
    found = listed("/api/v1/findings")
    assert codes(found) == ["overcommitted", "quota-value-unreadable", "unregistered-device"]
    assert [finding["since"] for finding in found] == sorted(finding["since"] for finding in found)


def test_a_finding_names_its_subject(listed: Listed, _three_findings: None) -> None:
    subjects = [finding["subject"] for finding in listed("/api/v1/findings")]
    assert subjects[0] == {"kind": "Device", "node": "n1", "namespace": "", "name": "GPU-a", "uid": ""}
    assert subjects[1] == {
        "kind": "ResourceQuota",
        "node": "",
        "namespace": "team-a",
        "name": "odd",
        "uid": "",
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("code=overcommitted", ["overcommitted"]),
        ("node=n2", ["unregistered-device"]),
        ("namespace=team-a", ["quota-value-unreadable"]),
        ("node=n1&code=unregistered-device", []),
    ],
)
def test_filters_are_all_to_hold(listed: Listed, _three_findings: None, query: str, found: list[str]) -> None:
    assert codes(listed(f"/api/v1/findings?{query}")) == found


def test_a_code_that_is_none_is_malformed(api: APIClient) -> None:
    assert api.get("/api/v1/findings?code=odd").status_code == 400


def test_a_uuid_that_two_vendors_register_is_said_of_the_later_one(
    listed: Listed, send: Callable[..., Any]
) -> None:
    also = {"hami.io/node-dcu-register": "GPU-a,4,32768,100,DCU,0,true:"}
    send(node("n1", card("GPU-a"), **also))
    (found,) = listed("/api/v1/findings?code=duplicate-registration")
    assert found["detail"] == "DCU registers GPU-a, which is registered already; the first one counts"

"""POST /extender/filter, POST /extender/prioritize"""

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import OperationalError, connection
from rest_framework.test import APIClient

from hamiacct import config
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from tests import cases
from tests.asking import asking
from tests.watch import card, node, pod, quota

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("complete", "books_agree")]

NOTHING = {
    "Nodes": None,
    "NodeNames": None,
    "FailedNodes": None,
    "FailedAndUnresolvableNodes": None,
    "Error": "",
}


@pytest.fixture
def filtered(api: APIClient) -> Callable[..., Any]:
    """Asks to filter names or nodes; answers the body of a 200 without an Error."""

    def filtered(asked: dict[str, Any], *names: str, nodes: list[Any] | None = None) -> Any:
        form = {"NodeNames": None, "Nodes": {"items": nodes}} if nodes is not None else {"NodeNames": names}
        response = api.post("/extender/filter", {"Pod": asked, **form})
        assert response.status_code == 200
        assert response.json()["Error"] == ""
        return response.json()

    return filtered


@pytest.fixture
def _three_nodes(send: Callable[..., Any]) -> None:
    """n1 is the fullest that has room, n2 is empty, n3 has no room."""
    send(
        node("n1", card("GPU-a")),
        node("n2", card("GPU-c")),
        node("n3", card("GPU-d", memory=1000)),
    )
    send(pod("web", "GPU-a 10000 0", node="n1"))


def same(found: Any, right: Any) -> bool:
    """Whether the answer says at least what is right; null and empty are equal."""
    return all((found[key] or None) == (value or None) for key, value in right.items())


@pytest.mark.parametrize(("given", "right"), cases.of_kind("extender-filter"))
def test_cases_of_hami(api: APIClient, send: Callable[..., Any], given: Any, right: Any) -> None:
    send(node("n-0", card("GPU-a")))
    body = dict(given["body"])
    if body.get("Pod") == "(any GPU pod)":
        body["Pod"] = asking("p", gpumem=1)
    response = api.post("/extender/filter", body)
    assert response.status_code == right["status"]
    assert same(response.json(), right["body"])


# --- filter by names -----------------------------------------------------------------------------


@pytest.mark.usefixtures("_three_nodes")
def test_one_node_holds_the_pod_and_only_refusals_are_named(
    api: APIClient, filtered: Callable[..., Any], used: Callable[..., int]
) -> None:
    found = filtered(asking("p", gpumem=5000), "n1", "n2", "n3")
    assert found == {**NOTHING, "NodeNames": ["n1"]}
    assert used("GPU-a") == 15000
    held = api.get("/api/v1/reservations/uid-p").json()
    assert (held["node"], held["state"]) == ("n1", "held")


@pytest.mark.usefixtures("_three_nodes")
def test_without_room_every_node_has_one_entry_and_it_is_kept(
    api: APIClient, filtered: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    found = filtered(asking("p", gpumem=50000), "n1", "n2", "n9", "n1")
    assert found == {
        **NOTHING,
        "FailedNodes": {
            "n1": "1/1 CardInsufficientMemory",
            "n2": "1/1 CardInsufficientMemory",
            "n9": "node unregistered",
        },
    }
    [kept] = decisions("pod=uid-p")
    assert (kept["question"], kept["verdict"], kept["namespace"]) == ("filter", "no-fit", "team-a")
    assert kept["reasons"] == {"CardInsufficientMemory": ["n1", "n2"], "node unregistered": ["n9"]}
    assert api.get("/api/v1/reservations/uid-p").status_code == 404


@pytest.mark.usefixtures("_three_nodes")
def test_filtered_again_a_pod_gives_its_hold_back_first(
    filtered: Callable[..., Any], used: Callable[..., int]
) -> None:
    for _ in range(3):
        assert filtered(asking("p", gpumem=24000), "n2")["NodeNames"] == ["n2"]
        assert used("GPU-c", "n2") == 24000
    assert filtered(asking("p", gpumem=2000), "n1")["NodeNames"] == ["n1"]
    assert used("GPU-c", "n2") == 0


@pytest.mark.usefixtures("_three_nodes")
def test_a_hold_whose_time_is_up_is_not_in_the_way(
    filtered: Callable[..., Any], settings: Any, clock: Callable[[int], None]
) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, reservation_ttl_seconds=5)
    assert filtered(asking("p", gpumem=24000), "n2")["NodeNames"] == ["n2"]
    assert filtered(asking("q", gpumem=24000), "n2")["FailedNodes"] == {"n2": "1/1 CardInsufficientMemory"}
    clock(6)
    assert filtered(asking("q", gpumem=24000), "n2")["NodeNames"] == ["n2"]
    clock(12)
    shown = [node("n2", card("GPU-c"))]
    assert filtered(asking("r", gpumem=24000), nodes=shown)["Nodes"]["items"] == shown


@pytest.mark.usefixtures("_three_nodes")
def test_a_quotas_refusal_stands_in_place_of_a_nodes(
    send: Callable[..., Any], filtered: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    send(quota("gpu", hard={"limits.nvidia.com/gpumem": "12000"}))
    found = filtered(asking("p", gpumem=5000), "n1", "n2", "n3")
    assert found["FailedNodes"]["n1"] == "1/1 ResourceQuotaNotFit"
    assert found["FailedNodes"].keys() == {"n1", "n2", "n3"}
    [kept] = decisions()
    assert kept["verdict"] == "no-quota"
    assert [(check["requested"], check["used"], check["hard"]) for check in kept["checks"]] == [
        (5000, 10000, 12000)
    ]


@pytest.mark.usefixtures("_three_nodes")
def test_no_names_are_no_nodes(filtered: Callable[..., Any]) -> None:
    assert same(filtered(asking("p", gpumem=1)), NOTHING)


def test_a_pod_that_asks_for_nothing_passes_in_the_form_that_was_asked(
    api: APIClient, filtered: Callable[..., Any]
) -> None:
    plain = asking("p", {})
    assert filtered(plain, "n1", "n2") == {**NOTHING, "NodeNames": ["n1", "n2"]}
    shown = [node("n1"), node("n2")]
    found = filtered(plain, nodes=shown)
    assert found["Nodes"]["items"] == shown
    assert found["NodeNames"] is None
    assert api.get("/api/v1/pods").json()["items"] == []


def test_a_pod_that_is_bound_is_refused_and_keeps_what_it_has(
    api: APIClient, send: Callable[..., Any], decisions: Callable[..., list[Any]], used: Callable[..., int]
) -> None:
    send(node("n1", card("GPU-a")), pod("web", "GPU-a 2000 0"))
    response = api.post("/extender/filter", {"Pod": asking("web", gpumem=9000), "NodeNames": ["n1"]})
    assert response.status_code == 200
    assert "bound" in response.json()["Error"]
    assert used("GPU-a") == 2000
    assert [one["verdict"] for one in decisions()] == ["refused"]


# --- filter with nodes: what if ------------------------------------------------------------------


def test_all_nodes_that_take_the_pod_come_back_as_they_were_sent(filtered: Callable[..., Any]) -> None:
    shown = [
        node("t1", card("GPU-t")),
        node("t2"),
        node("t3", card("GPU-u", health=False)),
        node("t4", card("GPU-v")),
    ]
    shown[3]["spec"] = {"taints": [{"key": "kept"}]}
    found = filtered(asking("p", gpumem=1000), nodes=shown)
    assert found["Nodes"]["items"] == [shown[0], shown[3]]
    assert found["NodeNames"] is None
    assert found["FailedNodes"] == {"t2": "node unregistered", "t3": "1/1 CardNotHealth"}


@pytest.mark.usefixtures("_three_nodes")
def test_what_if_counts_what_known_nodes_hold_and_stores_nothing(
    api: APIClient, filtered: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    before = api.get("/api/v1/ledger").json()
    found = filtered(
        asking("p", gpumem=20000), nodes=[node("n1", card("GPU-a")), node("n2", card("GPU-c", memory=80000))]
    )
    assert [one["metadata"]["name"] for one in found["Nodes"]["items"]] == ["n2"]
    assert found["FailedNodes"] == {"n1": "1/1 CardInsufficientMemory"}
    assert api.get("/api/v1/ledger").json() == before
    assert decisions() == []
    assert api.get("/api/v1/reservations/uid-p").status_code == 404
    assert [one["name"] for one in api.get("/api/v1/nodes").json()["items"]] == ["n1", "n2", "n3"]
    assert api.get("/api/v1/nodes/n2").json()["devices"][0]["memory_mib"]["total"] == 24576


def test_one_node_that_cannot_be_read_fails_alone(filtered: Callable[..., Any]) -> None:
    broken = {"metadata": {"name": "t2"}, "status": []}
    found = filtered(asking("p", gpumem=1000), nodes=[node("t1", card("GPU-t")), broken])
    assert [one["metadata"]["name"] for one in found["Nodes"]["items"]] == ["t1"]
    assert found["FailedNodes"]["t2"].startswith("node unreadable: /status ")


def test_what_if_a_pod_has_no_uid_and_a_request_nobody_can_grant(
    api: APIClient, filtered: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    shown = [node("t1", card("GPU-t"))]
    assert filtered(asking("p", uid="", gpumem=1), nodes=shown)["Nodes"]["items"] == shown
    response = api.post(
        "/extender/filter", {"Pod": asking("p", gpumem="16Gi"), "Nodes": {"items": shown}}
    ).json()
    assert "16Gi" in response["Error"]
    assert decisions() == []


# --- what cannot be answered ---------------------------------------------------------------------


def raw(api: APIClient, path: str, body: bytes, **headers: Any) -> Any:
    response = api.generic("POST", path, body, content_type="application/json", **headers)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "application/json"
    return response.json()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "empty"),
        (b"{", "no JSON"),
        (b"<html>", "no JSON"),
        (b"[]", "must be an object"),
        (b"null", "must be an object"),
        (b"{}", "extender args missing pod"),
        (b'{"Pod": null}', "extender args missing pod"),
        (b'{"Pod": {"spec": {}}}', "extender args missing nodes"),
        (b'{"Pod": {"spec": {"containers": 7}}, "NodeNames": ["n1"]}', "must be a list"),
        (b" " * (8 * 2**20 + 1), "the limit is 8388608"),
    ],
)
def test_bad_bodies_are_told_in_the_protocols_words(api: APIClient, body: bytes, told: str) -> None:
    found = raw(api, "/extender/filter", body)
    assert told in found.pop("Error")
    assert found == {key: value for key, value in NOTHING.items() if key != "Error"}
    assert all(one["Score"] == 0 for one in raw(api, "/extender/prioritize", body))


def test_whatever_a_body_is_called_it_is_read_as_json(api: APIClient) -> None:
    response = api.generic(
        "POST", "/extender/filter", b'{"Pod": {}, "NodeNames": ["n1"]}', content_type="text/plain"
    )
    assert response.json() == {**NOTHING, "NodeNames": ["n1"]}


def test_a_pod_without_uid_cannot_be_held(api: APIClient, send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a")))
    response = api.post("/extender/filter", {"Pod": asking("p", uid="", gpumem=1), "NodeNames": ["n1"]})
    assert "uid" in response.json()["Error"]


@pytest.mark.parametrize("path", ["/extender/filter", "/extender/prioritize"])
def test_a_database_that_went_away(api: APIClient, path: str) -> None:
    def fail(*_: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(fail):
        response = api.post(path, {"Pod": asking("p", gpumem=1), "NodeNames": ["n1"]})
    assert response.status_code == 200
    if path.endswith("filter"):
        assert response.json()["Error"] == "the database does not answer"
    else:
        assert response.json() == [{"Host": "n1", "Score": 0}]


def test_a_lock_that_is_not_free_in_time(api: APIClient, send: Callable[..., Any]) -> None:
    def held_by_somebody(execute: Any, statement: str, *more: Any) -> Any:
        if "hamiacct_lock_pod" in statement:
            cause = Exception()
            cause.sqlstate = "55P03"  # type: ignore[attr-defined]
            raise OperationalError("canceling statement due to lock timeout") from cause
        return execute(statement, *more)

    send(node("n1", card("GPU-a")))
    with connection.execute_wrapper(held_by_somebody):
        response = api.post("/extender/filter", {"Pod": asking("p", gpumem=1), "NodeNames": ["n1"]})
    assert response.status_code == 200
    assert "lock" in response.json()["Error"]


def test_a_bug_is_no_answer(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "vendors", lambda: 1 / 0)
    response = api.post("/extender/filter", {"Pod": asking("p", gpumem=1), "NodeNames": ["n1"]})
    assert response.status_code == 500


# --- prioritize ----------------------------------------------------------------------------------


@pytest.fixture
def scores(api: APIClient) -> Callable[..., dict[str, int]]:
    """Asks for scores; answers them by host."""

    def scores(asked: dict[str, Any], **form: Any) -> dict[str, int]:
        response = api.post("/extender/prioritize", {"Pod": asked, **form})
        assert response.status_code == 200
        return {one["Host"]: one["Score"] for one in response.json()}

    return scores


@pytest.mark.usefixtures("_three_nodes")
@pytest.mark.parametrize(
    ("policy", "right"), [("binpack", [10, 1, 0, 0]), ("spread", [1, 10, 0, 0]), ("random", [0, 0, 0, 0])]
)
def test_the_best_node_scores_highest_and_who_does_not_fit_nothing(
    scores: Callable[..., dict[str, int]], policy: str, right: list[int]
) -> None:
    asked = asking("p", gpumem=5000, annotations={"hami.io/node-scheduler-policy": policy})
    names = ["n1", "n2", "n3", "n9"]
    assert scores(asked, NodeNames=names) == dict(zip(names, right, strict=True))
    shown = [node("n1", card("GPU-a")), node("n2", card("GPU-c")), node("n3"), node("n9")]
    assert scores(asked, Nodes={"items": shown}) == dict(zip(names, right, strict=True))


@pytest.mark.usefixtures("_three_nodes")
def test_the_node_that_holds_the_pod_takes_it(
    filtered: Callable[..., Any], scores: Callable[..., dict[str, int]]
) -> None:
    asked = asking("p", gpumem=24000)
    assert filtered(asked, "n2")["NodeNames"] == ["n2"]
    assert scores(asked, NodeNames=["n2"]) == {"n2": 10}


@pytest.mark.usefixtures("_three_nodes")
def test_a_hold_whose_time_is_up_takes_nothing_from_a_score(
    filtered: Callable[..., Any],
    scores: Callable[..., dict[str, int]],
    settings: Any,
    clock: Callable[[int], None],
) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, reservation_ttl_seconds=5)
    filtered(asking("p", gpumem=24000), "n2")
    assert scores(asking("q", gpumem=24000), NodeNames=["n2"]) == {"n2": 0}
    clock(6)
    assert scores(asking("q", gpumem=24000), NodeNames=["n2"]) == {"n2": 10}


def test_a_pod_that_asks_for_nothing_needs_no_database(api: APIClient) -> None:
    def fail(*_: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(fail):
        response = api.post("/extender/filter", {"Pod": asking("p", {}), "NodeNames": ["n1"]})
    assert response.json() == {**NOTHING, "NodeNames": ["n1"]}


def test_without_wishes_or_without_books_nothing_speaks_for_any_node(
    scores: Callable[..., dict[str, int]],
) -> None:
    assert scores(asking("p", {}), NodeNames=["n1", "n2"]) == {"n1": 0, "n2": 0}
    assert scores(asking("p", gpumem=1), NodeNames=["n1", "n2"]) == {"n1": 0, "n2": 0}


# --- who may call --------------------------------------------------------------------------------


def status_of(path: str, **headers: Any) -> int:
    return int(APIClient().post(path, {}, **headers).status_code)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def token() -> str:
    return tokens.create("kube-scheduler", Role.SCHEDULER, at=datetime.now(UTC))


@pytest.mark.parametrize("path", ["/extender/filter", "/extender/prioritize", "/extender/bind"])
def test_a_token_is_a_bearer_or_a_password(token: str, path: str) -> None:
    viewer = tokens.create("viewer", Role.VIEWER, at=datetime.now(UTC))
    assert status_of(path, HTTP_AUTHORIZATION=f"Bearer {token}") == 200
    assert status_of(path, HTTP_AUTHORIZATION=basic("anybody", token)) == 200
    assert status_of(path, HTTP_AUTHORIZATION=basic("", token)) == 200
    assert status_of(path, HTTP_AUTHORIZATION=basic("anybody", viewer)) == 403
    assert status_of(path, HTTP_AUTHORIZATION=basic(token, "unheard-of")) == 401
    for nobody in ("Basic", "Basic !", "Basic Og==", basic("a", ""), "Bearer", ""):
        assert status_of(path, HTTP_AUTHORIZATION=nobody) == 401
    assert status_of(path) == 401


def test_a_password_opens_nothing_else(token: str) -> None:
    response = APIClient().get("/api/v1/pods", HTTP_AUTHORIZATION=basic("anybody", token))
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("mode", "environment", "status"),
    [
        ("loopback", {"REMOTE_ADDR": "127.0.0.1"}, 200),
        ("loopback", {"REMOTE_ADDR": "127.8.9.1"}, 200),
        ("loopback", {"REMOTE_ADDR": "::1"}, 200),
        ("loopback", {"REMOTE_ADDR": "::ffff:127.0.0.1"}, 200),
        ("loopback", {"REMOTE_ADDR": "10.0.0.1"}, 401),
        ("loopback", {"REMOTE_ADDR": "::ffff:10.0.0.1"}, 401),
        ("loopback", {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "127.0.0.1"}, 401),
        ("loopback", {"REMOTE_ADDR": ""}, 401),
        ("cert", {"wsgi.url_scheme": "https"}, 200),
        ("cert", {"wsgi.url_scheme": "http"}, 401),
        ("cert", {"wsgi.url_scheme": "http", "HTTP_X_FORWARDED_PROTO": "https"}, 401),
        ("none", {"REMOTE_ADDR": "10.0.0.1"}, 200),
        ("token", {"REMOTE_ADDR": "127.0.0.1", "wsgi.url_scheme": "https"}, 401),
    ],
)
def test_other_ways_to_know_the_caller(
    settings: Any, mode: str, environment: dict[str, str], status: int
) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, extender_auth=mode)
    assert status_of("/extender/filter", **environment) == status
    assert status_of("/api/v1/fit", **environment) == 401

"""The questions in the field reports, and HAMi's filter cases, asked over HTTP.

Their events are told in test_field_reports; admission has its own tests. Where HAMi and the right answer
differ, the right one counts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from rest_framework.test import APIClient

from devservers.pytest_plugin import OPERATOR_TOKEN
from tests import cases, watch
from tests.asking import asking, limits
from tests.conftest import client_with
from tests.conversations.books import Books, Held, in_process
from tests.conversations.test_field_reports import (
    OF_QUESTIONS,
    assert_quotas,
    device,
    expected,
    given,
)

GPUMEM = "nvidia.com/gpumem"
NODE_KEY = "hami.io/vgpu-node"

OF_ADMISSION = {"BR-26", "BR-27", "BR-28", "BR-29"}
OF_THE_ADMIN = {"BR-36"}
TOLD = {"BR-19", "BR-20", "BR-21", "BR-32", "BR-33", "BR-34", "BR-42"}

numbers = count(1)


def test_every_report_that_only_asks_is_told_here_or_elsewhere() -> None:
    assert TOLD | OF_ADMISSION | OF_THE_ADMIN == OF_QUESTIONS


@pytest.fixture(autouse=True)
def _complete(request: pytest.FixtureRequest) -> None:
    """Events are all there is: the books are declared complete."""
    if "books" in request.fixturenames:
        books = request.getfixturevalue("books")
        assert books.call("POST", "/api/v1/snapshots?complete=1")[0] == 200


def fit(books: Books, pod: Mapping[str, Any], **more: Any) -> Any:
    status, body = books.call("POST", "/api/v1/fit", {"pod": pod, **more})
    assert status == 200, body
    return body


def fits(books: Books, ask: Mapping[str, Any]) -> bool:
    """Whether a pod of one container with this in shorthand fits somewhere."""
    return bool(fit(books, asking(f"asks-{next(numbers)}", **ask))["fits"])


def check(books: Books, ask: Mapping[str, Any]) -> Any:
    """What the quotas say of a pod of one container with this in shorthand."""
    ask = {"gpu": 1, **ask}
    namespace = ask.pop("ns", "team-a")
    status, body = books.call(
        "POST",
        "/api/v1/quota/check",
        {"pod": asking(f"asks-{next(numbers)}", namespace=namespace, **ask)},
    )
    assert status == 200, body
    return body


def asked(books: Books, steps: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """Does the steps in order, and gives the answers to those that ask."""
    for step in steps:
        if "type" in step:
            books.post_events(dict(step))
        elif "fit" in step:
            yield fits(books, step["fit"])
        else:
            yield check(books, step["check"])["allowed"]


def charged(candidate: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate's charge in the words of the reports."""
    return {
        one["device"]: {"usedmem": one["memory_mib"], "usedcores": one["cores"], "used": one["slots"]}
        for one in candidate["charge"]
    }


def words(allowed: Sequence[bool]) -> list[str]:
    return ["allowed" if one else "denied" for one in allowed]


def filter_by_names(books: Books, pod: Mapping[str, Any], *names: str) -> Any:
    status, body = books.call("POST", "/extender/filter", {"Pod": pod, "NodeNames": list(names)})
    assert status == 200, body
    assert body["Error"] == ""
    return body


def gpumem_quota(hard: int) -> dict[str, Any]:
    return watch.quota("gpu", hard={f"limits.{GPUMEM}": str(hard)})


# --- fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(given("BR-19")["cases"])))
def test_br19_an_init_container_without_a_card_does_not_move_the_others(books: Books, number: int) -> None:
    case, right = given("BR-19")["cases"][number], expected("BR-19")["fit"][number]
    books.applied(given("BR-19")["node"], gpumem_quota(case["quota"]), type_="ADDED")
    pod = asking("p")
    pod["spec"] = case["pod"]
    found = fit(books, pod)
    assert found["fits"] is right["fits"]
    if right["fits"]:
        assert charged(found["candidates"][0]) == right["charged"]
    else:
        assert [one["message"] for one in found["failed"]] == [right["reason"]]


@pytest.mark.parametrize("name", given("BR-20")["nodes"])
def test_br20_as_many_cards_as_a_container_asks_for(books: Books, name: str) -> None:
    cards, right = given("BR-20")["nodes"][name], expected("BR-20")[name]
    books.applied(watch.node(name, *cards), type_="ADDED")
    pod = asking("p")
    pod["spec"]["containers"] = given("BR-20")["pod"]
    found = fit(books, pod)
    assert found["fits"] is right["fits"]
    if right["fits"]:
        assert charged(found["candidates"][0]) == right["charged"]
    else:
        assert [one["message"] for one in found["failed"]] == [right["reason"]]


@pytest.mark.parametrize("number", range(len(given("BR-21")["cases"])))
def test_br21_a_percentage_is_of_each_card(books: Books, number: int) -> None:
    case, right = given("BR-21")["cases"][number], expected("BR-21")["fit"][number]
    books.applied(given("BR-21")["node"], gpumem_quota(given("BR-21")["quota"]), type_="ADDED")
    pod = asking("p", **case)
    found = fit(books, pod)
    assert found["fits"] is right["fits"]
    if right["fits"]:
        assert charged(found["candidates"][0]) == right["charged"]
        status, held = books.call("POST", "/api/v1/reservations", {"pod": pod})
        assert (status, charged(held)) == (201, right["charged"])
        assert books.quota_used("team-a", GPUMEM) == right["quota_used"]
        books.agree()


# --- the extender --------------------------------------------------------------------------------


def test_br32_what_if_neither_vetoes_ordinary_pods_nor_leaves_traces(books: Books) -> None:
    for body, right in zip(given("BR-32")["POST filter"], expected("BR-32")["results"], strict=True):
        pod = body["Pod"]
        body = {**body, "Pod": {**pod, "metadata": {"name": "p", "uid": pod.get("uid", "u-web")}}}
        status, found = books.call("POST", "/extender/filter", body)
        assert (status, found["Error"]) == (200, "")
        if "Nodes" in right:
            assert [one["metadata"]["name"] for one in found["Nodes"]["items"]] == right["Nodes"]
            assert (found["FailedNodes"] or {}) == right["FailedNodes"]
            assert found["NodeNames"] is None
        else:
            assert found["NodeNames"] == right["NodeNames"]
            assert found["Nodes"] is None
    assert books.call("GET", "/api/v1/reservations/u-x")[0] == 404
    assert expected("BR-32")["stored_reservations_after"] == 0
    assert books.get("/api/v1/nodes")["items"] == []
    assert books.get("/api/v1/pods")["items"] == []


def test_br33_one_pod_is_one_booking_however_often_it_is_filtered(books: Books) -> None:
    *steps, first, second = given("BR-33")["steps"]
    filters, events = steps[:3], steps[3:]
    assert set(filters) == {"filter u-1 (gpu 1, gpumem 10000) on [n1]"}
    assert events[1:] == ["same event again", "ADDED with the same content"]
    books.applied(given("BR-33")["node"], type_="ADDED")
    pod = asking("p1", uid="u-1", gpumem=10000)
    memory = []
    for _ in filters:
        assert filter_by_names(books, pod, "n1")["NodeNames"] == ["n1"]
        memory.append(device(books, "GPU-a").memory_mib)
    for type_ in (events[0]["type"], events[0]["type"], "ADDED"):
        books.post_events({"type": type_, "object": events[0]["object"]})
        memory.append(device(books, "GPU-a").memory_mib)
    right = expected("BR-33")
    assert memory == right["usedmem_GPU-a_after_each_step"]
    assert device(books, "GPU-a").slots == right["slots"]
    assert_quotas(books, right["quota_used"])
    assert list(asked(books, [first, second])) == right["fit"]
    assert books.get("/api/v1/reservations/u-1")["state"] == "confirmed"


def test_br34_the_refusal_says_why_and_still_does_later(books: Books) -> None:
    books.post_events(*given("BR-34")["events"])
    body = given("BR-34")["POST filter"]
    pod = asking("q", uid=body["Pod"]["uid"])
    pod["spec"] = body["Pod"]["spec"]
    found = filter_by_names(books, pod, *body["NodeNames"])
    right = expected("BR-34")
    assert found["FailedNodes"] == right["FailedNodes"]
    assert (found["NodeNames"] or []) == right["NodeNames"]
    [kept] = books.get(f"/api/v1/decisions?pod={pod['metadata']['uid']}")["items"]
    assert kept["reasons"] == {
        "CardInsufficientMemory": ["n1"],
        "CardNotHealth": ["n2"],
        "node unregistered": ["n3", "n4"],
    }
    assert all(message in kept["message"] for message in right["FailedNodes"].values())


def test_br42_a_large_what_if_is_answered_whole(books: Books) -> None:
    padding = {f"padding/{number}": "x" * 900 for number in range(10)}
    nodes = [watch.node(f"t-{number}", **padding) for number in range(499)]
    nodes.append(watch.node("t-499", watch.card("GPU-t"), **padding))
    for node in nodes[:-1]:
        del node["metadata"]["annotations"][watch.REGISTER]
    body = {"Pod": asking("p", **given("BR-42")["POST filter"]["Pod"]), "Nodes": {"items": nodes}}
    assert 4_500_000 < len(json.dumps(body)) < 8 * 2**20
    status, found = books.call("POST", "/extender/filter", body)
    right = expected("BR-42")
    assert (status, found["Error"]) == (right["status"], "")
    assert [one["metadata"]["name"] for one in found["Nodes"]["items"]] == right["Nodes"]
    assert len(found["FailedNodes"]) == right["FailedNodes_count"]


# --- questions among events ----------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["BR-09", "BR-10", "BR-45"])
def test_the_very_next_question_sees_what_an_event_changed(books: Books, id_: str) -> None:
    assert list(asked(books, given(id_)["events"])) == expected(id_)["fit"]


def test_br44_what_a_lost_delete_held_is_free_after_the_full_list(books: Books) -> None:
    books.post_events(*given("BR-44")["before"])
    assert not fits(books, given("BR-44")["fit"][0])
    assert books.call("POST", "/api/v1/snapshots", given("BR-44")["resync"])[0] == 200
    assert [fits(books, ask) for ask in given("BR-44")["fit"]] == expected("BR-44")["fit"]


def test_br11_two_cards_are_asked_for_twice(books: Books) -> None:
    books.post_events(*given("BR-11")["events"])
    told, right = given("BR-11"), expected("BR-11")
    asks = [*told["check"], *(step["check"] for step in told["then"] if "check" in step)]
    rights = [*right["check"], *right["then"]]
    for number, (ask, want) in enumerate(zip(asks, rights, strict=True)):
        if number == len(told["check"]):
            books.post_events(*(step for step in told["then"] if "type" in step))
        found = check(books, ask)
        assert found["allowed"] is want["allowed"]
        over = [one["resource"].removeprefix("nvidia.com/") for one in found["checks"] if not one["allowed"]]
        assert over == want.get("violated", [])


@pytest.mark.parametrize("order", given("BR-13")["orders"])
def test_br13_the_tightest_quota_answers(books: Books, order: str) -> None:
    steps = list(given("BR-13")["events"])
    if order != "strict then loose":
        steps[0], steps[1] = steps[1], steps[0]
    assert words(list(asked(books, steps))) == expected("BR-13")["check_in_both_orders"]


def test_br14_only_keys_that_are_enforced_deny(books: Books) -> None:
    books.post_events(*given("BR-14")["events"])
    found = [check(books, ask)["allowed"] for ask in given("BR-14")["check"]]
    found += asked(books, given("BR-14")["then"])
    assert words(found) == expected("BR-14")["check"]


def test_br35_a_limit_below_use_denies_until_there_is_room(books: Books) -> None:
    assert words(list(asked(books, given("BR-35")["events"]))) == expected("BR-35")["check"]


def test_br38_after_a_double_release_there_is_as_much_room_as_before(books: Books) -> None:
    books.post_events(*given("BR-38")["events"])
    found = [check(books, ask)["allowed"] for ask in given("BR-38")["check"]]
    assert words(found) == expected("BR-38")["check"]


# --- races ---------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_br18_of_two_filters_at_once_exactly_one_finds_room() -> None:
    books = Books(in_process(client_with(OPERATOR_TOKEN)))
    assert books.call("POST", "/api/v1/snapshots?complete=1")[0] == 200
    node, quota, _ = given("BR-18")["given"]
    books.applied(node, quota, watch.pod("x", "GPU-a 8000 0"), type_="ADDED")
    right = expected("BR-18")["each_run"]
    pods = [
        asking(
            body["Pod"]["name"],
            uid=body["Pod"]["uid"],
            **{name: body["Pod"][name] for name in ("gpu", "gpumem")},
        )
        for body in given("BR-18")["parallel_filter"]
    ]
    start = Barrier(len(pods))

    def filter_(pod: dict[str, Any]) -> Any:
        try:
            client: APIClient = client_with(OPERATOR_TOKEN)
            start.wait()
            return client.post("/extender/filter", {"Pod": pod, "NodeNames": ["n1"]}, format="json").json()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(pods)) as threads:
        for _ in range(given("BR-18")["repeat"]):
            found = list(threads.map(filter_, pods))
            assert [one["Error"] for one in found] == [""] * len(pods)
            accepted = [one for one in found if one["NodeNames"]]
            refused = [one for one in found if one["FailedNodes"]]
            assert (len(accepted), len(refused)) == (right["accepted"], right["refused"])
            assert right["refused_reason_contains"] in refused[0]["FailedNodes"]["n1"]
            assert_quotas(books, right["quota_used"])
            for pod in pods:
                books.call("DELETE", f"/api/v1/reservations/{pod['metadata']['uid']}")
    books.agree()


# --- HAMi's filter -------------------------------------------------------------------------------


def as_registered(card: Mapping[str, Any]) -> dict[str, Any]:
    """A card of a case in the words of a register."""
    return {
        "id": card["id"],
        "index": card["index"],
        "count": card["count"],
        "devmem": card["totalmem"],
        "devcore": card["totalcore"],
        "type": card["type"],
        "numa": card["numa"],
        "mode": card["mode"],
        "health": card["health"],
    }


def of_request(request: Mapping[str, Any] | None) -> dict[str, str]:
    """A request of a case as limits."""
    if request is None:
        return {}
    assert request["pct"] == 101
    return limits(gpu=request["nums"], gpumem=request["mem"], gpucores=request["cores"])


@pytest.mark.parametrize(("case", "right"), cases.of_kind("filter"))
def test_filter_chooses_the_node_and_the_card_that_hami_does(
    books: Books, case: Mapping[str, Any], right: Mapping[str, Any]
) -> None:
    for name, cards in case["nodes"].items():
        books.applied(watch.node(name, *map(as_registered, cards)), type_="ADDED")
        for card in cards:
            assert card["used"] in (0, 1)
            if card["used"]:
                group = f"{card['id']} {card['usedmem']} {card['usedcores']}"
                books.applied(watch.pod(f"on-{card['id']}", group, node=name), type_="ADDED")
            assert books.used(name, card["id"]) == Held(card["used"], card["usedmem"], card["usedcores"])
    spec = case["pod"]["spec"]
    pod = asking(
        "p",
        *map(of_request, case["requests"]),
        inits=len(spec["initContainers"]),
        annotations=case["annotations"],
    )
    assert filter_by_names(books, pod, *case["nodes"])["NodeNames"] == [right["node"]]
    held = books.get(f"/api/v1/reservations/{pod['metadata']['uid']}")
    assert held["annotations"][NODE_KEY] == right["node"]
    app = held["allocation"][len(spec["initContainers"])]
    [placed] = app["devices"]
    assert placed["uuid"] in right["appDeviceOneOf"]
    books.agree()

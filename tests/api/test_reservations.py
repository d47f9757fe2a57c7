"""POST /api/v1/reservations; GET, DELETE and bound of one"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from rest_framework.test import APIClient

from tests.asking import asking, limits
from tests.watch import card, node, pod, quota

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("complete", "books_agree")]

PATH = "/api/v1/reservations"


@pytest.fixture
def reserve(api: APIClient) -> Callable[..., Any]:
    """Asks for a hold; answers the response."""

    def reserve(asked: dict[str, Any], **more: Any) -> Any:
        return api.post(PATH, {"pod": asked, **more})

    return reserve


@pytest.fixture
def _two_nodes(send: Callable[..., Any]) -> None:
    send(node("n1", card("GPU-a"), card("GPU-b")), node("n2", card("GPU-c")))


# --- taking --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_two_nodes")
def test_a_hold_is_a_candidate_that_is_charged(
    api: APIClient, reserve: Callable[..., Any], used: Callable[..., int]
) -> None:
    proposed = api.post("/api/v1/fit", {"pod": asking("p", gpumem=3000)}).json()["candidates"][0]
    response = reserve(asking("p", gpumem=3000))
    assert response.status_code == 201
    held = response.json()
    assert (held["pod_uid"], held["state"]) == ("uid-p", "held")
    left = datetime.fromisoformat(held["expires_at"]) - timezone.now()
    assert timedelta(seconds=880) < left <= timedelta(seconds=900)
    for field in ("node", "score", "allocation", "charge", "labels"):
        assert held[field] == proposed[field]
    assert held["annotations"].keys() == proposed["annotations"].keys()
    uuid = held["allocation"][0]["devices"][0]["uuid"]
    assert used(uuid, held["node"]) == 3000
    assert api.get("/api/v1/pods/uid-p").json()["state"] == "reserved"
    assert api.get(f"{PATH}/uid-p").json() == held


@pytest.mark.usefixtures("_two_nodes")
def test_a_reserved_pod_shows_the_devices_of_each_container(
    api: APIClient, reserve: Callable[..., Any]
) -> None:
    held = reserve(asking("p", limits(gpu=2, gpumem=1000), {}, limits(gpumem=500, gpucores=10))).json()
    shown = api.get("/api/v1/pods/uid-p").json()
    assert [one["devices"] for one in shown["containers"]] == [one["devices"] for one in held["allocation"]]
    api.delete(f"{PATH}/uid-p")
    assert [one["devices"] for one in api.get("/api/v1/pods/uid-p").json()["containers"]] == [[], [], []]


@pytest.mark.usefixtures("_two_nodes")
def test_a_hold_lives_as_long_as_asked(reserve: Callable[..., Any]) -> None:
    held = reserve(asking("p", gpumem=3000), ttl_seconds=60).json()
    left = datetime.fromisoformat(held["expires_at"]) - timezone.now()
    assert timedelta(seconds=50) < left <= timedelta(seconds=60)


@pytest.mark.usefixtures("_two_nodes")
@pytest.mark.parametrize("where", [{"nodes": ["n2"]}, {"node": "n2"}])
def test_only_where_it_may_be(reserve: Callable[..., Any], where: dict[str, Any]) -> None:
    assert reserve(asking("p", gpumem=3000), **where).json()["node"] == "n2"


@pytest.mark.usefixtures("_two_nodes")
def test_a_second_call_moves_the_hold(reserve: Callable[..., Any], used: Callable[..., int]) -> None:
    reserve(asking("p", gpumem=3000), node="n2")
    assert reserve(asking("p", gpumem=20000), node="n1").status_code == 201
    assert used("GPU-c", "n2") == 0


@pytest.mark.usefixtures("_two_nodes")
def test_null_is_not_given(reserve: Callable[..., Any]) -> None:
    empty = {"nodes": None, "node": None, "ttl_seconds": None, "allocation": None}
    assert reserve(asking("p", gpumem=3000), **empty).status_code == 201


MIG_PROFILE = {
    "name": "3g.20gb",
    "memoryMB": 19968,
    "core": 14,
    "sliceCount": 3,
    "placements": [{"start": 0, "size": 4}, {"start": 4, "size": 4}],
}


def mig_node() -> dict[str, Any]:
    return node("n1", card("GPU-m", memory=80000, slots=7, mode="mig", migProfiles=[MIG_PROFILE]))


def test_a_second_call_gives_the_mig_place_back(
    api: APIClient, send: Callable[..., Any], reserve: Callable[..., Any]
) -> None:
    send(mig_node())
    for name in ("p", "q"):
        assert reserve(asking(name, gpumem=10000)).status_code == 201
    assert reserve(asking("r", gpumem=10000)).status_code == 409
    assert api.post("/api/v1/fit", {"pod": asking("p", gpumem=10000)}).json()["fits"]
    answer = api.post("/extender/filter", {"Pod": asking("p", gpumem=10000), "NodeNames": ["n1"]}).json()
    assert answer["NodeNames"] == ["n1"]
    again = reserve(asking("q", gpumem=10000))
    assert again.status_code == 201
    claim = {"node": "n1", "allocation": again.json()["allocation"]}
    assert reserve(asking("q", gpumem=10000), **claim).status_code == 201


def test_a_simulation_knows_the_mig_places_that_are_taken(
    api: APIClient, send: Callable[..., Any], reserve: Callable[..., Any]
) -> None:
    send(mig_node())
    for name in ("p", "q"):
        assert reserve(asking(name, gpumem=10000)).status_code == 201
    body = {"Pod": asking("r", gpumem=10000), "Nodes": {"items": [mig_node()]}}
    refused = api.post("/extender/filter", body).json()
    assert refused["FailedNodes"] == {"n1": "1/1 CardMigTopologyInfeasible"}
    own = api.post("/extender/filter", {**body, "Pod": asking("p", gpumem=10000)}).json()
    assert [one["metadata"]["name"] for one in own["Nodes"]["items"]] == ["n1"]


# --- claiming ------------------------------------------------------------------------------------


def claimed(*rows: tuple[str, int, int], position: int = 0, vendor: str = "NVIDIA") -> list[dict[str, Any]]:
    devices = [
        {"uuid": uuid, "vendor": vendor, "memory_mib": memory, "cores": cores} for uuid, memory, cores in rows
    ]
    return [{"position": position, "devices": devices}]


@pytest.mark.usefixtures("_two_nodes")
def test_a_candidate_can_be_claimed_as_it_is(api: APIClient, reserve: Callable[..., Any]) -> None:
    asked = asking("p", limits(gpu=2, gpumem=1000), {}, limits(gpumem=500, gpucores=10))
    [candidate] = api.post("/api/v1/fit", {"pod": asked}).json()["candidates"]
    held = reserve(asked, node=candidate["node"], allocation=candidate["allocation"])
    assert held.status_code == 201
    assert held.json()["allocation"] == candidate["allocation"]
    assert held.json()["charge"] == candidate["charge"]


@pytest.mark.usefixtures("_two_nodes")
def test_a_claim_holds_what_ours_would_not_have_chosen(
    reserve: Callable[..., Any], used: Callable[..., int]
) -> None:
    for uuid in ("GPU-a", "GPU-b"):
        held = reserve(asking("p", gpumem=3000), node="n1", allocation=claimed((uuid, 3000, 0)))
        assert held.status_code == 201
        assert (used("GPU-a"), used("GPU-b")) == ((3000, 0) if uuid == "GPU-a" else (0, 3000))


@pytest.mark.usefixtures("_two_nodes")
@pytest.mark.parametrize(
    ("node_name", "allocation"),
    [
        ("n1", claimed(("GPU-a", 2000, 0))),
        ("n1", claimed(("GPU-a", 3000, 1))),
        ("n1", claimed(("GPU-c", 3000, 0))),
        ("n1", claimed(("GPU-a", 3000, 0), ("GPU-b", 3000, 0))),
        ("n1", claimed(("GPU-a", 3000, 0), ("GPU-a", 3000, 0))),
        ("n1", claimed(("GPU-a", 3000, 0), position=1)),
        ("n1", claimed(("GPU-a", 3000, 0), vendor="DCU")),
        ("n1", []),
        ("n9", claimed(("GPU-a", 3000, 0))),
    ],
)
def test_a_claim_that_ours_would_not_be_is_refused_and_holds_nothing(
    api: APIClient, reserve: Callable[..., Any], node_name: str, allocation: Any
) -> None:
    response = reserve(asking("p", gpumem=3000), node=node_name, allocation=allocation)
    assert response.status_code == 409
    assert response.json()["type"] == "/problems/insufficient-capacity"
    assert [one["node"] for one in response.json()["failed"]] == [node_name]
    assert api.get(f"{PATH}/uid-p").status_code == 404


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"allocation": claimed(("GPU-a", 1, 0))}, "/node"),
        ({"node": "n1", "allocation": [*claimed(), *claimed()]}, "/allocation"),
        ({"node": "n1", "allocation": claimed(("GPU-a", -1, 0))}, "/allocation/0/devices/0/memory_mib"),
        ({"node": "n1", "allocation": [{"devices": []}]}, "/allocation/0/position"),
        ({"node": "n1", "allocation": claimed(position=99999)}, "/allocation/0/position"),
        ({"node": "n1", "allocation": [None]}, "/allocation/0"),
        ({"ttl_seconds": 0}, "/ttl_seconds"),
        ({"ttl_seconds": 10**9}, "/ttl_seconds"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(
    reserve: Callable[..., Any], more: dict[str, Any], pointer: str
) -> None:
    response = reserve(asking("p", gpumem=1), **more)
    assert response.status_code == 400
    assert [fault["pointer"] for fault in response.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        (asking("p", gpumem=1, uid=""), "/pod/metadata/uid"),
        (asking("p", {}), "/pod/spec"),
        (asking("p", gpumem="1.5"), "/pod/spec/containers/0/resources"),
    ],
)
def test_there_must_be_somebody_to_hold_something_for(
    reserve: Callable[..., Any], asked: dict[str, Any], pointer: str
) -> None:
    response = reserve(asked)
    assert response.status_code == 400
    assert [fault["pointer"] for fault in response.json()["errors"]] == [pointer]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_two_nodes")
def test_without_room_every_node_says_why_and_an_old_hold_is_gone(
    reserve: Callable[..., Any], decisions: Callable[..., list[Any]], used: Callable[..., int]
) -> None:
    reserve(asking("p", gpumem=3000), node="n2")
    response = reserve(asking("p", gpumem=30000))
    assert response.status_code == 409
    body = response.json()
    assert body["type"] == "/problems/insufficient-capacity"
    assert {one["node"]: one["message"] for one in body["failed"]} == {
        "n1": "2/2 CardInsufficientMemory",
        "n2": "1/1 CardInsufficientMemory",
    }
    assert body["reasons"] == {"CardInsufficientMemory": ["n1", "n2"]}
    assert used("GPU-c", "n2") == 0
    [kept] = decisions()
    assert (kept["question"], kept["verdict"], kept["pod_uid"]) == ("reservation", "no-fit", "uid-p")
    assert kept["reasons"] == body["reasons"]
    assert "2/2 CardInsufficientMemory (n1)" in kept["message"]


@pytest.mark.usefixtures("_two_nodes")
def test_a_quota_in_the_way_is_another_refusal_with_the_numbers(
    send: Callable[..., Any], reserve: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    send(quota("gpu", hard={"limits.nvidia.com/gpumem": "20000", "limits.nvidia.com/gpucores": "90"}))
    assert reserve(asking("p", gpumem=3000, gpucores=10)).status_code == 201
    response = reserve(asking("q", **{"gpu": 1, "gpumem-percentage": 100}))
    assert response.status_code == 403
    body = response.json()
    assert body["type"] == "/problems/quota-exceeded"
    # The size is the card's: at admission it was not known. A whole card's cores are asked for by default.
    judged = {check.pop("resource"): check for check in body["checks"]}
    assert judged == {
        "nvidia.com/gpumem": {
            "quota": "gpu",
            "requested": 24576,
            "used": 3000,
            "hard": 20000,
            "allowed": False,
        },
        "nvidia.com/gpucores": {
            "quota": "gpu",
            "requested": 100,
            "used": 10,
            "hard": 90,
            "allowed": False,
        },
    }
    assert set(body["reasons"]) >= {"ResourceQuotaNotFit"}
    [kept] = decisions()
    assert kept["verdict"] == "no-quota"
    assert [check["requested"] for check in kept["checks"]] == [one["requested"] for one in body["checks"]]


@pytest.mark.usefixtures("_two_nodes")
def test_for_a_bound_pod_nothing_is_held_and_nothing_changes(
    send: Callable[..., Any],
    reserve: Callable[..., Any],
    decisions: Callable[..., list[Any]],
    used: Callable[..., int],
) -> None:
    send(pod("web", "GPU-a 2000 0"))
    response = reserve(asking("web", gpumem=5000))
    assert response.status_code == 409
    assert response.json()["type"] == "/problems/conflict"
    assert used("GPU-a") == 2000
    assert [kept["verdict"] for kept in decisions()] == ["refused"]


@pytest.mark.usefixtures("_two_nodes")
def test_a_lock_that_is_not_free_in_time_is_no_refusal(
    reserve: Callable[..., Any], decisions: Callable[..., list[Any]]
) -> None:
    def held_by_somebody(execute: Any, statement: str, *more: Any) -> Any:
        if "hamiacct_claims_devices" in statement:
            cause = Exception()
            cause.sqlstate = "55P03"  # type: ignore[attr-defined]
            raise OperationalError("canceling statement due to lock timeout") from cause
        return execute(statement, *more)

    with connection.execute_wrapper(held_by_somebody):
        response = reserve(asking("p", gpumem=3000))
    assert response.status_code == 503
    assert int(response.headers["Retry-After"]) > 0
    assert "lock" in response.json()["detail"]
    assert decisions() == []


# --- its life ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_two_nodes")
def test_a_hold_is_given_back_once_and_again(
    api: APIClient, reserve: Callable[..., Any], used: Callable[..., int]
) -> None:
    reserve(asking("p", gpumem=3000), node="n2")
    for _ in range(2):
        response = api.delete(f"{PATH}/uid-p")
        assert (response.status_code, response.content) == (204, b"")
        assert used("GPU-c", "n2") == 0
    ended = api.get(f"{PATH}/uid-p").json()
    assert ended["state"] == "released"
    assert ended["charge"][0]["memory_mib"] == 3000


@pytest.mark.parametrize("method", ["get", "delete"])
def test_one_never_heard_of_is_not_found(api: APIClient, method: str) -> None:
    assert getattr(api, method)(f"{PATH}/nobody").status_code == 404
    assert api.post(f"{PATH}/nobody/bound").status_code == 404


@pytest.mark.usefixtures("_two_nodes")
def test_a_bound_hold_neither_expires_nor_is_given_back(
    api: APIClient, reserve: Callable[..., Any], used: Callable[..., int], clock: Callable[[int], None]
) -> None:
    reserve(asking("p", gpumem=3000), node="n2", ttl_seconds=5)
    response = api.post(f"{PATH}/uid-p/bound")
    assert response.status_code == 200
    assert response.json()["state"] == "bound"
    assert api.delete(f"{PATH}/uid-p").status_code == 409
    clock(10)
    assert reserve(asking("q", gpumem=1)).status_code == 201
    assert used("GPU-c", "n2") >= 3000
    assert api.get(f"{PATH}/uid-p").json()["state"] == "bound"


@pytest.mark.usefixtures("_two_nodes")
@pytest.mark.parametrize("end", ["released", "expired"])
def test_what_has_ended_cannot_be_bound(
    api: APIClient, reserve: Callable[..., Any], clock: Callable[[int], None], end: str
) -> None:
    reserve(asking("p", gpumem=3000), ttl_seconds=5)
    if end == "released":
        api.delete(f"{PATH}/uid-p")
    else:
        clock(10)
    response = api.post(f"{PATH}/uid-p/bound")
    assert response.status_code == 409
    assert api.get(f"{PATH}/uid-p").json()["state"] == end


@pytest.mark.usefixtures("_two_nodes")
def test_the_pods_own_event_confirms_the_hold(
    api: APIClient, send: Callable[..., Any], reserve: Callable[..., Any], used: Callable[..., int]
) -> None:
    reserve(asking("p", gpumem=3000), node="n2")
    send(pod("p", "GPU-c 3000 0", node="n2"))
    assert api.get(f"{PATH}/uid-p").json()["state"] == "confirmed"
    assert used("GPU-c", "n2") == 3000
    assert api.delete(f"{PATH}/uid-p").status_code == 409


@pytest.mark.usefixtures("_two_nodes")
def test_how_long_a_hold_lives_is_a_setting(reserve: Callable[..., Any], settings: Any) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, reservation_ttl_seconds=30)
    held = reserve(asking("p", gpumem=3000)).json()
    assert datetime.fromisoformat(held["expires_at"]) - timezone.now() <= timedelta(seconds=30)

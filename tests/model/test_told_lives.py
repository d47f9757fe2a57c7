"""Lives that random ones seldom live, told one by one; and the numbers of the design."""

from dataclasses import replace
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.model.books import (
    APP,
    INIT,
    SIDECAR,
    Allocation,
    Ask,
    Books,
    Event,
    NodeView,
    PodView,
    QuotaView,
    effective,
    steady,
)
from tests.model.delivery import Call, FullList
from tests.model.lives import manifest, watch_event
from tests.model.service import InTheRequest, Pair

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair(api: APIClient) -> Pair:
    return Pair(InTheRequest(api))


def view(name: str, version: int, *, uid: str = "", memory: int = 1000, **more: Any) -> PodView:
    """A bound pod of one app container."""
    given: dict[str, Any] = {"kinds": (APP,), "exits": (), "claimed": "n1", "bound": "n1", **more}
    groups = tuple((("NVIDIA-0", memory, 10),) for _ in given["kinds"])
    given["allocations"] = {"NVIDIA": Allocation(groups)}
    return PodView(uid or f"uid-{name}", "team-a", name, version, **given)


@pytest.mark.parametrize(
    ("kinds", "amounts", "charged", "shrunk"),
    [
        ((SIDECAR, APP), (10240, 10240), 20480, 20480),
        ((SIDECAR, INIT, APP), (2048, 20480, 10240), 22528, 12288),
        ((INIT, SIDECAR, APP), (20480, 2048, 10240), 20480, 12288),
        ((INIT, APP), (20480, 10240), 20480, 10240),
    ],
)
def test_the_model_has_the_numbers_of_the_design(
    kinds: tuple[str, ...], amounts: tuple[int, ...], charged: int, shrunk: int
) -> None:
    assert (effective(kinds, amounts), steady(kinds, amounts)) == (charged, shrunk)


def test_a_pod_whose_name_was_taken_by_one_that_is_already_gone_is_charged_nothing(pair: Pair) -> None:
    later = view("web", 60, uid="later")
    pair.follow([Call([Event("DELETED", later)]), Call([Event("ADDED", view("web", 30, uid="earlier"))])])
    assert not pair.books.device_totals()


def test_a_restored_cluster_knows_nothing_of_the_names_that_were_taken_after_the_backup(pair: Pair) -> None:
    saved, taker = view("web", 20, uid="saved"), view("web", 90, uid="taker")
    pair.follow(
        [
            Call([Event("ADDED", saved), Event("DELETED", view("web", 80, uid="saved"))]),
            Call([Event("ADDED", taker)]),
            FullList("Pod", 40, [saved], new_history=True),
            Call([Event("MODIFIED", view("web", 50, uid="saved"))]),
            Call([Event("MODIFIED", view("web", 60, uid="saved", memory=500))]),
        ]
    )
    assert pair.books.pods["saved"].lives


def test_a_pod_deleted_only_in_the_restored_cluster_holds_up_nobody_who_takes_its_name(pair: Pair) -> None:
    old = view("web", 90, uid="old")
    others = [view(f"other-{number}", 10 + number) for number in range(3)]
    pair.follow(
        [
            Call([Event("ADDED", old), *(Event("ADDED", other) for other in others)]),
            Call([Event("DELETED", view("web", 95, uid="old"))]),
            FullList("Pod", 40, others, new_history=True),
            Call([Event("DELETED", view("web", 45, uid="old"))]),
            Call([Event("ADDED", view("web", 50, uid="new"))]),
        ]
    )
    assert pair.books.pods["new"].lives


def test_the_right_list_at_the_version_of_a_half_one_brings_back_what_that_ended(pair: Pair) -> None:
    both = [view("web", 10), view("db", 20)]
    pair.follow([FullList("Pod", 20, both), FullList("Pod", 20, both[1:]), FullList("Pod", 20, both)])
    assert all(account.lives for account in pair.books.pods.values())


def test_a_list_that_ends_many_and_replaces_many_is_confirmed_once(pair: Pair) -> None:
    """Of what is confirmed, some go because another pod takes their name and some by absence."""
    old = [view(f"pod-{number}", 1 + number) for number in range(100)]
    fresh = [view(f"pod-{number}", 200 + number, uid=f"fresh-{number}") for number in range(50)]
    pair.follow([Call([Event("ADDED", one) for one in old]), FullList("Pod", 300, [*fresh, *old[80:]])])
    assert len([account for account in pair.books.pods.values() if account.lives]) == 70


def test_a_list_that_is_refused_changes_nothing(pair: Pair) -> None:
    old = [view(f"pod-{number}", 1 + number) for number in range(30)]
    pair.follow([Call([Event("ADDED", one) for one in old])])
    body = FullList("Pod", 100, [view("new", 99), view("pod-0", 98, memory=7)]).body()
    assert pair.service.post("/api/v1/snapshots", body).status == 409
    assert pair.service.post("/api/v1/snapshots?confirm=28", body).status == 409
    pair.agree()


def test_an_event_without_containers_takes_nothing_from_a_charge_that_is_kept(pair: Pair) -> None:
    """A bound pod whose event lost its node keeps its charge, and the books say what for."""
    pod = view("web", 10)
    pair.follow([Call([Event("ADDED", pod)])])
    for version, change in ((20, {"claimed": ""}), (30, {"terminating": True})):
        bare = watch_event(Event("MODIFIED", replace(pod, version=version, **change)))
        bare["object"]["spec"]["containers"] = []
        assert pair.service.post("/api/v1/events", {"events": [bare]}).status == 200
        pair._ledger_agrees()
        assert pair.service.get("/api/v1/audit").body["ok"]


def test_what_a_list_did_not_hold_is_not_brought_back_by_older_news(pair: Pair) -> None:
    """Of a node its cards, of a quota its limits; neither was heard of before the list."""
    late = [
        Event("ADDED", NodeView("n1", 10, {"NVIDIA": {"NVIDIA-0": (10, 24576, 100)}})),
        Event("ADDED", QuotaView("team-a", "gpu", 11, {"limits.nvidia.com/gpumem": 0})),
    ]
    lists = [FullList("Node", 20, []), FullList("ResourceQuota", 20, [], "team-a")]
    pair.follow([*lists, Call(late)])
    assert not pair.books.cards
    assert not pair.service.get("/api/v1/devices").body["items"]


def test_what_went_before_a_list_is_not_brought_back_by_news_from_before_it(pair: Pair) -> None:
    """It was made anew and went again: of the first nobody was told before the list, of the second never."""

    def seen(type_: str, version: int) -> Call:
        node = NodeView("n1", version, {"NVIDIA": {"NVIDIA-0": (10, 24576, 100)}})
        quota = QuotaView("team-a", "gpu", version + 1, {"limits.nvidia.com/gpumem": 0})
        return Call([Event(type_, node), Event(type_, quota)])

    lists = [FullList("Node", 40, []), FullList("ResourceQuota", 40, [], "team-a")]
    pair.follow([seen("ADDED", 10), seen("DELETED", 12), *lists, seen("ADDED", 20)])
    assert not any(card.registered for card in pair.books.cards.values())
    pair.follow([seen("ADDED", 50)])
    assert all(card.registered for card in pair.books.cards.values())


def hold(pair: Pair, settings: Any) -> PodView:
    """A place is held for a pod that waits for a node."""
    settings.HAMIACCT = replace(settings.HAMIACCT, trust_events=True)
    asked = PodView("uid-web", "team-a", "web", 90, (APP,), (), asks=(Ask(1, 4000),))
    node = NodeView("n1", 10, {"NVIDIA": {"NVIDIA-0": (10, 24576, 100)}})
    pair.follow([Call([Event("ADDED", node), Event("ADDED", asked)])])
    assert pair.service.post("/api/v1/reservations", {"pod": manifest(asked)}).status == 201
    pair.books.hold(asked, "n1", ((("NVIDIA-0", 4000, 0),),), 900)
    pair.agree()
    return asked


def test_a_pod_bound_elsewhere_without_devices_misses_none_when_its_hold_is_given_back(
    pair: Pair, api: APIClient, settings: Any
) -> None:
    """It never had an annotation that could have vanished, and keeps no charge."""
    asked = hold(pair, settings)
    pair.follow([Call([Event("MODIFIED", replace(asked, version=91, bound="n2"))])])
    assert pair.books.pods["uid-web"].findings == {"placement-differs"}
    assert api.delete("/api/v1/reservations/uid-web").status_code == 204
    pair.books.give_back("uid-web")
    pair.agree()
    assert not pair.books.pods["uid-web"].findings


def test_what_was_bound_before_a_cluster_was_restored_ends_with_the_list_that_lacks_it(
    pair: Pair, settings: Any
) -> None:
    """Its versions say nothing in the new history, in which nobody else may ever speak of it."""
    hold(pair, settings)
    assert pair.service.post("/api/v1/reservations/uid-web/bound", {}).status == 200
    pair.books.mark_bound("uid-web")
    pair.agree()
    pair.follow([FullList("Pod", 40, [], new_history=True)])
    assert not pair.books.device_totals()


def test_books_that_hold_nothing_agree_with_the_model(pair: Pair) -> None:
    assert pair.books == Books()
    pair.agree()

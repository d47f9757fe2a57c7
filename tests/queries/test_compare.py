"""HAMi's numbers beside ours, from what is in the books."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from hamiacct.accounting import comparison
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.hami import Formula
from hamiacct.accounting.words import Whereabouts
from hamiacct.kube.hami_metrics import Card, Holding, Quota, Reported
from hamiacct.queries import compare
from tests import asking, watch
from tests.say import say_manifest

pytestmark = pytest.mark.django_db

Send = Callable[..., None]


@pytest.fixture
def send(api: APIClient) -> Send:
    def send(*objects: Any, type_: str = "ADDED") -> None:
        answer = api.post("/api/v1/events", watch.events(*objects, type_=type_)).json()
        assert {result["outcome"] for result in answer["results"]} == {"applied"}, answer

    return send


@pytest.fixture
def _cluster(send: Send) -> None:
    """Two cards. On GPU-a a sidecar beside its app, and a peak that is over; on GPU-b nothing odd."""
    send(
        watch.node("n1", watch.card("GPU-a"), watch.card("GPU-b")),
        say_manifest("sidecar 10240 20, running", "app 10240 30", name="short", uid="u-short"),
        say_manifest(
            "init 8192, succeeded",
            "sidecar 1024, running",
            "app 2048",
            name="peak",
            uid="u-peak",
            namespace="b",
        ),
        say_manifest("app 4096 on GPU-b", name="plain", uid="u-plain"),
    )


def names(shares: tuple[comparison.Share, ...]) -> list[str]:
    return [f"{share.namespace}/{share.name}" for share in shares]


def numbers(share: comparison.Share) -> tuple[int, int]:
    return share.hami.memory_mib, share.right.memory_mib


def test_a_sidecar_beside_its_app_is_counted_short(_cluster: None) -> None:
    found = compare.compare(Formula.V2_10)
    short = found.under_counted[0]
    assert (short.namespace, short.name, short.node, short.device) == ("team-a", "short", "n1", "GPU-a")
    assert (short.hami, short.right) == (Amount(1, 10240, 30), Amount(2, 20480, 50))
    assert short.short == Amount(1, 10240, 20)


def test_a_peak_that_a_running_sidecar_holds_back(_cluster: None) -> None:
    found = compare.compare(Formula.V2_10)
    (peak,) = found.held_back
    assert (peak.name, numbers(peak)) == ("peak", (8192, 3072))
    assert found.over.amount == Amount(memory_mib=5120)
    # Of slots the same pod has fewer in HAMi's books, so it is also among those that are short.
    assert names(found.under_counted) == ["team-a/short", "b/peak"]
    assert found.short.count == 2


def test_a_card_that_holds_more_than_it_has_comes_first(send: Send, _cluster: None) -> None:
    send(
        watch.node("n2", watch.card("GPU-c", memory=40000)),
        say_manifest("sidecar 15000 on GPU-c", "app 15000 on GPU-c", name="most", uid="u-most", node="n2"),
        say_manifest("app 4000", name="late", uid="u-late"),
    )
    found = compare.compare(Formula.V2_10)
    assert [card.uuid for card in found.over_total] == ["GPU-a"]
    card = found.cards[0]
    assert (card.uuid, card.hami.memory_mib, card.right.memory_mib) == ("GPU-a", 22432, 27552)
    assert card.over_by == Amount(memory_mib=27552 - 24576)
    assert [card.uuid for card in found.cards] == ["GPU-a", "GPU-c"]  # though more is not counted on GPU-c
    assert {share.name for share in card.shares} == {"short", "peak"}


def test_a_card_that_is_full_in_both_books_is_shown_all_the_same(send: Send) -> None:
    send(
        watch.node("n1", watch.card("GPU-a", memory=1000)),
        say_manifest("app 2000", name="big", uid="u-big"),
    )
    found = compare.compare(Formula.V2_10)
    (card,) = found.cards
    assert not card.differs
    assert card.over_by == Amount(memory_mib=1000)
    assert not found.is_nothing


def test_namespaces_are_counted_as_quotas_count(_cluster: None) -> None:
    found = compare.compare(Formula.V2_10)
    assert [(one.namespace, one.hami, one.right) for one in found.namespaces] == [
        ("team-a", Amount(2, 14336, 30), Amount(3, 24576, 50)),
        ("b", Amount(1, 8192, 0), Amount(2, 3072, 0)),
    ]
    assert [names(one.shares) for one in found.namespaces] == [["team-a/short"], ["b/peak"]]


def test_since_2723_nothing_differs(_cluster: None) -> None:
    found = compare.compare(Formula.PR_2723)
    assert found.is_nothing
    assert (found.cards, found.namespaces, found.under_counted, found.held_back) == ((), (), (), ())
    assert (found.compared_cards, found.compared_pods) == (2, 3)


def test_up_to_2_9_inits_were_added_to_apps(_cluster: None) -> None:
    found = compare.compare(Formula.V2_8)
    assert [(share.name, *numbers(share)) for share in found.held_back] == [("peak", 11264, 3072)]
    assert found.under_counted == ()


def test_all_cards_and_namespaces_can_be_asked_for(_cluster: None) -> None:
    found = compare.compare(Formula.PR_2723, everything=True)
    assert {card.uuid for card in found.cards} == {"GPU-a", "GPU-b"}
    assert {one.namespace for one in found.namespaces} == {"team-a", "b"}
    assert (found.differing_cards, found.differing_namespaces) == (0, 0)
    assert found.is_nothing


def test_of_one_node_or_namespace(send: Send, _cluster: None) -> None:
    send(
        watch.node("n2", watch.card("GPU-c")),
        say_manifest(
            "sidecar 100 on GPU-c", "app 100 on GPU-c", name="far", uid="u-far", node="n2", namespace="b"
        ),
    )
    of_node = compare.compare(Formula.V2_10, node="n2")
    assert names(of_node.under_counted) == ["b/far"]
    assert ([card.uuid for card in of_node.cards], [one.namespace for one in of_node.namespaces]) == (
        ["GPU-c"],
        ["b"],
    )
    of_namespace = compare.compare(Formula.V2_10, namespace="team-a")
    assert names(of_namespace.under_counted) == ["team-a/short"]
    (card,) = of_namespace.cards
    # Its sums are the card's, whoever holds it.
    assert (card.uuid, card.hami.memory_mib, card.right.memory_mib) == ("GPU-a", 18432, 23552)


def test_a_pod_that_ended_differs_no_more(send: Send, _cluster: None) -> None:
    send(say_manifest("app 10240", name="short", uid="u-short", phase="Succeeded"), type_="MODIFIED")
    assert names(compare.compare(Formula.V2_10).under_counted) == ["b/peak"]


def test_a_device_nobody_registered_has_no_total_to_exceed(send: Send) -> None:
    send(
        watch.node("n1", watch.card("GPU-a")),
        say_manifest("sidecar 100 on GPU-x", "app 100 on GPU-x", name="odd", uid="u-odd"),
    )
    found = compare.compare(Formula.V2_10)
    (card,) = found.cards
    assert (card.uuid, card.registered, card.over_by.is_nothing) == ("GPU-x", False, True)
    assert names(found.under_counted) == ["team-a/odd"]


def test_a_hold_of_ours_is_counted_by_its_own_rows(api: APIClient, send: Send) -> None:
    """HAMi does not know it, so its metrics are no evidence about it."""
    assert api.post("/api/v1/snapshots?complete=1").status_code == 200
    send(watch.node("n1", watch.card("GPU-a")))
    answer = api.post("/api/v1/reservations", {"pod": asking.asking(gpumem=1000)})
    assert answer.status_code == 201, answer.json()
    assert compare.compare(Formula.V2_10).is_nothing
    said = Reported({}, {Card("n1", "GPU-a"): 1000}, {})
    assert compare.compare(Formula.V2_10, said).under_counted == ()


# --- what HAMi's metrics say ---------------------------------------------------------------------


def said(pods: dict[str, int], cards: dict[str, int] | None = None, **quotas: int) -> Reported:
    """In MiB: of pods `namespace/name@card` on n1, of cards of n1, of quotas of nvidia.com/gpumem."""
    holdings = {}
    for text, size in pods.items():
        pod, _, card = text.partition("@")
        namespace, _, name = pod.partition("/")
        holdings[Holding(namespace, name, "n1", card)] = size
    return Reported(
        holdings,
        {Card("n1", uuid): size for uuid, size in (cards or {}).items()},
        {Quota(namespace.replace("_", "-"), "nvidia.com/gpumem"): used for namespace, used in quotas.items()},
    )


AS_2_10_SAYS = {"team-a/short@GPU-a": 10240, "b/peak@GPU-a": 8192, "team-a/plain@GPU-b": 4096}


def test_what_hami_says_stands_beside_what_its_formula_books(_cluster: None) -> None:
    reported = said(AS_2_10_SAYS, {"GPU-a": 18432, "GPU-b": 4096}, team_a=14336, b=8192)
    found = compare.compare(Formula.V2_10, reported)
    assert [share.reported_mib for share in found.under_counted] == [10240, 8192]
    assert [(card.uuid, card.reported_mib) for card in found.cards] == [("GPU-a", 18432)]
    assert [(one.namespace, one.reported_mib) for one in found.namespaces] == [("team-a", 14336), ("b", 8192)]
    assert found.gone == ()


def test_what_hami_says_is_a_difference_where_no_formula_differs(_cluster: None) -> None:
    """The sidecar of `short` was restarted with exit code 0, and HAMi dropped it for good."""
    right = {"team-a/short@GPU-a": 9999, "b/peak@GPU-a": 3072, "team-a/plain@GPU-b": 5000}
    found = compare.compare(Formula.PR_2723, said(right))
    (short,) = found.under_counted
    assert (short.name, short.reported_mib, *numbers(short)) == ("short", 9999, 20480, 20480)
    assert short.short == Amount(memory_mib=10481)
    (over,) = found.held_back
    assert (over.name, over.reported_mib, over.over) == ("plain", 5000, Amount(memory_mib=904))


def test_a_pod_that_hami_does_not_name_is_held_by_nobody_there(_cluster: None) -> None:
    found = compare.compare(Formula.PR_2723, said({"team-a/short@GPU-a": 20480, "b/peak@GPU-a": 3072}))
    (plain,) = found.under_counted
    assert (plain.name, plain.reported_mib, plain.right.memory_mib) == ("plain", 0, 4096)


def test_what_hami_holds_for_pods_that_are_gone(send: Send, _cluster: None) -> None:
    send(say_manifest("app 700 on GPU-b", name="done", uid="u-done"))
    send(say_manifest("app 700 on GPU-b", name="done", uid="u-done", phase="Failed"), type_="MODIFIED")
    ghosts = {
        "team-a/never@GPU-a": 500,
        "team-a/done@GPU-b": 700,
        "team-a/plain@GPU-a": 4096,
        "x/nothing@GPU-a": 0,
    }
    found = compare.compare(Formula.V2_10, said({**AS_2_10_SAYS, **ghosts}))
    assert [(one.name, one.device, one.memory_mib, one.whereabouts) for one in found.gone] == [
        ("plain", "GPU-a", 4096, Whereabouts.ELSEWHERE),
        ("done", "GPU-b", 700, Whereabouts.ENDED),
        ("never", "GPU-a", 500, Whereabouts.UNKNOWN),
    ]
    assert found.for_nobody == comparison.Sum(3, Amount(memory_mib=5296))


def test_a_namespace_that_hami_alone_holds_something_for(_cluster: None) -> None:
    """HAMi#2968: a deletion without the annotation leaves the quota used."""
    found = compare.compare(
        Formula.PR_2723,
        said({"team-a/short@GPU-a": 20480, "b/peak@GPU-a": 3072, "team-a/plain@GPU-b": 4096}, None, gone=300),
    )
    (one,) = found.namespaces
    assert (one.namespace, one.vendor, one.reported_mib, one.right) == ("gone", "NVIDIA", 300, Amount())
    assert not found.is_nothing


def test_the_number_of_queries_is_constant(send: Send, _cluster: None) -> None:
    ghost = said({**AS_2_10_SAYS, "x/ghost@GPU-a": 1})

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            compare.compare(Formula.V2_10, ghost)
        return len(captured)

    def more_pods(first: int) -> None:
        named = {f"p{number}": f"n{number}" for number in range(first, first + 20)}
        send(*(say_manifest("sidecar 10", "app 10", name=p, uid=p, namespace=n) for p, n in named.items()))

    more_pods(0)  # now the card is over its slots, too
    before = queries()
    more_pods(20)
    assert queries() == before == 6


def test_a_pod_that_differs_in_slots_alone_is_told_apart(send: Send) -> None:
    """Its memory and cores are the larger of the two terms already."""
    send(
        watch.node("n1", watch.card("GPU-a")),
        say_manifest("sidecar 0 0, running", "app 1000 10", name="slim", uid="u-slim"),
        say_manifest("sidecar 500, running", "app 1000", name="wide", uid="u-wide"),
    )
    found = compare.compare(Formula.V2_10)
    assert names(found.under_counted) == ["team-a/wide", "team-a/slim"]
    assert names(found.short_of_room) == ["team-a/wide"]
    assert names(found.short_of_slots_alone) == ["team-a/slim"]


def test_a_card_over_its_total_names_everybody_on_it(send: Send) -> None:
    send(
        watch.node("n1", watch.card("GPU-a", memory=1000), watch.card("GPU-b")),
        say_manifest("app 700", name="one", uid="u-one"),
        say_manifest("app 700 + 5 on GPU-b", name="two", uid="u-two", namespace="b"),
    )
    cards = compare.compare(Formula.V2_10, everything=True).cards
    assert [(card.uuid, [holder.name for holder in card.holders]) for card in cards] == [
        ("GPU-a", ["two", "one"]),
        ("GPU-b", []),
    ]


def test_cores_of_a_namespace_are_in_the_unit_of_quotas(send: Send) -> None:
    """AMD's are units of the card on the card, and percent of a card in a quota."""
    register = json.dumps([watch.card("AMD-a", cores=200, type="MI300X")])
    text = "AMD-a,MI300X,100,50:;AMD-a,MI300X,100,20:;"
    told = {"hami.io/vgpu-node": "n1", "hami.io/amd-devices-allocated": text}
    send(
        watch.node("n1", **{"hami.io/node-amd-register": register}),
        say_manifest("sidecar, running", "app", name="web", uid="u-web", annotations=told),
    )
    found = compare.compare(Formula.V2_10)
    (card,), (namespace,) = found.cards, found.namespaces
    assert (card.hami.cores, card.right.cores) == (50, 70)
    assert (namespace.hami.cores, namespace.right.cores) == (25, 35)

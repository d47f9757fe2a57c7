"""Claims and releases that are decided in one transaction: each as if it had come after those before it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import Error, connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from hamiacct import config, models
from hamiacct.accounting import fit
from hamiacct.accounting.errors import Conflict, NotFound
from hamiacct.accounting.words import ReservationState
from hamiacct.kube import manifests
from hamiacct.operations import audit, inbox, locks, reservations, snapshots
from hamiacct.operations.rounds import Claim, Held, NoPlace, Release, Wish
from hamiacct.operations.together import Again, Apart, Granted, Outcome, Refused
from hamiacct.queries import fits, fleet
from tests import watch
from tests.asking import asking
from tests.live import database_url
from tests.waiting import in_a_thread, somebody_waits_for, until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = 10.0


def told(*objects: dict[str, Any]) -> None:
    receipt = inbox.receive([{"type": "ADDED", "object": one} for one in objects], at=NOW)
    assert not receipt.rejected
    inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
    snapshots.declare_complete(at=NOW)


def claim(
    name: str, memory: int, nodes: Sequence[str] | None = None, *, namespace: str = "team-a", count: int = 1
) -> Claim:
    shown = asking(name, gpu=count, gpumem=memory, namespace=namespace)
    question = fits.question_of(manifests.pod_from_manifest(shown, config.vendors()))
    return Claim(question, nodes, fit.place, 900, False, NOW)


def release(name: str) -> Release:
    return Release(f"uid-{name}", NOW)


def decided(*wishes: Wish) -> list[Outcome[Any, Any]]:
    """What becomes of wishes that come at once; those that are to be served again are."""
    outcomes: dict[str, Outcome[Any, Any]] = {}
    left: Sequence[Wish] = wishes
    while left:
        found = reservations._serve(left)
        outcomes |= {wish.uid: outcome for wish, outcome in zip(left, found, strict=True)}
        left = [outcome.wish for outcome in found if isinstance(outcome, Again)]
    return [outcomes[wish.uid] for wish in wishes]


def shown(outcome: Outcome[Any, Any]) -> Any:
    """An outcome without its times."""
    match outcome:
        case Granted(Held(taken, placement)):
            return placement.node, placement.allocations, taken.labels
        case Granted(NoPlace(failed)):
            return sorted((misfit.node, misfit.message) for misfit in failed)
        case Refused(fault):
            return type(fault), str(fault)
        case _:
            return outcome


BOOKS = (
    "SELECT node, uuid, slots_used, memory_mib_used, cores_used FROM hamiacct_device ORDER BY 1, 2",
    "SELECT pod_id, device_id, slots, memory_mib, cores, quota_cores FROM hamiacct_usageentry ORDER BY 1, 2",
    "SELECT namespace, vendor, slots, memory_mib, cores FROM hamiacct_namespaceusage ORDER BY 1, 2",
    "SELECT quota_id, vendor, memory_mib, cores FROM hamiacct_quotausage ORDER BY 1, 2",
    "SELECT pod_uid, node, state, allocations, labels, score FROM hamiacct_reservation ORDER BY 1",
    "SELECT uid, state, rule, charged_as, containers, allocations, ended_by FROM hamiacct_pod ORDER BY 1",
    "SELECT seq, pod_uid, node, device, rule, slots, memory_mib, cores FROM hamiacct_ledgerentry ORDER BY 1",
)


def books() -> list[Any]:
    with connection.cursor() as cursor:
        found = []
        for statement in BOOKS:
            cursor.execute(statement)
            found.append(cursor.fetchall())
    return found


@contextmanager
def undone() -> Iterator[None]:
    """Nothing of it was ever so, and nobody remembers it."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    fleet.forget()


# --- one after the other in meaning ------------------------------------------------------------------

PODS = [f"p{number}" for number in range(6)]
NODES = (None, ["n1"], ["n2"], ["n1", "n2"], ["nowhere"], ["n2", "nowhere"])


@st.composite
def claims(draw: st.DrawFn, name: str) -> Wish:
    return claim(
        name,
        draw(st.sampled_from((1000, 4000, 6000))),
        draw(st.sampled_from(NODES)),
        namespace=draw(st.sampled_from(("team-a", "team-a", "team-b"))) if name > "p2" else "team-a",
        count=draw(st.sampled_from((1, 1, 2))),
    )


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[Wish], list[Wish]]:
    """Claims that were decided before, and wishes of different pods that come at once."""
    before = [draw(claims(name)) for name in draw(st.lists(st.sampled_from(PODS[:3]), unique=True))]
    names = draw(st.permutations(PODS))[: draw(st.integers(2, 6))]
    now = [release(name) if name < "p3" and draw(st.booleans()) else draw(claims(name)) for name in names]
    return before, now


@pytest.mark.django_db
def test_a_crowd_is_told_and_leaves_what_one_after_the_other_would() -> None:
    cards = {name: watch.card(f"GPU-{name}", memory=8000, slots=3) for name in "abcd"}
    quota = watch.quota("q", hard={"limits.nvidia.com/gpumem": "14000"})
    told(watch.node("n1", cards["a"], cards["b"]), watch.node("n2", cards["c"], cards["d"]), quota)

    @given(crowds())
    @settings(max_examples=25, deadline=None)
    def holds(crowd: tuple[list[Wish], list[Wish]]) -> None:
        before, now = crowd
        with undone():
            for wish in before:
                decided(wish)
            with undone():
                one_by_one = [shown(outcome) for wish in now for outcome in decided(wish)], books()
            at_once = [shown(outcome) for outcome in decided(*now)], books()
            assert at_once == one_by_one
            assert audit.audit().discrepancies == ()

    holds()


@pytest.mark.django_db
def test_what_one_gives_back_is_there_for_the_next() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)))
    decided(claim("p", 10000))
    given_back, taken, late = decided(release("p"), claim("q", 10000), claim("r", 10000))
    assert isinstance(taken, Granted)
    assert isinstance(taken.answer, Held)
    assert given_back == Granted(None)
    assert isinstance(late, Granted)
    assert isinstance(late.answer, NoPlace)


@pytest.mark.django_db
def test_what_one_loses_that_finds_no_place_is_there_for_the_next() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)), watch.node("n2"))
    decided(claim("p", 10000))
    first, second = decided(claim("p", 20000), claim("q", 10000))
    assert isinstance(first, Granted)
    assert isinstance(first.answer, NoPlace)
    assert isinstance(second, Granted)
    assert isinstance(second.answer, Held)


@pytest.mark.django_db
def test_who_is_refused_for_its_quota_takes_nothing_from_the_next() -> None:
    quota = watch.quota("q", hard={"limits.nvidia.com/gpumem": "5000"})
    told(watch.node("n1", watch.card("GPU-a", memory=10000)), quota)
    found = decided(claim("p", 6000, ["n1"]), claim("q", 6000, namespace="team-b"))
    assert [type(one.answer) for one in found] == [NoPlace, Held]


@pytest.mark.django_db
def test_a_refusal_of_one_is_its_own() -> None:
    told(watch.node("n1", watch.card("GPU-a")), watch.pod("bound", "GPU-a 1000 10"))
    found = decided(claim("p", 1000), claim("bound", 1000), release("nobody"), claim("q", 1000))
    kinds = [type(one.fault) if isinstance(one, Refused) else type(one.answer) for one in found]
    assert kinds == [Held, Conflict, NotFound, Held]
    assert models.UsageEntry.objects.count() == 3
    assert audit.audit().discrepancies == ()


def cut_card(*starts: int) -> dict[str, Any]:
    """A MIG card whose one profile may begin at these slices."""
    places = [{"start": start, "size": 4} for start in starts]
    profile = {"name": "3g.20gb", "memoryMB": 19968, "core": 14, "sliceCount": 3, "placements": places}
    return watch.card("GPU-m", memory=80000, slots=7, mode="mig", migProfiles=[profile])


@pytest.mark.django_db
def test_a_place_on_a_card_that_is_cut_is_there_for_the_next_once_it_is_given_back() -> None:
    told(watch.node("n1", cut_card(0)))
    decided(claim("p", 10000))
    given_back, taken = decided(release("p"), claim("q", 10000))
    assert given_back == Granted(None)
    assert isinstance(taken, Granted)
    assert isinstance(taken.answer, Held)


@pytest.mark.django_db
def test_who_gets_no_place_on_a_card_that_is_cut_takes_nothing_from_the_next() -> None:
    quota = watch.quota("q", hard={"limits.nvidia.com/gpumem": "39970"})
    told(watch.node("n1", cut_card(0)), watch.node("n2", watch.card("GPU-a")), quota)
    found = decided(claim("p", 10000, ["n1"]), claim("q", 10000, ["n1"]), claim("r", 20000))
    assert [type(one.answer) for one in found] == [Held, NoPlace, Held]
    assert audit.audit().discrepancies == ()


@pytest.mark.django_db
def test_places_on_cards_that_are_cut_are_given_to_one_after_the_other() -> None:
    told(watch.node("n1", cut_card(0, 4)))
    answers = [one.answer for one in decided(*(claim(name, 10000) for name in "pqr"))]
    assert [type(answer) for answer in answers] == [Held, Held, NoPlace]
    starts = {one.placement.start for held in answers[:2] for one in held.placement.mig_allocations}
    assert starts == {0, 4}


# --- several at the database ---------------------------------------------------------------------------

LOCK = "SELECT FROM hamiacct_device WHERE node = %s FOR NO KEY UPDATE"


@pytest.mark.django_db(transaction=True)
def test_devices_of_all_are_locked_in_one_order() -> None:
    told(*(watch.node(name, watch.card("GPU")) for name in "ab"))
    with psycopg.connect(database_url()) as another:
        another.execute(LOCK, ["a"])
        answer = in_a_thread(lambda: decided(claim("p", 1000, ["b"]), claim("q", 1000, ["a"])))
        until(lambda: somebody_waits_for(another))
        another.execute(LOCK + " NOWAIT", ["b"])
    assert [type(one.answer) for one in answer.result(SOON)] == [Held, Held]


@pytest.mark.django_db(transaction=True)
def test_a_name_that_somebody_has_keeps_only_its_own_pod_waiting() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    number = locks._number(locks.name_key("team-a", "p"))
    with psycopg.connect(database_url()) as another:
        another.execute("SELECT pg_advisory_xact_lock(%s, %s)", [int(locks.Space.POD_NAME), number])
        first, second = reservations._serve([claim("p", 1000), claim("q", 1000)])
        assert first == Apart()
        assert isinstance(second, Granted)
        alone = in_a_thread(lambda: decided(claim("p", 1000)))
        until(lambda: somebody_waits_for(another))
    [late] = alone.result(SOON)
    assert isinstance(late, Granted)


@pytest.mark.django_db(transaction=True)
def test_two_processes_that_serve_crowds_never_give_one_room_twice() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)), watch.node("n2", watch.card("GPU-b")))
    crowds = [[claim(f"p{crowd}-{number}", 2500, ["n1"]) for number in range(6)] for crowd in range(2)]
    answers = [in_a_thread(lambda crowd=crowd: decided(*crowd)) for crowd in crowds]
    found = [one.answer for answer in answers for one in answer.result(SOON)]
    assert sorted(type(one).__name__ for one in found) == ["Held"] * 4 + ["NoPlace"] * 8
    assert audit.audit().discrepancies == ()


@pytest.mark.django_db(transaction=True)
def test_who_found_no_place_behind_one_that_got_none_either_is_asked_again() -> None:
    told(watch.node("n1", watch.card("GPU-a", memory=10000)))
    with transaction.atomic():
        decided(claim("faster", 3000))
        answer = in_a_thread(lambda: decided(claim("p", 8000, ["n1"]), claim("q", 5000)))
        until(lambda: somebody_waits_for(connection.connection))
    assert [type(one.answer) for one in answer.result(SOON)] == [NoPlace, Held]
    assert audit.audit().discrepancies == ()


def amd_node(core_units: int) -> dict[str, Any]:
    card = {"id": "AMD-a", "index": 0, "count": 10, "devmem": 20000, "devcore": core_units, "type": "AMD"}
    return watch.node("n1", **{"hami.io/node-amd-register": json.dumps([{**card, "health": True}])})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("wish", ["release", "claim"])
def test_what_is_given_back_counts_in_quotas_as_its_card_is_registered_by_then(wish: str) -> None:
    told(amd_node(304), watch.quota("q", hard={"limits.amd.com/gpucores": "200"}))
    shown = asking("p", {"amd.com/gpu": "1", "amd.com/gpumem": "1000", "amd.com/gpucores": "50"})
    question = fits.question_of(manifests.pod_from_manifest(shown, config.vendors()))
    first = Claim(question, None, fit.place, 900, False, NOW)
    [held] = decided(first)
    assert isinstance(held, Granted)
    assert isinstance(held.answer, Held)
    again = first if wish == "claim" else release("p")
    with transaction.atomic():
        receipt = inbox.receive([{"type": "MODIFIED", "object": amd_node(152)}], at=NOW)
        inbox.settle([event_id for _, event_id in receipt.stored], at=NOW)
        answer = in_a_thread(lambda: decided(again))
        until(lambda: somebody_waits_for(connection.connection))
    answer.result(SOON)
    assert audit.audit().discrepancies == ()


NOT_THIS_ONE = """
CREATE FUNCTION not_this_one() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.pod_uid = 'uid-bad' THEN RAISE EXCEPTION 'not this one'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER not_this_one BEFORE INSERT ON hamiacct_reservation
    FOR EACH ROW EXECUTE FUNCTION not_this_one();
"""


@pytest.mark.django_db(transaction=True)
def test_one_that_the_database_refuses_spoils_none_of_those_beside_it() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    names = ["first", "q", "bad", "r", "s"]
    with connection.cursor() as cursor:
        cursor.execute(NOT_THIS_ONE)
    try:
        with psycopg.connect(database_url()) as another:
            another.execute(LOCK, ["n1"])
            answers = {}
            for number, name in enumerate(names):
                answers[name] = in_a_thread(lambda name=name: reservations._ask(claim(name, 1000, ["n1"])))
                until(
                    lambda number=number: (
                        somebody_waits_for(another)
                        if number == 0
                        else len(reservations._queue._waiting) == number
                    )
                )
        with pytest.raises(Error, match="not this one"):
            answers.pop("bad").result(SOON)
        assert {type(answer.result(SOON)) for answer in answers.values()} == {Held}
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION not_this_one CASCADE")
    held = models.Reservation.objects.filter(state=ReservationState.HELD)
    assert set(held.values_list("name", flat=True)) == set(names) - {"bad"}
    assert audit.audit().discrepancies == ()


@pytest.mark.django_db(transaction=True)
def test_those_that_wait_at_once_are_one_transaction() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    with psycopg.connect(database_url()) as another:
        another.execute(LOCK, ["n1"])
        first = in_a_thread(lambda: reservations._ask(claim("first", 1000, ["n1"])))
        until(lambda: somebody_waits_for(another))
        others = [
            in_a_thread(lambda name=name: reservations._ask(claim(name, 1000, ["n1"]))) for name in "pqrs"
        ]
        until(lambda: len(reservations._queue._waiting) == len(others))
    assert {type(answer.result(SOON)) for answer in (first, *others)} == {Held}
    transactions = set(models.LedgerEntry.objects.filter(rule="reserved").values_list("at", flat=True))
    assert len(transactions) == 2


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_was_lost_meanwhile_is_replaced() -> None:
    told(watch.node("n1", watch.card("GPU-a")))
    decided(claim("p", 1000))
    with psycopg.connect(database_url()) as another, connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        another.execute("SELECT pg_terminate_backend(%s, 5000)", cursor.fetchone())
    [given_back] = decided(release("p"))
    assert given_back == Granted(None)
    assert models.UsageEntry.objects.count() == 0


@pytest.mark.django_db(transaction=True)
def test_who_has_a_transaction_open_neither_serves_others_nor_waits_for_them() -> None:
    told(watch.node("n1", watch.card("GPU-a")), watch.node("n2", watch.card("GPU-b")))
    with psycopg.connect(database_url()) as another:
        another.execute(LOCK, ["n1"])
        first = in_a_thread(lambda: reservations._ask(claim("first", 1000, ["n1"])))
        until(lambda: somebody_waits_for(another))
        with transaction.atomic():
            assert isinstance(reservations._ask(claim("p", 1000, ["n2"])), Held)
            transaction.set_rollback(True)
    assert isinstance(first.result(SOON), Held)
    assert set(models.Reservation.objects.values_list("name", flat=True)) == {"first"}

"""Seats: kinds never take each other's, and nobody waits behind too many."""

import pytest

from hamiacct.seats import AT_ONCE, Kind, Seats, Turned, kind_of

PATHS = {
    "/livez": Kind.PROBES,
    "/readyz": Kind.PROBES,
    "/webhook": Kind.WEBHOOKS,
    "/webhook/a-token": Kind.WEBHOOKS,
    "/webhook/validate/a-token": Kind.WEBHOOKS,
    "/extender/filter": Kind.WEBHOOKS,
    "/extender/prioritize": Kind.WEBHOOKS,
    "/extender/bind": Kind.BINDS,
    "/api/v1/fit": Kind.QUESTIONS,
    "/api/v1/quota/check": Kind.QUESTIONS,
    "/api/v1/reservations": Kind.CLAIMS,
    "/api/v1/reservations/uid/bound": Kind.CLAIMS,
    "/api/v1/events": Kind.EVENTS,
    "/api/v1/snapshots": Kind.LISTS,
    "/api/v1/pods": Kind.READS,
    "/metrics": Kind.READS,
    "/admin/": Kind.READS,
    "/nowhere": Kind.READS,
}


@pytest.mark.parametrize(("path", "kind"), PATHS.items())
def test_the_kind_of_a_path(path: str, kind: Kind) -> None:
    assert kind_of(path) is kind


@pytest.mark.parametrize("flooded", Kind)
def test_a_flood_of_one_kind_takes_no_seat_of_another(flooded: Kind) -> None:
    seats: Seats[int] = Seats()
    taken = [seats.take(flooded) for _ in range(100)]
    assert taken.count(True) == AT_ONCE[flooded]
    for number in range(100):
        seats.wait(flooded, number, "")
    assert all(seats.take(kind) for kind in Kind if kind is not flooded)


def test_who_waits_longest_is_seated_first_and_who_gave_up_never() -> None:
    seats: Seats[str] = Seats({Kind.CLAIMS: 1})
    assert seats.take(Kind.CLAIMS)
    for name in ("first", "second", "third"):
        assert seats.wait(Kind.CLAIMS, name, name) is None
    seats.give_up(Kind.CLAIMS, "first")
    assert [seats.leave(Kind.CLAIMS) for _ in range(3)] == ["second", "third", None]
    assert seats.take(Kind.CLAIMS)


def test_one_caller_alone_does_not_fill_the_waiting_room() -> None:
    seats: Seats[int] = Seats({Kind.CLAIMS: 0}, most_waiting=3, most_of_one=2)
    assert [seats.wait(Kind.CLAIMS, number, "one") for number in range(3)] == [
        None,
        None,
        Turned.TOO_MANY_OF_ONE,
    ]
    assert seats.wait(Kind.CLAIMS, 3, "another") is None
    assert seats.wait(Kind.CLAIMS, 4, "a third") is Turned.FULL
    seats.give_up(Kind.CLAIMS, 0)
    assert seats.wait(Kind.CLAIMS, 5, "one") is None

"""Advisory locks for things that have no row yet: a pod's name, a namespace, a node, a kind's stream.

They live as long as the transaction. Several of one space are taken in the order of their numbers,
so two transactions never wait for each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import datetime
from enum import IntEnum

from django.db import connection

from hamiacct.accounting.words import Kind
from hamiacct.queries.statements import Asked, Statement


class Space(IntEnum):
    """What kind of thing a lock number stands for."""

    STREAM = 1
    NODE = 2
    POD_NAME = 3
    NAMESPACE = 4
    BOOKS = 5


ALL_BOOKS = "books"
PATIENCE = "30s"
# Of a transaction that serves several: after that each of them waits by itself, as long as it may.
IMPATIENCE = "1s"


def _number(key: str) -> int:
    """A signed 32-bit number for the key. Two keys with one number merely wait for each other."""
    number = zlib.crc32(key.encode())
    return number - (1 << 32) if number >= 1 << 31 else number


def name_key(namespace: str, name: str) -> str:
    """The lock key of a namespaced name; `/` cannot occur in either part."""
    return f"{namespace}/{name}"


def take(space: Space, keys: Iterable[str]) -> None:
    """Waits for all of `keys`."""
    numbers = sorted({_number(key) for key in keys})
    if numbers:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_advisory_xact_lock(%s, number)) FROM unnest(%s::int[]) AS number",
                [int(space), numbers],
            )


# What follows in such a transaction finds rows by their keys. Its plans are kept, and one that was made while
# a table was almost empty would read all of it from then on, until somebody analyses the table.
_BY_KEYS = ", ".join(
    f"set_config('enable_{way}', 'off', true)" for way in ("seqscan", "hashjoin", "mergejoin")
)
_OF_POD = Statement(
    "hamiacct_lock_pod",
    "int, int, int, int, int, int",
    f"SELECT {_BY_KEYS}, pg_advisory_xact_lock_shared($1, $2), pg_advisory_xact_lock_shared($3, $4),"
    " pg_advisory_xact_lock($5, $6), clock_timestamp()",
)


def take_pod(namespace: str, name: str) -> datetime:
    """What `share_stream` of pods and `take` of one name take, in their order, in one round trip.

    Answers the database's time once all is locked: holds of several replicas run out by one clock.
    """
    statement, parameters = of_pod(namespace, name)
    *_, now = statement.row(*parameters)
    assert isinstance(now, datetime)
    return now


def of_pod(namespace: str, name: str) -> Asked:
    """What `take_pod` asks, to be asked with others in turn; the last of its columns is the time."""
    return _OF_POD, (
        int(Space.STREAM),
        _number(Kind.POD),
        int(Space.BOOKS),
        _number(ALL_BOOKS),
        int(Space.POD_NAME),
        _number(name_key(namespace, name)),
    )


_OF_FREE_PODS = Statement(
    "hamiacct_lock_free_pods",
    "text, int, int, int, int, int, int[]",
    f"""
SELECT {_BY_KEYS}, set_config('lock_timeout', $1, true),
    pg_advisory_xact_lock_shared($2, $3), pg_advisory_xact_lock_shared($4, $5),
    (SELECT array_agg(number) FROM unnest($7) AS number WHERE pg_try_advisory_xact_lock($6, number)),
    clock_timestamp()
""",  # noqa: S608  # the words are ours
)


def take_free_pods(names: Iterable[tuple[str, str]]) -> tuple[datetime, set[tuple[str, str]]]:
    """Of several names those that nobody holds, and the time; for whoever has others to serve meanwhile.

    Until the transaction ends nothing is waited for longer than `IMPATIENCE`.
    """
    by_number: dict[int, list[tuple[str, str]]] = {}
    for name in names:
        by_number.setdefault(_number(name_key(*name)), []).append(name)
    *_, free, now = _OF_FREE_PODS.row(
        IMPATIENCE,
        int(Space.STREAM),
        _number(Kind.POD),
        int(Space.BOOKS),
        _number(ALL_BOOKS),
        int(Space.POD_NAME),
        sorted(by_number),
    )
    assert isinstance(now, datetime)
    return now, {name for number in free or () for name in by_number[number]}


def numbers_of_namespaces(namespaces: Iterable[str]) -> tuple[int, list[int]]:
    """The numbers of namespaces' locks in their order, for a statement that takes them among other things."""
    return int(Space.NAMESPACE), sorted({_number(namespace) for namespace in namespaces})


def take_free(space: Space, keys: Iterable[str]) -> set[str]:
    """Takes those of `keys` that nobody holds, without waiting; answers which."""
    by_number: dict[int, list[str]] = {}
    for key in keys:
        by_number.setdefault(_number(key), []).append(key)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT number FROM unnest(%s::int[]) AS number WHERE pg_try_advisory_xact_lock(%s, number)",
            [sorted(by_number), int(space)],
        )
        return {key for (number,) in cursor.fetchall() for key in by_number[number]}


def share_stream(kind: str) -> None:
    """Held by everybody who applies events of a kind, before any other lock.

    The sweep of a full list waits for them, and so does a repair of the books.
    """
    _share(Space.STREAM, kind)
    _share(Space.BOOKS, ALL_BOOKS)


def close_stream(kind: str) -> None:
    """Held by the sweep of a full list: nobody applies events of the kind meanwhile."""
    take(Space.STREAM, [kind])
    _share(Space.BOOKS, ALL_BOOKS)


def be_patient() -> None:
    """Half a minute for the locks of this transaction, for what nobody waits for within a request's time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [PATIENCE])


def close_books() -> None:
    """Held by a repair, which takes no other lock: nobody posts meanwhile."""
    take(Space.BOOKS, [ALL_BOOKS])


def _share(space: Space, key: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", [int(space), _number(key)])

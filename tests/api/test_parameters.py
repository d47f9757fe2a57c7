"""Query parameters, each declared once."""

from enum import StrEnum
from typing import Any

import pytest
from django.http import QueryDict

from api import parameters
from api.errors import BadRequest


class Colour(StrEnum):
    RED = "red"


DECLARED = (
    parameters.Parameter("name", ""),
    parameters.Choice("colour", "", Colour),
    parameters.Integer("limit", "", 1, 1000, 100),
    parameters.Integer("after", ""),
    parameters.Flag("only", ""),
    parameters.Seconds("wait", "", 60.0),
)


def read(query: str) -> dict[str, Any]:
    return parameters.read(QueryDict(query), DECLARED)


def faults(query: str) -> list[str]:
    with pytest.raises(BadRequest) as caught:
        read(query)
    return [fault.pointer for fault in caught.value.faults]


def test_what_is_not_given_is_absent() -> None:
    assert read("") == {"name": "", "colour": None, "limit": 100, "after": None, "only": None, "wait": None}


def test_an_empty_value_counts_as_not_given() -> None:
    assert read("name=&colour=&limit=&after=&only=&wait=") == read("")


def test_what_is_given_is_read() -> None:
    given = read("name=a%2Fb&colour=red&limit=7&after=0&only=true&wait=1.5")
    assert given == {"name": "a/b", "colour": Colour.RED, "limit": 7, "after": 0, "only": True, "wait": 1.5}


def test_waiting_longer_than_the_limit_is_waiting_for_the_limit() -> None:
    assert read("wait=1e300")["wait"] == 60.0


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=1.0",
        "limit=%D9%A3",
        "limit=" + "9" * 5000,
        "after=9223372036854775808",
        "colour=blue",
        "only=yes",
        "wait=nan",
        "wait=-1",
        "wait=soon",
        "name=a%00b",
        "name=a&name=b",
        "unheard=1",
    ],
)
def test_a_fault_points_at_its_parameter(query: str) -> None:
    assert faults(query) == ["/query/" + query.partition("=")[0]]


def test_all_faults_are_told_at_once() -> None:
    assert sorted(faults("limit=x&colour=y&no/where=z")) == [
        "/query/colour",
        "/query/limit",
        "/query/no~1where",
    ]

"""Bodies: what is JSON here, and where one text ends and the next begins."""

import json

import pytest

from api import bodies
from api.errors import TooLarge
from hamiacct.accounting.errors import Malformed

NO_JSON = [
    b"",
    b"   ",
    b"{",
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'["\\ud800"]',
    b'"\xff"',
    b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b"{} {}",
]


@pytest.mark.parametrize("body", NO_JSON, ids=lambda body: repr(body[:20]))
def test_what_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        bodies.parsed(body)


def test_the_position_of_the_fault_is_told() -> None:
    with pytest.raises(Malformed, match="line 2, column 3"):
        bodies.parsed(b'{"a":\n  x}')


def test_of_a_name_given_twice_the_last_counts() -> None:
    assert bodies.parsed(b'{"a": 1, "a": 2}') == {"a": 2}


def test_a_byte_order_mark_is_ignored() -> None:
    assert bodies.parsed(b"\xef\xbb\xbf[1]") == [1]


def test_numbers_of_any_size_are_read() -> None:
    assert bodies.parsed(b"[" + b"9" * 300 + b"]") == [pytest.approx(1e300)]


def test_a_number_that_no_double_holds_is_its_text_and_spoils_no_other() -> None:
    huge = "-" + "9" * 5000
    numbers = f"[{huge}, 1e999, 1, -9223372036854775808, 18446744073709551615, 36893488147419103232, 0.5]"
    assert bodies.parsed(numbers.encode()) == [huge, "1e999", 1, -(2**63), 2**64 - 1, 2.0**65, 0.5]


@pytest.mark.parametrize("also", [b"NaN", b"-Infinity", b'"\\ud800"', b"[" * 100_000, b"\xff"])
def test_such_a_number_excuses_nothing_else(also: bytes) -> None:
    with pytest.raises(Malformed):
        bodies.parsed(b"[1e999, " + also + b"]")


def texts(body: bytes) -> list[bytes]:
    return list(bodies.texts_of_lines(body))


def test_one_text_a_line() -> None:
    assert texts(b'{"a":1}\n\n{"b":2}\r\n  \n{"c":3}') == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_objects_over_several_lines_as_kubectl_prints_them() -> None:
    events = [{"type": "ADDED", "object": {"a": [1, {"b": {}}]}}, {"type": "DELETED", "object": {}}]
    body = "".join(json.dumps(event, indent=4) + "\n" for event in events).encode()
    assert [bodies.parsed(text) for text in texts(body)] == events


def test_both_forms_in_one_body() -> None:
    body = b'{"a":1}\n{\n    "b": {\n        "c": 2\n    }\n}\n{"d":3}\n'
    assert [bodies.parsed(text) for text in texts(body)] == [{"a": 1}, {"b": {"c": 2}}, {"d": 3}]


@pytest.mark.parametrize(
    "cut", [b'{"a":', b'{"a":{"b":1}', b"{", b'{\n    "a": {', b'{\n    "a": {\n    }', b"}", b"nonsense"]
)
def test_a_text_cut_off_takes_no_other_with_it(cut: bytes) -> None:
    found = texts(b'{"first":1}\n' + cut + b'\n{"last":1}\n')
    assert found[0] == b'{"first":1}'
    assert found[-1] == b'{"last":1}'
    assert len(found) == 3


def test_more_texts_than_the_limit_are_too_large() -> None:
    assert bodies.counted(iter([b"1", b"2"]), 2) == [b"1", b"2"]
    with pytest.raises(TooLarge):
        bodies.counted(iter([b"1", b"2", b"3"]), 2)

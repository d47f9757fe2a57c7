"""Quantities are exact, bounded, and never floats (semantics 3.1)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct.accounting import quantities
from hamiacct.accounting.errors import UnreadableQuantity

UNITS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("10k", 10_000),
        ("16Gi", 17_179_869_184),
        ("1e3", 1000),
        ("2E2", 200),
        ("1E", 10**18),
        ("7Ei", 7 * 2**60),
        ("007", 7),
        ("+5", 5),
        ("-5", -5),
        ("9223372036854775807", 2**63 - 1),
        (4096, 4096),
        ("0e999", 0),
    ],
)
def test_reads_whole_numbers_with_and_without_a_suffix(text: str | int, value: int) -> None:
    assert quantities.whole(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 5",
        "5 ",
        "1.5",
        "16.0Gi",
        "1.0k",
        "100m",
        "1000m",
        "1e-3",
        "5GiB",
        "5ki",
        "five",
        "٥",
        "0x10",
        "1_000",
        "1e",
        "e3",
        ".",
        "-",
        "9223372036854775808",
        "8Ei",
        "10E",
        "1e999",
        "1e99999999999",
        "9" * 64,
        "9" * 5000,
        9**99,
        1.0,
        True,
        None,
        [],
    ],
)
def test_refuses_what_has_no_exact_whole_number(text: str) -> None:
    with pytest.raises(UnreadableQuantity):
        quantities.whole(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 1),
        ("100m", 1),
        ("1100m", 2),
        ("1.5k", 1500),
        ("1n", 1),
        ("-0.5", -1),
        ("1e-99", 1),
        ("0.0", 0),
        ("9223372036854775807", 2**63 - 1),
        (7, 7),
    ],
)
def test_rounds_fractions_away_from_zero(text: str, value: int) -> None:
    assert quantities.rounded_up(text) == value


@given(
    st.sampled_from(["", "-", "+"]),
    st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,9})?", fullmatch=True),
    st.sampled_from(sorted(UNITS)),
)
def test_agrees_with_fractions(sign: str, number: str, unit: str) -> None:
    exact = Fraction(number.rstrip(".") or "0") * UNITS[unit] * (-1 if sign == "-" else 1)
    text = f"{sign}{number}{unit}"
    away_from_zero = -(-abs(exact).numerator // abs(exact).denominator) * (-1 if exact < 0 else 1)
    if abs(away_from_zero) >= 2**63:
        with pytest.raises(UnreadableQuantity):
            quantities.rounded_up(text)
        return
    assert quantities.rounded_up(text) == away_from_zero
    assert quantities.is_positive(text) == (exact > 0)
    if "." not in number and unit not in ("n", "u", "m"):
        assert quantities.whole(text) == exact


@given(st.one_of(st.text(max_size=80), st.integers(), st.floats(), st.booleans(), st.none()))
def test_says_a_clear_no_to_anything_else(value: object) -> None:
    try:
        quantities.whole(quantities.text_of(value))
        quantities.rounded_up(quantities.text_of(value))
    except UnreadableQuantity:
        pass


def test_numbers_of_any_size_cost_nothing() -> None:
    for value in (10**100_000, "9" * 10_000_000, "1e9999", float("1e308")):
        with pytest.raises(UnreadableQuantity):
            quantities.whole(quantities.text_of(value))

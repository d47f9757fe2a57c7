"""Amounts and usage are an algebra (S0.1, S0.2, S3.3)."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamiacct.accounting.amounts import NOTHING, Amount, Usage
from tests.accounting.strategies import core_sets, core_usages, sizes, usages

# Each law holds for amounts and for usage, for sizes and for named cores.
OF_ONE_KIND = [
    pytest.param(st.lists(kind, min_size=3, max_size=3), id=name)
    for name, kind in (
        ("amounts", sizes),
        ("amounts of named cores", core_sets),
        ("usage", usages),
        ("usage of named cores", core_usages),
    )
]
every_kind = pytest.mark.parametrize("three", OF_ONE_KIND)
Three = st.SearchStrategy[list[Amount]]


def holds(three: Three, law: Callable[[Amount, Amount, Amount], bool]) -> None:
    @given(three)
    def check(drawn: list[Amount]) -> None:
        assert law(*drawn)

    check()


@every_kind
def test_plus_is_commutative(three: Three) -> None:
    holds(three, lambda a, b, _: a.plus(b) == b.plus(a))


@every_kind
def test_plus_is_associative(three: Three) -> None:
    holds(three, lambda a, b, c: a.plus(b).plus(c) == a.plus(b.plus(c)))


@every_kind
def test_peak_is_commutative(three: Three) -> None:
    holds(three, lambda a, b, _: a.peak(b) == b.peak(a))


@every_kind
def test_peak_is_associative(three: Three) -> None:
    holds(three, lambda a, b, c: a.peak(b).peak(c) == a.peak(b.peak(c)))


@every_kind
def test_peak_with_itself_is_itself(three: Three) -> None:
    holds(three, lambda a, _, __: a.peak(a) == a)


@every_kind
def test_a_usage_and_no_more_is_itself(three: Three) -> None:
    nothing = {Amount: NOTHING, Usage: Usage()}

    def law(a: Amount, _: Amount, __: Amount) -> bool:
        return a.plus(nothing[type(a)]) == a.peak(nothing[type(a)]) == a

    holds(three, law)


@every_kind
def test_plus_distributes_over_peak(three: Three) -> None:
    """Why it does not matter whether sidecars are added to each init, or to the largest so far."""
    holds(three, lambda a, b, c: a.peak(b).plus(c) == a.plus(c).peak(b.plus(c)))


@given(sizes, sizes)
def test_minus_takes_back_what_plus_gave(a: Amount, b: Amount) -> None:
    assert a.plus(b).minus(b) == a
    assert a.minus(a).is_nothing


@given(usages, usages)
def test_minus_takes_back_what_plus_gave_key_by_key(a: Usage[str], b: Usage[str]) -> None:
    assert a.plus(b).minus(b) == a
    assert not len(a.minus(a))


@given(core_sets, core_sets)
def test_a_difference_of_named_cores_has_sizes_only(a: Amount, b: Amount) -> None:
    difference = a.plus(b).minus(b)
    assert difference.core_set == 0
    assert difference.cores == (a.core_set & ~b.core_set).bit_count()


@given(sizes, sizes, sizes)
def test_peak_and_plus_are_monotone(a: Amount, b: Amount, c: Amount) -> None:
    larger = a.plus(b)
    assert a.fits_in(larger)
    assert a.peak(c).fits_in(larger.peak(c))
    assert a.plus(c).fits_in(larger.plus(c))


@given(sizes, sizes)
def test_both_fit_in_their_peak_and_nothing_smaller_does(a: Amount, b: Amount) -> None:
    peak = a.peak(b)
    assert a.fits_in(peak)
    assert b.fits_in(peak)
    for less in (Amount(1, 0, 0), Amount(0, 1, 0), Amount(0, 0, 1)):
        assert not (a.fits_in(peak.minus(less)) and b.fits_in(peak.minus(less)))


@given(core_sets, core_sets)
def test_named_cores_are_counted_once(a: Amount, b: Amount) -> None:
    assert a.plus(b).cores == (a.core_set | b.core_set).bit_count()
    assert a.peak(b).core_set == a.core_set | b.core_set


@given(usages, usages)
def test_a_key_without_an_amount_holds_nothing(a: Usage[str], b: Usage[str]) -> None:
    total = a.plus(b)
    for key in ("GPU-a", "GPU-b", "GPU-c", "GPU-z"):
        assert total[key] == a[key].plus(b[key])
        assert a.peak(b)[key] == a[key].peak(b[key])
        assert (key in total) is not total[key].is_nothing


@given(usages)
def test_the_total_is_the_sum_over_the_keys(usage: Usage[str]) -> None:
    assert usage.total == NOTHING.plus(usage["GPU-a"]).plus(usage["GPU-b"]).plus(usage["GPU-c"])


@given(usages)
def test_equal_usages_are_one(usage: Usage[str]) -> None:
    again = Usage([*reversed(usage.items()), ("GPU-z", NOTHING)])
    assert again == usage
    assert hash(again) == hash(usage)
    assert [key for key, _ in usage.items()] == sorted(usage)


def test_sums_do_not_wrap() -> None:
    """S0.2: two cards' worth of 31 bits need 32."""
    most = Amount(memory_mib=2**31 - 1)
    assert most.plus(most).memory_mib == 4294967294


def test_a_usage_says_what_it_holds() -> None:
    usage = Usage({"GPU-a": Amount(1, 2, 3)})
    assert "GPU-a" in repr(usage)
    assert usage != "GPU-a"

"""Kubernetes quantities as exact integers: "16Gi", "10k", "1e3", 42 (semantics 3.1).

Floats never occur. Texts are bounded, and so are exponents, before any power is taken: a number of
any size is a clear error and costs nothing.
"""

from __future__ import annotations

import re

from hamiacct.accounting.errors import UnreadableQuantity

MAX_TEXT = 64
INT64_MAX = 2**63 - 1

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[0-9]*)(?P<point>\.?)(?P<fraction>[0-9]*)"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,4}))?"
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT_LIMIT = 128
"""Times or divided by 10**128, every value of at most 64 characters is out of range, zero, or next to it."""


def text_of(value: object) -> str:
    """A quantity as it was written, from JSON or YAML, cut where it is longer than any number.

    Raises UnreadableQuantity when it is neither text nor a number.
    """
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT + 1]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnreadableQuantity(f"a quantity must be a text or a number, not {type(value).__name__}")
    if isinstance(value, int) and value.bit_length() > 3 * MAX_TEXT:
        # Python refuses to print numbers of any size; one digit too many says the same.
        return "9" * (MAX_TEXT + 1)
    return repr(value)


def whole(value: str | int) -> int:
    """The exact whole number of a quantity; suffixes are allowed, a decimal point is not (semantics 3.1).

    Raises UnreadableQuantity for anything else: fractions, also those of the suffixes n, u and m,
    and values beyond 64 bit.
    """
    number: int
    if type(value) is int:
        number = value
    else:
        text = _bounded(value)
        if text.isdecimal() and text.isascii():
            number = int(text)
        else:
            mantissa, scale, point, shift = _parts(text)
            if point:
                raise UnreadableQuantity(f"quantity {text!r} has a decimal point")
            if scale < 0:
                raise UnreadableQuantity(f"quantity {text!r} is not a whole number")
            number = (mantissa << shift) * _power_of_ten(scale)
    if not -INT64_MAX <= number <= INT64_MAX:
        raise UnreadableQuantity("quantity is beyond 64 bit")
    return number


def rounded_up(value: str | int) -> int:
    """The whole number of a quantity, fractions rounded away from zero, as Kubernetes' `Value()` does.

    Percentages are judged by it (semantics 3.2). Raises UnreadableQuantity.
    """
    if type(value) is int:
        return whole(value)
    mantissa, scale, _, shift = _parts(_bounded(value))
    size = abs(mantissa) << shift
    number = size * _power_of_ten(scale) if scale >= 0 else -(-size // _power_of_ten(-scale))
    if number > INT64_MAX:
        raise UnreadableQuantity("quantity is beyond 64 bit")
    return -number if mantissa < 0 else number


def is_positive(text: str) -> bool:
    """Whether a quantity asks for anything; one that cannot be read is taken to."""
    if text[:1] in "123456789" and text:
        return True
    try:
        return rounded_up(text) > 0
    except UnreadableQuantity:
        return True


def _power_of_ten(exponent: int) -> int:
    power: int = 10 ** min(exponent, _EXPONENT_LIMIT)
    return power


def _bounded(value: object) -> str:
    if not isinstance(value, str):
        raise UnreadableQuantity(f"a quantity must be a text or a whole number, not {type(value).__name__}")
    if len(value) > MAX_TEXT:
        raise UnreadableQuantity(f"quantity is longer than {MAX_TEXT} characters")
    return value


def _parts(text: str) -> tuple[int, int, bool, int]:
    """(mantissa, power of ten, whether a point was written, power of two): mantissa * 10**p * 2**q."""
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["digits"] or match["fraction"]):
        raise UnreadableQuantity(f"{text!r} is not a quantity")
    mantissa = int(match["digits"] + match["fraction"])
    if match["sign"] == "-":
        mantissa = -mantissa
    suffix = match["suffix"] or ""
    power = _DECIMAL_EXPONENTS.get(suffix, 0) or int(match["exponent"] or 0)
    return mantissa, power - len(match["fraction"]), bool(match["point"]), _BINARY_EXPONENTS.get(suffix, 0)

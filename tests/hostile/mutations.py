"""Bent inputs: a good document with something wrong in it, as a JSON value or in its bytes.

Values are bent with what is known of them: a text that is an allocation list loses a separator, one that is
a JSON register is bent inside, a number grows beyond every width. Bytes are bent without knowing anything.
What JSON's own writer would never write (NaN, a half surrogate, a name given twice, brackets a hundred
thousand deep) is put into the text where a marker stands.
"""

import copy
import gzip
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Json = Any

# --- what takes the place of a value --------------------------------------------------------------

MARK = "\ue0fe{}\ue0ff"
MARKED = re.compile('"\ue0fe(\\d+)\ue0ff"')


def nest(levels: int, is_list: bool) -> str:
    """So many lists or objects, one in the other, as JSON."""
    return "[" * levels + "]" * levels if is_list else '{"a":' * levels + "0" + "}" * levels


RAW: tuple[str, ...] = (
    "NaN",
    "-Infinity",
    "1e400",
    "-1e400",
    "1E+2",
    "-0",
    "-0.0",
    "01",
    "0x10",
    "1_000",
    "+1",
    ".5",
    "5.",
    "1e5000",
    "9" * 5000,
    "-" + "9" * 19,
    "18446744073709551615",
    "18446744073709551616",
    "1.0000000000000000000000001",
    r'"\ud800"',
    r'"\udc00\ud800"',
    r'"\u0000"',
    r'"a\u0000b"',
    r'"\x41"',
    '"\t"',
    "'a'",
    "nil",
    "True",
    '{"a": 1, "a": 2}',
    '{"": {"": {"": []}}}',
    '{"\\u0000": "\\u0000"}',
    "[1,]",
    "",
    nest(10, True),
    nest(100, False),
    nest(1000, True),
    nest(1030, False),
    nest(100_000, True),
)

VALUES: tuple[Json, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31 - 1,
    2**31,
    -(2**31) - 1,
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    0.1,
    -0.5,
    1e308,
    5e-324,
    "",
    " ",
    "0",
    "-1",
    "1.5",
    "1e9",
    "1e999999999",
    "1Ei",
    "99999999999Ei",
    "0x7f",
    "٣",  # digits that Python's int() reads
    "１２",
    "²",
    "9" * 400,
    "true",
    "null",
    "Running",
    "\ufffd",
    "\u202e\u200b\ufeff",
    "ÄÖ€😀",
    "e\u0301" * 50,
    "\x1b[31m",
    "a\nb",
    "a\r\nX: y",
    "..//%2F?#",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "'; DROP TABLE hamiacct_pod; --",
    "{{7*7}}%s%n${x}",
    "{}",
    "[]",
    "x" * 253,
    "x" * 254,
    "x" * 70_000,
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30T00:00:00Z",
    "Requesting_9999-12-31 23:59:59",
    "Requesting_0001-01-01 00:00:00",
    [],
    {},
    [[]],
    [None],
    [0] * 5000,
    {"": None},
    {"kind": "Pod"},
    {str(number): number for number in range(1100)},
    [{} for _ in range(1100)],
)

PIECES = (
    ",",
    ":",
    ";",
    ",,",
    "::",
    ";;",
    "GPU",
    "-",
    "999999999999",
    "0",
    " ",
    "[",
    "{",
    '"',
    "\n",
    "٣",
    "|",
    "=",
)


class Place(NamedTuple):
    """Where a value stands in a document: in which list or object, under which index or name."""

    holder: Any
    key: Any

    @property
    def value(self) -> Json:
        """What stands there."""
        return self.holder[self.key]


def places(value: Json) -> Iterator[Place]:
    """Every place of a document below its root."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield Place(value, key)
        yield from places(inner)


class Bender:
    """Bends documents at random. `raw` keeps what is written in the place of markers."""

    def __init__(self, chances: random.Random) -> None:
        self.chances = chances
        self.raw: list[str] = []
        self._ways: tuple[Callable[[Place], None], ...] = (
            self._lose,
            self._replace,
            self._replace,
            self._write_raw,
            self._bend_inside,
            self._bend_inside,
            self._bend_inside,
            self._wrap,
            self._swap,
            self._rename,
            self._double,
        )

    def value(self, document: Json) -> Json:
        """A copy with one to three places bent."""
        bent = copy.deepcopy(document)
        for _ in range(self.chances.choice((1, 1, 1, 2, 3))):
            found = list(places(bent))
            if found:
                self.chances.choice(self._ways)(self.chances.choice(found))
        return bent

    def text(self, document: Json) -> bytes:
        """The JSON of a document, with what stands for its markers."""
        written = json.dumps(document, ensure_ascii=self.chances.random() < 0.8)
        return MARKED.sub(self._written, written).encode("utf-8", "surrogatepass")

    def _written(self, mark: re.Match[str]) -> str:
        """What stands for a marker; one that was bent itself is a text like any other."""
        number = int(mark[1])
        return self.raw[number] if number < len(self.raw) else '"mark"'

    def body(self, document: Json) -> bytes:
        """A bent document as bytes; in one of four the bytes are bent as well."""
        written = self.text(self.value(document))
        return self.bytes_of(written) if self.chances.random() < 0.25 else written

    # --- values

    def _lose(self, place: Place) -> None:
        del place.holder[place.key]

    def _replace(self, place: Place) -> None:
        place.holder[place.key] = copy.deepcopy(self.chances.choice(VALUES))

    def _write_raw(self, place: Place) -> None:
        self.raw.append(self.chances.choice(RAW))
        place.holder[place.key] = MARK.format(len(self.raw) - 1)

    def _bend_inside(self, place: Place) -> None:
        """By what is known of the value."""
        value = place.value
        if isinstance(value, str) and value[:1] in ("[", "{"):
            place.holder[place.key] = self._embedded(value)
        elif isinstance(value, str):
            place.holder[place.key] = self.cut(value)
        elif isinstance(value, bool) or value is None:
            place.holder[place.key] = str(value)
        elif isinstance(value, int | float):
            place.holder[place.key] = self.chances.choice(
                (-value, value + 0.5, str(value), value * 10**30, f"{value}Gi", f"{value}m", [value])
            )
        elif isinstance(value, list):
            place.holder[place.key] = value * self.chances.choice((0, 2, 3, 200)) if len(value) < 50 else []
        else:
            place.holder[place.key] = list(value.values())

    def _embedded(self, text: str) -> str:
        """A JSON text in a text: bent as a document, or as a text."""
        if self.chances.random() < 0.3:
            return self.cut(text)
        try:
            return self.text(self.value(json.loads(text))).decode("utf-8", "replace")
        except (ValueError, RecursionError):  # it is none any more, or too deep for Python
            return self.cut(text)

    def cut(self, text: str) -> str:
        """A text that was cut, doubled, turned around, or has something put in."""
        rng = self.chances
        place = rng.randrange(len(text) + 1)
        other = rng.randrange(len(text) + 1)
        first, last = min(place, other), max(place, other)
        separators = str.maketrans(dict(zip(",:;", rng.choice((":;,", ";,:", ",,,", "|:;")), strict=True)))
        return rng.choice(
            (
                text[:place],
                text[place:],
                text[:first] + text[last:],
                text + text,
                text[:last] + text[first:],
                text[:place] + rng.choice(PIECES) + text[place:],
                text[:place] + rng.choice(PIECES) + text[place + 1 :],
                text.translate(separators),
                text[::-1],
                text.upper(),
                f" {text} ",
                re.sub(
                    r"\d+", lambda _: rng.choice(("-1", "1e3", "NaN", "٣", "4294967296", "")), text, count=1
                ),
                text * min(2000, 300_000 // (len(text) or 1)) if rng.random() < 0.1 else text[:place],
            )
        )

    def _wrap(self, place: Place) -> None:
        for level in range(self.chances.choice((1, 10, 100, 250))):
            place.holder[place.key] = [place.value] if level % 2 else {"in": place.value}

    def _swap(self, place: Place) -> None:
        """Two values of one holder change places."""
        keys = list(place.holder) if isinstance(place.holder, dict) else list(range(len(place.holder)))
        other = self.chances.choice(keys)
        holder = place.holder
        holder[place.key], holder[other] = holder[other], holder[place.key]

    def _rename(self, place: Place) -> None:
        if isinstance(place.holder, dict):
            value = place.holder.pop(place.key)
            name = self.chances.choice(
                (place.key.upper(), place.key + " ", "", "\0", place.key * 2, "x" * 300)
            )
            place.holder[name] = value

    def _double(self, place: Place) -> None:
        """A name that stands twice in its object, with another value the second time; an item twice."""
        if isinstance(place.holder, list):
            place.holder.insert(place.key, copy.deepcopy(place.value))
            return
        try:
            first = json.dumps(place.value)
        except RecursionError:
            return
        if MARKED.search(first):
            return
        second = json.dumps(self.chances.choice(VALUES[:40]))
        name = json.dumps(place.key)
        self.raw.append(f"{{{name}: {first}, {name}: {second}}}")
        place.holder[place.key] = MARK.format(len(self.raw) - 1)

    # --- bytes

    def bytes_of(self, written: bytes) -> bytes:
        """Bytes that were damaged without regard to what they say."""
        rng = self.chances
        place = rng.randrange(len(written) + 1)
        other = min(len(written), place + rng.choice((1, 2, 10, 100)))
        return rng.choice(
            (
                written[:place],
                written[place:],
                written[:place] + written[other:],
                written + written,
                written[:place] + bytes((rng.randrange(256),)) + written[place + 1 :],
                written[:place]
                + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\xf8\x88"))
                + written[place:],
                b"\xef\xbb\xbf" + written,
                b"\xfe\xff" + written.decode("utf-8", "replace").encode("utf-16-be"),
                written.decode("utf-8", "replace").encode("utf-16"),
                gzip.compress(written, 1, mtime=0),
                written.replace(b'"', b"'"),
                written.replace(b":", b"=", 3),
                written.replace(b" ", b"\n"),
                b" " * 10_000 + written,
                written + b"\0",
                b"",
                b"null",
                b"[" * 100_000,
                b'{"a":' * 50_000,
            )
        )

"""The cases of tests/data, by kind. Where HAMi and the right answer differ, the right one counts."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).with_name("data")


@lru_cache(maxsize=4)
def read(file: str = "hami-cases.json") -> tuple[dict[str, Any], ...]:
    """All cases of one file."""
    return tuple(json.loads((DATA / file).read_text(encoding="utf-8")))


def of_kind(*kinds: str) -> list[Any]:
    """One parameter per case of these kinds of hami-cases.json: (input, right answer), named by its id."""
    return [
        pytest.param(case["input"], correct(case["expected"]), id=case["id"])
        for case in read()
        if case["kind"] in kinds
    ]


def correct(expected: Any) -> Any:
    """The answer that is right, where HAMi's is another."""
    return expected["correct"] if isinstance(expected, dict) and "correct" in expected else expected

"""Refusals are written once for all nodes that refuse alike."""

import json

import orjson
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from api.endpoint import AsciiJson
from api.fit import Failed
from hamiacct.accounting import fleet
from hamiacct.accounting.reasons import Reason
from hamiacct.queries import fits

LETTERS = ("a", "b", "-", ".", '"', "\\", ",", "ß", "\U0001f600", "\udc80", "\n", "{")
NAMES = st.text(st.sampled_from(LETTERS), max_size=6)


@given(st.lists(st.sets(NAMES, min_size=1), max_size=4))
def test_refusals_are_written_at_once_as_they_would_be_one_by_one(groups: list[set[str]]) -> None:
    known: set[str] = set()
    refusals = []
    for number, names in enumerate(groups):
        if alone := names - known:
            reasons = {Reason.MEMORY: number, Reason.CORES: 1}
            refusals.append(fleet.Refusal(f'{number}/8 "{number}"', reasons, "c", 0, tuple(sorted(alone))))
        known |= names
    part = Failed(refusals)
    written = AsciiJson().render({"failed": part})
    assert written.isascii()
    assert json.loads(written) == {"failed": part.value()}
    assert [one["node"] for one in part.value()] == sorted(known)


def test_an_answer_with_reasons_is_for_the_quick_writer() -> None:
    refusals = [fleet.Refusal("8/8 x", {Reason.MEMORY: 8}, "c", 0, ("n1",))]
    found = fits.Fit((), tuple(refusals), False, timezone.now())
    assert orjson.dumps([Failed(refusals).value(), found.reasons])

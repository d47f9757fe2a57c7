"""Amounts and bars as people see them."""

import pytest

from hamiacct.admin import shown
from hamiacct.admin.shown import Segment


@pytest.mark.parametrize(
    ("mib", "said"),
    [
        (0, "0"),
        (512, "512 MiB"),
        (1024, "1 GiB"),
        (24832, "24.2 GiB"),
        (-10240, "-10 GiB"),
        (1721220, "1680.9 GiB"),
        (3_276_800_000, "3,125 TiB"),
    ],
)
def test_memory_for_people(mib: int, said: str) -> None:
    assert shown.gib(mib) == said


def test_a_bar_is_split_and_what_exceeds_it_shrinks_the_scale() -> None:
    drawn = shown.bar(100, [Segment("steady", 60), Segment("inits", 0), Segment("over", 140)], "told")
    assert 'class="ha-steady" x="0.0%" y="0" width="30.0%"' in drawn
    assert 'class="ha-over" x="30.0%" y="0" width="70.0%"' in drawn
    assert 'class="ha-limit" x1="50.0%"' in drawn
    assert "ha-inits" not in drawn


def test_names_from_the_cluster_are_text() -> None:
    hostile = "<script>alert(1)</script>"
    for made in (
        shown.bar(1, [Segment("steady", 1, hostile)], hostile),
        shown.link(hostile, "/x"),
        shown.badge(hostile, title=hostile),
        shown.lines([hostile]),
    ):
        assert "<script" not in made

"""What was measured is what is said: the pages and plots are those of bench/results.json."""

import re
from typing import Any

import pytest

from bench import goals, page, plots, results
from bench.figures import Figure

FOUND = results.read()


def test_the_pages_say_what_was_measured() -> None:
    for path in (page.PAGE, page.README):
        text = path.read_text()
        assert page.rendered(text, FOUND) == text, f"{path.name}: python -m bench.page"


def test_the_plots_show_what_was_measured() -> None:
    for name, svg in plots.drawn(FOUND).items():
        assert (page.PLOTS / name).read_text() == svg, f"{name}: python -m bench.page"


def test_the_verdicts_in_the_results_are_those_of_the_goals() -> None:
    assert FOUND["goals"] == goals.judged(FOUND)


def test_what_is_in_the_way_is_said_of_every_goal_that_is_missed() -> None:
    text = page.PAGE.read_text()
    said = text.partition("## What is in the way")[2].partition("\n## ")[0]
    missed = {one["figure"] for one in FOUND["goals"] if one["verdict"] == "missed"}
    assert missed - set(re.findall(r"`([a-z0-9-]+)`", said)) == set()


def figure(key: str = "fit-best-one", *, rounds: tuple[float, ...], yardsticks: tuple[float, ...]) -> Figure:
    return Figure("fit", key, key, "ms", rounds, (20.0,) * len(rounds), "empty view", yardsticks)


def test_a_disturbance_of_both_disturbs_no_ratio() -> None:
    disturbed = figure(rounds=(2.0, 2.2, 9.0), yardsticks=(1.0, 1.0, 4.5))
    assert disturbed.ratio == 2.0
    assert disturbed.spread == pytest.approx(7 / 2.2)
    assert disturbed.p99_ratio == 20.0


def results_with(*figures: Figure, nodes: int = 5_000, of: dict[str, Any] | None = None) -> dict[str, Any]:
    """Results to which the figures of one scenario are added."""
    of = of or {"machine": {}, "versions": {}, "fleets": {}}
    return results.merged(of, nodes, 1_000, figures[0].scenario, figures, {"web": 151.0, "worker": 99.0})


def verdict(found: dict[str, Any], key: str, field: str = "ratio") -> str:
    places = [place for place, goal in enumerate(goals.GOALS) if (goal.figure, goal.field) == (key, field)]
    verdict_: str = goals.judged(found)[places[0]]["verdict"]
    return verdict_


def test_a_goal_is_met_up_to_its_limit() -> None:
    found = results_with(figure(rounds=(4.0,), yardsticks=(1.0,)))
    assert verdict(found, "fit-best-one") == "met"
    assert verdict(found, "fit-best-one", "p99_ratio") == "missed"
    assert verdict(found, "quota-check") == "not measured"
    assert verdict(found, "memory", "median") == "missed"


def test_a_rate_is_met_from_its_limit_on() -> None:
    some, enough = (figure("events-call", rounds=(rate,), yardsticks=(1000.0,)) for rate in (999.0, 1000.0))
    assert verdict(results_with(some), "events-call") == "missed"
    assert verdict(results_with(enough), "events-call") == "met"


def test_fit_is_flat_by_its_multiples_at_both_ends() -> None:
    few = results_with(figure(rounds=(2.0,), yardsticks=(1.0,)), nodes=100)
    for ratio, said in ((3.0, "met"), (3.2, "missed")):
        many = results_with(figure(rounds=(ratio,), yardsticks=(1.0,)), of=few)
        assert verdict(many, "flat-one", "median") == said


def test_what_is_measured_anew_leaves_the_other_figures() -> None:
    before = results_with(figure("quota-check", rounds=(1.0,), yardsticks=(1.0,)), nodes=100)
    fit = [figure(rounds=(3.0,), yardsticks=(1.0,))]
    found = results.merged(before, 5_000, 1_000, "fit", fit, {"web": 100.0})
    again = results.merged(
        found, 5_000, 1_000, "fit", [*fit, figure("x", rounds=(1.0,), yardsticks=(1.0,))], {}
    )
    kept = {nodes: [one["key"] for one in fleet["figures"]] for nodes, fleet in again["fleets"].items()}
    assert kept == {"100": ["quota-check"], "5000": ["fit-best-one", "x"]}


def test_a_scenario_that_failed_leaves_its_earlier_figures_where_it_has_no_new_ones() -> None:
    one, other = (figure(key, rounds=(1.0,), yardsticks=(1.0,)) for key in ("one", "other"))
    found = results_with(one, other)
    newer = figure("one", rounds=(3.0,), yardsticks=(1.0,))
    partly = results.merged(found, 5_000, 1_000, "fit", [newer], {}, is_whole=False)
    medians = {one["key"]: one["median"] for one in partly["fleets"]["5000"]["figures"]}
    assert medians == {"one": 3.0, "other": 1.0}

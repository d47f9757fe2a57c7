"""docs/performance.md, its plots and three numbers of the README, of the results: `python -m bench.page`.

What stands between `<!-- made: NAME -->` and `<!-- end -->` is made; the rest is written by people and kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from bench import goals, plots, profiles, results
from bench.goals import FLAT_TO, Results, figures_of
from devservers.launch import ROOT

PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
PLOTS = ROOT / "docs" / "plots"
MADE = re.compile(r"<!-- made: (\w+) -->\n.*?<!-- end -->", re.DOTALL)


def rendered(text: str, found: Results) -> str:
    """The page with every made part made anew."""
    return MADE.sub(lambda part: f"<!-- made: {part[1]} -->\n{PARTS[part[1]](found)}\n<!-- end -->", text)


def write(found: Results) -> None:
    """Both pages and the plots."""
    for page in (PAGE, README):
        page.write_text(rendered(page.read_text(), found))
    PLOTS.mkdir(exist_ok=True)
    for name, svg in plots.drawn(found).items():
        (PLOTS / name).write_text(svg)


def goal_table(found: Results) -> str:
    """Every goal, in the order of the table they come from."""
    rows, before = [], ""
    for one in goals.judged(found):
        scenario = "" if one["scenario"] == before else one["scenario"]
        before = one["scenario"]
        spread = f" (rounds {one['spread']:.0%} apart)" if one["spread"] else ""
        value = "" if one["value"] is None else f"{number(one['value'])} {one['unit']}{spread}"
        verdict = one["verdict"] if one["verdict"] == "met" else f"**{one['verdict']}**"
        rows.append((scenario, one["words"], one["bound"], value, verdict, f"`{one['figure']}`"))
    return table(("scenario", "", "goal", "measured", "verdict", "figure"), rows)


def figure_tables(found: Results) -> str:
    """Every figure of every fleet."""
    parts = []
    for nodes, fleet in found["fleets"].items():
        rows = [
            (
                one["name"],
                f"{number(one['median'])} {one['unit']}",
                "" if one["p99_ms"] is None else f"{number(one['p99_ms'])} ms",
                f"{one['spread']:.0%}" if len(one["rounds"]) > 1 else "",
                "" if one["ratio"] is None else f"{one['ratio']:.2f} x {one['yardstick']}",
                one["note"].replace("|", "/"),
            )
            for one in fleet["figures"]
        ]
        heading = f"### {int(nodes):,} nodes of 8 cards, {fleet['pods']:,} pods"
        parts.append(f"{heading}\n\n{table(('', 'median', 'p99', 'spread', 'beside', ''), rows)}")
    return "\n\n".join(parts) or "Nothing was measured yet."


def memory_table(found: Results) -> str:
    """The most that any process of a kind held, scenario by scenario."""
    fleet = found["fleets"].get(str(FLAT_TO), {})
    rows = [
        (name, *(f"{peaks[role]:,.0f}" if role in peaks else "" for role in ("web", "worker", "beat")))
        for name, peaks in fleet.get("peaks_mib", {}).items()
    ]
    return table(("scenario", "web, MiB", "worker, MiB", "beat, MiB"), rows)


def profile_table(_: Results) -> str:
    """Where the time of a call goes, of bench/profiles.json."""
    if not profiles.PATH.exists():
        return "Not measured yet."
    found = json.loads(profiles.PATH.read_text())
    rows = [
        (
            f"`{key}`",
            f"{number(one['ms'])} ms",
            *(f"{one['shares'].get(layer, 0):.0%}" for layer in profiles.ORDER),
        )
        for key, one in found["calls"].items()
    ]
    size = f"{found['nodes']:,} nodes, {found['pods']:,} pods"
    told = f"At {size}, in one process; `events-call` is one call with 500 events, applied in it."
    return f"{told}\n\n{table(('', 'a call', *profiles.ORDER), rows)}"


def machine(found: Results) -> str:
    """On what, and of what."""
    where, versions = found["machine"], found["versions"]
    if not where:
        return "Nothing was measured yet."
    commits = sorted({one["commit"] for fleet in found["fleets"].values() for one in fleet["ran"].values()})
    days = sorted({one["at"][:10] for fleet in found["fleets"].values() for one in fleet["ran"].values()})
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"Measured on {days[0] if len(set(days)) == 1 else f'{days[0]} to {days[-1]}'}, commit "
        f"{', '.join(commits)}, on {where['cores']} cores ({where['processor']}), "
        f"{where['memory_mib'] / 1024:.0f} GiB, {where['system']}, with {told}."
    )


def how_fast(found: Results) -> str:
    """Three numbers for those who only want to know whether it is."""
    here = figures_of(found, FLAT_TO)
    if not {"fit-best-one", "events-call", "claims-one-card-16"} <= here.keys():
        return "Nothing was measured yet."
    fit, events, claims = here["fit-best-one"], here["events-call"], here["claims-one-card-16"]
    pods = found["fleets"][str(FLAT_TO)]["pods"]
    return (
        f"- The best nodes for a pod, of {FLAT_TO:,} with {FLAT_TO * 8:,} cards and {pods:,} pods: "
        f"{number(fit['median'])} ms over HTTP, {fit['ratio']:.1f} times a view that does nothing.\n"
        f"- Watch events, from the call to applied: {number(events['median'])} a second, "
        f"{events['ratio']:.1f} times the transactions of pgbench on the same PostgreSQL.\n"
        f"- Reservations of sixteen clients on one and the same card: {number(claims['median'])} a second, "
        f"{claims['ratio']:.1f} times what OpenStack Placement takes there."
    )


def number(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PARTS: Mapping[str, Callable[[Any], str]] = MappingProxyType(
    {
        "goals": goal_table,
        "figures": figure_tables,
        "memory": memory_table,
        "machine": machine,
        "profile": profile_table,
        "how_fast": how_fast,
    }
)


if __name__ == "__main__":
    results.write(results.PATH, results.read())
    write(results.read())

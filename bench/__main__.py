"""`python -m bench [--nodes 1000 5000] [--pods N] [--only fit events] [--rounds 3]`: see `make bench`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figures import Report
from bench.fleets import Fleet
from bench.scenarios import SCENARIOS, Trial, loading, yardsticks
from bench.stack import Stack

RESULTS = Path(__file__).with_name("results.json")
PODS = {1000: 20_000, 5000: 100_000, 20_000: 100_000}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000], help="of eight cards each")
    parser.add_argument("--pods", type=int, help="20,000 to 100,000 by default, as the fleet is large")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    runs = []
    for nodes in asked.nodes:
        report = Report()
        pods = asked.pods or PODS.get(nodes, nodes * 10)
        with Stack(Path(tempfile.mkdtemp(prefix="hamiacct-bench-"))) as stack:
            trial = Trial(stack, Fleet(nodes), report, pods, asked.rounds)
            yardsticks(trial)
            loading(trial)
            for name in asked.only:
                SCENARIOS[name](trial)
        show(report, f"{nodes:,} nodes x 8 cards, {pods:,} pods")
        runs.append(
            {"nodes": nodes, "pods": pods, "figures": [figure.as_json() for figure in report.figures]}
        )
    told = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "rounds": asked.rounds,
        "runs": runs,
    }
    asked.out.write_text(json.dumps(told, indent=1) + "\n")


def show(report: Report, title: str) -> None:
    table = Table(title=title)
    for column in ("figure", "median", "p99", "spread", "x", "of", "goal", ""):
        table.add_column(column, justify="right" if column in ("median", "p99", "spread", "x") else "left")
    for one in report.figures:
        goal = "" if one.goal is None else f"{'>=' if one.goal.at_least else '<='} {one.goal.ratio:g}"
        table.add_row(
            one.name,
            f"{one.median:,.2f} {one.unit}",
            "" if one.p99 is None else f"{one.p99:,.1f} ms",
            f"{one.spread:.0%}" if one.spread else "",
            "" if one.ratio is None else f"{one.ratio:.2f}",
            one.yardstick,
            goal,
            f"{one.verdict} {one.note}".strip(),
        )
    Console(width=None if sys.stdout.isatty() else 170).print(table)


if __name__ == "__main__":
    main()

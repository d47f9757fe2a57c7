"""`python -m bench [--quick] [--nodes 1000 5000] [--only fit events]`: see `make bench`.

Every scenario's figures are written as soon as it ends, in place of its earlier ones; other figures stay. A
quick run is for a look: it writes to var/, not over figures that count.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import events, goals, page, results
from bench.fleets import Fleet
from bench.scenarios import LOAD, SCENARIOS, of_fleet, pods_of
from bench.stack import Stack
from bench.trial import FULL, QUICK, Trial
from devservers.launch import ROOT, run_until_stopped

QUICK_FLEETS = (100, 400)
QUICK_RESULTS = ROOT / "var" / "bench-quick.json"
FLEETS = (5000, 100, 1000, 20_000)
console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)


def main() -> None:
    asked = arguments()
    extent = QUICK if asked.quick else FULL
    if asked.rounds:
        extent = replace(extent, rounds=asked.rounds)
    out = asked.out or (QUICK_RESULTS if asked.quick else results.PATH)
    out.parent.mkdir(exist_ok=True)
    failed: list[str] = []
    began = perf_counter()
    for nodes in asked.nodes or (QUICK_FLEETS if asked.quick else FLEETS):
        names = asked.only or of_fleet(nodes)
        run_fleet(nodes, asked.pods or pods_of(nodes), names, extent, out, failed)
        show_fleet(results.read(out), nodes)
    if not (asked.quick or asked.nodes or asked.only):
        subprocess.run([sys.executable, "-m", "bench.profiles"], cwd=ROOT, check=False)
        page.write(results.read())
    found = results.read(out)
    show_goals(found)
    console.print(f"{perf_counter() - began:.0f} s; written to {out}")
    if failed:
        raise SystemExit(f"these failed, and their earlier figures stand: {', '.join(failed)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes: small fleets, short rounds")
    parser.add_argument("--nodes", type=int, nargs="+", help="of eight cards each")
    parser.add_argument("--pods", type=int, help="as the fleet is large, where nothing is said")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path, help="bench/results.json, of which docs/performance.md is made")
    return parser.parse_args()


def run_fleet(nodes: int, pods: int, names: Sequence[str], extent: Any, out: Path, failed: list[str]) -> None:
    """One fleet, loaded once; a scenario that fails leaves the others their turn."""
    console.print(f"[bold]{nodes:,} nodes x 8 cards, {pods:,} pods[/bold]")
    with Stack(Path(tempfile.mkdtemp(prefix="hamiacct-bench-"))) as stack:
        known = results.read(out)
        known |= {"machine": results.machine(), "versions": results.versions(stack.postgres)}
        results.write(out, known)
        trial = Trial(stack, Fleet(nodes), pods, extent)
        for name in (LOAD, *names):
            try:
                run_scenario(trial, name, out)
            except Exception:  # noqa: BLE001 - told, and the next one may do
                failed.append(f"{name} at {nodes:,}")
                console.print(traceback.format_exc(), stack.last_words(), markup=False)
                if name == LOAD:
                    return


def run_scenario(trial: Trial, name: str, out: Path) -> None:
    """One scenario, its figures written as soon as it ends; where it fails, those that it had by then."""
    trial.scenario, trial.figures = name, []
    trial.stack.forget_peaks()
    before = perf_counter()
    is_whole = False
    try:
        (events.load if name == LOAD else SCENARIOS[name])(trial)
        is_whole = True
    finally:
        taken = perf_counter() - before
        keep(trial, out, is_whole)
    console.print(f"  {name:14} {taken:6.1f} s", " ".join(map(brief, trial.figures[:4])), soft_wrap=True)
    if name == LOAD:
        trial.stack.restart_web()
        gc.collect()
        gc.freeze()  # what was made of the fleet is looked through by no collection while we measure


def keep(trial: Trial, out: Path, is_whole: bool) -> None:
    """Writes the figures, and the pages where these are the results that count."""
    found = results.merged(
        results.read(out),
        trial.fleet.nodes,
        trial.pods,
        trial.scenario,
        trial.figures,
        trial.stack.peaks_mib(),
        is_whole=is_whole,
    )
    results.write(out, found)
    if out == results.PATH:
        page.write(results.read())


def brief(figure: Any) -> str:
    times = f" ({figure.ratio:.2f} x)" if figure.ratio is not None else ""
    return f"| {figure.key} {figure.median:,.4g} {figure.unit}{times}"


def show_fleet(found: dict[str, Any], nodes: int) -> None:
    fleet = found["fleets"].get(str(nodes))
    if fleet is None:
        return
    table = Table(title=f"{nodes:,} nodes x 8 cards, {fleet['pods']:,} pods")
    for column in ("figure", "median", "p99", "spread", "x", "spread", "of", ""):
        table.add_column(column, justify="left" if column in ("figure", "of", "") else "right")
    for one in fleet["figures"]:
        table.add_row(
            one["name"],
            f"{one['median']:,.4g} {one['unit']}",
            "" if one["p99_ms"] is None else f"{one['p99_ms']:,.4g} ms",
            f"{one['spread']:.0%}" if len(one["rounds"]) > 1 else "",
            "" if one["ratio"] is None else f"{one['ratio']:.2f}",
            "" if one["ratio"] is None else f"{one['ratio_spread']:.0%}",
            one["yardstick"],
            one["note"],
        )
    console.print(table)


def show_goals(found: dict[str, Any]) -> None:
    table = Table(title="goals")
    for column in ("scenario", "", "goal", "measured", "verdict"):
        table.add_column(column)
    for one in goals.judged(found):
        value = "" if one["value"] is None else f"{one['value']:,.4g} {one['unit']}"
        table.add_row(one["scenario"], one["words"], one["bound"], value, one["verdict"])
    console.print(table)


if __name__ == "__main__":
    gc.disable()
    sys.exit(run_until_stopped(main))

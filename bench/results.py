"""bench/results.json: what was measured last, of each fleet and scenario."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench import goals
from bench.figures import Figure
from bench.scenarios import LOAD, SCENARIOS
from devservers.launch import ROOT

PATH = Path(__file__).with_name("results.json")
ORDER = (LOAD, *SCENARIOS)
PACKAGES = ("django", "djangorestframework", "granian", "celery", "psycopg", "numpy", "orjson")


def read(path: Path = PATH) -> dict[str, Any]:
    """What is there; nothing of nobody without it."""
    if not path.exists():
        return {"machine": {}, "versions": {}, "fleets": {}, "goals": []}
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def write(path: Path, results: Mapping[str, Any]) -> None:
    """All of it or nothing, with the goals judged anew."""
    judged = {**results, "goals": goals.judged(results)}
    making = path.with_suffix(".making")
    making.write_text(json.dumps(judged, indent=1) + "\n")
    making.replace(path)


def machine() -> dict[str, Any]:
    """Where this runs."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "processor": names[0] if names else platform.processor(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def versions(postgres: Path) -> dict[str, str]:
    """Of what is measured and of what it is measured beside."""
    told = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    found = {"python": platform.python_version(), "postgresql": told.split()[2]}
    found |= {name: metadata.version(name) for name in PACKAGES}
    return found


def commit() -> str:
    """The commit that is measured; with a plus where something of the product is not committed."""
    words = ["git", "rev-parse", "--short=10", "HEAD"]
    head = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    words = ["git", "status", "--porcelain", "--", "hamiacct", "api"]
    changed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return f"{head or 'unknown'}{'+' if changed else ''}"


def merged(
    results: Mapping[str, Any],
    nodes: int,
    pods: int,
    scenario: str,
    figures: Sequence[Figure],
    peaks_mib: Mapping[str, float],
    *,
    is_whole: bool = True,
) -> dict[str, Any]:
    """The results with this scenario's figures of that fleet in place of earlier ones: of all of them, or
    where it was not gone through to its end, of those it had by then."""
    fleet = results["fleets"].get(str(nodes), {"figures": [], "peaks_mib": {}, "ran": {}})
    ran = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit()}
    figures_now = [one.as_json() for one in figures]
    keys = {one.key for one in figures}
    kept = [
        one
        for one in fleet["figures"]
        if one["scenario"] != scenario or (not is_whole and one["key"] not in keys)
    ]
    changed = {
        "nodes": nodes,
        "pods": pods,
        "ran": {**fleet["ran"], scenario: ran},
        "figures": sorted([*kept, *figures_now], key=lambda one: ORDER.index(one["scenario"])),
        "peaks_mib": {
            **fleet["peaks_mib"],
            scenario: {role: round(mib, 1) for role, mib in peaks_mib.items()},
        },
    }
    fleets = {**results["fleets"], str(nodes): changed}
    return {**results, "fleets": dict(sorted(fleets.items(), key=lambda one: int(one[0])))}

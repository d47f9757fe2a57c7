"""How much was tried: histories, steps, and rules by name, per kind of history.

`python -m tests.proof.tally FOLDER` adds up what the processes of a run left there.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from uuid import uuid4

FOLDER = os.environ.get("PROVE_TALLY", "")

histories: Counter[str] = Counter()
rules: Counter[str] = Counter()
answers: Counter[str] = Counter()


def keep(folder: str = FOLDER) -> None:
    """Writes down what this process tried so far, and begins to count anew."""
    if folder:
        told = {"histories": histories, "rules": rules, "answers": answers}
        Path(folder, f"{uuid4()}.json").write_text(json.dumps(told))
    forget()


def forget() -> None:
    """What was tried until now does not count."""
    for counter in (histories, rules, answers):
        counter.clear()


def read(folder: str) -> dict[str, Counter[str]]:
    """The sum of everything written down."""
    sums: dict[str, Counter[str]] = {"histories": Counter(), "rules": Counter(), "answers": Counter()}
    for path in Path(folder).glob("*.json"):
        for name, counts in json.loads(path.read_text()).items():
            sums[name].update(counts)
    return sums


def lines(sums: dict[str, Counter[str]]) -> list[str]:
    """The same for people."""
    steps = sums["rules"].total()
    told = [f"{sums['histories'].total()} histories, {steps} steps, {len(sums['rules'])} rules"]
    for title in ("histories", "rules", "answers"):
        told.append(f"{title}:")
        told += [f"  {count:>8}  {name}" for name, count in sums[title].most_common()]
    return told


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines(read(sys.argv[1]))) + "\n")

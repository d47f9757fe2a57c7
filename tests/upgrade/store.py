"""Stores the state of the newest migration: `python -m tests.upgrade.store [MIGRATION]`.

The rows are made by the code that was the newest while the migration was: today's for the newest one, for an
older one the tree of the commit before the next one came. They are made once and kept, as a database of that
day would have been. The first migration never had code of its own (the ledger came with it): its rows are
those of the second one that can have been there without a ledger.
"""

import compileall
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from devservers.postgres import Postgres
from tests.upgrade import story

ROOT = Path(__file__).parents[2]
STATES = Path(__file__).parent / "states"
MIGRATIONS = ROOT / "hamiacct" / "migrations"
# What is charged or posted needs the ledger.
WITHOUT_LEDGER = ("usageentry", "ledgerentry", "ledgerhead", "namespaceusage", "quotausage")


def names() -> list[str]:
    """All migrations, in order."""
    return sorted(path.stem for path in MIGRATIONS.glob("[0-9]*.py"))


def tree_of(name: str, folder: Path) -> Path:
    """The code of the days when that migration was the newest."""
    later = names()[names().index(name) + 1 :]
    return tree_before(later[0], folder) if later else ROOT


def tree_before(name: str, folder: Path) -> Path:
    """The code of the last commit before that migration came that can be loaded, laid out in `folder`."""
    path = MIGRATIONS / f"{name}.py"
    came = _git("log", "--diff-filter=A", "--format=%H", "-1", "--", str(path)).decode().strip()
    for commit in _git("rev-list", "--max-count=10", f"{came}^").decode().split():
        tree = folder / f"before-{name}-{commit[:8]}"
        tree.mkdir()
        subprocess.run(["tar", "-x", "-C", str(tree)], input=_git("archive", commit), check=True)
        if compileall.compile_dir(tree / "hamiacct", quiet=2) and compileall.compile_dir(
            tree / "api", quiet=2
        ):
            return tree
    raise LookupError(f"none of the ten commits before {name} can be loaded")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


def before_the_ledger(found: story.Rows) -> story.Rows:
    """What can have been there: nothing that was charged."""
    kept = {
        table: rows for table, rows in found.items() if table.removeprefix("hamiacct_") not in WITHOUT_LEDGER
    }
    charged = [row["pod_id"] for row in found["hamiacct_usageentry"]]
    kept["hamiacct_pod"] = [row for row in found["hamiacct_pod"] if row["uid"] not in charged]
    none = {"slots_used": 0, "memory_mib_used": 0, "cores_used": 0}
    kept["hamiacct_device"] = [row | none for row in found["hamiacct_device"]]
    kept["hamiacct_finding"] = []
    return kept


def store(name: str, folder: Path) -> None:
    file = STATES / f"{name}.json"
    first, second = names()[:2]
    if name == first:
        story.write(before_the_ledger(json.loads((STATES / f"{second}.json").read_text())), file)
        return
    server = Postgres(folder, durable=False)
    try:
        kept = {key: text for key, text in os.environ.items() if not key.startswith("HAMIACCT_")}
        env = kept | {
            "HAMIACCT_DATABASE_URL": server.url,
            "HAMIACCT_SECRET_KEY": "story",
            "HAMIACCT_BOOTSTRAP_TOKEN": story.TOKEN,
        }
        tree = tree_of(name, folder)
        words = [sys.executable, "-P", str(Path(story.__file__)), str(tree), str(file)]
        subprocess.run(words, env=env, check=True, cwd=tree)
    finally:
        server.stop()


if __name__ == "__main__":
    STATES.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or names()[-1:]:
        with tempfile.TemporaryDirectory(prefix="hamiacct-story-") as place:
            store(chosen, Path(place))

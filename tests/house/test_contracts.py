"""The house stands: its contracts hold, and each of them is able to fall."""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("hamiacct", "api")

# contract -> a file of the product, and an import that it must not have
PLANTED = {
    "floors": ("hamiacct/queries/planted.py", "import hamiacct.operations"),
    "accounting-is-pure": ("hamiacct/accounting/planted.py", "import random"),
    "kube-is-the-wire": ("hamiacct/kube/planted.py", "import socket"),
    "operations-touch-no-network": ("hamiacct/operations/planted.py", "import redis"),
    "views-translate": ("api/planted.py", "import hamiacct.models"),
    "one-door": ("api/planted.py", "import hamiacct.operations.ledger"),
    "columns": ("hamiacct/operations/planted.py", "import numpy"),
    "counting-is-apart": ("hamiacct/queries/planted.py", "import hamiacct.metrics"),
    "no-circles": ("hamiacct/accounting/amounts.py", "import hamiacct.queries"),
    "no-launcher": ("hamiacct/planted.py", "import devservers.postgres"),
}


def lint_imports(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_contract_holds() -> None:
    checked = lint_imports(ROOT)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("KEPT") == len(PLANTED)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    for package in (*PRODUCT, "devservers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_violation_turns_its_contract_red(copy: Path, contract: str) -> None:
    name, line = PLANTED[contract]
    planted = copy / name
    before = planted.read_text() if planted.exists() else None
    planted.write_text(f"{before or ''}\n{line}\n")
    checked = lint_imports(copy, "--contract", contract)
    if before is None:
        planted.unlink()
    else:
        planted.write_text(before)
    assert checked.returncode == 1, checked.stdout
    assert "BROKEN" in checked.stdout


def sources(*but: str) -> Iterator[tuple[str, str]]:
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(but):
                yield name, path.read_text()


def test_transactions_begin_and_end_in_operations_alone() -> None:
    opened = [
        name
        for name, text in sources("hamiacct/operations/", "hamiacct/migrations/")
        if "atomic(" in text or "transaction.atomic" in text or "import atomic" in text
    ]
    assert opened == []


def test_no_import_hides_in_a_function_or_behind_type_checking() -> None:
    hidden = [
        f"{name}:{node.lineno}"
        for name, text in sources()
        for outer in ast.walk(ast.parse(text))
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If)
        for node in ast.walk(outer)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert hidden == []

"""The pages that say what exists: nothing that exists is missing from them."""

import re
from pathlib import Path

import pytest

from hamiacct.accounting.words import FindingCode

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "hamiacct",
    "hamiacct/accounting",
    "hamiacct/kube",
    "hamiacct/queries",
    "hamiacct/operations",
    "hamiacct/management",
    "hamiacct/management/commands",
    "hamiacct/admin",
    "api",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_architecture_names_every_module(package: str) -> None:
    quoted = re.findall(r"`([^`\n]+)`", (ROOT / "docs/architecture.md").read_text())
    named = {word for text in quoted for word in re.split(r"[^A-Za-z0-9_-]", text)}
    modules = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert modules - named == set(), "docs/architecture.md, section 3, does not name them"


def test_operations_explain_every_finding() -> None:
    explained = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs/operations.md").read_text(), re.M)
    assert sorted(explained) == sorted(FindingCode)


def test_every_link_between_the_pages_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_what_reliability_names_is_there() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    quoted = re.findall(r"`([^`\n]+)`", page)
    files = [name for name in quoted if re.fullmatch(r"(tests|bench|docs|hamiacct)/[\w./-]+", name)]
    assert len(files) > 15
    assert [name for name in files if not (ROOT / name).exists()] == []
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.M))
    named = {word for name in quoted for word in re.findall(r"\bmake ([a-z][\w-]*)", name)}
    assert len(named) > 5
    assert named - targets == set()
    assert not re.search(r"\bMAKE_[A-Z]+\b", page), "a place that nobody filled in"

"""Whatever rule or decision is cited anywhere is found in docs/semantics.md."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEMANTICS = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
RULES = set(re.findall(r"\*\*S(\d+\.\d+[a-z]?)\*\*", SEMANTICS))
DECISIONS = dict(re.findall(r"^\| (\d+) \| (S.*?) \|$", SEMANTICS, flags=re.MULTILINE))


def test_every_rule_cited_by_a_test_is_there() -> None:
    cited = {
        rule
        for path in (ROOT / "tests").rglob("*.py")
        for rule in re.findall(r"\bS(\d+\.\d+[a-z]?)\b", path.read_text(encoding="utf-8"))
    }
    assert cited
    assert cited <= RULES


def test_every_decision_leads_to_rules_that_cite_it() -> None:
    for decision, rules in DECISIONS.items():
        for rule in rules.split(", "):
            assert decision in decisions_of(rule.removeprefix("S")), (
                f"{rule} does not cite decision {decision}"
            )
    told = {decision for rule in RULES for decision in decisions_of(rule)}
    assert told == DECISIONS.keys()


def decisions_of(rule: str) -> set[str]:
    """The decisions in brackets at the end of a rule."""
    (text,) = re.findall(rf"\*\*S{re.escape(rule)}\*\*(.*?)(?=\n- \*\*|\n#|\Z)", SEMANTICS, flags=re.DOTALL)
    return {number for group in re.findall(r"\((\d+(?:, \d+)*)\)\s*\Z", text) for number in group.split(", ")}


def sections() -> Iterator[str]:
    """The numbers a docstring may cite as `semantics <number>`: rules, and sections of them."""
    for rule in RULES:
        yield rule
        yield rule.partition(".")[0]


def test_every_section_cited_by_the_code_is_there() -> None:
    cited = {
        number.rstrip(".")
        for folder in ("hamiacct", "api")
        for path in (ROOT / folder).rglob("*.py")
        for numbers in re.findall(r"semantics ([\d.]+(?:, [\d.]+)*)", path.read_text(encoding="utf-8"))
        for number in numbers.split(", ")
    }
    assert cited
    assert cited <= set(sections())


def test_every_decision_cited_by_the_code_is_there() -> None:
    cited = {
        number
        for folder in ("hamiacct", "api")
        for path in (ROOT / folder).rglob("*.py")
        for numbers in re.findall(
            r"decisions? (\d+(?:(?:, | and | to )\d+)*)", path.read_text(encoding="utf-8")
        )
        for number in re.findall(r"\d+", numbers)
    }
    assert cited
    assert cited <= DECISIONS.keys()

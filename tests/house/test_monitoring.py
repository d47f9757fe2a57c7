"""deploy/monitoring: what the rules and the dashboard ask for exists, and every alert is explained."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from hamiacct import metrics

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "hamiacct.json"

# Prometheus's own: the series `up`, and the labels of where something was scraped.
OF_PROMETHEUS = {"up": frozenset[str]()}
OF_A_TARGET = frozenset(("job", "instance"))


def series() -> dict[str, frozenset[str]]:
    """Every series that a scrape may have, and its labels."""
    found = {name: frozenset(gauge.labels) for name, gauge in metrics.STATE.items()}
    for metric in metrics.MEASURED:
        labels, name = frozenset(metric._labelnames), metric._name
        if metric._type == "counter":
            found[f"{name}_total"] = labels
        else:
            found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
    return found | OF_PROMETHEUS


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text()))


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and the expression; what Grafana fills in is filled in."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], filled_in(target["expr"])
    for variable in board["templating"]["list"]:
        query, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        yield variable["name"], f"count by ({label}) ({query})"


def filled_in(expression: str) -> str:
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "5m"))


EXPRESSIONS = list(expressions())


def selectors(expression: str) -> list[Any]:
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def grouped_by(expression: str) -> set[str]:
    named = re.findall(r"\bby \(([^)]*)\)", expression)
    return {label.strip() for labels in named for label in labels.split(",")}


@pytest.mark.parametrize(
    ("where", "expression"), EXPRESSIONS, ids=[f"{n} {w}" for n, (w, _) in enumerate(EXPRESSIONS)]
)
def test_every_name_and_label_asked_for_exists(where: str, expression: str) -> None:
    known = series()
    asked = selectors(expression)
    assert asked
    for selector in asked:
        assert selector.name in known
        assert {matcher.name for matcher in selector.matchers.matchers} <= known[selector.name] | OF_A_TARGET
    # A label that some series of the expression lacks would join nothing, or everything.
    for label in grouped_by(expression):
        assert all(label in known[selector.name] for selector in asked), label


def test_gauges_of_the_books_are_not_added_up_over_the_web_servers() -> None:
    for where, expression in EXPRESSIONS:
        for name in re.findall(r"\bhamiacct_\w+", expression):
            if name in metrics.STATE and name != "hamiacct_build_info":
                before = expression[: expression.index(name)]
                assert re.search(r"(max|min|count)( by \([^)]*\))? ?\($", before), (where, expression)


def test_every_alert_is_explained_where_it_says() -> None:
    sections = set(re.findall(r"^### (\w+)$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE))
    named = [rule["alert"] for rule in rules()]
    assert len(named) == len(set(named))
    assert set(named) == {section for section in sections if section.startswith("Hamiacct")}
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_page_of_metrics_names_every_metric_with_its_labels() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    told = {
        name: frozenset(re.findall(r"\w+", labels))
        for name, labels in re.findall(r"^\| `(hamiacct_\w+)` \| ([^|]*) \|", page, re.MULTILINE)
    }
    measured = {
        f"{one._name}{'_total' if one._type == 'counter' else ''}": frozenset(one._labelnames)
        for one in metrics.MEASURED
    }
    assert told == {name: frozenset(gauge.labels) for name, gauge in metrics.STATE.items()} | measured


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    board = dashboard()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    provisioned = yaml.safe_load(
        (MONITORING / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    )
    uids = {source["uid"] for source in provisioned["datasources"]}
    assert {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel} == uids
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels lie on each other"
    assert max(x for x, _ in cells) < 24


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("words", [("config", "prometheus.yml"), ("rules", "alerts.yaml")])
def test_promtool_agrees(words: tuple[str, str]) -> None:
    checked = subprocess.run(
        ["promtool", "check", words[0], MONITORING / words[1]], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr

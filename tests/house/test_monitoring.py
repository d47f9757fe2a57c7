"""deploy/monitoring: what the rules and the dashboard ask for exists, and every alert is explained."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
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


# --- do the alerts fire? ----------------------------------------------------------------------------

# What is so while all is well, and for each alert what is so instead: series, and their values by the minute.
WELL = {
    'up{job="hamiacct-web"}': "1x60",
    'up{job="hamiacct-worker"}': "1x60",
    "hamiacct_database_up": "1x60",
    "hamiacct_books_complete": "1x60",
    "hamiacct_inbox_lag_seconds": "0.2x60",
    'hamiacct_inbox_events{state="refused"}': "0x60",
    'hamiacct_audit_discrepancies{book="quotas"}': "0x60",
    "hamiacct_audit_last_run_timestamp_seconds": "0+60x60",
    'hamiacct_findings{code="overcommitted"}': "0x60",
    'hamiacct_findings{code="unregistered-device"}': "0x60",
    'hamiacct_resource_quota_over{namespace="a",quota_name="m"}': "0x60",
    "hamiacct_binding_oldest_seconds": "0x60",
    "hamiacct_watcher_alive": "1x60",
    'hamiacct_watcher_silent_seconds{kind="Pod"}': "20x60",
    'hamiacct_watcher_state{kind="Pod",state="backing-off"}': "0x60",
    'hamiacct_http_requests_total{status="200"}': "0+600x60",
    'hamiacct_http_requests_total{status="503"}': "0+6x60",
    'hamiacct_decisions_total{question="bind",verdict="allowed"}': "0+100x60",
    'hamiacct_decisions_total{question="bind",verdict="error"}': "0+1x60",
    'hamiacct_decision_seconds_bucket{question="bind",le="0.1"}': "0+100x60",
    'hamiacct_decision_seconds_bucket{question="bind",le="30"}': "0+100x60",
    'hamiacct_decision_seconds_bucket{question="bind",le="+Inf"}': "0+100x60",
    'hamiacct_tasks_total{task="t",state="failure"}': "0x60",
    'hamiacct_tasks_total{task="t",state="success"}': "0+10x60",
}
ILL = {
    "HamiacctDown": ('up{job="hamiacct-worker"}', "0x60"),
    "HamiacctDatabaseAway": ("hamiacct_database_up", "0x60"),
    "HamiacctBooksIncomplete": ("hamiacct_books_complete", "0x60"),
    "HamiacctInboxLag": ("hamiacct_inbox_lag_seconds", "0+60x60"),
    "HamiacctEventsRefused": ('hamiacct_inbox_events{state="refused"}', "1x60"),
    "HamiacctBooksDisagree": ('hamiacct_audit_discrepancies{book="quotas"}', "2x60"),
    "HamiacctAuditOverdue": ("hamiacct_audit_last_run_timestamp_seconds", "-20000x60"),
    "HamiacctCardsOvercommitted": ('hamiacct_findings{code="overcommitted"}', "1x60"),
    "HamiacctUsageOnUnregisteredDevices": ('hamiacct_findings{code="unregistered-device"}', "1x60"),
    "HamiacctQuotaOverLimit": ('hamiacct_resource_quota_over{namespace="a",quota_name="m"}', "5x60"),
    "HamiacctBindingStuck": ("hamiacct_binding_oldest_seconds", "0+60x60"),
    "HamiacctWatcherGone": ("hamiacct_watcher_alive", "0x60"),
    "HamiacctWatcherSilent": ('hamiacct_watcher_silent_seconds{kind="Pod"}', "0+60x60"),
    "HamiacctWatcherBackingOff": ('hamiacct_watcher_state{kind="Pod",state="backing-off"}', "1x60"),
    "HamiacctErrors": ('hamiacct_http_requests_total{status="503"}', "0+60x60"),
    "HamiacctDecisionsFail": ('hamiacct_decisions_total{question="bind",verdict="error"}', "0+60x60"),
    "HamiacctSlow": ('hamiacct_decision_seconds_bucket{question="bind",le="0.1"}', "0+10x60"),
    "HamiacctTasksFail": ('hamiacct_tasks_total{task="t",state="failure"}', "0+1x60"),
}


def told_of(situation: Mapping[str, str], wanted: list[str]) -> dict[str, Any]:
    """A test of promtool's: after 50 minutes exactly these alerts fire."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in situation.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "50m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in wanted],
            }
        ],
    }


def test_every_alert_has_its_illness() -> None:
    assert ILL.keys() == {rule["alert"] for rule in rules()}
    assert {name for name, _ in ILL.values()} <= WELL.keys()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_each_alert_fires_alone_and_none_while_all_is_well(tmp_path: Path) -> None:
    tests = [told_of(WELL, []), *(told_of(WELL | dict([ill]), [alert]) for alert, ill in ILL.items())]
    file = tmp_path / "alerts_test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(MONITORING / "alerts.yaml")], "tests": tests}))
    checked = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr

"""GET /metrics"""

import gzip
import tomllib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from rest_framework.test import APIClient

from hamiacct import metrics, models
from hamiacct.accounting.words import (
    Book,
    FindingCode,
    Kind,
    PodState,
    Question,
    Refusal,
    Role,
    WatchState,
)
from hamiacct.operations import audit, watching
from tests.asking import asking

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[2]
Labels = frozenset[tuple[str, str]]


def text_of(response: Any) -> str:
    assert response.status_code == 200
    return str(response.content.decode())


def scrape(client: APIClient, **headers: str) -> str:
    return text_of(client.get("/metrics", **headers))


def samples(text: str) -> dict[str, dict[Labels, float]]:
    """Every sample by name and labels; no series occurs twice."""
    found: dict[str, dict[Labels, float]] = {}
    for family in plain(text):
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series
            series[labels] = sample.value
    return found


def of(found: Mapping[str, Mapping[Labels, float]], name: str, **labels: str) -> list[float]:
    """The values of a metric's series that have these labels."""
    return [value for series, value in found.get(name, {}).items() if series >= labels.items()]


def test_what_runs_is_what_the_package_says(api: APIClient) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert of(samples(scrape(api)), "hamiacct_build_info", version=version) == [1]
    assert of(samples(scrape(api)), "hamiacct_database_up") == [1]


def test_words_that_nothing_has_are_told_as_zero(api: APIClient) -> None:
    found = samples(scrape(api))
    assert {dict(series)["code"] for series in found["hamiacct_findings"]} == set(FindingCode)
    assert {dict(series)["state"] for series in found["hamiacct_pods"]} == set(PodState)
    assert of(found, "hamiacct_inbox_events", state="waiting") == [0]
    assert of(found, "hamiacct_inbox_events", state="refused") == [0]
    assert of(found, "hamiacct_books_complete") == [0]
    assert "hamiacct_audit_last_run_timestamp_seconds" not in found
    assert "hamiacct_watcher_alive" not in found


def test_every_gauge_has_the_labels_it_is_said_to_have(api: APIClient) -> None:
    for name, series in samples(scrape(api)).items():
        if name in metrics.STATE:
            for labels in series:
                assert {label for label, _ in labels} == set(metrics.STATE[name].labels)


def test_openmetrics_where_it_is_asked_for(api: APIClient) -> None:
    asked = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    response = api.get("/metrics", HTTP_ACCEPT=asked)
    assert response["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    text = text_of(response)
    assert text.endswith("# EOF\n")
    assert {family.name for family in openmetrics(text)} >= {"hamiacct_pods", "hamiacct_http_requests"}
    assert api.get("/metrics")["Content-Type"].startswith("text/plain; version=0.0.4")


def test_packed_where_it_is_asked_for(api: APIClient) -> None:
    response = api.get("/metrics", HTTP_ACCEPT_ENCODING="gzip")
    assert response["Content-Encoding"] == "gzip"
    unpacked = gzip.decompress(response.content).decode()
    assert samples(unpacked).keys() == samples(scrape(api)).keys()


def test_open_where_that_is_set(settings: Any) -> None:
    assert APIClient().get("/metrics").status_code == 401
    settings.HAMIACCT = replace(settings.HAMIACCT, metrics_open=True)
    assert samples(scrape(APIClient()))
    assert samples(scrape(APIClient(), HTTP_AUTHORIZATION="Bearer of-nobody"))


@pytest.fixture
def lost_database(db: None) -> Iterator[None]:
    """Every query fails as it does when the server went away."""

    def fail(*_: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(fail):
        yield


def test_without_a_database_the_processes_are_told_all_the_same(lost_database: None, api: APIClient) -> None:
    found = samples(scrape(api))
    assert of(found, "hamiacct_database_up") == [0]
    assert "hamiacct_pods" not in found
    assert "hamiacct_http_requests_total" in found


# --- the number of queries ------------------------------------------------------------------------


def fill(nodes: int) -> None:
    """Nodes of eight cards, one namespace with a quota and one pod each."""
    numbers = range(nodes)
    models.Node.objects.bulk_create([models.Node(name=f"n-{n}", resource_version=1) for n in numbers])
    models.Device.objects.bulk_create(
        [
            models.Device(
                node=f"n-{n}", uuid=f"GPU-{n}-{card}", vendor="NVIDIA", index=card, model="NVIDIA-A100",
                registered=True, ever_registered=True, healthy=True, slots_total=10,
                memory_mib_total=40960, cores_total=100, slots_used=3, memory_mib_used=20000, cores_used=30,
            )
            for n in numbers
            for card in range(8)
        ],
        batch_size=5000,
    )  # fmt: skip
    limit = {"key": "limits.nvidia.com/gpumem", "resource": "nvidia.com/gpumem", "vendor": "NVIDIA",
             "dimension": "memory", "spec": "100000", "amount": 100000}  # fmt: skip
    models.ResourceQuota.objects.bulk_create(
        [
            models.ResourceQuota(namespace=f"team-{n}", name="gpu", resource_version=1, limits=[limit])
            for n in numbers
        ]
    )


def queries_of_a_scrape(api: APIClient, assert_queries: Any) -> int:
    with assert_queries as asked:
        scrape(api)
    return len(asked)


def test_the_number_of_queries_does_not_grow_with_the_fleet(
    api: APIClient, settings: Any, django_assert_max_num_queries: Callable[..., Any]
) -> None:
    settings.HAMIACCT = replace(settings.HAMIACCT, metrics_per_pod=True)
    fill(2)
    few = queries_of_a_scrape(api, django_assert_max_num_queries(30))
    models.ResourceQuota.objects.all().delete()
    models.Device.objects.all().delete()
    models.Node.objects.all().delete()
    fill(40)
    assert queries_of_a_scrape(api, django_assert_max_num_queries(30)) == few


# --- the audit and the watcher --------------------------------------------------------------------


def test_the_last_audit_is_told_by_book(api: APIClient) -> None:
    models.NamespaceUsage.objects.create(namespace="team-a", vendor="NVIDIA", slots=1, memory_mib=5, cores=0)
    now = timezone.now()
    assert audit.run_if_due(at=now)
    assert not audit.run_if_due(at=now)
    found = samples(scrape(api))
    assert of(found, "hamiacct_audit_discrepancies", book=Book.NAMESPACES) == [1]
    assert of(found, "hamiacct_audit_discrepancies", book=Book.REPLAY) == [0]
    assert of(found, "hamiacct_audit_last_run_timestamp_seconds") == [pytest.approx(now.timestamp())]
    assert of(found, "hamiacct_audit_duration_seconds")[0] >= 0
    models.NamespaceUsage.objects.all().delete()
    assert audit.run_if_due(at=now + audit.EVERY)
    assert of(samples(scrape(api)), "hamiacct_audit_discrepancies", book=Book.NAMESPACES) == [0]


def test_the_watcher_is_told_by_kind(api: APIClient) -> None:
    now = timezone.now()
    assert watching.take_lease("somebody", at=now)
    watching.note(Kind.POD, WatchState.BACKING_OFF, detail="refused", version=5, at=now)
    found = samples(scrape(api))
    assert of(found, "hamiacct_watcher_alive") == [1]
    assert of(found, "hamiacct_watcher_state", kind="Pod", state="backing-off") == [1]
    assert of(found, "hamiacct_watcher_state", kind="Pod", state="watching") == [0]
    assert len(found["hamiacct_watcher_silent_seconds"]) == 1


def test_a_viewer_may(api_as: Callable[[Role], APIClient]) -> None:
    assert scrape(api_as(Role.VIEWER))


def test_asked_under_any_name_as_prometheus_knows_a_pod_by_its_address(api: APIClient) -> None:
    assert api.get("/metrics", HTTP_HOST="10.0.0.7:8000").status_code == 200
    assert api.get("/api/v1/pods", HTTP_HOST="10.0.0.7:8000").status_code == 400


def test_what_was_answered_is_counted_by_route_and_verdict(api: APIClient, settings: Any) -> None:
    def counted(name: str, **labels: str) -> float:
        return sum(of(samples(scrape(api)), name, **labels))

    settings.HAMIACCT = replace(settings.HAMIACCT, trust_events=True)
    fill(1)
    name = "hamiacct_decisions_total"
    before = {
        verdict: counted(name, question="fit", verdict=verdict) for verdict in ("allowed", "no-fit", "error")
    }
    reason = counted(name, question="fit", reason="CardInsufficientMemory")
    unknown = counted("hamiacct_http_requests_total", route="", status="404")
    assert api.post("/api/v1/fit", {"pod": asking("a", gpumem=1)}, format="json").json()["fits"]
    assert not api.post("/api/v1/fit", {"pod": asking("b", gpumem=50_000)}, format="json").json()["fits"]
    assert api.post("/api/v1/fit", {"pod": "none"}, format="json").status_code == 400
    assert api.get("/no/such/path").status_code == 404
    assert counted(name, question="fit", verdict="allowed") == before["allowed"] + 1
    assert counted(name, question="fit", verdict="no-fit") == before["no-fit"] + 1
    assert counted(name, question="fit", verdict="error") == before["error"]
    assert counted(name, question="fit", reason="CardInsufficientMemory") == reason + 1
    assert counted("hamiacct_http_requests_total", route="", status="404") == unknown + 1


def test_a_reason_that_is_on_no_list_is_another() -> None:
    with metrics.decision(Question.FIT) as decision:
        metrics.refuse(Refusal.NO_FIT, {"made up by the caller": ["n1"]})
        assert decision.reason == metrics.OTHER
        metrics.refuse(Refusal.NO_FIT, {"CardNotHealth": ["n1"], "NumaNotFit": ["n1", "n2"]})
        assert decision.reason == "NumaNotFit"


@pytest.mark.django_db(transaction=True)
def test_a_scrape_is_of_one_moment(api: APIClient) -> None:
    """Cards that register while it reads are in all of it or in none."""
    others = ThreadPoolExecutor(1)

    def meanwhile(execute: Any, sql: str, *rest: Any) -> Any:
        if 'FROM "hamiacct_finding"' in sql and not registered:
            registered.append(others.submit(in_another_connection, fill, 1).result())
        return execute(sql, *rest)

    registered: list[None] = []
    with connection.execute_wrapper(meanwhile):
        found = samples(scrape(api))
    assert registered
    assert "hamiacct_gpu_shared_count" not in found
    assert of(found, "hamiacct_devices", state="registered") == [0]
    assert of(samples(scrape(api)), "hamiacct_devices", state="registered") == [8]


def in_another_connection(work: Callable[..., None], *words: Any) -> None:
    try:
        work(*words)
    finally:
        connection.close()

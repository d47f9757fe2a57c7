"""The pages that describe the interface, and that they describe all of it."""

import re
from pathlib import Path

import pytest
import yaml
from rest_framework.test import APIClient

from api import problems, urls
from api.docs import document
from hamiacct import environment
from hamiacct.accounting import words

pytestmark = pytest.mark.django_db

DOCS = Path(__file__).parents[2] / "docs"
PATHS = ["/" + re.sub(r"<\w+:(\w+)>", r"{\1}", pattern.pattern._route) for pattern in urls.urlpatterns]


@pytest.mark.parametrize("path", PATHS)
def test_every_path_is_in_the_docs(path: str) -> None:
    assert f"{path}`" in (DOCS / "api.md").read_text() or f"{path}\n" in (DOCS / "api.md").read_text()


@pytest.mark.parametrize("problem", problems.ALL, ids=lambda problem: problem.name)
def test_every_problem_is_in_the_docs(problem: problems.Problem) -> None:
    assert re.search(rf"\| `{problem.type}` \| {problem.status}\b", (DOCS / "api.md").read_text())


@pytest.mark.parametrize("setting", environment.SETTINGS)
def test_every_setting_is_in_the_docs_with_its_default(setting: str) -> None:
    default, _ = environment.SETTINGS[setting]
    shown = f"`{default}`" if default else ""
    line = f"| `{environment.PREFIX}{setting.upper()}` | {shown}{' ' if shown else ''}|"
    assert line in (DOCS / "api.md").read_text()


def test_every_path_but_the_pages_themselves_is_in_the_openapi_document() -> None:
    assert sorted(document()["paths"]) == sorted(set(PATHS) - {"/api/v1/docs"})


def test_the_committed_openapi_document_is_the_one_that_is_served(api: APIClient) -> None:
    assert yaml.safe_load((DOCS / "openapi.yaml").read_text()) == api.get("/api/v1/schema").json()


@pytest.mark.parametrize("words_", [words.PodState, words.Rule, words.Outcome, words.FindingCode, words.Book])
def test_closed_lists_are_enums(words_: type[words.Rule]) -> None:
    assert document()["components"]["schemas"][words_.__name__]["enum"] == [word.value for word in words_]


def test_every_operation_says_how_it_may_fail() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            expected = (
                {"400"}
                if path.startswith(("/livez", "/readyz", "/problems"))
                else {"400", "401", "403", "429", "503"}
            )
            assert expected <= set(operation["responses"]), f"{method} {path}"
            # Kubernetes' own protocols know a bad request and nothing finer.
            if method == "post" and "requestBody" in operation and path.startswith("/api/"):
                assert {"413", "415"} <= set(operation["responses"]), f"{method} {path}"


def test_the_page_loads_nothing_from_elsewhere(api: APIClient) -> None:
    page = api.get("/api/v1/docs").content.decode()
    sources = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert sources
    assert all(source.startswith("/") for source in sources)
    assert "<script>" not in page


def test_the_pages_script_is_served_apart(api: APIClient) -> None:
    response = api.get("/api/v1/docs?script=")
    assert response.headers["Content-Type"].startswith("application/javascript")
    assert "/api/v1/schema" in response.content.decode()

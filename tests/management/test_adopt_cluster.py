"""manage.py adopt-cluster"""

import builtins
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from hamiacct import models
from hamiacct.operations import watching
from hamiacct.queries.watching import cluster_uid
from tests.kubeapi.server import ApiServer

NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(settings: Any, tmp_path: Path) -> Iterator[ApiServer]:
    """The cluster that took the other's place."""
    with ApiServer(cluster_uid="uid-new") as api:
        settings.HAMIACCT = replace(settings.HAMIACCT, kubeconfig=api.kubeconfig(tmp_path))
        yield api


@pytest.fixture(autouse=True)
def _books_of_another(db: None) -> None:
    watching.see_cluster("uid-old", at=NOW)


def run(*words: str) -> str:
    out = StringIO()
    call_command("adopt-cluster", *words, stdout=out)
    return out.getvalue()


def answering(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(builtins, "input", lambda _: answer)


def histories() -> set[int]:
    return set(models.Feed.objects.values_list("history", flat=True))


def test_it_shows_both_and_adopts(cluster: ApiServer) -> None:
    shown = run("--yes")
    assert "uid-old" in shown
    assert "uid-new" in shown
    assert cluster_uid() == "uid-new"
    assert histories() == {2}


def test_it_asks_and_takes_a_yes(cluster: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "yes")
    run()
    assert cluster_uid() == "uid-new"


@pytest.mark.parametrize("answer", ["", "no", "y"])
def test_anything_but_a_yes_changes_nothing(
    cluster: ApiServer, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(CommandError, match="nothing was changed"):
        run()
    assert (cluster_uid(), histories()) == ("uid-old", {1})


def test_without_anybody_to_answer_nothing_changes(
    cluster: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(builtins, "input", nobody)
    with pytest.raises(CommandError, match="nothing was changed"):
        run()
    assert cluster_uid() == "uid-old"


def test_the_same_cluster_needs_no_adopting(cluster: ApiServer) -> None:
    cluster.cluster_uid = "uid-old"
    assert "same" in run()
    assert histories() == {1}


def test_a_cluster_that_does_not_answer_is_not_adopted(cluster: ApiServer) -> None:
    cluster.go_away()
    with pytest.raises(CommandError, match="cannot be reached"):
        run("--yes")
    assert cluster_uid() == "uid-old"


def test_it_needs_a_cluster() -> None:
    with pytest.raises(CommandError, match="HAMIACCT_KUBECONFIG"):
        run("--yes")


def test_none_is_adopted_while_a_watcher_follows_the_old_one(cluster: ApiServer) -> None:
    watching.take_lease("w1", at=NOW)
    with pytest.raises(CommandError, match="w1 watches"):
        run("--yes")
    assert cluster_uid() == "uid-old"

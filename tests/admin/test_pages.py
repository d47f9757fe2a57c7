"""Every list and every object's page: they answer, in few queries, and never count a whole table."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from unfold.contrib.filters.admin import TextFilter

from hamiacct import models
from hamiacct.accounting.words import Kind, Question, Refusal, Role
from hamiacct.operations import inbox, tokens
from tests.admin.conftest import text_of

MOST_QUERIES = 15
OURS = sorted(
    (model for model in admin.site._registry if model._meta.app_label == "hamiacct"),
    key=lambda model: str(model._meta.model_name),
)
EVERYONE = [f"view_{model._meta.model_name}" for model in OURS]


@pytest.fixture
def books(demo: None) -> None:
    """The demonstration's cluster, with at least one row of everything."""
    now = timezone.now()
    models.Decision.objects.create(
        at=now,
        question=Question.FIT,
        namespace="nlp",
        pod="big-0",
        verdict=Refusal.NO_FIT,
        message="8/8 CardInsufficientMemory",
        reasons={"CardInsufficientMemory": ["a100-1"]},
    )
    pod = models.Pod.objects.filter(state="peak").earliest("uid")
    models.Reservation.objects.create(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        state="confirmed",
        created_at=now,
        expires_at=now,
        changed_at=now,
    )
    tokens.create("a reader", Role.VIEWER, at=now)
    inbox.receive([{"type": "ADDED", "object": broken_pod()}], at=now)
    inbox.drain(at=now)


def broken_pod() -> dict[str, Any]:
    """A pod whose envelope can be read, and whose containers cannot."""
    return {
        "kind": Kind.POD.value,
        "metadata": {
            "namespace": "lab",
            "name": "broken-0",
            "uid": "u-broken",
            "resourceVersion": "999999999",
        },
        "spec": {"containers": [{"image": "no-name"}]},
    }


def ask(client: Client, path: str) -> tuple[str, list[str]]:
    """A page, and the statements it took."""
    with CaptureQueriesContext(connection) as taken:
        answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return text_of(answer), [query["sql"] for query in taken.captured_queries]


def first(model: type[Model]) -> Model:
    """Some row."""
    row = model._default_manager.order_by("pk").first()
    assert row is not None
    return row


def check(path: str, statements: list[str]) -> None:
    """Few, and no COUNT without a bound."""
    assert len(statements) <= MOST_QUERIES, "\n".join([path, *(one[:90] for one in statements)])
    for statement in statements:
        for table in ("usageentry", "pod", "event", "ledgerentry", "decision"):
            if re.search(rf'COUNT\(\S*\)[^()]*FROM "hamiacct_{table}"(?! WHERE)', statement):
                assert "LIMIT" in statement, statement


def test_every_model_worth_a_look_is_there() -> None:
    names = "node device pod usageentry resourcequota reservation decision event ledgerentry apitoken finding"
    assert {str(model._meta.model_name) for model in OURS} == set(names.split())


def test_lists_and_objects(books: None, sign_in: Callable[..., Client]) -> None:
    client = sign_in(*EVERYONE)
    client.get("/admin/")
    for model in OURS:
        path = f"/admin/hamiacct/{model._meta.model_name}/"
        page, statements = ask(client, path)
        check(path, statements)
        assert 'id="result_list"' in page
        path = f"{path}{quote(first(model).pk)}/change/"
        page, statements = ask(client, path)
        check(path, statements)
        assert 'name="_save"' not in page


def test_searches_and_filters(books: None, boss: Client) -> None:
    for model in OURS:
        site = admin.site._registry[model]
        path = f"/admin/hamiacct/{model._meta.model_name}/"
        asked = [f"{path}?q=a", f"{path}?q=vision/tracker-0", f"{path}?q=17"]
        for one in site.list_filter:
            choice = one(None, {}, model, site)
            words = [word for word, _ in getattr(choice, "lookup_choices", ())] or ["x"]
            asked += [f"{path}?{one.parameter_name}={word}" for word in (words[0], "nonsense")]
        for where in asked:
            _, statements = ask(boss, where)
            check(where, statements)


def test_what_nothing_can_be_called_is_found_nowhere(books: None, boss: Client) -> None:
    """A NUL in an address: PostgreSQL refuses to look for it."""
    for model in OURS:
        path = f"/admin/hamiacct/{model._meta.model_name}/"
        for one in admin.site._registry[model].list_filter:
            if issubclass(one, TextFilter):
                assert boss.get(path, {one.parameter_name: "a\0"}).status_code == 200
        assert boss.get(path, {"q": "a\0"}).status_code == 200
        assert boss.get(f"{path}a%00/change/").status_code == 302
    assert boss.get("/admin/?node=%00").status_code == 200


def test_no_page_leads_to_a_pod_that_is_not_in_the_books(books: None, boss: Client) -> None:
    event = models.Event.objects.get(state="refused", name=broken_pod()["metadata"]["name"])
    decision = models.Decision.objects.latest("id")
    models.Decision.objects.filter(pk=decision.pk).update(pod_uid=event.uid)
    for model, row in (("event", event), ("decision", decision)):
        page = text_of(boss.get(f"/admin/hamiacct/{model}/{row.pk}/change/"))
        assert "not in the books" in page
        assert f"pod/{event.uid}/change/" not in page


def test_words_of_lists(books: None, boss: Client) -> None:
    ledger = text_of(boss.get("/admin/hamiacct/ledgerentry/"))
    assert "ledger entries" in ledger
    assert "entrys" not in ledger
    assert "Memory (MiB)" in ledger
    assert "Memory mib" not in ledger
    assert "UTC" in ledger


def test_the_overview(books: None, sign_in: Callable[..., Client]) -> None:
    client = sign_in(*EVERYONE)
    for path in (
        "",
        "?order=oddest",
        "?order=name&node=a",
        "?order=emptiest&vendor=NVIDIA",
        "?odd=1",
        "?page=2",
        "?page=x",
    ):
        page, statements = ask(client, f"/admin/{path}")
        check(path, statements)
        assert "Fleet" in page


def test_who_may_not_look(books: None, sign_in: Callable[..., Client]) -> None:
    nobody, stranger = sign_in(), Client()
    for model in OURS:
        path = f"/admin/hamiacct/{model._meta.model_name}/"
        for where in (path, f"{path}{quote(first(model).pk)}/change/"):
            assert nobody.get(where).status_code == 403
            assert stranger.get(where).status_code == 302


def test_one_permission_opens_one_list(books: None, sign_in: Callable[..., Client]) -> None:
    client = sign_in("view_pod")
    answers = {
        str(model._meta.model_name): client.get(f"/admin/hamiacct/{model._meta.model_name}/").status_code
        for model in OURS
    }
    assert {name for name, status in answers.items() if status == 200} == {"pod"}


def test_nobody_edits_the_books(books: None, boss: Client) -> None:
    """Not even a superuser: what changes is changed by operations."""
    for model in OURS:
        row = first(model)
        path = f"/admin/hamiacct/{model._meta.model_name}"
        assert boss.post(f"{path}/{quote(row.pk)}/change/", {"name": "x", "_save": "1"}).status_code == 403
        if model is not models.ApiToken:
            assert boss.get(f"{path}/add/").status_code == 403
            assert boss.post(f"{path}/add/", {}).status_code == 403
        if model is not models.Pod:
            assert boss.post(f"{path}/{quote(row.pk)}/delete/", {"post": "yes"}).status_code == 403
            boss.post(f"{path}/", {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"})
            assert model._default_manager.filter(pk=row.pk).exists()


def test_the_overview_shows_what_one_may_see(books: None, sign_in: Callable[..., Client]) -> None:
    nothing, _ = ask(sign_in(), "/admin/")
    assert "Fleet" not in nothing
    assert "tracker-0" not in nothing
    some, _ = ask(sign_in("view_device"), "/admin/")
    assert "Fleet" in some
    assert "Quotas" not in some
    assert "broken-0" not in some
    events, _ = ask(sign_in("view_event"), "/admin/")
    assert "broken-0" in events
    assert "a100-1" not in events


def test_the_other_pages_of_the_site(boss: Client) -> None:
    for path in (
        "auth/user/",
        "auth/group/",
        "auth/user/add/",
        "hamiacct/",
        "auth/",
        "password_change/",
        "search/?s=pod",
    ):
        answer = boss.get(f"/admin/{path}")
        assert answer.status_code == 200, path
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "Pods" in text_of(boss.get("/admin/hamiacct/"))

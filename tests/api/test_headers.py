"""What every answer carries: headers that keep other sites out, cookies that stay where they belong."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles.finders import get_finders
from django.test import Client
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def a_static_file(ending: str) -> str:
    """The path of some file that is served."""
    names = (name for finder in get_finders() for name, _ in finder.list([]) if name.endswith(ending))
    return f"/static/{next(names)}"


def asked(client: APIClient, name: str) -> Any:
    """An answer of each sort."""
    match name:
        case "login page":
            return Client().get("/admin/login/")
        case "admin, nobody logged in":
            return Client().get("/admin/")
        case "admin, logged in":
            return staff().get("/admin/")
        case "object page":
            user = User.objects.create(username="somebody")
            return staff().get(f"/admin/auth/user/{user.pk}/change/")
        case "script":
            return Client().get(a_static_file(".js"))
        case "drawing":
            return Client().get(a_static_file(".svg"))
        case "no such static file":
            return Client().get("/static/nothing.js")
        case "no such page":
            return Client().get("/nothing")
        case "foreign host":
            return Client().get("/api/v1/pods", HTTP_HOST="evil.example")
        case "no token":
            return APIClient().get("/api/v1/pods")
        case "wrong form token":
            return Client(enforce_csrf_checks=True).post("/admin/login/", {"username": "a"})
        case "pages of the interface":
            return staff().get("/api/v1/docs")
        case "malformed":
            return client.get("/api/v1/pods?nothing=1")
        case "method":
            return client.post("/api/v1/pods")
    return client.get(f"/{name}")


def staff() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password=PASSWORD))
    return client


EXPECTED = {
    "login page": 200,
    "admin, nobody logged in": 302,
    "admin, logged in": 200,
    "object page": 200,
    "script": 200,
    "drawing": 200,
    "no such static file": 404,
    "no such page": 404,
    "foreign host": 400,
    "no token": 401,
    "wrong form token": 403,
    "pages of the interface": 200,
    "malformed": 400,
    "method": 405,
    "api/v1/pods": 200,
    "livez": 200,
    "problems/malformed": 200,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_every_answer_keeps_other_sites_out(api: APIClient, name: str) -> None:
    answer = asked(api, name)
    assert answer.status_code == EXPECTED[name]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    policy = dict(
        part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    sources = {source for value in policy.values() for source in value.split()}
    assert sources <= {"'self'", "'none'", "'unsafe-eval'", "'unsafe-inline'", "data:"}
    assert "'unsafe-inline'" not in policy.get("script-src", "")
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in answer.headers or name in ("script", "drawing")
    assert "Server" not in answer.headers


def test_on_any_host_but_this_machine_cookies_travel_over_tls_alone(settings: Any) -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    settings.ALLOWED_HOSTS = ["hamiacct.example"]
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    client = Client(SERVER_NAME="hamiacct.example")
    page = client.get("/admin/login/")
    answer = client.post("/admin/login/", {"username": "ada", "password": PASSWORD, "next": "/admin/"})
    for cookie in (page.cookies["csrftoken"], answer.cookies["sessionid"]):
        assert cookie["secure"]
        assert cookie["samesite"] == "Lax"
    assert answer.cookies["sessionid"]["httponly"]


def test_a_form_of_another_site_is_not_taken() -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    client = Client(enforce_csrf_checks=True)
    form = {"username": "ada", "password": PASSWORD, "next": "/admin/"}
    assert client.post("/admin/login/", form).status_code == 403
    token = client.get("/admin/login/").cookies["csrftoken"].value
    form |= {"csrfmiddlewaretoken": token}
    foreign = client.post("/admin/login/", form, HTTP_ORIGIN="https://evil.example")
    assert foreign.status_code == 403
    assert client.post("/admin/login/", form, HTTP_ORIGIN="http://testserver").status_code == 302


def test_a_session_is_no_token(api: APIClient) -> None:
    """So no form of another site, sent along with a cookie, reaches what a token is for."""
    client = staff()
    assert client.post("/api/v1/audit/repair").status_code == 401
    assert client.post("/api/v1/events", "{}", content_type="text/plain").status_code == 401


def test_after_a_login_one_is_sent_nowhere_else() -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    form = {"username": "ada", "password": PASSWORD, "next": "https://evil.example/"}
    answer = Client().post("/admin/login/", form)
    assert answer.status_code == 302
    assert "evil" not in answer.headers["Location"]

"""No log of any process holds what lets somebody in: looked for in real ones, after calls of every sort."""

import base64
import http.client
import http.cookiejar
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.contrib.auth.models import User

from hamiacct import environment
from hamiacct.accounting.words import Role
from hamiacct.operations import tokens
from tests import watch
from tests.live import LiveStack, database_url

pytestmark = pytest.mark.django_db(transaction=True)

TRIES = 5


class Browser:
    """Logs in as a person would."""

    def __init__(self, stack: LiveStack) -> None:
        self.url = f"{stack.url}/admin/login/"
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def cookie(self, name: str) -> str:
        return next(one.value or "" for one in self.cookies if one.name == name)

    def login(self, name: str, password: str) -> int:
        """The status of the page one ends on."""
        with self.opener.open(self.url) as page:
            page.read()
        form = {"username": name, "password": password, "csrfmiddlewaretoken": self.cookie("csrftoken")}
        data = urllib.parse.urlencode({**form, "next": "/livez"}).encode()
        try:
            with self.opener.open(self.url, data) as page:
                return int(page.status)
        except urllib.error.HTTPError as error:
            return error.code


def with_password(url: str, password: str) -> str:
    """A database's URL with a password that nobody asks for."""
    parts = urlsplit(url)
    place = f"{parts.username or 'postgres'}:{password}@{parts.hostname}:{parts.port}"
    return urlunsplit(parts._replace(netloc=place))


def raw(stack: LiveStack, request: str) -> None:
    """Sends something that is hardly HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=10)
    connection.connect()
    connection.sock.sendall(request.encode())
    connection.sock.recv(4096)
    connection.close()


def test_no_secret_is_in_any_log(live_stack: Callable[..., LiveStack]) -> None:
    hidden = {
        name: f"{name}-{secrets.token_hex(16)}"
        for name in ("bootstrap", "wrong", "key", "database", "broker", "guess", "password", "env", "inquery")
    }
    ours = tokens.create("ours", Role.OPERATOR, at=datetime.now(UTC))
    User.objects.create_superuser("ada", password=hidden["password"])
    User.objects.create_superuser("bob", password=hidden["password"])
    stack = live_stack(
        HAMIACCT_LOG_LEVEL="DEBUG",
        HAMIACCT_BOOTSTRAP_TOKEN=hidden["bootstrap"],
        HAMIACCT_SECRET_KEY=hidden["key"],
        HAMIACCT_DATABASE_URL=with_password(database_url(), hidden["database"]),
        HAMIACCT_REDIS_URL=f"redis://:{hidden['broker']}@127.0.0.1:1/0",  # so each wake-up fails and says so
    )
    pod = watch.pod("web", "GPU-a 1 1")
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": hidden["env"]}]
    broken = {**pod, "status": {"phase": hidden["env"]}}
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "object": pod},
    }
    for token in (hidden["bootstrap"], hidden["wrong"], ours):
        basic = base64.b64encode(f"scheduler:{token}".encode()).decode()
        hidden[f"basic of {token}"] = basic
        for body in (watch.events(pod), watch.events(broken), b'{"events": [' + hidden["env"].encode()):
            stack.post("/api/v1/events", body, token=token)
        for path in (f"/webhook/{token}", f"/webhook/validate/{token}", f"/webhook/{token}/more"):
            stack.post(path, review, token=None)
            stack.get(path, token=None)
        for path in (
            f"/webhooks/{token}",
            f"//webhook/{token}",
            f"/api/v1/pods/{token}?x={hidden['inquery']}",
        ):
            stack.get(path, token=token)
        stack.get(f"/api/v1/pods?token={token}", token=None)
        raw(stack, f"POST /extender/filter HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {basic}\r\n\r\n")
        raw(stack, f"GET /webhook/{token} HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        raw(stack, f"GET /webhook/{token} HTTP/9.9\r\nAuthorization: Bearer {token}\r\n\r\n")
    browser = Browser(stack)
    assert browser.login("bob", hidden["password"]) == 200
    hidden |= {"session": browser.cookie("sessionid"), "form": browser.cookie("csrftoken")}
    # Whichever of the web's processes answers, they count together.
    assert [Browser(stack).login("ada", hidden["guess"]) for _ in range(TRIES)] == [200] * (TRIES - 1) + [429]
    stack.close()
    logs = {path.name: path.read_text(encoding="utf-8") for path in stack.folder.rglob("*.log")}
    assert logs.keys() == {"web.log", "worker.log"}
    assert "webhook/<text:token>" in logs["web.log"]
    assert "127.0.0.1:1" in logs["worker.log"]
    assert "login failure" in logs["web.log"]
    hidden.pop("inquery")  # no secret of ours, and not looked at by anybody
    found = [
        (name, log, line)
        for log, text in logs.items()
        for line in text.splitlines()
        for name, secret in {**hidden, "ours": ours}.items()
        if secret in line
    ]
    assert found == []


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL"])
def test_a_url_that_cannot_be_read_is_not_repeated(name: str) -> None:
    given = {"HAMIACCT_DATABASE_URL": "postgresql://u@h/d", "HAMIACCT_SECRET_KEY": "key"}
    with pytest.raises(environment.BadEnvironment) as fault:
        environment.read({**given, f"HAMIACCT_{name}": "mysql://user:the-password@host/x"})
    assert name in str(fault.value)
    assert "the-password" not in str(fault.value)


def test_the_environment_does_not_show_its_secrets() -> None:
    found = environment.read(
        {
            "HAMIACCT_DATABASE_URL": "postgresql://u:the-password@h/d",
            "HAMIACCT_REDIS_URL": "redis://:the-password@h/0",
            "HAMIACCT_SECRET_KEY": "the-password",
            "HAMIACCT_BOOTSTRAP_TOKEN": "the-password",
        }
    )
    assert "the-password" not in repr(found)

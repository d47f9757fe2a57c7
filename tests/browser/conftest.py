"""A real Chromium before the real service. What a browser complains about fails the test that caused it."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from django.contrib.auth.models import User
from django.db import connections
from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright

from demo import load
from devservers.pytest_plugin import OPERATOR_TOKEN
from tests.live import LiveStack

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # tests run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
LAPTOP, PHONE = (1440, 900), (390, 844)
NAME, PASSWORD = "boss", "open-sesame-4711"
PATIENCE_MS = 15_000


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is. Without one these tests are skipped, in CI they fail."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.environ.get("CI"):
        pytest.fail("no Chromium on this machine (apt-get install chromium)")
    if found is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    return found


@dataclass(slots=True)
class Visitor:
    """A window of the browser, and what it heard."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    documents: int = 0

    def go(self, path: str) -> None:
        """Opens a page and waits until nothing more is loaded."""
        self.page.goto(self.url + path)
        self.page.wait_for_load_state("load")

    def sign_in(self) -> None:
        """As the superuser, by the form; ends on the overview."""
        self.go("/admin/")
        self.page.fill("#id_username", NAME)
        self.page.fill("#id_password", PASSWORD)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector(".ha-overview")

    def text(self) -> str:
        """What there is to read."""
        return self.page.inner_text("#main")

    def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wide))

    def heard(self, response: Response) -> None:
        """Looks at every answer: no failures, and the policy with every document."""
        if response.status >= 400:
            self.complaints.append(f"{response.status} {response.url}")
        if response.request.resource_type == "document" and response.status == 200:
            self.documents += 1
            policy = response.headers.get("content-security-policy", "")
            if "default-src 'self'" not in policy or "frame-ancestors 'none'" not in policy:
                self.complaints.append(f"{response.url} has the policy {policy!r}")


@pytest.fixture
def served(live_stack: Callable[..., LiveStack]) -> LiveStack:
    """The demonstration's cluster, served by the real web process, and a superuser."""
    stack = live_stack(redis=False)
    assert load.main(["--url", stack.url, "--token", OPERATOR_TOKEN]) == 0
    User.objects.create_superuser(NAME, password=PASSWORD)
    return stack


@pytest.fixture
def window(
    chromium: str, served: LiveStack, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Visitor]]:
    """Opens windows; at the end nothing may have been complained about, nor asked of another host."""
    # The driver runs an event loop in this thread, beside which Django's ORM would not speak.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    visitors: list[Visitor] = []
    contexts: list[BrowserContext] = []
    with sync_playwright() as driver:
        browser: Browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS), headless=True)

        def open_window(size: tuple[int, int] = LAPTOP, scheme: str = "light") -> Visitor:
            context = browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            context.set_default_timeout(PATIENCE_MS)
            contexts.append(context)
            visitor = Visitor(context.new_page(), served.url)
            visitors.append(visitor)
            page, complaints = visitor.page, visitor.complaints
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "request",
                lambda asked: (
                    None
                    if asked.url.startswith((f"{served.url}/", "data:"))
                    else complaints.append(f"asked {asked.url}")
                ),
            )
            page.on("response", lambda response: visitor.heard(response))
            return visitor

        yield open_window
        for context in contexts:
            context.close()
        browser.close()
        connections.close_all()  # beside the loop the test had a connection of its own
    assert [visitor.complaints for visitor in visitors] == [[] for _ in visitors]
    assert all(visitor.documents for visitor in visitors)

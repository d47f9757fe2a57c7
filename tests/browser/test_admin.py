"""An operator's day in a real browser: look, follow a number to its reason, and put things right."""

from collections.abc import Callable

from hamiacct import models
from hamiacct.accounting.words import EventState, ReservationState
from hamiacct.operations import audit
from tests.browser.conftest import PHONE, Visitor

Window = Callable[..., Visitor]
PAGES = (
    "node", "device", "pod", "usageentry", "resourcequota", "reservation", "decision", "event", "ledgerentry",
    "apitoken", "finding",
)  # fmt: skip


def test_an_operators_day(window: Window) -> None:
    """One service, one browser and three windows: starting them takes longer than what is done in them."""
    dark_and_by_keyboard(window(scheme="dark"))
    narrow(window(PHONE))
    visitor = window()
    visitor.sign_in()
    from_a_card_to_its_reason(visitor)
    visitor.go("/admin/")
    what_can_be_done(visitor)


def from_a_card_to_its_reason(visitor: Visitor) -> None:
    page = visitor.page

    # The overview: cards by node, what inits hold, quotas, findings, refusals, what could not be read.
    assert page.locator(".ha-card").count() >= 31
    overview = visitor.text()
    for word in (
        "a100-1",
        "comes back when inits are done",
        "vision/gpu",
        "undecodable-annotation",
        "complete",
    ):
        assert word in overview, word
    assert "CardInsufficientMemory" in overview
    assert "notebook-6" in overview

    # A card, a pod on it, and why it is charged what it is.
    page.locator(".ha-card", has_text="comes back when inits are done").first.click()
    page.wait_for_selector("text=Who holds what")
    assert page.locator(".ha-fold").count() >= 2
    page.locator("h3 .ha-link", has_text="finetune-qa-0").click()
    page.wait_for_selector("text=Timeline of its charges")
    told = visitor.text()
    assert "set by an init container with the sidecars declared before it" in told
    assert "8 GiB" in told
    assert page.locator(".ha-chart .ha-column").count() >= 1
    page.locator(".ha-link", has_text="its ledger").click()
    page.wait_for_selector("#result_list")
    assert "charged" in visitor.text()

    # A shrink is a step down.
    visitor.go("/admin/hamiacct/pod/?q=default/sidecar-first")
    page.locator("#result_list th a").click()
    page.wait_for_selector(".ha-column.ha-down")
    assert "shrunk" in visitor.text()


def what_can_be_done(visitor: Visitor) -> None:
    page = visitor.page

    # A refused event, that a later release of the service can read.
    event = models.Event.objects.get(state=EventState.REFUSED)
    page.locator(".ha-link", has_text="notebook-6").first.click()
    page.get_by_role("button", name="Replay").click()
    page.wait_for_selector("text=was refused again")
    event.body["spec"]["containers"][0]["name"] = "notebook"
    event.save(update_fields=["body"])
    page.get_by_role("button", name="Replay").click()
    page.wait_for_selector("text=replayed")
    event.refresh_from_db()
    assert event.state == EventState.APPLIED

    # From the list, by the box beside the row.
    visitor.go("/admin/hamiacct/reservation/?state=held")
    page.locator("tbody input.action-select").first.check()
    page.select_option("select[name=action]", "release")
    page.locator("button[name=index], .changelist-actions button[type=submit]").first.click()
    page.wait_for_selector("text=released")
    assert models.Reservation.objects.get(name="notebook-4").state == ReservationState.RELEASED

    # A pod goes by its operation, after a question.
    visitor.go("/admin/hamiacct/pod/?q=lab/sweep-b")
    page.locator("#result_list th a").click()
    page.locator("a", has_text="Delete pod").click()
    page.get_by_role("button", name="Release").click()
    page.wait_for_selector("text=it was released")

    # The books disagree; a repair is shown before it is made.
    models.Device.objects.filter(node="a10-1", index=0).update(memory_mib_used=1)
    visitor.go("/admin/hamiacct/ledgerentry/audit/")
    page.get_by_role("button", name="Run the audit").click()
    page.wait_for_selector("text=The books disagree")
    page.get_by_role("button", name="Repair…").click()
    page.wait_for_selector("text=This is what would change")
    assert "20480" in visitor.text()
    page.get_by_role("button", name="Repair exactly this").click()
    page.wait_for_selector("text=1 place was put right")
    assert audit.audit().ok

    # A token, once.
    visitor.go("/admin/hamiacct/apitoken/add/")
    page.fill("input[name=name]", "a reader")
    page.select_option("select[name=role]", "viewer")
    page.get_by_role("button", name="Make the token").click()
    assert page.inner_text("#token").startswith("hamiacct")


def dark_and_by_keyboard(dark: Visitor) -> None:
    dark.sign_in()
    ground = dark.page.evaluate("getComputedStyle(document.querySelector('.ha-card')).backgroundColor")
    assert sum(int(part) for part in ground[4:-1].split(",")) < 200, ground

    # The first thing that Tab reaches leads past the sidebar; what is reached can be seen to be.
    dark.page.keyboard.press("Tab")
    reached = "document.activeElement.className"
    assert dark.page.evaluate(reached) == "ha-skip"
    dark.page.keyboard.press("Enter")
    for _ in range(40):
        dark.page.keyboard.press("Tab")
        if str(dark.page.evaluate(reached)).startswith("ha-card"):
            break
    assert dark.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    dark.page.keyboard.press("Enter")
    dark.page.wait_for_selector("text=Who holds what")


def narrow(phone: Visitor) -> None:
    phone.sign_in()
    assert phone.too_wide() <= 0
    phone.page.locator(".ha-card").first.click()
    phone.page.wait_for_selector("text=Who holds what")
    assert phone.too_wide() <= 0
    for name in PAGES:
        phone.go(f"/admin/hamiacct/{name}/")
        assert phone.too_wide() <= 0, name
    phone.go("/admin/hamiacct/pod/?q=nlp/finetune-qa-0")
    phone.page.locator("#result_list th a").click()
    phone.page.wait_for_selector("text=Timeline of its charges")
    assert phone.too_wide() <= 0

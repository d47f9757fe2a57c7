"""GET /api/v1/compare"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from django.conf import LazySettings
from rest_framework.test import APIClient

from api import scrape
from hamiacct.accounting.words import Role
from tests import watch
from tests.say import say_manifest

pytestmark = pytest.mark.django_db

SAYS = (
    'hami_vgpu_memory_allocated_bytes{{container_index="0",device_uuid="GPU-a",namespace="{}",node="n1",pod="{}"}}'
    " {}\n"
)
AS_BOOKED = SAYS.format("team-a", "web", 4000 << 20) + SAYS.format("team-a", "late", 100 << 20)


@pytest.fixture
def _cluster(send: Callable[..., Any]) -> None:
    """The design's oversubscription: a sidecar of 4000 MiB beside an app of 4000 MiB."""
    send(
        watch.node("n1", watch.card("GPU-a"), watch.card("GPU-b")),
        say_manifest("sidecar 4000 10, running", "app 4000 10", name="web", uid="u-web"),
    )


@pytest.fixture
def hami(settings: LazySettings) -> Iterator[Callable[..., str]]:
    """Makes HAMi's metrics answer so; the address is what the service is set to."""
    servers: list[ThreadingHTTPServer] = []

    def answering(text: str, *, status: int = 200, login: str = "") -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: Any) -> None:
                """Nobody reads it."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        address = f"http://{login}127.0.0.1:{server.server_port}/metrics"
        settings.HAMIACCT = replace(settings.HAMIACCT, hami_metrics_url=address)
        return address

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_pod_that_is_counted_short_is_named_with_both_numbers(api: APIClient, _cluster: None) -> None:
    found = api.get("/api/v1/compare").json()
    assert (found["formula"], found["hami_metrics"]) == ("2.10", None)
    share = {
        "uid": "u-web",
        "namespace": "team-a",
        "name": "web",
        "state": "steady",
        "node": "n1",
        "device": "GPU-a",
        "vendor": "NVIDIA",
        "hami": {"slots": 1, "memory_mib": 4000, "cores": 10},
        "reported_memory_mib": None,
        "right": {"slots": 2, "memory_mib": 8000, "cores": 20},
    }
    assert found["under_counted"] == [share]
    assert found["totals"]["under_counted"] == {"pods": 1, "slots": 1, "memory_mib": 4000, "cores": 10}
    (card,) = found["cards"]
    assert (card["hami"], card["right"], card["pods"]) == (share["hami"], share["right"], [share])
    (namespace,) = found["namespaces"]
    assert (namespace["namespace"], namespace["hami"], namespace["right"]) == (
        "team-a",
        share["hami"],
        share["right"],
    )


def test_a_card_over_its_total_is_shown_with_those_on_it(
    api: APIClient, send: Callable[..., Any], _cluster: None
) -> None:
    send(watch.node("n1", watch.card("GPU-a", memory=6000), watch.card("GPU-b")), type_="MODIFIED")
    card = api.get("/api/v1/compare?formula=2723").json()["cards"][0]
    assert card["over_by"] == {"slots": 0, "memory_mib": 2000, "cores": 0}
    assert card["holders"] == [{"uid": "u-web", "namespace": "team-a", "name": "web"}]


def test_another_formula_and_everything(api: APIClient, _cluster: None) -> None:
    found = api.get("/api/v1/compare?formula=2723").json()
    assert (found["cards"], found["under_counted"], found["held_back"]) == ([], [], [])
    assert found["totals"]["compared_cards"] == 2
    found = api.get("/api/v1/compare?formula=2723&all=1").json()
    assert [card["uuid"] for card in found["cards"]] == ["GPU-a", "GPU-b"]


def test_of_a_node_or_namespace(api: APIClient, _cluster: None) -> None:
    assert api.get("/api/v1/compare?node=n1").json()["under_counted"]
    assert not api.get("/api/v1/compare?node=n2").json()["under_counted"]
    assert api.get("/api/v1/compare?namespace=team-a").json()["under_counted"]
    assert not api.get("/api/v1/compare?namespace=team-b").json()["under_counted"]


def test_a_formula_that_there_is_not(api: APIClient) -> None:
    answer = api.get("/api/v1/compare?formula=2.9")
    assert answer.status_code == 400
    (fault,) = answer.json()["errors"]
    assert fault == {"pointer": "/query/formula", "detail": "formula: must be one of 2.8, 2.10, 2723"}


def test_a_viewer_may_look(api_as: Callable[[Role], APIClient]) -> None:
    assert api_as(Role.VIEWER).get("/api/v1/compare").status_code == 200
    assert api_as(Role.INGESTER).get("/api/v1/compare").status_code == 403


def test_books_that_are_not_complete_say_so(api: APIClient) -> None:
    assert "no full list" in api.get("/api/v1/compare").json()["doubt"]
    api.post("/api/v1/snapshots?complete=1")
    assert api.get("/api/v1/compare").json()["doubt"] == ""


def test_what_hami_says_itself(api: APIClient, _cluster: None, hami: Callable[..., str]) -> None:
    address = hami(AS_BOOKED)
    found = api.get("/api/v1/compare").json()
    assert found["hami_metrics"] == {"address": address, "problem": ""}
    assert found["under_counted"][0]["reported_memory_mib"] == 4000
    assert found["gone"] == [
        {
            "namespace": "team-a",
            "name": "late",
            "node": "n1",
            "device": "GPU-a",
            "memory_mib": 100,
            "whereabouts": "unknown",
        }
    ]
    assert found["totals"]["gone"] == {"pods": 1, "memory_mib": 100}


def test_a_page_that_comes_in_pieces(api: APIClient, hami: Callable[..., str]) -> None:
    hami("".join(SAYS.format("team-a", f"ghost-{number}", 1 << 20) for number in range(3000)))
    assert api.get("/api/v1/compare").json()["totals"]["gone"] == {"pods": 3000, "memory_mib": 3000}


@pytest.mark.parametrize(
    ("text", "status", "problem"),
    [("nothing of HAMi's", 200, "neither cards nor pods"), (AS_BOOKED, 503, "answers 503")],
)
def test_metrics_that_cannot_be_read_cost_only_themselves(
    api: APIClient, _cluster: None, hami: Callable[..., str], text: str, status: int, problem: str
) -> None:
    hami(text, status=status)
    found = api.get("/api/v1/compare").json()
    assert problem in found["hami_metrics"]["problem"]
    assert found["under_counted"][0]["reported_memory_mib"] is None


def test_metrics_that_nobody_answers(api: APIClient, _cluster: None, settings: LazySettings) -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/metrics"
        settings.HAMIACCT = replace(settings.HAMIACCT, hami_metrics_url=address)
        found = api.get("/api/v1/compare").json()
    assert "cannot be reached" in found["hami_metrics"]["problem"]
    assert len(found["under_counted"]) == 1


def test_metrics_without_end_are_given_up(
    api: APIClient, _cluster: None, hami: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hami(AS_BOOKED.replace("\n", " ") * 100)  # not even a line of it ends
    monkeypatch.setattr(scrape, "PAGE_BYTES", 1000)
    assert "is larger than" in api.get("/api/v1/compare").json()["hami_metrics"]["problem"]
    monkeypatch.setattr(scrape, "PAGE_SECONDS", 0.0)
    monkeypatch.setattr(scrape, "PAGE_BYTES", 1 << 20)
    assert "is not read to its end" in api.get("/api/v1/compare").json()["hami_metrics"]["problem"]


def test_a_password_in_the_address_is_shown_to_nobody(
    api: APIClient, _cluster: None, hami: Callable[..., str]
) -> None:
    hami(AS_BOOKED, login="me:secret@")
    answer = api.get("/api/v1/compare")
    assert answer.json()["hami_metrics"]["problem"] == ""
    assert b"secret" not in answer.content

"""An API server that means no good: it drips, its objects are bent. Nothing waits for ever, none is lost."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.utils import timezone

from hamiacct import models
from hamiacct.accounting.errors import Unavailable
from hamiacct.accounting.words import Kind
from hamiacct.kube import client
from hamiacct.management.sieve import Sieve
from hamiacct.operations import inbox, snapshots
from tests import watch
from tests.hostile import material
from tests.hostile.chance import chances, examples
from tests.hostile.mutations import Bender

A_READ_SECONDS = 0.2
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Dripper:
    """Answers each call with these bytes at once, and then a byte now and then, for ever."""

    def __init__(self, at_once: bytes, byte: bytes) -> None:
        self.at_once, self.byte = at_once, byte
        self.over = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> "Dripper":
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        with suppress(OSError):  # it may be closed already
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for thread in self.threads:
            thread.join(5)

    def _begin(self, work: Callable[..., None], *given: Any) -> None:
        self.threads.append(threading.Thread(target=work, args=given))
        self.threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # closing the listener ends the wait for callers
            while True:
                self._begin(self._drip, self.listening.accept()[0])

    def _drip(self, opened: socket.socket) -> None:
        with opened, suppress(OSError):  # the caller gave up, as it should
            opened.recv(65536)
            opened.sendall(self.at_once)
            while not self.over.wait(A_READ_SECONDS / 10):
                opened.sendall(self.byte)


def kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "dripping.yaml"
    cluster = {"name": "c", "cluster": {"server": url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {"token": "a"}}
    whole = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "c"}
    path.write_bytes(orjson.dumps(whole))
    return path


@pytest.mark.parametrize(
    ("at_once", "byte"),
    [(b"", b"H"), (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"), (HEAD, b" "), (b"HTTP/1.1 500 Oh\r\n\r\n", b" ")],
    ids=["at nothing", "in the head", "in the body", "in an error"],
)
def test_a_call_of_a_server_that_drips_ends(
    at_once: bytes, byte: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", A_READ_SECONDS)
    monkeypatch.setattr(client.Client._call, "__kwdefaults__", {"params": None, "seconds": A_READ_SECONDS})
    with Dripper(at_once, byte) as dripper:
        found = client.connect(kubeconfig(tmp_path, dripper.url))
        assert found is not None
        began = time.monotonic()
        with pytest.raises(Unavailable):
            found.node("n1")
        assert A_READ_SECONDS <= time.monotonic() - began < 10 * A_READ_SECONDS
        found.close()


@pytest.mark.parametrize(
    ("at_once", "byte"),
    [(b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"), (STREAM + b'8\r\n{"type":\r\n', b"1\r\n \r\n")],
    ids=["in the head", "in a line"],
)
def test_a_watch_of_a_server_that_drips_ends(
    at_once: bytes, byte: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "QUIET_SECONDS", 2 * A_READ_SECONDS)
    with Dripper(at_once, byte) as dripper:
        found = client.connect(kubeconfig(tmp_path, dripper.url))
        assert found is not None
        began = time.monotonic()
        with pytest.raises(Unavailable), found.watch("Pod", version=1, seconds=60) as lines:
            next(lines)
        assert time.monotonic() - began < 10 * A_READ_SECONDS
        found.close()


# --- the objects of a cluster, bent ------------------------------------------------------------------


class Bent:
    """Bent objects of a kind, as the watcher reads them, each newer than the last."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.bender = Bender(chances(f"cluster of {kind}"))
        self.version = 3_000_000

    def item(self) -> Any:
        while True:
            self.version += 1
            shown = self.bender.chances.choice(material.of_kind(self.kind))
            newer = {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(self.version)}}
            with suppress(orjson.JSONDecodeError):  # bent so far that it is no JSON: another one
                return orjson.loads(self.bender.text(self.bender.value(newer)))

    def good(self, number: int) -> dict[str, Any]:
        self.version += 1
        if self.kind is Kind.POD:
            return watch.pod(f"good-{number}", "GPU-a 1 1", namespace="good", version=self.version)
        if self.kind is Kind.NODE:
            return watch.node(f"good-{number}", watch.card("GPU-a"), version=self.version)
        hard = {"limits.nvidia.com/gpumem": "5"}
        return watch.quota(f"good-{number}", namespace="good", hard=hard, version=self.version)


def known(kind: Kind) -> int:
    """How many of the good ones are in the books."""
    if kind is Kind.POD:
        return models.Pod.objects.filter(namespace="good", ended_by="").count()
    if kind is Kind.NODE:
        return models.Node.objects.filter(name__startswith="good-", deleted=False).count()
    return models.ResourceQuota.objects.filter(namespace="good", deleted=False).count()


@pytest.mark.django_db
@pytest.mark.parametrize("kind", list(Kind))
def test_the_watcher_takes_what_is_good_among_bent_objects(kind: Kind, sound: Callable[[], None]) -> None:
    """Of a list and of a watch, through the sieve; a list that holds what may be anything ends nothing."""
    bent = Bent(kind)
    sieve = Sieve(kind)
    good = 0
    for _ in range(max(1, examples(40) // 20)):
        items = [bent.item() for _ in range(20)]
        items[7:7] = [bent.good(number) for number in range(good + 1)]
        good += 1
        kept, seen = sieve.page(items)
        listing = snapshots.begin(kind, bent.version)
        counts = snapshots.apply_page(listing, kept, seen=seen, at=timezone.now())
        assert counts.added + counts.changed + counts.unchanged + len(counts.rejected) == len(kept)
        snapshots.finish(listing, at=timezone.now())
        assert known(kind) == good
        events = [watch.event(bent.item(), "MODIFIED") for _ in range(20)]
        events.insert(7, watch.event(bent.good(good), "ADDED"))
        good += 1
        sifted = sieve.batch(events)
        receipt = inbox.receive(sifted.events, at=timezone.now())
        sieve.stored(sifted)
        assert inbox.settle([id_ for _, id_ in receipt.stored], at=timezone.now())
        assert known(kind) == good
        assert not models.Event.objects.filter(state="waiting").exists()
    sound()

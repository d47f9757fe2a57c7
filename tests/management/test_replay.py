"""manage.py replay over what kubectl 1.32 printed (tests/data/kubectl)."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from hamiacct import models
from hamiacct.management.commands import replay
from hamiacct.operations import audit
from tests import watch
from tests.live import database_url

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "tests/data/kubectl"

pytestmark = pytest.mark.django_db

Replayed = Callable[..., tuple[str, str]]


def run(*words: Any, stdin: bytes = b"", url: str = "") -> subprocess.CompletedProcess[bytes]:
    """As a process of its own."""
    env = {**os.environ, "HAMIACCT_DATABASE_URL": url or database_url()}
    command = [sys.executable, "manage.py", "replay", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=env, input=stdin, capture_output=True, check=False, timeout=60
    )


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Replays in this process: what it printed and complained of, once its exit status is as expected."""

    def replayed(*words: Any, stdin: bytes = b"", status: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        told, complaints = io.StringIO(), io.StringIO()
        found = 0
        try:
            call_command("replay", *map(str, words), stdout=told, stderr=complaints)
        except CommandError as fault:
            found = fault.returncode
            complaints.write(f"CommandError: {fault}\n")
        assert found == status, (told.getvalue(), complaints.getvalue())
        assert audit.audit().ok
        return told.getvalue(), complaints.getvalue()

    return replayed


def states() -> dict[str, str]:
    return dict(models.Pod.objects.values_list("name", "state"))


def used() -> int:
    return sum(models.Device.objects.values_list("memory_mib_used", flat=True))


def lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in objects)


def test_a_watch_with_its_events(replayed: Replayed) -> None:
    told, complaints = replayed(
        PRINTED / "nodes.json", PRINTED / "resourcequotas.json", PRINTED / "watch-events.ndjson", status=1
    )
    assert states() == {"reader": "steady", "writer": "ended", "indexer": "steady"}
    assert used() == 2048 + 1024
    assert "read 3 files: 6 events, 2 lists" in told
    assert "events:    6 applied" in told
    assert "applied:   3 charged, 1 deleted, 1 shrunk, 1 terminating" in told
    assert "pods:      2 steady, 1 ended" in told
    assert "the books agree" in told
    # The recording ends as many do: the version was too old to go on from, and kubectl printed that, too.
    assert "watch-events.ndjson, line 7: rejected: the watch ended here with an error: too old" in complaints


def test_an_interrupted_one_goes_on_where_it_was(replayed: Replayed, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [watch.pod(f"p{number}", "GPU-a 10 0") for number in range(8)]
    recorded = lines(*map(watch.event, [watch.node("n1", watch.card("GPU-a")), *pods]))

    class Terminal(io.BytesIO):
        """Somebody presses Ctrl-C before the last line."""

        def read1(self, size: int | None = -1) -> bytes:
            return super().read1(size) or self.interrupt()

        def interrupt(self) -> bytes:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Terminal(recorded)))
    monkeypatch.setattr(replay, "BATCH_EVENTS", 5)
    with pytest.raises(CommandError, match="interrupted") as end:
        call_command("replay", "-")
    assert end.value.returncode == 130
    assert used() == 4 * 10
    told, _ = replayed("-", stdin=recorded)
    assert "events:    5 stale, 4 applied" in told
    assert used() == 8 * 10


def test_nothing_at_all_is_no_recording(replayed: Replayed) -> None:
    _, complaints = replayed("-", stdin=b"\n", status=2)
    assert "nothing was in it" in complaints


def test_a_watch_of_bare_objects_cannot_tell_a_deletion(replayed: Replayed) -> None:
    told, complaints = replayed(PRINTED / "nodes.json", PRINTED / "watch-objects.json", status=1)
    assert states() == {"reader": "steady", "writer": "steady", "indexer": "steady"}
    assert "events:    6 applied" in told
    assert "kubectl tells them apart with --output-watch-events" in told
    assert "line 428: rejected: the watch ended here with an error" in complaints


def test_a_cluster_dump_is_read_in_order_and_each_namespace_for_itself(replayed: Replayed) -> None:
    replayed(PRINTED / "watch-events.ndjson", status=1)
    assert states()["indexer"] == "steady"
    told, complaints = replayed(PRINTED / "dump", status=1)
    assert "list:      Nodes at version 1015: 1 added" in told
    assert "list:      Pods of borealis" not in told  # older than what was applied there
    assert "--new-history" in complaints


def test_a_cluster_dump_on_empty_books(replayed: Replayed) -> None:
    told, complaints = replayed(PRINTED / "dump", "--complete")
    assert complaints == ""
    assert told.splitlines()[1:4] == [
        "list:      Nodes at version 1015: 1 added, 0 changed, 0 unchanged, 0 ended",
        "list:      Pods of atlas at version 1015: 1 added, 0 changed, 0 unchanged, 0 ended",
        "list:      Pods of borealis at version 1015: 1 added, 0 changed, 0 unchanged, 0 ended",
    ]
    assert used() == 8192 + 4096
    assert all(models.Feed.objects.values_list("declared_complete_at", flat=True))


@pytest.mark.parametrize("name", ["pods.json", "raw-pods.json", "mixed.json"])
def test_lists_as_kubectl_prints_them(replayed: Replayed, name: str) -> None:
    told, complaints = replayed(PRINTED / name)
    assert complaints == ""
    assert "list:      Pods at version" in told
    assert states() == {"reader": "peak", "writer": "steady"}


def test_an_empty_list_of_nothing_changes_nothing(replayed: Replayed) -> None:
    replayed(PRINTED / "pods.json")
    replayed(PRINTED / "empty.json")
    assert states() == {"reader": "peak", "writer": "steady"}


@pytest.mark.parametrize("name", ["pods.json", "mixed.json"])
def test_a_list_with_an_item_nobody_can_read_ends_nothing(replayed: Replayed, name: str) -> None:
    replayed(PRINTED / name)
    text = (PRINTED / name).read_text(encoding="utf-8").replace('"name": "writer"', '"name": "writer')
    text = text.replace('"resourceVersion": ""', '"resourceVersion": "2000"')
    told, complaints = replayed("-", stdin=text.encode(), status=1)
    assert "rejected: no JSON" in complaints
    assert "0 ended" in told
    assert states() == {"reader": "peak", "writer": "steady"}


def test_twice_is_as_once(replayed: Replayed) -> None:
    replayed(PRINTED / "nodes.json", PRINTED / "pods.json")
    told, _ = replayed(PRINTED / "nodes.json", PRINTED / "pods.json")
    assert "0 added, 0 changed, 2 unchanged, 0 ended" in told
    assert used() == 8192 + 4096


def test_a_bad_line_is_told_with_its_number_and_loses_no_other(replayed: Replayed) -> None:
    pod = watch.pod("web", "GPU-a 2048 10")
    nameless = watch.event(watch.pod("x", "GPU-a 1 1"))
    del nameless["object"]["metadata"]["uid"]
    unreadable = watch.pod("y", "GPU-a 1 1")
    unreadable["spec"]["containers"] = 7
    body = b"".join(
        (
            lines(watch.event(watch.node("n1", watch.card("GPU-a")))),
            b'{"type":"ADDED","object":{"kind":"Pod","meta\n',
            lines(nameless, watch.event(unreadable), {"kind": "Service", "metadata": {"name": "web"}}),
            b"\r\n\r\n",
            lines(watch.event(pod)).replace(b"\n", b"\r\n"),
            lines({"no": "kind"}),
            b"\n\n",
        )
    )
    told, complaints = replayed("-", stdin=b"\xef\xbb\xbf" + body, status=1)
    assert states() == {"web": "steady"}
    assert [line.partition(": ")[0] for line in complaints.splitlines()] == [
        "standard input, line 2",
        "standard input, line 9",
        "standard input, line 3",
        "standard input, line 4",
        "CommandError",
    ]
    assert "line 3: rejected: /object/metadata/uid:" in complaints
    assert "line 4: refused, and kept in the inbox: /spec/containers" in complaints
    assert "2 applied, 1 ignored, 1 refused" in told
    assert "rejected:  3" in told


def test_more_events_than_a_batch_and_several_in_a_line(replayed: Replayed) -> None:
    events = [watch.event(watch.node("n1", watch.card("GPU-a", memory=10**6)))]
    events += [watch.event(watch.pod(f"p{number}", "GPU-a 1 0")) for number in range(600)]
    told, _ = replayed("-", stdin=json.dumps(events[0]).encode() + lines(*events[1:]))
    assert "601 applied" in told
    assert used() == 600


def test_a_list_after_events_in_one_file_is_newer_than_they(replayed: Replayed) -> None:
    gone = watch.pod("gone", "GPU-a 1 0", version=10)
    listing = {"kind": "PodList", "metadata": {"resourceVersion": "20"}, "items": []}
    later = watch.pod("later", "GPU-a 1 0", version=21)
    told, _ = replayed("-", stdin=lines(watch.event(gone), listing, watch.event(later)))
    assert "events:    2 applied" in told
    assert "1 ended" in told
    assert states() == {"gone": "ended", "later": "steady"}


def test_compressed_and_cut_off(replayed: Replayed, tmp_path: Path) -> None:
    told, _ = replayed(write(tmp_path / "all.json.gz", gzip.compress((PRINTED / "pods.json").read_bytes())))
    assert "2 added" in told
    events = lines(
        *(watch.event(watch.pod(f"p{number}", "GPU-a 1 0", version=5000 + number)) for number in range(700))
    )
    whole = gzip.compress(events)
    cut = whole[: len(whole) * 3 // 4]
    _, complaints = replayed(write(tmp_path / "cut.ndjson.gz", cut), status=1)
    assert "the file cannot be read any further" in complaints
    assert 300 < models.Pod.objects.count() < 700


def test_what_powershell_writes(replayed: Replayed, tmp_path: Path) -> None:
    text = (PRINTED / "nodes.json").read_text(encoding="utf-8").replace("\n", "\r\n")
    told, _ = replayed(write(tmp_path / "nodes.json", text.encode("utf-16")))
    assert "Nodes at version 1000: 1 added" in told


def write(path: Path, body: bytes) -> Path:
    path.write_bytes(body)
    return path


def test_a_list_that_would_end_too_much_is_refused_and_can_be_confirmed(
    replayed: Replayed, tmp_path: Path
) -> None:
    pods = [watch.pod(f"p{number:02}", "GPU-a 1 0") for number in range(30)]
    replayed("-", stdin=lines(*(watch.event(pod) for pod in pods)))
    empty = {"kind": "PodList", "metadata": {"resourceVersion": "999999"}, "items": []}
    path = write(tmp_path / "pods.json", lines(empty))
    told, complaints = replayed(path, status=1)
    assert "pods.json, line 1: the list of Pods is refused" in complaints
    assert "--confirm 30" in complaints
    assert "refused:   1 list" in told
    told, _ = replayed(path, "--confirm", "30")
    assert "30 ended" in told


def test_a_list_may_be_said_to_be_of_one_namespace(replayed: Replayed) -> None:
    replayed(PRINTED / "pods.json")
    one = json.loads((PRINTED / "pods.json").read_text())
    one["items"] = one["items"][:1]
    one["metadata"]["resourceVersion"] = "2000"
    replayed("-", "--namespace", "atlas", stdin=lines(one))
    assert states() == {"reader": "peak", "writer": "steady"}
    replayed("-", stdin=lines(one))
    assert states() == {"reader": "peak", "writer": "ended"}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda folder: folder / "nothing", "cannot be read"),
        (lambda folder: folder, "no file that ends in"),
        (lambda folder: PRINTED / "pods.yaml", "is YAML, and JSON is read here"),
        (lambda folder: write(folder / "a.json", b"apiVersion: v1\n"), "is YAML, and JSON is read here"),
        (lambda folder: write(folder / "a.json", b"NAME  READY  STATUS\n"), "is kubectl's table"),
        (lambda folder: write(folder / "a.yaml", b"x: 1\n").parent, "holds YAML"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_read(
    replayed: Replayed, tmp_path: Path, make: Callable[[Path], Path], complaint: str
) -> None:
    _, complaints = replayed(PRINTED / "nodes.json", make(tmp_path), status=2)
    assert complaint in complaints
    assert not models.Node.objects.exists()


def test_yaml_on_standard_input(replayed: Replayed) -> None:
    _, complaints = replayed("-", stdin=b"apiVersion: v1\nkind: List\n", status=2)
    assert "standard input is YAML" in complaints


@pytest.mark.django_db(transaction=True)
def test_as_a_process_of_its_own() -> None:
    ran = run("-", stdin=(PRINTED / "pods.json").read_bytes())
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert states() == {"reader": "peak", "writer": "steady"}
    ran = run(PRINTED / "nodes.json", url="postgresql://nobody@127.0.0.1:1/none")
    assert (ran.returncode, b"the database cannot be used" in ran.stderr) == (2, True)

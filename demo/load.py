"""`python -m demo.load --url URL --token TOKEN`: sends the recorded cluster through the real pipeline.

The events go to `POST /api/v1/events` in batches and each batch is waited for, so what is printed at the end
is what the service made of them. The standard library is enough; any operator's token will do.

The recording is played as if it had just ended: every time in it is moved by the same amount, so a pod that
was claimed two minutes before the end of the recording was claimed two minutes ago.
"""

import argparse
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).with_name("events.ndjson")
RECORDED_UNTIL = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
BATCH_EVENTS = 40
WAIT_SECONDS = 60
A_DAY_SECONDS = 86_400
UNIX_TIMES = ("hami.io/vgpu-time", "hami.io/bind-time")
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Failed(Exception):
    """The recording could not be sent; the message says why."""


def main(words: list[str] | None = None) -> int:
    """The exit status: 0 when every event was applied as expected and the books agree, else 1."""
    parser = argparse.ArgumentParser(prog="python -m demo.load", description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True, help="where the service is, as http://127.0.0.1:8000")
    parser.add_argument("--token", required=True, help="an operator's token")
    given = parser.parse_args(words)
    service = Service(given.url.rstrip("/"), given.token)
    try:
        return load(service)
    except Failed as fault:
        print(f"demo.load: {fault}", file=sys.stderr)
        return 1


class Service:
    """The HTTP interface of a running service."""

    def __init__(self, url: str, token: str) -> None:
        if not url.startswith(("http://", "https://")):
            url = f"http://{url}"
        self.url, self._token = url, token

    def call(
        self, path: str, body: bytes | None = None, content_type: str = "application/x-ndjson"
    ) -> tuple[int, Any]:
        """One request, a POST of JSON Lines where there is a body: the status and the answer."""
        request = urllib.request.Request(self.url + path, data=body)  # noqa: S310 - http(s) alone, see above
        request.add_header("Authorization", f"Bearer {self._token}")
        if body is not None:
            request.add_header("Content-Type", content_type)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_SECONDS + 30) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as answer:
            said = answer.read().decode(errors="replace")
            raise Failed(f"{path} answers {answer.code}: {_detail(said)}") from None
        except (OSError, ValueError) as fault:
            raise Failed(f"{self.url} cannot be asked: {fault}") from None

    def ask(self, path: str, question: dict[str, Any]) -> str:
        """Asks something that may be refused: "" or what is said against it."""
        try:
            self.call(path, json.dumps(question).encode(), "application/json")
        except Failed as fault:
            return str(fault)
        return ""


def _detail(said: str) -> str:
    """What a problem document says, or the beginning of anything else."""
    try:
        return str(json.loads(said)["detail"])
    except (ValueError, KeyError, TypeError):
        return said[:200]


def load(service: Service) -> int:
    """Sends everything, prints a summary, answers the exit status."""
    began = time.monotonic()
    lines = list(played(datetime.now(UTC) - RECORDED_UNTIL))
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    for first in range(0, len(lines), BATCH_EVENTS):
        batch = lines[first : first + BATCH_EVENTS]
        body = "".join(json.dumps(event) + "\n" for event in batch).encode()
        status, answer = service.call(f"/api/v1/events?wait={WAIT_SECONDS}", body)
        if status != 200:
            raise Failed(f"events were taken but not applied within {WAIT_SECONDS} s; does a worker run?")
        faults += [f"{named(batch[one['index']])}: {one['detail']}" for one in answer["rejected"]]
        for result in answer["results"]:
            outcomes[result["outcome"]] += 1
            # Stale is what was sent before: the load of a recording that was cut off is begun again.
            if result["outcome"] not in ("applied", "stale"):
                faults.append(f"{named(batch[result['index']])}: {result['outcome']} {result['detail']}")
    if not faults:
        look_around(service, lines)
    _, cluster = service.call("/api/v1/cluster")
    _, audit = service.call("/api/v1/audit")
    faults += [f"the books disagree: {one['book']} {one['key']}" for one in audit["discrepancies"]]
    seconds = time.monotonic() - began
    print(f"{len(lines)} events in {seconds:.1f} s: {told(outcomes)}")
    print(f"{cluster['nodes']} nodes, {cluster['devices']['registered']} devices; {_memory(cluster)}")
    print(f"pods: {told(cluster['pods']['by_state'])}")
    print("the books agree" if audit["ok"] else "the books disagree")
    for fault in faults:
        print(f"demo.load: {fault}", file=sys.stderr)
    return 1 if faults else 0


def look_around(service: Service, lines: Sequence[dict[str, Any]]) -> None:
    """What a cluster in use shows besides: a hold, refusals with their reasons, an event nobody can read.

    The recording is all there is of this cluster, so its books are declared complete.
    """
    service.call("/api/v1/snapshots?complete=1", b"")
    pods = {
        one["object"]["metadata"]["name"]: one["object"] for one in lines if one["object"]["kind"] == "Pod"
    }
    held = like(pods["notebook-1"], "notebook-4", "lab", "8192")
    service.ask("/api/v1/reservations", {"pod": held, "ttl_seconds": A_DAY_SECONDS})
    service.ask("/api/v1/fit", {"pod": pods["llm-serve-2"]})
    service.ask("/api/v1/fit", {"pod": like(pods["notebook-1"], "notebook-5", "lab", "90000")})
    broken = like(pods["notebook-1"], "notebook-6", "lab", "8192")
    del broken["spec"]["containers"][0]["name"]
    line = json.dumps({"type": "ADDED", "object": broken}).encode()
    service.call(f"/api/v1/events?wait={WAIT_SECONDS}", line)


def like(pod: dict[str, Any], name: str, namespace: str, memory: str) -> dict[str, Any]:
    """Another pod of the same kind, which no watch has shown."""
    other: dict[str, Any] = json.loads(json.dumps(pod))
    other["metadata"] |= {"name": name, "namespace": namespace, "uid": f"{pod['metadata']['uid']}-{name}"}
    other["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = memory
    return other


def _memory(cluster: dict[str, Any]) -> str:
    memory = cluster["memory_mib"]
    return f"{memory['used']} of {memory['total']} MiB of device memory used"


def told(counts: dict[str, int]) -> str:
    """Counts in words, the largest first; what there is none of is left out."""
    there = sorted(((count, word) for word, count in counts.items() if count), reverse=True)
    return ", ".join(f"{count} {word}" for count, word in there)


def named(event: dict[str, Any]) -> str:
    """An event in a few words."""
    metadata = event["object"]["metadata"]
    name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    return f"{event['type']} {event['object']['kind']} {name} at version {metadata['resourceVersion']}"


def played(later: timedelta) -> Iterator[dict[str, Any]]:
    """The recorded events in their order, every time in them moved."""
    later = timedelta(seconds=round(later.total_seconds()))
    with RECORDING.open(encoding="utf-8") as recording:
        for line in recording:
            yield moved(json.loads(line), later)


def moved(value: Any, later: timedelta, key: str = "") -> Any:
    """The value with every time in it moved: RFC 3339, and the Unix seconds of HAMi's annotations."""
    if isinstance(value, dict):
        return {name: moved(part, later, name) for name, part in value.items()}
    if isinstance(value, list):
        return [moved(part, later) for part in value]
    if not isinstance(value, str):
        return value
    if key in UNIX_TIMES:
        return str(int(value) + int(later.total_seconds()))
    if RFC3339.fullmatch(value):
        return (datetime.fromisoformat(value) + later).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value


if __name__ == "__main__":
    sys.exit(main())

"""`python -m hamiacct.server [--host 127.0.0.1] [--port 8000]`: the web process. PORT is the default port.

What it serves is `hamiacct.front`: a loop that reads, threads that answer, each with a database connection.
It refuses to start, with a message and exit status 1, where it would schedule beside HAMi's own scheduler.
With HAMIACCT_TLS_CERT the listener speaks TLS, and with HAMIACCT_TLS_CLIENT_CA to known clients alone.
"""

import argparse
import ctypes
import os
import resource
import sys
from pathlib import Path

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from hamiacct import metrics
from hamiacct.accounting.errors import Malformed, Unavailable
from hamiacct.kube import client, leases

WORKERS = 2
CONNECTIONS = 2048
HEADER_SECONDS = 10
M_TRIM_THRESHOLD, M_ARENA_MAX = -1, -8
"""What glibc's `malloc.h` calls so."""


def serve(host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT; a worker that dies is replaced."""
    chosen = settings.HAMIACCT
    server = Granian(
        "hamiacct.front:application_in_front",
        address=host,
        port=port,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_SECONDS * 1000),
        websockets=False,
        workers=WORKERS,
        # A connection that is open costs a little memory; more than these wait until one is closed.
        backlog=CONNECTIONS,
        backpressure=CONNECTIONS,
        respawn_failed_workers=True,
        workers_kill_timeout=8,
        log_level=LogLevels.warning,
        # As everything else is logged, in place of lines of its own form.
        log_dictconfig={"loggers": {"_granian": {"handlers": [], "propagate": True}}},
        ssl_cert=chosen.tls_cert,
        ssl_key=chosen.tls_key,
        ssl_ca=chosen.tls_client_ca,
        ssl_client_verify=chosen.tls_client_ca is not None,
        working_dir=Path(__file__).resolve().parent.parent,
    )
    server.serve()


def rival() -> str:
    """Why this process must not schedule, in words: HAMi's scheduler does, or nobody can tell. "" if it may.

    Two schedulers that do not know of each other give the same card to two pods; a node selector says that
    the nodes are divided between them. What cannot be told is told to a supervisor, who starts again.
    """
    chosen = settings.HAMIACCT
    if not chosen.scheduler_mode or chosen.node_selector:
        return ""
    lease = leases.LeaseName(*chosen.hami_lease)
    try:
        cluster = client.connect(chosen.kubeconfig)
        holder = leases.holder_now(cluster, lease, timezone.now()) if cluster else ""
    except (Unavailable, Malformed) as fault:
        return f"whether HAMi's own scheduler is at work cannot be told (lease {lease}): {fault}"
    if not holder:
        return ""
    return (
        f"HAMi's own scheduler is at work: {holder} holds the lease {lease}. Scale it to 0, or divide the "
        "nodes between both with HAMIACCT_NODE_SELECTOR (docs/operations.md)."
    )


def allow_files() -> None:
    """Lets the process have as many connections open as it may, whatever was usual when it was started."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def give_memory_back() -> None:
    """Has this process and its workers give back to the system what large bodies and answers took.

    Left to itself the allocator of glibc keeps a place of its own for each of two dozen threads, and more and
    more of what was freed: after all kinds of requests a worker is a third larger than what it holds.
    """
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        allocator.mallopt(M_ARENA_MAX, 2)
        allocator.mallopt(M_TRIM_THRESHOLD, 2**17)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hamiacct.settings")
    parser = argparse.ArgumentParser(prog="python -m hamiacct.server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=os.environ.get("PORT") or "8000")
    asked = parser.parse_args()
    try:
        # Here rather than in each worker, so that a bad setting stops the start with one message.
        django.setup()
    except ImproperlyConfigured as fault:
        sys.exit(str(fault))
    if refusal := rival():
        sys.exit(f"hamiacct cannot start in scheduler mode:\n{refusal}")
    metrics.share()
    allow_files()
    give_memory_back()
    serve(asked.host, asked.port)


if __name__ == "__main__":
    main()

"""Gives a test run a PostgreSQL and a Valkey of its own, before Django reads its settings.

HAMIACCT_TEST_DATABASE_URL and HAMIACCT_TEST_REDIS_URL name servers to use instead, HAMIACCT_TEST_KUBECONFIG
a cluster to try the watcher on too. Whatever else the environment says about hamiacct is left out: a test run
depends on nothing but the checkout.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devservers.postgres import Postgres
from devservers.valkey import Valkey

NAMED = ("DATABASE_URL", "REDIS_URL", "KUBECONFIG")
ENOUGH_MEMORY = 2 * 2**30
OPERATOR_TOKEN = "an-operators-token-for-tests"


def folder_in_memory(prefix: str) -> Path:
    """A new folder, in memory where enough of it is offered as one."""
    memory = Path("/dev/shm")
    spacious = memory.is_dir() and shutil.disk_usage(memory).free >= ENOUGH_MEMORY
    return Path(tempfile.mkdtemp(prefix=prefix, dir=memory if spacious else None))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    given = {name: os.environ.get(f"HAMIACCT_TEST_{name}", "") for name in NAMED}
    if os.environ.get("PYTEST_XDIST_WORKER"):
        # Each process of a run has servers of its own: tests kill servers, and count what they do.
        given |= {"DATABASE_URL": "", "REDIS_URL": ""}
    for name in [name for name in os.environ if name.startswith("HAMIACCT_")]:
        del os.environ[name]
    folder = folder_in_memory("hamiacct-test-")
    # The servers' user passes through, and reads nothing.
    folder.chmod(0o711)
    early_config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    if not given["DATABASE_URL"]:
        database = Postgres(folder, durable=False, remove=folder)
        early_config.add_cleanup(database.stop)
        given["DATABASE_URL"] = database.url
    if not given["REDIS_URL"]:
        broker = Valkey(folder)
        early_config.add_cleanup(broker.stop)
        given["REDIS_URL"] = broker.url
    os.environ["HAMIACCT_DATABASE_URL"] = given["DATABASE_URL"]
    os.environ["HAMIACCT_SECRET_KEY"] = "a key for tests that nobody needs to guess, and long enough"
    os.environ["HAMIACCT_BOOTSTRAP_TOKEN"] = OPERATOR_TOKEN
    # Not HAMIACCT_REDIS_URL: in the test process itself events are applied in the request.
    os.environ["HAMIACCT_TEST_REDIS_URL"] = given["REDIS_URL"]
    os.environ["HAMIACCT_TEST_KUBECONFIG"] = given["KUBECONFIG"]
    return (yield)

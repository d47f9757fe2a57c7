"""The launcher: whoever starts it, whatever went before, the servers come up and leave nothing behind."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from devservers import accounts, launch
from devservers.postgres import Postgres
from devservers.processes import Failed
from devservers.pytest_plugin import folder_in_memory
from devservers.valkey import Valkey
from tests.waiting import until

SERVERS = pytest.mark.parametrize("wheel_only", [False, True], ids=["the machine's first", "the wheel's"])
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = folder_in_memory("hamiacct-launcher-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    if os.geteuid() == 0:
        accounts.clear_away_the_forgotten()


def write_a_row(server: Postgres) -> None:
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (42)")


def rows_of(server: Postgres) -> list[tuple[int]]:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT n FROM kept").fetchall()


@SERVERS
def test_a_second_start_finds_its_data(folder: Path, wheel_only: bool) -> None:
    first = Postgres(folder, durable=False, wheel_only=wheel_only)
    write_a_row(first)
    first.stop()
    second = Postgres(folder, durable=False, wheel_only=wheel_only)
    try:
        assert rows_of(second) == [(42,)]
    finally:
        second.stop()


@SERVERS
def test_a_server_that_was_killed_starts_again_with_what_was_committed(
    folder: Path, wheel_only: bool
) -> None:
    first = Postgres(folder, durable=True, wheel_only=wheel_only)
    write_a_row(first)
    with psycopg.connect(first.url):
        first.kill()
    second = Postgres(folder, durable=True, wheel_only=wheel_only)
    try:
        assert rows_of(second) == [(42,)]
    finally:
        second.stop()


def test_a_stale_pid_file_that_names_another_program_is_cleared_away(folder: Path) -> None:
    first = Postgres(folder, durable=False)
    first.stop()
    (first.data / "postmaster.pid").write_text(f"{os.getpid()}\n{first.data}\n0\n5432\n\n\n\nready\n")
    second = Postgres(folder, durable=False)
    second.stop()


def test_a_server_left_running_by_a_killed_launcher_makes_room(folder: Path) -> None:
    first = Postgres(folder, durable=True)
    write_a_row(first)
    keeper = psutil.Process(first.pid).parent()
    assert keeper is not None
    keeper.kill()
    second = Postgres(folder, durable=True)
    try:
        assert second.pid != first.pid
        assert rows_of(second) == [(42,)]
    finally:
        second.stop()


@SERVERS
def test_valkey_answers_and_ends(folder: Path, wheel_only: bool) -> None:
    server = Valkey(folder, wheel_only=wheel_only)
    with redis.Redis.from_url(server.url) as client:
        assert client.set("key", "value", nx=True, ex=15)
    server.stop()
    assert not psutil.pid_exists(server.pid)


def test_two_launchers_side_by_side_do_not_meet(folder: Path) -> None:
    for name in ("", "one", "two"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(0o711)
    with contextlib.ExitStack() as running:
        servers = []
        for name in ("one", "two"):
            servers.append(Postgres(folder / name, durable=False))
            running.callback(servers[-1].stop)
        write_a_row(servers[0])
        write_a_row(servers[1])
        assert servers[0].port != servers[1].port


def test_a_folder_is_used_by_one_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LOCK_SECONDS", 0.1)
    with (
        launch.alone_in(folder),
        pytest.raises(Failed, match=f"in use by process {os.getpid()}"),
        launch.alone_in(folder),
    ):
        pass


def test_a_secret_is_made_once_and_kept_from_others(folder: Path) -> None:
    secret = launch.kept(folder / "secret-key")
    assert len(secret) >= 50
    assert launch.kept(folder / "secret-key") == secret
    assert (folder / "secret-key").stat().st_mode & 0o777 == 0o600


LAUNCH = """
import sys
from pathlib import Path
from devservers.postgres import Postgres
folder = Path(sys.argv[1])
server = Postgres(folder, durable=False, remove=folder if "remove" in sys.argv else None)
print(server.pid, flush=True)
sys.stdin.read()
server.stop()
"""


def test_nothing_is_left_when_the_launcher_is_killed(folder: Path) -> None:
    folder.chmod(0o711)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, folder, "remove"],
        cwd=launch.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    until(lambda: not psutil.pid_exists(pid))
    until(lambda: not folder.exists())


@AS_ROOT
def test_as_root_the_servers_run_as_somebody_else_and_no_mode_is_changed(folder: Path) -> None:
    modes = {path: path.stat().st_mode for path in (folder, *folder.parents)}
    server = Postgres(folder, durable=False)
    try:
        assert psutil.Process(server.pid).uids().real != 0
        assert server.folder != folder, "a folder of mode 0700 is out of that user's reach"
    finally:
        server.stop()
    assert {path: path.stat().st_mode for path in modes} == modes


@AS_ROOT
def test_who_deletes_a_folder_out_of_reach_begins_anew(folder: Path) -> None:
    var = folder / "var"
    first = Postgres(var, durable=False)
    write_a_row(first)
    first.stop()
    shutil.rmtree(var)
    second = Postgres(var, durable=False)
    try:
        assert second.folder != first.folder
        assert not first.folder.exists()
    finally:
        second.stop()


@AS_ROOT
def test_an_ordinary_user_starts_a_server_as_themselves(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    mine = folder / "mine"
    mine.mkdir()
    shutil.chown(mine, nobody.pw_uid, nobody.pw_gid)
    folder.chmod(0o711)
    interpreter = Path(sys.executable)
    if not accounts.can_run("nobody", interpreter.resolve()):
        pytest.skip("this interpreter is in a folder that no ordinary user can enter")
    launched = subprocess.run(
        [interpreter, "-c", LAUNCH, mine],
        cwd=launch.ROOT,
        input="",
        capture_output=True,
        text=True,
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
        env={"PATH": os.environ["PATH"], "HOME": str(mine), "TMPDIR": tempfile.gettempdir()},
        check=False,
        timeout=60,
    )
    assert launched.returncode == 0, launched.stderr
    assert (mine / "postgres").stat().st_uid == nobody.pw_uid

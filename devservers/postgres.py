"""One PostgreSQL of our own: found, initialised once, started, waited for, stopped."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg
from psycopg import sql

from devservers import accounts, programs
from devservers.keeper import as_user
from devservers.processes import Failed, Process, free_port

DATABASE = ROLE = "hamiacct"
START_SECONDS = 60.0

# What is lost with the process is lost with the test.
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # TCP alone: the path of a socket may have 107 bytes, and folders are longer than that.
    "unix_socket_directories": "",
    "max_connections": "200",
    # A container's /dev/shm holds 64 MB, and shared memory there is what PostgreSQL would take first.
    "dynamic_shared_memory_type": "mmap",
    "logging_collector": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres:
    """A running server with its data in `folder`/postgres and one database, `hamiacct`."""

    def __init__(
        self, folder: Path, *, durable: bool, wheel_only: bool = False, remove: Path | None = None
    ) -> None:
        user = accounts.server_user(folder / "postgres")
        self.folder = accounts.reachable(folder, user)
        user = accounts.server_user(self.folder / "postgres")
        self.data = self.folder / "postgres"
        made_by = self.data / "PG_VERSION"
        major = int(made_by.read_text()) if made_by.exists() else None
        self.program = programs.find_postgres(user, major=major, wheel_only=wheel_only)
        self._user, self._remove = user, remove
        self._settings = SETTINGS if durable else SETTINGS | FORGETFUL
        self._initialise()
        self._process, self.port = self._start(None)
        self.url = f"postgresql://{ROLE}@127.0.0.1:{self.port}/{DATABASE}"
        try:
            self._create_database()
        except psycopg.Error as fault:
            self.stop()
            raise Failed(f"PostgreSQL started and refused to make its database: {fault}") from fault

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return self._process.pid

    def check(self) -> None:
        """Failed when the server has ended."""
        self._process.check()

    def kill(self) -> None:
        """SIGKILL to the postmaster, as a crash would have it."""
        self._process.kill()

    def start_again(self) -> None:
        """After the end: on the same data and at the same port, where all who were connected look for it."""
        self._process, _ = self._start(self.port)

    def stop(self) -> None:
        """A fast shutdown: sessions are ended, what was committed is safe."""
        self._process.stop()

    def _initialise(self) -> None:
        """Makes the data beside their place and moves them there, so that half-made data are never found."""
        if self.data.exists():
            return
        making = self.folder / "postgres.making"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        if self._user:
            shutil.chown(making, self._user)
        command: list[str | Path] = [self.program.with_name("initdb"), "-D", making, "-U", ROLE]
        command += ["-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        made = subprocess.run(
            command, capture_output=True, text=True, env=environment(), cwd=making, **as_user(self._user)
        )
        if made.returncode:
            raise Failed(f"initdb failed in {making}:\n{made.stdout}{made.stderr}")
        making.rename(self.data)

    def _start(self, port_wanted: int | None) -> tuple[Process, int]:
        """Started and ready. After a crash the last server's sessions may hold its memory for some moments,
        and a free port may be gone when we come for it: both are tried again until the time is up."""
        end = time.monotonic() + START_SECONDS
        while True:
            self._settle_pid_file(end)
            port = port_wanted or free_port()
            settings = [f"--{name}={value}" for name, value in (self._settings | {"port": str(port)}).items()]
            process = Process(
                "PostgreSQL",
                [self.program, "-D", self.data, *settings],
                log=self.folder / "postgres.log",
                env=environment(),
                cwd=self.data,
                user=self._user,
                stop_signal=signal.SIGINT,
                remove=self._remove,
            )
            while process.status is None and time.monotonic() < end:
                if self._pid_file()[7:8] == ["ready"] and self._pid_file()[0] == str(process.pid):
                    return process, port
                time.sleep(0.02)
            if time.monotonic() >= end:
                words = process.last_words()
                process.stop()
                raise Failed(f"PostgreSQL is not ready after {START_SECONDS:.0f} s:\n{words}")
            if not any(why in process.last_words() for why in ("still in use", "could not bind")):
                process.check()
            time.sleep(0.5)

    def _settle_pid_file(self, end: float) -> None:
        """Clears away what a killed server left.

        Our caller holds the folder's lock, so a server that still runs here is an orphan: it is ended. A file
        whose process is gone, or is by now some other program, would only keep PostgreSQL from starting.
        """
        while lines := self._pid_file():
            if not is_postmaster(int(lines[0]), self.data):
                (self.data / "postmaster.pid").unlink(missing_ok=True)
                return
            if time.monotonic() > end:
                raise Failed(f"a PostgreSQL that was left running in {self.data} does not end: {lines[0]}")
            os.kill(int(lines[0]), signal.SIGINT)
            time.sleep(0.2)

    def _pid_file(self) -> list[str]:
        try:
            text = (self.data / "postmaster.pid").read_text()
        except FileNotFoundError:
            return []
        return [line.strip() for line in text.splitlines()]

    def _create_database(self) -> None:
        address = f"postgresql://{ROLE}@127.0.0.1:{self.port}/postgres"
        with psycopg.connect(address, autocommit=True, connect_timeout=10) as connection:
            there = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(there, [DATABASE]).fetchone() is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def is_postmaster(pid: int, data: Path) -> bool:
    """Whether that process is a PostgreSQL working in `data`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    where = Path(f"/proc/{pid}/cwd")
    if Path("/proc/self").exists():
        try:
            return where.resolve(strict=True) == data.resolve()
        except OSError:
            return False
    told = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return str(data) in told.stdout


def environment() -> dict[str, str]:
    """Ours, without what would steer PostgreSQL from outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}

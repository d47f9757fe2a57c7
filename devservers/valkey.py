"""One Valkey (or Redis) of our own, which remembers nothing: what it carries can all be found again."""

import time
from pathlib import Path

import redis

from devservers import accounts, programs
from devservers.processes import Failed, Process, free_port

START_SECONDS = 20.0


class Valkey:
    """A running server on loopback."""

    def __init__(self, folder: Path, *, wheel_only: bool = False) -> None:
        self._user = accounts.server_user(folder / "valkey")
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "valkey.log"
        self.program = programs.find_valkey(self._user, wheel_only=wheel_only)
        self._process, self.port = self._start(None)
        self.url = f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def check(self) -> None:
        """Failed when the server has ended."""
        self._process.check()

    def kill(self) -> None:
        """SIGKILL, as a crash would have it."""
        self._process.kill()

    def start_again(self) -> None:
        """After the end: empty, and at the same port."""
        self._process, _ = self._start(self.port)

    def stop(self) -> None:
        """Ends the server and forgets what it held."""
        self._process.stop()

    def _start(self, port_wanted: int | None) -> tuple[Process, int]:
        end = time.monotonic() + START_SECONDS
        while True:
            port = port_wanted or free_port()
            options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "daemonize": "no"}
            words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
            process = Process("Valkey", [self.program, *words], log=self._log, cwd=Path("/"), user=self._user)
            with redis.Redis(port=port, socket_timeout=1) as client:
                while process.status is None and time.monotonic() < end:
                    try:
                        # By its process id, since whoever took the port before us would answer as well.
                        if client.info("server")["process_id"] == process.pid:
                            return process, port
                    except redis.RedisError:
                        time.sleep(0.02)
            if time.monotonic() >= end:
                process.stop()
                raise Failed(f"Valkey is not ready after {START_SECONDS:.0f} s:\n{process.last_words()}")
            if "Address already in use" not in process.last_words():
                process.check()

"""Processes that end with us: each runs under a keeper, and says its last words when it dies by itself."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")


class Failed(Exception):
    """A process ended, or did not come up; the message is for the person at the terminal."""


class Process:
    """One running command. Its output goes to `log`, which also tells why it died, or else to ours."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path | None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str = "",
        stop_signal: signal.Signals = signal.SIGTERM,
        remove: Path | None = None,
    ) -> None:
        self.name, self.log = name, log
        arguments = [user, str(int(stop_signal)), str(remove or ""), "--", *map(str, command)]
        receive, report = os.pipe()
        with log.open("ab") if log else contextlib.nullcontext() as output:
            self._keeper = subprocess.Popen(
                [sys.executable, KEEPER, str(report), *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=env,
                cwd=cwd,
                pass_fds=[report],
                start_new_session=True,
            )
        os.close(report)
        with os.fdopen(receive) as line:
            text = line.readline()
        if not text:
            raise Failed(f"{name} could not be started:\n{self.last_words()}")
        self.pid = int(text)

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._keeper.poll()

    def check(self) -> None:
        """Failed, with the end of its log, when the process has ended."""
        if self.status is not None:
            raise Failed(f"{self.name} ended with status {self.status}\n{self.last_words()}".rstrip())

    def kill(self) -> None:
        """SIGKILL, as a crash would have it; returns when the process and its group are gone."""
        os.kill(self.pid, signal.SIGKILL)
        self._keeper.wait()

    def stop(self) -> None:
        """Asks the process to end and waits until it has; after ten seconds it is killed."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()

    def last_words(self, lines: int = 20) -> str:
        """The end of its log."""
        if self.log is None:
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago; who loses the race for it takes another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

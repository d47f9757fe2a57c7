"""What the make targets share: a folder of one's own, its lock, its secrets, and an orderly end."""

import contextlib
import fcntl
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from devservers.processes import Failed, Process

ROOT = Path(__file__).resolve().parent.parent
LOCK_SECONDS = 15.0
WEB_SECONDS = 60.0


class Stopped(BaseException):
    """Somebody asked us to end. No Exception, so that nothing but the way out can hold it up."""


def var_folder(target: str) -> Path:
    """The folder of one target under HAMIACCT_VAR, made if need be. Each target has data of its own."""
    folder = Path(os.environ.get("HAMIACCT_VAR") or ROOT / "var").resolve() / target
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise Failed(f"{folder} cannot be made ({fault.strerror}); set HAMIACCT_VAR") from fault
    return folder


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which the system drops with the process; one that is ending is waited for."""
    try:
        lock = (folder / "lock").open("a+")
    except OSError as fault:
        raise Failed(f"{folder} cannot be written ({fault.strerror}); set HAMIACCT_VAR") from fault
    with lock:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    lock.seek(0)
                    raise Failed(
                        f"{folder} is in use by process {lock.read().strip()}; end it or set HAMIACCT_VAR"
                    ) from None
                time.sleep(0.2)
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def kept(path: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(48)) -> str:
    """The secret in that file, made once and readable by its owner alone."""
    if not path.exists():
        write_private(path, make())
    return path.read_text().strip()


def write_private(path: Path, text: str) -> None:
    """Writes the file so that nobody else can ever read it, and nobody finds half of it."""
    making = path.with_name(f"{path.name}.making")
    making.unlink(missing_ok=True)
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{text}\n")
    making.replace(path)


def write_env(path: Path, settings: Mapping[str, str]) -> None:
    """A file for a shell to source, so that manage.py works on the same data."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(settings.items())]
    write_private(path, "\n".join(lines))


def port_asked() -> int:
    """PORT, or 8000; Failed when it is no port or somebody listens there already."""
    text = os.environ.get("PORT") or "8000"
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise Failed(f"PORT: {text!r} is no port")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", int(text)))
        except OSError as fault:
            raise Failed(f"127.0.0.1:{text} cannot be had ({fault.strerror}); set PORT") from fault
    return int(text)


def manage(env: Mapping[str, str], *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs manage.py to its end; Failed with what it said when it fails."""
    ran = subprocess.run(
        [sys.executable, "manage.py", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    if check and ran.returncode:
        raise Failed(f"manage.py {words[0]} failed:\n{ran.stdout}{ran.stderr}".rstrip())
    return ran


def python(name: str, words: Sequence[str], env: Mapping[str, str], log: Path | None) -> Process:
    """A module of ours, or of the environment, running until it is stopped."""
    return Process(name, [sys.executable, "-m", *words], log=log, env=env, cwd=ROOT)


def wait_for_web(process: Process, port: int) -> None:
    """Returns when the web process answers."""
    end = time.monotonic() + WEB_SECONDS
    while time.monotonic() < end:
        process.check()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5):
                return
        except urllib.error.HTTPError as answer:
            raise Failed(f"the web process answers {answer.code}:\n{process.last_words()}") from None
        except OSError:
            time.sleep(0.05)
    raise Failed(f"the web process does not answer after {WEB_SECONDS:.0f} s:\n{process.last_words()}")


def watch(*checks: Callable[[], None]) -> None:
    """Looks after what runs, for ever: Failed when one of them has ended."""
    while True:
        for check in checks:
            check()
        time.sleep(0.3)


def run_until_stopped(main: Callable[[], None]) -> int:
    """Runs `main` until it fails or somebody stops us; the exit status. What it opened it has closed."""
    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(*_: int | FrameType | None) -> None:
        # The way out is walked once; asking again does not make it shorter.
        for number in heard:
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    for number in heard:
        signal.signal(number, stop)
    try:
        main()
    except Stopped:
        print("stopped", flush=True)
        return 0
    except Failed as fault:
        print(fault, file=sys.stderr, flush=True)
        return 1
    return 0

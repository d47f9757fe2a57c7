"""Runs one command and never leaves it behind: `keeper.py REPORT_FD USER SIGNAL REMOVE -- COMMAND...`.

The keeper's standard input is the reading end of a pipe. When whoever started it ends, for whatever reason,
the pipe closes; then the command gets SIGNAL and ten seconds, then SIGKILL with what it has left running,
and REMOVE (a folder, or nothing) is deleted. USER is a name, or nothing: as root, a server that refuses root
runs under it. The command's process id is written to REPORT_FD.

Started as a file by its path, so that it needs the standard library alone and no import path.
"""

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PATIENCE_SECONDS = 10.0


def as_user(name: str) -> dict[str, Any]:
    """The arguments of `subprocess` that run a command as the user of that name; none for no name."""
    if not name:
        return {}
    account = pwd.getpwnam(name)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def keep(command: list[str], user: str, stop: int, report: int) -> int:
    """The command's exit status, once it has ended by itself or by the end of our standard input."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **as_user(user))
    os.write(report, b"%d\n" % process.pid)
    os.close(report)
    while process.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 0.05)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            process.send_signal(stop)
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def remove_folder(folder: str) -> None:
    """Deletes the folder; for five seconds something may still be writing into it."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


def main() -> int:
    report, user, stop, remove, _, *command = sys.argv[1:]
    # A signal to the whole group is for the pipe's owner, who ends things in their order. A handler rather
    # than SIG_IGN, which the command would inherit.
    for heard in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(heard, lambda *_: None)
    try:
        status = keep(command, user, int(stop), int(report))
    finally:
        if remove:
            remove_folder(remove)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())

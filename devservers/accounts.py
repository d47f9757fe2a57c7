"""Who runs the servers, and where that user can reach its files.

PostgreSQL refuses to run as root, so there it runs as an unprivileged user that exists already. That user can
enter neither root's home nor any folder of mode 0700 on the way: then no mode is changed, the files go
elsewhere.
"""

import contextlib
import hashlib
import os
import pwd
import subprocess
from pathlib import Path

from devservers.keeper import as_user
from devservers.processes import Failed

CANDIDATES = ("postgres", "nobody", "daemon")
# Root's own place for what an unprivileged user must reach.
FALLBACK = Path("/var/lib/hamiacct-devservers")


def server_user(data: Path) -> str:
    """The user to run servers as: the owner of `data` if it exists, else one of ours; "": ourselves."""
    if os.geteuid() != 0:
        if data.exists() and data.stat().st_uid != os.geteuid():
            raise Failed(f"{data} belongs to another user; set HAMIACCT_VAR to a folder of your own")
        return ""
    if data.exists() and data.stat().st_uid != 0:
        with contextlib.suppress(KeyError):
            return pwd.getpwuid(data.stat().st_uid).pw_name
    for name in CANDIDATES:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise Failed(f"PostgreSQL does not run as root, and none of the users {', '.join(CANDIDATES)} exists")


def can_enter(user: str, folder: Path) -> bool:
    """Whether the user can reach into the folder."""
    probe = ["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)]
    return subprocess.run(probe, stderr=subprocess.DEVNULL, cwd="/", **as_user(user)).returncode == 0


def can_run(user: str, program: Path) -> bool:
    """Whether the user can run the program."""
    try:
        ran = subprocess.run(
            [program, "--version"], capture_output=True, cwd="/", timeout=20, **as_user(user)
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ran.returncode == 0


def reachable(folder: Path, user: str) -> Path:
    """`folder` itself where the user can enter it, else a folder of root's that always stands for it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    if not user or can_enter(user, folder):
        return folder
    stand_in = FALLBACK / hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    stand_in.mkdir(mode=0o755, parents=True, exist_ok=True)
    (stand_in / "stands-for").write_text(f"{folder}\n")
    return stand_in

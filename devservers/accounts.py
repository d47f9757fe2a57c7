"""Who runs the servers, and where that user can reach its files.

PostgreSQL refuses to run as root, so there it runs as an unprivileged user that exists already. That user can
enter neither root's home nor any folder of mode 0700 on the way: then no mode is changed, the files go
elsewhere.
"""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from devservers.keeper import as_user
from devservers.processes import Failed

CANDIDATES = ("postgres", "nobody", "daemon")
# Root's own place for what an unprivileged user must reach.
FALLBACK = Path("/var/lib/hamiacct-devservers")
POINTER, STANDS_FOR = "data-are-in", "stands-for"


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


def open_folder(folder: Path) -> Path:
    """A folder of root's that everybody may enter, whatever the umask says; made if need be."""
    for made in (FALLBACK, folder):
        made.mkdir(exist_ok=True)
        made.chmod(0o755)
    return folder


def reachable(folder: Path, user: str) -> Path:
    """`folder` itself where the user can enter it, else a folder of root's that stands for it.

    The folder says which one that is, so whoever deletes the folder begins anew, as they would expect.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    if not user or can_enter(user, folder):
        return folder
    pointer = folder / POINTER
    if not (pointer.exists() and Path(pointer.read_text().strip()).is_dir()):
        open_folder(FALLBACK)
        clear_away_the_forgotten()
        stand_in = open_folder(Path(tempfile.mkdtemp(prefix="data-", dir=FALLBACK)))
        (stand_in / STANDS_FOR).write_text(f"{folder}\n")
        pointer.write_text(f"{stand_in}\n")
    return Path(pointer.read_text().strip())


def clear_away_the_forgotten() -> None:
    """Deletes every stand-in whose folder is gone, or points elsewhere by now, and where no server runs."""
    for note in FALLBACK.glob(f"data-*/{STANDS_FOR}"):
        pointer = Path(note.read_text().strip()) / POINTER
        wanted = pointer.exists() and pointer.read_text().strip() == str(note.parent)
        if not wanted and not (note.parent / "postgres" / "postmaster.pid").exists():
            shutil.rmtree(note.parent, ignore_errors=True)

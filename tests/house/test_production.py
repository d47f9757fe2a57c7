"""Django's own list of what a service must have before it is put into production."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(**settings: str) -> subprocess.CompletedProcess[str]:
    """`manage.py check --deploy` as a process of its own, where any warning is a failure."""
    env = {name: text for name, text in os.environ.items() if not name.startswith(("HAMIACCT_", "PG"))}
    env |= {
        "HAMIACCT_DATABASE_URL": "postgresql://hamiacct:a-password@127.0.0.1:1/hamiacct?sslmode=verify-full",
        "HAMIACCT_REDIS_URL": "rediss://:a-password@redis.example:6379/0",
        "HAMIACCT_SECRET_KEY": secrets.token_urlsafe(50),
        "HAMIACCT_ALLOWED_HOSTS": "hamiacct.example,.gpu.example",
        **{f"HAMIACCT_{name}": text for name, text in settings.items()},
    }
    command = [sys.executable, "-W", "error::DeprecationWarning:hamiacct", "manage.py", "check", "--deploy"]
    return subprocess.run(
        [*command, "--fail-level", "WARNING"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_nothing_is_left_to_say_of_production_settings() -> None:
    ran = check()
    assert (ran.returncode, ran.stderr) == (0, "")
    # Redirects to TLS and HSTS: settings.py says why they are not for the service itself.
    assert ran.stdout == "System check identified no issues (2 silenced).\n"


def test_what_is_wrong_is_said() -> None:
    ran = check(SECRET_KEY="short", DEBUG="1")
    assert ran.returncode == 1
    assert "security.W009" in ran.stderr
    assert "security.W018" in ran.stderr

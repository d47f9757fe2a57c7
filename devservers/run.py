"""`make run`: everything at once, on servers of its own under HAMIACCT_VAR, with a cluster to look at.

The demonstration arrives as recorded watch events through the pipeline that real ones take.
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
import urllib.request
from pathlib import Path

from devservers import launch
from devservers.postgres import Postgres
from devservers.processes import Failed
from devservers.valkey import Valkey

WORKER = "celery -A hamiacct.celery worker --concurrency 2 --without-gossip --without-mingle"
BEAT = "celery -A hamiacct.celery beat --pidfile="


def main() -> None:
    folder = launch.var_folder("run")
    with contextlib.ExitStack() as running:
        running.enter_context(launch.alone_in(folder))
        port = launch.port_asked()
        env = dict(os.environ) | {"HAMIACCT_TRUST_EVENTS": "1"}
        env.setdefault("HAMIACCT_SECRET_KEY", launch.kept(folder / "secret-key"))
        env.setdefault("HAMIACCT_BOOTSTRAP_TOKEN", launch.kept(folder / "token", secrets.token_hex))
        checks = []
        if not env.get("HAMIACCT_DATABASE_URL"):
            database = Postgres(folder, durable=True)
            running.callback(database.stop)
            checks.append(database.check)
            env["HAMIACCT_DATABASE_URL"] = database.url
        if not env.get("HAMIACCT_REDIS_URL"):
            broker = Valkey(folder)
            running.callback(broker.stop)
            checks.append(broker.check)
            env["HAMIACCT_REDIS_URL"] = broker.url
        launch.write_env(folder / "env", {n: v for n, v in env.items() if n.startswith("HAMIACCT_")})
        launch.manage(env, "migrate", "--no-input")
        make_admin(folder, env)

        worker = launch.python("worker", WORKER.split(), env, folder / "worker.log")
        running.callback(worker.stop)
        beat = launch.python("beat", BEAT.split(), env, folder / "beat.log")
        running.callback(beat.stop)
        web = launch.python("web", ["hamiacct.server", "--port", str(port)], env, folder / "web.log")
        running.callback(web.stop)
        launch.wait_for_web(web, port)
        checks += [web.check, worker.check, beat.check]

        address, token = f"http://127.0.0.1:{port}", env["HAMIACCT_BOOTSTRAP_TOKEN"]
        load_demo(folder, address, token, env)
        print(greeting(address, token, folder), flush=True)
        launch.watch(*checks)


def make_admin(folder: Path, env: dict[str, str]) -> None:
    """A login for /admin/, with a password made once and kept beside the data."""
    if not (folder / "admin-password").exists():
        password = secrets.token_urlsafe(12)
        words = ["createsuperuser", "--no-input", "--username", "admin", "--email", "admin@localhost"]
        made = launch.manage(env | {"DJANGO_SUPERUSER_PASSWORD": password}, *words, check=False)
        if made.returncode == 0:
            launch.write_private(folder / "admin-password", password)


def load_demo(folder: Path, address: str, token: str, env: dict[str, str]) -> None:
    """Loads the demonstration into books without nodes; one that was cut off is begun again."""
    loading = folder / "demo.loading"
    if holds_nodes(address, token) and not loading.exists():
        return
    loading.touch()
    command = [sys.executable, "-m", "demo.load", "--url", address, "--token", token]
    ran = subprocess.run(command, cwd=launch.ROOT, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Failed(f"the demonstration could not be loaded:\n{ran.stdout}{ran.stderr}".rstrip())
    loading.unlink()
    print(f"a cluster to look at was loaded:\n{ran.stdout}".rstrip(), flush=True)


def holds_nodes(address: str, token: str) -> bool:
    request = urllib.request.Request(f"{address}/api/v1/nodes?limit=1")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return bool(json.load(answer)["items"])


def greeting(address: str, token: str, folder: Path) -> str:
    curl = f"curl -s -H 'Authorization: Bearer {token}'"
    password = folder / "admin-password"
    login = f"admin / {password.read_text().strip()}" if password.exists() else "your own"
    return f"""
hamiacct is at {address}

  token      {token}
  documents  {address}/api/v1/docs  (once you have logged in to the admin)
  admin      {address}/admin/  ({login})
  manage.py  . {folder / "env"} && .venv/bin/python manage.py help

  {curl} '{address}/api/v1/cluster'
  {curl} '{address}/api/v1/pods?state=peak'
  {curl} '{address}/api/v1/namespaces/default/quota'

Ctrl-C ends all of it; the next start finds its data."""


if __name__ == "__main__":
    sys.exit(launch.run_until_stopped(main))

"""`make serve`: migrates and serves the web process alone, with the settings in the environment.

What the environment leaves out is kept under HAMIACCT_VAR: a PostgreSQL when no URL is given, a secret key
when there is none. Without a Redis URL events are applied in the request.
"""

import contextlib
import os
import sys

from devservers import launch
from devservers.postgres import Postgres


def main() -> None:
    env = dict(os.environ)
    folder = launch.var_folder("serve")
    checks = []
    with contextlib.ExitStack() as running:
        port = launch.port_asked()
        if not env.get("HAMIACCT_SECRET_KEY"):
            env["HAMIACCT_SECRET_KEY"] = launch.kept(folder / "secret-key")
        if not env.get("HAMIACCT_DATABASE_URL"):
            running.enter_context(launch.alone_in(folder))
            database = Postgres(folder, durable=True)
            running.callback(database.stop)
            checks.append(database.check)
            env["HAMIACCT_DATABASE_URL"] = database.url
        launch.write_env(folder / "env", {n: v for n, v in env.items() if n.startswith("HAMIACCT_")})
        launch.manage(env, "migrate", "--no-input")
        web = launch.python("web", ["hamiacct.server", "--port", str(port)], env, log=None)
        running.callback(web.stop)
        if not env.get("HAMIACCT_TLS_CERT"):
            launch.wait_for_web(web, port)
        print(f"serving on 127.0.0.1:{port}; for manage.py: . {folder / 'env'}", flush=True)
        launch.watch(web.check, *checks)


if __name__ == "__main__":
    sys.exit(launch.run_until_stopped(main))

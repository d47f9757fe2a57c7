"""The settings: every name of the contract is read, and what nobody can mean stops the start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hamiacct import environment

ROOT = Path(__file__).parents[2]
REQUIRED = {"HAMIACCT_DATABASE_URL": "postgresql://u:p%40ss@db:5433/books?sslmode=require"}
REQUIRED |= {"HAMIACCT_SECRET_KEY": "a key"}


def read(**settings: str) -> environment.Environment:
    return environment.read(REQUIRED | {f"HAMIACCT_{name}": text for name, text in settings.items()})


def test_the_defaults_are_the_contracts() -> None:
    found = read()
    assert found.redis_url == ""
    assert found.allowed_hosts == ("localhost", "127.0.0.1")
    assert (found.node_policy, found.gpu_policy) == ("binpack", "spread")
    assert (found.reservation_ttl_seconds, found.lock_timeout_seconds, found.max_lag_seconds) == (900, 2, 30)
    assert (found.keep_events_days, found.keep_decisions_days, found.resync_seconds) == (7, 7, 21600)
    assert (found.debug, found.trust_events, found.scheduler_mode, found.metrics_open) == (False,) * 4
    assert found.force_overwrite_default_scheduler
    assert (found.extender_auth, found.webhook_auth, found.annotation_layout) == ("token", "token", "auto")
    assert str(found.handshake_time_zone) == "UTC"


def test_an_empty_value_is_the_default() -> None:
    assert read(MAX_LAG_SECONDS="", REDIS_URL="", DEVICE_CONFIG="") == read()


def test_names_of_the_make_targets_are_known() -> None:
    assert read(VAR="/x", TEST_DATABASE_URL="postgresql://x/y", TEST_REDIS_URL="redis://x") == read()


def test_what_kubernetes_tells_of_a_service_called_like_us_is_no_setting() -> None:
    links = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "80",
        "SERVICE_PORT_HTTP": "80",
        "PORT": "tcp://10.0.0.1:80",
        "PORT_80_TCP": "tcp://10.0.0.1:80",
        "PORT_80_TCP_ADDR": "10.0.0.1",
        "WEBHOOK_SERVICE_PORT_HTTPS": "443",
        "WEBHOOK_PORT_443_TCP_PROTO": "tcp",
    }
    assert read(**links) == read()
    with pytest.raises(environment.BadEnvironment, match="HAMIACCT_SERVICE_HOSTS: no such setting"):
        read(SERVICE_HOSTS="10.0.0.1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MAX_LAG_SECOND", "30"),
        ("DATABASE_URL", "sqlite:///books.db"),
        ("DATABASE_URL", "postgresql://db"),
        ("HAMI_METRICS_URL", "hami-scheduler:9395/metrics"),
        ("REDIS_URL", "http://redis:6379"),
        ("DEBUG", "maybe"),
        ("MAX_LAG_SECONDS", "-1"),
        ("MAX_LAG_SECONDS", "³"),
        ("RESERVATION_TTL_SECONDS", "9" * 5000),
        ("LOCK_TIMEOUT_SECONDS", "nan"),
        ("NODE_POLICY", "tightly"),
        ("GPU_POLICY", "spread,closely"),
        ("NODE_SELECTOR", "gpu"),
        ("HAMI_LEASE", "hami-scheduler"),
        ("HAMI_LEASE", "kube-system/"),
        ("HAMI_LEASE", "kube-system/../secrets"),
        ("EXTENDER_AUTH", "cert"),
        ("WEBHOOK_AUTH", "loopback"),
        ("TLS_CERT", "/nowhere/tls.crt"),
        ("ANNOTATION_LAYOUT", "both"),
        ("HANDSHAKE_TIME_ZONE", "../UTC"),
        ("HANDSHAKE_TIME_ZONE", "Mars/Olympus"),
        ("KEEP_EVENTS_DAYS", "0"),
        ("LOG_LEVEL", "LOUD"),
    ],
)
def test_what_nobody_can_mean_is_named(name: str, text: str) -> None:
    with pytest.raises(environment.BadEnvironment, match=f"HAMIACCT_{name}: "):
        read(**{name: text})


def test_no_authentication_is_refused_in_scheduler_mode() -> None:
    assert read(EXTENDER_AUTH="none").extender_auth == "none"
    with pytest.raises(environment.BadEnvironment, match="HAMIACCT_EXTENDER_AUTH"):
        read(EXTENDER_AUTH="none", SCHEDULER_MODE="1")


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(environment.BadEnvironment) as told:
        environment.read({"HAMIACCT_DEBUG": "maybe", "HAMIACCT_TYPO": "1"})
    named = [line.partition(":")[0] for line in str(told.value).splitlines()]
    assert named == ["HAMIACCT_DATABASE_URL", "HAMIACCT_SECRET_KEY", "HAMIACCT_DEBUG", "HAMIACCT_TYPO"]


def test_secrets_do_not_show() -> None:
    shown = repr(read(BOOTSTRAP_TOKEN="s3cret", REDIS_URL="redis://:s3cret@redis/0"))
    assert "s3cret" not in shown
    assert "p%40ss" not in shown
    assert "a key" not in shown


def test_a_database_url_is_read_whole() -> None:
    found = environment.database_of(REQUIRED["HAMIACCT_DATABASE_URL"])
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("db", "5433", "books")
    assert (found["USER"], found["PASSWORD"]) == ("u", "p@ss")
    assert found["OPTIONS"] == {"sslmode": "require"}


def manage(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("HAMIACCT_")}
    inside = REQUIRED | {f"HAMIACCT_{name}": text for name, text in settings.items()}
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(
        command, cwd=ROOT, env=outside | inside, capture_output=True, text=True, check=False
    )


def test_the_start_stops_with_one_message() -> None:
    ran = manage("check", MAX_LAG_SECOND="30")
    assert ran.returncode != 0
    assert "HAMIACCT_MAX_LAG_SECOND: no such setting" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_production_deployment_passes_djangos_own_check() -> None:
    ran = manage(
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        ALLOWED_HOSTS="books.example.org",
        SECRET_KEY="3f9-a-long-and-random-looking-key-that-nobody-would-ever-guess-7b2",
    )
    assert ran.returncode == 0, ran.stderr

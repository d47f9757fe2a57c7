"""The settings of the contract, read once from the environment into one frozen record.

A name starting with HAMIACCT_ that nobody reads is a typing mistake that would silently leave a default in
force, so it stops the start; so does a value that does not mean what its name asks for. Every fault is told
at once, each with the name at fault.
"""

import dataclasses
import math
import os
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

PREFIX = "HAMIACCT_"

# Read by the make targets and the tests, never by the service itself.
OF_THE_MAKE_TARGETS = frozenset(
    {
        "HAMIACCT_VAR",
        "HAMIACCT_TEST_DATABASE_URL",
        "HAMIACCT_TEST_REDIS_URL",
        "HAMIACCT_TEST_KUBECONFIG",
    }
)

# What Kubernetes tells every pod of a namespace about a Service called hamiacct, or hamiacct-something.
SERVICE_LINK = re.compile(r"HAMIACCT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})


class BadEnvironment(Exception):
    """The environment describes no service that can start; the message names each variable at fault."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Every setting of docs/api.md under its own name, lower case and without the prefix."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    secret_key: str = field(repr=False)
    allowed_hosts: tuple[str, ...]
    debug: bool
    bootstrap_token: str = field(repr=False)
    device_config: Path | None
    scheduler_name: str
    force_overwrite_default_scheduler: bool
    node_policy: str
    gpu_policy: str
    node_selector: tuple[tuple[str, str], ...]
    reservation_ttl_seconds: int
    lock_timeout_seconds: float
    bind_lock_wait_seconds: float
    max_lag_seconds: int
    trust_events: bool
    extender_auth: str
    webhook_auth: str
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    metrics_open: bool
    metrics_per_pod: bool
    metrics_port: int
    recharge_on_init_rerun: bool
    annotation_layout: str
    handshake_time_zone: zoneinfo.ZoneInfo
    keep_events_days: int
    keep_decisions_days: int
    resync_seconds: int
    scheduler_mode: bool
    hami_lease: tuple[str, str]
    kubeconfig: Path | None
    hami_metrics_url: str = field(repr=False)
    log_level: str

    @property
    def loopback_only(self) -> bool:
        """Whether the service answers to loopback names alone, as on a developer's machine."""
        return LOOPBACK_HOSTS.issuperset(self.allowed_hosts)


def read(environ: Mapping[str, str]) -> Environment:
    """The settings in `environ`. BadEnvironment names every unknown name and every bad value."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for setting, (default, parse) in SETTINGS.items():
        name = PREFIX + setting.upper()
        text = environ.get(name, "").strip() or default
        try:
            values[setting] = parse(text)
        except ValueError as fault:
            faults.append(f"{name}: {fault}")
    if not faults:
        faults.extend(contradictions(Environment(**values)))
    known = OF_THE_MAKE_TARGETS.union(PREFIX + setting.upper() for setting in SETTINGS)
    unknown = sorted(
        name
        for name in environ
        if name.startswith(PREFIX) and name not in known and not SERVICE_LINK.fullmatch(name)
    )
    faults.extend(f"{name}: no such setting" for name in unknown)
    if faults:
        raise BadEnvironment("\n".join(faults))
    return Environment(**values)


def contradictions(environment: Environment) -> Iterator[str]:
    """What each setting allows by itself and the others forbid."""
    if environment.scheduler_mode and environment.extender_auth == "none":
        yield "HAMIACCT_EXTENDER_AUTH: none is refused in scheduler mode"
    if (environment.tls_cert is None) != (environment.tls_key is None):
        yield "HAMIACCT_TLS_CERT: comes with HAMIACCT_TLS_KEY, or not at all"
    if environment.tls_client_ca and not environment.tls_cert:
        yield "HAMIACCT_TLS_CLIENT_CA: needs HAMIACCT_TLS_CERT and HAMIACCT_TLS_KEY"
    for name, auth in (("EXTENDER", environment.extender_auth), ("WEBHOOK", environment.webhook_auth)):
        if auth == "cert" and not environment.tls_client_ca:
            yield f"HAMIACCT_{name}_AUTH: cert needs HAMIACCT_TLS_CLIENT_CA"


def database_of(url: str) -> dict[str, Any]:
    """Django's settings of the PostgreSQL database at `url`, whose query holds libpq parameters."""
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.removeprefix("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parameters.pop("host", unquote(parts.hostname or "")),
        "PORT": parameters.pop("port", str(parts.port or "")),
        "OPTIONS": parameters,
    }


def text_of(text: str) -> str:
    return text


def flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(f"{text!r} is neither 1 nor 0")


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`, in plain decimal digits."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and least <= int(text) <= most):
            raise ValueError(f"{text!r} is no whole number from {least} to {most}")
        return int(text)

    return parse


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A number of seconds, fractions allowed."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise ValueError(f"{text!r} is no number of seconds from {least:g} to {most:g}")
        return number

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return text

    return parse


def every_part_of(*words: str) -> Callable[[str], str]:
    """A comma list of the given words, kept as written: their order is part of the meaning."""

    def parse(text: str) -> str:
        for part in text.split(","):
            one_of(*words)(part.strip())
        return text

    return parse


def readable_file(text: str) -> Path | None:
    if not text:
        return None
    path = Path(text)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ValueError(f"{text!r} is no readable file")
    return path


def hosts(text: str) -> tuple[str, ...]:
    names = tuple(host.strip() for host in text.split(",") if host.strip())
    if not names:
        raise ValueError(f"{text!r} names no host")
    return names


def time_zone(text: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        raise ValueError(f"{text!r} is no time zone of this machine") from None


def label_selector(text: str) -> tuple[tuple[str, str], ...]:
    """`key=value,key=value`: the labels of the nodes whose devices are given out; empty: every node."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise ValueError(f"{part!r} is not of the form key=value")
        pairs.append((key.strip(), value.strip()))
    return tuple(pairs)


def lease_name(text: str) -> tuple[str, str]:
    """`namespace/name`."""
    namespace, _, name = text.partition("/")
    if not all(_NAME.fullmatch(part) for part in (namespace, name)):
        raise ValueError(f"{text!r} is not of the form namespace/name")
    return namespace, name


def required(parse: Callable[[str], str]) -> Callable[[str], str]:
    def parse_required(text: str) -> str:
        if not text:
            raise ValueError("must be set")
        return parse(text)

    return parse_required


def database_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("must be a postgresql:// URL; PostgreSQL is the only database")
    if not database_of(text)["NAME"]:
        raise ValueError("names no database after the host")
    return text


def redis_url(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("redis", "rediss") or not parts.hostname):
        raise ValueError("must be a redis:// or rediss:// URL, or empty")
    if text and not parts.path.removeprefix("/").isdigit() and parts.path not in ("", "/"):
        raise ValueError("names no numbered database after the host")
    return text


def web_address(text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("must be an http:// or https:// URL, or empty")
    return text


A_DAY = 86_400
GPU_POLICIES = ("binpack", "spread", "numa", "mutex", "topology-aware")

# name -> (default text, what reads it). An empty variable counts as one that is not set.
SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "database_url": ("", required(database_url)),
    "redis_url": ("", redis_url),
    "secret_key": ("", required(text_of)),
    "allowed_hosts": ("localhost,127.0.0.1", hosts),
    "debug": ("0", flag),
    "bootstrap_token": ("", text_of),
    "device_config": ("", readable_file),
    "scheduler_name": ("hami-scheduler", text_of),
    "force_overwrite_default_scheduler": ("1", flag),
    "node_policy": ("binpack", one_of("binpack", "spread")),
    "gpu_policy": ("spread", every_part_of(*GPU_POLICIES)),
    "node_selector": ("", label_selector),
    "reservation_ttl_seconds": ("900", whole(1, 30 * A_DAY)),
    "lock_timeout_seconds": ("2", seconds(0.001, 300)),
    "bind_lock_wait_seconds": ("2", seconds(0, 300)),
    "max_lag_seconds": ("30", whole(1, A_DAY)),
    "trust_events": ("0", flag),
    "extender_auth": ("token", one_of("token", "cert", "loopback", "none")),
    "webhook_auth": ("token", one_of("token", "cert", "none")),
    "tls_cert": ("", readable_file),
    "tls_key": ("", readable_file),
    "tls_client_ca": ("", readable_file),
    "metrics_open": ("0", flag),
    "metrics_per_pod": ("0", flag),
    "metrics_port": ("0", whole(0, 65_535)),
    "recharge_on_init_rerun": ("0", flag),
    "annotation_layout": ("auto", one_of("auto", "positional", "apps-only")),
    "handshake_time_zone": ("UTC", time_zone),
    "keep_events_days": ("7", whole(1, 36_500)),
    "keep_decisions_days": ("7", whole(1, 36_500)),
    "resync_seconds": ("21600", whole(1, 30 * A_DAY)),
    "scheduler_mode": ("0", flag),
    "hami_lease": ("kube-system/hami-scheduler", lease_name),
    "kubeconfig": ("", readable_file),
    "hami_metrics_url": ("", web_address),
    "log_level": ("INFO", lambda text: one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")(text.upper())),
}

assert list(SETTINGS) == [it.name for it in dataclasses.fields(Environment)], "one reader per setting"

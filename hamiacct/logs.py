"""One JSON line a record on standard error, from the standard library's loggers and from structlog alike."""

import logging.config
from typing import Any

import structlog

SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure(settings: dict[str, Any]) -> None:
    """Called by Django with its LOGGING setting, here `{"level": name}`."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *SHARED,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": SHARED,
        "processors": [
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": formatter},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["stderr"], "level": settings["level"]},
            "loggers": {
                # It repeats what the request log says, with raw paths, which may hold a webhook's secret.
                "django.request": {"level": "CRITICAL"},
                # A traceback for every scanner that asks for another name; the request log has the answer.
                "django.security.DisallowedHost": {"level": "CRITICAL"},
                "django.db.backends": {"level": "WARNING"},
                # A line for every wake-up and every sweep would bury those that tell what was done.
                "celery.beat": {"level": "WARNING"},
                "celery.worker.strategy": {"level": "WARNING"},
                "celery.app.trace": {"level": "WARNING"},
                # So would one for every call to the API server.
                "httpx2": {"level": "WARNING"},
                # It tells that a process of a worker's pool was killed, and cuts itself off from the root.
                "multiprocessing": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
            },
        }
    )

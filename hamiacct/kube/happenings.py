"""Events about pods, with HAMi's reasons: BindingSucceed and FilteringSucceed are Normal, others Warnings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from hamiacct.kube import fields
from hamiacct.kube.fields import Manifest

MAX_MESSAGE = 1024


class Reason(StrEnum):
    """What HAMi calls what happened to a pod."""

    FILTERING_FAILED = "FilteringFailed"
    FILTERING_SUCCEED = "FilteringSucceed"
    BINDING_FAILED = "BindingFailed"
    BINDING_SUCCEED = "BindingSucceed"

    @property
    def type(self) -> str:
        """The type of its Events."""
        succeeded = self in (Reason.FILTERING_SUCCEED, Reason.BINDING_SUCCEED)
        return "Normal" if succeeded else "Warning"


class Happening(NamedTuple):
    """One thing that happened to a pod."""

    reason: Reason
    message: str


def about(pod: Manifest) -> Mapping[str, Any]:
    """The pod as an Event refers to it. Malformed where it has neither name nor uid."""
    metadata = fields.mapping(pod, "metadata", "")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": fields.namespace(metadata, "/metadata"),
        "name": fields.required_name(metadata, "name", "/metadata"),
        "uid": fields.required_name(metadata, "uid", "/metadata"),
        "resourceVersion": fields.text(metadata, "resourceVersion", "/metadata"),
    }


def event_of(pod: Mapping[str, Any], happening: Happening, *, scheduler: str, at: datetime) -> dict[str, Any]:
    """The Event of what happened; `pod` as `about` says it."""
    time = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod['name'][:200]}.", "namespace": pod["namespace"]},
        "involvedObject": pod,
        "reason": happening.reason,
        "message": happening.message[:MAX_MESSAGE],
        "type": happening.reason.type,
        "source": {"component": scheduler},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }

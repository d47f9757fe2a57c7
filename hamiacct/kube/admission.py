"""AdmissionReview in and out, versions v1 and v1beta1, and the JSON patch of an admitted pod.

What is asked is judged elsewhere; here it is only read and written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict

from hamiacct.accounting.admission import Admitted, Change
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import Pod
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import fields, manifests
from hamiacct.kube.fields import Manifest

VERSIONS = ("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
KIND = "AdmissionReview"
JSON_PATCH = "JSONPatch"
CREATE = "CREATE"

OK = 200
FORBIDDEN = 403
UNPROCESSABLE = 422
REASONS = {FORBIDDEN: "Forbidden", UNPROCESSABLE: "Invalid"}


@dataclass(frozen=True, slots=True)
class Review:
    """What the apiserver asks. `object` is as it came; only of a pod that is to be made is it looked at.

    `name` is the pod's, or what Kubernetes will make its name from.
    """

    api_version: str
    uid: str
    namespace: str
    name: str
    dry_run: bool
    is_about_a_new_pod: bool
    object: object


class Status(TypedDict):
    """Kubernetes' Status, as far as an admission has one."""

    code: int
    message: str
    reason: NotRequired[str]
    status: NotRequired[str]


class Response(TypedDict):
    """AdmissionResponse."""

    uid: str
    allowed: bool
    status: NotRequired[Status]
    patchType: NotRequired[str]
    patch: NotRequired[str]
    warnings: NotRequired[list[str]]


class Answer(TypedDict):
    """AdmissionReview with a response."""

    apiVersion: str
    kind: str
    response: Response


class Operation(TypedDict):
    """One JSON patch operation (RFC 6902); adding to a key that is there replaces its value."""

    op: str
    path: str
    value: Any


# --- in ------------------------------------------------------------------------------------------


def review_from(body: object) -> Review:
    """The review in a body. Malformed, with a pointer into it, where nobody can tell what to answer."""
    body = fields.object_of(body, "")
    api_version = fields.text(body, "apiVersion", "")
    if api_version not in VERSIONS:
        raise Malformed(f"must be one of {', '.join(VERSIONS)}", "/apiVersion")
    if fields.text(body, "kind", "") != KIND:
        raise Malformed(f"must be {KIND}", "/kind")
    pointer = "/request"
    request = fields.object_of(body.get("request"), pointer)
    kind = fields.mapping(request, "kind", pointer)
    shown = request.get("object")
    item: Manifest = shown if isinstance(shown, dict) else {}
    about = kind.get("kind") or item.get("kind") or "Pod"
    return Review(
        api_version,
        fields.required_name(request, "uid", pointer),
        _name(request, "namespace") or _name(_metadata(item), "namespace"),
        _name(request, "name") or _name(_metadata(item), "name") or _name(_metadata(item), "generateName"),
        request.get("dryRun") is True,
        about == "Pod"
        and not kind.get("group")
        and (request.get("operation") or CREATE) == CREATE
        and not request.get("subResource"),
        shown,
    )


def _metadata(item: Manifest) -> Manifest:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(holder: Manifest, field: str) -> str:
    """A name where there is one; what is wrong with an object is said when it is judged."""
    try:
        return fields.name(holder, field, "")
    except Malformed:
        return ""


def pod_of(review: Review, vendors: Sequence[Vendor]) -> Pod:
    """The pod that is to be made, in the request's namespace; its own may be blank, or another (G-19).

    It has no uid yet that would tell anything, whatever it says. Malformed, with a pointer into the review,
    where it cannot be read.
    """
    try:
        pod = manifests.pod_from_manifest(review.object, vendors)
    except Malformed as fault:
        raise Malformed(fault.detail, f"/request/object{fault.pointer}") from fault
    return replace(pod, uid="", namespace=review.namespace, name=review.name)


# --- out -----------------------------------------------------------------------------------------


def answer(
    review: Review,
    *,
    allowed: bool,
    code: int = OK,
    message: str = "",
    patch: Sequence[Operation] = (),
    warnings: Sequence[str] = (),
) -> Answer:
    """The answer, with the review's own version and uid."""
    response = Response(uid=review.uid, allowed=allowed)
    if message:
        response["status"] = Status(code=code, message=message)
    if not allowed:
        response["status"] = Status(code=code, message=message, reason=REASONS[code], status="Failure")
    if patch:
        response["patchType"] = JSON_PATCH
        response["patch"] = base64.b64encode(json.dumps(list(patch)).encode()).decode()
    if warnings:
        response["warnings"] = list(warnings)
    return Answer(apiVersion=review.api_version, kind=KIND, response=response)


def patch_of(manifest: object, admitted: Admitted) -> list[Operation]:
    """The operations that make the pod of a manifest the admitted one; none for what is there already."""
    item = fields.object_of(manifest, "")
    spec = fields.mapping(item, "spec", "")
    inits = len(spec.get("initContainers") or ())
    operations: list[Operation] = []
    if admitted.annotations:
        operations += _annotations(item, admitted.annotations)
    if admitted.scheduler_name and spec.get("schedulerName") != admitted.scheduler_name:
        operations.append(_add("/spec/schedulerName", admitted.scheduler_name))
    if admitted.runtime_class and not spec.get("runtimeClassName"):
        operations.append(_add("/spec/runtimeClassName", admitted.runtime_class))
    for change in admitted.changes:
        is_init = change.position < inits
        field, index = (
            ("initContainers", change.position) if is_init else ("containers", change.position - inits)
        )
        operations += _container(spec[field][index], f"/spec/{field}/{index}", change)
    return operations


def _add(path: str, value: object) -> Operation:
    return Operation(op="add", path=path, value=value)


def _annotations(item: Manifest, annotations: Mapping[str, str]) -> Iterator[Operation]:
    metadata = item.get("metadata")
    if not metadata:
        yield _add("/metadata", {"annotations": dict(annotations)})
    else:
        yield from _members(metadata, "annotations", "/metadata", annotations)


def _container(container: Manifest, path: str, change: Change) -> Iterator[Operation]:
    amounts = {"limits": change.limits, "requests": change.requests}
    resources = container.get("resources")
    if resources:
        for field, values in amounts.items():
            yield from _members(resources, field, f"{path}/resources", values)
    elif any(amounts.values()):
        filled = {field: dict(values) for field, values in amounts.items() if values}
        yield _add(f"{path}/resources", filled)
    yield from _env(container.get("env") or [], f"{path}/env", change)


def _members(holder: Manifest, field: str, path: str, values: Mapping[str, str]) -> Iterator[Operation]:
    """Members of an object that may not be there."""
    present = holder.get(field)
    if not present:
        if values:
            yield _add(f"{path}/{field}", dict(values))
        return
    for key, value in values.items():
        if present.get(key) != value:
            yield _add(f"{path}/{field}/{fields.escaped(key)}", value)


def _env(present: Sequence[Manifest], path: str, change: Change) -> Iterator[Operation]:
    """Appended, so that it wins over an earlier value; what was appended once is not again."""
    missing = [
        {"name": name, "value": value}
        for name, value in change.env
        if not any(one.get("name") == name and (one.get("value") or "") == value for one in present)
    ]
    if missing and not present:
        yield _add(path, missing)
    elif missing:
        yield from (_add(f"{path}/-", variable) for variable in missing)

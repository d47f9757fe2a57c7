"""What questions about pods share: their bodies, the pod in them, and how a refusal is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request

from api import afterwards, bodies
from api.explain import pod_asked_about
from hamiacct import metrics
from hamiacct.accounting import pods
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.fit import Misfit
from hamiacct.accounting.policies import device_policy_of, node_policy_of
from hamiacct.accounting.words import Question, Refusal
from hamiacct.kube.annotations import MAX_NAME
from hamiacct.operations import decisions, reservations
from hamiacct.queries import fits

MAX_BODY_BYTES = 8 * bodies.MIB
MAX_NODES = 20_000


Check = Callable[[Any], bool]


def is_plain_text(value: Any) -> bool:
    """Whether a text is taken over as it is: no space around it, nothing that is hard to print."""
    return type(value) is str and value.isascii() and value.isprintable() and value == value.strip()


def are_plain_names(value: Any) -> bool:
    """Whether names of nodes are taken over as they are."""
    return value is None or (
        type(value) is list
        and len(value) <= MAX_NODES
        and all(is_plain_text(name) and 0 < len(name) <= MAX_NAME for name in value)
    )


class PodQuestionSerializer(serializers.Serializer[Any]):
    """A pod, and the nodes that come into question."""

    # Bodies whose fields are all of these kinds say the same to whoever reads them, and need no form: making
    # one for each request takes longer than finding a node. `tests/api/test_asking.py` holds the two equal.
    plain: ClassVar[Mapping[str, Check]] = {
        "pod": lambda value: type(value) is dict,
        "nodes": are_plain_names,
    }
    unsaid: ClassVar[Mapping[str, Any]] = {}

    pod = serializers.DictField(help_text="A Pod, as Kubernetes writes it.")
    nodes = serializers.ListField(
        child=serializers.CharField(max_length=MAX_NAME),
        required=False,
        allow_null=True,
        max_length=MAX_NODES,
        help_text="Only these; every node without.",
    )


def asked_in(request: Request, form: type[PodQuestionSerializer]) -> dict[str, Any]:
    """What the body says, by the form's fields. Every fault at once, as problems of the framework."""
    bodies.media_type(request._request, bodies.JSON)
    document = bodies.parsed(bodies.read(request._request, MAX_BODY_BYTES))
    if not isinstance(document, dict):
        raise Malformed("the body must be an object")
    plain = plainly(document, form)
    return read(document, form) if plain is None else plain


def read(document: Any, form: type[PodQuestionSerializer]) -> dict[str, Any]:
    """A document by its form, which converts what it can and tells the faults of the rest."""
    filled = form(data=document)
    filled.is_valid(raise_exception=True)
    found: dict[str, Any] = filled.validated_data
    return found


def plainly(document: Mapping[str, Any], form: type[PodQuestionSerializer]) -> dict[str, Any] | None:
    """The same of a document that is plain; None of any other, and of forms that have more to say."""
    if form.plain.keys() != form._declared_fields.keys():
        return None
    said = {field: document[field] for field in form.plain if field in document}
    if "pod" in said and all(form.plain[field](value) for field, value in said.items()):
        return {**form.unsaid, **said}
    return None


def pod_in(manifest: dict[str, Any]) -> pods.Pod:
    """The pod of a body's manifest. Malformed with a pointer into the body."""
    try:
        return pod_asked_about(manifest)
    except Malformed as error:
        raise Malformed(error.detail, f"/pod{error.pointer}") from error


def question_in(
    pod: pods.Pod, *, node_policy: str | None = None, gpu_policy: str | None = None
) -> fits.Question:
    """The question that a body's pod is. Malformed with a pointer to what of it nobody can read."""
    for field, text, read in (
        ("node_policy", node_policy, node_policy_of),
        ("gpu_policy", gpu_policy, device_policy_of),
    ):
        try:
            read(text)
        except Malformed as error:
            raise Malformed(error.detail, f"/{field}") from error
    try:
        return fits.question_of(pod, node_policy=node_policy, gpu_policy=gpu_policy)
    except Malformed as error:
        raise Malformed(error.detail, f"/pod{error.pointer}") from error


def look(question: fits.Question, *, at: datetime) -> fits.Moment | None:
    """What the books say at the moment of a question; holds whose time is up are ended before.

    None for a pod that asks for nothing: then nothing is looked at.
    """
    if question.ask.is_empty:
        return None
    seen = fits.look(question, at=at)
    if seen.has_due_holds:
        reservations.expire(at=at)
        seen = fits.look(question, at=at)
    return seen


# --- refusals --------------------------------------------------------------------------------------


def keep(
    question: Question,
    verdict: Refusal,
    pod: pods.Pod,
    *,
    message: str,
    reasons: Mapping[str, Sequence[str]] | None = None,
    checks: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Counts a refusal, and has it stored once it was answered."""
    metrics.refuse(verdict, reasons)
    afterwards.do(
        partial(
            decisions.record,
            question,
            verdict,
            namespace=pod.namespace,
            pod=pod.name,
            pod_uid=pod.uid,
            message=message,
            reasons=reasons,
            checks=checks,
            at=timezone.now(),
        )
    )


def in_one_text(failed: Iterable[Misfit]) -> str:
    """Why no node takes a pod: every message, and the nodes that gave it."""
    return in_one_text_of((misfit.message, (misfit.node,)) for misfit in failed)


def in_one_text_of(refused: Iterable[tuple[str, Iterable[str]]]) -> str:
    """The same, of messages and the nodes that gave them."""
    nodes: dict[str, list[str]] = {}
    for message, names in refused:
        nodes.setdefault(message, []).extend(names)
    told = [f"{message} ({', '.join(sorted(nodes[message]))})" for message in sorted(nodes)]
    return f"no node takes the pod: {'; '.join(told) or 'there is none to ask'}"

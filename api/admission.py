"""kube-apiserver's question about a new pod: AdmissionReview, mutating or a verdict alone."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from api import afterwards, bodies, problems
from api.auth import SCHEDULERS, WebhookAuthentication
from api.endpoint import Endpoint
from api.errors import TooLarge
from api.parameters import Parameter
from api.quota_check import check_shape
from hamiacct import config, metrics
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.words import Question, Refusal
from hamiacct.kube import admission as wire
from hamiacct.operations import decisions
from hamiacct.queries import admission

MAX_BODY_BYTES = 8 * bodies.MIB


class StatusSerializer(serializers.Serializer[Any]):
    """Kubernetes' Status, as far as an admission has one."""

    code = serializers.IntegerField(help_text="403 denied, 422 cannot be read.")
    message = serializers.CharField()
    reason = serializers.CharField(required=False)
    status = serializers.CharField(required=False)


class ResponseSerializer(serializers.Serializer[Any]):
    """AdmissionResponse."""

    uid = serializers.CharField()
    allowed = serializers.BooleanField()
    status = StatusSerializer(required=False)
    patchType = serializers.CharField(required=False)  # noqa: N815  # Kubernetes' own spelling
    patch = serializers.CharField(required=False, help_text="A JSON patch, in base64.")
    warnings = serializers.ListField(child=serializers.CharField(), required=False)


class AnswerSerializer(serializers.Serializer[Any]):
    """AdmissionReview with a response."""

    apiVersion = serializers.CharField()  # noqa: N815  # Kubernetes' own spelling
    kind = serializers.CharField()
    response = ResponseSerializer()


class ReviewSerializer(serializers.Serializer[Any]):
    """AdmissionReview, version v1 or v1beta1, of a pod that is to be made."""

    apiVersion = serializers.ChoiceField(choices=wire.VERSIONS)  # noqa: N815  # Kubernetes' own spelling
    kind = serializers.ChoiceField(choices=(wire.KIND,))
    request = serializers.DictField()


class Webhook(Endpoint):
    """POST /webhook"""

    authentication_classes = (WebhookAuthentication,)
    callers = {"POST": SCHEDULERS}
    parameters = (Parameter("timeout", "What kube-apiserver adds; not looked at."),)
    problems = frozenset({problems.MALFORMED})
    question = Question.ADMISSION
    mutates: ClassVar[bool] = True

    @extend_schema(
        summary="Admission of a pod, mutating",
        request={bodies.JSON: ReviewSerializer},
        responses={200: AnswerSerializer},
    )
    def post(self, request: Request, token: str = "") -> Response:
        """The scheduler, a missing count, exclusive cores, rounded memory; or why not. Nothing is stored."""
        return Response(answer_to(_review_in(request), mutates=self.mutates))


class WebhookByToken(Webhook):
    """POST /webhook/{token}"""


class ValidatingWebhook(Webhook):
    """POST /webhook/validate"""

    mutates = False

    @extend_schema(
        summary="Admission of a pod, the verdict alone",
        request={bodies.JSON: ReviewSerializer},
        responses={200: AnswerSerializer},
    )
    def post(self, request: Request, token: str = "") -> Response:
        """The same steps and the same reasons; nothing is written into the pod."""
        return super().post(request, token)


class ValidatingWebhookByToken(ValidatingWebhook):
    """POST /webhook/validate/{token}"""


def _review_in(request: Request) -> wire.Review:
    """The review in the body; whatever its media type is called, it is JSON or it is malformed."""
    try:
        body = bodies.read(request._request, MAX_BODY_BYTES)
    except TooLarge as error:
        raise Malformed(str(error)) from error
    return wire.review_from(bodies.parsed(body))


def answer_to(review: wire.Review, *, mutates: bool) -> wire.Answer:
    """The answer to a review. A refusal is kept, but not of a dry run."""
    if not review.is_about_a_new_pod:
        return wire.answer(review, allowed=True)
    try:
        found = admission.review(wire.pod_of(review, config.vendors()), at=timezone.now())
    except Malformed as fault:
        _keep(review, Refusal.ERROR, fault.detail)
        return wire.answer(review, allowed=False, code=wire.UNPROCESSABLE, message=fault.detail)
    if not found.allowed:
        verdict = Refusal.NO_QUOTA if found.checks else Refusal.REFUSED
        _keep(review, verdict, found.message, [check_shape(check) for check in found.checks])
        return wire.answer(
            review, allowed=False, code=wire.FORBIDDEN, message=found.message, warnings=found.warnings
        )
    patch = wire.patch_of(review.object, found.admitted) if mutates and found.admitted else ()
    return wire.answer(review, allowed=True, message=found.message, patch=patch, warnings=found.warnings)


def _keep(
    review: wire.Review, verdict: Refusal, message: str, checks: list[dict[str, Any]] | None = None
) -> None:
    metrics.refuse(verdict)
    if review.dry_run:
        return
    afterwards.do(
        partial(
            decisions.record,
            Question.ADMISSION,
            verdict,
            namespace=review.namespace,
            pod=review.name,
            message=message,
            checks=checks or (),
            at=timezone.now(),
        )
    )

"""Every path of the interface. Parts of a path may hold any character, `/` included."""

from __future__ import annotations

from django.urls import path, register_converter

from api import (
    admission,
    audit,
    bind,
    capacity,
    cluster,
    compare,
    decisions,
    docs,
    events,
    explain,
    extender,
    findings,
    fit,
    health,
    ledger,
    metrics,
    nodes,
    pods,
    quota,
    quota_check,
    reservations,
    snapshots,
)


class Text:
    """A part of a path as a text that the database can hold."""

    regex = r"[^\x00]+"

    def to_python(self, value: str) -> str:
        """As it is."""
        return value

    def to_url(self, value: str) -> str:
        """As it is."""
        return value


register_converter(Text, "text")

urlpatterns = [
    # What is asked most is found first.
    path("api/v1/fit", fit.Fit.as_view()),
    path("api/v1/quota/check", quota_check.QuotaCheck.as_view()),
    path("api/v1/reservations", reservations.Reservations.as_view()),
    path("extender/filter", extender.Filter.as_view()),
    path("extender/prioritize", extender.Prioritize.as_view()),
    path("webhook", admission.Webhook.as_view()),
    path("webhook/validate", admission.ValidatingWebhook.as_view()),
    path("api/v1/events", events.Events.as_view()),
    path("livez", health.Live.as_view()),
    path("readyz", health.Ready.as_view()),
    path("metrics", metrics.Metrics.as_view()),
    path("problems/<text:name>", docs.Problem.as_view()),
    path("api/v1/schema", docs.Schema.as_view(), name="schema"),
    path("api/v1/docs", docs.Docs.as_view()),
    path("api/v1/snapshots", snapshots.Snapshots.as_view()),
    path("api/v1/cluster", cluster.Cluster.as_view()),
    path("api/v1/nodes", nodes.Nodes.as_view()),
    path("api/v1/nodes/<text:node>/devices/<text:uuid>", nodes.Device.as_view()),
    path("api/v1/nodes/<text:node>", nodes.Node.as_view()),
    path("api/v1/devices", nodes.Devices.as_view()),
    path("api/v1/pods", pods.Pods.as_view()),
    path("api/v1/pods/<text:uid>/explain", explain.PodExplanation.as_view()),
    path("api/v1/pods/<text:uid>", pods.Pod.as_view()),
    path("api/v1/namespaces/<text:namespace>/quota", quota.NamespaceQuota.as_view()),
    path("api/v1/findings", findings.Findings.as_view()),
    path("api/v1/decisions", decisions.Decisions.as_view()),
    path("api/v1/ledger", ledger.Ledger.as_view()),
    path("api/v1/compare", compare.Compare.as_view()),
    path("api/v1/audit", audit.Audit.as_view()),
    path("api/v1/audit/repair", audit.AuditRepair.as_view()),
    path("api/v1/explain", explain.Explain.as_view()),
    path("api/v1/capacity", capacity.Capacity.as_view()),
    path("api/v1/reservations/<text:pod_uid>/bound", reservations.ReservationBound.as_view()),
    path("api/v1/reservations/<text:pod_uid>", reservations.Reservation.as_view()),
    path("extender/bind", bind.Bind.as_view()),
    path("webhook/validate/<text:token>", admission.ValidatingWebhookByToken.as_view()),
    path("webhook/<text:token>", admission.WebhookByToken.as_view()),
]

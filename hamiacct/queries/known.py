"""What the books know of objects, for whoever decides what they need to be told."""

from __future__ import annotations

from collections.abc import Sequence

from hamiacct import models
from hamiacct.accounting.words import EventState, Kind
from hamiacct.kube.manifests import Envelope
from hamiacct.queries.arrays import among

NOT_HELD = -1


def held(kind: Kind, objects: Sequence[Envelope]) -> dict[Envelope, int]:
    """Of these objects those that the books know, with the version they hold each at.

    `NOT_HELD` for one that is known but not held as it is: it ended, its version is of an older history
    (decision 8), or news of it still wait in the inbox.
    """
    if not objects:
        return {}
    versions = _versions(kind, objects)
    waiting = _waiting(kind, objects)
    found = {}
    for one in objects:
        key = one.uid if kind is Kind.POD else (one.namespace, one.name)
        if (one.namespace, one.name) in waiting:
            found[one] = NOT_HELD
        elif key in versions:
            found[one] = versions[key]
    return found


def _versions(kind: Kind, objects: Sequence[Envelope]) -> dict[object, int]:
    history = models.Feed.objects.values_list("history", flat=True).get(kind=kind)
    rows: list[tuple[object, int, bool]]
    if kind is Kind.POD:
        pods = models.Pod.objects.filter(uid__in=[one.uid for one in objects])
        rows = [
            (uid, version, not ended_by and of == history)
            for uid, version, of, ended_by in pods.values_list(
                "uid", "resource_version", "history", "ended_by"
            )
        ]
    elif kind is Kind.NODE:
        nodes = models.Node.objects.filter(name__in=[one.name for one in objects])
        rows = [
            (("", name), version, not deleted and of == history)
            for name, version, of, deleted in nodes.values_list(
                "name", "resource_version", "history", "deleted"
            )
        ]
    else:
        names = [(one.namespace, one.name) for one in objects]
        quotas = among(models.ResourceQuota.objects.all(), ("namespace", "name"), names)
        rows = [
            ((namespace, name), version, not deleted and of == history)
            for namespace, name, version, of, deleted in quotas.values_list(
                "namespace", "name", "resource_version", "history", "deleted"
            )
        ]
    return {key: version if is_held else NOT_HELD for key, version, is_held in rows}


def _waiting(kind: Kind, objects: Sequence[Envelope]) -> set[tuple[str, str]]:
    """The names of those of which events wait in the inbox."""
    names = [(kind.value, one.namespace, one.name) for one in objects]
    waiting = among(
        models.Event.objects.filter(state=EventState.WAITING), ("kind", "namespace", "name"), names
    )
    return set(waiting.values_list("namespace", "name"))

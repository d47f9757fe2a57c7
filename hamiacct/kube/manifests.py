"""Kubernetes objects to the types of `hamiacct.accounting`, and the part of them that is stored.

Dicts stop here. The container class is decided here, once (semantics 1.2); statuses are matched by
name (7.2). Whatever cannot be read raises `Malformed` with a JSON pointer and nothing else; an
allocation annotation that cannot be read is a fault of the pod instead (decision 11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from hamiacct.accounting import pods, quantities, quota
from hamiacct.accounting.errors import Malformed, UnreadableQuantity
from hamiacct.accounting.vendors import Vendor
from hamiacct.kube import annotations as codec
from hamiacct.kube import fields, registration
from hamiacct.kube.fields import Manifest
from hamiacct.kube.texts import Texts, with_kind

EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
KINDS = ("Pod", "Node", "ResourceQuota")


# --- the envelope --------------------------------------------------------------------------------


class Envelope(NamedTuple):
    """What an event must show before anything else of it matters.

    `uid` is "" where a kind other than Pod gives none, `namespace` is "" for nodes. A kind that is
    not one of `KINDS` (or belongs to another API group) has only `type` and `kind`.
    """

    type: str
    kind: str
    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: int = 0


def envelope(event: object) -> Envelope:
    """The envelope of a watch event `{"type": ..., "object": {...}}`.

    Raises Malformed with a pointer into the event: type, kind, name and an integer resourceVersion
    are required, of pods the uid too. Nothing is required of kinds that nobody here reads, and of a
    bookmark only the version.
    """
    event = fields.object_of(event, "")
    type_ = fields.text(event, "type", "")
    if type_ not in EVENT_TYPES:
        raise Malformed(f"type must be one of {', '.join(EVENT_TYPES)}", "/type")
    item = fields.object_of(event.get("object"), "/object")
    kind = _kind(item, "/object")
    if kind not in KINDS:
        return Envelope(type_, kind)
    pointer = "/object/metadata"
    metadata = fields.object_of(item.get("metadata"), pointer)
    if type_ == "BOOKMARK":
        return Envelope(type_, kind, resource_version=fields.version(metadata, pointer))
    uid_of = fields.required_name if kind == "Pod" else fields.name
    return Envelope(
        type_,
        kind,
        uid_of(metadata, "uid", pointer),
        "" if kind == "Node" else fields.namespace(metadata, pointer),
        fields.required_name(metadata, "name", pointer),
        fields.version(metadata, pointer),
    )


def _kind(item: Manifest, pointer: str) -> str:
    """The kind; one of another API group with the group in front, so that it is none of ours."""
    kind = fields.required_name(item, "kind", pointer)
    group = fields.name(item, "apiVersion", pointer)
    return kind if group in ("", "v1") else f"{group}/{kind}"


# --- lists ---------------------------------------------------------------------------------------


class ListBody(NamedTuple):
    """A Kubernetes list. `version` is None where the list gives none; `kind` is "" for an empty `List`.

    The objects among `items` have their `kind`; whether they can be read is asked later. `meta` is
    the list's metadata (`continue`, `remainingItemCount`).
    """

    kind: str
    version: int | None
    items: Sequence[Any]
    meta: Manifest


def list_items(body: object) -> ListBody:
    """The parts of a PodList, NodeList, ResourceQuotaList, or a List of one of these kinds.

    Raises Malformed with a pointer into the body.
    """
    body = fields.object_of(body, "")
    list_kind = fields.required_name(body, "kind", "")
    kind = list_kind.removesuffix("List")
    if not list_kind.endswith("List") or kind not in (*KINDS, ""):
        raise Malformed(f"kind must be List, or one of {', '.join(KINDS)} with List after it", "/kind")
    meta = fields.mapping(body, "metadata", "")
    has_version = meta.get("resourceVersion") not in (None, "")
    version = fields.version(meta, "/metadata") if has_version else None
    raw_items = body.get("items")
    if raw_items is None and "items" in body:
        raw_items = []  # as Go writes a list that nobody has put anything in
    if isinstance(raw_items, Texts):
        kind = _kind_of(raw_items, kind)
        return ListBody(kind, version, raw_items.of_kind(kind), meta)
    if not isinstance(raw_items, list):
        raise Malformed(f"must be a list, not {fields.type_word(raw_items)}", "/items")
    kind = _kind_of(raw_items, kind)
    return ListBody(kind, version, [with_kind(item, kind) for item in raw_items], meta)


def _kind_of(items: Sequence[Any], kind: str) -> str:
    """The kind of all objects among the items; `kind` is what the list says, "" where it is silent."""
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        own = _kind(with_kind(item, kind), f"/items/{number}")
        kind = kind or own
        if own != kind or own not in KINDS:
            raise Malformed("a list must hold objects of one kind", f"/items/{number}/kind")
    return kind


# --- pods ----------------------------------------------------------------------------------------


def pod_from_manifest(manifest: object, vendors: Sequence[Vendor]) -> pods.Pod:
    """The pod of a manifest, allocations decoded. Raises Malformed with a pointer into the manifest.

    uid, name (Kubernetes may yet generate it) and resourceVersion may be absent from a manifest that
    is only asked about: "", "" and 0. Events have theirs, `envelope` sees to that.
    """
    item = fields.object_of(manifest, "")
    metadata = fields.mapping(item, "metadata", "")
    spec = fields.mapping(item, "spec", "")
    status = fields.mapping(item, "status", "")
    wanted = _wanted_of(vendors)
    shape = _shape_of(spec, status, wanted)
    containers = shape.containers
    annotations = fields.mapping(metadata, "annotations", "/metadata")
    texts = fields.texts(metadata, "annotations", wanted.annotations, "/metadata")
    vgpu_node = fields.name(texts, codec.VGPU_NODE, "/metadata/annotations")
    allocations, faults = codec.allocations_of(annotations, vendors, vgpu_node, len(containers))
    return pods.Pod(
        uid=fields.name(metadata, "uid", "/metadata"),
        namespace=fields.namespace(metadata, "/metadata"),
        name=fields.name(metadata, "name", "/metadata"),
        resource_version=fields.optional_version(metadata, "/metadata"),
        containers=containers,
        node_name=fields.name(spec, "nodeName", "/spec"),
        vgpu_node=vgpu_node,
        vgpu_time=_unix_seconds(texts.get(codec.VGPU_TIME, "")),
        phase=_phase(status),
        deletion_timestamp=fields.timestamp(metadata, "deletionTimestamp", "/metadata"),
        deletion_grace_seconds=fields.integer(metadata, "deletionGracePeriodSeconds", "/metadata"),
        allocations=allocations,
        faults=faults,
        quota_facts=_quota_facts(spec, shape.best_effort),
        bind_phase=texts.get(codec.BIND_PHASE, ""),
        bind_time=_unix_seconds(texts.get(codec.BIND_TIME, "")),
        scheduler_name=fields.name(spec, "schedulerName", "/spec"),
        labels=fields.texts(metadata, "labels", codec.POD_LABELS, "/metadata"),
        annotations=texts,
    )


class _Shape(NamedTuple):
    """What the containers of a pod and the statuses of its inits say. Many pods have the same."""

    containers: tuple[pods.Container, ...]
    best_effort: bool


# Of pods that are made from one template, and of the events of one pod, only the first is taken apart.
KNOWN_SHAPES = 1024
MAX_SHAPE_BYTES = 2048


def _shape_of(spec: Manifest, status: Manifest, wanted: _Wanted) -> _Shape:
    """The shape of a pod; of a small one, as those that were kept are, it is remembered."""
    told = [{name: holder[name] for name in _OF_SHAPE if name in holder} for holder in (spec, status)]
    try:
        text = orjson.dumps(told)
    except TypeError:  # no text, number or depth that a store would take: it is looked at as it is
        return _shape(spec, status, wanted)
    # What is no number is written as null, too.
    is_plain = len(text) <= MAX_SHAPE_BYTES and b"null" not in text
    return _known_shape(text, wanted) if is_plain else _shape(spec, status, wanted)


_OF_SHAPE = ("initContainers", "containers", "resources", "initContainerStatuses")


@lru_cache(maxsize=KNOWN_SHAPES)
def _known_shape(text: bytes, wanted: _Wanted) -> _Shape:
    spec, status = orjson.loads(text)
    return _shape(spec, status, wanted)


def _shape(spec: Manifest, status: Manifest, wanted: _Wanted) -> _Shape:
    containers = _containers(spec, status, wanted.resources)
    return _Shape(containers, not _asks_for_compute(spec))


def _containers(spec: Manifest, status: Manifest, names: frozenset[str]) -> tuple[pods.Container, ...]:
    runs = _runs(status)
    inits = fields.items(spec, "initContainers", "/spec")
    containers = [
        _container(raw, number, f"/spec/initContainers/{number}", names, runs)
        for number, raw in enumerate(inits)
    ]
    for number, raw in enumerate(fields.items(spec, "containers", "/spec")):
        position = len(inits) + number
        containers.append(_container(raw, position, f"/spec/containers/{number}", names, None))
    return tuple(containers)


def _container(
    raw: object, position: int, pointer: str, names: frozenset[str], runs: Mapping[str, pods.Run] | None
) -> pods.Container:
    """One container; `runs` is what the statuses say of init containers, None for an app."""
    item = fields.object_of(raw, pointer)
    name = fields.required_name(item, "name", pointer)
    kind = pods.ContainerClass.APP
    run = pods.Run.ABSENT
    if runs is not None:
        is_sidecar = fields.text(item, "restartPolicy", pointer) == "Always"
        kind = pods.ContainerClass.SIDECAR if is_sidecar else pods.ContainerClass.INIT
        run = runs.get(name, run)
    resources = fields.mapping(item, "resources", pointer)
    security = fields.mapping(item, "securityContext", pointer)
    return pods.Container(
        position,
        name,
        kind,
        run,
        _quantities(resources, "limits", pointer, names),
        _quantities(resources, "requests", pointer, names),
        fields.boolean(security, "privileged", f"{pointer}/securityContext"),
    )


def _quantities(resources: Manifest, field: str, pointer: str, names: frozenset[str]) -> dict[str, str]:
    """The managed resources among limits or requests, as written."""
    pointer += "/resources"
    return {
        key: fields.quantity(value, f"{pointer}/{field}/{fields.escaped(key)}")
        for key, value in fields.mapping(resources, field, pointer).items()
        if key in names
    }


def _runs(status: Manifest) -> dict[str, pods.Run]:
    """What each init container's status says, by name; of two with one name the first counts."""
    runs: dict[str, pods.Run] = {}
    for number, raw in enumerate(fields.items(status, "initContainerStatuses", "/status")):
        pointer = f"/status/initContainerStatuses/{number}"
        item = fields.object_of(raw, pointer)
        runs.setdefault(fields.required_name(item, "name", pointer), _run(item, pointer))
    return runs


def _run(item: Manifest, pointer: str) -> pods.Run:
    """The current state alone; `lastState` is no evidence (semantics 7.2). No state means waiting."""
    state = fields.mapping(item, "state", pointer)
    pointer += "/state"
    if state.get("terminated") is not None:
        terminated = fields.mapping(state, "terminated", pointer)
        code = fields.integer(terminated, "exitCode", f"{pointer}/terminated")
        if code is None:
            raise Malformed("exitCode is missing", f"{pointer}/terminated/exitCode")
        return pods.Run.SUCCEEDED if code == 0 else pods.Run.FAILED
    if state.get("running") is not None:
        fields.mapping(state, "running", pointer)
        return pods.Run.RUNNING
    fields.mapping(state, "waiting", pointer)
    return pods.Run.WAITING


_PHASES = {phase.value: phase for phase in pods.Phase} | {"": pods.Phase.PENDING}


def _phase(status: Manifest) -> pods.Phase:
    phase = _PHASES.get(fields.text(status, "phase", "/status"))
    if phase is None:
        raise Malformed(f"phase must be one of {', '.join(pods.Phase)}", "/status/phase")
    return phase


_YEAR_3000 = 32_503_680_000


def _unix_seconds(text: str) -> int | None:
    """Unix seconds of an annotation; None where there are none that can be read, or that can be meant."""
    if text.isascii() and text.isdigit() and len(text) <= 12 and int(text) < _YEAR_3000:
        return int(text)
    return None


# --- what quota scopes look at -------------------------------------------------------------------


_COMPUTE = frozenset(("cpu", "memory"))
_AFFINITIES = ("podAffinity", "podAntiAffinity")
_REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_TERMS = "preferredDuringSchedulingIgnoredDuringExecution"


def _quota_facts(spec: Manifest, best_effort: bool) -> pods.QuotaFacts:
    return pods.QuotaFacts(
        priority_class=fields.name(spec, "priorityClassName", "/spec") or None,
        active_deadline_seconds=fields.integer(spec, "activeDeadlineSeconds", "/spec"),
        best_effort=best_effort,
        cross_namespace_affinity=any(_looks_elsewhere(*term) for term in _affinity_terms(spec)),
    )


def _asks_for_compute(spec: Manifest) -> bool:
    """Whether a container, or the pod as a whole, asks for cpu or memory: then it is not BestEffort."""
    holders = (spec, *(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return any(
        key in amounts and _is_positive(amounts[key])
        for holder in holders
        if isinstance(resources := holder.get("resources"), dict)
        for field in ("requests", "limits")
        if isinstance(amounts := resources.get(field), dict)
        for key in _COMPUTE
    )


def _is_positive(value: object) -> bool:
    try:
        return quantities.is_positive(quantities.text_of(value))
    except UnreadableQuantity:
        return True


def _affinity_terms(spec: Manifest) -> Iterator[tuple[Manifest, str]]:
    """The pod affinity terms, each with its pointer."""
    affinity = fields.mapping(spec, "affinity", "/spec")
    for side in _AFFINITIES if affinity else ():
        rules = fields.mapping(affinity, side, "/spec/affinity")
        pointer = f"/spec/affinity/{side}"
        for number, raw in enumerate(fields.items(rules, _REQUIRED_TERMS, pointer)):
            term_pointer = f"{pointer}/{_REQUIRED_TERMS}/{number}"
            yield fields.object_of(raw, term_pointer), term_pointer
        for number, raw in enumerate(fields.items(rules, _PREFERRED_TERMS, pointer)):
            term_pointer = f"{pointer}/{_PREFERRED_TERMS}/{number}"
            weighted = fields.object_of(raw, term_pointer)
            yield fields.mapping(weighted, "podAffinityTerm", term_pointer), f"{term_pointer}/podAffinityTerm"


def _looks_elsewhere(term: Manifest, pointer: str) -> bool:
    """Whether the term names namespaces, or selects them."""
    named = fields.items(term, "namespaces", pointer)
    return bool(named) or term.get("namespaceSelector") is not None


# --- quotas --------------------------------------------------------------------------------------


def quota_from_manifest(manifest: object, vendors: Sequence[Vendor]) -> quota.Quota:
    """The ResourceQuota of a manifest (semantics 8, decision 16). Raises Malformed with a pointer."""
    item = fields.object_of(manifest, "")
    metadata = fields.mapping(item, "metadata", "")
    spec = fields.mapping(item, "spec", "")
    names = _quota_names(tuple(vendors))
    hard = names.ours_of(fields.mapping(spec, "hard", "/spec"))
    if len(hard) > fields.MAX_ITEMS:
        raise Malformed(f"holds more than {fields.MAX_ITEMS} keys of managed resources", "/spec/hard")
    limits: list[quota.Limit] = []
    requests: dict[str, str] = {}
    not_enforced: list[quota.NotEnforced] = []
    for key, value in hard.items():
        text = fields.quantity(value, f"/spec/hard/{fields.escaped(key)}")
        prefix, resource = _split(key)
        if prefix == _LIMITS and resource in names.limited:
            vendor, dimension = names.limited[resource]
            limits.append(quota.Limit(key, resource, vendor, dimension, text, _limit(text)))
        elif prefix == _REQUESTS and resource in names.managed:
            requests[key] = text
        else:
            not_enforced.append(quota.NotEnforced(key, names.why_not(prefix, resource)))
    requirements = _requirements(spec)
    unknown = [_described(requirement) for requirement in requirements if not _is_judged(requirement)]
    return quota.Quota(
        namespace=fields.namespace(metadata, "/metadata"),
        name=fields.required_name(metadata, "name", "/metadata"),
        resource_version=fields.optional_version(metadata, "/metadata"),
        limits=tuple(limits),
        requests_keys=requests,
        not_enforced=tuple(not_enforced),
        requirements=requirements,
        unknown_scopes=tuple(dict.fromkeys(unknown)),
    )


_LIMITS = "limits."
_REQUESTS = "requests."


@dataclass(frozen=True, slots=True)
class _QuotaNames:
    """Which keys of `spec.hard` concern the vendors' resources."""

    limited: Mapping[str, tuple[str, quota.Dimension]]
    managed: frozenset[str]
    domains: frozenset[str]

    def ours_of(self, hard: Manifest) -> dict[str, Any]:
        """The keys that name a managed resource, or something in the domain of one; sorted."""
        ours = {}
        for raw, value in hard.items():
            if not isinstance(raw, str) or len(raw) > codec.MAX_NAME:
                continue
            key = codec.clean(raw)
            _, resource = _split(key)
            if resource in self.managed or resource.partition("/")[0] in self.domains:
                ours[key] = value
        return dict(sorted(ours.items()))

    def why_not(self, prefix: str, resource: str) -> str:
        """Why nobody here enforces the key."""
        if resource not in self.managed:
            return f"no managed resource is called {codec.shown(resource)}"
        if resource not in self.limited:
            return "only memory and cores of a vendor are limited by quotas"
        return f"only {_LIMITS}{resource} is a limit"


def _split(key: str) -> tuple[str, str]:
    for prefix in (_LIMITS, _REQUESTS):
        if key.startswith(prefix):
            return prefix, key[len(prefix) :]
    return "", key


@lru_cache(maxsize=8)
def _quota_names(vendors: tuple[Vendor, ...]) -> _QuotaNames:
    limited: dict[str, tuple[str, quota.Dimension]] = {}
    for vendor in vendors:
        if vendor.memory_name and vendor.quota_memory:
            limited.setdefault(vendor.memory_name, (vendor.key, quota.Dimension.MEMORY))
        if vendor.cores_name and vendor.quota_cores:
            limited.setdefault(vendor.cores_name, (vendor.key, quota.Dimension.CORES))
    managed = frozenset(name for vendor in vendors for name in vendor.resource_names)
    domains = frozenset(name.partition("/")[0] for name in managed if "/" in name)
    return _QuotaNames(limited, managed, domains)


def _limit(text: str) -> int | None:
    """A limit as a whole number; None, no limit, where it is none (decision 16)."""
    try:
        amount = quantities.whole(text)
    except UnreadableQuantity:
        return None
    return amount if amount >= 0 else None


def _requirements(spec: Manifest) -> tuple[quota.ScopeRequirement, ...]:
    """The conditions of `scopes` and of `scopeSelector`, which must all match."""
    requirements = [quota.ScopeRequirement(scope) for scope in fields.names(spec, "scopes", "/spec")]
    selector = fields.mapping(spec, "scopeSelector", "/spec")
    for number, raw in enumerate(fields.items(selector, "matchExpressions", "/spec/scopeSelector")):
        pointer = f"/spec/scopeSelector/matchExpressions/{number}"
        item = fields.object_of(raw, pointer)
        values = fields.names(item, "values", pointer)
        scope = fields.required_name(item, "scopeName", pointer)
        operator = fields.required_name(item, "operator", pointer)
        requirements.append(quota.ScopeRequirement(scope, operator, tuple(values)))
    return tuple(requirements)


def _is_judged(requirement: quota.ScopeRequirement) -> bool:
    """Whether anyone knows what the condition means; only priority classes have other operators."""
    if requirement.scope == "PriorityClass":
        return requirement.operator in tuple(quota.ScopeOperator)
    return requirement.scope in quota.KNOWN_SCOPES and requirement.operator == quota.ScopeOperator.EXISTS


def _described(requirement: quota.ScopeRequirement) -> str:
    if requirement.operator == quota.ScopeOperator.EXISTS:
        return requirement.scope
    return f"{requirement.scope} {requirement.operator}"[: codec.MAX_NAME]


# --- what is stored ------------------------------------------------------------------------------


def keep(kind: str, manifest: object, vendors: Sequence[Vendor]) -> dict[str, Any]:
    """The part of a Pod, Node or ResourceQuota that is read here, to be stored (decision 15).

    Never env, volumes or managedFields. Reading the result gives what reading the whole gives, the
    same pointer and detail included: what has the wrong type is kept as an empty value of that type.
    The result holds nothing that a store refuses.
    """
    reduced: dict[str, Any] = {"kind": kind}
    if isinstance(manifest, dict):
        reduced |= _part(manifest, _wanted_of(vendors).parts[kind])
    return reduced


Reduce = Callable[[Any], Any]


def _stub(value: Any) -> Any:
    """A small value of the same type; texts and numbers keep what of them can matter."""
    if isinstance(value, str):
        return value if codec.is_plain(value) else fields.shortened(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return max(-codec.INT64_MAX - 1, min(value, codec.INT64_MAX + 1))
    if isinstance(value, float):
        return 0.5
    return [] if isinstance(value, list) else {}


def _part(holder: Any, parts: Mapping[str, Reduce]) -> Any:
    """The named fields of an object, each through its own reduction."""
    if not isinstance(holder, dict):
        return _stub(holder)
    return {field: reduce(holder[field]) for field, reduce in parts.items() if field in holder}


def _part_of(**parts: Reduce) -> Reduce:
    return lambda holder: _part(holder, parts)


def _each(reduce: Reduce) -> Reduce:
    """A list item by item; one item beyond the limit says that there are too many."""
    return lambda value: (
        [reduce(item) for item in value[: fields.MAX_ITEMS + 1]] if isinstance(value, list) else _stub(value)
    )


def _only(names: frozenset[str], reduce: Reduce) -> Reduce:
    """The given keys of a mapping."""
    return lambda value: (
        {key: reduce(value[key]) for key in value if key in names}
        if isinstance(value, dict)
        else _stub(value)
    )


def _annotation(value: Any) -> Any:
    return codec.clean(value) if isinstance(value, str) else _stub(value)


def _labels(value: Any) -> Any:
    if not isinstance(value, dict):
        return _stub(value)
    labels = list(fields.stored_texts(value).items())[: fields.MAX_ITEMS + 1]
    return {key: _stub(label) for key, label in labels}


def _amount(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= quantities.MAX_TEXT and codec.is_plain(value):
        return value
    try:
        return codec.clean(quantities.text_of(value))
    except UnreadableQuantity:
        return _stub(value)


def _resources(names: frozenset[str]) -> Reduce:
    amounts = _only(names, _amount)
    return _part_of(limits=amounts, requests=amounts)


def _affinity() -> Reduce:
    term = _part_of(
        namespaces=lambda value: [""] if value and isinstance(value, list) else _stub(value),
        namespaceSelector=_stub,
    )
    rules = _part_of(
        **{_REQUIRED_TERMS: _each(term), _PREFERRED_TERMS: _each(_part_of(podAffinityTerm=term))}
    )
    return _part_of(**dict.fromkeys(_AFFINITIES, rules))


def _pod_parts(vendors: tuple[Vendor, ...], names: frozenset[str], keys: frozenset[str]) -> dict[str, Reduce]:
    state = _part_of(waiting=_stub, running=_stub, terminated=_part_of(exitCode=_stub))
    container = _part_of(
        name=_stub,
        restartPolicy=_stub,
        resources=_resources(names | _COMPUTE),
        securityContext=_part_of(privileged=_stub),
    )
    return {
        "metadata": _part_of(
            uid=_stub,
            name=_stub,
            namespace=_stub,
            resourceVersion=_stub,
            deletionTimestamp=_stub,
            deletionGracePeriodSeconds=_stub,
            labels=_only(frozenset(codec.POD_LABELS), _annotation),
            annotations=_only(keys, _annotation),
        ),
        "spec": _part_of(
            nodeName=_stub,
            schedulerName=_stub,
            priorityClassName=_stub,
            activeDeadlineSeconds=_stub,
            affinity=_affinity(),
            resources=_resources(_COMPUTE),
            initContainers=_each(container),
            containers=_each(container),
        ),
        "status": _part_of(phase=_stub, initContainerStatuses=_each(_part_of(name=_stub, state=state))),
    }


def _quota_parts(vendors: tuple[Vendor, ...]) -> dict[str, Reduce]:
    names = _quota_names(vendors)

    def hard(value: Any) -> Any:
        if not isinstance(value, dict):
            return _stub(value)
        ours = list(names.ours_of(value).items())
        return {key: _amount(amount) for key, amount in ours[: fields.MAX_ITEMS + 1]}

    expression = _part_of(scopeName=_stub, operator=_stub, values=_each(_stub))
    return {
        "metadata": _part_of(uid=_stub, name=_stub, namespace=_stub, resourceVersion=_stub),
        "spec": _part_of(
            hard=hard, scopes=_each(_stub), scopeSelector=_part_of(matchExpressions=_each(expression))
        ),
    }


def _node_parts(vendors: tuple[Vendor, ...]) -> dict[str, Reduce]:
    amounts = _only(registration.capacity_names(vendors), _amount)
    return {
        "metadata": _part_of(
            uid=_stub,
            name=_stub,
            resourceVersion=_stub,
            labels=_labels,
            annotations=_only(registration.annotation_keys(vendors), _annotation),
        ),
        "spec": _part_of(unschedulable=_stub),
        "status": _part_of(allocatable=amounts, capacity=amounts),
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """What of an object concerns these vendors.

    `annotations` are the keys of pods, without those that are decoded by vendor; `parts` says per
    kind what is kept.
    """

    resources: frozenset[str]
    annotations: frozenset[str]
    parts: Mapping[str, Mapping[str, Reduce]]


def _wanted_of(vendors: Sequence[Vendor]) -> _Wanted:
    """What concerns these vendors; that a table is the last one again is seen without comparing it."""
    for table, wanted in tuple(_asked_last):
        if table is vendors:
            return wanted
    found = _wanted(tuple(vendors))
    if isinstance(vendors, tuple):  # whatever else may change in its place
        _asked_last.append((vendors, found))
    return found


_asked_last: deque[tuple[tuple[Vendor, ...], _Wanted]] = deque(maxlen=4)


@lru_cache(maxsize=8)
def _wanted(vendors: tuple[Vendor, ...]) -> _Wanted:
    resources = frozenset(name for vendor in vendors for name in vendor.resource_names)
    decoded = {key for vendor in vendors for key in (vendor.allocated_key, vendor.slots_annotation) if key}
    annotations = set(codec.POD_KEYS)
    for vendor in vendors:
        annotations.update(vendor.pod_annotations)
    parts = {
        "Pod": _pod_parts(vendors, resources, frozenset(annotations | decoded)),
        "Node": _node_parts(vendors),
        "ResourceQuota": _quota_parts(vendors),
    }
    return _Wanted(resources, frozenset(annotations - decoded), parts)

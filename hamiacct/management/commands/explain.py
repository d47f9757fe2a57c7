"""`manage.py explain FILE`: what a pod would be charged, step by step, with no server and no database."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from api import explain
from hamiacct.accounting.amounts import Amount
from hamiacct.accounting.errors import Malformed
from hamiacct.accounting.pods import DeviceKey, Pod
from hamiacct.queries import explanations, requests

# Where a kind that makes pods keeps the pod that it makes.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "Job": ("spec", "template"),
    "PodTemplate": ("template",),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
}
MEMORY, CORES, SLOTS = "MiB", "cores", "slots"
WIDTH_OF_A_PIPE = 120


class _Manifests(yaml.SafeLoader):
    """YAML as the apiserver takes it: a time is a text like any other."""


_Manifests.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod of the file: what it is called there, and its manifest."""

    title: str
    manifest: dict[str, Any]


class Command(BaseCommand):
    """Explains every pod of a file."""

    help = (
        "What a pod would be charged and why: the containers in declaration order with the fold after each, "
        "which term is the larger one, and what the apiserver would charge a ResourceQuota. A pod with an "
        "allocation is explained by it, any other by its requests. Of a Deployment and the like the pod "
        "template is explained. Reads no database and asks no server."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The file, and the form of the answer."""
        parser.add_argument("file", metavar="POD.yaml", help="YAML or JSON, several documents; - for stdin")
        parser.add_argument("--json", action="store_true", help="print what POST /api/v1/explain answers")

    def handle(self, *args: Any, **options: Any) -> None:
        """Every pod in the order of the file. One that cannot be read loses no other."""
        name = "standard input" if options["file"] == "-" else options["file"]
        objects = list(_objects(_documents(_text(options["file"], name), name)))
        asked = [one for item in objects for one in _asked(item)]
        if not asked:
            kinds = ", ".join(sorted({_kind(item) for item in objects})) or "nothing"
            raise CommandError(f"{name} holds no Pod and nothing that makes one, but {kinds}")
        faults = []
        for number, one in enumerate(asked):
            try:
                pod = explain.pod_asked_about(one.manifest)
                found = explanations.of_manifest(pod)
            except Malformed as fault:
                faults.append(f"{one.title}: {fault.pointer or '/'}: {fault.detail}")
                continue
            if options["json"]:
                self.stdout.write(json.dumps(explain.manifest_answer(found), indent=2))
            else:
                self.stdout.write("" if number == 0 else "\n", ending="")
                self.stdout.write(_page(one.title, pod, found), ending="")
        if faults:
            raise CommandError("\n".join(faults))


# --- the file ------------------------------------------------------------------------------------


def _text(file: str, name: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except OSError as fault:
        raise CommandError(f"{name}: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise CommandError(f"{name} is no UTF-8 text: {fault.reason} at byte {fault.start}") from fault


def _documents(text: str, name: str) -> list[object]:
    """The documents of a YAML stream, or the one of a JSON text, which YAML does not always read."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        pass  # then it is YAML, or nothing
    try:
        return [one for one in yaml.load_all(text, _Manifests) if one is not None]
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise CommandError(f"{name} is neither YAML nor JSON: {where}{fault.problem}") from fault
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        reason = "nested too deeply" if isinstance(fault, RecursionError) else str(fault)
        raise CommandError(f"{name} is neither YAML nor JSON: {reason}") from fault


def _objects(documents: Iterable[object]) -> Iterator[dict[str, Any]]:
    """Every Kubernetes object; those of a list one by one."""
    for document in documents:
        whole = _object(document)
        items = whole.get("items")
        if _kind(whole).endswith("List") and isinstance(items, list):
            # A list of one kind may name it once.
            named = {"kind": _kind(whole).removesuffix("List")}
            yield from ({**named, **_object(item)} for item in items)
        else:
            yield whole


def _object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise CommandError(f"a document is no Kubernetes object but {type(document).__name__}")
    return document


def _kind(item: Mapping[str, Any]) -> str:
    kind = item.get("kind")
    return kind if isinstance(kind, str) and kind else "an object without kind"


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    names = metadata if isinstance(metadata, dict) else {}
    parts = (names.get("namespace"), names.get("name") or names.get("generateName") or explain.UNNAMED)
    return "/".join(str(part) for part in parts if part)


def _asked(item: dict[str, Any]) -> Iterator[Asked]:
    """The pod of an object: itself, or the one it makes. None of any other kind."""
    kind = _kind(item)
    title = f"{kind} {_name(item)}"
    if kind == "Pod":
        yield Asked(title, item)
    elif kind in TEMPLATES:
        template: Any = item
        for step in TEMPLATES[kind]:
            template = template.get(step) if isinstance(template, dict) else None
        if not isinstance(template, dict):
            raise CommandError(f"{title} has no pod template at /{'/'.join(TEMPLATES[kind])}")
        own, made = item.get("metadata") or {}, template.get("metadata") or {}
        named = {name: own[name] for name in ("name", "namespace") if isinstance(own, dict) and name in own}
        metadata = {**named, **made} if isinstance(made, dict) else made
        yield Asked(f"{title}, its pod template", {**template, "metadata": metadata})


# --- the page ------------------------------------------------------------------------------------


def _page(title: str, pod: Pod, found: explanations.Explanation) -> str:
    """The explanation of one pod, as a text with colours where the terminal has some."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE, highlight=False)
    with console.capture() as page:
        console.print(Text(f"{title}, {_basis(pod)}", style="bold"))
        for fault in pod.faults:
            said = f"{fault.key} cannot be read: at offset {fault.offset}, {fault.reason}"
            console.print(Text(said, style="red"), soft_wrap=True)
        for key in sorted({key for step in found.steps for key in step.usage}):
            console.print(_steps_table(key, found))
            console.print(_result_table(key, found))
        console.print(Text(found.sentence), soft_wrap=True)
        charged = ", ".join(f"{name} {amount}" for name, amount in sorted(found.apiserver.items()))
        charged = charged or "nothing that is managed here"
        console.print(Text(f"The apiserver would charge a ResourceQuota: {charged}."), soft_wrap=True)
    return page.get()


def _basis(pod: Pod) -> str:
    """What the explanation goes by."""
    if pod.allocations or pod.faults:
        return f"by its allocation on {pod.vgpu_node or 'no node'}"
    return "by its requests"


def _device(key: DeviceKey) -> str:
    if key.node == requests.ANYWHERE:
        return f"{key.uuid}, {key.node}"
    return f"{key.vendor} {key.uuid} on {key.node or 'no node'}"


def _sizes(amount: Amount) -> tuple[int, int, int]:
    return amount.memory_mib, amount.cores, amount.slots


def _steps_table(key: DeviceKey, found: explanations.Explanation) -> Table:
    """The containers in declaration order: what each uses of one device, and the fold after it."""
    table = Table(title=_device(key), title_justify="left", title_style="cyan", box=SIMPLE_HEAD)
    table.padding, table.pad_edge, table.collapse_padding = (0, 1), False, True  # 80 columns are enough
    table.add_column("container", overflow="fold")
    table.add_column("class", no_wrap=True)
    heading = f"{MEMORY:>6}{CORES:>6}{SLOTS:>6}"
    for of in ("uses", "steady after it", "peak after it"):
        table.add_column(f"{of}\n{heading}", no_wrap=True)
    for step in found.steps:
        amounts = (step.usage[key], step.footprint.steady[key], step.footprint.peak[key])
        cells = ["{:>6}{:>6}{:>6}".format(*(size or "·" for size in _sizes(amount))) for amount in amounts]
        table.add_row(step.container.name, step.container.kind, *cells)
    return table


def _result_table(key: DeviceKey, found: explanations.Explanation) -> Table:
    """What comes out of the fold for one device, and which term is the larger one."""
    footprint = found.steps[-1].footprint
    peak, steady = footprint.peak[key], footprint.steady[key]
    table = Table(box=SIMPLE_HEAD)
    for heading in ("", MEMORY, CORES, SLOTS):
        table.add_column(heading, justify="right" if heading else "left")
    winners = [_winner(*pair) for pair in zip(_sizes(peak), _sizes(steady), strict=True)]
    rows: list[tuple[str, Iterable[object], str]] = [
        ("peak: inits with the sidecars before them", _sizes(peak), ""),
        ("steady: apps and sidecars together", _sizes(steady), ""),
        ("effective: the larger of both", _sizes(found.effective[key]), "bold"),
        ("  which is", winners, ""),
        ("charged" if found.rule is not None else "would be charged", _sizes(found.charged[key]), "bold"),
    ]
    for name, cells, style in rows:
        table.add_row(name, *map(str, cells), style=style)
    return table


def _winner(peak: int, steady: int) -> str:
    if peak == steady:
        return "both" if peak else "-"
    return "peak" if peak > steady else "steady"

"""Files of a recording: found, in the order in which they are read, opened, and told from what is no JSON."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

STANDARD_INPUT = "-"
ENDINGS = (".json", ".ndjson", ".jsonl")
YAML_ENDINGS = (".yaml", ".yml")
GZIP = ".gz"
# Devices before those who hold them, limits before those who are judged.
FIRST = ("nodes", "resourcequotas", "quotas", "pods")
HEAD_BYTES = 64
GZIP_MAGIC = b"\x1f\x8b"
# Windows PowerShell writes what a program prints as UTF-16.
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
YAML_BEGINNINGS = (b"apiVersion:", b"kind:", b"---", b"- apiVersion:", b"items:")
TABLE_BEGINNINGS = (b"NAME ", b"NAMESPACE ", b"EVENT ")


class Unusable(Exception):
    """A file that is not there, cannot be read, or holds no JSON at all."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A file to be read. `path` is None for standard input, `folder` the namespace's folder of a dump."""

    name: str
    path: Path | None
    folder: str = ""

    @property
    def size_bytes(self) -> int:
        """How long the file is; 0 where that cannot be told."""
        return self.path.stat().st_size if self.path is not None and self.path.is_file() else 0


def found(names: Iterable[str]) -> list[Recording]:
    """The files to be read for these names. Unusable where one cannot be, before anything is read."""
    recordings: list[Recording] = []
    for name in names:
        path = Path(name)
        if name == STANDARD_INPUT:
            recordings.append(Recording("standard input", None))
        elif path.is_dir():
            recordings += _in_folder(path)
        else:
            recordings.append(Recording(name, path))
    for one in recordings:
        _check(one)
    return recordings


def _in_folder(root: Path) -> list[Recording]:
    """Every JSON file below it, nodes first."""
    files = [path for path in sorted(root.rglob("*")) if _plain(path).endswith(ENDINGS) and path.is_file()]
    if not files:
        if any(_plain(path).endswith(YAML_ENDINGS) for path in root.rglob("*")):
            raise Unusable(f"{root} holds YAML, and JSON is read here: dump it again with -o json")
        raise Unusable(f"{root} holds no file that ends in {', '.join(ENDINGS)}")
    ordered = sorted(files, key=lambda path: _rank(path))
    return [
        Recording(str(path), path, path.parent.name if path.parent.parent == root else "") for path in ordered
    ]


def _plain(path: Path) -> str:
    """The file's name in lower case, without the ending of a compressed one."""
    return path.name.lower().removesuffix(GZIP)


def _rank(path: Path) -> int:
    stem = _plain(path).partition(".")[0]
    return FIRST.index(stem) if stem in FIRST else len(FIRST)


def _check(recording: Recording) -> None:
    """Looks at the beginning of a file."""
    if recording.path is None:
        return
    if _plain(recording.path).endswith(YAML_ENDINGS):
        raise Unusable(f"{recording.name} is YAML, and JSON is read here: kubectl prints it with -o json")
    try:
        with opened(recording) as (lines, _):
            head = next((line for line in lines if line.strip()), b"")
    except (OSError, EOFError) as fault:
        raise Unusable(f"{recording.name} cannot be read: {fault}") from fault
    except UnicodeError as fault:
        raise Unusable(f"{recording.name} is no text: {fault}") from fault
    if doubt := what_else(head):
        raise Unusable(f"{recording.name} is {doubt}")


def what_else(line: bytes) -> str:
    """What a file is that begins with this line, where that is well known and no JSON; "" otherwise."""
    if line.startswith(YAML_BEGINNINGS):
        return "YAML, and JSON is read here: kubectl prints it with -o json"
    if line.startswith(TABLE_BEGINNINGS):
        return "kubectl's table, and JSON is read here: kubectl prints it with -o json"
    return ""


class _Counted(io.RawIOBase):
    """A file that knows how much of it was read, as it lies on the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.done_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast(bytearray, buffer))
        data = self._file.read1(len(view)) if hasattr(self._file, "read1") else self._file.read(len(view))
        view[: len(data)] = data
        self.done_bytes += len(data)
        return len(data)


@contextmanager
def opened(recording: Recording) -> Iterator[tuple[Iterable[bytes], _Counted]]:
    """The lines of a file, uncompressed and in UTF-8, and how far it has been read."""
    with ExitStack() as open_files:
        if recording.path is None:
            counted = _Counted(sys.stdin.buffer)
        else:
            counted = _Counted(open_files.enter_context(recording.path.open("rb")))
        lines: io.BufferedIOBase = io.BufferedReader(counted)
        if _begins(lines, (GZIP_MAGIC,)):
            lines = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=lines)))
        if _begins(lines, UTF16_MARKS):
            text = io.TextIOWrapper(cast(BinaryIO, lines), encoding="utf-16", newline="\n")
            yield (line.encode() for line in text), counted
        else:
            yield lines, counted


def _begins(file: io.BufferedIOBase, marks: tuple[bytes, ...]) -> bool:
    assert isinstance(file, io.BufferedReader)
    return file.peek(HEAD_BYTES)[:2] in marks

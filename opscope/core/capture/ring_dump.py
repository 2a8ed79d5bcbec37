"""Take a snapshot of a ring, for all processes that record into one folder, while they continue. Segments
that are over never change, so they are linked, not copied: a snapshot takes milliseconds. It is a
recording like any other (``dump-00001-slow/part-…``), which the reader cuts at the time that the snapshot
names."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from opscope.core.cupti import files
from opscope.core.recording_format import (
    EVENTS,
    FACTS,
    MEMORY,
    META,
    SEGMENT,
    SEGMENTS,
    STACKS,
    STRINGS,
)

#: ``dump-00001-slow``: the number, and the cause of the dump.
DUMP: Final = "dump-{:05d}-{}"
_DUMP: Final = re.compile(r"dump-(\d{5,})-([a-z]+)")
#: An empty file that remains when a dump has become a profile and was removed.
CLAIM: Final = "claim-{:05d}-{}"
_CLAIM: Final = re.compile(r"claim-(\d{5,})-([a-z]+)")
_READY: Final = "ready.json"
_BLOCK: Final = 1 << 20


def dumps(root: Path) -> list[tuple[int, str, Path]]:
    """Return the dumps in a recording's folder: number, cause, folder; unfinished ones included."""
    dump_files = []
    for path in root.glob("dump-*"):
        match = _DUMP.fullmatch(path.name)
        if match is not None:
            dump_files.append((int(match[1]), match[2], path))
    return sorted(dump_files)


def ready(dump: Path) -> dict[str, Any] | None:
    """Return the description of a complete dump; None while it is being made."""
    try:
        said = json.loads((dump / _READY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def claim(root: Path, made_by: str, gap_s: float, most: int) -> Path | str:
    """Make the folder of the next dump of this kind; return it, or the reason why there is none. All
    processes of a job see the same slow step: the first one dumps all of them. So no dump of the same kind
    may be younger than ``gap_s``, and there are at most ``most`` of them (0: no bound)."""
    claims = sorted(
        (int(match[1]), match[2], path)
        for path in root.glob("claim-*")
        if (match := _CLAIM.fullmatch(path.name)) is not None
    )
    mine = [path for _, kind, path in claims if kind == made_by]
    if most and len(mine) >= most:
        return f"there are {most} such profiles, and no more are written"
    now = time.time()
    for path in mine:
        try:
            age = now - path.stat().st_mtime
        except FileNotFoundError:
            continue
        if age < gap_s:
            return f"one was written {age:.0f} s before, and the next one is after {gap_s:g} s"
    number = 1 + max((number_taken for number_taken, _, _ in claims), default=0)
    try:
        (root / CLAIM.format(number, made_by)).touch(exist_ok=False)
        folder = root / DUMP.format(number, made_by)
        folder.mkdir()
    except FileExistsError:
        return "another process of the run writes it"
    if not most:  # these are not counted, so only the number of the last claim is needed
        for path in mine:
            path.unlink(missing_ok=True)
    return folder


def part(source: Path, into: Path, segments: Iterable[Path] | None = None) -> bool:
    """Add a snapshot of the part ``source`` to the dump ``into``; return whether it has any data.
    ``segments``: the completed segments of this process; None for another process's part, whose last
    segment is copied as far as it is written. Texts are read before and after the segments, because the
    file of texts may be compacted meanwhile."""
    try:
        strings = os.open(source / STRINGS, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError:
        return False
    target = into / source.name
    try:
        segment_folders = sorted(source.glob(SEGMENTS)) if segments is None else list(segments)
        target.mkdir()
        for number, segment in enumerate(segment_folders):
            _segment(
                segment,
                target / segment.name,
                segments is None and number == len(segment_folders) - 1,
            )
        with (target / STRINGS).open("wb") as out:
            _pour(strings, out)
            before = os.fstat(strings)
            after = os.stat(source / STRINGS)
            if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
                with (source / STRINGS).open("rb") as other:
                    _pour(other.fileno(), out)
        for name in (files.FACTS, STACKS):  # CUPTI's texts, and stacks, which segments share
            if (source / name).exists():
                shutil.copyfile(source / name, target / name)
        shutil.copyfile(source / FACTS, target / FACTS)
        shutil.copyfile(source / META, target / META)
        return True
    except FileNotFoundError:  # the process's part was removed meanwhile
        shutil.rmtree(target, ignore_errors=True)
        return False
    finally:
        os.close(strings)


def finish(dump: Path, details: dict[str, Any]) -> None:
    """Cut all parts of the dump at ``what["from_unix"]`` (Unix ns), and mark the dump as complete."""
    line = json.dumps({"ring": details}).encode() + b"\n"
    for facts in dump.glob(f"part-*/{FACTS}"):
        data = facts.read_bytes()
        complete_lines = data[
            : data.rfind(b"\n") + 1
        ]  # another process's part, which may be writing a line
        facts.write_bytes(complete_lines + line)
    temporary = dump / f"{_READY}.tmp"
    temporary.write_text(json.dumps(details), encoding="utf-8")
    temporary.replace(dump / _READY)


def discard(dump: Path) -> None:
    """Delete a dump; files that cannot be deleted stay."""
    shutil.rmtree(dump, ignore_errors=True)


def _segment(source: Path, target: Path, grows: bool) -> None:
    target.mkdir()
    for name in (EVENTS, MEMORY, FACTS, *_others(source)):
        try:
            if grows:
                shutil.copyfile(source / name, target / name)
            else:
                _link(source / name, target / name)
        except FileNotFoundError:
            continue


def _others(segment: Path) -> list[str]:
    """The names of files that sources other than the recorder write into a segment."""
    try:
        return sorted(set(os.listdir(segment)) - {EVENTS, MEMORY, FACTS})
    except FileNotFoundError:
        return []


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)


def _pour(descriptor: int, out: Any) -> None:
    while data := os.read(descriptor, _BLOCK):
        out.write(data)


def segment_name(number: int) -> str:
    """Return the folder of segment ``number``."""
    return SEGMENT.format(number)

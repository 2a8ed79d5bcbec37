"""Recognise files of XLA's profiler, and find them in the folder that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from opscope.core.hlo.wire import VARINT, WireError, varint

SUFFIX: Final = ".xplane.pb"


def is_space(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is an XSpace: planes (field 1), each with a name or lines.

    Every field of the first plane counts: packets of a Perfetto trace may begin as a plane does.
    """
    try:
        if head[:1] != b"\x0a":
            return False
        size, at = varint(head, 1, min(len(head), 11))
        if size < 2:
            return False
        # inside the plane, in any order: id, name, lines, two tables, statistics
        while at < min(size + 3, len(head)):
            tag, at = varint(head, at, len(head))
            number, kind = tag >> 3, tag & 7
            if not ((number == 1 and kind == VARINT) or (number in range(2, 8) and kind == 2)):
                return False
            number, at = varint(head, at, len(head))
            at += number if kind == 2 else 0
        return True
    except (WireError, IndexError):
        return False


def files(folder: Path) -> list[Path]:
    """Return the XPlane files of the newest run in a profiler's folder; empty for any other folder.

    The profiler writes ``FOLDER/plugins/profile/TIME/HOST.xplane.pb``, one file per host.
    """
    for run in (folder, *_inside(folder)):
        if paths := _of_run(run):
            return paths
    return []


def runs(folder: Path) -> list[Path]:
    """Return the folders of the runs in a profiler's folder, the newest first; empty for any other folder."""
    return [] if _of_run(folder) else [run for run in _inside(folder) if _of_run(run)]


def _inside(folder: Path) -> list[Path]:
    """Return the folders that are named by the time of their run, the newest first."""
    inside = sorted((folder / "plugins" / "profile").glob("*"), reverse=True)
    if folder.parent.name == "plugins":
        inside += sorted(folder.glob("*"), reverse=True)
    return inside


def _of_run(run: Path) -> list[Path]:
    return sorted(path for path in run.glob("*") if path.name.endswith((SUFFIX, SUFFIX + ".gz")))

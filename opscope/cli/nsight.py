"""Nsight Systems and ``opscope run``: where its report is, and how to read that."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from opscope.backends.nsys import SUFFIX as SUFFIX

#: In the run's folder: the file of each process whose ranges a tool records.
_LISTENER: Final = "listener-{}.json"
_OUTPUT: Final = ("-o", "--output")
#: The most ancestors to look at; no process has more.
_MOST: Final = 64


def record_listener(folder: str, env: Mapping[str, str]) -> None:
    """Write, in a child of the run: whether an NVTX tool is attached, and the path of its report."""
    from opscope.backends import under_nsys
    from opscope.core.capture import nvtx_sink, session

    report = report_of_ancestor() if under_nsys(env) else None
    if nvtx_sink.attached(env) is not None:
        session.emitter(session.STEP_FRAMEWORK)  # this opens a domain, as the first step would
    facts = {
        "heard": nvtx_sink.attached(env) is not None and not env.get("NVTX_DISABLE"),
        "nsight": under_nsys(env),
        "silent": nvtx_sink.forced_domains,
        "report": None if report is None else str(report),
    }
    path = Path(folder, _LISTENER.format(os.getpid()))
    path.write_text(json.dumps(facts), encoding="utf-8")


def listeners(parts: Path) -> list[dict[str, Any]]:
    """Return what ``record_listener`` wrote in each process of the run."""
    paths = sorted(parts.glob(_LISTENER.format("*")))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def unheard(parts: Path) -> list[str]:
    """Return a line if a process of the run sent its ranges to nobody."""
    if all(listener["heard"] for listener in listeners(parts)):
        return []
    return [
        "a process was not recorded, because no NVTX tool was attached to it; with Nsight Systems: "
        "nsys profile -t nvtx,cuda opscope run -- COMMAND"
    ]


def closing_lines(parts: Path) -> list[str]:
    """Return, at the run's end, one line per report in which a tool has recorded ranges."""
    every, lines = listeners(parts), unheard(parts)
    heard = [listener for listener in every if listener["heard"]]
    reports = sorted({listener["report"] for listener in heard if listener["report"]})
    for report in reports:
        lines.append(
            f"Nsight Systems writes the ranges to {report}; once it has ended: opscope report {report}"
        )
    if heard and not reports:
        tool = (
            "Nsight Systems" if any(listener["nsight"] for listener in heard) else "the NVTX tool"
        )
        lines.append(
            f"{tool} writes the ranges to its own report, which it names when it ends; then: "
            f"opscope report NAME{SUFFIX if tool.startswith('Nsight') else ''}"
        )
    return lines


def report_of_ancestor() -> Path | None:
    """Return the path of the report of the ``nsys profile`` that runs this process; None if its command
    does not show it (nsys numbers its reports itself, or fills in a pattern)."""
    for pid, words in _ancestors():
        if Path(words[0]).name != "nsys":
            words = words[1:]  # the first word is an interpreter if nsys is a script
        if not words or Path(words[0]).name != "nsys" or "profile" not in words[1:3]:
            continue
        name = _output(words)
        if name is None or "%" in name:
            return None
        try:
            folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        except OSError:
            folder = Path.cwd()
        path = folder / name
        return path if path.suffix == SUFFIX else path.with_name(path.name + SUFFIX)
    return None


def _output(words: Sequence[str]) -> str | None:
    """Return the value of nsys's option ``-o``."""
    for number, word in enumerate(words[2:], start=2):
        name, equals, value = word.partition("=")
        if name in _OUTPUT:
            return value if equals else next(iter(words[number + 1 : number + 2]), None)
        if word.startswith("-o") and not word.startswith("--"):
            return word[2:]
    return None


def _ancestors() -> Iterator[tuple[int, list[str]]]:
    """Yield the ancestors of this process with their command lines, the parent first."""
    pid = os.getpid()
    for _ in range(_MOST):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
            pid = int(stat.rpartition(")")[2].split()[1])
            words = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").split("\0")
        except (OSError, ValueError, IndexError):
            return
        if words[0]:
            yield pid, [word for word in words if word]

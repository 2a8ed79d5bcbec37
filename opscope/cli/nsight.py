"""Nsight Systems and ``opscope run``: the nsys command, the path of its report, and how to read that."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

#: In the run's folder: the file of each process whose ranges a tool records.
_LISTENER: Final = "listener-{}.json"
SUFFIX: Final = ".nsys-rep"
#: nsys traces forked workers only with its option for that. CPU sampling needs rights that containers
#: lack, and opscope does not use it.
_OPTIONS: Final = (
    "-t",
    "nvtx,cuda",
    "-s",
    "none",
    "--cpuctxsw=none",
    "--trace-fork-before-exec=true",
)
_OUTPUT: Final = ("-o", "--output")
#: The most ancestors to look at; no process has more.
_MOST: Final = 64


def command(program: Sequence[str], target: Path, *, force: bool) -> list[str]:
    """Return the command ``nsys profile … program``; its report is ``target`` with Nsight's suffix.

    Raises ValueError if nsys is missing or already runs this process, or if the report exists.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ValueError(
            "--backend nsys: nsys is not on PATH; if Nsight Systems is installed elsewhere, type: "
            "/path/to/nsys profile -t nvtx,cuda -o NAME opscope run -- COMMAND"
        )
    if "NSYS_PROFILING_SESSION_ID" in os.environ:
        raise ValueError("Nsight Systems already profiles this process: leave out --backend nsys")
    report = target.with_suffix(SUFFIX)
    if report.exists() and not force:
        raise ValueError(f"{report} exists; --force replaces it")
    overwrite = "true" if force else "false"
    output = report.absolute().with_suffix("")
    return [nsys, "profile", *_OPTIONS, "-f", overwrite, "-o", str(output), *program]


def record_listener(folder: str, env: Mapping[str, str]) -> None:
    """Write, in a child of the run: whether an NVTX tool is attached, and the path of its report."""
    from opscope.backends import under_nsys
    from opscope.core.capture.nvtx_sink import attached

    report = report_of_ancestor() if under_nsys(env) else None
    facts = {
        "heard": attached(env) is not None and not env.get("NVTX_DISABLE"),
        "nsight": under_nsys(env),
        "report": None if report is None else str(report),
    }
    path = Path(folder, _LISTENER.format(os.getpid()))
    path.write_text(json.dumps(facts), encoding="utf-8")


def closing_lines(parts: Path) -> list[str]:
    """Return, at the run's end, one line per place in which a tool has recorded ranges."""
    listeners = [
        json.loads(path.read_text("utf-8")) for path in sorted(parts.glob(_LISTENER.format("*")))
    ]
    lines = []
    if any(not one["heard"] for one in listeners):
        lines.append(
            "a process was not recorded, because no NVTX tool was attached to it; with Nsight Systems: "
            "nsys profile -t nvtx,cuda opscope run -- COMMAND"
        )
    heard = [one for one in listeners if one["heard"]]
    reports = sorted({one["report"] for one in heard if one["report"]})
    for report in reports:
        lines.append(
            f"Nsight Systems writes the ranges to {report}; once it has ended: opscope report {report}"
        )
    if heard and not reports:
        tool = "Nsight Systems" if any(one["nsight"] for one in heard) else "the NVTX tool"
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

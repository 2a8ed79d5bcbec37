"""Nsight Systems around a run, within it, or begun by it: where its report lies, and how it is read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

#: By each process that leaves its ranges to a tool, in the run's folder.
_WORD: Final = "told-{}.json"
SUFFIX: Final = ".nsys-rep"
#: Forked workers are traced only where Nsight Systems is asked for it; sampling the CPU needs rights
#: that containers lack, and is of no use here.
_OPTIONS: Final = (
    "-t",
    "nvtx,cuda",
    "-s",
    "none",
    "--cpuctxsw=none",
    "--trace-fork-before-exec=true",
)
_OUTPUT: Final = ("-o", "--output")
#: No process is deeper in others.
_MOST: Final = 64


def command(program: Sequence[str], target: Path, *, force: bool) -> list[str]:
    """``nsys profile … program``, whose report is ``target`` with Nsight's ending.

    Raises ValueError where that cannot be.
    """
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ValueError(
            "--backend nsys: there is no nsys on PATH; with Nsight Systems elsewhere, type: "
            "/path/to/nsys profile -t nvtx,cuda -o NAME opscope run -- COMMAND"
        )
    if "NSYS_PROFILING_SESSION_ID" in os.environ:
        raise ValueError("--backend nsys: Nsight Systems runs this already; leave it out")
    report = target.with_suffix(SUFFIX)
    if report.exists() and not force:
        raise ValueError(f"{report}: exists; --force replaces it")
    overwrite = "true" if force else "false"
    output = report.absolute().with_suffix("")
    return [nsys, "profile", *_OPTIONS, "-f", overwrite, "-o", str(output), *program]


def leave_word(folder: str, env: Mapping[str, str]) -> None:
    """In a child of the run: that a tool is to record it, whether one hears it, and where it writes."""
    from opscope.backends import under_nsys
    from opscope.core.capture.nvtx_sink import attached

    report = report_of_ancestor() if under_nsys(env) else None
    told = {
        "heard": attached(env) is not None and not env.get("NVTX_DISABLE"),
        "nsight": under_nsys(env),
        "report": None if report is None else str(report),
    }
    path = Path(folder, _WORD.format(os.getpid()))
    path.write_text(json.dumps(told), encoding="utf-8")


def last_words(parts: Path) -> list[str]:
    """In the run, at its end: where the ranges are that tools have recorded, a line each."""
    told = [json.loads(path.read_text("utf-8")) for path in sorted(parts.glob(_WORD.format("*")))]
    lines = []
    if any(not one["heard"] for one in told):
        lines.append(
            "nothing was recorded of a process that no NVTX tool heard; with Nsight Systems: "
            "nsys profile -t nvtx,cuda opscope run -- COMMAND"
        )
    heard = [one for one in told if one["heard"]]
    reports = sorted({one["report"] for one in heard if one["report"]})
    for report in reports:
        lines.append(
            f"Nsight Systems has the ranges, in {report}; once it has written that: opscope report {report}"
        )
    if heard and not reports:
        tool = "Nsight Systems" if any(one["nsight"] for one in heard) else "the NVTX tool"
        lines.append(
            f"{tool} has the ranges, in the report that it names when it ends; then: "
            f"opscope report NAME{SUFFIX if tool.startswith('Nsight') else ''}"
        )
    return lines


def report_of_ancestor() -> Path | None:
    """Where the ``nsys profile`` that this process runs under writes; None where its command does not
    tell (it numbers its reports itself, or fills in a pattern)."""
    for pid, words in _ancestors():
        if Path(words[0]).name != "nsys":
            words = words[1:]  # an interpreter, where nsys is a script
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
    """The value of nsys's own option ``-o``."""
    for number, word in enumerate(words[2:], start=2):
        name, equals, value = word.partition("=")
        if name in _OUTPUT:
            return value if equals else next(iter(words[number + 1 : number + 2]), None)
        if word.startswith("-o") and not word.startswith("--"):
            return word[2:]
    return None


def _ancestors() -> Iterator[tuple[int, list[str]]]:
    """The processes that this one was started by, innermost first, with their command lines."""
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

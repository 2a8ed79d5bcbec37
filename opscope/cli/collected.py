"""Make the profile of what a run recorded, say where it is, and print its report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import opscope
from opscope import backends
from opscope.adapters import modes
from opscope.backends import recording_folder
from opscope.core import progress
from opscope.core.recording_format import UNRECORDED

from . import common, nsight, nsight_run, progress_bar, simple

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

#: The facts of a recording that its profile keeps.
_KEPT: Final = ("mode", "gpu", "backends", "ring", "source_files")


@dataclass(frozen=True, slots=True)
class Task:
    """How to write a run's profile: from ``parts`` to ``target``, or to the first free one of ``names``."""

    parts: Path
    target: Path
    names: Iterable[Path]
    command: list[str]
    force: bool
    private: bool
    mode: str


def names_for(target: Path) -> Iterator[Path]:
    """Yield other names for the profile ``target``, in case it is taken meanwhile."""
    from opscope.readers.profile.profile_writing import numbered

    return numbered(target)


def collect_profile(task: Task, nothing: str) -> tuple[Profile, Path] | None:
    """Make a profile of the processes' parts, and print its path. Returns the profile and its path; None if
    nothing was recorded. Raises what reading and writing raise. ``nothing`` is the line to print if nothing
    was recorded; it is empty where the program's own error explains it."""
    from opscope.core.job.clocks import aligned

    parts = task.parts
    if _print_unrecorded(parts):  # the lines printed about the parts say more
        nothing = nothing and "nothing was recorded"
    closing = nsight.closing_lines(parts)
    if not recording_folder.parts(parts):
        if not parts.is_dir():
            nothing = (
                f"nothing was recorded: the recording in {parts.parent} was deleted during the run"
            )
        for line in closing or ([nothing] if nothing else ()):
            common.say(line)
        return None
    return _save(task, aligned(_readable(parts)), closing)


def of_nsight(nsys: nsight_run.UnderNsight, task: Task) -> tuple[Profile, Path] | None:
    """Make a profile of each report of nsys, as ``collect_profile`` does of the parts; return the first."""
    _print_unrecorded(task.parts)
    closing = nsight.unheard(task.parts)
    traces = nsys.traces(task.parts, task.target, force=task.force, private=task.private)
    written: tuple[Profile, Path] | None = None
    for number, trace in enumerate(traces):
        target = task.target
        if number:
            target = target.with_name(f"{target.stem}-{number}{target.suffix}")
        mine = replace(task, target=target, names=names_for(target))
        saved = _save(mine, trace, () if number else closing)
        written = written or saved
    if not traces:
        for line in closing:
            common.say(line)
    return written


def _save(task: Task, trace: Trace, closing: Iterable[str]) -> tuple[Profile, Path]:
    """Write the profile of a trace, and print where it is; see ``collect_profile``."""
    from opscope.core import redaction
    from opscope.core.tables.redacted import redacted
    from opscope.core.tables.trace import recorded_by
    from opscope.profile import Profile

    parts, command, private = task.parts, task.command, task.private
    lines = simple.tell(trace, backends.gpu_vendor()) if task.mode == modes.SIMPLE else []
    if private:
        trace = redacted(trace, private=True)
    # the parts' paths are useless once the parts are deleted
    facts = {name: value for name, value in trace.origin.items() if name in _KEPT}
    trace.origin = {
        **facts,
        "format": "opscope",
        "tool": f"opscope {opscope.__version__}",
        "command": list(redaction.private(command) if private else redaction.redact(command)),
    }
    # on a GPU without recorded kernels, device time is not known: CPU time is never used in its place
    if any('"gpu": true' in path.read_text("utf-8") for path in parts.glob("part-*/facts.jsonl")):
        trace.origin["gpu"] = True
    profile = Profile(trace)
    written = profile.save_as(task.target, force=task.force, others=task.names, scratch=parts)
    profile.keep_in(written)  # the report's results come after the report is printed
    by = recorded_by(trace.origin)
    if by is not None and by[1] != backends.REQUESTED:
        common.say("backend {}: {}".format(*by))
    if written != task.target:
        common.say(f"{task.target} was created meanwhile, so this profile has another name")
    common.say(f"wrote {written}")
    for line in (*lines, *closing):
        common.say(line)
    return profile, written


def _readable(parts: Path) -> Trace:
    """Return the trace of all readable parts; print a line for each part that cannot be read."""
    from opscope.readers.recording.reader import collect

    with progress.reading([parts], named="the recording"):
        trace = collect(parts)
    trace.origin.pop("files", None)
    for fault in trace.origin.pop("failed", ()):
        common.say(f"left out: {os.path.relpath(fault['path'], parts)}: {fault['what']}")
    return trace


def _print_unrecorded(parts: Path) -> bool:
    """Print why Python processes that loaded opscope's hook were not recorded, each reason once; if any."""
    reasons: dict[tuple[str, ...], int] = {}
    for path in sorted(parts.glob(UNRECORDED.format("*"))):
        key = tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[:2])
        reasons[key] = reasons.get(key, 0) + 1
    for (python, reason), count in reasons.items():
        times = f" ({count} processes)" if count > 1 else ""
        common.say(f"not recorded: {python}: {reason}{times}")
    return bool(reasons)


def print_report(profile: Profile, target: Path, top: int | None, width: int | None) -> None:
    """Print the first screen on stderr, and keep its results and the columns of kernels with the profile."""
    from opscope.core.advice.commands import named
    from opscope.core.question.layout import width_of, write
    from opscope.reports import console

    rows = common.rows(top)
    if sys.stderr is None:
        return
    try:
        if profile.is_light:
            screen = console.light_screen(profile, rows)
        else:
            columns = width_of(sys.stderr) if width is None else width
            *screen, last = console.first_screen(profile, rows, top is None, columns)
            lines = [named(line, str(target)) for line in last.footnotes]
            screen.append(replace(last, footnotes=lines))
        with progress_bar.aside():
            write(screen, sys.stderr, width)
        common.say(f"more: opscope report {target}")
        if not profile.is_light:
            profile._keep_more()
    except OSError:  # nobody can read the report; the exit status stays the program's
        common.discard(sys.stderr)

"""Recordings of our own that no profile was made of: the parts of all processes as one trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core import recording_format
from opscope.core.process_specs import PRIVATE
from opscope.core.tables.ranks import with_ranks
from opscope.core.tables.redacted import redacted
from opscope.core.tables.trace import Trace, concat
from opscope.readers.errors import BadInput, NoneReadable
from opscope.readers.kineto import reader as kineto
from opscope.readers.recording import with_kineto, with_xplane
from opscope.readers.recording.parts import parts
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.windows import with_windows
from opscope.readers.xplane import reader as xplane

#: What a profiler may have left in a part: its file, who reads that, who joins it with the ranges.
_PROFILERS: Final = (
    (recording_format.KINETO, kineto.read, with_kineto.merge),
    (recording_format.XPLANE, xplane.read, with_xplane.merge),
)


def read(path: str | os.PathLike[str]) -> Trace:
    """All parts below ``path`` as one trace. Raises BadInput where one is damaged."""
    return collect(path, strict=True)


def collect(folder: str | os.PathLike[str], strict: bool = False) -> Trace:
    """All parts below ``folder`` as one trace, kernels merged in where a part has them.

    Unless ``strict``, what one process left damaged costs no other's: it is in ``origin["failed"]`` and
    in the notes.
    ``origin["gpu"]`` is set where a process used a GPU whose kernels were not captured. With
    ``OPSCOPE_PRIVATE=1``, now or when it was made, it says neither who recorded it nor where. ``folder`` may be a part. Raises
    BadInput when there is none, or none can be read.
    """
    found = parts(folder) or [Path(folder)]
    if not (found[0] / recording_format.META).exists():
        raise BadInput(folder, "no recording here (no part-*/meta.json)")
    failed: list[BadInput] = []
    traces = with_windows(list(_readable(found, failed)))
    if strict and failed:
        raise failed[0]
    if not traces:
        raise failed[0] if len(failed) == 1 else NoneReadable(failed)
    born: dict[tuple[Any, Any], Any] = {}
    for trace in traces:
        host, pid = trace["processes"].select("host", "pid").row(0)
        born[host, pid] = trace.origin.pop("parent_pid")
    private = True in {
        trace.origin.pop("private") for trace in traces
    }  # of all, not the first only
    # with a GPU and no source of kernels device time is unknown: CPU time never stands for it
    gpu = any(trace.origin.get("gpu") and not trace.has("kernels") for trace in traces)
    whole = with_ranks(_with_parents(concat(traces), born))
    if gpu:
        whole.origin["gpu"] = True
    if failed:
        whole.origin["files"] = len(found) if len(traces) < len(found) else len(found) + len(failed)
        whole.origin["failed"] = [{"path": one.path, "what": one.what} for one in failed]
    for one in failed:
        whole.note("warning", f"left out: {os.path.relpath(one.path, folder)}: {one.what}")
    hidden = private or os.environ.get(PRIVATE) == "1"
    return redacted(whole, private=True) if hidden else whole


def _with_parents(trace: Trace, born: Mapping[tuple[Any, Any], Any]) -> Trace:
    """``processes.parent`` as process numbers, where the parent process was recorded too.

    ``born`` gives each (host, pid) its parent's pid.
    """
    processes = trace["processes"]
    who = processes.select("host", "pid", "process").rows()
    numbers = {(host, pid): process for host, pid, process in who}
    parents = [numbers.get((host, born.get((host, pid)))) for host, pid, _ in who]
    return trace.replace(
        processes=processes.with_columns(pl.Series("parent", parents, dtype=pl.Int64))
    )


def _readable(found: Iterable[Path], failed: list[BadInput]) -> Iterator[Trace]:
    for part in found:
        try:
            yield _whole(part, failed)
        except BadInput as error:
            failed.append(error)


def _whole(part: Path, failed: list[BadInput]) -> Trace:
    """A part with what a profiler left beside it; of a damaged trace of that the ranges are still good."""
    trace = read_part(part)
    for name, read_profiler, merge in _PROFILERS:
        found = part / name
        if found.is_file():
            try:
                theirs = read_profiler(found)
            except BadInput as error:  # what was recorded beside it is whole
                failed.append(error)
                what = f"kernels not captured: {error.path} cannot be read: {error.what}"
                trace.note("error", what)
                continue
            return merge(trace, theirs)
    trace.origin.pop("probes")
    return trace

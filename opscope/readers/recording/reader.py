"""Read opscope's raw recordings, which have no profile yet: the parts of all processes as one trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

import polars as pl

from opscope.core import progress, recording_format
from opscope.core.cupti import counter_files, files
from opscope.core.process_specs import PRIVATE
from opscope.core.tables.ranks import with_ranks
from opscope.core.tables.redacted import redacted
from opscope.core.tables.trace import Trace, concat
from opscope.readers.errors import BadInput, NoneReadable
from opscope.readers.recording import source_files
from opscope.readers.recording.launched import with_launcher
from opscope.readers.recording.parts import parts
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.told_backends import backends_of
from opscope.readers.recording.windows import with_windows

#: Traces of a profiler that a part may contain: the file or folder, its reader, and the module whose
#: ``merge`` joins it with the ranges. They are loaded only if a part has the trace: all take 45 ms.
_PROFILERS: Final = (
    (recording_format.KINETO, "kineto.reader:read", "with_kineto"),
    (recording_format.XPLANE, "xplane.reader:read", "with_xplane"),
    (recording_format.MINDSPORE, "mindspore.graph_nodes:load", "with_mindspore"),
    (files.FACTS, "recording.with_cupti:load", "with_cupti"),
    (counter_files.COUNTERS, "recording.with_counters:load", "with_counters"),
)


def read(path: str | os.PathLike[str]) -> Trace:
    """Return all parts below ``path`` as one trace. Raises BadInput if one is damaged."""
    return collect(path, strict=True)


def collect(folder: str | os.PathLike[str], strict: bool = False) -> Trace:
    """Return all parts below ``folder`` as one trace, with kernels merged in where a part has them.

    Without ``strict``, a damaged file of one process does not affect the others: it is in
    ``origin["failed"]`` and in the notes. ``origin["gpu"]`` is set if a process used a GPU whose kernels were
    not captured. ``origin["backends"]`` says which backends recorded, and why. With ``OPSCOPE_PRIVATE=1``,
    now or while recording, the trace says neither who recorded it nor where. ``folder`` may be a single part.
    Raises BadInput if there is no part, or none can be read.
    """
    parts_there = parts(folder) or [Path(folder)]
    if not (parts_there[0] / recording_format.META).exists():
        raise BadInput(folder, "no recording here (no part-*/meta.json)")
    failed: list[BadInput] = []
    traces = with_windows(list(_readable(parts_there, failed)))
    try:
        traces = with_launcher(traces, Path(folder))
    except BadInput as error:
        failed.append(error)
    if strict and failed:
        raise failed[0]
    if not traces:
        raise failed[0] if len(failed) == 1 else NoneReadable(failed)
    parent_pids: dict[tuple[Any, Any], Any] = {}
    backends = backends_of(traces)
    for trace in traces:
        host, pid = trace["processes"].select("host", "pid").row(0)
        parent_pids[host, pid] = trace.origin.pop("parent_pid")
    files = source_files.merged([trace.origin.pop("source_files", ()) for trace in traces])
    # a set, not any(), because each part's entry must be popped
    private = True in {trace.origin.pop("private") for trace in traces}
    # with a GPU but no kernels, device time is unknown: CPU time never replaces it
    gpu = any(trace.origin.get("gpu") and not trace.has("kernels") for trace in traces)
    whole = with_ranks(_with_parents(concat(traces), parent_pids))
    if gpu:
        whole.origin["gpu"] = True
    if files:
        whole.origin["source_files"] = files
    if backends:
        whole.origin["backends"] = backends
    if failed:
        whole.origin["files"] = (
            len(parts_there) if len(traces) < len(parts_there) else len(parts_there) + len(failed)
        )
        whole.origin["failed"] = [{"path": fault.path, "what": fault.what} for fault in failed]
    for one in failed:
        whole.note("warning", f"left out: {os.path.relpath(one.path, folder)}: {one.what}")
    hidden = private or os.environ.get(PRIVATE) == "1"
    return redacted(whole, private=True) if hidden else whole


def _with_parents(trace: Trace, parent_pids: Mapping[tuple[Any, Any], Any]) -> Trace:
    """Set ``processes.parent`` to the parent's process number, if the parent was recorded too.

    ``parent_pids`` maps each (host, pid) to its parent's pid.
    """
    processes = trace["processes"]
    who = processes.select("host", "pid", "process").rows()
    numbers = {(host, pid): process for host, pid, process in who}
    parents = [numbers.get((host, parent_pids.get((host, pid)))) for host, pid, _ in who]
    return trace.replace(
        processes=processes.with_columns(pl.Series("parent", parents, dtype=pl.Int64))
    )


def _readable(parts_there: Iterable[Path], failed: list[BadInput]) -> Iterator[Trace]:
    for part in parts_there:
        try:
            yield _whole(part, failed)
        except BadInput as error:
            failed.append(error)


def _whole(part: Path, failed: list[BadInput]) -> Trace:
    """Read a part with its profiler's trace; if that trace is damaged, the part's ranges are still read."""
    trace = read_part(part)
    progress.read_whole(part, without=[part / name for name, _, _ in _PROFILERS])
    sessions = trace.origin.pop("onnxruntime")
    trace = _with_profiler(part, trace, failed)
    progress.read_whole(part)
    if not sessions:
        return trace
    from opscope.readers.recording import with_onnxruntime  # lazy: most parts have no session

    return with_onnxruntime.merge(trace, part, sessions, failed)


def _with_profiler(part: Path, trace: Trace, failed: list[BadInput]) -> Trace:
    for name, reader, module in _PROFILERS:
        profiler_file = part / name
        if profiler_file.exists():
            try:
                theirs = resolve_name(f"opscope.readers.{reader}")(profiler_file)
            except BadInput as error:  # the recorder's part is intact
                failed.append(error)
                message = f"kernels not captured: {error.path} cannot be read: {error.what}"
                trace.note("error", message)
                continue
            merged: Trace = resolve_name(f"{__package__}.{module}:merge")(trace, theirs)
            return merged
    trace.origin.pop("probes")
    return trace

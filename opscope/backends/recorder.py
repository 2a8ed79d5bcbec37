"""The in-process recorder as a capture, and the parts of a recording joined into one trace."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl

from opscope.core import recording_format
from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.cells import replaces
from opscope.core.process_specs import PRIVATE
from opscope.core.tables.ranks import with_ranks
from opscope.core.tables.redacted import redacted
from opscope.core.tables.trace import Trace, concat
from opscope.readers.errors import BadInput, NoneReadable
from opscope.readers.recording.process_part import read_part
from opscope.readers.recording.windows import with_windows

from . import kept

_log = logging.getLogger(__name__)


class RecorderCapture:
    """Ranges of this process and of its forked children, into ``folder``; no GPU, no tool needed."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def warmup(self) -> None:
        """Nothing is slow here."""

    def start(self) -> None:
        """Begin. Raises OSError when the folder cannot be made."""
        recorder = Recorder(self.folder)
        recorder.start()
        session.listen(recorder)

    def stop(self) -> None:
        """End. Afterwards ``collect(folder)`` has the trace."""
        recorder = session.recorder()
        session.listen(None)
        if recorder is None:
            return
        cuda = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            recorder.fact(gpu=True)  # whose kernels this does not see
        recorder.stop()

    def in_child(self) -> bool:
        """A forked child is recorded as its parent is."""
        return True

    def __repr__(self) -> str:
        return f"RecorderCapture({str(self.folder)!r})"


@contextmanager
def capture(
    path: str | os.PathLike[str], *, backend: str = "auto", force: bool | None = None
) -> Iterator[None]:
    """Capture what runs inside, and write it as the profile ``path``, an error inside or not.

    ``backend`` is ``auto``, ``kineto``, ``xplane``, ``recorder``, or ``emit`` (which writes nothing: the tool
    that runs the process does). ``force`` replaces a profile; not given, it is so in IPython and notebooks
    alone. Raises FileExistsError where ``path`` exists and not ``force``, or is
    no profile, ValueError on an unknown backend, SessionError while another capture runs. A disk that
    takes nothing, then or at the end, is told in the log; what was recorded is kept where it can be.
    Under ``opscope run`` what runs inside is in that profile, and none is written.
    """
    target, replace = Path(path), replaces(force)
    folder = (
        None if session.is_reserved(f"capture into {target}") else _begun(target, backend, replace)
    )
    owner = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != owner:  # a forked child leaves the block: the profile is its parent's
            session.finish()
        elif folder is not None:
            try:
                session.stop()
            except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
                _log.warning("opscope: the capture into %s failed at its end: %s", target, error)
            kept.to_profile(folder, target, replace)


def _begun(target: Path, backend: str, force: bool) -> Path | None:
    """The folder into which a capture has begun; None where a tool records, or the disk takes nothing."""
    from . import begin
    from .profile_capture import check_target

    folder = None
    try:
        check_target(target, force)
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = kept.beside(target)
        if begin(folder, backend).name != "emit":
            return folder
    except BaseException as error:  # Ctrl-C above all: a folder that holds nothing does not stay
        if folder is not None:
            kept.discard(folder)
        if not isinstance(error, OSError) or kept.is_taken(error):
            raise
        _log.warning("opscope: nothing is recorded into %s: %s", target, kept.reason(error))
        return None
    kept.discard(folder)
    return None


def collect(folder: str | os.PathLike[str], strict: bool = False) -> Trace:
    """All parts below ``folder`` as one trace, kernels merged in where a part has them.

    Unless ``strict``, what one process left damaged costs no other's: it is in ``origin["failed"]`` and
    in the notes.
    ``origin["gpu"]`` is set where a process used a GPU whose kernels were not captured. With
    ``OPSCOPE_PRIVATE=1``, now or when it was made, it says neither who recorded it nor where. ``folder`` may be a part. Raises
    BadInput when there is none, or none can be read.
    """
    found = kept.parts(folder) or [Path(folder)]
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
    from . import kineto, xplane

    trace = read_part(part)
    for source in (kineto, xplane):
        found = part / source.TRACE
        if found.is_file():
            name = source.__name__.rpartition(".")[2]
            try:
                theirs = import_module(f"opscope.readers.{name}.reader").read(found)
            except BadInput as error:  # what was recorded beside it is whole
                failed.append(error)
                what = f"kernels not captured: {error.path} cannot be read: {error.what}"
                trace.note("error", what)
                continue
            merged: Trace = source.merge(trace, theirs)
            return merged
    trace.origin.pop("probes")
    return trace

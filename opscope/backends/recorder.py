"""The in-process recorder as a capture, and the parts of a recording joined into one trace."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import polars as pl

from opscope.core import recording, session
from opscope.core.process import PRIVATE
from opscope.core.ranks import with_ranks
from opscope.core.record import Recorder
from opscope.core.redacted import redacted
from opscope.core.trace import Trace, concat
from opscope.readers.errors import BadInput

from .recorded_part import read_part
from .recorded_windows import with_windows


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
    path: str | os.PathLike[str], *, backend: str = "auto", force: bool = False
) -> Iterator[None]:
    """Capture what runs inside, and write it as the profile ``path``, an error inside or not.

    ``backend`` is ``auto``, ``kineto``, ``xplane``, ``recorder``, or ``emit`` (which writes nothing: the tool
    that runs the process does). Raises FileExistsError where ``path`` exists and not ``force``, or is
    no profile, ValueError on an unknown backend, SessionError while another capture runs.
    """
    from . import begin
    from .profile import check_target

    target = Path(path)
    check_target(target, force)
    target.absolute().parent.mkdir(parents=True, exist_ok=True)
    owner = os.getpid()
    # beside the profile, so that the disk which will hold it holds the recording too
    folder = mkdtemp(prefix=f".{target.name}-", dir=target.absolute().parent)
    try:
        choice = begin(folder, backend)
        try:
            yield
        finally:
            if os.getpid() != owner:  # a forked child leaves the block: the profile is its parent's
                session.finish()
            elif choice.name != "emit":
                session.stop()
                trace = collect(folder)
                import_module("opscope.readers.opscope_profile").write(target, trace, force=force)
    finally:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def parts(folder: str | os.PathLike[str]) -> list[Path]:
    """The parts of a recording, by name; empty when there is none."""
    return sorted(path.parent for path in Path(folder).glob(f"part-*/{recording.META}"))


def collect(folder: str | os.PathLike[str]) -> Trace:
    """All parts below ``folder`` as one trace, kernels merged in where a part has them.

    ``origin["gpu"]`` is set where a process used a GPU whose kernels were not captured. With
    ``OPSCOPE_PRIVATE=1`` it says neither who recorded it nor where. Raises BadInput when there is none, or one is bad.
    """
    found = parts(folder)
    if not found:
        raise BadInput(folder, "no recording here (no part-*/meta.json)")
    traces = with_windows([_whole(part) for part in found])
    born: dict[tuple[Any, Any], Any] = {}
    for trace in traces:
        host, pid = trace["processes"].select("host", "pid").row(0)
        born[host, pid] = trace.origin.pop("parent_pid")
    # with a GPU and no source of kernels device time is unknown: CPU time never stands for it
    gpu = any(trace.origin.get("gpu") and not trace.has("kernels") for trace in traces)
    whole = with_ranks(_with_parents(concat(traces), born))
    if gpu:
        whole.origin["gpu"] = True
    return redacted(whole, private=True) if os.environ.get(PRIVATE) == "1" else whole


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


def _whole(part: Path) -> Trace:
    from . import kineto, xplane

    trace = read_part(part)
    for source in (kineto, xplane):
        found = part / source.TRACE
        if found.exists():
            name = source.__name__.rpartition(".")[2]
            try:
                profile = import_module(f"opscope.readers.{name}").read(found)
            except BadInput as error:  # what was recorded beside it is whole
                trace.note(
                    "error", f"kernels not captured: {error.path} cannot be read: {error.what}"
                )
                break
            merged: Trace = source.merge(trace, profile)
            return merged
    trace.origin.pop("probes")
    return trace

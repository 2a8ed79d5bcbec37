"""Kernels by torch.profiler's activities of the GPU, ops by our recorder, merged on one clock."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import polars as pl

from opscope.core.clockfit import NEAR_DRIFT, ClockFit, fit
from opscope.core.session import SessionError
from opscope.core.trace import Trace

from . import gpu_runtime
from .beside import Beside, clock_of, hits, joined, probes
from .gpu_runtime import PROBE_CALL
from .kineto_threads import unseen, with_os_threads
from .onclock import to_unix

_log = logging.getLogger(__name__)

#: The profiler's trace, beside the events of the part it belongs to.
TRACE: Final = "kineto.json"
#: What the profiler's trace gives; its own ranges would double the recorder's.
_TAKEN: Final = ("devices", "calls", "kernels", "memops", "graph_nodes", "syncs")


class Profiler(Protocol):
    """The part of ``torch.profiler.profile`` that is used."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def export_chrome_trace(self, path: str) -> Any: ...


class Cuda(Protocol):
    """What is asked of the CUDA runtime."""

    def probe(self) -> bool:
        """One call that ``PROBE_CALL`` names, legal at any time; False where there is none to make."""

    def synchronize(self) -> None:
        """Wait for the GPU."""


class KinetoCapture(Beside):
    """The recorder's ranges and torch.profiler's CUDA activities of this process, into ``folder``.

    ``profiler`` and ``cuda`` are torch's unless given. Forked children are recorded without kernels.
    """

    gives = "kernels"
    profiler = "torch.profiler"

    def __init__(
        self,
        folder: str | os.PathLike[str],
        profiler: Callable[[], Profiler] | None = None,
        cuda: Cuda | None = None,
    ) -> None:
        super().__init__(folder)
        self._make = profiler or _torch_profiler
        self._cuda = cuda
        self._profiler: Profiler | None = None

    def warmup(self) -> None:
        """Make the profiler, which initialises CUDA's tracing."""
        if self._profiler is None:
            self._profiler = self._make()
        if self._cuda is None:
            self._cuda = _TorchCuda()

    def _begin(self) -> None:
        assert self._profiler is not None
        try:
            self._profiler.start()
        except (RuntimeError, AssertionError) as error:  # CUPTI taken, a profiler on, no activity
            self._profiler = None
            raise SessionError(f"torch.profiler cannot start: {error}") from error

    def _touch(self) -> bool:
        assert self._cuda is not None
        return self._cuda.probe()

    def _settle(self) -> None:
        assert self._cuda is not None
        self._cuda.synchronize()

    def _end(self, folder: Path | None) -> None:
        profiler, self._profiler = self._profiler, None
        assert profiler is not None
        profiler.stop()
        if folder is not None:
            whole = folder / TRACE
            profiler.export_chrome_trace(str(whole.with_suffix(".tmp.json")))
            whole.with_suffix(".tmp.json").replace(whole)


class _TorchCuda:
    def __init__(self) -> None:
        import torch

        self._torch = torch
        if not torch.cuda.is_available():
            raise SessionError("PyTorch sees no GPU")
        self._call = gpu_runtime.driver_version_call(torch)
        if self._call is None:
            _log.warning("the GPU runtime that PyTorch uses was not found: no clock can be probed")

    def probe(self) -> bool:
        if self._call is None:
            return False
        self._call()
        return True

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()


def _torch_profiler() -> Profiler:
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError as error:
        raise SessionError(f"PyTorch's profiler cannot be imported: {error}") from error
    wanted: dict[str, Any] = {"activities": [ProfilerActivity.CUDA]}
    if "acc_events" in inspect.signature(profile.__init__).parameters:
        wanted["acc_events"] = True  # else it warns that a second cycle would forget the first
    made: Profiler = profile(**wanted)
    return made


# ------------------------------------------------------------------------------- the merge


def merge(ranges: Trace, kernels: Trace) -> Trace:
    """The recorder's part ``ranges`` with the tables of ``kernels``, all times on the recorder's clock.

    The probes in the part say how the clocks lie; where none can be found in ``kernels``, the two
    Unix clocks do. Either is noted with its error. Durations stay as they were.
    """
    guess = to_unix(kernels) - to_unix(ranges)
    fitted, met = _fit(ranges, kernels["calls"], guess)
    clock, note = clock_of(fitted, guess, "kernels")
    calls, unclear = with_os_threads(kernels["calls"], ranges, clock, met)
    known = pl.concat([ranges["threads"], unseen(calls, ranges["threads"])])
    with_threads = kernels.replace(calls=calls) if kernels.has("calls") else kernels
    merged = joined(ranges, with_threads, _TAKEN, clock, "kineto", {"threads": known})
    merged.origin["kernels"] = kernels.origin
    merged.note(*note)
    if unclear:
        merged.note(
            "warning",
            "GPU runtime calls whose thread is not known: the profiler's number of it is that of "
            "several threads",
            unclear,
        )
    return merged


def _fit(ranges: Trace, calls: pl.DataFrame, guess: int) -> tuple[ClockFit | None, pl.DataFrame]:
    """The fit over the probes and their calls, None where they are not found; and which thread of the
    profiler's made the calls that the system's ``thread`` is known to have made: number, thread."""
    asked = probes(ranges)
    seen = calls.filter(pl.col("name").cast(pl.String).str.contains(PROBE_CALL)).sort("start")
    start, end = seen["start"].to_numpy(), seen["end"].to_numpy()
    rows = hits(asked, start, end, guess)
    if rows is None:
        return None, pl.DataFrame(schema={"number": pl.Int64, "thread": pl.Int64})
    hit = rows >= 0
    pairs = {"number": seen["thread"].gather(rows[hit]), "thread": asked[hit, 2]}
    fitted = fit(asked[hit, 0], asked[hit, 1], start[rows[hit]], end[rows[hit]], NEAR_DRIFT)
    return fitted, pl.DataFrame(pairs).unique()

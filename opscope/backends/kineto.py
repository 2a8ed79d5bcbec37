"""Kernels by torch.profiler's CUDA activities, ops by our recorder, merged on one clock."""

from __future__ import annotations

import inspect
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from opscope.core import session
from opscope.core.record import Recorder
from opscope.core.session import SessionError
from opscope.core.trace import Trace

from .clockfit import ClockFit, fit, match
from .onclock import moved, to_unix

_log = logging.getLogger(__name__)
_Ints = npt.NDArray[np.int64]

#: The profiler's trace, beside the events of the part it belongs to.
TRACE: Final = "kineto.json"
#: The call whose times are bracketed: cheap, blocks nothing, and Kineto records it.
PROBE_CALL: Final = "cudaStreamQuery"
PROBES: Final = 16
PROBE_NS: Final = 1_000_000_000
#: Above this the launches nearest to the edges of a range may fall to its neighbour.
ACCEPTED_NS: Final = 1_000
#: How far the two Unix clocks may disagree before a probe is looked for elsewhere.
REACH_NS: Final = 50_000_000
#: What the profiler's trace gives; its own ranges would double the recorder's.
_TAKEN: Final = ("devices", "calls", "kernels", "memops", "graph_nodes", "syncs")


class Profiler(Protocol):
    """The part of ``torch.profiler.profile`` that is used."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def export_chrome_trace(self, path: str) -> Any: ...


class Cuda(Protocol):
    """What is asked of the CUDA runtime."""

    def probe(self) -> None:
        """One call of ``PROBE_CALL``; nothing while a CUDA graph is being captured."""

    def synchronize(self) -> None:
        """Wait for the GPU."""


class KinetoCapture:
    """The recorder's ranges and torch.profiler's CUDA activities of this process, into ``folder``.

    ``profiler`` and ``cuda`` are torch's unless given. Forked children are recorded without kernels.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        profiler: Callable[[], Profiler] | None = None,
        cuda: Cuda | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._make = profiler or _torch_profiler
        self._cuda = cuda
        self._profiler: Profiler | None = None
        self._recorder: Recorder | None = None
        self._undo: Callable[[], None] | None = None
        self._next_probe = 0
        self._pid = 0

    def warmup(self) -> None:
        """Make the profiler, which initialises CUDA's tracing."""
        if self._profiler is None:
            self._profiler = self._make()
        if self._cuda is None:
            self._cuda = _TorchCuda()

    def start(self) -> None:
        """Begin. Raises SessionError where torch or CUDA is missing or another profiler runs."""
        self.warmup()
        assert self._profiler is not None
        try:
            self._profiler.start()
        except (RuntimeError, AssertionError) as error:  # CUPTI taken, a profiler on, no activity
            self._profiler = None
            raise SessionError(f"torch.profiler cannot start: {error}") from error
        recorder = Recorder(self.folder)
        try:
            recorder.start()
        except OSError:
            self._profiler.stop()
            raise
        self._recorder = recorder
        self._pid = os.getpid()
        self._probe(PROBES)
        session.listen(recorder)
        self._undo = session.on_step(self._on_step)

    def stop(self) -> None:
        """End. Afterwards ``recorder.collect(folder)`` has the trace with kernels."""
        recorder, self._recorder = session.recorder(), None
        session.listen(None)
        if self._undo is not None:
            self._undo()
            self._undo = None
        profiler, self._profiler = self._profiler, None
        if os.getpid() != self._pid or profiler is None or self._cuda is None:
            if recorder is not None:  # a forked child's, which has no profiler
                recorder.stop()
            return
        try:
            self._cuda.synchronize()
            if recorder is not None:
                self._recorder = recorder
                self._probe(PROBES)
                self._recorder = None
            profiler.stop()
            if recorder is not None and recorder.folder is not None:
                whole = recorder.folder / TRACE
                profiler.export_chrome_trace(str(whole.with_suffix(".tmp.json")))
                whole.with_suffix(".tmp.json").replace(whole)
        except (RuntimeError, OSError) as error:
            _log.warning("kernels are not in this capture: %s", error)
            if recorder is not None:
                recorder.note("warning", f"kernels not captured: torch.profiler failed: {error}")
        finally:
            if recorder is not None:
                recorder.stop()

    def __repr__(self) -> str:
        return f"KinetoCapture({str(self.folder)!r})"

    def _on_step(self, _number: int) -> None:
        if perf_counter_ns() >= self._next_probe and os.getpid() == self._pid:
            self._probe(2)

    def _probe(self, times: int) -> None:
        recorder, cuda = self._recorder, self._cuda
        if recorder is None or cuda is None:
            return
        thread = threading.get_native_id()
        for _ in range(times):
            before = perf_counter_ns()
            cuda.probe()
            recorder.fact(probe=[before, perf_counter_ns(), thread])
        self._next_probe = perf_counter_ns() + PROBE_NS


class _TorchCuda:
    def __init__(self) -> None:
        import torch

        self._torch = torch
        if not torch.cuda.is_available():
            raise SessionError("PyTorch sees no CUDA device")

    def probe(self) -> None:
        cuda = self._torch.cuda
        # a query would invalidate a graph capture
        if not cuda.is_current_stream_capturing():
            cuda.current_stream().query()

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
    Unix clocks do. Either is noted with its error, and stands in ``clocks`` as a domain of its own
    (kind ``kineto``), whose ``to_unix_ns`` is of the merged times. Durations stay as they were.
    """
    calls, threads = _with_os_threads(kernels["calls"], ranges["threads"])
    unix = to_unix(ranges)
    guess = to_unix(kernels) - unix
    fitted = _fit(ranges, calls, guess)
    if fitted is None:
        clock = ClockFit(0, guess, 0.0, REACH_NS, 0, 0)
        note = (
            "warning",
            "no probe found in the profiler's trace: kernels are placed by the Unix clock",
        )
    else:
        clock = fitted
        good = clock.error_ns <= ACCEPTED_NS and clock.slack_ns >= 0
        note = (
            "info" if good else "warning",
            f"kernels are placed on the recorder's clock to within {clock.error_ns} ns by "
            f"{clock.readings} probes"
            + ("" if good else "; launches at the edges of ranges may fall to a neighbour"),
        )
    tables = {name: ranges[name] for name in ranges.present}
    for name in _TAKEN:
        if kernels.has(name):
            frame = calls if name == "calls" else kernels[name]
            tables[name] = moved(frame, clock).with_columns(pl.lit(0, pl.Int32).alias("process"))
    tables["threads"] = pl.concat([ranges["threads"], threads])
    tables["notes"] = pl.concat([ranges["notes"], kernels["notes"]])
    row = pl.DataFrame(
        {
            "clock_domain": [1],
            "kind": ["kineto"],
            "to_unix_ns": [unix],
            "drift_ppm": [clock.drift * 1e6],
            "error_ns": [clock.error_ns],
        },
        schema=ranges["clocks"].schema,
    )
    tables["clocks"] = pl.concat([ranges["clocks"], row])
    origin = {key: value for key, value in ranges.origin.items() if key != "probes"}
    merged = Trace.of(tables, {**origin, "kernels": kernels.origin})
    merged.note(*note)
    return merged


def _fit(ranges: Trace, calls: pl.DataFrame, guess: int) -> ClockFit | None:
    """The fit over the thread that has most probes and their calls; None where none is found."""
    probes = np.array(ranges.origin.get("probes") or [], dtype=np.int64).reshape(-1, 3)
    queries = calls.filter(pl.col("name").cast(pl.String) == PROBE_CALL).sort("start")
    pieces: list[tuple[_Ints, ...]] = []
    for thread in np.unique(probes[:, 2]):
        mine = probes[probes[:, 2] == thread]
        theirs = queries.filter(pl.col("thread") == int(thread))
        start, end = theirs["start"].to_numpy(), theirs["end"].to_numpy()
        rows = match(mine[:, 0], mine[:, 1], start, end, guess, REACH_NS)
        if rows is not None and (rows >= 0).sum() * 2 > len(rows):  # else found by chance
            hit = rows >= 0
            pieces.append((mine[hit, 0], mine[hit, 1], start[rows[hit]], end[rows[hit]]))
    if not pieces:
        return None
    return fit(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def _with_os_threads(
    calls: pl.DataFrame, threads: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Calls with system thread ids, and rows for threads that the recorder has not seen.

    Kineto numbers a thread that it has not met by the low 32 bits of its pthread id, signed or not.
    """
    known = threads.filter(pl.col("pthread_id").is_not_null())
    low = pl.col("pthread_id") & 0xFFFFFFFF
    names = pl.concat(
        [
            known.select(low.alias("alias"), "thread"),
            known.select((low - (1 << 32)).alias("alias"), "thread"),
            known.select(pl.col("pthread_id").alias("alias"), "thread"),
        ]
    ).unique("alias", keep="none")
    own = threads["thread"].implode()
    names = names.filter(~pl.col("alias").is_in(own))
    renamed = calls.with_columns(
        pl.col("thread").replace(names["alias"], names["thread"]).alias("thread")
    )
    unseen = renamed.select(pl.col("thread").drop_nulls().unique().sort()).filter(
        ~pl.col("thread").is_in(own)
    )
    rows = unseen.select(
        pl.lit(0, pl.Int32).alias("process"),
        "thread",
        pl.lit(None, pl.Int64).alias("os_tid"),
        pl.lit(None, pl.Int64).alias("pthread_id"),
        pl.lit(None, pl.String).alias("name"),
    )
    return renamed, rows.cast(dict(threads.schema))  # type: ignore[arg-type]

"""Operations and kernels by jax.profiler (XPlane), ranges by our recorder, merged on one clock."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import session
from opscope.core.record import Recorder
from opscope.core.session import SessionError
from opscope.core.trace import Trace

from .clockfit import ClockFit, fit, match
from .onclock import moved, to_unix

_log = logging.getLogger(__name__)

#: The profiler's trace, beside the events of the part it belongs to.
TRACE: Final = "profile.xplane.pb"
#: A range of the profiler's that the recorder brackets. Adapters pass by names that begin so.
PROBE: Final = "opscope.probe"
PROBES: Final = 16
PROBE_NS: Final = 1_000_000_000
#: Above this an operation at the edge of a range may fall to its neighbour.
ACCEPTED_NS: Final = 1_000
#: How far the two Unix clocks may disagree before a probe is looked for elsewhere.
REACH_NS: Final = 50_000_000
_TAKEN: Final = ("devices", "calls", "kernels", "memops", "allocations")


class XPlaneCapture:
    """The recorder's ranges and jax.profiler's trace of this process, into ``folder``.

    Forked children are recorded without operations.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._jax: Any = None
        self._recorder: Recorder | None = None
        self._undo: Callable[[], None] | None = None
        self._next_probe = 0
        self._pid = 0

    def warmup(self) -> None:
        """Import JAX. Raises SessionError where it cannot be."""
        if self._jax is None:
            try:
                import jax
                import jax.profiler
            except ImportError as error:
                raise SessionError(f"JAX cannot be imported: {error}") from error
            self._jax = jax

    def start(self) -> None:
        """Begin. Raises SessionError where JAX is missing or another profile runs."""
        self.warmup()
        self.folder.mkdir(parents=True, exist_ok=True)
        options = self._jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # a range for every Python call is not what is asked
        options.host_tracer_level = 2  # JAX 0.6 tells of operations from here on
        try:
            self._jax.profiler.start_trace(str(self._scratch), profiler_options=options)
        except RuntimeError as error:
            raise SessionError(f"jax.profiler cannot start: {error}") from error
        recorder = Recorder(self.folder)
        try:
            recorder.start()
        except OSError:
            self._jax.profiler.stop_trace()
            raise
        self._recorder = recorder
        self._pid = os.getpid()
        self._probe(PROBES)
        session.listen(recorder)
        self._undo = session.on_step(self._on_step)

    @property
    def _scratch(self) -> Path:
        return self.folder / f"xplane-{os.getpid()}"

    def stop(self) -> None:
        """End. Afterwards ``recorder.collect(folder)`` has the trace with operations."""
        recorder, self._recorder = session.recorder(), None
        if self._undo is not None:
            self._undo()
            self._undo = None
        if recorder is None or os.getpid() != self._pid:
            session.listen(None)
            if recorder is not None:  # a forked child's, which has no profiler
                recorder.stop()
            return
        try:
            self._finish_work()
            session.listen(None)
            self._recorder = recorder
            self._probe(PROBES)
            self._recorder = None
            self._jax.profiler.stop_trace()
            found = sorted(self._scratch.glob("plugins/profile/*/*.xplane.pb"))
            if recorder.folder is not None and found:
                shutil.move(found[-1], recorder.folder / TRACE)
        except (RuntimeError, OSError) as error:
            _log.warning("operations are not in this capture: %s", error)
            recorder.note("warning", f"operations not captured: jax.profiler failed: {error}")
        finally:
            session.listen(None)
            shutil.rmtree(self._scratch, ignore_errors=True)
            recorder.stop()

    def _finish_work(self) -> None:
        """What was started is part of the capture: wait for it."""
        for array in self._jax.live_arrays():
            try:
                array.block_until_ready()
            except RuntimeError:  # deleted meanwhile, or its computation failed: the user's matter
                continue

    def __repr__(self) -> str:
        return f"XPlaneCapture({str(self.folder)!r})"

    def _on_step(self, _number: int) -> None:
        if perf_counter_ns() >= self._next_probe and os.getpid() == self._pid:
            self._probe(2)

    def _probe(self, times: int) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        thread = threading.get_native_id()
        for _ in range(times):
            before = perf_counter_ns()
            with self._jax.profiler.TraceAnnotation(PROBE):
                pass
            recorder.fact(probe=[before, perf_counter_ns(), thread])
        self._next_probe = perf_counter_ns() + PROBE_NS


# ------------------------------------------------------------------------------- the merge


def merge(ranges: Trace, profile: Trace) -> Trace:
    """The recorder's part ``ranges`` with the tables of ``profile``, all times on the recorder's clock.

    The probes in the part say how the clocks lie; where none is found, the two Unix clocks do.
    Either is noted with its error. Where our adapter told the steps, the profiler's are left out.
    """
    theirs = profile["ranges"]
    unix = to_unix(ranges)
    guess = to_unix(profile) - unix
    fitted = _fit(ranges, theirs, guess)
    if fitted is None:
        clock = ClockFit(0, guess, 0.0, REACH_NS, 0, 0)
        note = (
            "warning",
            "no probe found in the profiler's trace: operations are placed by the Unix clock",
        )
    else:
        clock = fitted
        good = clock.error_ns <= ACCEPTED_NS and clock.slack_ns >= 0
        note = (
            "info" if good else "warning",
            f"operations are placed on the recorder's clock to within {clock.error_ns} ns by "
            f"{clock.readings} probes",
        )
    own = ranges["ranges"]
    kept = theirs.filter(pl.col("text").cast(pl.String) != PROBE)
    if (own["category"] == "step").fill_null(False).any():
        kept = kept.filter((pl.col("category") != "step").fill_null(True))
    # the program's own annotations are heard by both
    mine = own.filter(pl.col("domain").cast(pl.String) == "opscope.user")["text"].cast(pl.String)
    repeated = (pl.col("domain").cast(pl.String) == "runtime") & pl.col("text").cast(
        pl.String
    ).is_in(mine.unique().implode())
    kept = kept.filter(~repeated)
    last = own["id"].max()
    first = 0 if last is None else int(last) + 1  # type: ignore[arg-type]
    kept = moved(kept, clock).with_columns(
        (pl.int_range(pl.len(), dtype=pl.Int64) + first).alias("id"),
        pl.lit(0, pl.Int32).alias("process"),
    )
    tables = {name: ranges[name] for name in ranges.present}
    tables["ranges"] = pl.concat([own, kept])
    for name in _TAKEN:
        if profile.has(name):
            tables[name] = moved(profile[name], clock)
    tables["specs"] = pl.concat([ranges["specs"], profile["specs"]])
    known = ranges["threads"]["thread"]
    threads = profile["threads"].filter(~pl.col("thread").is_in(known.implode()))
    tables["threads"] = pl.concat([ranges["threads"], threads])
    tables["notes"] = pl.concat([ranges["notes"], profile["notes"]])
    row = pl.DataFrame(
        {
            "clock_domain": [1],
            "kind": ["xplane"],
            "to_unix_ns": [unix],
            "drift_ppm": [clock.drift * 1e6],
            "error_ns": [clock.error_ns],
        },
        schema=ranges["clocks"].schema,
    )
    tables["clocks"] = pl.concat([ranges["clocks"], row])
    origin = {key: value for key, value in ranges.origin.items() if key != "probes"}
    merged = Trace.of(tables, {**origin, "operations": profile.origin})
    merged.note(*note)
    return merged


def _fit(ranges: Trace, theirs: pl.DataFrame, guess: int) -> ClockFit | None:
    """The fit over the probes that are found; None where they are not."""
    probes = np.array(ranges.origin.get("probes") or [], dtype=np.int64).reshape(-1, 3)
    probes = probes[np.argsort(probes[:, 0], kind="stable")]
    seen = theirs.filter(pl.col("text").cast(pl.String) == PROBE).sort("start")
    start, end = seen["start"].to_numpy(), seen["end"].to_numpy()
    rows = match(probes[:, 0], probes[:, 1], start, end, guess, REACH_NS)
    if rows is None or (rows >= 0).sum() * 2 <= len(rows):  # else found by chance
        return None
    hit = rows >= 0
    return fit(probes[hit, 0], probes[hit, 1], start[rows[hit]], end[rows[hit]])

"""The runs of a timing file: which of them warm up, and their times as samples."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from opscope.core.tensorrt_layers import SAMPLE

if TYPE_CHECKING:
    from .belonging import Engine

#: trtexec warms up for this long unless it is told otherwise (``--warmUp``), ms.
_WARM_UP: Final = 200.0
_STATED_WARM_UP: Final = re.compile(r"\+ ([\d.]{1,12})ms warm up")
#: Our names of a run's times, and trtexec's, TensorRT 8 and later first.
_TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Latency": ("latencyMs",),
    "H2D Latency": ("h2dMs", "inMs"),
    "GPU Compute Time": ("computeMs",),
    "D2H Latency": ("d2hMs", "outMs"),
}
_START: Final = ("startH2dMs", "startInMs", "startComputeMs")
_END: Final = ("endD2hMs", "endOutMs", "endComputeMs")

Run = Mapping[str, float]
Note = tuple[str, str, int]


def without_warm_up(runs: Sequence[Run], engine: Engine) -> tuple[list[Run], int, Note | None]:
    """Return the runs that trtexec's statistics count, how many warm up before them, and a note.

    The stated throughput and wall time give their number; without them, runs that begin to compute within
    the warm-up time are left out, as trtexec does.
    """
    stated = {}
    for part in (*engine.parts, *engine.beside):
        stated.update({statement.name: statement.values.get("value") for statement in part.stated})
    rate, wall = stated.get("Throughput"), stated.get("Total Host Walltime")
    length, is_stated = _WARM_UP, False
    for part in (*engine.parts, *engine.beside):
        match = _STATED_WARM_UP.search(part.options.get("Duration", ""))
        if match:
            length, is_stated = float(match[1]), True
    if rate and wall:
        run_count = round(rate * wall)
        if 0 < run_count <= len(runs):
            return list(runs[len(runs) - run_count :]), len(runs) - run_count, None
        message = (
            f"the summary states {run_count:,} runs, the timing file has {len(runs):,}: they are not of one"
            " run of"
            " trtexec"
        )
        return list(runs), 0, ("warning", message, 1)
    begin = next(
        (n for n, run in enumerate(runs) if run.get("startComputeMs", length) >= length), len(runs)
    )
    if begin == len(runs):
        return (
            list(runs),
            0,
            ("warning", "runs that all begin within the warm-up: all are counted", begin),
        )
    if not begin:
        return list(runs), 0, None
    how = "as the log states" if is_stated else "trtexec's default, as nothing states another"
    message = f"runs left out, because they begin in the warm-up of {length:g} ms ({how})"
    return list(runs[begin:]), begin, ("info", message, begin)


def wall_ms(runs: Sequence[Run]) -> float | None:
    """The time from the first run's first copy to the last run's last, ms."""
    if not runs:
        return None
    start, end = _of(runs[0], _START), max(_of(run, _END) or 0.0 for run in runs[-64:])
    return None if start is None else max(end - start, 0.0)


def _of(run: Run, names: Sequence[str]) -> float | None:
    return next((run[name] for name in names if name in run), None)


def samples(runs: Sequence[Run]) -> pl.DataFrame:
    """Each run's times as samples, in ns, at the time at which the run began."""
    frames = []
    time = pl.Series([_of(run, _START) for run in runs], dtype=pl.Float64)
    for ours, theirs in _TIMES.items():
        value = pl.Series([_of(run, theirs) for run in runs], dtype=pl.Float64)
        if value.null_count() == len(value):
            continue
        frames.append(
            pl.DataFrame(
                {
                    "time": (time.fill_null(0.0) * 1e6).round().cast(pl.Int64, strict=False),
                    "value": value * 1e6,
                }
            ).with_columns(pl.lit(SAMPLE.format(ours)).alias("name"))
        )
    frames = frames or [
        pl.DataFrame(schema={"time": pl.Int64, "value": pl.Float64, "name": pl.String})
    ]
    return pl.concat(frames).with_columns(
        pl.lit(0, pl.Int32).alias("process"), pl.lit(0, pl.Int32).alias("device")
    )

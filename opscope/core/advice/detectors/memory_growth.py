"""Memory that grows from step to step: the program keeps what its steps allocate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import (
    EVIDENCE,
    Answer,
    Answers,
    CannotTell,
    Detector,
    Finding,
    Floats,
)
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.pace import NO_STEPS
from opscope.core.advice.rest import with_rest
from opscope.core.analysis.host.in_words import size
from opscope.core.analysis.memory.memory import of_memory
from opscope.core.analysis.memory.memory_blocks import blocks
from opscope.core.analysis.ops.ops import Ops, first
from opscope.core.schema import PROCESS_MEMORY
from opscope.core.tables.intervals import NONE, Ints

#: The fewest steps to judge by, and the part of all steps, before them, in which caches fill.
FEWEST: Final = 6
_SETTLES: Final = 1 / 4
#: The fewest steps to judge the process's memory by, and the least r² of the line through it. Of 100,000
#: times twelve values drawn by chance, 1,625 grow in each quarter, and 4 of these lie near a line.
_FEWEST_READ: Final = 12
_LINE: Final = 0.8
#: The least growth (bytes) over these steps: of ops' memory, and of the process's, which other things change
#: too.
LEAST: Final = 1 << 20
_PROCESS: Final = 8 << 20
#: The least growth of the process's memory as a part of it.
_PART: Final = 0.02
#: In each quarter of the steps, it grows by at least this part of an even share.
_EVEN: Final = 0.4
_NEVER: Final = int(np.iinfo(np.int64).max)
_ROWS: Final = {
    "process": pl.Int32, "device": pl.Int32, "op": pl.String, "direction": pl.String, "layer": pl.String,
    "source": pl.String, "count": pl.Int64, "bytes": pl.Int64,
}  # fmt: skip
_RECOMMENDED: Final[Named] = {
    "torch": "Keep of each step only what is needed, as numbers or without a graph:"
    " history.append(loss.item()) or loss.detach() (a loss holds its whole graph), results under"
    " torch.no_grad(), no retain_graph=True.",
    "tensorflow": "Keep no tensors of a step in Python lists: append float(loss), and use tf.keras.metrics;"
    " create tf.function, tf.Variable and datasets once, outside of the loop.",
    "jax": "Keep no arrays of a step in Python lists: append float(loss); create jax.jit(f) once, outside of"
    " the loop, so that no program is cached for each step.",
    "mindspore": "Keep no tensors of a step in Python lists: append float(loss.asnumpy()).",
}
#: The backend that writes its records to disk as it runs; profilers keep theirs in memory until the end.
_WRITES: Final = "recorder"
_GENERAL: Final = "Keep of each step only numbers, and drop what the next step does not need."
_RECORD: Final = (
    "`opscope run --memory -- python train.py` names the ops and lines whose memory is kept"
)


def find(answers: Answers) -> Answer:
    """Return one finding for each device or process whose memory grows in each quarter of the steps."""
    allocated = _allocated(answers)
    grown = _resident(answers) if allocated is None else allocated
    if isinstance(grown, str):
        return CannotTell(grown)
    kept = of_memory(answers, _ROWS, _kept_since(grown)) if any(g.exact for g in grown) else None
    return [_finding(answers, growth, kept) for growth in grown]


@dataclass(frozen=True, slots=True)
class _Growth:
    """Memory that grows by ``each`` byte a step, to ``last`` bytes, from ``begin`` (ns) to ``end``, the ends
    of the first and the last judged step; the last judged step begins at ``until``."""

    process: int | None
    device: int | None
    begin: int
    until: int
    end: int
    steps: int
    each: float
    total: float
    last: float
    exact: bool


def _judge(value: Floats, least: float) -> float | None:
    """Return the growth (bytes) of the values from the first quarter to the last; None if they do not grow in
    each."""
    parts = [float(np.median(part)) for part in np.array_split(value, 4)]
    grew = parts[-1] - parts[0]
    steady = np.diff(parts).min() >= _EVEN * grew / 3
    return grew if steady and grew * 4 / 3 >= least else None


def _allocated(answers: Answers) -> list[_Growth] | str | None:
    """Return the growth of the memory that ops allocated, or the reason why it is not known; None if that
    memory was not recorded."""
    table = answers.memory_steps().filter(pl.col("in_use").is_not_null())
    if table.is_empty():
        return None
    grown, judged_any = [], False
    for (process, device), part in table.group_by("process", "device", maintain_order=True):
        part = part.sort("start")
        judged = part[int(_SETTLES * len(part)) :]
        if len(judged) < FEWEST:
            continue
        judged_any = True
        value = judged["in_use"].to_numpy().astype(np.float64)
        grew = _judge(value, LEAST)
        # in a program whose batches differ in size, it goes up and down
        up = float((np.diff(value) > 0).mean())
        if grew is None or up < 1 / 2:
            continue
        grown.append(_growth(process, device, judged, grew, float(value[-1]), exact=True))
    if not judged_any:
        return (
            f"memory was recorded in fewer than {FEWEST} steps, those in which it settles left out"
        )
    return grown


def _growth(
    process: Any, device: Any, judged: pl.DataFrame, grew: float, last: float, exact: bool
) -> _Growth:
    steps = len(judged)
    # from the middle of the first quarter to the middle of the last
    quarters = [len(part) for part in np.array_split(np.arange(steps), 4)]
    each = grew / (steps - (quarters[0] + quarters[3]) / 2)
    begin, until, end = (
        int(judged[name][n]) for name, n in (("start", 0), ("start", -1), ("end", -1))
    )
    return _Growth(process, device, begin, until, end, steps, each, each * steps, last, exact)


def _resident(answers: Answers) -> list[_Growth] | str:
    """Return the processes whose resident memory grows, or the reason why that is not known."""
    steps = marked_steps(answers)
    if steps.is_empty():
        return NO_STEPS
    samples = answers.trace["samples"].filter(
        (pl.col("name").cast(pl.String) == PROCESS_MEMORY) & pl.col("value").is_not_null()
    )
    if samples.is_empty():
        return f"neither what ops allocate nor the process's memory was recorded: {_RECORD}"
    backends = answers.trace.origin.get("backends") or ()
    buffers = {str(each.get("backend")) for each in backends} - {_WRITES}
    if buffers:
        return (
            f"what was recorded ({', '.join(sorted(buffers))}) was kept in the process's memory, which grows"
            f" by it: {_RECORD}, or `opscope run --backend {_WRITES}` keeps nothing"
        )
    grown, judged_any = [], False
    for (process,), part in steps.group_by("process", maintain_order=True):
        part = part.sort("start")
        judged = part[int(_SETTLES * len(part)) :]
        mine = samples.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32))).sort("time")
        time, value = mine["time"].to_numpy(), mine["value"].to_numpy()
        begin, end = judged["start"].min(), judged["end"].max()
        inside = (time >= begin) & (time <= end)
        # samples must be spread over the steps
        at: Ints = np.searchsorted(judged["start"].to_numpy(), time[inside], side="right")
        if min(len(judged), len(np.unique(at))) < _FEWEST_READ:
            continue
        judged_any = True
        by_step = np.array([value[inside][at == n].max() for n in np.unique(at)])
        grew = _judge(by_step, max(_PROCESS, _PART * float(by_step[0])))
        line = np.corrcoef(np.arange(len(by_step)), by_step)[0, 1] if grew is not None else 0.0
        if grew is not None and line**2 >= _LINE:
            grown.append(_growth(process, None, judged, grew, float(by_step[-1]), exact=False))
    if not judged_any:
        return f"the process's memory was read in fewer than {_FEWEST_READ} steps: {_RECORD}"
    return grown


def _kept_since(grown: list[_Growth]) -> Any:
    """Return the function that makes the table (``_ROWS``) of the memory that the judged steps allocated and
    kept."""
    wanted = [growth for growth in grown if growth.exact]

    def make(ops: Ops, changes: pl.DataFrame) -> pl.DataFrame:
        every = blocks(changes.drop("op_row"))
        op_row = changes["op_row"].to_numpy()
        parts = [pl.DataFrame(schema=_ROWS)]
        for growth in wanted:
            mine = every.filter(
                pl.col("process").eq_missing(pl.lit(growth.process, pl.Int32)),
                pl.col("device").eq_missing(pl.lit(growth.device, pl.Int32)),
                pl.col("row").is_not_null(),
                pl.col("start").is_between(growth.begin, growth.until, closed="left"),
                pl.col("end").fill_null(_NEVER) >= growth.end,
            )
            if mine.is_empty():
                continue
            process = NONE if growth.process is None else growth.process
            about = ops.identify(op_row[mine["row"].to_numpy()].astype(np.int64))
            where = (
                np.full(len(mine), process),
                mine["thread"].fill_null(NONE).to_numpy(),
                mine["start"].to_numpy(),
            )
            parts.append(
                pl.DataFrame(
                    {
                        "process": pl.Series([growth.process] * len(mine), dtype=pl.Int32),
                        "device": pl.Series([growth.device] * len(mine), dtype=pl.Int32),
                        "op": about.call["op"].cast(pl.String),
                        "direction": about.direction.cast(pl.String),
                        "layer": first(about.layer, ops.context.layer(*where)).cast(pl.String),
                        "source": first(about.source, ops.context.source(*where)).cast(pl.String),
                        "count": 1,
                        "bytes": mine["bytes"],
                    },
                    schema_overrides=_ROWS,
                )
            )
        keys = [name for name in _ROWS if name not in ("count", "bytes")]
        every_part = pl.concat(parts).group_by(keys, maintain_order=True)
        return every_part.agg(pl.col("count", "bytes").sum()).sort("bytes", descending=True)

    return make


def _finding(answers: Answers, growth: _Growth, kept: pl.DataFrame | None) -> Finding:
    mine = None
    if kept is not None:
        mine = kept.filter(
            pl.col("process").eq_missing(pl.lit(growth.process, pl.Int32)),
            pl.col("device").eq_missing(pl.lit(growth.device, pl.Int32)),
        )
    lines = (
        mine.filter(pl.col("source").is_not_null())
        .group_by("source", maintain_order=True)
        .agg(pl.col("bytes").sum())
        .sort("bytes", descending=True)
        if mine is not None
        else pl.DataFrame()
    )
    at = f" at {lines['source'][0].split(' < ')[0]}" if len(lines) else ""
    whose = "the process's memory"
    if growth.exact:
        on = "the CPU" if growth.device == -1 else f"device {growth.device}"
        whose = f"what ops allocate on {on}"
    where = "; ".join(
        f"{op or 'outside any op'}{'' if source is None else ' at ' + source.split(' < ')[0]}:"
        f" {size(bytes_kept)} in {count:,} blocks"
        for op, source, count, bytes_kept in (
            mine.head(3).select("op", "source", "count", "bytes").rows() if mine is not None else ()
        )
    )
    if not growth.exact:
        where = f"resident memory of the process as its steps began; {_RECORD}"
    rows = None
    if mine is not None and len(mine):
        shown = mine.with_columns(pl.format("{} bytes kept", "bytes").alias("detail"))
        names = ("op", "direction", "layer", "source", "process", "count", "detail")
        rows = with_rest(shown.select(pl.col(name).cast(EVIDENCE[name]) for name in names))
    return Finding(
        what=f"{whose} grows by {size(growth.each)} a step{at}: by {size(growth.total)} in"
        f" {growth.steps:,} steps, to {size(growth.last)}",
        evidence=where or "no block that was kept could be paired with its op",
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=0,
        saving_least=0,
        saving_most=0,
        saving=0,
        reasoning="memory_steps(): in_use as each step ended; without it the samples of the process's memory."
        f" The first quarter of the steps is left out; it grows in each quarter of the others by {_EVEN:g} of"
        " an even share at least, which caches that fill do not. No time is saved: memory runs out once the"
        " program runs for long. A buffer that is meant to fill looks the same.",
        confidence="high" if growth.exact else "medium",
        of="run",
        stands_out=True,
        rows=rows,
    )


DETECTOR = Detector(
    name="memory_growth",
    question="Does memory grow from step to step?",
    find=find,
    fires="growth in each quarter of six steps or more, of 1 MiB in all where memory was recorded, else of"
    " twelve steps, near a line, of 8 MiB and 2 % of the process's memory",
    looks_at="memory_steps(): what was in use as each step ended, and the blocks that later steps allocated"
    " and that were still in use as the last ended, by op and line. Where memory was not recorded: samples of"
    " the process's resident memory, which opscope also reads as steps begin.",
    abstains="Without steps; where neither memory nor samples of it were recorded, or in fewer than six steps"
    " (the process's: twelve) after the first quarter.",
)

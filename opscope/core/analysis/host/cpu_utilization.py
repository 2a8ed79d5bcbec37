"""The use of the processors: by the machine, each process, each step and each op, from samples.

A sample holds from the previous sample of its name to its own time (``schema.MACHINE_CPU``). A mean over an
interval weights each sample by the part of the interval in which it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.host.input_waits import ended
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.schema import (
    CHILDREN_CPU,
    MACHINE_CPU,
    PROCESS_CPU,
    PROCESS_MEMORY,
    PROCESS_THREADS,
    PROCESSORS,
)
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.trace import Trace

#: An op's mean needs at least this many samples.
LEAST: Final = 3
FEW: Final = f"fewer than {LEAST} samples while it ran"
NO_SAMPLES: Final = "no sample of the processors lies in it"
OUTSIDE: Final = "outside any op of the process"
#: Columns of utilization: the samples' name, and the factor from the column's unit to the samples' unit.
_MEANS: Final[Mapping[str, tuple[str, float]]] = {
    "machine": (MACHINE_CPU, 100.0),
    "cores": (PROCESS_CPU, 100.0),
    "child_cores": (CHILDREN_CPU, 100.0),
}
WHOLE: Final = {
    "process": pl.Int32,
    "samples": pl.Int64,
    "sampled_time": pl.Int64,
    "machine": pl.Float64,
    "machine_max": pl.Float64,
    "cores": pl.Float64,
    "cores_max": pl.Float64,
    "process_share": pl.Float64,
    "child_cores": pl.Float64,
    "processors": pl.Int64,
    "threads": pl.Int64,
    "peak_process_memory": pl.Int64,
}
CURVE: Final = {
    "process": pl.Int32,
    "start": pl.Int64,
    "end": pl.Int64,
    "machine": pl.Float64,
    "cores": pl.Float64,
    "process_memory": pl.Int64,
}
BY_STEP: Final = {
    "process": pl.Int32,
    "thread": pl.Int64,
    "step": pl.Int64,
    "start": pl.Int64,
    "duration": pl.Int64,
    "samples": pl.Int64,
    "machine": pl.Float64,
    "cores": pl.Float64,
    "child_cores": pl.Float64,
    "reason": pl.String,
}
BY_OP: Final = {
    "process": pl.Int32,
    "op": pl.String,
    "direction": pl.String,
    "samples": pl.Int64,
    "machine": pl.Float64,
    "cores": pl.Float64,
    "reason": pl.String,
}

#: The columns of ops that ``cpu_by_op`` needs.
OPS: Final = {
    "process": pl.Int32,
    "thread": pl.Int64,
    "op": pl.String,
    "direction": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
}
Floats = NDArray[np.float64]


class Held:
    """The samples of one name and process, each with the interval in which it holds (ns)."""

    def __init__(self, time: Ints, value: Floats) -> None:
        """``time``: ascending; ``value``: NaN begins the first interval, and any after an interruption."""
        is_sampled = ~np.isnan(value[1:]) & (time[1:] > time[:-1])
        self.start: Ints = time[:-1][is_sampled]
        self.end: Ints = time[1:][is_sampled]
        self.value: Floats = value[1:][is_sampled]
        length = (self.end - self.start).astype(np.float64)
        self._edges: Ints = np.stack([self.start, self.end], axis=1).ravel()
        zero = np.zeros_like(length)
        self._covered = np.cumsum(np.stack([zero, length], axis=1).ravel())
        self._area = np.cumsum(np.stack([zero, length * self.value], axis=1).ravel())

    def mean(self, start: Ints, end: Ints) -> tuple[Floats, Ints]:
        """Return the mean over each interval, NaN where no sample holds in it, and how many do."""
        if not len(self.start):
            return np.full(len(start), np.nan), np.zeros(len(start), np.int64)
        origin = self._edges[0]
        edges = (self._edges - origin).astype(np.float64)
        low, high = (start - origin).astype(np.float64), (end - origin).astype(np.float64)
        covered = np.interp(high, edges, self._covered) - np.interp(low, edges, self._covered)
        area = np.interp(high, edges, self._area) - np.interp(low, edges, self._area)
        counts = np.searchsorted(self.start, end, side="left") - np.searchsorted(
            self.end, start, side="right"
        )
        mean = np.full(len(start), np.nan)
        np.divide(area, covered, out=mean, where=(covered > 0) & (counts > 0))
        return mean, np.where(covered > 0, np.maximum(counts, 0), 0).astype(np.int64)


def held(trace: Trace, name: str) -> dict[int, Held]:
    """Return the samples of a name by process (-1: not known)."""
    samples = trace["samples"].filter(
        (pl.col("name").cast(pl.String) == name) & pl.col("device").is_null()
    )
    samples_of_process = {}
    for (process,), part in samples.sort("time", maintain_order=True).group_by("process"):
        time = part["time"].to_numpy()
        value = part["value"].fill_null(float("nan")).to_numpy()
        samples_of_process[NONE if process is None else int(process)] = Held(time, value)
    return samples_of_process


def _points(trace: Trace, name: str, how: Any) -> dict[int, float]:
    samples = trace["samples"].filter(
        (pl.col("name").cast(pl.String) == name) & pl.col("value").is_not_null()
    )
    rows = samples.group_by("process").agg(how).rows()
    return {NONE if process is None else process: value for process, value in rows}


def cpu_utilization(trace: Trace) -> pl.DataFrame:
    """Return one row per process that was sampled: process, samples, sampled_time (ns that the samples
    cover), machine (busy part of all processors), machine_max, cores (processors that the process used,
    mean), cores_max, process_share (cores / processors), child_cores, processors, threads (most),
    peak_process_memory (bytes, most resident). Null where not sampled."""
    machine, own, children = (held(trace, name) for name, _ in _MEANS.values())
    processors = _points(trace, PROCESSORS, pl.col("value").last())
    threads = _points(trace, PROCESS_THREADS, pl.col("value").max())
    memory = _points(trace, PROCESS_MEMORY, pl.col("value").max())
    rows = []
    for process in sorted(set(machine) | set(own)):
        busy, used, below = (samples.get(process) for samples in (machine, own, children))
        measured = [
            samples for samples in (used, busy) if samples is not None and len(samples.start)
        ]
        if not measured:
            continue
        cores, processor_count = _mean(used), processors.get(process)
        rows.append(
            {
                "process": None if process == NONE else process,
                "samples": len(measured[0].start),
                "sampled_time": int((measured[0].end - measured[0].start).sum()),
                "machine": _mean(busy),
                "machine_max": _most(busy),
                "cores": cores,
                "cores_max": _most(used),
                "process_share": cores / processor_count
                if cores is not None and processor_count
                else None,
                "child_cores": _mean(below),
                "processors": processor_count,
                "threads": threads.get(process),
                "peak_process_memory": memory.get(process),
            }
        )
    frame = pl.DataFrame(rows, schema=dict.fromkeys(WHOLE, pl.Float64) if rows else WHOLE)
    return frame.cast(WHOLE).select(*WHOLE)  # type: ignore[arg-type]


def _mean(samples: Held | None) -> float | None:
    if samples is None or not len(samples.start):
        return None
    length = samples.end - samples.start
    return float((samples.value * length).sum() / length.sum() / 100)


def _most(samples: Held | None) -> float | None:
    return None if samples is None or not len(samples.start) else float(samples.value.max() / 100)


def cpu_samples(trace: Trace) -> pl.DataFrame:
    """Return one row per sample: process, start and end (ns) of the time in which it holds, machine, cores,
    process_memory (bytes at the end)."""
    parts = [pl.DataFrame(schema=CURVE)]
    machine, own = held(trace, MACHINE_CPU), held(trace, PROCESS_CPU)
    memory = trace["samples"].filter(pl.col("name").cast(pl.String) == PROCESS_MEMORY)
    for process in sorted(set(machine) | set(own)):
        frames = [
            pl.DataFrame({"start": samples.start, "end": samples.end, name: samples.value / 100})
            for name, samples in (("machine", machine.get(process)), ("cores", own.get(process)))
            if samples is not None
        ]
        joined = (
            frames[0]
            if len(frames) == 1
            else frames[0].join(frames[1], on=["start", "end"], how="full", coalesce=True)
        )
        here = memory.filter(pl.col("process").fill_null(NONE) == process)
        resident = here.select(pl.col("time").alias("end"), pl.col("value").alias("process_memory"))
        joined = joined.join(resident.unique("end"), on="end", how="left").with_columns(
            pl.lit(None if process == NONE else process).alias("process"),
            *(
                pl.lit(None).alias(name)
                for name in ("machine", "cores")
                if name not in joined.columns
            ),
        )
        parts.append(joined.select(*CURVE).cast(CURVE))  # type: ignore[arg-type]
    return pl.concat(parts).sort("process", "start")


def cpu_by_step(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per step (process, thread, step, start, end, in ns) with the means over it: samples,
    machine, cores, child_cores. Null with the reason where no sample holds in it."""
    parts = [pl.DataFrame(schema=BY_STEP)]
    series = {name: held(trace, of) for name, (of, _) in _MEANS.items()}
    for (process,), part in steps.group_by("process", maintain_order=True):
        start, end = part["start"].to_numpy(), part["end"].to_numpy()
        key = NONE if process is None else int(process)
        columns: dict[str, Any] = {}
        counts = np.zeros(len(part), np.int64)
        for name, by_process in series.items():
            samples = by_process.get(key)
            mean, least = (
                (np.full(len(part), np.nan), counts)
                if samples is None
                else samples.mean(start, end)
            )
            columns[name] = pl.Series(mean / _MEANS[name][1], dtype=pl.Float64).fill_nan(None)
            if name != "child_cores":  # sampled more rarely
                counts = np.maximum(counts, least)
        parts.append(
            part.select(
                "process",
                "thread",
                "step",
                "start",
                (pl.col("end") - pl.col("start")).alias("duration"),
            )
            .with_columns(
                pl.Series("samples", counts),
                *(column.alias(name) for name, column in columns.items()),
                pl.when(pl.Series(counts == 0)).then(pl.lit(NO_SAMPLES)).alias("reason"),
            )
            .select(*BY_STEP)
            .cast(BY_STEP)  # type: ignore[arg-type]
        )
    return pl.concat(parts).sort("process", "start", "thread")


def cpu_by_op(trace: Trace, ops: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, op and direction that samples fall into, the most samples first.

    ``ops``: the profile's ops. The op is the innermost open on each thread at the middle of the time in which
    the sample holds. samples: how many; machine, cores: their means, null with the reason from fewer than
    ``LEAST``. A sample during which no thread was in an op counts in the row without an op.
    """
    ops = ops.select(*OPS).with_columns(pl.col("process", "thread").fill_null(NONE))
    parts = [pl.DataFrame(schema=BY_OP)]
    machine = held(trace, MACHINE_CPU)
    for process, one in sorted(held(trace, PROCESS_CPU).items()):
        if not len(one.start):
            continue
        middle = (one.start + one.end) // 2
        mine = ops.filter(pl.col("process") == process)
        busy = machine.get(process)
        machine_share = (
            np.full(len(middle), np.nan) if busy is None else busy.mean(one.start, one.end)[0]
        )
        parts_of_thread = [_open(mine, middle)]
        idle = np.flatnonzero(
            ~np.isin(np.arange(len(middle)), parts_of_thread[0]["sample"].to_numpy())
        )
        parts_of_thread.append(
            pl.DataFrame({"sample": idle}, schema={"sample": pl.Int64}).with_columns(
                pl.lit(None, pl.String).alias("op"), pl.lit(None, pl.String).alias("direction")
            )
        )
        samples = pl.concat(parts_of_thread)
        index = samples["sample"].to_numpy()
        samples = samples.with_columns(
            pl.Series("machine", machine_share[index] / 100, dtype=pl.Float64).fill_nan(None),
            pl.Series("cores", one.value[index] / 100, dtype=pl.Float64),
        )
        enough = pl.len() >= LEAST
        parts.append(
            samples.group_by("op", "direction")
            .agg(
                pl.len().cast(pl.Int64).alias("samples"),
                pl.when(enough).then(pl.col("machine").mean()).alias("machine"),
                pl.when(enough).then(pl.col("cores").mean()).alias("cores"),
            )
            .with_columns(
                pl.lit(None if process == NONE else process, pl.Int32).alias("process"),
                pl.when(pl.col("samples") < LEAST)
                .then(pl.lit(FEW))
                .when(pl.col("op").is_null())
                .then(pl.lit(OUTSIDE))
                .alias("reason"),
            )
            .select(*BY_OP)
        )
    table = pl.concat(parts)
    return table.sort(
        "process",
        "samples",
        "op",
        "direction",
        descending=[False, True, False, False],
        nulls_last=True,
    )


def _open(ops: pl.DataFrame, time: Ints) -> pl.DataFrame:
    """Return the ops open at the times: sample (the time's place), op, direction; a row per thread."""
    parts = [pl.DataFrame(schema={"sample": pl.Int64, "op": pl.String, "direction": pl.String})]
    for _, part in ops.group_by("thread", maintain_order=True):
        rows = nest(part["start"].to_numpy(), part["end"].to_numpy()).innermost(time)
        hit = np.flatnonzero(rows >= 0)
        named = part[rows[hit]].select(pl.col("op", "direction").cast(pl.String))
        parts.append(named.select(pl.Series("sample", hit.astype(np.int64)), "op", "direction"))
    return pl.concat(parts)


def answer(profile: Answers) -> pl.DataFrame:
    """The use of the processors while each process was sampled: by the machine, and by the process
    itself.

    Empty if nothing was sampled.
    """
    return cpu_utilization(profile.trace)


_EMPTY = (
    "the processors were not sampled: opscope samples them from 0.2 s of a recording on, unless psutil"
    " is missing or --samples 0 says not to"
)


def answer_samples(profile: Answers) -> pl.DataFrame:
    """The processors over time: each sample, with the time in which it holds."""
    return cpu_samples(profile.trace)


def answer_by_step(profile: Answers) -> pl.DataFrame:
    """The use of the processors during each step, from the samples that hold in it.

    A step shorter than the time between two samples has the mean of the sample in which it lies.
    """
    steps = ended(profile.attribution.trace, profile.attribution.meaning)
    return cpu_by_step(profile.trace, steps)


def answer_by_op(profile: Answers) -> pl.DataFrame:
    """The use of the processors while an op ran, for ops in which at least three samples fall.

    An op shorter than the time between two samples shares the sample with its neighbours.
    """
    sampled = len(profile.trace["samples"]) > 0
    ops = profile.of(op_rows) if sampled else pl.DataFrame(schema=OPS)
    return cpu_by_op(profile.trace, ops)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "cpu_utilization()",
                "one row per process that was sampled; means are over the time that the samples cover",
                columns(
                    "process samples sampled_time machine machine_max cores cores_max "
                    "process_share child_cores processors threads peak_process_memory",
                    """
                    machine_max: fraction: largest value of machine in a sample
                    cores_max: fraction: largest value of cores in a sample
                    process_share: fraction: cores / processors
                    processors: count: logical processors of the machine
                    threads: count: most threads that the process had
                    peak_process_memory: bytes: most resident memory of the process in any sample
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="cpu_utilization",
                title="CPU utilization",
                empty=_EMPTY,
                forms=[
                    Column("cores", "cores", units.ratio),
                    Column("cores_max", "cores max", units.ratio),
                    Column("child_cores", "child cores", units.ratio),
                ],
                aliases=["cpu"],
            ),
        ),
    ),
    Question(
        answer=answer_samples,
        frames=(
            Frame(
                "cpu_samples()",
                "one row per process and sample, in order of time",
                columns(
                    "process start end machine cores process_memory",
                    """
                    start: ns: time of the sample before, from which on this one holds
                    end: ns: time of the sample
                    process_memory: bytes: resident memory of the process
                    """,
                ),
            ),
        ),
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="cpu_samples",
                title="CPU utilization over time",
                empty=(
                    "the processors were not sampled: opscope samples them from 0.2 s of a recording "
                    "on, unless psutil"
                    " is missing or --samples 0 says not to"
                ),
                forms=[Column("cores", "cores", units.ratio)],
                sums="",
                written=False,
            ),
        ),
    ),
    Question(
        answer=answer_by_step,
        frames=(
            Frame(
                "cpu_by_step()",
                "one row per step that ended, in order of time; means are over the step",
                columns(
                    "process thread step start duration samples machine cores child_cores reason",
                    """
                    duration: ns: time of the step
                    samples: count: samples that hold in a part of the step
                    reason: text: why it is not known what the processors did
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="cpu_by_step",
                title="CPU utilization by step",
                empty="no step in this profile: optimizers mark steps, and so does opscope.step()",
                shown="process step duration samples machine cores child_cores reason",
                forms=[
                    Column("cores", "cores", units.ratio),
                    Column("child_cores", "child cores", units.ratio),
                ],
                written=False,
            ),
        ),
    ),
    Question(
        answer=answer_by_op,
        frames=(
            Frame(
                "cpu_by_op()",
                (
                    "one row per process, op and direction in which samples fall, the most samples "
                    "first; one more for samples outside any op"
                ),
                columns(
                    "process op direction samples machine cores reason",
                    """
                    samples: count: samples in whose middle the op was the innermost of a thread
                    reason: text: why the means are not known, or why there is no op
                    """,
                ),
            ),
        ),
        merged=lacking.MEDIANS,
        reports=(
            Report(
                name="cpu_by_op",
                title="CPU utilization by op",
                empty=(
                    "the processors were not sampled: opscope samples them from 0.2 s of a recording "
                    "on, unless psutil"
                    " is missing or --samples 0 says not to"
                ),
                forms=[Column("cores", "cores", units.ratio)],
            ),
        ),
    ),
)

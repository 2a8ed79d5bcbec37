"""Divide hardware counters that were sampled on whole devices among the kernels that ran meanwhile.

A sample covers all work on its device since the sample before. Its counts are divided among the kernels that
ran in it, by their time in it; the rate of a kernel is the mean rate of the device during its time. So two
simultaneous kernels have equal rates, and equal counts if they took equally long, because a sample cannot
distinguish them. Copies get no share, and a rate covers the whole sample, including idle time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.perf.counters import divides, known
from opscope.core.tables.columns import spread
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace, conform, next_range_id

Floats = NDArray[np.float64]
#: Limits for a device: parts of kernels in samples, and values of kernels (some 2 GB and 1 GB).
MOST_PARTS: Final = 30_000_000
MOST_VALUES: Final = 20_000_000
#: A time that is not known.
UNKNOWN: Final = -(1 << 63)
#: The domain of the marks of kernels, and the name of the mark for samples without a kernel.
DOMAIN: Final = "cuda_profiler_range"
IDLE: Final = "(no kernel)"


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one counter of a device, in order and without overlaps.

    ``start``: UNKNOWN for a sample of unknown length. ``value``: NaN if unknown. ``adds_up``: whether values
    are counts, which are divided; others are rates.
    """

    name: str
    start: Ints
    end: Ints
    value: Floats
    adds_up: bool


@dataclass(slots=True)
class Shares:
    """The share of each kernel in the samples of a device, in parallel arrays.

    ``kernel``: its row in the input; ``counter``: the place of the series. ``idle``: per series the sum, or
    the mean by time, of the samples that belong to no kernel, if there are any. ``idle_samples``: their
    number; ``partly``: number of kernels that ran partly outside samples or in unknown ones; ``refused``:
    series that are not divided, because there are too many kernels or samples.
    """

    kernel: list[NDArray[np.signedinteger[Any]]] = field(default_factory=list)
    counter: list[Ints] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)
    idle: dict[int, float] = field(default_factory=dict)
    idle_samples: int = 0
    partly: int = 0
    refused: int = 0


def begins(end: Ints) -> Ints:
    """Return the start of each sample, given the ends in order; UNKNOWN if that is not known.

    A sample begins at the end of the one before. Samplers have a fixed interval, so if the previous sample
    ended more than two median intervals before, samples were lost in between. Such a sample, and the first
    one, are taken to last the median.
    """
    steps = np.diff(end)
    if not (steps > 0).any():
        return np.full(len(end), UNKNOWN, np.int64)
    usual = int(np.median(steps[steps > 0]))
    steps = np.append(usual, np.where(steps > 2 * usual, usual, steps))
    starts: Ints = np.where(steps > 0, end - steps, UNKNOWN)
    return starts


def divide(series: Sequence[Series], start: Ints, end: Ints) -> Shares:
    """Divide the samples of one device among its kernels, given their ``start`` and ``end`` (ns). If a
    count is a whole number below 2**53, its shares are whole numbers that add up to it exactly.
    """
    shares = Shares()
    grids: dict[tuple[bytes, bytes], list[int]] = {}
    for place, counter in enumerate(series):
        grids.setdefault((counter.start.tobytes(), counter.end.tobytes()), []).append(place)
    partly = np.zeros(len(start), bool)
    values = 0
    for places in grids.values():
        grid = series[places[0]]
        parts = _parts(grid.start, grid.end, start, end)
        if parts is None:
            shares.refused += len(places)
            continue
        kernels = np.unique(parts.kernel)
        partly[kernels] |= parts.inside[kernels] < (end - start)[kernels]
        idle = np.bincount(parts.sample, minlength=len(grid.start)) == 0
        values_idle = [series[place].value[idle] for place in places]
        stated = np.isfinite(np.array(values_idle)).any(axis=0)
        shares.idle_samples = max(shares.idle_samples, int(stated.sum()))
        for place in places:
            values += len(kernels)
            if values > MOST_VALUES:
                shares.refused += 1
                continue
            _share(shares, place, series[place], parts, idle, partly)
    got = np.zeros(len(start), bool)
    for kernels in shares.kernel:
        got[kernels] = True
    shares.partly = int((partly & got).sum())
    return shares


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of kernels in samples, by sample. ``begins``: the first part of a sample; ``until``: the
    cumulative time of a sample's parts, including each, as a share of their total; ``inside``: a kernel's
    time in samples."""

    sample: Ints
    kernel: Ints
    time: Ints
    begins: NDArray[np.bool_]
    until: Floats
    inside: Ints


def _parts(low: Ints, high: Ints, start: Ints, end: Ints) -> _Parts | None:
    """Return the parts of kernels in samples; None if there are too many."""
    timed = np.flatnonzero(low != UNKNOWN)
    low, high = low[timed], high[timed]
    first = np.searchsorted(high, start, side="right")
    count = np.maximum(np.searchsorted(low, end, side="left") - first, 0)
    count[end <= start] = 0
    total = int(count.sum())
    if total > MOST_PARTS:
        return None
    kernel = np.repeat(np.arange(len(start)), count)
    sample = np.arange(total) + np.repeat(first - (np.cumsum(count) - count), count)
    order = np.argsort(sample, kind="stable")
    kernel, sample = kernel[order], sample[order]
    time = np.minimum(high[sample], end[kernel]) - np.maximum(low[sample], start[kernel])
    begins = np.ones(total, bool)
    begins[1:] = sample[1:] != sample[:-1]
    run = np.cumsum(begins) - 1
    until = np.cumsum(time)
    before = (until - time)[begins]
    whole = np.add.reduceat(time, np.flatnonzero(begins)) if total else time
    share = (until - before[run]) / whole[run] if total else np.zeros(0)
    inside = np.zeros(len(start), np.int64)
    np.add.at(inside, kernel, time)
    return _Parts(timed[sample], kernel, time, begins, share, inside)


def _share(
    shares: Shares,
    place: int,
    series: Series,
    parts: _Parts,
    idle: NDArray[np.bool_],
    partly: NDArray[np.bool_],
) -> None:
    """Add the shares of the kernels in a series."""
    value = series.value[parts.sample]
    stated = np.isfinite(value)
    partly[parts.kernel[~stated]] = True
    size = len(partly)
    used = np.bincount(parts.kernel[stated], minlength=size) > 0
    if series.adds_up:
        weights = _counts(value, parts)[stated]
    else:
        weights = parts.time[stated] * value[stated]
    total: Floats = np.bincount(parts.kernel[stated], weights, size).astype(np.float64)
    if not series.adds_up:
        time = np.bincount(parts.kernel[stated], parts.time[stated], size)
        total = np.divide(total, time, out=total, where=time > 0)
    kernels = np.flatnonzero(used & np.isfinite(total))
    shares.kernel.append(kernels)
    shares.counter.append(np.full(len(kernels), place))
    shares.value.append(total[kernels])
    alone = idle & np.isfinite(series.value)
    if not alone.any():
        return
    if series.adds_up:
        shares.idle[place] = math.fsum(series.value[alone].tolist())
        return
    long = np.where(series.start == UNKNOWN, 0, series.end - series.start)[alone].astype(np.float64)
    if long.sum() > 0:
        shares.idle[place] = float(np.average(series.value[alone], weights=long))


def _counts(value: Floats, parts: _Parts) -> Floats:
    """Return each part's share of its sample's count.

    The cumulative count is rounded to a multiple of the last digit of the sample's value (of 1 for whole
    numbers), so that the differences are exact in any order of addition.
    """
    digit = np.abs(np.spacing(value))
    digit = np.where((np.rint(value) == value) & (digit < 1), 1.0, digit)
    with np.errstate(invalid="ignore", over="ignore"):  # unknown values
        until = np.rint(value * parts.until / digit) * digit
    before = np.zeros(len(until))
    before[1:] = np.where(parts.begins[1:], 0.0, until[:-1])
    counts: Floats = until - before
    return counts


def with_shares(trace: Trace) -> Trace:
    """Return the trace with the kernels' shares of the device samples in ``counters``.

    Kernels that share a correlation id get marks in ``ranges``. Each device also gets a mark for samples
    without kernels or of unknown time. Notes explain the division. Without kernels, nothing changes.
    """
    samples = trace["samples"].filter(pl.col("device").is_not_null())
    names = samples["name"].unique(maintain_order=True).drop_nulls().cast(pl.String).to_list()
    kinds = {name: kind for name in names if (kind := divides(name)) is not None}
    if not kinds:
        return trace
    samples = samples.with_columns(pl.col("name").cast(pl.String))
    samples = samples.filter(pl.col("name").is_in(list(kinds))).sort("device", "name", "time")
    kernels = trace["kernels"].with_columns(
        (
            (pl.len().over("process", "correlation") == 1) & pl.col("correlation").is_not_null()
        ).alias("own")
    )
    if kernels.is_empty():
        message = (
            "hardware counters were sampled, and no kernels recorded: they are known by time alone"
        )
        trace.note("info", message, len(kinds))
        return trace
    samplers = samples.select("process", "device").unique()["device"]
    several = samplers.filter(samplers.is_duplicated()).to_list()
    counters, ranges = [trace["counters"]], [trace["ranges"]]
    free = next_range_id(trace["ranges"])
    for (process, device), part in samples.group_by("process", "device", maintain_order=True):
        series = []
        for (name,), own in part.group_by("name", maintain_order=True):
            end = own["time"].to_numpy()
            value = own["value"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            series.append(Series(str(name), begins(end), end, value, kinds[str(name)]))
        # counters that make up FLOPs and bytes come first, in case there are too many
        series.sort(key=lambda counter: (known(counter.name) is None, counter.name))
        mine = kernels.filter((pl.col("device") == device) & (pl.col("end") > pl.col("start")))
        if device in several:  # each process sampled the device by itself
            mine = mine.filter(pl.col("process") == process)
        shares = divide(series, mine["start"].to_numpy(), mine["end"].to_numpy())
        table, marks = _tables(shares, series, mine, process, int(str(device)), free)
        counters.append(conform("counters", table))
        ranges.append(conform("ranges", marks))
        free += len(marks)
        _note(trace, shares, int(str(device)), mine)
    return trace.replace(counters=pl.concat(counters), ranges=pl.concat(ranges))


def _tables(
    shares: Shares,
    series: list[Series],
    kernels: pl.DataFrame,
    process: Any,
    device: int,
    free: int,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return ``counters`` of a device's kernels, and the marks that some need, with ids from ``free``."""
    nothing = np.zeros(0, np.int64)
    row = np.concatenate(shares.kernel or [nothing])
    counter = np.concatenate(shares.counter or [nothing])
    value = np.concatenate(shares.value or [np.zeros(0)])
    used = np.unique(row)
    unclear = used[~kernels["own"].to_numpy()[used]]
    ids = np.full(len(kernels), -1, np.int64)
    ids[unclear] = np.arange(free, free + len(unclear))
    named = kernels[unclear]
    names = [counter.name for counter in series]
    table = pl.DataFrame(
        {
            "process": kernels["process"].gather(row),
            "device": pl.Series(np.full(len(row), device)),
            "correlation": kernels["correlation"].gather(row),
            "range_id": pl.Series(ids[row]).replace(-1, None),
            "name": spread("name", names, counter),
            "value": value,
        }
    )
    marks = named.select(
        pl.Series("id", ids[unclear]), "process", "start", pl.col("start").alias("end"),
        pl.col("name").cast(pl.String).alias("text"),
    )  # fmt: skip
    if shares.idle:
        own = free + len(unclear)
        places = sorted(shares.idle)
        first = min(int(counter.end[0]) for counter in series)
        idle = {"id": own, "process": process, "start": first, "end": first, "text": IDLE}
        marks = pl.concat([marks, pl.DataFrame([idle], schema=marks.schema)])
        idle_values = pl.DataFrame(
            {
                "process": pl.Series([process] * len(places), dtype=pl.Int32),
                "device": [device] * len(places),
                "correlation": pl.Series([None] * len(places), dtype=pl.Int64),
                "range_id": [own] * len(places),
                "name": spread("name", names, np.array(places, np.int64)),
                "value": [shares.idle[place] for place in places],
            }
        )
        table = pl.concat([table, idle_values], how="vertical_relaxed")
    return table, marks.with_columns(domain=pl.lit(DOMAIN), kind=pl.lit("mark"))


def _note(trace: Trace, shares: Shares, device: int, kernels: pl.DataFrame) -> None:
    """Note which samples of a device were divided among kernels and which were not."""
    ran = len(np.unique(np.concatenate(shares.kernel))) if shares.kernel else 0
    about = f"hardware counters of device {device}"
    for severity, message, count in (
        (
            "info",
            f"{about} were sampled: divided among the kernels that ran in a sample, by their time in it",
            ran,
        ),
        (
            "warning",
            f"kernels of device {device} ran outside of all samples: they have no counters",
            len(kernels) - ran,
        ),
        (
            "info",
            f"{about}: samples in which no kernel ran, or whose length is not known, are no kernel's",
            shares.idle_samples,
        ),
        (
            "warning",
            f"{about}: kernels that ran partly outside of samples lack that part",
            shares.partly,
        ),
        (
            "warning",
            f"{about}: counters of too many kernels and samples were divided among none",
            shares.refused,
        ),
    ):
        if count:
            trace.note(severity, message, count)

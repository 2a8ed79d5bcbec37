"""Diagnose a training in words, from the measurements of light mode; and list questions that they cannot
answer. A finding has the share of the steps' time that it concerns, and the numbers that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.host.in_words import NEAR, borderline, ns, size
from opscope.core.analysis.host.in_words import share as said
from opscope.core.analysis.host.light import quantile, ranks
from opscope.core.light_format import PHASES
from opscope.core.schema import MACHINE_CPU, PROCESS_MEMORY
from opscope.core.tables.trace import Trace

FINDINGS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "finding": pl.String,
    "share": pl.Float64,
    "of": pl.String,
    "lost": pl.Int64,
    "text": pl.String,
    "to_try": pl.String,
    "detector": pl.String,
    "confidence": pl.String,
}
#: What a share refers to.
MEDIAN: Final = "a median step"
STEPS: Final = "all steps"
WALL: Final = "all of the wall time"
CANNOT_TELL: Final = "cannot tell"
#: The text if there are no findings.
NOTHING: Final = "nothing found"
#: The first advice for each finding.
_TO_TRY: Final = {
    "input-bound": "more loader processes and prefetching, so that the next batch is ready",
    "waiting for other ranks": "opscope report FILE --reports light: which rank is late",
    "slow start": "nothing, if the training is long: it is paid once",
    "uneven steps": "opscope report FILE --reports light_steps: what the slowest steps have in common",
    "slow spells": "what else ran on the machine then: checkpoints, evaluation, other programs",
    "steps become slower": "what grows: lists of losses, caches, graphs that a loss keeps alive",
    "growing memory": "del or detach what each step keeps, such as losses that hold their graphs",
    "throttled GPU": "power and cooling: nvidia-smi -q -d PERFORMANCE",
    "time outside of phases": "read losses, log and save less often",
    "straggler": "what this rank has more of: its share of the data, its input, its machine",
    CANNOT_TELL: "opscope run --steps 20:30 -- python train.py",
}
#: The advice for slow input if all processors are busy.
_FULL: Final = "cheaper work for each sample, or processors that nothing else uses"
#: A step that waits for its input, or for other ranks, for more than this share of its time is a finding.
BOUND: Final = 0.05
#: A step or a block that takes longer than this many times the median is slow.
SLOW: Final = 1.5
#: Smallest share of the time lost to uneven steps and slow spells that is reported.
WORTH: Final = 0.02
#: Smallest share of a step by which a drift, or a late rank, is reported.
DRIFT: Final = 0.1
#: The first steps, which are slow for reasons of their own.
STARTS: Final = 5
#: Fewest steps for which unevenness is judged.
LEAST: Final = 20
#: Smallest growth of memory that is reported: relative, and in bytes.
GROWTH: Final = 0.05
GROWTH_BYTES: Final = 50e6
#: Smallest time outside all phases that is reported.
OUTSIDE: Final = 0.3
#: The first part of a run, in which memory and steps settle, is left out of trends.
SETTLES: Final = 0.1
_NAMES: Final = {
    "input": "waiting for input",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "optimizer": "the optimizer",
    "collective": "collectives",
    "other": "what lies outside of the phases",
}
Floats = NDArray[np.float64]


def diagnosis(trace: Trace) -> tuple[list[dict[str, Any]], dict[str, Any], list[dict[str, Any]]]:
    """Return a row per finding (``FINDINGS``; ns), the most costly first, or a row that says that there is
    none; then what cannot be judged. ``lost``: how much shorter, at most, all steps together would be without
    the cause; null if unknown."""
    by_rank = dict(ranks(trace).rows())
    rows: list[dict[str, Any]] = []
    cannot_tell: list[dict[str, Any]] = []
    for totals_row in trace["light"].sort("process").to_dicts():
        process_diagnosis = _One(trace, totals_row)
        who = {"process": process_diagnosis.process, "rank": by_rank.get(process_diagnosis.process)}
        rows += [who | row for row in process_diagnosis.findings()]
        cannot_tell += [who | row for row in process_diagnosis.not_told()]
    rows += [{"process": None, "rank": None} | row for row in _late_ranks(trace, by_rank)]
    rows.sort(key=lambda row: -(row["lost"] or 0))
    none = _row(NOTHING, None, None, "the steps are even, and none of the known parts stands out")
    return rows, none | {"process": None, "rank": None}, _once(cannot_tell)


def _once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge rows of equal text; if they come from several processes, the merged row has none."""
    rows_by_text: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["text"] in rows_by_text:
            rows_by_text[row["text"]] |= {"process": None, "rank": None}
        else:
            rows_by_text[row["text"]] = row
    return list(rows_by_text.values())


def _row(finding: str, share: float | None, lost: float | None, text: str) -> dict[str, Any]:
    return {
        "finding": finding,
        "share": share,
        "of": None if share is None else STEPS,
        "lost": None if lost is None else round(lost),
        "text": text,
        "to_try": _TO_TRY.get(finding),
        "sure": True,
    }


def _sure(row: dict[str, Any], limit: float) -> dict[str, Any]:
    """Return the row, marked as borderline if its share exceeds the limit only slightly."""
    near = row["share"] <= NEAR * limit
    if not near:
        return row
    return row | borderline(row["finding"], row["text"], limit) | {"sure": False}


class _One:
    """The data of one process."""

    def __init__(self, trace: Trace, totals_row: Mapping[str, Any]) -> None:
        self.process: int = totals_row["process"]
        self.whole = totals_row
        mine = pl.col("process") == self.process
        self.blocks = trace["light_blocks"].filter(mine).sort("start")
        lengths = trace["light_lengths"].filter(mine)
        self.lengths = lengths.filter(pl.col("phase").cast(pl.String) == "step").sort("length")
        kept = trace["light_steps"].filter(mine)
        self.slowest = kept.filter(~pl.col("full")).sort("duration", descending=True)
        self.samples = trace["samples"].filter(mine & pl.col("value").is_not_null())
        self.steps = int(self.blocks["steps"].sum())
        self.total = int(self.blocks["duration"].sum())
        self.sums = {name: int(self.blocks[name].sum()) for name in PHASES}
        self.median = quantile(self.lengths, 0.5) or 0
        self.gpu = trace.used_gpu

    def findings(self) -> Iterator[dict[str, Any]]:
        if not self.total:
            return
        yield from self._waits()
        yield from self._uneven()
        yield from self._spells()
        yield from self._drift()
        yield from self._memory()
        yield from self._throttled()
        yield from self._outside()

    def _waits(self) -> Iterator[dict[str, Any]]:
        wait = self.sums["input"]
        if wait > BOUND * self.total:
            text = (
                f"the steps waited, on average, {ns(wait / self.steps)} of {ns(self.total / self.steps)} for"
                f" their input ({said(wait / self.total)} of all steps)"
            )
            to_try = _TO_TRY["input-bound"]
            cpu = self.samples.filter(pl.col("name").cast(pl.String) == MACHINE_CPU)
            busy = cpu["value"].mean()
            if isinstance(busy, float):
                text += f"; the machine's processors were {busy:.0f} % busy"
                text += (
                    ", so more workers would not help"
                    if busy > 90
                    else ": there is room for more workers"
                )
                to_try = _FULL if busy > 90 else to_try
            row = _row("input-bound", wait / self.total, wait, text) | {"to_try": to_try}
            yield _sure(row, BOUND)
        wait = self.sums["collective"]
        if wait > BOUND * self.total:
            row = _row(
                "waiting for other ranks",
                wait / self.total,
                wait,
                f"the steps spent {said(wait / self.total)} of their time in collectives that the program"
                " called itself: the transfer, and waiting for other ranks",
            )
            yield _sure(row, BOUND)

    def _uneven(self) -> Iterator[dict[str, Any]]:
        if self.steps < LEAST or not self.median:
            return
        slow = self.lengths.filter(pl.col("length") > SLOW * self.median)
        begin = self.slowest.sort("start").head(STARTS)
        begin = begin.filter(pl.col("duration") > SLOW * self.median)
        starting = float((begin["duration"] - self.median).sum())
        if starting > WORTH * self.total:
            yield _row(
                "slow start",
                starting / self.total,
                starting,
                f"the first steps took {ns(starting)} more than steps do later: what is compiled, allocated"
                " or read for the first time",
            )
        count = int(slow["steps"].sum()) - len(begin)
        lost = float(((slow["length"] - self.median) * slow["steps"]).sum()) - starting
        if lost < WORTH * self.total or count <= 0:
            return
        worst = self.slowest.join(begin, on="start", how="anti").head(count)
        mean = {name: self.sums[name] / self.steps for name in PHASES}
        more = {name: float((worst[name] - mean[name]).sum()) for name in PHASES}
        part = max(more, key=lambda name: more[name])
        first = worst.row(0, named=True)
        p99 = quantile(self.lengths, 0.99) or 0
        yield _row(
            "uneven steps",
            lost / self.total,
            lost,
            f"{count} of {self.steps} steps took more than {SLOW} times the median of {ns(self.median)}"
            f" and cost {said(lost / self.total)} of the time (99 of 100 take at most {ns(p99)});"
            f" the slowest, step {first['step']}, took {ns(first['duration'])}; most of it was"
            f" {_NAMES[part]}",
        )

    def _spells(self) -> Iterator[dict[str, Any]]:
        mean = self.blocks["duration"].to_numpy() / self.blocks["steps"].to_numpy()
        usual = float(np.median(mean))
        slow = np.flatnonzero(mean > SLOW * usual)
        # a block with a single slow step is an uneven step
        slow = slow[self.blocks["steps"].to_numpy()[slow] >= 3]
        seen = self.whole["spells"] or 0
        lost = float(((mean - usual) * self.blocks["steps"].to_numpy())[slow].sum())
        if not seen and (lost < WORTH * self.total or len(self.blocks) < 5):
            return
        recorded, why = self.whole["spells_recorded"] or 0, self.whole["not_recorded"]
        text = (
            f"steps stayed slow in {seen} {'spell' if seen == 1 else 'spells'}"
            if seen
            else ("steps were slow for a while")
        )
        if len(slow):
            worst = int(slow[np.argmax(mean[slow])])
            row = self.blocks.row(worst, named=True)
            grown = {
                name: row[name] / row["steps"] - self.sums[name] / self.steps for name in PHASES
            }
            part = max(grown, key=lambda name: grown[name])
            begin = (row["start"] - self.whole["start"]) / 1e9
            text += (
                f"; the slowest {(row['end'] - row['start']) / 1e9:.1f} s began {begin:.0f} s into the"
                f" training, at step {row['first_step']}: {ns(mean[worst])} a step where {ns(usual)} is"
                f" usual, most of it {_NAMES[part]}"
            )
        if recorded:
            text += (
                f"; {recorded} recorded in full, so `opscope report --reports slow_steps,ops` tells of"
                " its ops"
            )
        if why:
            text += f"; not recorded in full: {why}"
        yield _row("slow spells", max(lost, 0) / self.total, max(lost, 0), text)

    def _drift(self) -> Iterator[dict[str, Any]]:
        late = self.blocks.slice(int(SETTLES * len(self.blocks)))
        if len(late) < 8:
            return
        quarter = len(late) // 4
        mean = (late["duration"] / late["steps"]).to_numpy()
        quarters = [
            float(np.median(mean[quarter_index * quarter :][:quarter]))
            for quarter_index in range(4)
        ]
        grows = all(a <= b * 1.01 for a, b in pairwise(quarters))
        if quarters[3] > (1 + DRIFT) * quarters[0] and grows:
            lost = float(((mean - quarters[0]) * late["steps"].to_numpy()).sum())
            yield _row(
                "steps become slower",
                lost / self.total,
                lost,
                f"a step took {ns(quarters[0])} in the first quarter of the training and"
                f" {ns(quarters[3])} in the last",
            )

    def _memory(self) -> Iterator[dict[str, Any]]:
        names = self.samples["name"].cast(pl.String)
        for name in names.unique(maintain_order=True):
            if name != PROCESS_MEMORY and "memory used [bytes]" not in name:
                continue
            series = self.samples.filter(names == name).sort("time")
            for (device,), part in series.group_by("device", maintain_order=True):
                growth = _growth(part["time"].to_numpy(), part["value"].to_numpy())
                if growth is not None:
                    first, last, per_hour = growth
                    whose = "process's" if device is None else f"GPU {device}'s"
                    yield _row(
                        "growing memory",
                        None,
                        None,
                        f"the {whose} memory grew all the time: from {size(first)} to {size(last)},"
                        f" about {size(per_hour)} an hour; it will end when there is no more",
                    )

    def _throttled(self) -> Iterator[dict[str, Any]]:
        names = self.samples["name"].cast(pl.String)
        for name in names.unique(maintain_order=True):
            if not name.startswith("GPU throttled: "):
                continue
            for (device,), part in self.samples.filter(names == name).group_by("device"):
                share = float(part["value"].to_numpy().mean())
                if share > BOUND:
                    reason = name.removeprefix("GPU throttled: ").removesuffix(" [fraction]")
                    yield _row(
                        "throttled GPU",
                        share,
                        None,
                        f"GPU {device} ran below its clocks in {said(share)} of the samples: {reason}",
                    )

    def _outside(self) -> Iterator[dict[str, Any]]:
        rest, in_phases = self.sums["other"], self.total - self.sums["other"]
        if in_phases and self.sums["backward"] and rest > OUTSIDE * self.total:
            row = _row(
                "time outside of phases",
                rest / self.total,
                None,
                f"{said(rest / self.total)} of the steps' time was in no phase: the program's own code"
                " between them, such as reading a loss, logging or writing a checkpoint",
            )
            yield _sure(row, OUTSIDE)

    def not_told(self) -> Iterator[dict[str, Any]]:
        say = CANNOT_TELL
        yield _row(
            say,
            None,
            None,
            "which op or layer takes the time: light mode records none; `opscope run --steps 20:30` does",
        )
        if not self.sums["backward"]:
            yield _row(
                say,
                None,
                None,
                "what the steps' time went into: no backward pass was seen. A compiled step (TensorFlow, JAX)"
                " runs as one, and takes its input inside",
            )
        elif self.gpu or self.samples["device"].is_not_null().any():
            yield _row(
                say,
                None,
                None,
                "what the GPU did in each phase: phases are the time that the host took, which on a GPU is"
                " launching and waiting; a step's whole time is right",
            )
        if not len(self.samples):
            yield _row(say, None, None, "processors and memory: nothing was sampled")


def _growth(time: NDArray[np.int64], value: Floats) -> tuple[float, float, float] | None:
    """Return memory at the beginning, at the end, and growth per hour, if it grew in each quarter of the
    time."""
    late = time >= time[0] + SETTLES * (time[-1] - time[0])
    time, value = time[late], value[late]
    if len(time) < 12 or time[-1] <= time[0]:
        return None
    edges = np.linspace(time[0], time[-1] + 1, 5)
    parts = [value[(time >= a) & (time < b)] for a, b in pairwise(edges)]
    if any(len(part) < 2 for part in parts):
        return None
    medians = [float(np.median(part)) for part in parts]
    grew = medians[3] - medians[0]
    each = all(b - a > grew / 12 for a, b in pairwise(medians))
    if not each or grew < GROWTH_BYTES or grew < GROWTH * medians[0]:
        return None
    hours = (edges[4] - edges[0]) * 0.75 / 3.6e12
    return float(value[0]), float(value[-1]), grew / hours


def _late_ranks(trace: Trace, by_rank: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rank whose own work is longest, if steps are equally long because every rank waits for it."""
    sums = trace["light_blocks"].group_by("process").agg(pl.col("duration", *PHASES, "steps").sum())
    sums = sums.filter(pl.col("process").is_in([p for p, r in by_rank.items() if r is not None]))
    if len(sums) < 2:
        return
    rows = {
        row["process"]: {name: row[name] / row["steps"] for name in ("duration", *PHASES)}
        for row in sums.to_dicts()
        if row["steps"]
    }
    # a rank waits for the others in its backward pass or in collectives; its other time is its own work
    own = {
        process: row["duration"] - row["backward"] - row["collective"]
        for process, row in rows.items()
    }
    late = max(own, key=lambda process: own[process])
    others = [process for process in rows if process != late]
    if not others:
        return
    usual = float(np.median([own[process] for process in others]))
    step = float(np.median([row["duration"] for row in rows.values()]))
    behind = own[late] - usual
    waits = [
        rows[process]["backward"] + rows[process]["collective"]
        - rows[late]["backward"] - rows[late]["collective"]
        for process in others
    ]  # fmt: skip
    if behind < DRIFT * step or float(np.median(waits)) < behind / 2:
        return
    grown = {
        name: rows[late][name] - float(np.median([rows[process][name] for process in others]))
        for name in ("input", "forward", "optimizer", "other")
    }
    part = max(grown, key=lambda name: grown[name])
    steps = max(int(row["steps"]) for row in sums.to_dicts())
    yield _row(
        "straggler",
        behind / step,
        behind * steps,
        f"rank {by_rank[late]} is late: before its ranks meet it takes {ns(behind)} a step more than"
        f" the others, most of it {_NAMES[part]}; their backward passes and collectives are"
        f" {ns(float(np.median(waits)))} longer, as they wait",
    )

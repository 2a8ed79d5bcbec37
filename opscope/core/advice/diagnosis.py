"""What bounds the steps of a profile, in words: the first lines of a report. The thresholds stand here.

The steps' time is divided into parts that add up to it (``analysis.diagnosis_time``). A part above its
threshold is a finding, and those that cost most come first. Where none is, the run is healthy if the device
was busy; else it cannot be told what bounds it. Light mode has an answer of its own
(``analysis.light_diagnosis``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_sums import Sums
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.analysis.device_work import COMPUTATION, DeviceWork
from opscope.core.analysis.diagnosis_time import Divided, Host, Steps
from opscope.core.analysis.idle import NOT_TIMED
from opscope.core.analysis.in_words import NEAR, borderline
from opscope.core.analysis.light_diagnosis import FINDINGS
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.trace import Trace

#: A step is bound by its input above this part of its time (the PyTorch profiler plug-in's rule).
INPUT: Final = 0.05
#: Compiling inside steps that are no warm-up; as for input, because it should be nothing at all.
COMPILING: Final = 0.05
#: Communication that nothing hides (the plug-in's rule), and every other part of the time that is told.
WORTH: Final = 0.1
#: Time of a CPU's steps outside any op: some is normal, as Python runs between ops (as in light mode).
OUTSIDE: Final = 0.3
#: It is surely more than that if the steps differ so little that it is after so many standard errors.
ERRORS: Final = 2
#: A device that is busy for less of the time is not healthy (the plug-in's rule: utilization below 50 %).
BUSY: Final = 0.5
#: What well-made kernels attain of their roof. Roofs are dense peaks, which nothing attains.
ATTAINED: Final = 0.6
#: Memory is near its limit above this part of the device's (the plug-in's rule).
FULL: Final = 0.9
#: A rank is the slow one if it causes this part of all waiting, and its lateness is worth telling.
CAUSES: Final = 0.5
#: Kernels of a median below this (ns) take less time than the host needs to launch them, about 5 to 10 µs.
SHORT: Final = 10_000
#: What Python takes between two ops at most (ns), recording included; beyond it is the program's own code.
BETWEEN: Final = 50_000
#: Of fewer pieces of work on a device nothing is said.
LEAST: Final = 10
CANNOT_TELL: Final = "cannot tell"
HEALTHY: Final = "healthy"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the diagnosis looks at. ``divided``: the judged time of each device or process. ``work``: None if
    the CPU is the device. ``sums``: those of the ops; ``unattributed``: device time (ns) without an op.
    ``loaders``: ``input_waits.waits``. ``stragglers``, ``memory``: the frames of these names. ``device``: the
    limits of the device, or why they are not known."""

    trace: Trace
    divided: list[Divided]
    steps: Steps
    host: Host
    work: DeviceWork | None
    sums: Callable[[], Sums]
    unattributed: Callable[[], int]
    loaders: pl.DataFrame
    stragglers: pl.DataFrame
    memory: pl.DataFrame
    device: tuple[Device | None, str | None]
    framework: str | None


def diagnosis(facts: Facts) -> pl.DataFrame:
    """Return one row per finding, what costs most first; then what cannot be told (``FINDINGS``; ns)."""
    one = _Diagnosis(facts)
    found = one.surely(one.findings()) if one.too_little is None else []
    pressure = list(one.memory())
    told: list[dict[str, Any]] = list(one.not_told())
    if one.too_little is not None:
        found, pressure, told = [one.nothing()], [], []
    elif not found and not pressure:
        bounded = one.healthy()
        found = [bounded] if bounded is not None else []
        told = told if found else [one.nothing(), *told]
    starting = one.starting() if one.too_little is None else ()
    rows = [*found, *pressure, *starting, *told]
    return pl.DataFrame(rows, schema=FINDINGS)


class _Diagnosis:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.time = sum(one.time for one in facts.divided)
        self.steps = sum(one.steps for one in facts.divided)
        self.parts: dict[str, int] = {}
        for one in facts.divided:
            for name, part in one.parts.items():
                self.parts[name] = self.parts.get(name, 0) + part
        self.on_gpu = facts.work is not None
        #: How far below its threshold a part is borderline.
        self.near = 1.0 if self.on_gpu else NEAR
        self.say = words.Words(facts.framework, self.on_gpu)
        self.ranks = dict(facts.trace["processes"].select("process", "rank").rows())

    @cached_property
    def too_little(self) -> tuple[str, str] | None:
        """Why nothing can be said of the time, and what to capture; None where something can."""
        work = self.facts.work
        run = "opscope run -- python train.py records ops, steps and, on a GPU, kernels"
        many = 0 if work is None else len(work.start)
        if work is not None and many and not work.timed:
            return NOT_TIMED, "opscope run or nsys profile: they record when each kernel ran"
        if work is not None and not many:
            return "a GPU was used, and no kernels were captured", run
        if work is not None and many < LEAST:
            return f"fewer than {LEAST} kernels, copies and sets were recorded ({many})", run
        if self.time:
            return None
        if work is not None and self.facts.steps.of:
            return "the processes that made steps ran nothing on a device", run
        return "no ops and no kernels were recorded", run

    def surely(self, found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the findings, what costs most first. Those near their threshold are borderline;
        beside a clear one, those below their threshold are left out."""
        rows = sorted(found, key=lambda row: -row["lost"])
        clear = any(row["sure"] for row in rows)
        told = []
        for row in rows:
            limit, over, sure = row.pop("limit"), row.pop("over"), row.pop("sure")
            if sure:
                told.append(row)
            elif over or not clear:
                told.append(row | borderline(row["finding"], row["text"], limit))
        return told

    # ------------------------------------------------------------------ sentences

    def _judged(
        self,
        finding: str,
        lost: float,
        measured: float,
        limit: float,
        *rest: Any,
        sure: bool = True,
    ) -> dict[str, Any]:
        """Return the row of a finding whose part of the time, ``measured``, is over ``limit`` or near it;
        ``sure``: whether the steps agree that it is over it."""
        row = self._row(finding, lost, *rest)
        return row | {
            "limit": limit,
            "over": measured > limit,
            "sure": sure and measured > NEAR * limit,
        }

    def _within(self, part: float, limit: float) -> bool:
        """Return whether a part (ns) is too small for a finding, even one near its limit."""
        return part * self.near <= limit * self.time

    def _row(
        self,
        finding: str,
        lost: float | None,
        text: str,
        to_try: str | None,
        process: int | None = None,
    ) -> dict[str, Any]:
        processes = {one.process for one in self.facts.divided}
        if process is None and len(processes) == 1 and finding != CANNOT_TELL:
            (process,) = processes
        process = None if process is None or process < 0 else process
        return {
            "process": process,
            "rank": self.ranks.get(process) if process is not None else None,
            "finding": finding,
            "share": lost / self.time if lost is not None and self.time else None,
            "lost": None if lost is None else round(lost),
            "text": text,
            "to_try": to_try,
        }

    def _part(self, time: float) -> str:
        """A part of the time: ``57.0 ms of each step's 92.0 ms (62 %)``."""
        if self.steps:
            each = f"{ns(time / self.steps)} of each step's {ns(self.time / self.steps)}"
        else:
            many = len(self.facts.divided)
            each = f"{ns(time / many)} of {ns(self.time / many)}"
            if many > 1:
                each += f" of each {'device' if self.on_gpu else 'process'}, on average"
        return f"{each} ({share(time / self.time)})"

    @property
    def _whole(self) -> str:
        if self.steps:
            return "the steps' time"
        return "the time from its first work to its last" if self.on_gpu else "the time recorded"

    def _while(self, lost: float, doing: str) -> str:
        if self.on_gpu:
            return f"the device was idle for {self._part(lost)} while the program {doing}"
        return f"the program {doing} for {self._part(lost)}"

    # ------------------------------------------------------------------- findings

    def findings(self) -> Iterator[dict[str, Any]]:
        yield from self._input()
        yield from self._compiling()
        yield from self._communication()
        if self.on_gpu:
            yield from self._copies()
            yield from self._synchronising()
            yield from self._launches()
            yield from self._waits()
        else:
            yield from self._outside()
        yield from self._kernels()

    def _input(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["input"]
        if self._within(lost, INPUT):
            return
        timed = self.facts.loaders.filter("timed")
        by = timed.group_by("loader", "source", "workers").agg(
            (pl.col("end") - pl.col("start")).sum().alias("time")
        )
        loader, source, workers, _ = by.sort("time", "loader", descending=[True, False]).row(0)
        where = f", from {loader}{f' at {source}' if source else ''}"
        yield self._judged(
            "input-bound",
            lost,
            lost / self.time,
            INPUT,
            self._while(lost, "waited for its input") + where,
            self.say.input(workers),
        )

    def _compiling(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["compiling"]
        if not self._within(lost, COMPILING):
            text = self._while(lost, "compiled")
            if self.steps:
                text += f", in {self.facts.steps.compiled:,} of {self.steps:,} steps"
            yield self._judged(
                "compilation", lost, lost / self.time, COMPILING, text, self.say.compiling()
            )

    def _communication(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["communication"]
        late = self.facts.stragglers
        caused = 0 if late.is_empty() else int(late["caused_waiting"].sum() or 0)
        if caused:
            worst = late.row(0, named=True)
            mine = [one.time for one in self.facts.divided if one.process == worst["process"]]
            behind = int(worst["lateness"])
            if (
                worst["caused_waiting"] >= CAUSES * caused
                and mine
                and behind * self.near > WORTH * max(mine)
            ):
                gained = behind * len(self.facts.divided)
                yield self._judged(
                    "straggler",
                    min(gained, self.time),
                    behind / max(mine),
                    WORTH,
                    f"it came last to {worst['last']:,} of {worst['compared']:,} collectives,"
                    f" {ns(behind)} later than the first rank in all ({share(behind / max(mine))} of its"
                    " time); the others waited for it",
                    "opscope report --reports step_imbalance,step_summary: what this rank does longer than"
                    " the others, such as its share of the data, its input, its machine",
                    int(worst["process"]),
                )
                lost = max(0, lost - int(worst["caused_waiting"]))
        if not self._within(lost, WORTH):
            beside = "while nothing was computed" if self.on_gpu else "in no op but collectives"
            yield self._judged(
                "communication-bound",
                lost,
                lost / self.time,
                WORTH,
                f"{self._part(lost)} went into communication {beside}",
                self.say.communication(),
            )

    def _copies(self) -> Iterator[dict[str, Any]]:
        staging = self.parts["staging"]
        lost = self.parts["copying"] + staging
        if self._within(lost, WORTH):
            return
        memops = self.facts.trace["memops"]
        kinds = (
            memops.select(
                (pl.col("end") - pl.col("start")).alias("time"),
                *(pl.col(name).cast(pl.String) for name in ("kind", "src_kind", "dst_kind")),
            )
            .group_by("kind", "src_kind", "dst_kind")
            .agg(pl.col("time").sum(), pl.len().alias("many"))
            .sort("time", "many", descending=True)
        )
        kind, source, target, _, many = kinds.row(0)
        pageable = "pageable" in (source, target)
        what = words.COPIES.get(kind, "copies")
        memory = f" {'from' if source == 'pageable' else 'to'} pageable memory" if pageable else ""
        text = f"{self._part(lost)} went into copies and sets that nothing hides; most of it {what}{memory}"
        text += f" ({many:,} in all)"
        yield self._judged(
            "copy-bound", lost, lost / self.time, WORTH, text, self.say.copies(kind, pageable)
        )

    def _synchronising(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["synchronising"]
        if not self._within(lost, WORTH):
            reads = self._reads()
            yield self._judged(
                "synchronising calls",
                lost,
                lost / self.time,
                WORTH,
                f"the device was idle for {self._part(lost)} after the program had waited for it to"
                " finish, and"
                f" before the next work was launched{reads}",
                self.say.synchronising(),
            )

    def _reads(self) -> str:
        found = (
            self.facts.sums().by_op.filter(pl.col("op").is_in(words.READS)).select("op", "calls")
        )
        rows = found.sort("calls", "op", descending=[True, False]).head(1).rows()
        return f"; {rows[0][0]} ran {rows[0][1]:,} times" if rows else ""

    def _launches(self) -> Iterator[dict[str, Any]]:
        lost, starting = self.parts["host"], self.parts["starting"]
        if self._within(lost + starting, WORTH):
            return
        work = self.facts.work
        assert work is not None
        rows = work.kind == COMPUTATION
        median = float(np.median(work.end[rows] - work.start[rows])) if rows.any() else 0.0
        text = f"the device was idle for {self._part(lost)} because the host launched its work too late"
        if starting > lost:
            text = (
                f"the device was idle for {self._part(lost + starting)} between one kernel and the next,"
                " most of"
                " it because kernels are short and take a while to start"
            )
        elif starting > WORTH * self.time:
            text += f", and for {share(starting / self.time)} while kernels started"
        count = int(rows.sum())
        if count:
            often = f"{round(count / self.steps):,} a step" if self.steps else f"{count:,}"
            text += f"; kernels: {often}, median {ns(median)}"
        longest = max((one.longest for one in self.facts.divided), default=0)
        begins = not self.steps and longest > CAUSES * self.time
        if begins:
            text += f"; one gap alone took {ns(longest)}, as when a program starts"
        yield self._judged(
            "host-bound",
            lost + starting,
            (lost + starting) / self.time,
            WORTH,
            text,
            self.say.launches(0 < median < SHORT, begins),
        )

    def _waits(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["queued"]
        if not self._within(lost, WORTH):
            yield self._judged(
                "waiting on other streams",
                lost,
                lost / self.time,
                WORTH,
                f"the device was idle for {self._part(lost)} although its next work was launched: it"
                " waited for an"
                " event, another stream or another device",
                "opscope report --reports idle,queue,overlap: what runs before the gaps; wait for an event"
                " in place"
                " of a whole stream",
            )
        lost = self.parts["unknown"]
        if not self._within(lost, WORTH):
            yield self._judged(
                "idle device",
                lost,
                lost / self.time,
                WORTH,
                f"the device was idle for {self._part(lost)}; the trace does not record the launches that"
                " would tell"
                " what it waited for",
                "capture the launches too: opscope run, or nsys profile -t cuda,nvtx",
            )

    def _outside(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["outside"]
        if not self.steps or self._within(lost, OUTSIDE):
            return
        host = self.facts.host
        text = f"the program spent {self._part(lost)} outside any op: its own code, and Python between ops"
        short = bool(host.many) and lost < host.many * BETWEEN
        if host.many:
            text += f"; outermost ops: {round(host.many / self.steps):,} a step, median {ns(host.median)}"
        error = sum(one.error**2 for one in self.facts.divided) ** 0.5
        yield self._judged(
            "host-bound", lost, lost / self.time, OUTSIDE, text, self.say.outside(short),
            sure=lost - ERRORS * error > OUTSIDE * self.time,
        )  # fmt: skip

    def _rated(self) -> tuple[dict[str, tuple[float, float]], float]:
        """Return by bound the time and the ideal time (ns) of what has a roof; and the time of all."""
        if self.facts.device[0] is None:
            return {}, 0.0
        sums = self.facts.sums()
        rated = {bound: (float(time), float(ideal)) for bound, time, ideal in sums.by_bound.rows()}
        return rated, float(sums.ran + self.facts.unattributed())

    def _bounds(self) -> tuple[str, float, float, str] | None:
        """Return what bounds most kernels, their part of the rated time, the efficiency of all that is rated
        and a sentence; None where most of the kernels' time has no roof."""
        rated, whole = self._rated()
        time = sum(one for one, _ in rated.values())
        if not whole or time < BUSY * whole:
            return None
        sums = {
            "memory-bandwidth-bound": rated.get("memory", (0.0, 0.0))[0],
            "compute-bound": sum(rated.get(one, (0.0, 0.0))[0] for one in ("tensor", "vector")),
            "small kernels": rated.get("latency", (0.0, 0.0))[0],
        }
        name = max(sums, key=lambda one: sums[one])
        attained = sum(one for _, one in rated.values()) / time
        said = (
            f"{words.BOUNDS[name]} bounds {share(sums[name] / time)} of the kernels' time, and they attain"
            f" {share(attained)} of what the {getattr(self.facts.device[0], 'name', 'device')} could"
        )
        return name, sums[name] / time, attained, said

    def _kernels(self) -> Iterator[dict[str, Any]]:
        found = self._bounds()
        computed = self.parts["computation"]
        if found is None or self._within(computed, WORTH):
            return
        name, _, attained, said = found
        lost = computed * max(0.0, 1 - attained / ATTAINED)
        if not self._within(lost, WORTH):
            text = f"{self._part(computed)} went into {'kernels' if self.on_gpu else 'ops'}; {said}"
            yield self._judged(name, lost, lost / self.time, WORTH, text, self.say.kernels(name))

    def memory(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each device whose memory was nearly full."""
        sizes = {
            (process, device): size
            for process, device, size in self.facts.trace["devices"]
            .select("process", "device", "memory")
            .rows()
            if size
        }
        for row in self.facts.memory.sort("process", "device").to_dicts():
            size = sizes.get((row["process"], row["device"]))
            used = max(row["reserved"] or 0, row["peak_reserved"] or 0, row["peak_memory"] or 0)
            if row["device"] is None or row["device"] < 0 or not size or used < FULL * size:
                continue
            yield self._row(
                "memory pressure",
                None,
                f"{words.size(used)} of the {words.size(size)} of GPU {row['device']} were taken"
                f" ({share(used / size)})",
                self.say.memory(),
                row["process"],
            )

    def starting(self) -> Iterator[dict[str, Any]]:
        """Yield the row of the first steps, which are left out of all others."""
        steps = self.facts.steps
        if steps.whole and steps.starting > WORTH * steps.whole:
            first = "step" if steps.started == 1 else f"{steps.started} steps"
            row = self._row(
                "slow start",
                steps.starting,
                f"the first {first} took {ns(steps.starting)} longer than later ones"
                f" ({share(steps.starting / steps.whole)} of all steps' time); left out above",
                "opscope run --steps 10:20 leaves them out of the recording",
            )
            yield row | {"share": steps.starting / steps.whole}

    # ------------------------------------------------------------ healthy, or not known

    def healthy(self) -> dict[str, Any] | None:
        """Return the row that nothing stands out; None where that cannot be said."""
        busy = sum(self.parts.get(name, 0) for name in ("computation", "communication", "copying"))
        if not self.time or busy < BUSY * self.time or not (self.on_gpu or self.steps):
            return None
        doing = "the device was busy for" if self.on_gpu else "ops took"
        text = f"nothing stands out: {doing} {share(busy / self.time)} of {self._whole}"
        found = self._bounds()
        if found is not None:
            text += f"; {found[3]}"
        else:
            ops = self.facts.sums().by_op
            by = ops.filter(pl.col("op").is_not_null())
            by = by.sort("device_time", "op", descending=[True, False])
            whole = int(ops["device_time"].sum() or 0)
            rest = self.facts.unattributed()
            if rest > whole:
                text += (
                    f"; {share(rest / (rest + whole))} of the device's time has no op, so what bounds its"
                    " kernels is not known"
                )
            elif len(by) and whole and by["device_time"][0]:
                part = share(by["device_time"][0] / whole)
                text += f"; {part} of the ops' time is in {by['op'][0]}"
        return self._row(HEALTHY, 0, text, self.say.healthy())

    def nothing(self) -> dict[str, Any]:
        """Return the row that it cannot be told what bounds the run, with what to capture."""
        if self.too_little is not None:
            what, to_try = self.too_little
            return self._row(CANNOT_TELL, None, f"what bounds the run: {what}", to_try)
        if not self.on_gpu and not self.steps:
            return self._row(
                CANNOT_TELL,
                None,
                "what bounds a step: no steps are marked, so time between ops may be anything",
                "opscope.step() at the beginning of each iteration",
            )
        named = {name: part for name, part in self.parts.items() if name != "computation"}
        most = max(named, key=lambda name: named[name])
        return self._row(
            CANNOT_TELL,
            None,
            f"what bounds the run: the device was busy for less than half of {self._whole}, and no cause"
            " alone"
            f" explains it; the largest, {words.PARTS[most]}, is {share(named[most] / self.time)}",
            "opscope report --reports idle,steps: what each step is made of",
        )

    def not_told(self) -> Iterator[dict[str, Any]]:
        """Yield what else cannot be told of a run, and what to capture."""
        if self.on_gpu and not self.steps:
            yield self._row(
                CANNOT_TELL,
                None,
                "what a step takes: no steps are marked, so all of the device's time is judged",
                "opscope.step() at the beginning of each iteration",
            )
        idle = self.parts.get("host", 0) + self.parts.get("synchronising", 0)
        idle += self.parts.get("outside", 0)
        if self.facts.loaders.is_empty() and self.steps and idle > WORTH * self.time:
            yield self._row(
                CANNOT_TELL,
                None,
                "whether the program waits for its input: no data loader was seen",
                "with opscope.annotate('input', category='phase') around the line that gets a batch"
                if self.facts.framework is None
                else "opscope run records the framework's own loaders",
            )
        if self.on_gpu and self.facts.device[0] is None:
            yield self._row(
                CANNOT_TELL,
                None,
                f"whether compute or memory bandwidth bounds the kernels: {self.facts.device[1]}",
                "opscope report --gpu NAME",
            )
        world = self.facts.trace["processes"]["world_size"].max()
        here = len({rank for rank in self.ranks.values() if rank is not None})
        if isinstance(world, int) and world > max(here, 1) and self.parts["communication"]:
            yield self._row(
                CANNOT_TELL,
                None,
                f"whether a slow rank makes the others wait: the profile has {max(here, 1)} of {world} ranks",
                "give the files of all ranks to opscope report",
            )

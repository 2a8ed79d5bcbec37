"""Findings on the parts of the time: waits, late launches, communication, copies, kernels, and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_rows import (
    ATTAINED,
    BETWEEN,
    BUSY,
    CAUSES,
    COMPILATION,
    COMPILING,
    ERRORS,
    FULL,
    IDLE,
    INPUT,
    OUTSIDE,
    SHORT,
    WAITED,
    WORTH,
    Judge,
)
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.analysis.device.device_work import COMPUTATION
from opscope.core.analysis.host.host_kinds import KINDS, WAITS
from opscope.core.analysis.host.host_lines import busiest_line
from opscope.core.attribution.early_kernels import CLOCKS, LATE
from opscope.core.perf.devices.vendors import recorders
from opscope.core.question.names import short_source


def late_by(worst: Mapping[str, Any], behind: int, time: int, steps: int) -> str:
    """Return in words how late a rank is: by ``behind`` in the ``time`` of its ``steps`` (both ns)."""
    each = f"{ns(behind / steps)} of a step's {ns(time / steps)}" if steps else ns(behind)
    run = f"{share(behind / time)}" + (f", {ns(behind)} in {steps:,} steps" if steps > 1 else "")
    # the rank's steps are too short for its lateness, so ``behind`` is cut
    if worst["lateness"] > time and steps:
        each = f"{ns(worst['median_lateness'])} (median)"
        run = f"its own steps take {ns(time / steps)}"
    return (
        f"it comes {each} later than the first rank ({run}), last to"
        f" {worst['last']:,} of {worst['compared']:,} collectives; the others wait for it"
    )


class Parts(Judge):
    """Findings on the time in which something runs, and on the time in which nothing does."""

    def _input(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["input"]
        if self._within(lost, INPUT):
            return
        timed = self.facts.loaders.filter("timed")
        by = timed.group_by("loader", "source", "workers").agg(
            (pl.col("end") - pl.col("start")).sum().alias("time")
        )
        loader, source, workers, _ = by.sort("time", "loader", descending=[True, False]).row(0)
        line = source.split(" < ")[0] if source else ""
        where = f", from {loader}{f' at {line}' if line else ''}"
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
                steps = sum(stretch.steps for stretch in self.facts.steps.of.values())
                text += f", in {self.facts.steps.compiled:,} of {steps:,} steps"
            yield self._judged(
                COMPILATION, lost, lost / self.time, COMPILING, text, self.say.compiling()
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
        reads = (
            self.facts.sums().by_op.filter(pl.col("op").is_in(words.READS)).select("op", "calls")
        )
        rows = reads.sort("calls", "op", descending=[True, False]).head(1).rows()
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
        longest = max((device.longest for device in self.divided), default=0)
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
                " waited for an event, another stream or another device",
                "opscope report FILE --reports idle,queue,overlap: what runs before the gaps; wait for an"
                " event in place of a whole stream",
            )
        lost = self.parts["unknown"]
        unlinked = self.facts.work.unlinked if self.facts.work is not None else None
        if not self._within(lost, WORTH):
            yield self._judged(
                IDLE,
                lost,
                lost / self.time,
                WORTH,
                f"why the device was idle for {self._part(lost)}: {unlinked or words.NO_LAUNCHES}",
                words.OTHER_CLOCKS
                if unlinked in (CLOCKS, LATE)
                else "capture the launches too: " + ", or ".join(recorders(self.vendor)),
            )

    def _outside(self) -> Iterator[dict[str, Any]]:
        late = self._late_outside()
        lost = self.parts["outside"] - late
        if not self.steps or self._within(lost, OUTSIDE):
            return
        host = self.facts.host
        text = f"the program spent {self._part(lost)} outside any op: its own code, and Python between ops"
        if late:
            text += " (what makes a rank late is left out)"
        line, part, kind = self._line_outside()
        waits = kind in WAITS
        if line:
            text += f", {share(part)} of it at {short_source(line)}"
        if waits:
            text += f", where {KINDS[str(kind)].partition(':')[0]}"
        short = bool(host.many) and lost < host.many * BETWEEN
        # less waiting is worth more than fewer ops
        short = short and not (waits and part > WAITED)
        if host.many:
            text += f"; outermost ops: {round(host.many / self.steps):,} a step, median {ns(host.median)}"
        # all steps show the time of this run; a median step shows the time of another run
        error = sum(device.error**2 for device in self.divided) ** 0.5 if self.median else 0.0
        yield self._judged(
            "host-bound", lost, lost / self.time, OUTSIDE, text, self.say.outside(short, bool(line)),
            sure=lost - ERRORS * error > OUTSIDE * self.time,
        )  # fmt: skip

    def _communication(self) -> Iterator[dict[str, Any]]:
        lost = self.parts["communication"]
        if self._late is not None:
            worst, behind, time, steps = self._late
            yield self._judged(
                "straggler",
                behind / time * self.time,
                behind / time,
                WORTH,
                late_by(worst, behind, time, steps),
                "opscope report FILE --reports late_causes,step_imbalance,step_summary: what this rank"
                " does longer than the others, such as its share of the data, its input, its machine",
                int(worst["process"]),
            )
            lost = max(0, lost - int(worst["caused_waiting"]))
        if not self._within(lost, WORTH):
            beside = "while nothing was computed" if self.on_gpu else "while no other op ran"
            yield self._judged(
                "communication-bound",
                lost,
                lost / self.time,
                WORTH,
                f"{self._part(lost)} went into communication {beside}",
                self.say.communication(),
            )

    @cached_property
    def _late(self) -> tuple[Mapping[str, Any], int, int, int] | None:
        """The rank that the others wait for: its row of ``stragglers``, how late it comes, in how much time
        (both ns, over all its steps), and how many steps; None if there is no such rank."""
        late = self.facts.stragglers
        caused = 0 if late.is_empty() else int(late["caused_waiting"].sum() or 0)
        if not caused:
            return None
        worst = late.row(0, named=True)
        mine = [device for device in self.facts.divided if device.process == worst["process"]]
        # these come from the collectives of all steps
        time, steps = max(((one.time, one.steps) for one in mine), default=(0, 0))
        behind = min(int(worst["lateness"]), time)
        most = worst["caused_waiting"] > max(CAUSES, 1.5 / len(late)) * caused
        return (worst, behind, time, steps) if most and behind * self.near > WORTH * time else None

    def _late_outside(self) -> float:
        """Return how much longer the late rank is outside any op than the others; this is its lateness."""
        if self._late is None:
            return 0.0
        worst, behind, time, _ = self._late
        mine = [one for one in self.divided if one.process == worst["process"]]
        others = [one.parts["outside"] for one in self.divided if one.process != worst["process"]]
        if not mine or not others:
            return 0.0
        more = mine[0].parts["outside"] - float(np.median(others))
        return min(max(0.0, more), behind / time * mine[0].time)

    def _line_outside(self) -> tuple[str | None, float, str | None]:
        """For the process with most time outside ops, return the source line with most of it, the line's part
        of this time, and what the thread did there."""
        most = max(self.divided, key=lambda one: one.parts["outside"])
        of = (self.facts.steps.usual if self.median else self.facts.steps.of).get(most.process)
        if of is None or not most.steps:
            return None, 0.0, None
        lines = self.facts.lines().filter(pl.col("process") == most.process)
        line, time, kind = busiest_line(of.spans, lines)
        return line, min(1.0, time / self.parts["outside"]), kind

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
        kind, source, target, _, count = kinds.row(0)
        pageable = "pageable" in (source, target)
        noun = words.COPIES.get(kind, "copies")
        memory = {"HtoD": f" from {source} memory", "DtoH": f" to {target} memory"}.get(kind, "")
        if (source if kind == "HtoD" else target) not in ("pageable", "pinned"):
            memory = ""
        text = f"{self._part(lost)} went into copies and sets that nothing hides; most of it {noun}{memory}"
        text += f" ({count:,} in all)"
        yield self._judged(
            "copy-bound", lost, lost / self.time, WORTH, text, self.say.copies(kind, pageable)
        )

    def _rate(self) -> tuple[dict[str, tuple[float, float]], float]:
        """Return, by bound, the time and the ideal time (ns) of kernels with a roof; and the time of all."""
        if self.facts.device[0] is None:
            return {}, 0.0
        sums = self.facts.sums()
        rated = {bound: (float(time), float(ideal)) for bound, time, ideal in sums.by_bound.rows()}
        return rated, float(sums.ran + self.facts.unattributed())

    def _bounds(self) -> tuple[str, float, float, str] | None:
        """Return what bounds most kernels, their part of the rated time, the efficiency of all rated kernels
        and a sentence; None where most of the kernels' time has no roof."""
        rated, total = self._rate()
        time = sum(time_of_class for time_of_class, _ in rated.values())
        if not total or time < BUSY * total:
            return None
        sums = {
            "memory-bandwidth-bound": rated.get("memory", (0.0, 0.0))[0],
            "compute-bound": sum(
                rated.get(name_of_class, (0.0, 0.0))[0] for name_of_class in ("tensor", "vector")
            ),
            "small kernels": rated.get("latency", (0.0, 0.0))[0],
        }
        name = max(sums, key=lambda name_of_class: sums[name_of_class])
        attained = sum(share_of_class for _, share_of_class in rated.values()) / time
        whose = "kernels'" if self.on_gpu else "ops'"
        said = (
            f"{words.BOUNDS[name]} bounds {share(sums[name] / time)} of the {whose} time, and they attain"
            f" {share(attained)} of what the {getattr(self.facts.device[0], 'name', 'device')} could"
        )
        return name, sums[name] / time, attained, said

    def _kernels(self) -> Iterator[dict[str, Any]]:
        bounds = self._bounds()
        computed = self.parts["computation"]
        # a CPU's roofs were measured with a large product and large copies; smaller work does not attain them
        if bounds is None or not self.on_gpu or self._within(computed, WORTH):
            return
        name, _, attained, said = bounds
        lost = computed * max(0.0, 1 - attained / ATTAINED)
        if not self._within(lost, WORTH):
            text = f"{self._part(computed)} went into kernels; {said}"
            rated, _ = self._rate()
            units, vector = (rated.get(bound, (0.0, 0.0))[0] for bound in ("tensor", "vector"))
            to_try = self.say.kernels(name, units > vector)
            yield self._judged(name, lost, lost / self.time, WORTH, text, to_try)

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

"""Findings on time without work: for input, compiling, launches, other streams, the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_limits import (
    BETWEEN,
    CAUSES,
    COMPILING,
    ERRORS,
    INPUT,
    OUTSIDE,
    SHORT,
    WORTH,
)
from opscope.core.advice.diagnosis_rows import Judge
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.analysis.device.device_work import COMPUTATION
from opscope.core.perf.devices.vendors import recorders


class Idle(Judge):
    """What the device, or on a CPU the program, does while no op runs."""

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
        longest = max((device.longest for device in self.facts.divided), default=0)
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
                "opscope report --reports idle,queue,overlap: what runs before the gaps; wait for an event"
                " in place of a whole stream",
            )
        lost = self.parts["unknown"]
        unlinked = self.facts.work.unlinked if self.facts.work is not None else None
        if not self._within(lost, WORTH):
            yield self._judged(
                "idle device",
                lost,
                lost / self.time,
                WORTH,
                f"the device was idle for {self._part(lost)}; {unlinked or words.NO_LAUNCHES}",
                words.OTHER_CLOCKS
                if unlinked
                else "capture the launches too: " + ", or ".join(recorders(self.vendor)),
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
        error = sum(device.error**2 for device in self.facts.divided) ** 0.5
        yield self._judged(
            "host-bound", lost, lost / self.time, OUTSIDE, text, self.say.outside(short),
            sure=lost - ERRORS * error > OUTSIDE * self.time,
        )  # fmt: skip

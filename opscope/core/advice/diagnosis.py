"""What bounds the steps of a profile, in words: the first lines of a report.

The steps' time is divided into parts that add up to it (``analysis.diagnosis_time``). A part above its
threshold (``diagnosis_limits``) is a finding, and those that cost most come first. Where none is, the run is
healthy if the device was busy; else it cannot be told what bounds it. Light mode has an answer of its own
(``analysis.light_diagnosis``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_idle import Idle
from opscope.core.advice.diagnosis_limits import BUSY, CANNOT_TELL, HEALTHY, LEAST, MOSTLY, WORTH
from opscope.core.advice.diagnosis_rows import Facts
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.advice.diagnosis_work import Work
from opscope.core.analysis.device.device_work import NOT_TIMED
from opscope.core.analysis.host.light_diagnosis import FINDINGS
from opscope.core.analysis.ops.lost_kernels import CUT_OFF
from opscope.core.analysis.ops.windows import bounds
from opscope.core.analysis.steps.step_times import covered
from opscope.core.attribution.early_kernels import LATE_SAID
from opscope.core.perf.devices.vendors import recorders

__all__ = ["Facts", "diagnosis"]


def diagnosis(facts: Facts) -> pl.DataFrame:
    """Return one row per finding, what costs most first; then what cannot be told (``FINDINGS``; ns)."""
    diagnosis_of_run = _Diagnosis(facts)
    findings = (
        diagnosis_of_run.surely(diagnosis_of_run.findings())
        if diagnosis_of_run.too_little is None
        else []
    )
    pressure = list(diagnosis_of_run.memory())
    cannot_tell: list[dict[str, Any]] = list(diagnosis_of_run.not_told())
    compiled = list(diagnosis_of_run.compiled())
    starting = list(diagnosis_of_run.starting()) if diagnosis_of_run.too_little is None else []
    # what most of the run went into comes before what bounds the rest
    mostly = [*compiled, *(row for row in starting if row["share"] > MOSTLY)]
    if diagnosis_of_run.too_little is not None:
        findings, pressure, cannot_tell = [diagnosis_of_run.nothing()], [], []
    elif not findings and not pressure:
        bounded = None if mostly else diagnosis_of_run.healthy()
        findings = [bounded] if bounded is not None else []
        cannot_tell = cannot_tell if findings else [diagnosis_of_run.nothing(), *cannot_tell]
    rest = [row for row in starting if row["share"] <= MOSTLY]
    rows = [*mostly, *findings, *pressure, *rest, *cannot_tell]
    return pl.DataFrame(rows, schema=FINDINGS)


class _Diagnosis(Idle, Work):
    """All findings in their order, and what is said where there is none."""

    @cached_property
    def too_little(self) -> tuple[str, str] | None:
        """Why nothing can be said of the time, and what to capture; None where something can."""
        work = self.facts.work
        run = "opscope run -- python train.py records ops, steps and, on a GPU, kernels"
        count = 0 if work is None else len(work.start)
        cut = [lacks for lacks in self.facts.losses if CUT_OFF in lacks]
        if work is None and cut:
            return f"{cut[0]}, and may hold kernels", words.WHOLE_FILE
        if work is not None and count and work.untimed is not None:
            if work.untimed != NOT_TIMED:
                clocks = words.OTHER_CLOCKS if LATE_SAID in work.untimed else words.FEWER_RECORDS
                return work.untimed, words.WHOLE_FILE if cut else clocks
            tools = recorders(self.vendor, short=True)
            verb = "they record" if len(tools) > 1 else "it records"
            return NOT_TIMED, f"{' or '.join(tools)}: {verb} when each kernel ran"
        if work is not None and not count:
            return "a GPU was used, and no kernels were captured", run
        if work is not None and count < LEAST:
            return f"fewer than {LEAST} kernels, copies and sets were recorded ({count})", run
        if self.time:
            return None
        if work is not None and self.facts.steps.of:
            return "the processes that made steps ran nothing on a device", run
        return "no ops and no kernels were recorded", run

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

    def compiled(self) -> Iterator[dict[str, Any]]:
        """Yield the row of a run most of which went into compiling, outside the judged steps."""
        spent = sum(int((end - start).sum()) for start, end in self.facts.host.compiling.values())
        if not spent:
            return
        low, high = bounds(self.facts.trace).select("start", "end").drop_nulls().get_columns()
        whole = int((high - low).sum())
        for process, spans in self.facts.host.compiling.items():
            judged = self.facts.steps.of.get(process)
            if judged is not None:
                spent -= int(covered(spans, *judged.spans).sum())
        if whole and spent > BUSY * whole:
            row = self._row(
                "compilation",
                spent,
                f"{ns(spent)} of the {ns(whole)} recorded ({share(spent / whole)}) went into compiling; the"
                " steps are judged without it",
                self.say.compiled(),
            )
            yield row | {"share": spent / whole}

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

    def healthy(self) -> dict[str, Any] | None:
        """Return the row that nothing stands out; None where that cannot be said."""
        busy = sum(self.parts.get(name, 0) for name in ("computation", "communication", "copying"))
        if not self.time or busy < BUSY * self.time or not (self.on_gpu or self.steps):
            return None
        doing = "the device was busy for" if self.on_gpu else "ops took"
        text = f"nothing stands out: {doing} {share(busy / self.time)} of {self._whole}"
        bound = self._bounds()
        if bound is not None:
            text += f"; {bound[3]}"
        else:
            ops = self.facts.sums().by_op
            by = ops.filter(pl.col("op").is_not_null())
            by = by.sort("device_time", "op", descending=[True, False])
            total = int(ops["device_time"].sum() or 0)
            rest = self.facts.unattributed()
            if rest > total:
                text += (
                    f"; {share(rest / (rest + total))} of the device's time has no op, so what bounds its"
                    " kernels is not known"
                )
            elif len(by) and total and by["device_time"][0]:
                part = share(by["device_time"][0] / total)
                text += f"; {part} of the ops' time is in {by['op'][0]}"
        return self._row(HEALTHY, 0, text, self.say.healthy())

    def nothing(self) -> dict[str, Any]:
        """Return the row that it cannot be told what bounds the run, with what to capture."""
        if self.too_little is not None:
            lack, to_try = self.too_little
            return self._row(CANNOT_TELL, None, f"what bounds the run: {lack}", to_try)
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
        for lacks in self.facts.losses:
            text = f"what the run did in the records that are missing: {lacks}"
            to_try = words.WHOLE_FILE if CUT_OFF in lacks else words.FEWER_RECORDS
            yield self._row(CANNOT_TELL, None, text, to_try)
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
        if isinstance(world, int) and world > max(here, 1) and self.parts.get("communication"):
            yield self._row(
                CANNOT_TELL,
                None,
                f"whether a slow rank makes the others wait: the profile has {max(here, 1)} of {world} ranks",
                "give the files of all ranks to opscope report",
            )

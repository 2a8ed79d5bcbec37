"""What bounds the steps of a profile, in words: the first lines of a report.

The steps' time is divided into parts that add up to it (``analysis.diagnosis_time``). A part above its
threshold (``diagnosis_rows``) is a finding; the costliest come first. Without findings, the run is healthy if
the device was busy; else it is not known what bounds it. Light mode has an answer of its own
(``analysis.light_diagnosis``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from opscope.core.advice import diagnosis_words as words
from opscope.core.advice.diagnosis_parts import Parts
from opscope.core.advice.diagnosis_rows import (
    AT_START,
    BUSY,
    COMPILATION,
    HEALTHY,
    LEAST,
    WORTH,
    Facts,
)
from opscope.core.advice.diagnosis_words import ns, share
from opscope.core.analysis.device.device_work import COMPUTATION, NOT_TIMED
from opscope.core.analysis.host.in_words import NEARLY
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL, WALL
from opscope.core.analysis.ops.lost_kernels import CUT_OFF, LATER
from opscope.core.analysis.steps.step_times import covered
from opscope.core.attribution.early_kernels import LATE_SAID
from opscope.core.perf.devices.vendors import recorders
from opscope.core.tables.impossible import ONLY_RANGES, lack_of_times


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes found in the time. ``rows``: the causes (FINDINGS; ns), each ``sure`` or not; ``otherwise``:
    the row for a run without causes; ``not_told``: rows about what is not known. ``barred``: why the data
    allow no cause. ``median``: a median step (ns) of a process's ``steps``; ``wall``: the wall time."""

    rows: Sequence[Mapping[str, Any]]
    otherwise: Mapping[str, Any]
    not_told: Sequence[Mapping[str, Any]]
    barred: str | None = None
    median: int = 0
    steps: int = 0
    wall: int = 0


def diagnosis(facts: Facts) -> Causes:
    """Return what bounds the steps."""
    judged = _Diagnosis(facts)
    common = {"median": facts.steps.median, "steps": facts.steps.many, "wall": facts.wall}
    if judged.too_little is not None:
        start = [row | {"sure": False} for row in judged.starting()]
        return Causes(start, judged.nothing(), (), judged.too_little[0], **common)
    rows = judged.surely(judged.findings())
    if facts.usual is not facts.divided:
        # the time of slow steps is a part of the run; the time of a median step is the whole of it
        every = _Diagnosis(facts, median=False)
        in_all = {
            row["finding"].removeprefix(NEARLY): row for row in every.surely(every.findings())
        }
        for row in rows:
            row |= {"lost": in_all.pop(row["finding"].removeprefix(NEARLY), row)["lost"]}
        rows += [row for row in in_all.values() if row["sure"]]
    # a program that compiles in its steps has a row for its start instead if the start costs more
    inside = max((row["lost"] for row in rows if row["finding"] == COMPILATION), default=0)
    compiled = list(judged.compiled(inside))
    rows = [row for row in rows if not compiled or row["finding"] != COMPILATION]
    rows += [*compiled, *judged.starting(), *judged.memory()]
    otherwise = judged.healthy() or judged.nothing()
    return Causes(rows, otherwise, list(judged.not_told()), None, **common)


class _Diagnosis(Parts):
    """All findings in their order, and the row for a run without findings."""

    @cached_property
    def too_little(self) -> tuple[str, str] | None:
        """Return why nothing can be said about the time, and what to capture; None where something can."""
        work = self.facts.work
        run = "opscope run -- python train.py records ops, steps and, on a GPU, kernels"
        count = 0 if work is None else len(work.start)
        cut = [lacks for lacks in self.facts.losses if CUT_OFF in lacks]
        if work is None and cut:
            return f"{cut[0]}, and may hold kernels", words.WHOLE_FILE
        of_ops = None
        if work is None:
            of_ops = lack_of_times(self.facts.trace, "ranges") or self.facts.ops_lost
        if of_ops is not None:
            to_try = run if of_ops == ONLY_RANGES else words.FEWER_RECORDS
            return f"{of_ops}, so what a step went into is not known", to_try
        if work is not None and count and work.untimed is not None:
            if work.untimed != NOT_TIMED:
                clocks = words.OTHER_CLOCKS if LATE_SAID in work.untimed else words.FEWER_RECORDS
                return work.untimed, words.WHOLE_FILE if cut else clocks
            tools = recorders(self.vendor, short=True)
            verb = "they record" if len(tools) > 1 else "it records"
            return NOT_TIMED, f"{' or '.join(tools)}: {verb} when each kernel ran"
        if work is not None and not count:
            used = "a GPU" if self.vendor else "a device"
            return f"{used} was used, and no kernels were captured", run
        if work is not None and count < LEAST:
            return f"fewer than {LEAST} kernels, copies and sets were recorded ({count})", run
        if work is not None and self.facts.captured > count:
            went = f"{self.facts.captured:,} launches went into CUDA graphs as they were captured"
            replays = "opscope run --steps 10:20 -- python train.py records steps, which replay the graphs"
            return f"{went}, and {count:,} kernels, copies and sets ran", replays
        computes = work is None or bool((work.kind == COMPUTATION).any())
        if self.time and self.parts["communication"] and not computes:
            return words.NO_COMPUTATION, f"{run}, and what is computed beside the collectives"
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

    def compiled(self, inside: int) -> Iterator[dict[str, Any]]:
        """Yield the row of a run that spent much of its time compiling outside the judged steps, more than
        ``inside`` them (ns)."""
        spent = 0
        for process, spans in self.facts.host.compiling.items():
            judged = self.facts.steps.of.get(process)
            of_steps = 0 if judged is None else int(covered(spans, *judged.spans).sum())
            spent = max(spent, int((spans[1] - spans[0]).sum()) - of_steps)
        if spent > max(inside, WORTH * self.facts.window) and not self._ends_early:
            apart = f", {ns(inside)} of it in the" if inside else "; the"
            text = f"went into compiling{apart} steps{'' if inside else ' are judged without it'}"
            yield self._once(COMPILATION, spent + inside, text, self.say.compiled(self._after()))

    def starting(self) -> Iterator[dict[str, Any]]:
        """Yield the row of the first steps, which are left out of all others."""
        steps = self.facts.steps
        starting = max(0, steps.starting - steps.compiling)
        if self._ends_early:
            return
        if steps.whole and starting > WORTH * max(steps.whole, self.facts.wall):
            first = "first step" if steps.started == 1 else f"first {steps.started} steps"
            compiled = any(len(spans[0]) for spans in self.facts.host.compiling.values())
            apart = ", compiling apart," if steps.compiling else ""
            yield self._once(
                "slow start",
                starting,
                f"went into the start: so much longer than a later step took{apart} the {first}, which the"
                " rest leaves out",
                self.say.compiled(self._after()) if compiled else self._after(),
            )

    @cached_property
    def _ends_early(self) -> str | None:
        """What says that the run went on after the file's records, so that no share of its time is known."""
        ends = [lacks for lacks in self.facts.losses if CUT_OFF in lacks or LATER in lacks]
        return ends[0] if ends else None

    def _once(self, finding: str, spent: int, text: str, to_try: str) -> dict[str, Any]:
        """Return the row of a cost that a run pays once; ``sure`` if it is most of the run, or of all
        steps."""
        wall = max(spent, self.facts.wall)
        window = self.facts.window
        most = spent > BUSY * window or (
            spent > AT_START * window and spent > BUSY * self.facts.steps.whole
        )
        row = self._row(
            finding,
            spent,
            f"{ns(spent)} of {ns(wall)} ({share(spent / wall)} of {WALL}) {text}",
            to_try,
        )
        once = {"share": spent / wall, "of": WALL, "lost": spent, "sure": most}
        return row | once

    def _after(self) -> str:
        """Return the command that records the steps after the start: those that the program has."""
        steps = self.facts.steps
        last = steps.started + steps.many
        if last <= max(1, steps.started):
            return "record more steps: a program's start is paid once"
        command = f"opscope run --steps {max(1, steps.started)}:{last} -- python train.py"
        return f"{command} records the steps after it"

    def healthy(self) -> dict[str, Any] | None:
        """Return the row saying that nothing stands out, or that most of the device's time has no op, so that
        it is unknown what bounds its kernels; None if neither can be said."""
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
            whose = "the device's" if self.on_gpu else "the elapsed"
            if rest > total:
                lack = f"{share(rest / (rest + total))} of the device's time has no op"
                was = f"{doing} {share(busy / self.time)} of {self._whole}"
                text = f"what bounds the kernels: {was}, and {lack}"
                return self._row(CANNOT_TELL, None, text, words.NO_OPS)
            if len(by) and total and by["device_time"][0]:
                part = share(by["device_time"][0] / (rest + total))
                text += f"; {part} of {whose} time is in {by['op'][0]}"
            if self.on_gpu:
                why = (
                    self.facts.device[1]
                    or "of most of their time FLOPs, bytes or the device's peak are not known"
                )
                text += f"; whether its kernels could be faster is not known: {why}"
        if self._ends_early:
            text = f"what bounds the run: {self._ends_early}; in what is, {text}"
            return self._row(CANNOT_TELL, None, text, words.FEWER_RECORDS)
        return self._row(HEALTHY, 0, text, self.say.healthy())

    def nothing(self) -> dict[str, Any]:
        """Return the row which says that the cause is not known, with what to capture."""
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
            "opscope report FILE --reports idle,steps: what each step is made of",
        )

    def not_told(self) -> Iterator[dict[str, Any]]:
        """Yield rows on other things that are not known about a run, and what to capture for each."""
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
                else "opscope run -- python train.py records the framework's own loaders",
            )
        if self.on_gpu and self.facts.device[0] is None:
            yield self._row(
                CANNOT_TELL,
                None,
                f"whether compute or memory bandwidth bounds the kernels: {self.facts.device[1]}",
                "opscope report FILE --gpu NAME",
            )
        world = self.facts.trace["processes"]["world_size"].max()
        here = len({rank for rank in self.ranks.values() if rank is not None})
        if isinstance(world, int) and world > max(here, 1) and self.parts.get("communication"):
            yield self._row(
                CANNOT_TELL,
                None,
                f"whether a slow rank makes the others wait: the profile has {max(here, 1)} of {world} ranks",
                "opscope report FILE OTHER_RANKS_FILES: all ranks side by side",
            )

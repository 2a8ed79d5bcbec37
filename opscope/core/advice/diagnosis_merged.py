"""What bounds the steps of a merged job, from the parts of its steps. The thresholds are those of the
diagnosis of a profile with events. Answers that need single events are not given: which launches were late,
which calls synchronised, how near kernels are to their roof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from opscope.core.advice.diagnosis import Causes
from opscope.core.advice.diagnosis_parts import late_by
from opscope.core.advice.diagnosis_rows import BUSY, CAUSES, HEALTHY, INPUT, WORTH
from opscope.core.advice.diagnosis_words import FEWER_RECORDS, Words, ns, share
from opscope.core.analysis.diff.rankwise import PARTS
from opscope.core.analysis.host.in_words import NEAR, borderline
from opscope.core.analysis.host.light_diagnosis import CANNOT_TELL, STEPS

#: The parts of a step in which no device worked, if one was used.
_IDLE: Final = ("runtime", "cpu_ops", "other")
_OWN_FILE: Final = "opscope report of the file of one rank: its diagnosis sees single events"


def causes_of_sums(
    steps: pl.DataFrame,
    late: pl.DataFrame,
    on_gpu: bool,
    framework: str | None,
    read_of: str,
    barred: str | None = None,
    wall: int = 0,
) -> Causes:
    """Return what bounds the steps of a merged job. ``steps``: ``rankwise.ranked``; ``late``: the
    ``stragglers`` of the collectives in these steps; ``read_of``: ``997 of 1,000 ranks``; ``barred``: why no
    cause can be named."""
    merged = _Merged(steps, late, on_gpu, Words(framework, on_gpu))
    if barred is not None:
        text = f"what bounds the run: {barred}"
        return Causes((), merged.cannot_tell(text, FEWER_RECORDS), (), barred)
    findings = sorted(merged.findings(), key=lambda row: -row["lost"]) if merged.time else []
    return Causes(
        findings,
        merged.none_found(),
        list(merged.not_told(read_of)),
        None,
        round(steps["time"].median() or 0),  # type: ignore[arg-type]
        merged.many // max(1, merged.ranks),
        wall,
    )


class _Merged:
    def __init__(self, steps: pl.DataFrame, late: pl.DataFrame, on_gpu: bool, say: Words) -> None:
        self.many, self.time = len(steps), int(steps["time"].sum() or 0)
        self.ranks = steps["process"].n_unique()
        self.on_gpu, self.say, self.late, self.steps = on_gpu, say, late, steps
        #: None: not known for any step.
        self.parts = {
            name: None if steps[name].null_count() == len(steps) else int(steps[name].sum())
            for name in PARTS
        }

    def findings(self) -> Iterator[dict[str, Any]]:
        """Yield the causes that the parts show."""
        waits = "the device was idle for {} while the program" if self.on_gpu else "the program"
        did = "waited for its input" if self.on_gpu else "waited for its input for {}"
        yield from self._over(
            "input-bound", "data_loader", INPUT, f"{waits} {did}", self.say.input(None)
        )
        talked = self.parts["exposed_communication"] or 0
        straggler = self._straggler()
        if straggler is not None:
            row, caused = straggler
            yield row
            talked = max(0, talked - caused)
        beside = "while nothing was computed" if self.on_gpu else "while no other op ran"
        yield from self._over(
            "communication-bound", talked, WORTH, f"{{}} went into communication {beside}",
            self.say.communication(),
        )  # fmt: skip
        if self.on_gpu:
            yield from self._over(
                "copy-bound", "copies", WORTH, "{} went into copies while nothing was computed",
                self.say.copies("", False),
            )  # fmt: skip

    def _over(
        self, finding: str, part: str | int, limit: float, text: str, to_try: str
    ) -> Iterator[dict[str, Any]]:
        lost = (self.parts[part] if isinstance(part, str) else part) or 0
        if lost <= limit * self.time:
            return
        row = self._row(finding, lost, text.format(self._part(lost)), to_try)
        if lost <= NEAR * limit * self.time:
            row |= borderline(finding, row["text"], limit) | {"sure": False}
        yield row

    def _straggler(self) -> tuple[dict[str, Any], int] | None:
        """Return the row of the rank that causes most of the waiting, and how much it causes."""
        caused = int(self.late["caused_waiting"].sum() or 0) if len(self.late) else 0
        if not caused:
            return None
        worst = self.late.row(0, named=True)
        own = self.steps.filter(pl.col("process") == worst["process"])
        mine = int(own["time"].sum() or 0)
        behind = min(int(worst["lateness"]), mine)
        least = max(CAUSES, 1.5 / len(self.late))
        if worst["caused_waiting"] <= least * caused or behind <= WORTH * mine or not mine:
            return None
        text = late_by(worst, behind, mine, len(own))
        row = self._row(
            "straggler",
            behind / mine * self.time,
            text,
            "opscope report FILE --reports late_causes,slowest_ranks: what this rank does longer than the"
            " others",
        )
        if behind <= NEAR * WORTH * mine:
            row |= borderline("straggler", text, WORTH) | {"sure": False}
        who = {"process": worst["process"], "rank": worst["rank"]}
        return row | who, int(worst["caused_waiting"])

    def none_found(self) -> dict[str, Any]:
        """Return the row which says that nothing stands out, or that this is not known."""
        if not self.many:
            return self.cannot_tell(
                "what bounds the run: of a merged job its steps' parts show it, and no steps are marked",
                "opscope.step() at the beginning of each iteration",
            )  # fmt: skip
        worked = ("compute", "exposed_communication", "copies") if self.on_gpu else ("cpu_ops",)
        if not self.time or self.parts[worked[0]] is None:
            return self.cannot_tell(
                "what bounds the run: what ran in its steps is not known",
                _OWN_FILE,
            )
        busy = sum(self.parts[name] or 0 for name in worked)
        doing = "the device was busy for" if self.on_gpu else "ops took"
        if busy < BUSY * self.time:
            return self.cannot_tell(
                f"what bounds the run: {doing} {share(busy / self.time)} of the steps' time, and no cause"
                " that sums show explains the rest",
                _OWN_FILE,
            )
        return self._row(
            HEALTHY,
            0,
            f"nothing stands out of what sums show: {doing} {share(busy / self.time)} of the steps' time",
            self.say.healthy(),
        )

    def not_told(self, read_of: str) -> Iterator[dict[str, Any]]:
        """Yield rows on other things that are not known about a merged job."""
        if not self.many:
            return
        idle = sum(self.parts[name] or 0 for name in _IDLE) if self.on_gpu else 0
        if idle > WORTH * self.time:
            yield self.cannot_tell(
                f"why the device was idle for another {self._part(idle)}: late launches, synchronising calls"
                " and the program's own code are told apart by single events, which a merged job has not",
                _OWN_FILE,
            )  # fmt: skip
        if self.parts["data_loader"] is None:
            yield self.cannot_tell(
                "whether the program waits for its input: no data loader was seen",
                "opscope run -- python train.py records the framework's own loaders",
            )  # fmt: skip
        if self.on_gpu:
            yield self.cannot_tell(
                "what bounds the kernels, compiling and memory: they are told by single events",
                _OWN_FILE,
            )  # fmt: skip
        read, _, rest = read_of.partition(" of ")
        if rest and read != rest.partition(" ")[0]:
            yield self.cannot_tell(
                f"whether a rank that was not read makes the others wait: the job is {read_of}",
                "opscope partial of the other ranks, and opscope merge again",
            )  # fmt: skip

    def cannot_tell(self, text: str, to_try: str) -> dict[str, Any]:
        """Return a row about something that is not known."""
        return self._row(CANNOT_TELL, None, text, to_try)

    def _part(self, time: float) -> str:
        each, total = ns(time / self.many), ns(self.time / self.many)
        return f"{each} of each step's {total} ({share(time / self.time)})"

    def _row(
        self, finding: str, lost: float | None, text: str, to_try: str | None
    ) -> dict[str, Any]:
        return {
            "process": None,
            "rank": None,
            "finding": finding,
            "share": lost / self.time if lost is not None and self.time else None,
            "of": None if lost is None else STEPS,
            # ranks run at the same time
            "lost": None if lost is None else round(lost / max(1, self.ranks)),
            "text": text,
            "to_try": to_try,
            "sure": True,
        }

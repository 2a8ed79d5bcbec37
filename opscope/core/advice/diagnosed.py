"""The question of what bounds the steps, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from opscope.core.advice import diagnosis_time
from opscope.core.advice.diagnosis import Facts, diagnosis
from opscope.core.advice.diagnosis_sums import NEEDED, Sums, sums
from opscope.core.advice.saying import framework
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import work_on_devices
from opscope.core.analysis.host import light_diagnosis
from opscope.core.analysis.host.input_waits import loader_waits
from opscope.core.analysis.host.light import is_light
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.lost_kernels import losses
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.analysis.ranks import stragglers
from opscope.core.analysis.steps.step_times import step_bounds
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.gathered import one_piece


def facts(profile: Answers) -> Facts:
    """What the diagnosis looks at."""
    trace = profile.attribution.trace
    work = None if profile.cpu_only else profile.of(work_on_devices)
    waits = profile.of(loader_waits)
    host = diagnosis_time.host_of(profile.of(op_index), waits, profile.cpu_only)
    steps = diagnosis_time.steps_to_judge(
        profile.of(step_bounds), profile.input_waits(), work, host
    )
    late = pl.DataFrame()
    if len(trace["processes"]) > 1:
        judged = one_piece(diagnosis_time.within(profile.of(exchanges), steps))
        late = stragglers.stragglers(trace, judged)
    if work is None:
        divided = diagnosis_time.on_cpu(host, profile.of(exchanges), steps)
    else:
        timed = work.timed and len(work.start) > 0
        divided = diagnosis_time.on_gpu(work, trace, host, steps) if timed else []

    def without_op() -> int:
        if work is None:
            return 0
        return int(profile.ask("unattributed", categories=True)["time"].sum() or 0)

    return Facts(
        trace,
        divided,
        steps,
        host,
        work,
        lambda: sums_of(profile),
        without_op,
        waits,
        late,
        profile.memory(),
        profile.device,
        framework(profile),
        profile.of(losses),
    )


def sums_of(profile: Answers) -> Sums:
    """The sums of the distinct ops that the diagnosis needs."""
    return sums(summed_columns(profile, NEEDED), profile.device[0], not profile.cpu_only)


def answer(profile: Answers) -> pl.DataFrame:
    """What bounds the steps, in words, what costs most first; then what cannot be told.

    The first row is the answer: a cause such as ``input-bound``; ``healthy`` where nothing stands out; or
    ``cannot tell``, with what to capture. Steps that are warm-up are left out if there are others;
    without steps all that was recorded is judged. Light mode judges the steps by their phases.
    """
    if is_light(profile.trace):
        return light_diagnosis.diagnosis(profile.trace)
    return diagnosis(facts(profile))


def diagnosis_table(report: Report, profile: Answers, view: View) -> Table:
    """A row for each finding and, below, its sentence in full, which no column holds.

    On the first screen only the answer has its sentences; the other findings are named.
    """
    frame = report.frame(profile)
    if view.first:
        return Table(report.title, [Column("what", "")], (), sentences=_answer(frame))
    losses = frame.filter(frame["lost"].is_not_null() & (frame["finding"] != "healthy"))
    below = []
    for row in frame.to_dicts():
        below.append(f"  {_name(row)}: {units.text(row['text'])}")
        if row["to_try"] is not None:
            below.append(f"    try: {units.text(row['to_try'])}")
    table = listed(report, losses, view)
    if losses.is_empty():
        table = replace(table, footnotes=())
    return replace(table, footnotes=(*table.footnotes, *below))


def _name(row: dict[str, Any]) -> str:
    whose = "" if row["rank"] is None else f" (rank {row['rank']})"
    return f"{units.text(row['finding'])}{whose}"


def _answer(frame: pl.DataFrame) -> list[str]:
    """Return the first finding with its evidence and what to try, and the names of the others."""
    first, *others = frame.to_dicts()
    lines = [f"{_name(first)}: {units.text(first['text'])}"]
    if first["to_try"] is not None:
        lines.append(f"try: {units.text(first['to_try'])}")
    more = [row for row in others if row["finding"] != "cannot tell"]
    if more:
        named = [
            units.text(row["finding"])
            + ("" if row["share"] is None else f" ({units.share(row['share'])})")
            for row in more
        ]
        lines.append(f"also: {', '.join(named)}")
    if len(others) > 0:
        lines.append("all of it, and what cannot be told: --reports diagnosis")
    return lines


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "diagnosis()",
            (
                "one row per finding, what costs most first, then one for each thing that cannot "
                "be told"
            ),
            columns(
                "process rank finding share lost text to_try",
                """
                finding: text: the answer in a few words: a cause; `healthy`; `cannot tell`, of what the
                    text says
                share: fraction: part of the steps' time that it concerns; of a straggler in light mode,
                    of one step
                lost: ns: how much shorter all steps together were without it, at most
                text: text: the finding, with its numbers
                to_try: text: the first thing to try, or what to capture
                """,
            ),
        ),
    ),
    reports=(
        Report(
            name="diagnosis",
            title="Diagnosis",
            empty="nothing was found",
            shown="rank finding share lost",
            table=diagnosis_table,
            sums="",
            lean=True,
        ),
    ),
)

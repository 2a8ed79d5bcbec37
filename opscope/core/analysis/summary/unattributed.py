"""The device time without an op, by reason."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import copy_executions, kernel_executions
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.totals import added_unattributed, unattributed, unattributed_sums
from opscope.core.analysis.summary.summary import compiling_time, unattributed_on_cpu
from opscope.core.question.column import Frame
from opscope.core.question.record import Job, Question, Report, Sums
from opscope.core.question.words import columns


def answer(profile: Answers) -> pl.DataFrame:
    """Device time without an op: one row per reason, from a closed list, by time."""
    summary = profile.summary()
    if profile.cpu_only:
        trace = profile.attribution.trace  # including inferred steps
        compiling = compiling_time(trace, lambda: profile.of(op_rows))
        return unattributed_on_cpu(summary, compiling)
    return unattributed(_sums(profile), int(summary["device_time"].item() or 0))


def _sums(profile: Answers) -> pl.DataFrame:
    """Return ``unattributed_sums``; no table without a GPU."""
    if profile.cpu_only:
        return pl.DataFrame()
    return unattributed_sums(profile.of(kernel_executions), profile.of(copy_executions))


def _of_job(sums: pl.DataFrame, job: Job) -> pl.DataFrame:
    if job.cpu_only:
        return unattributed_on_cpu(job.answer("summary"), job.compiling)
    return unattributed(sums, job.device_time)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "unattributed()",
            "one row per reason why device time has no op",
            columns(
                "reason kernels copies kernel_time time share",
                """
                kernel_time: ns: part of time spent in kernels
                time: ns: device time without an op; adds up to the summary's device_unattributed_time
                share: fraction: time / all device time
                """,
            ),
        ),
    ),
    merged=Sums(
        table="unattributed",
        of=_sums,
        added=added_unattributed,
        finished=_of_job,
    ),
    reports=(
        Report(
            name="unattributed",
            title="Time without an op, by reason",
            empty="no time without an op: all of it has one, or none was recorded",
            sums="time kernels copies",
        ),
    ),
)

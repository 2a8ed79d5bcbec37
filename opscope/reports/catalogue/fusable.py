"""The report of chains of kernels that a fusion would join, by the most that it would save."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.core.question.layout import Table
from opscope.frames import FRAMES
from opscope.reports.device_columns import FORMS
from opscope.reports.report import Report, View
from opscope.reports.tables import listed

if TYPE_CHECKING:
    from opscope.profile import Profile


def fusable(report: Report, profile: Profile, view: View) -> Table:
    """Return the chains, with what the estimates mean."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "saving_most is an estimate and an upper bound: the gaps inside the chain, and what the tensors "
            "between its kernels take to write and read; a chain that something else must interrupt saves "
            "nothing"
        )
        notes.append("a kernel may be in a pointwise and in a short chain: do not add up the two")
    return Table(table.title, table.columns, table.rows, notes)


REPORT = Report(
    name="fusable",
    order=440,
    title="Chains of kernels that a fusion would join",
    holds=FRAMES["fusable_kernels()"],
    frame=lambda profile: profile.fusable_kernels(),
    empty="no two pointwise or short kernels follow each other directly on a stream whose number is known",
    shown=[
        "saving_most",
        "chain",
        "sequence",
        "length",
        "calls",
        "duration",
        "gap_time",
        "intermediate_bytes",
        "direction",
        "layer",
    ],
    table=fusable,
    forms=FORMS,
    gpu_only=True,
)

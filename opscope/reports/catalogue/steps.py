"""The report of steps: the wall time of each by what the process did, and by phase."""

from __future__ import annotations

from opscope.core.question import units
from opscope.core.question.layout import Column
from opscope.frames import FRAMES
from opscope.reports.report import Report
from opscope.reports.tables import with_step_notes

REPORT = Report(
    name="steps",
    order=300,
    title="Steps",
    holds=FRAMES["steps()"],
    frame=lambda profile: profile.steps(),
    empty="no steps, and nothing of the host: opscope.step() or a callback marks steps",
    shown=[
        "process",
        "step",
        "time",
        "communication_part",
        "kernel_part",
        "copy_part",
        "runtime_part",
        "loader_part",
        "op_part",
        "other_part",
        "forward_phase",
        "backward_phase",
        "optimizer_phase",
        "slow",
        "warm_up",
    ],
    forms=[
        Column("communication_part", "comm.", units.time),
        Column("kernel_part", "kernels", units.time),
        Column("copy_part", "copies", units.time),
        Column("runtime_part", "runtime", units.time),
        Column("loader_part", "loader", units.time),
        Column("op_part", "CPU ops", units.time),
        Column("other_part", "other", units.time),
        Column("forward_phase", "forward", units.time),
        Column("backward_phase", "backward", units.time),
        Column("optimizer_phase", "optimizer", units.time),
    ],
    written=False,
    table=with_step_notes,
)

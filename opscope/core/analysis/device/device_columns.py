"""How the columns about device use are shown: with short headings, so that a table fits on a line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from opscope.core.question import units
from opscope.core.question.layout import Column

_flex = partial(Column, flexible=True)

FORMS: Final[Sequence[Column]] = (
    _flex("device_name", "model"),
    Column("gpu_utilization", "utilization", units.share),
    Column("sm_efficiency", "SM efficiency", units.share),
    Column("achieved_occupancy", "occupancy", units.share),
    Column("theoretical_occupancy", "possible", units.share),
    Column("tensor_core_share", "TC", units.share),
    Column("tensor_core_time", "TC time", units.time),
    Column("tensor_core_undetermined_time", "TC unknown", units.time, rank=1),
    Column("blocks_per_sm", "blocks/SM", units.ratio),
    Column("waves", "waves", units.ratio),
    Column("tail_share", "tail", units.share),
    Column("registers", "regs", units.count),
    Column("tensor_core", "TC", rank=7),
    Column("limited_by", "limited by"),
    Column("grid", "grid"),
    Column("block", "block"),
    Column("short_share", "of its calls", units.share),
    Column("short_time", "short time", units.time),
    Column("at_least", "from", units.time),
    Column("below", "to below", units.time),
    Column("calls_share", "of all", units.share),
    Column("calls_running", "so far", units.share),
    Column("saving_most", "saves at most", units.time, rank=-1),
    _flex("sequence", "ops in sequence", least=30, rank=-1),
    Column("length", "kernels", units.count),
    Column("gap_time", "gaps", units.time),
    Column("intermediate_bytes", "between", units.size),
)

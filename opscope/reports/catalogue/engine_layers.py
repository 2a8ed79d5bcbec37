"""The report of the layers of TensorRT engines: time, precision, formats, tactic, origin, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.frames import FRAMES
from opscope.reports.report import Report

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def _by_time(profile: Profile) -> pl.DataFrame:
    """The engine's order, the longest first where times are known."""
    return profile.engine_layers().sort(
        "mean", descending=True, nulls_last=True, maintain_order=True
    )


REPORT = Report(
    name="engine_layers",
    order=255,
    title="Layers of TensorRT engines, by time",
    holds=FRAMES["engine_layers()"],
    frame=_by_time,
    empty="no TensorRT engine is described (trtexec --exportLayerInfo, or --model beside a trace)",
    shown=[
        "layer",
        "share",
        "mean",
        "op",
        "role",
        "precision",
        "formats",
        "flops",
        "efficiency",
        "tactic",
        "origins",
    ],
    aliases=("tensorrt", "trt_layers"),
)

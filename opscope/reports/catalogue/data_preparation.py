"""The report of the data loaders that the program waited for."""

from __future__ import annotations

from opscope.frames import FRAMES
from opscope.reports.report import Report

REPORT = Report(
    name="data_preparation",
    order=550,
    title="Data preparation: waits for each data loader",
    holds=FRAMES["data_preparation()"],
    frame=lambda profile: profile.data_preparation(),
    empty=(
        "no data loader was seen: opscope sees PyTorch's DataLoader, tf.data, MindSpore's dataset, Hugging"
        " Face's datasets and Grain; put other input in: with opscope.annotate('input', 'phase')"
    ),
    shown=[
        "process",
        "share",
        "verdict",
        "loader",
        "calls",
        "total",
        "mean",
        "p90",
        "max",
        "steps",
        "bound_steps",
        "workers",
        "queue_depth",
        "empty",
        "source",
        "reason",
    ],
    aliases=["loaders"],
)

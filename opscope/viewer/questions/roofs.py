"""The question of the roofs: the device's peaks, the dtypes of its work, and why some are unknown."""

from __future__ import annotations

from typing import Any

import polars as pl

from opscope.core.analysis.roofline.roofs import about
from opscope.core.perf.devices.peaks import Device
from opscope.profile import Profile
from opscope.reports import vendor_words
from opscope.viewer.question import Asked, Question
from opscope.viewer.viewed import Viewed


def answer(asked: Asked) -> dict[str, Any]:
    """Return the peaks (FLOP/s by unit and dtype) and the memory's bandwidth (bytes/s).

    ``device`` is null if it is not known, with ``reason``. ``worked`` has the device time (ns) by
    dtype (empty for a merged job, which has no single ops), ``cached`` the size (bytes) of the
    largest cache, whose bandwidth no table holds; ``notes`` are the lines below the report's table.
    """
    profile = asked.profile
    device, reason = profile.device
    of = vendor_words.vendor(profile)
    return {
        "device": None if device is None else device.name,
        "reason": None if reason is None else vendor_words.said(reason, of),
        "worked": _worked(profile) if profile.merged_of is None else {},
        "notes": [] if device is None else [vendor_words.said(line, of) for line in about(device)],
        **_peaks(device),
    }


def _worked(profile: Profile) -> dict[str, int]:
    times = (
        profile.efficiency()
        .group_by(pl.col("dtype").cast(pl.String), maintain_order=True)
        .agg(pl.col("duration").sum())
        .drop_nulls("dtype")
        .sort("duration", descending=True)
    )
    return dict(times.rows())


def _peaks(device: Device | None) -> dict[str, Any]:
    if device is None:
        return {"tensor": {}, "vector": {}, "bandwidth": None, "cache": None}
    return {
        "tensor": dict(device.tensor),
        "vector": dict(device.vector),
        "bandwidth": device.bandwidth,
        "cache": device.cache(),
    }


def stored(viewed: Viewed) -> list[dict[str, str]]:
    """Return that a single file holds this answer."""
    return [{}]


QUESTION = Question(name="roofs", answer=answer, stored=stored)

"""Infer the engine steps of a process that marks none: from its steps, its iterations, or bursts of ops."""

from __future__ import annotations

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.detected_iterations import detected_steps
from opscope.core.analysis.steps.engine_kinds import SURE, bursts, kinds_of_steps, main_thread
from opscope.core.analysis.steps.step_times import step_bounds
from opscope.core.attribution.inferred_steps import trains
from opscope.core.attribution.numbered_ranges import BY
from opscope.core.attribution.served_steps import BOTH, SERVED
from opscope.core.attribution.several_optimizers import LEAST
from opscope.core.tables.intervals import NONE


def steps_without_names(profile: Answers, served: pl.DataFrame) -> pl.DataFrame:
    """Return the engine steps (``SERVED``) of the processes that are not in ``served`` and train nothing."""
    ops = profile.of(op_index)
    meaning, ranges = ops.attribution.meaning, ops.attribution.trace["ranges"]
    process = ranges["process"].fill_null(NONE).to_numpy()
    trained = np.unique(process[trains(meaning)[meaning.reading]])
    ran = ops.attribution.trace["kernels"]["process"].drop_nulls().to_numpy()
    others = np.setdiff1d(
        np.concatenate((process[ops.rows], ran)),
        np.concatenate((trained, served["process"].unique())),
    )
    parts = [pl.DataFrame(schema=SERVED)]
    if not len(others):
        return parts[0]
    for number in others.tolist():
        bounds = _bounds(profile, ops, number)
        if bounds is not None and len(bounds) >= LEAST:
            kinds = kinds_of_steps(ops, number, bounds)
            if kinds is not None:
                parts.append(_rows(kinds, number))
    return pl.concat(parts)


# ------------------------------------------------------------------------------------------ where steps are


def _bounds(profile: Answers, ops: Ops, process: int) -> pl.DataFrame | None:
    """Return thread, start, end (ns) and sure (the confidence) of the steps of a process, by begin."""
    marked = profile.of(step_bounds).filter(
        (pl.col("process") == process) & pl.col("step").is_not_null()
    )
    if len(marked) >= LEAST:
        return marked.select(
            pl.lit(main_thread(ops, process)).alias("thread"), "start", "end",
            pl.lit(1.0).alias("sure"),
        ).sort("start")  # fmt: skip
    detected = detected_steps(profile).filter(
        (pl.col("process") == process) & pl.col("step").is_not_null()
    )
    if len(detected) and not detected["by"].cast(pl.String).str.starts_with(BY).any():
        return detected.select(
            "thread", "start", "end", pl.col("confidence").alias("sure")
        ).sort("start")  # fmt: skip
    return bursts(ops, process)


def _rows(steps: pl.DataFrame, process: int) -> pl.DataFrame:
    """Return the columns of ``SERVED``; a phase that does not occur in a step has zeros."""
    sure = pl.col("by").replace_strict(SURE, default=None, return_dtype=pl.Float64)
    is_decode, new, requests = pl.col("kind") == "decode", pl.col("new"), pl.col("requests")
    each = pl.when(requests > 0).then(new // requests)
    sums = {
        "requests": requests,
        "queries": new,
        "keys": pl.col("all_keys"),
        "qq": each * new,
        "qk": each * pl.col("all_keys"),
    }
    phases = {
        f"{phase}_{name}": pl.when(is_decode == (phase == "decode")).then(value).otherwise(0)
        for phase in ("prefill", "decode")
        for name, value in sums.items()
    }
    columns = {
        "process": pl.lit(process),
        "thread": pl.col("thread"),
        "start": pl.col("start"),
        "end": pl.col("end"),
        "kind": pl.col("kind"),
        "source": pl.col("by"),
        "padded": pl.lit(None, pl.Int64),
        "confidence": (sure * pl.col("sure")).round(3),
        "engine": pl.lit(0),
        **phases,
        **dict.fromkeys(BOTH, pl.lit(None, pl.Int64)),
    }
    return steps.select(**{name: columns[name] for name in SERVED}).cast(dict(SERVED.items()))

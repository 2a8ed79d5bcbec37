"""The steps of an inference server's engine: when each ran, of which kind it was, its requests and tokens."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.serving.inferred import steps_without_names
from opscope.core.attribution.served_steps import BOTH

#: Columns of ``engine_steps``. Times in ns on the trace's clock; unknown counts are null.
STEPS: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "thread": pl.Int64,
    "step": pl.Int64,
    "kind": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "next": pl.Int64,
    "requests": pl.Int64,
    "prefill_requests": pl.Int64,
    "decode_requests": pl.Int64,
    "new_tokens": pl.Int64,
    "prefill_tokens": pl.Int64,
    "decode_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "sum_qq": pl.Int64,
    "sum_qk": pl.Int64,
    "prefill_qk": pl.Int64,
    "decode_qk": pl.Int64,
    "padded": pl.Int64,
    "source": pl.String,
    "confidence": pl.Float64,
}


def engine_steps(profile: Answers) -> pl.DataFrame:
    """The engine's steps of each process (``STEPS``), by process and begin.

    They are the ranges that a server names by the sizes of its steps (``dialects.serving``), of the engine
    with most of them. ``next``: when the process's next step began (ns); for the last step, its own end.
    ``new_tokens``: tokens that it computed (Σq); ``output_tokens``: tokens that it produced, one for each
    request that decoded; null if drafts were verified, because their acceptance is not recorded;
    ``cached_tokens``: tokens that were in the cache before (Σk - Σq). ``sum_qq``, ``sum_qk``: Σq² and Σq·k
    over its requests. A process that names no steps and trains nothing has the steps of
    ``steps_without_names``.
    """
    ops = profile.of(op_index)
    named = ops.served_steps.filter(pl.col("engine") == 0)
    every = pl.concat([named, steps_without_names(profile, named)])
    return _with_sums(every, ops.attribution.trace["processes"])


def _with_sums(steps: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with their numbers, and with the sums over both phases (``STEPS``)."""

    def both(name: str) -> pl.Expr:
        parts = pl.col(f"prefill_{name}") + pl.col(f"decode_{name}")
        return pl.coalesce(parts, f"both_{name}") if f"both_{name}" in BOTH else parts

    decoded = pl.col("decode_requests")
    alone = (pl.col("decode_queries") == decoded).fill_null(True)
    ordered = steps.sort("process", "start", "end").with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over("process").alias("step"),
        pl.col("start").shift(-1).over("process").alias("next"),
    )
    summed = ordered.with_columns(
        pl.max_horizontal(pl.coalesce("next", "end"), "start").alias("next"),
        both("requests").alias("requests"),
        both("queries").alias("new_tokens"),
        pl.col("prefill_queries").alias("prefill_tokens"),
        pl.col("decode_queries").alias("decode_tokens"),
        pl.when(pl.col("kind").is_in(["decode", "mixed"]) & alone)
        .then(decoded)
        .alias("output_tokens"),
        (both("keys") - both("queries")).alias("cached_tokens"),
        both("qq").alias("sum_qq"),
        both("qk").alias("sum_qk"),
    )
    joined = summed.join(
        ranks.select("process", "rank").unique("process"), on="process", how="left"
    )
    return joined.sort("process", "step").select(*STEPS).cast(dict(STEPS.items()))

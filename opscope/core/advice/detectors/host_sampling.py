"""Logits that a server copies to the host in its decode steps, to choose tokens there."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.communicated import as_int
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import ms
from opscope.core.advice.served import LEAST, engine, of_worst, steady
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.serving.engine_steps import engine_steps
from opscope.core.analysis.serving.step_work import step_at
from opscope.core.analysis.steps.iterations import launch_times
from opscope.core.question import units
from opscope.core.tables.intervals import NONE

#: Token ids, probabilities of a few tokens and flags take fewer bytes for each request.
_BYTES: Final = 4_096
_CHANGE: Final = (
    "Choose tokens on the device: no logits processor in Python, no logprobs of the whole"
    " vocabulary, sampling by the server's own kernels."
)


def find(answers: Answers) -> Answer:
    """Return one finding for all decode steps that copy much to the host."""
    steps = engine(answers)
    if isinstance(steps, CannotTell):
        return steps
    copies = _to_host(answers)
    if copies is None:
        return CannotTell("no copies were recorded")
    decode = steady(steps).filter(pl.col("decode_requests") > 0)
    joined = decode.join(copies, on="row", how="inner")
    large = joined.filter(pl.col("copied") > _BYTES * pl.col("decode_requests"))
    large, decode = of_worst(large, "copy_time", decode)
    if len(large) < LEAST:
        return []
    time = as_int(large["copy_time"].sum())
    return [
        Finding(
            what=f"{len(large):,} of {len(decode):,} decode steps copy"
            f" {units.size(large['copied'].median())} to the host (median): logits, where token ids would do",
            evidence=f"{units.size(large['copied'].sum())} in all, {ms(time)} of copies",
            recommendation=_CHANGE,
            time=time,
            saving_least=0,
            saving_most=None,
            reasoning="Counted are copies from the device to the host in decode steps of more than"
            f" {_BYTES:,} bytes for each decoding request. The copies themselves may hide behind"
            " work; what the host computes with the logits is not known, so nothing bounds it.",
            confidence="medium",
            rows=large.select("process", "step", pl.col("copied").alias("count"),
                              pl.col("copy_time").alias("time")).head(20),
        )
    ]  # fmt: skip


def _to_host(answers: Answers) -> pl.DataFrame | None:
    """Return per engine step the bytes and the time (ns) of copies to the host; None without any copies."""
    ops = answers.of(op_index)
    memops = ops.attribution.trace["memops"]
    if memops.is_empty():
        return None
    when = launch_times(ops, "memops", ops.attribution.memops)
    process = memops["process"].fill_null(NONE).to_numpy()
    row = step_at(answers.of(engine_steps), process, when)
    return (
        memops.select("kind", "bytes", (pl.col("end") - pl.col("start")).alias("time"))
        .with_columns(pl.Series("row", row.astype(np.int64)))
        .filter((pl.col("kind").cast(pl.String) == "DtoH") & (pl.col("row") >= 0))
        .group_by("row")
        .agg(pl.col("bytes").sum().alias("copied"), pl.col("time").sum().alias("copy_time"))
    )


DETECTOR = Detector(
    name="host_sampling",
    question="Are logits copied to the host in each decode step?",
    find=find,
    fires="five decode steps that copy more than 4,096 bytes to the host for each decoding request",
    looks_at="The bytes that decode steps copy from the device to the host, for each request that decodes.",
    abstains="Nothing marks engine steps, their kinds were guessed, fewer than five decode, or no copies were"
    " recorded.",
)

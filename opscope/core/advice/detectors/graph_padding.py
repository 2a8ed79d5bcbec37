"""Decode batches that a server pads to the size of a captured graph: rows that nobody asked for."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.communicated import as_int
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import ms
from opscope.core.advice.served import engine, of_worst, steady
from opscope.core.question import parameters, units

#: The part of the rows from which other capture sizes are worth it.
_ROWS: Final = 0.1
_CHANGE: Final = (
    "Capture graphs for the batches that come: vLLM cudagraph_capture_sizes, SGLang"
    " --cuda-graph-bs, TensorRT-LLM cuda_graph_config.batch_sizes, ATOM its capture sizes."
)


def find(answers: Answers, least: float = _ROWS) -> Answer:
    """Return one finding for all padded decode steps."""
    steps = engine(answers)
    if isinstance(steps, CannotTell):
        return steps
    padded = steady(steps).filter(pl.col("padded").is_not_null() & pl.col("requests").is_not_null())
    if padded.is_empty():
        return CannotTell("no step's name tells the size to which its batch was padded")
    unused = pl.col("padded") - pl.col("requests")
    (lost,) = of_worst(
        padded.with_columns(
            (pl.col("device_time") * unused / pl.col("padded")).round().cast(pl.Int64).alias("lost")
        ),
        "lost",
    )
    rows, empty = (int(lost.select(total.sum()).item()) for total in (pl.col("padded"), unused))
    if empty <= least * rows:
        return []
    most = as_int(lost["lost"].sum())
    worst = (
        lost.group_by("requests", "padded")
        .agg(pl.len().alias("steps"), pl.col("lost").sum())
        .sort("lost", "padded", descending=True)
    )
    pairs = [f"{req} as {pad} ({n:,} steps)" for req, pad, n, _ in worst.head(4).rows()]
    return [
        Finding(
            what=f"{units.share(empty / rows)} of the rows of decode batches are padding to the sizes"
            " of graphs",
            evidence=f"requests and graph: {', '.join(pairs)}",
            recommendation=_CHANGE,
            time=as_int(lost["device_time"].sum()),
            saving_least=0,
            saving_most=most,
            reasoning="Counted are the requests and the padded size in the names of decode steps, without"
            " warm-up. At least nothing: a decode step bound by its weights is not shorter with"
            " fewer rows. At"
            f" most {ms(most)}: the padded part of the rows, of each step's device time.",
            confidence="low",
        )
    ]


DETECTOR = Detector(
    name="graph_padding",
    question="Are decode batches padded far beyond their requests?",
    find=find,
    fires="more than {least} of the rows of decode batches are padding",
    thresholds={"least": parameters.share("the least share of the rows")},
    looks_at="The requests of each decode step and the size to which its name says it was padded.",
    abstains="Nothing marks engine steps, their kinds were guessed, fewer than five decode, or no"
    " name tells a padded size.",
)

"""Decode steps of a server that replay no CUDA graph, while the device waits for their launches."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.communicated import as_int
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import ms, share
from opscope.core.advice.served import WORTH, engine, of_worst, steady
from opscope.core.question import parameters
from opscope.core.question.units import counted

#: A step of fewer kernels is launched as fast as a graph.
_MANY: Final = 20
_CHANGE: Final = (
    "vLLM: serve without --enforce-eager, with cudagraph_capture_sizes up to this batch. SGLang:"
    " without --disable-cuda-graph, --cuda-graph-max-bs at this batch. TensorRT-LLM:"
    " cuda_graph_config with this batch size."
)
_REASONING: Final = (
    "Counted is the time inside the ranges of decode steps without a graph in which the device had"
    " no work (host_part of engine steps), without warm-up. At least nothing: the host may still be"
    " late. At most all of it."
)


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return one finding for all decode steps without a graph."""
    steps = engine(answers)
    if isinstance(steps, CannotTell):
        return steps
    decode = steady(steps)
    if not decode["kernels"].sum():
        return CannotTell("no kernels were recorded in the decode steps")
    outside = decode.filter((pl.col("graph_kernels") == 0) & (pl.col("kernels") >= _MANY))
    outside, decode, steps = of_worst(outside, "host_part", decode, steps)
    waits, total = as_int(outside["host_part"].sum()), as_int(steps["time"].sum())
    if waits <= least * total:
        return []
    sizes = outside["requests"].drop_nulls().unique().sort().to_list()
    batches = f" of {', '.join(map(str, sizes[:8]))} requests" if sizes else ""
    return [
        Finding(
            what=f"{len(outside):,} of {counted(len(decode), 'decode step')} replay no CUDA graph: the"
            f" device waits {ms(waits)} for their launches ({share(waits, total)} of the engine's time)",
            evidence=f"steps{batches} with {int(outside['kernels'].median() or 0):,} kernels each (median)",  # type: ignore[arg-type]
            recommendation=_CHANGE,
            time=waits,
            saving_least=0,
            saving_most=waits,
            reasoning=_REASONING,
            confidence="high" if waits > 2 * least * total else "medium",
            rows=outside.select("process", "step", pl.col("kernels").alias("count"),
                                pl.col("host_part").alias("time")).head(20),
        )
    ]  # fmt: skip


DETECTOR = Detector(
    name="decode_outside_graphs",
    question="Does the device wait for the launches of decode steps that replay no CUDA graph?",
    find=find,
    fires="device waits of more than {least} of the engine's time in decode steps of 20 kernels and more",
    thresholds={"least": parameters.share("the least share of the engine's time")},
    looks_at="The decode steps of an inference server after the warm-up: the kernels that each"
    " launches by itself or by a graph, and how long the device had no work inside the step.",
    abstains="Nothing marks engine steps, their kinds were guessed, fewer than five decode, or no"
    " kernels were recorded.",
)

"""Prefills that hold up decoding requests: in mixed steps, and in steps between two decode steps."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.communicated import as_int
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import ms, share
from opscope.core.advice.served import WORTH, engine, of_worst
from opscope.core.question import parameters

_CHANGE: Final = (
    "Bound what a prefill adds to a step: vLLM --max-num-batched-tokens, SGLang"
    " --chunked-prefill-size, TensorRT-LLM enable_chunked_prefill with max_num_tokens; or prefill on"
    " other devices (disaggregated serving)."
)
_REASONING: Final = (
    "Counted is the time of mixed steps beyond the median decode step, and all time of prefill"
    " steps between two that decode (serving_stalls()). The prefills must run all the same: what is"
    " gained is the time between two tokens, not the engine's."
)


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return one finding for all steps that hold up decoding requests."""
    steps = engine(answers)
    if isinstance(steps, CannotTell):
        return steps
    stalls = answers.ask("serving_stalls")
    if stalls.filter(pl.col("usual_time").is_null()).height:
        return CannotTell("there are too few decode steps to tell the usual time")
    stalls, steps = of_worst(stalls, "excess", steps)
    excess, total = as_int(stalls["excess"].sum()), as_int(steps["time"].sum())
    if excess <= least * total:
        return []
    said = ", ".join(
        f"{row['steps']:,} {row['kind']} steps, {ms(row['step_time'])} each where a decode takes"
        f" {ms(row['usual_time'])}"
        for row in stalls.rows(named=True)
    )
    return [
        Finding(
            what=f"prefills hold decoding requests up for {ms(excess)} ({share(excess, total)} of the"
            f" engine's time), at once for up to {ms(as_int(stalls['excess_most'].max()))}",
            evidence=said,
            recommendation=_CHANGE,
            time=excess,
            saving_least=0,
            saving_most=None,
            reasoning=_REASONING,
            confidence="medium",
        )
    ]


DETECTOR = Detector(
    name="prefill_stalls",
    question="Do prefills hold up the requests that decode?",
    find=find,
    fires="more than {least} of the engine's time",
    thresholds={"least": parameters.share("the least share of the engine's time")},
    looks_at="Mixed steps beyond the usual time of a decode step, and prefill steps between two that decode.",
    abstains="Nothing marks engine steps, their kinds were guessed, or fewer than five decode.",
)

"""The device waits between a server's decode steps: for the scheduler, for results, for detokenising."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.communicated import as_int
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import ms, share
from opscope.core.advice.served import WORTH, engine, of_worst
from opscope.core.question import parameters
from opscope.core.question.units import counted

_CHANGE: Final = (
    "Prepare the next step while this one runs: vLLM --async-scheduling, SGLang's overlap schedule"
    " (without --disable-overlap-schedule), TensorRT-LLM without disable_overlap_scheduler; and let"
    " other processes tokenise and detokenise."
)
_REASONING: Final = (
    "Counted is the time after the ranges of steps with decoding requests, followed by another such"
    " step, in which the device had no work (between_part), without warm-up. At least nothing:"
    " launches may be as late afterwards. At most all of it."
)


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return one finding for all waits after steps whose requests go on decoding."""
    steps = engine(answers)
    if isinstance(steps, CannotTell):
        return steps
    if not steps["kernels"].sum():
        return CannotTell("no kernels were recorded in engine steps")
    going_on = pl.col("decode_requests").fill_null(1) > 0
    goes_on = going_on & (going_on.shift(-1) & (pl.col("kind").shift(-1) != "idle")).over("process")
    waits = steps.filter(goes_on & ~pl.col("warm_up").fill_null(False))
    waits, steps, host = of_worst(waits, "between_part", steps, answers.ask("serving_host"))
    time, total = as_int(waits["between_part"].sum()), as_int(steps["time"].sum())
    if time <= least * total:
        return []
    causes = [f"{row['what']} {ms(row['time'])}" for row in host.head(3).rows(named=True)]
    return [
        Finding(
            what=f"the device waits {ms(time)} between {counted(len(waits), 'engine step')} whose"
            f" requests go on decoding ({share(time, total)} of the engine's time)",
            evidence=f"between steps ran: {', '.join(causes)}",
            recommendation=_CHANGE,
            time=time,
            saving_least=0,
            saving_most=time,
            reasoning=_REASONING,
            confidence="high" if time > 2 * least * total else "medium",
        )
    ]


DETECTOR = Detector(
    name="late_scheduler",
    question="Does the device wait between the decode steps of an inference server?",
    find=find,
    fires="more than {least} of the engine's time",
    thresholds={"least": parameters.share("the least share of the engine's time")},
    looks_at="The time between the ranges of two engine steps with decoding requests in which no"
    " work of a step ran on the device. Between others a server may have had nothing to do.",
    abstains="Nothing marks engine steps, their kinds were guessed, fewer than five decode, or no"
    " kernels were recorded.",
)

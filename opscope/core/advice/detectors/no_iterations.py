"""A profile without steps, which cannot be split into iterations."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import framework
from opscope.core.analysis.device.device_work import NOT_TIMED
from opscope.core.analysis.steps.detected_iterations import NO_KERNELS

_KEY: Final = (
    "for this profile: `opscope report FILE --key-node OP`, an op that runs once an iteration"
)
_HOW: Final = {
    "torch": "`opscope run` takes the optimizer's steps as steps; else call opscope.step() at the"
    " beginning of"
    " each step, or prof.step() under torch.profiler",
    "keras": "model.fit(…, callbacks=[opscope.callbacks.keras.StepRange(10, 15, 'steps.opscope')])",
    "tensorflow": "call opscope.step() at the beginning of each step, or"
    " model.fit(…, callbacks=[opscope.callbacks.keras.StepRange(10, 15, 'steps.opscope')])",
    "jax": "with jax.profiler.StepTraceAnnotation('train', step_num=n): around each step, or opscope.step()",
    "mindspore": "Model.train(…, callbacks=[opscope.callbacks.mindspore.StepRange(10, 15)])",
}


def find(answers: Answers) -> Answer:
    """Return one finding if no process has steps that the program marks or a key node ends."""
    if answers.trace["ranges"].is_empty() and answers.trace["kernels"].is_empty():
        return CannotTell("the profile has neither kernels nor ops")
    told = answers.overlap()["reason"].drop_nulls()
    if NOT_TIMED in told:
        return CannotTell(f"{NOT_TIMED}, so that there are no iterations to tell apart")
    iterations = answers.iterations()
    iterated = iterations.filter(pl.col("iteration").is_not_null())
    # a server's engine steps are of several kinds, so they are not the steps of one program
    served = iterated["found_by"].str.starts_with("range: ").fill_null(False).any()
    if served or iterated["is_step"].fill_null(False).any():
        return []
    if not len(iterated) and set(iterations["reason"].drop_nulls()) <= {NO_KERNELS}:
        return CannotTell("the profile has neither kernels nor ops")
    how = _HOW.get(framework(answers) or "", "call opscope.step() at the beginning of each step")
    by = ", ".join(iterated["found_by"].drop_nulls().unique().sort())
    inferred = len(iterated) > 0
    if inferred:
        sure = iterated["certainty"].drop_nulls().to_list() or [0.0]
        evidence = (
            f"{len(iterated):,} iterations were inferred from what repeats"
            f" ({by}), with certainty {min(sure):g}: too unsure to be taken as steps"
        )
    else:
        reasons = iterations["reason"].drop_nulls().unique().sort().to_list()
        evidence = "; ".join(reasons[:3]) or "no process has ops or kernels that repeat"
    return [
        Finding(
            what="The profile has no steps: its figures are of the whole run, start-up and warm-up included,"
            " and nothing can be said by step",
            evidence=evidence,
            recommendation=f"{how}; {_KEY}.",
            time=0,
            saving_least=0,
            saving_most=0,
            reasoning="iterations(): is_step, certainty and reason. No time is saved:"
            " with steps, all other findings are surer.",
            confidence="low" if inferred else "high",
            saving=0,
        )
    ]


DETECTOR = Detector(
    name="no_iterations",
    question="Has the profile no steps?",
    find=find,
    fires="no step that the program marks or a key node ends",
    looks_at="iterations(): the steps that the program marks, else what a key node ends, else what repeats.",
    abstains="When the profile has neither ops nor kernels, or totals without times.",
    known_as=("DLProf: No Iteration",),
)

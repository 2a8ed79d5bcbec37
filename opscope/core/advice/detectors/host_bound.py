"""Steps in which the GPU waits for work of the host other than input, synchronising calls and launches."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.changes import Change, Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.pace import DISPATCH, Pace, count, host_work, pace, said
from opscope.core.advice.saying import ms, share
from opscope.core.question import parameters

#: A part of the steps' time from which the waits are worth a change.
WORTH: Final = 0.05
_ADVICE: Final[Named] = {
    "torch": (
        "Move what is not part of the step (logging, metrics, checkpoints, .cpu() and Python loops over"
        " tensors) out of it or every 100 steps; replace loops over parameters by torch._foreach_* or"
        " fused=True optimizers.",
        Change("torch.compile(model) takes Python out of the step.", compiled=False),
    ),
    "tensorflow": (
        Change("Put the step into one @tf.function.", compiled=False),
        "Keep Python callbacks and logging out of the step.",
    ),
    "keras": "model.compile(…, steps_per_execution=32) runs the loop over steps without Python.",
    "jax": "Put all of the step into one jax.jit function with donate_argnums, so that Python only"
    " dispatches.",
    "mindspore": "Use model.train(…, dataset_sink_mode=True), or @mindspore.jit on the function of the step.",
    "onnxruntime": "Bind inputs and outputs once with session.io_binding() and run_with_iobinding.",
}
_GENERAL: Final = (
    "Move what is not part of the step out of it, to another thread or to every 100th step."
)


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return a finding if devices waited for the host's work for more than 5 % of the steps' time."""
    pace_of_steps = pace(answers)
    if isinstance(pace_of_steps, str):
        return CannotTell(pace_of_steps)
    time, total = pace_of_steps.time("host"), pace_of_steps.whole
    if time <= least * total:
        return []
    return [_finding(answers, pace_of_steps, time, total)]


def _finding(answers: Answers, pace: Pace, time: int, total: int) -> Finding:
    rows = host_work(answers)
    mine = pace.pieces.filter(pl.col("cause") == "host")
    length = mine["end"] - mine["start"]
    long = int(length.filter(length >= DISPATCH).sum())
    most = min(time, pace.idle)
    return Finding(
        what=f"the GPU waits for other work of the host in {ms(time)} of the {ms(total)} of"
        f" {count(len(pace.steps), 'step')} ({share(time, total)})",
        evidence=f"idle while the host was at {said(rows)}; {share(long, int(length.sum()))} of it in"
        " pieces of"
        f" {DISPATCH / 1e6:g} ms or more{pace.left_out}",
        recommendation=fit(answers, _ADVICE, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=most,
        reasoning="Counted is the host_wait of idle_steps() in steps that are no warm-up, less what waits for"
        " input, synchronising calls and stretches of late launches have of it. At least nothing: other"
        f" work may set the pace then. At most {ms(most)}, if the host's work in these gaps took no time at"
        " all. No estimate lies between: how much of it can go depends on what it is.",
        confidence="high" if long > time // 2 and time > 2 * WORTH * total else "medium",
        rows=rows,
    )


DETECTOR = Detector(
    name="host_bound",
    question="Does the GPU wait for work of the host that is neither input, nor synchronising, nor"
    " launching?",
    find=find,
    fires="more than {least} of the steps' time",
    thresholds={"least": parameters.share("the least share of the time that this takes")},
    looks_at="Gaps of each GPU whose next launch came late, less the time that a wait for input"
    " (`data_loader`), a synchronising call (`sync_calls`) and stretches of late launches with gaps below"
    " 0.5 ms (`launch_bound`) explain: no time counts for two of these. What the host did in the rest is"
    " shown by op and source line. It fires above 5 % of the time of the steps that are no warm-up.",
    abstains="Without a GPU's kernels, without their launches, and without steps. On a CPU-only profile the"
    " host is the device.",
)

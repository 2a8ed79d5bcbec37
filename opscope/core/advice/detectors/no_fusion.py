"""A run in which no compiler was used although elementwise work takes much of the device's time."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.compilers import compiled_by
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, framework, ms, places, share
from opscope.core.advice.work import device_time, holds, work
from opscope.core.question import parameters

#: The part of the device's time from which elementwise work is worth a compiler.
LEAST: Final = 0.10
#: The least part of the device's time that must have a known op or kernel name.
_KNOWN: Final = 0.95
#: Kinds of work that a compiler fuses into its neighbours.
_FUSED: Final = ("elementwise", "activation", "dropout")
_RECOMMENDED: Final = {
    "torch": "model = torch.compile(model)",
    "tensorflow": "@tf.function(jit_compile=True) on the step; for clusters chosen by TensorFlow:"
    " tf.config.optimizer.set_jit('autoclustering').",
    "keras": "model.compile(optimizer, loss, jit_compile=True)",
    "jax": "step = jax.jit(step): one program for the whole step.",
    "mindspore": "mindspore.set_context(mode=mindspore.GRAPH_MODE), or @mindspore.jit on the step.",
}
#: The beginnings of frameworks' names in traces.
_FRAMEWORKS: Final = {"pytorch": "torch", "torch": "torch"}


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding where nothing was compiled and elementwise work takes LEAST of the device's time."""
    ran = work(answers)
    total = device_time(answers)
    if ran.is_empty() or not total:
        return CannotTell("neither kernels nor a framework's ops were recorded")
    compiler = compiled_by(answers)
    if compiler:
        return []
    named = framework(answers) or ""
    named = next(
        (to for start, to in _FRAMEWORKS.items() if named.lower().startswith(start)), named
    )
    if named not in _RECOMMENDED:
        return CannotTell(
            f"{named} has no compiler that this detector knows"
            if named
            else "the profile does not tell which framework ran, or has several"
        )
    attributed = int(ran["duration"].filter(ran["op"].is_not_null()).sum())
    ran_time = int(ran["duration"].sum())
    if attributed < _KNOWN * ran_time:
        return CannotTell(
            f"only {share(attributed, ran_time)} of the device's time has an op: the rest may be compiled"
        )
    fusable = ran.filter(pl.Series(holds(ran["op_type"], lambda text: text in _FUSED)))
    fusable = fusable.filter(pl.col("direction").cast(pl.String).ne_missing("optimizer"))
    time = int(fusable["duration"].sum())
    if time < least * total:
        return []
    noun = "ops" if answers.cpu_only else "kernels"
    return [
        Finding(
            what=f"nothing in this profile shows a compiler, and {len(fusable):,} elementwise {noun} take"
            f" {ms(time)}, {share(time, total)} of the device's time",
            evidence=f"no compiled region, no generated kernel, no compilation; {places(fusable, noun)}",
            recommendation=_RECOMMENDED[named],
            time=time,
            saving_least=0,
            saving_most=time,
            reasoning=f"At most all time of ops of the families {', '.join(_FUSED)} outside the optimizer,"
            " should a compiler compute all of it inside the kernels beside it; at least nothing."
            " What chains of them save has an estimate (see elementwise_chains). Columns: op_type, direction,"
            " duration.",
            confidence="low",
            rows=evidence(fusable),
        )
    ]


DETECTOR = Detector(
    name="no_fusion",
    question="Was nothing compiled (torch.compile, XLA) although elementwise work takes much of the time?",
    find=find,
    fires="{least} of the device's time, and an op for 95 % of it",
    thresholds={
        "least": parameters.share("the least share of the device time that elementwise ops take")
    },
    looks_at="compiled(), the names of kernels, the families of ops and the phases in which programs were"
    f" compiled; then the time of elementwise ops in kernels() or ops(): {LEAST:.0%} or more is a finding.",
    abstains="Where the framework is not known or has no compiler, or where less than 95 % of the device's"
    " time has an op, as the rest may be compiled.",
    known_as=("DLProf: No Fusion (XLA not enabled)",),
)

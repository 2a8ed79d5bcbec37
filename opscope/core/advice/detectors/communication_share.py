"""Communication that takes more than a tenth of a step: what fewer reductions would save."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Change, Named, fit, run_of
from opscope.core.advice.communicated import collective_kernels, rank_name, rates
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.question import parameters

#: The part of a step: that of the PyTorch profiler's plug-in.
LEAST: Final = 0.1
#: If less than this part of the communication is not hidden, fewer reductions would save nothing.
EXPOSED: Final = 0.01
#: Steps of gradient accumulation for which the saving is estimated; the second is the best estimate.
STEPS: Final = (2, 4, 8)
_CHOSEN: Final = 4
#: Collectives that add up gradients: accumulation leaves out all but one in k.
_REDUCTIONS: Final = ("all_reduce", "reduce_scatter", "reduce")

_BATCH: Final = "A larger batch for each rank"
_CHANGES: Final[Named] = {
    "torch": (
        Change(
            f"{_BATCH}; or accumulate gradients, with `with model.no_sync():` around the forward and backward"
            " of all but the last of k micro-batches; or send half the bytes:"
            " model.register_comm_hook(None, default_hooks.bf16_compress_hook).",
            wrapper="ddp",
        ),
        # without its own reduction in each step FSDP keeps whole gradients
        Change(
            f"{_BATCH}; or accumulate gradients: model.set_requires_gradient_sync(False) (fully_shard;"
            " FullyShardedDataParallel: model.no_sync()) for all but the last of k micro-batches, which keeps"
            " unsharded gradients and takes memory; or reduce in 16 bits:"
            " MixedPrecisionPolicy(reduce_dtype=torch.bfloat16).",
            wrapper="fsdp",
        ),
        Change(
            f"{_BATCH}; or accumulate gradients over k micro-batches and reduce them once"
            " (DistributedDataParallel: `with model.no_sync():`); or send them in torch.bfloat16.",
            no_wrapper=True,
        ),
    ),
    "mindspore": f"{_BATCH}; or accumulate gradients:"
    " mindspore.nn.wrap.cell_wrapper.GradAccumulationCell(network, k).",
    "jax": "A larger batch for each device; or optax.MultiSteps(optimizer, every_k_schedule=k).",
    "tensorflow": "A larger batch for each replica; or gradient accumulation:"
    " keras.optimizers.Adam(…, gradient_accumulation_steps=k).",
    "keras": "A larger batch for each replica; or gradient accumulation:"
    " keras.optimizers.Adam(…, gradient_accumulation_steps=k).",
}
_GENERAL: Final = (
    f"{_BATCH}; or add up gradients over several micro-batches and reduce once; or send them in 16"
    " bits."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding if a process communicates, without the waiting for other ranks, for more than 10 %
    of its steps."""
    rates_of_steps = rates(answers)
    if isinstance(rates_of_steps, CannotTell):
        return rates_of_steps
    much = rates_of_steps.filter(
        (
            pl.col("communication_time") - pl.col("waiting_time").fill_null(0)
            > least * pl.col("window")
        )
        & (pl.col("moving") > EXPOSED * pl.col("window"))
    )
    if much.is_empty():
        return []
    worst = much.sort("communication_share", "process", descending=[True, False])
    return [_finding(answers, worst.row(0, named=True), (len(much), len(rates_of_steps)), least)]


def _finding(
    answers: Answers, most: dict[str, Any], processes: tuple[int, int], least: float
) -> Finding:
    many, all_of = processes
    total, window, exposed = (
        int(most[name]) for name in ("communication_time", "window", "exposed")
    )
    where = rank_name(most)
    steps = marked_steps(answers).filter(
        pl.col("communication_part").is_not_null()
        & (pl.col("time") > 0)
        & (pl.col("process") == most["process"])
    )
    parts = steps.select(
        "step", (pl.col("communication_part") / pl.col("time")).alias("part")
    ).sort("part", descending=True)
    by_step = (
        f" by step between {100 * parts['part'][-1]:.1f} % and {100 * parts['part'][0]:.1f} % (step"
        f" {parts['step'][0]})"
        if len(parts)
        else " no steps are marked, so that this is of the whole window"
    )
    kernels = collective_kernels(answers).filter(pl.col("process") == most["process"])
    gradients = kernels.filter(
        pl.col("collective").is_in(_REDUCTIONS)
        & (pl.col("direction").cast(pl.String).fill_null("communication") != "forward")
    )
    # the union: if two reductions run at once, the time is exposed in both
    reduced = min(int(gradients["exposed"].sum()), exposed)
    exchanges = kernels.select("collective", "exposed")
    if kernels.is_empty():  # collectives of gloo or MPI have no kernels: they count as not hidden
        named = pl.col("kind").cast(pl.String).alias("collective")
        exchanges = answers.collectives().select(
            named, pl.col("time").fill_null(0).alias("exposed")
        )
    reducing = exchanges.filter(pl.col("collective").is_in(_REDUCTIONS))["exposed"].sum()
    kinds = "; ".join(
        f"{kind}: {count:,} taking {ms(time)}"
        for kind, count, time in kernels.group_by(pl.col("collective").fill_null("other"))
        .agg(pl.len(), pl.col("duration").sum())
        .sort("duration", descending=True)
        .head(3)
        .rows()
    )
    saves = ", ".join(f"k = {k}: {ms(reduced * (k - 1) // k)}" for k in STEPS)
    used = answers.of(run_of).framework
    estimate = (
        f" Gradients added up over k steps are reduced once in k: at most (k - 1) / k of the {ms(reduced)}"
        f" of exposed reductions is saved ({saves}); the edit is for k = {_CHOSEN}. That changes how often"
        " the optimizer steps: it is another training, with a batch k times as large."
        if reduced
        else " No kernel of the profile is known to reduce gradients, so that nothing can be said of"
        " accumulation."
    )
    return Finding(
        what=f"{where} communicates for {share(total, window)} of its {ms(window)} ({ms(total)}, of which"
        f" {ms(exposed)} beside no computation);{by_step}",
        evidence=f"{many:,} of {all_of:,} processes that communicate are above {100 * least:g} %"
        + (f"; {kinds}; by place: {places(kernels, 'collectives')}" if len(kernels) else ""),
        recommendation=fit(answers, _CHANGES, _GENERAL)
        if 2 * reduced >= exposed
        or (kernels.is_empty() and 2 * reducing >= exchanges["exposed"].sum())
        else _of_other_kinds(exchanges, used),
        time=total,
        saving_least=0,
        saving_most=exposed,
        reasoning="communication(): communication_share of window; steps(): communication_part / time. At"
        " least nothing: other work may set the pace. At most communication_time - overlap_time: what is"
        f" hidden costs no time.{estimate}",
        confidence="medium" if exposed > total // 2 else "low",
        rows=evidence(kernels) if len(kernels) else None,
        edit=_edit(gradients),
    )


def _edit(gradients: pl.DataFrame) -> Edit | None:
    if gradients.is_empty():
        return None
    return Edit(kernels=(gradients["row"].to_numpy(), np.full(len(gradients), 1 / _CHOSEN)))


def _of_other_kinds(kernels: pl.DataFrame, used: str | None) -> str:
    """Return the change to propose where most of the exposed communication reduces no gradients."""
    others = kernels.filter(~pl.col("collective").is_in(_REDUCTIONS).fill_null(False))
    most = (
        others.group_by(pl.col("collective").fill_null("other collective"))
        .agg(pl.col("exposed").sum())
        .sort("exposed", "collective", descending=[True, False])
    )
    kind = most["collective"][0] if len(most) else "collective"
    fewer = (
        "torch.distributed tensors in torch.bfloat16 or 8 bits"
        if used == "torch"
        else "16 or 8 bits"
    )
    return (
        f"Send less in each {kind}: {fewer}, no padding, and nothing that a rank can compute itself. Gradient"
        " accumulation leaves it as it is: most of what nothing hides reduces no gradients."
    )


DETECTOR = Detector(
    name="communication_share",
    question="Does a process communicate for more than 10 % of its steps?",
    find=find,
    fires="more than {least} of a process's window, waiting for other ranks left out, and "
    "more than 1 % beside no computation",
    thresholds={
        "least": parameters.share("the least share of the window that communication takes")
    },
    looks_at="communication() and, by step, steps(): the time in collectives, less the waiting for other"
    " ranks where it is known, over the window of the steps."
    " Communication that is hidden but for 1 % of the time is left alone.",
    abstains="When the source has totals without times, when only the calls of collectives were recorded"
    " and not when they ran, and when the profile has neither kernels nor ops.",
    known_as=("PyTorch profiler plug-in: communication above 10 % of a step",),
)

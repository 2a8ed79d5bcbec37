"""An optimizer that runs several small kernels for each parameter, or several passes over all of them."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.changes import Change, Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding, Floats
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import and_host, blind, device_time, edit_of, work
from opscope.core.analysis.device.fusable import FAR
from opscope.core.question import parameters
from opscope.core.tables.columns import matching

#: The fewest kernels of one step's optimizer, and their least part of the device's time, for a finding.
FEWEST: Final = 30
LEAST: Final = 0.005
#: A fused Adam reads parameter, gradient and two moments and writes three of them: seven tensors; the longest
#: pass of an unfused optimizer, such as p += a·g, moves three.
_PASSES: Final = 7 / 3
_FUSED: Final = (
    r"(?i)_fused_|\bfused_?(adam|sgd|lamb|adagrad)|FusedAdam|FusedSgd|FusedOptimizer"
    r"|multi_tensor_adam"
)
_OTHER_WORK: Final = (
    "gemm",
    "linalg",
    "communication",
    "copy",
    "view",
    "fill",
    "allocation",
    "query",
)
_LISTS: Final = r"_foreach_|multi_tensor_apply"
_RECOMMENDED: Final[Named] = {
    "torch": (
        "torch.optim.AdamW(model.parameters(), lr, fused=True) (also Adam, SGD, Adagrad); where it does not"
        " exist, foreach=True.",
        Change("@torch.compile around optimizer.step() fuses any.", compiled=False),
    ),
    "tensorflow": "Apply gradients inside @tf.function(jit_compile=True), which joins the updates.",
    "keras": "model.compile(optimizer, loss, jit_compile=True), which joins the updates.",
    "jax": "Call optax's update and apply_updates inside the jitted step, so that XLA joins them.",
    "mindspore": "mindspore.nn.AdamWeightDecay in graph mode (@mindspore.jit on the step), or"
    " mint.optim.AdamW.",
}
_GENERAL: Final = (
    "Use an optimizer that updates all parameters in one kernel (fused, multi-tensor)."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for the optimizer's kernels or ops."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    direction = ran["direction"].cast(pl.String)
    rows = ran.filter(direction == "optimizer")
    if rows.is_empty():
        if (direction == "backward").any():
            return CannotTell("there is a backward pass, and nothing is marked as the optimizer's")
        if not direction.is_not_null().any():
            return CannotTell("no work has a direction: forward, backward or optimizer")
        unseen = blind(ran)
        return CannotTell(unseen) if unseen else []
    every = len(rows)
    # zero_grad() and clipping copy and set; these are no part of an update, nor are the update's scalars
    rows = rows.filter(~pl.Series(matching(rows["op"], r"\A(aten::(zero_|fill_|zeros\w*)|Fill)\b")))
    # an optimizer such as Shampoo computes products, which no fused update replaces
    rows = rows.filter(~rows["op_type"].cast(pl.String).is_in(_OTHER_WORK).fill_null(False))
    fused = pl.Series(matching(rows["op"], _FUSED)) | pl.Series(matching(rows["name"], _FUSED))
    alone = rows.filter(~fused)
    lists = pl.Series(matching(alone["op"], _LISTS)) | pl.Series(matching(alone["name"], _LISTS))
    steps = _steps(rows)
    total = device_time(answers)
    time = int(alone["duration"].sum())
    noun = "ops" if answers.cpu_only else "kernels"
    if len(alone) < FEWEST * steps or time < least * total:
        unseen = blind(ran)
        return CannotTell(unseen) if unseen else []
    if int(alone["duration"].filter(lists).sum()) * 2 > time and len(alone) < 10 * FEWEST * steps:
        return []  # lists of tensors: few kernels, each over many parameters
    gaps, most, kept = _saving(alone)
    per = len(alone) / steps
    later = alone.filter(pl.int_range(pl.len()).over("process", "step") > 0)
    edit, gone = edit_of(answers, alone, kept, later)
    return [
        Finding(
            what=f"the optimizer runs {len(alone):,} {noun}, {per:,.0f} a step, none of them fused over"
            " parameters and"
            f" passes: {ms(time)}, {share(time, total)} of the device's time, and {ms(gaps)} between them",
            evidence=f"{places(alone, noun)}; over lists of tensors: {int(lists.sum()):,}; fused:"
            f" {int(fused.sum()):,}; that set, copy or multiply matrices and do not count:"
            f" {every - len(rows):,}",
            recommendation=fit(answers, _RECOMMENDED, _GENERAL),
            time=time,
            saving_least=0,
            saving_most=most + gone,
            reasoning="At most all but the longest pass: a fused update touches each parameter once, so"
            " it takes at least as"
            " long as the op with most time does, in each step; and the gaps of less than"
            f" {FAR // 1000} µs between the kernels of one step ({ms(gaps)}), on each stream or"
            f" thread{and_host(gone)}."
            f" The estimate keeps {_PASSES:.1f} of the longest pass: a fused Adam moves seven"
            " tensors, the longest pass three. At least nothing, where other work hides it. Columns:"
            " direction, op, start,"
            " end, duration, step.",
            confidence="high" if not lists.any() else "medium",
            rows=evidence(alone),
            edit=edit,
        )
    ]


def _steps(rows: pl.DataFrame) -> int:
    """Return the number of steps in which an optimizer ran, over all processes; 1 where none is known."""
    return max(1, rows.filter(pl.col("step").is_not_null()).select("process", "step").n_unique())


def _saving(alone: pl.DataFrame) -> tuple[int, int, Floats]:
    """Return the gaps (ns), the most that may be saved (ns), and the factor by which each duration is
    multiplied."""
    lane = ["process", "device", "lane", "step"]
    ordered = alone.sort(*lane, "start").with_columns(
        pl.max_horizontal(
            pl.col("start") - pl.col("end").shift(1).over(lane, order_by="start"), 0
        ).alias("gap")
    )
    gaps = int(ordered["gap"].filter(ordered["gap"] < FAR).sum())
    step = ["process", "step"]
    passes = alone.group_by(*step, "op").agg(pl.col("duration").sum().alias("pass"))
    sums = passes.group_by(step).agg(
        pl.col("pass").max().alias("longest"), pl.col("pass").sum().alias("all")
    )
    most = int((sums["all"] - sums["longest"]).sum()) + gaps
    left = (pl.col("longest") * _PASSES / pl.col("all")).clip(0, 1).fill_nan(1.0)
    joined = alone.select(step).join(
        sums.with_columns(left.alias("left")),
        on=step,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return gaps, most, joined["left"].fill_null(1.0).to_numpy()


DETECTOR = Detector(
    name="unfused_optimizer",
    question="Does the optimizer run many small kernels instead of fused ones?",
    find=find,
    fires="{least} of the device's time, and 30 kernels a step",
    thresholds={
        "least": parameters.share("the least share of the device time that the optimizer takes")
    },
    looks_at="The kernels (on the CPU: ops) of direction optimizer, by step, op and name: how many there"
    " are, how many are"
    " fused or over lists of tensors, and the gaps between them. Fewer than 30 a step, and those over"
    " lists of"
    " tensors, are no finding.",
    abstains="Where a backward pass ran and nothing is marked as the optimizer's, no work has a direction, or"
    " more than 5 % of the kernels' time has no op.",
)

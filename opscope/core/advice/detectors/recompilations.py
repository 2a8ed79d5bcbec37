"""Programs that are compiled again after the first steps, most often for inputs of new shapes."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.compilers import reasons_of
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.summary.summary import compiles
from opscope.core.tables.intervals import merge

#: A finding needs at least this many compilations of one function after its first: after one, torch.compile
#: knows which size changes, and a function may have a second use, such as validation.
FEWEST: Final = 2
#: The first steps of a process, which may compile: the second too, as the results of the first may differ.
WARM: Final = 2
_NUMBERED: Final = (
    r"\Acompile (?:\[?\d+\]?/)?(\d+)/(\d+)(?:_\d+)?( backward)?(?: ([^@]*?))?(?: @(.*))?\z"
)
_REGION: Final = re.compile(r"Torch-Compiled Region: \d+/(\d+)")
_SHAPES: Final = 4
#: The format of opscope's own recorder.
_RECORDING: Final = "opscope-recording"
_RECOMMENDED: Final[Named] = {
    "torch": "torch.compile(model, dynamic=True), or torch._dynamo.mark_dynamic(batch, 0) before the"
    " call; or pad"
    " batches to a few sizes. TORCH_LOGS=recompiles names the guard that failed.",
    "tensorflow": "@tf.function(reduce_retracing=True), or an input_signature with None for the sizes that"
    " change: tf.TensorSpec([None, 8]); pass tensors, not Python numbers; or pad batches to a few sizes.",
    "keras": "Batches of one size: dataset.batch(n, drop_remainder=True), and sequences padded to a few"
    " lengths.",
    "jax": "Pad batches to a few sizes; keep numbers that change out of static_argnums; create jax.jit(f)"
    " once,"
    " outside of the loop. jax.config.update('jax_explain_cache_misses', True) names the cause.",
    "mindspore": "cell.set_inputs(mindspore.Tensor(shape=[None, 8], dtype=…)) before the first call, or pad"
    " batches to a few sizes.",
}
_GENERAL: Final = (
    "Give the compiled program inputs of few different shapes: pad batches to a few sizes."
)


def find(answers: Answers) -> Answer:
    """Return one finding for all compilations that repeat an earlier one."""
    ran = compilations(answers)
    if ran is None or (ran.is_empty() and compiles(answers.trace).is_empty()):
        return _unrecorded(answers)
    numbered = ran.filter(pl.col("part1").is_not_null())
    again = repeats(ran)
    forward = again.filter(pl.col("part3").is_null())
    often = forward.group_by("process", "part1").len().filter(pl.col("len") >= FEWEST)
    again = again.join(often, on=["process", "part1"], how="semi")
    plain = ran.filter(pl.col("part1").is_null())
    steps = marked_steps(answers).select("process", "step", "start", "end")
    later, judged = _later(plain, steps)
    late = pl.concat([again, later.select(again.columns)])
    if late.is_empty():
        if len(plain) > len(steps["process"].unique()) and not judged and numbered.is_empty():
            return CannotTell(
                f"{len(plain):,} compilations were recorded, and too few steps to tell the first from"
                " later ones:"
                f" record more than {WARM} steps"
            )
        return []
    return [_finding(answers, ran, late, steps)]


def compilations(answers: Answers) -> pl.DataFrame | None:
    """Return the recorded compilations: process, thread, start, end (ns), text and, for torch.compile,
    ``part1`` (the function's number), ``part2`` (its version's), ``part3`` (whether the function computes
    gradients), ``part4`` (the function's name), ``part5`` (where it is defined); None if the profile's
    recorder records no compilations."""
    ran = compiles(answers.trace)
    if ran.is_empty() and answers.trace.origin.get("format") != _RECORDING:
        return None
    ran = ran.filter(~pl.col("attrs").is_not_null() | (pl.col("end") > pl.col("start")))
    text = pl.col("text").cast(pl.String)
    parts = [text.str.extract(_NUMBERED, group).alias(f"part{group}") for group in range(1, 6)]
    return ran.select("process", "thread", "start", "end", text, *parts)


def repeats(ran: pl.DataFrame) -> pl.DataFrame:
    """Return those of ``compilations`` in which torch.compile compiled a function again."""
    return ran.filter(pl.col("part1").is_not_null(), pl.col("part2").cast(pl.Int64) > 0)


def _unrecorded(answers: Answers) -> Answer:
    """Return the answer for a profile without compilations."""
    if answers.trace.origin.get("format") == _RECORDING and not answers.trace["ranges"].is_empty():
        return []  # opscope records every compilation
    regions = [
        int(number.group(1))
        for name in answers.compiled()["region"].cast(pl.String).unique().drop_nulls()
        if (number := _REGION.match(name))
    ]
    if any(regions):
        return CannotTell(
            f"compiled functions have up to {max(regions) + 1} versions here, and the profiler that"
            " wrote this trace does not record compilations: record it with opscope"
        )
    return CannotTell(
        "the profiler that wrote this trace does not record compilations: record it with opscope"
    )


def _later(plain: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Return the compilations in the steps of a process after its first WARM ones, if at least FEWEST of
    these steps have compilations; and whether there were such steps."""
    numbered = steps.sort("process", "start").with_columns(
        pl.int_range(pl.len()).over("process").alias("place")
    )
    judged = bool((numbered["place"] >= WARM).any())
    inside = plain.sort("start").join_asof(
        numbered.select("process", "place", "start", pl.col("end").alias("step_end")).sort("start"),
        on="start",
        by="process",
        check_sortedness=False,
    )
    late = inside.filter(pl.col("place") >= WARM, pl.col("start") < pl.col("step_end"))
    counts = (
        late.group_by("process").agg(pl.col("place").n_unique()).filter(pl.col("place") >= FEWEST)
    )
    return late.join(counts, on="process", how="semi"), judged


def _finding(
    answers: Answers, ran: pl.DataFrame, table: pl.DataFrame, steps: pl.DataFrame
) -> Finding:
    time = _union(table)
    total = _union(steps.select("process", pl.lit(0).alias("thread"), "start", "end"))
    inside = f", {share(time, total)} of the steps" if total else ""
    parts = ran.filter(pl.col("part4").is_not_null()).select(
        "process", "part1", pl.coalesce("part5", "part4").alias("place")
    )
    named = table.join(
        parts.unique(["process", "part1"]), on=["process", "part1"], how="left"
    ).select(
        "process",
        pl.coalesce("part5", "part4", "place").alias("source"),
        pl.format(
            "compilation {}", pl.coalesce(pl.concat_str("part1", pl.lit("/"), "part2"), pl.lit(""))
        )
        .str.strip_chars()
        .alias("detail"),
        (pl.col("end") - pl.col("start")).alias("time"),
    )
    places = (
        named.group_by("source")
        .agg(pl.len(), pl.col("time").sum())
        .sort("time", "source", descending=[True, False])
        .head(3)
    )
    causes = "; ".join(
        f"{source or 'a program'} ({count:,} compilations, {ms(took)})"
        for source, count, took in places.rows()
    )
    shapes = _shapes(answers, table, steps)
    cause = f"; inputs of changing shape: {shapes}" if shapes else "; no change of shape was seen"
    return Finding(
        of="run",
        what=f"programs were compiled again {len(table):,} times after the first steps or uses:"
        f" {ms(time)}{inside}",
        evidence=f"{causes}{cause}; compilations in all: {len(ran):,}{reasons_of(answers, 'recompilations')}",
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="The union of the ranges of these compilations on each thread: torch.compile numbers"
        " the versions of"
        f" a function, and functions with at least {FEWEST} versions after the first count; other compilers'"
        f" compilations count from the third step of a process, if at least {FEWEST} steps have some. At"
        " most all of it;"
        " at least nothing, where a device works on what was launched before. Table: ranges of category"
        " phase whose text begins with compile.",
        confidence="high" if shapes else "medium",
        rows=named.group_by("process", "source", "detail")
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("time").sum())
        .sort("time", descending=True)
        .select("source", "process", "count", "time", "detail")
        .pipe(with_rest),
        edit=Edit(
            host=table.select("process", "thread", "start", "end", pl.lit(0.0).alias("factor"))
        ),
    )


def _union(ranges: pl.DataFrame) -> int:
    """Return the time (ns) that ranges cover, summed over processes and threads."""
    total = 0
    for part in ranges.partition_by("process", "thread"):
        start, end = merge(
            part["start"].to_numpy().astype(np.int64), part["end"].to_numpy().astype(np.int64)
        )
        total += int((end - start).sum())
    return total


def _shapes(answers: Answers, table: pl.DataFrame, steps: pl.DataFrame) -> str | None:
    """Return an op whose inputs differ between the steps that compiled, with these inputs; None if no op's
    inputs do."""
    if steps.is_empty():
        return None
    where = table.sort("start").join_asof(
        steps.sort("start").with_columns(pl.col("end").alias("step_end")),
        on="start", by="process", check_sortedness=False,
    )  # fmt: skip
    wanted = where.filter(pl.col("start") < pl.col("step_end"))
    if wanted.is_empty():
        return None
    process, numbers = wanted["process"][0], wanted["step"].unique()
    ops = answers.ops(categories=True).lazy()
    is_described = pl.col("inputs").is_not_null() & (pl.col("inputs").cast(pl.String) != "")
    is_described &= pl.col("op_type").cast(pl.String).ne_missing("view")
    mine = (
        ops.filter(pl.col("process") == process, pl.col("step").is_in(numbers.implode()))
        .filter(is_described)
        .select("step", "start", "op", "direction", "inputs")
        .collect()
    )
    firsts = mine.sort("start").group_by("step", "op", "direction", maintain_order=True).first()
    by_op = (
        firsts.group_by("op", "direction", maintain_order=True)
        .agg(pl.col("inputs").cast(pl.String).unique(maintain_order=True), pl.col("start").min())
        .filter(pl.col("inputs").list.len() > 1)
        .sort("start")
    )
    if by_op.is_empty():
        return None
    op, inputs = by_op["op"][0], by_op["inputs"][0].to_list()
    more = f" and {len(inputs) - _SHAPES:,} more" if len(inputs) > _SHAPES else ""
    return f"{op}({') ('.join(inputs[:_SHAPES])}){more}"


DETECTOR = Detector(
    name="recompilations",
    question="Are programs compiled again after the first steps?",
    find=find,
    fires="2 compilations of a function after its first, or 2 compiling steps after the first 2",
    looks_at="The phases in which opscope recorded a compilation (torch.compile, XLA through JAX, the"
    " tracing of"
    " tf.function, MindSpore's graphs): the number of a function's version, or the step; and the inputs"
    " of ops() in"
    " these steps.",
    abstains="Where the profile was not recorded by opscope and has no log of TORCH_TRACE beside it; where"
    " too few"
    " steps were recorded to tell the first compilations from later ones.",
)

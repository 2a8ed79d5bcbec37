"""Values of arrays that a loop on a CPU reads one by one, which costs an op or two and Python for each
element."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit, run_of
from opscope.core.advice.finding import (
    EVIDENCE,
    Answer,
    Answers,
    CannotTell,
    Detector,
    Edit,
    Finding,
)
from opscope.core.advice.pace import NO_STEPS, count, counted
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.steps.step_times import processes_of, step_bounds, steps_at
from opscope.core.attribution.enclosing import source_text
from opscope.core.question import parameters
from opscope.core.schema import UNHEARD_READS
from opscope.core.tables.columns import gather
from opscope.core.tables.interpret import ROLE

#: The least part of the steps' time that the loops take, and the fewest reads of a loop.
WORTH: Final = 0.02
FEWEST: Final = 16
#: The most ops between two reads of one loop.
_BETWEEN: Final = 16
#: Ops that read one element, as ``.item()``, ``float(x)``, ``int(x)`` and ``bool(x)`` do.
_READS: Final = r"\A(aten::(item|_local_scalar_dense|is_nonzero)|torch\.Tensor\.item)\b"
_RECOMMENDED: Final[Named] = {
    "torch": "Compute with whole tensors and read the result once after the loop, such as"
    " right += (out.argmax(1) == y).sum() in place of .item() for each element; where all values are needed,"
    " .tolist() reads them at once.",
    "tensorflow": "Compute with whole tensors and read the result once after the loop, such as"
    " tf.reduce_sum(…).numpy() in place of .numpy() or float() of each element; where all values are needed,"
    " .numpy() of the whole tensor reads them at once.",
    "keras": "Compute with whole tensors and read the result once after the loop: keras.ops.sum(…), then"
    " float(); where all values are needed, keras.ops.convert_to_numpy(x) of the whole tensor reads them.",
    "jax": "Compute with whole arrays inside jax.jit and read the result once after the loop, such as"
    " float(jnp.sum(…)) in place of float(x[i]) of each element; where all values are needed,"
    " jax.device_get(x) of the whole array reads them at once.",
    "mindspore": "Compute with whole tensors and read the result once after the loop, such as"
    " ops.sum(…).asnumpy() in place of float() of each element; where all values are needed,"
    " .asnumpy() of the whole tensor reads them at once.",
}
_GENERAL: Final = "Compute with whole arrays, and read the result once after the loop."


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return one finding for all loops that read values one by one."""
    if not answers.cpu_only:
        return CannotTell("it is about CPUs; for reads of a device's values see sync_calls")
    why = unrecorded(answers)
    if why is not None:
        return CannotTell(why)
    steps = counted(answers)
    if isinstance(steps, str):
        return CannotTell(steps if steps == NO_STEPS else "no step ended")
    loops = _loops(answers, steps[0])
    if loops.is_empty():
        return []
    steps_time = int(steps[0]["time"].sum())
    time = int(loops["time"].sum())
    if time <= least * steps_time:
        return []
    return [_finding(answers, loops, time, steps_time, len(steps[0]))]


def unrecorded(answers: Answers, by_opscope: bool = False) -> str | None:
    """Return why reads of values are not known; None if all were recorded. ``by_opscope``: opscope recorded
    the profile, and it records each read of the frameworks that it observes, so no recorded read means that
    there was none."""
    used = answers.of(run_of).framework
    if used is not None and used not in _RECOMMENDED:
        frameworks = ", ".join(_RECOMMENDED)
        return f"reads of single values are recorded of {frameworks}, and this is {used}"
    notes = answers.trace["notes"]["what"].to_list()
    if used in ("tensorflow", "keras", "jax") and by_opscope and UNHEARD_READS in notes:
        return UNHEARD_READS
    some = used in (None, "torch") or (answers.attribution.meaning.role == ROLE["read"]).any()
    if some or by_opscope:
        return None
    return f"no read of a value was recorded, and whether {used} would record one is not known"


def _loops(answers: Answers, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the loops in these steps: process, thread, step, source (the line with most reads), reads,
    start, end and time (ns).

    A loop consists of reads of one thread in one step with at most ``_BETWEEN`` ops between two reads, and no
    layer's product between them: if a model runs in each turn, the next turn needs what was read (an action,
    a token).
    """
    outer = outermost(answers)
    if not outer["reads"].any():
        return pl.DataFrame(schema={"time": pl.Int64})
    keys = ["process", "thread"]
    outer = outer.sort(*keys, "start").with_columns(
        pl.int_range(pl.len()).over(keys).alias("at"),
        pl.col("product").cum_sum().over(keys).alias("products"),
    )
    mine = outer.filter("reads").join(
        steps.select("process", "step"), on=["process", "step"], how="semi", nulls_equal=True
    )
    by = [*keys, "step"]
    far = (pl.col("at").diff().over(by) > _BETWEEN + 1) | (pl.col("products").diff().over(by) > 0)
    mine = mine.with_columns(far.fill_null(False).cum_sum().over(by).alias("loop"))
    return (
        mine.group_by(*keys, "step", "loop", maintain_order=True)
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("source").cast(pl.String).drop_nulls().mode().sort().first(),
        )
        .filter(pl.col("count") >= FEWEST)
        .with_columns((pl.col("end") - pl.col("start")).alias("time"))
    )


def outermost(answers: Answers) -> pl.DataFrame:
    """Return the outermost ops, reads and runs of programs: process, thread, step, start, end (ns), source,
    whether each reads, and whether it is a layer's product.

    Reads by an optimizer, such as of the number of its step, are left out.
    """
    columns = ("process", "thread", "step", "start", "end", "source", "reads", "product")
    ops = answers.ops(categories=True).filter(
        pl.col("parent_id").is_null(),
        pl.col("direction").cast(pl.String).ne_missing("optimizer"),
    )
    ops = ops.with_columns(
        pl.col("op").cast(pl.String).str.contains(_READS).fill_null(False).alias("reads"),
        pl.col("source").cast(pl.String),
        (pl.col("layer").is_not_null() & (pl.col("matrix_flops") > 0))
        .fill_null(False)
        .alias("product"),
    ).select(columns)
    attribution = answers.attribution
    meaning, ranges = attribution.meaning, attribution.trace["ranges"]
    rows = np.flatnonzero(np.isin(meaning.role, (ROLE["read"], ROLE["graph"])))
    reading = meaning.reading[rows]
    if not (meaning.role[rows] == ROLE["read"]).any():
        return ops
    lines = [
        None if said.call is None or not said.call.frames else source_text(said.call.frames)
        for said in meaning.readings
    ]
    others = ranges[rows].select("process", "thread", "start", "end")
    step = steps_at(answers.of(step_bounds))(
        processes_of(others["process"]), others["start"].fill_null(0).to_numpy()
    )
    numbers = answers.of(step_bounds)["step"]
    others = others.with_columns(
        gather(numbers, step).alias("step"),
        pl.Series("source", [lines[number] for number in reading.tolist()], pl.String),
        pl.Series("reads", meaning.role[rows] == ROLE["read"]),
        pl.lit(False).alias("product"),
    ).drop_nulls(["start", "end"])
    every = pl.concat([ops, others.select(columns)], how="vertical_relaxed")
    every = every.sort("process", "thread", "start", "end", descending=[False, False, False, True])
    reached = pl.col("end").cum_max().shift().over("process", "thread")
    return every.filter(reached.is_null() | (pl.col("start") >= reached))


def _finding(
    answers: Answers, loops: pl.DataFrame, time: int, steps_time: int, steps: int
) -> Finding:
    reads, places = (
        int(loops["count"].sum()),
        loops.group_by("source").agg(pl.col("count", "time").sum()),
    )
    places = places.sort("time", "source", descending=[True, False])
    line = places["source"][0]
    where = "; ".join(
        f"{(source or 'no line recorded').split(' < ')[0]} ({count(reads, 'read')}, {ms(took)})"
        for source, reads, took in places.head(3).rows()
    )
    at = f" at {line.split(' < ')[0]}" if line else ""
    kept = loops.select("process", "thread", "start", "end", (1 / pl.col("count")).alias("factor"))
    saved = int((loops["time"] * (1 - 1 / loops["count"])).sum())
    return Finding(
        what=f"loops{at} read values of arrays one by one, {reads / steps:,.0f} a step:"
        f" {ms(time)} of {ms(steps_time)} ({share(time, steps_time)} of the steps)",
        evidence=where,
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=saved,
        reasoning="A loop is reads of one element (ops(): op, source) in one step and thread with at most"
        f" {_BETWEEN} ops between two of them and no layer's product; its time is from its first read to the"
        " end of its last. At most all but that of one turn, if whole tensors do in one turn what the loop"
        " does in all: what else"
        " its body does may have to stay, so at least nothing. The replay lets each loop take the time of one"
        " turn.",
        confidence="high" if time > 5 * WORTH * steps_time else "medium",
        rows=with_rest(
            places.select(
                "source", "count", "time", pl.lit("reads of one value").alias("detail")
            ).select(
                pl.col(name).cast(EVIDENCE[name]) for name in ("source", "count", "time", "detail")
            )
        ),
        edit=Edit(host=kept),
    )


DETECTOR = Detector(
    name="value_reads",
    question="Do loops on a CPU read values of arrays one by one?",
    find=find,
    fires="16 reads in one loop of a step, and {least} of the steps' time in such loops",
    thresholds={
        "least": parameters.share("the least share of the steps' time that the loops take")
    },
    looks_at="The ops and reads of the steps that are no warm-up, outside the optimizer: PyTorch's reads of"
    " one element (`.item()`, `float(x)`, `bool(x)`), and all reads by the host of JAX, TensorFlow and"
    " MindSpore, by thread and line; reads with few ops between them, and no layer's product, are one loop,"
    " whose time is from the first to the last.",
    abstains="On a GPU, where such reads wait and `sync_calls` is about them; without steps; of frameworks"
    " whose reads of single values are not recorded.",
)

"""How long the program waited for its input: each wait, each step, each data loader.

A wait is a range in which the program's own thread asks a loader for its next batch: opscope's ranges around
loaders, Kineto's and ``emit_nvtx``'s ``enumerate(DataLoader)#…``, TensorFlow's ``IteratorGetNext`` ops, and
phases named ``input``. A wait inside another one is a part of it. A wait belongs to the step around it. One
between two steps belongs to the later one: Keras on JAX, MindSpore's ``Model.train`` and Hugging Face's
``Trainer`` fetch the batch of a step before they say that the step begins. A thread that only prefetches
makes no step wait; ops of a graph run on any thread, and count for the thread that has the steps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.host.input_pipeline import stage_samples
from opscope.core.analysis.ops.directions import MINDSPORE_LOADER, TENSORFLOW_LOADER
from opscope.core.dialects import Reading
from opscope.core.question import lacking
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.rangetext import call_of
from opscope.core.schema import (
    INPUT_DOMAIN,
    PIPELINE_CAPACITY,
    PIPELINE_GET,
    PIPELINE_READY,
    OpCall,
)
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import gather
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.trace import Trace

#: A step is input-bound if it waited for more than this share of its time. Above this limit, the PyTorch
#: profiler's TensorBoard plug-in recommends looking at the data loader.
INPUT_BOUND: Final = 0.05
NO_LOADER: Final = (
    "no data loader was seen in this process: opscope sees PyTorch's DataLoader, tf.data, MindSpore's"
    " dataset, Hugging Face's datasets and Grain; annotate other input with a phase named input"
)
OTHER_THREAD: Final = "the data loaders were seen on other threads than the steps"
ANNOUNCED: Final = "TensorFlow announces the op that gets a batch, and not when it has it"
OTHER_CLOCK: Final = "its batches are timed by another clock than the steps"
NO_BATCH_TIMES: Final = "its queue was sampled, but its waits were not timed"
ONE_STEP: Final = "fewer than two steps that ended asked this loader"
NO_STEPS: Final = "no step that ended asked this loader, on the loader's thread"
VERDICTS: Final = ("input-bound", "not input-bound", "cannot tell")

_TORCH: Final = re.compile(r"enumerate\(DataLoader\)#(\w+)")
_PHASE: Final = "input"
_SIZES: Final = ("workers", "prefetch", "batch")

WAITS: Final = {
    "process": pl.Int32,
    "thread": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "loader": pl.String,
    "source": pl.String,
    "workers": pl.Int64,
    "prefetch": pl.Int64,
    "batch": pl.Int64,
    "queue_depth": pl.Int64,
    "timed": pl.Boolean,
}
STEPS: Final = {
    "process": pl.Int32,
    "thread": pl.Int64,
    "step": pl.Int64,
    "start": pl.Int64,
    "duration": pl.Int64,
    "input_wait": pl.Int64,
    "share": pl.Float64,
    "calls": pl.Int64,
    "queue_depth": pl.Int64,
    "loader": pl.String,
    "source": pl.String,
    "input_bound": pl.Boolean,
    "reason": pl.String,
}
LOADERS: Final = {
    "process": pl.Int32,
    "loader": pl.String,
    "source": pl.String,
    "calls": pl.Int64,
    "total": pl.Int64,
    "mean": pl.Int64,
    "median": pl.Int64,
    "p90": pl.Int64,
    "max": pl.Int64,
    "input_wait": pl.Int64,
    "share": pl.Float64,
    "steps": pl.Int64,
    "bound_steps": pl.Int64,
    "workers": pl.Int64,
    "prefetch": pl.Int64,
    "batch": pl.Int64,
    "queue_depth": pl.Int64,
    "empty": pl.Int64,
    "full": pl.Int64,
    "verdict": pl.String,
    "reason": pl.String,
}
_BY: Final = ("process", "loader", "source", "workers", "prefetch", "batch")


def waits(trace: Trace, meaning: Meaning) -> pl.DataFrame:
    """Return one row per wait, by process, thread and start: process, thread, start, end (ns), loader,
    source, workers, prefetch, batch, queue_depth (ready batches when asked), null where not known.

    ``timed``: whether the range lasts as long as the wait; for a node of a graph only its start is known.

    ``meaning``: of the rows of the trace's ranges.
    """
    kinds = [
        _loader_of(reading, text)
        for reading, text in zip(meaning.readings, meaning.texts, strict=True)
    ]
    wanted = np.array([kind is not None for kind in kinds], bool)
    rows = np.flatnonzero(wanted[meaning.reading]) if wanted.any() else np.empty(0, np.int64)
    ranges = trace["ranges"]
    if not len(rows):
        return pl.DataFrame(schema=WAITS)
    described = pl.DataFrame(
        [(None,) * 8 if kind is None else kind for kind in kinds],
        schema={name: WAITS[name] for name in ("loader", "source", *_SIZES)}
        | {"named": pl.Boolean, "in_graph": pl.Boolean, "timed": pl.Boolean},
        orient="row",
    )[meaning.reading[rows]]
    payload = gather(ranges["payload"], rows)
    domain = gather(ranges["domain"], rows).cast(pl.String)
    waits_of_input = pl.DataFrame(
        {
            "process": gather(ranges["process"], rows).fill_null(NONE),
            "thread": gather(ranges["thread"], rows).fill_null(NONE),
            "start": gather(ranges["start"], rows),
            "end": gather(ranges["end"], rows),
            "kind": gather(ranges["kind"], rows).cast(pl.String),
        }
    ).with_columns(pl.when(domain == INPUT_DOMAIN).then(payload).alias("queue_depth"))
    waits_of_input = pl.concat([waits_of_input, described], how="horizontal").filter(
        pl.col("kind") != "mark"
    )
    stepping = _steps(trace, meaning).select(pl.col("process", "thread").fill_null(NONE)).unique()
    only = stepping.group_by("process").agg(
        pl.col("thread").first().alias("only"), pl.len().alias("n")
    )
    waits_of_input = waits_of_input.join(
        only.filter(pl.col("n") == 1), on="process", how="left", maintain_order="left"
    )
    waits_of_input = waits_of_input.with_columns(
        pl.when("in_graph").then(pl.coalesce("only", "thread")).otherwise("thread").alias("thread")
    )
    # a graph only announces waits; opscope's own recordings have the times of these
    several = pl.col("timed").any().over("process")
    return _outermost(waits_of_input.filter(pl.col("timed") | ~several)).cast(WAITS).select(*WAITS)  # type: ignore[arg-type]


def _outermost(table: pl.DataFrame) -> pl.DataFrame:
    """Join each wait with the waits inside it; if only an inner one names its loader, use that name."""
    keys = ["process", "thread"]
    ordered = table.sort(*keys, "start", "end", descending=[False, False, False, True])
    reached = pl.col("end").cum_max().shift().over(keys)
    ordered = ordered.with_columns(
        (reached.is_null() | (pl.col("start") >= reached)).cum_sum().alias("outermost")
    )
    named = pl.col("named")
    about = [
        pl.coalesce(pl.col(name).filter(named).first(), pl.col(name).first()).alias(name)
        for name in ("loader", "source", *_SIZES)
    ]
    depth = pl.col("queue_depth").drop_nulls().first()
    joined = ordered.group_by(*keys, "outermost", maintain_order=True).agg(
        pl.col("start").first(), pl.col("end").max(), *about, depth, pl.col("timed").any()
    )
    return joined.with_columns(
        pl.when(pl.col(name) != NONE).then(name).alias(name) for name in keys
    )


def _loader_of(
    reading: Reading, text: str
) -> tuple[str, str | None, int | None, int | None, int | None, bool, bool, bool] | None:
    """Return the loader that a range waits for: name, source, workers, prefetch, batch, whether the range
    names a loader, whether it is of a graph, and whether it lasts until the batch is there; None if the range
    is not a wait."""
    call = reading.call
    if reading.role == "loader" and call is not None:
        workers, prefetch, batch = (_size(call, name) for name in _SIZES)
        dataset = call.param("dataset")
        name = f"{call.name} of {dataset}" if isinstance(dataset, str) else call.name
        in_graph = call.param("in_graph") is True
        return name, _source(call), workers, prefetch, batch, True, in_graph, True
    torch = _TORCH.search(text)
    if torch is not None and reading.role in ("op", "user", "phase"):
        single = torch[1].startswith("_SingleProcess")
        source = _source(call or call_of(text))
        workers = 0 if single else None
        return f"DataLoader ({torch[1]})", source, workers, None, None, True, False, True
    if reading.role == "op" and call is not None and call.name.startswith(TENSORFLOW_LOADER):
        # a range of a graph's node is over when the node has handed its work over; an op outside a graph
        # waits
        alone = reading.key is None
        return "tf.data", _source(call), None, None, None, alone, not alone, alone
    if reading.role == "user" and text == MINDSPORE_LOADER:
        return "mindspore.dataset", None, None, None, None, True, False, True
    if reading.role == "phase" and text == _PHASE:
        return _PHASE, None, None, None, None, False, False, True
    if reading.role == "user" and reading.direction == "input":
        return text.partition("(")[0][:256], None, None, None, None, True, False, True
    return None


def _size(call: OpCall, name: str) -> int | None:
    value = call.param(name)
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _source(call: OpCall | None) -> str | None:
    frames: Iterable[tuple[str, int]] = () if call is None else call.frames
    return " < ".join(f"{file}:{line}" for file, line in frames) or None


# --------------------------------------------------------------------------------------- steps


def _steps(trace: Trace, meaning: Meaning) -> pl.DataFrame:
    """Return the step ranges by process and start: process, thread, start, end (ns), step, ended, row."""
    rows = np.flatnonzero(meaning.role == ROLE["step"])
    ranges = trace["ranges"]
    numbers = pl.Series([reading.step for reading in meaning.readings], dtype=pl.Int64)
    unclosed = pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    step_ranges = ranges[rows].select(
        "process", "thread", "start", "end", (~unclosed).alias("ended")
    )
    step_ranges = step_ranges.with_columns(gather(numbers, meaning.reading[rows]).alias("step"))
    step_ranges = step_ranges.sort("process", "start", "thread", maintain_order=True)
    return step_ranges.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))


def ended(trace: Trace, meaning: Meaning) -> pl.DataFrame:
    """Return the steps that ended, by process and start: process, thread, step, start, end (ns)."""
    return (
        _steps(trace, meaning).filter("ended").select("process", "thread", "step", "start", "end")
    )


def _place(
    steps: pl.DataFrame, table: pl.DataFrame, passes: dict[int, Ints] | None = None
) -> pl.DataFrame:
    """Return the waits with the ``row`` of their step, -1 if they belong to no step that ended.

    A wait's step is the innermost one around its start, else the next one on its thread. A wait after a step
    that did not end belongs to no step, such as the wait at the end of the last epoch. Nor does a wait of an
    evaluation: after it, a pass began (``passes``) before the next step.
    """
    row = np.full(len(table), NONE, np.int64)
    keys = [table[name].fill_null(NONE).to_numpy() for name in ("process", "thread")]
    starts = table["start"].to_numpy()
    for (process, thread), part in steps.group_by("process", "thread"):
        mine = np.flatnonzero((keys[0] == _number(process)) & (keys[1] == _number(thread)))
        if not len(mine):
            continue
        rows, ended = part["row"].to_numpy(), part["ended"].to_numpy()
        begins, ends = part["start"].to_numpy(), part["end"].to_numpy()
        around = nest(begins, ends).innermost(starts[mine])
        after = np.searchsorted(begins, starts[mine], side="left")
        is_next = (around < 0) & (after < len(begins))
        if passes is not None and _number(process) in passes:
            begun = passes[_number(process)]
            later = np.append(begun, np.iinfo(np.int64).max)[np.searchsorted(begun, starts[mine])]
            is_next &= later >= begins[np.minimum(after, len(begins) - 1)]
        chosen = np.where(around >= 0, around, np.where(is_next, after, NONE))
        is_inside = (chosen >= 0) & ended[np.maximum(chosen, 0)]
        row[mine] = np.where(is_inside, rows[np.maximum(chosen, 0)], NONE)
    return table.with_columns(pl.Series("row", row))


def _passes(trace: Trace, meaning: Meaning) -> dict[int, Ints]:
    """Return by process when (ns) each forward pass, backward or optimizer's op began, in order."""
    works = meaning.phases("forward", "backward", "optimizer") | meaning.each(
        lambda reading: (
            reading.role in ("layer", "graph") or reading.direction in ("backward", "optimizer")
        )
    )
    rows = np.flatnonzero(works[meaning.reading])
    begun = trace["ranges"].select("process", "start")[rows].drop_nulls().sort("start")
    return {
        int(process): part["start"].to_numpy() for (process,), part in begun.group_by("process")
    }


def _number(value: object) -> int:
    return NONE if value is None else int(value)  # type: ignore[call-overload]


def input_waits(trace: Trace, meaning: Meaning, table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per ended step, in order: process, thread, step, start, duration, input_wait (ns),
    share, calls, queue_depth, loader, source, input_bound, reason.

    ``duration``: from the step's start, or the first wait between the step before and it, to the step's end.
    ``share``: input_wait / duration. ``input_bound``: share > ``INPUT_BOUND``. ``queue_depth``: the fewest
    batches that were ready when the step asked for one. ``loader``: the loader with most of the wait. All are
    null, with the reason, if no loader was recorded on the step's thread: then the step's waits are unknown.
    """
    steps, timed = _steps(trace, meaning), table.filter("timed")
    steps_with_waits = _per_step(steps, _place(steps, timed, _passes(trace, meaning)))
    if steps_with_waits.is_empty():
        return pl.DataFrame(schema=STEPS)
    flags = {
        "seen": (timed, ["process", "thread"]),
        "elsewhere": (timed, ["process"]),
        "announced": (table.filter(~pl.col("timed")), ["process"]),
    }
    for name, (rows, keys) in flags.items():
        marks = rows.select(keys).unique().with_columns(pl.lit(True).alias(name))
        steps_with_waits = steps_with_waits.join(
            marks, on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
    steps_with_waits = steps_with_waits.with_columns(
        pl.col(*flags).fill_null(False),
        (pl.col("input_wait") / pl.when(pl.col("duration") > 0).then("duration")).alias("share"),
    )
    names = ("input_wait", "share", "calls", "queue_depth", "loader", "source")
    steps_with_waits = steps_with_waits.with_columns(
        *(pl.when("seen").then(pl.col(name)).alias(name) for name in names),
        pl.when("seen").then(pl.col("share") > INPUT_BOUND).alias("input_bound"),
        pl.when("seen")
        .then(None)
        .when("elsewhere")
        .then(pl.lit(OTHER_THREAD))
        .when("announced")
        .then(pl.lit(ANNOUNCED))
        .otherwise(pl.lit(NO_LOADER))
        .alias("reason"),
    )
    return steps_with_waits.cast(STEPS).select(*STEPS)  # type: ignore[arg-type]


def _per_step(steps: pl.DataFrame, waited: pl.DataFrame) -> pl.DataFrame:
    time = pl.col("end") - pl.col("start")
    mine = waited.filter(pl.col("row") != NONE).select(
        "row", "loader", "source", "queue_depth", time.alias("wait"), pl.col("start").alias("asked")
    )
    mine = mine.join(steps.select("row", "start"), on="row", how="left", maintain_order="left")
    longest = pl.col("wait").arg_max()
    sums = mine.group_by("row").agg(
        pl.col("wait").sum().alias("input_wait"),
        pl.col("asked").min(),
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("queue_depth").min(),
        pl.col("loader").get(longest),
        pl.col("source").get(longest),
    )
    joined = steps.filter("ended").join(sums, on="row", how="left", maintain_order="left")
    begin = pl.min_horizontal("start", "asked")
    return joined.with_columns(
        pl.col("input_wait", "calls").fill_null(0), (pl.col("end") - begin).alias("duration")
    )


# ------------------------------------------------------------------------------------- loaders


def data_preparation(trace: Trace, meaning: Meaning, table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process and loader, the longest waits first; times in ns.

    calls, total, mean, median, p90 and max are of all its waits. ``input_wait`` is the part of ``total`` that
    belongs to steps; ``share`` is its part of the time of the steps that asked this loader (each from the
    first wait before it on). ``steps``: how many those are; ``bound_steps``: how many of them waited for it
    for more than ``INPUT_BOUND`` of their time. ``queue_depth``: median of the batches that were ready when
    asked; ``empty``: how often no batch was ready. ``verdict``: input-bound if the share is above
    ``INPUT_BOUND`` even without the longest wait: a single wait, such as the start of the workers, says
    nothing about the loader.
    """
    if table.is_empty():
        return pl.DataFrame(schema=LOADERS)
    steps = _steps(trace, meaning)
    waited = _place(steps, table, _passes(trace, meaning))
    time = pl.col("end") - pl.col("start")
    waited = waited.with_columns(pl.when("timed").then(time).alias("wait"))
    each = _per_step(steps, waited.filter("timed")).select("row", "duration")
    depth = pl.col("queue_depth")
    sums = waited.group_by(_BY).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.when(pl.col("timed").any()).then(pl.col("wait").sum()).alias("total"),
        pl.col("wait").mean().round().cast(pl.Int64).alias("mean"),
        pl.col("wait").median().round().cast(pl.Int64).alias("median"),
        pl.col("wait").quantile(0.9, "linear").round().cast(pl.Int64).alias("p90"),
        pl.col("wait").max().alias("max"),
        pl.col("wait").filter(pl.col("row") != NONE).sum().alias("input_wait"),
        pl.col("timed").any(),
        depth.median().floor().cast(pl.Int64),
        pl.when(depth.is_not_null().any()).then((depth == 0).sum().cast(pl.Int64)).alias("empty"),
        # the number of batches that are ready does not show the queue's capacity
        pl.lit(None, pl.Int64).alias("full"),
    )
    of_step = (
        waited.filter("timed", pl.col("row") != NONE)
        .group_by(*_BY, "row")
        .agg(pl.col("wait").sum())
        .join(each.select("row", "duration"), on="row", how="left")
    )
    asked = of_step.group_by(_BY).agg(
        pl.col("duration").sum().alias("whole"),
        pl.len().cast(pl.Int64).alias("steps"),
        pl.col("wait").max().alias("longest"),
        (pl.col("wait") > INPUT_BOUND * pl.col("duration"))
        .sum()
        .cast(pl.Int64)
        .alias("bound_steps"),
    )
    rows = sums.join(asked, on=_BY, how="left", nulls_equal=True)
    stepped = pl.col("steps").is_not_null()
    return (
        rows.with_columns(
            pl.when(stepped).then("input_wait").alias("input_wait"),
            (pl.col("input_wait") / pl.when(pl.col("whole") > 0).then("whole")).alias("share"),
            pl.when(~pl.col("timed"))
            .then(pl.lit(ANNOUNCED))
            .when(~stepped)
            .then(pl.lit(NO_STEPS))
            .when(pl.col("steps") < 2)
            .then(pl.lit(ONE_STEP))
            .alias("reason"),
        )
        .with_columns(
            pl.when(pl.col("share").is_null() | pl.col("reason").is_not_null())
            .then(pl.lit(VERDICTS[2]))
            .when(
                pl.col("input_wait") - pl.col("longest")
                > INPUT_BOUND * (pl.col("whole") - pl.col("longest"))
            )
            .then(pl.lit(VERDICTS[0]))
            .otherwise(pl.lit(VERDICTS[1]))
            .alias("verdict")
        )
        .cast(LOADERS)  # type: ignore[arg-type]
        .sort(
            "total",
            "process",
            "loader",
            "source",
            descending=[True, False, False, False],
            nulls_last=True,
        )
        .select(*LOADERS)
    )


def queues(samples: pl.DataFrame) -> pl.DataFrame:
    """Return a row per process and queue of batches (``stage_samples``), as ``data_preparation`` has it.

    A wait is the time until the pipeline gave a batch; ``prefetch``: how many batches the queue holds.
    """
    samples = samples.filter(pl.col("op_number").is_null())
    if samples.is_empty():
        return pl.DataFrame(schema=LOADERS)

    def of(quantity: str) -> pl.Expr:
        return pl.col("value").filter(pl.col("quantity") == quantity)

    wait, ready, fits = of(PIPELINE_GET), of(PIPELINE_READY), of(PIPELINE_CAPACITY).max()
    timed, looked = wait.len() > 0, ready.len() > 0
    rows = samples.group_by("process", "stage", maintain_order=True).agg(
        pl.max_horizontal(wait.len(), ready.len()).alias("calls"),
        pl.when(timed).then(wait.sum()).alias("total"),
        wait.mean().round().alias("mean"),
        wait.median().round().alias("median"),
        wait.quantile(0.9, "linear").round().alias("p90"),
        wait.max().alias("max"),
        fits.alias("prefetch"),
        ready.median().floor().alias("queue_depth"),
        pl.when(looked).then((ready == 0).sum()).alias("empty"),
        pl.when(looked & fits.is_not_null()).then((ready >= fits).sum()).alias("full"),
        pl.when(timed).then(pl.lit(OTHER_CLOCK)).otherwise(pl.lit(NO_BATCH_TIMES)).alias("reason"),
    )
    rows = rows.with_columns(pl.col("stage").alias("loader"), pl.lit(VERDICTS[2]).alias("verdict"))
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in LOADERS.items()
    )


def loader_waits(profile: Answers) -> pl.DataFrame:
    """The waits for data loaders."""
    return waits(profile.attribution.trace, profile.attribution.meaning)


def answer(profile: Answers) -> pl.DataFrame:
    """How long each step waited for its input; ``input_bound`` if that is above 5 % of the step.

    A wait between two steps belongs to the later one, whose ``duration`` then begins with it. If no data
    loader was seen, a step's waits are unknown: null, with the reason.
    """
    attribution = profile.attribution
    return input_waits(attribution.trace, attribution.meaning, profile.of(loader_waits))


def answer_loaders(profile: Answers) -> pl.DataFrame:
    """The data loaders that the program waited for, the longest waits first; empty if none was seen.

    Queues of batches that the framework sampled follow: it is not known in which step they waited.
    """
    attribution = profile.attribution
    waited = data_preparation(attribution.trace, attribution.meaning, profile.of(loader_waits))
    return pl.concat([waited, queues(stage_samples(attribution.trace))])


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "input_waits()",
                "one row per step that ended, in order of time",
                columns(
                    "process thread step start duration input_wait share calls queue_depth "
                    "loader source input_bound reason",
                    """
                    duration: ns: time of the step, from the first wait after the step before on
                    share: fraction: input_wait / duration
                    calls: count: waits for the loader
                    queue_depth: count: fewest batches that were ready when the step asked for one
                    loader: text: the data loader with most of the wait
                    source: text: where the loader was asked for the batch: file and line, innermost first
                    input_bound: yes/no: whether it waited for input for more than 5 % of its time
                    reason: text: why it is not known how long the step waited
                    """,
                ),
            ),
        ),
        merged=lacking.WAITS,
        reports=(
            Report(
                name="input",
                title="Input: how long each step waited for it",
                empty="no step in this profile: optimizers mark steps, and so does opscope.step()",
                shown=(
                    "process step duration input_wait share input_bound calls queue_depth loader "
                    "reason"
                ),
                written=False,
                aliases=["input_waits"],
            ),
        ),
    ),
    Question(
        answer=answer_loaders,
        frames=(
            Frame(
                "data_preparation()",
                (
                    "one row per process and data loader that the program waited for, the longest "
                    "waits first"
                ),
                columns(
                    "process loader source calls total mean median p90 max input_wait share "
                    "steps bound_steps workers prefetch batch queue_depth empty full verdict reason",
                    """
                    source: text: where the loader was asked for the batch: file and line, innermost first
                    calls: count: waits for the loader
                    total: ns: all waits for the loader added up
                    mean: ns: mean wait
                    median: ns: median wait
                    p90: ns: 90th percentile of the waits, interpolated between neighbours
                    max: ns: longest wait
                    input_wait: ns: part of total that belongs to steps
                    share: fraction: input_wait / the time of the steps that asked this loader
                    steps: count: steps that asked this loader
                    bound_steps: count: steps that waited for this loader for more than 5 % of their time
                    workers: count: processes or threads that prepare data for the loader; 0: the
                        program's own thread does
                    prefetch: count: batches that the loader prepares ahead, for each worker; of a queue
                        of batches: how many it holds
                    batch: count: samples in a batch, as the loader was made
                    queue_depth: count: median number of batches that were ready when the program asked
                        for one, rounded down
                    empty: count: how often no batch was ready when the program asked for one
                    full: count: how often no more batches fitted in the queue; null where that was not told
                    reason: text: why share and verdict are not known
                    """,
                ),
            ),
        ),
        merged=lacking.WAITS,
        reports=(
            Report(
                name="data_preparation",
                title="Data preparation: waits for each data loader",
                empty=(
                    "no data loader was seen: opscope sees PyTorch's DataLoader, tf.data, "
                    "MindSpore's dataset, Hugging"
                    " Face's datasets and Grain; put other input in: with opscope.annotate('input', 'phase')"
                ),
                shown=(
                    "process share verdict loader calls total mean p90 max steps bound_steps workers "
                    "queue_depth empty full source reason"
                ),
                aliases=["loaders"],
            ),
        ),
    ),
)

"""Steps that wait for their input: the data loader does not keep up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.core.advice.changes import run_of
from opscope.core.advice.finding import (
    EVIDENCE,
    Answer,
    Answers,
    CannotTell,
    Detector,
    Edit,
    Finding,
)
from opscope.core.advice.pace import NO_STEPS, Pace, count, longest, pace
from opscope.core.advice.processors import FULL, Use, use
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.host.input_waits import INPUT_BOUND, VERDICTS, loader_waits

#: With fewer steps, the share of the waiting is not certain.
ENOUGH: Final = 5
_BY_LOADER: Final = {
    "DataLoader": "torch", "tf.data": "tensorflow", "mindspore": "mindspore", "PyGrain": "jax",
}  # fmt: skip
_BUSY: Final = (
    "This process and its workers use {used:.1f} of the {processors} processors, so more workers would not"
    " help. Do less for each sample: decode and resize once and store the result, crop before decoding, or"
    " decode on the GPU."
)
#: A sample is bound by its processor if computing takes at least this part of its time.
_COMPUTES: Final = 0.5
_QUEUED: Final = 0.2
_GENERAL: Final = "Prepare batches in parallel and ahead of the step that needs them."


def find(answers: Answers) -> Answer:
    """Return a finding if the steps wait for their input for more than 5 % of their time."""
    steps = answers.input_waits()
    if steps.is_empty():
        return CannotTell(NO_STEPS)
    measured = steps.filter(pl.col("input_wait").is_not_null())
    if measured.is_empty():
        return CannotTell(steps["reason"].drop_nulls().mode().sort()[0])
    loaders = answers.data_preparation().filter(pl.col("share") > INPUT_BOUND)
    bound = loaders.filter(pl.col("verdict") == VERDICTS[0])
    if len(bound):
        return [_finding(answers, steps, bound, always=True)]
    # one wait makes up most of the time, such as the wait for the workers to start
    once = loaders.filter(pl.col("verdict") == VERDICTS[1])
    if len(once):
        return [_finding(answers, steps, once, always=False)]
    why = loaders["reason"].drop_nulls()
    return CannotTell(f"{why[0]}: capture more steps") if len(why) else []


def _finding(answers: Answers, steps: pl.DataFrame, loaders: pl.DataFrame, always: bool) -> Finding:
    here = pl.col("process").is_in(loaders["process"].implode())
    waited = steps.filter(here & pl.col("input_wait").is_not_null()).with_columns(
        pl.int_range(pl.len()).over("process").alias("place")
    )
    time, total = longest(waited, "input_wait"), longest(waited, "duration")
    worst = loaders.sort("input_wait", "process", descending=[True, False]).row(0, named=True)
    rows = _rows(waited, loaders)
    unknown = steps["input_wait"].null_count()
    rest = f"; steps of which no wait is known: {unknown:,}" if unknown else ""
    pace_of_steps = pace(answers)
    idle = (
        f"; the GPU idles for {ms(pace_of_steps.time('input'))} of it"
        if isinstance(pace_of_steps, Pace)
        else ""
    )
    many, all_ = int(waited["input_bound"].sum()), len(waited)
    line = f" at {worst['source'].split(' < ')[0]}" if worst["source"] else ""
    often = (
        f"{many:,} of {count(all_, 'step')} wait for {worst['loader']}"
        if always
        else f"a single wait for {worst['loader']} takes {ms(worst['max'])}, others are short"
    )
    sure = always and all_ >= ENOUGH
    return Finding(
        what=f"{often}: {ms(time)} of {ms(total)} ({share(time, total)} of the steps)",
        evidence=f"{worst['loader']}{line}: {count(worst['calls'], 'wait')}, median {ms(worst['median'])},"
        f" longest {ms(worst['max'])}; {_workers(worst)}{idle}{rest}",
        recommendation=_recommendation(answers, worst, always),
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="Counted is input_wait of input_waits(), of ranks the longest in each step. At least"
        " nothing:"
        " workers take processors from the training, and what follows may set the pace. At most the whole"
        f" waiting, {ms(time)}: a step cannot become shorter by more than what it waits. The replay takes"
        " the waits out of the timeline and leaves everything else as it was measured.",
        confidence="high" if sure else "medium" if always else "low",
        rows=rows,
        edit=_edit(answers, waited),
    )


def _workers(worst: Mapping[str, Any]) -> str:
    if worst["workers"] is None:
        return "how many workers it has is not recorded"
    ready = worst["queue_depth"]
    queue = "" if ready is None else f", {ready} batches ready when asked"
    return f"{worst['workers']} workers{queue}"


def _recommendation(answers: Answers, worst: Mapping[str, Any], always: bool) -> str:
    name = str(worst["loader"])
    kind = next(
        (kind_of_loader for start, kind_of_loader in _BY_LOADER.items() if name.startswith(start)),
        None,
    )
    kind = kind or answers.of(run_of).framework
    if not always:
        if kind == "torch":
            return (
                "DataLoader(…, persistent_workers=True) starts the workers once and not in each epoch;"
                " leave the first step out of what is measured."
            )
        return "Leave the first steps out of what is measured, and start the loader before them."
    used = _use(answers, worst)
    if used is not None and used.mine > FULL * used.processors:
        return _BUSY.format(used=used.mine, processors=used.processors)
    wanted, computes = _wanted(worst), None
    if used is not None:
        computes = _computes(used, worst["workers"])
        if computes and wanted is not None:  # a sample that computes needs a processor
            wanted = max(2, worst["workers"] + 1, min(wanted, used.processors))
    more = _more(used, computes)
    if kind in ("torch", "keras") and name.startswith("DataLoader"):
        pinned = ", pin_memory=True" if answers.of(run_of).on_gpu else ""
        workers = "more than now" if wanted is None else str(wanted)
        ahead = 2 if worst["workers"] == 0 else 4
        return (
            f"DataLoader(…, num_workers={workers}, persistent_workers=True, prefetch_factor={ahead}{pinned})"
            f" loads in {'other' if worst['workers'] == 0 else 'more'} processes while the step runs{more}."
        )
    if kind in ("tensorflow", "keras"):
        return (
            "dataset = dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).batch(n)"
            ".prefetch(tf.data.AUTOTUNE); dataset.cache() where the data fit in memory."
        )
    if kind == "jax":
        return (
            f"grain.DataLoader(…, worker_count={wanted or 4}, worker_buffer_size=2), or"
            " dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=4)) of a grain dataset."
        )
    if kind == "mindspore":
        return (
            f"dataset.map(prepare, num_parallel_workers={wanted or 4}); mindspore.dataset.config"
            ".set_prefetch_size(16); model.train(…, dataset_sink_mode=True)."
        )
    return _GENERAL


def _use(answers: Answers, worst: Mapping[str, Any]) -> Use | None:
    """Return who uses the processors while the steps wait for this loader."""
    process = pl.col("process").eq_missing(pl.lit(worst["process"], pl.Int32))
    waits = answers.of(loader_waits).filter("timed", process)
    start, end = (waits[name].to_numpy() for name in ("start", "end"))
    return use(answers, worst["process"], start, end)


def _computes(used: Use, workers: int | None) -> bool | None:
    """Return whether a sample takes its time mostly by computing; None if that is not known.

    While the steps wait, the loader is always at work: in this process, or in each of its workers.
    """
    if workers is None:
        return None
    if workers == 0:
        return used.own + used.queued > _COMPUTES
    computes = used.children / workers > _COMPUTES
    # where this thread waits for a processor, its workers may wait too; but this was not sampled
    return computes if computes or used.queued < _QUEUED else None


def _more(used: Use | None, computes: bool | None) -> str:
    """Return in words what more workers would bring."""
    if used is None:
        return ""
    if computes is False:
        return "; samples mostly wait (for files, the network or a sleep), which workers do side by side"
    if used.is_full:
        return (
            f"; other processes use {used.others:.1f} of the {used.processors} processors, and workers have"
            " what these leave (see starved)"
        )
    return ""


def _wanted(worst: Mapping[str, Any]) -> int | None:
    """Return how many workers load a batch in the time of a step without its wait; None if not known. A
    loader in the process itself takes as long for a batch as the step waits for it. If n workers never keep
    up, a batch arrives every step, so each worker takes n steps for a batch."""
    waited, part, asked = worst["input_wait"], worst["share"], worst["steps"]
    workers = worst["workers"]
    if workers is None or not waited or not part or not asked:
        return None
    total = float(waited) / float(part)
    rest = max(total - float(waited), 1.0)
    busy = float(waited) if workers == 0 else float(workers) * total
    return max(2, int(workers) + 1, min(math.ceil(busy / rest) + 1, 64))


def _rows(waited: pl.DataFrame, loaders: pl.DataFrame) -> pl.DataFrame:
    by_loader = loaders.select(
        pl.col("loader").alias("op"),
        "source",
        "process",
        pl.lit(None, pl.Int64).alias("step"),
        pl.col("calls").alias("count"),
        pl.col("input_wait").alias("time"),
        (pl.lit("workers: ") + pl.col("workers").cast(pl.String).fill_null("not recorded")).alias(
            "detail"
        ),
    )
    by_step = (
        waited.sort("input_wait", descending=True, maintain_order=True)
        .select(
            pl.col("loader").alias("op"),
            "source",
            "process",
            "step",
            pl.col("calls").alias("count"),
            pl.col("input_wait").alias("time"),
            pl.format("{} % of the step", (100 * pl.col("share")).round(1)).alias("detail"),
        )
        .pipe(with_rest)
    )
    rows = pl.concat([by_loader.sort("time", descending=True), by_step], how="vertical_relaxed")
    return rows.select(pl.col(name).cast(EVIDENCE[name]) for name in rows.columns)


def _edit(answers: Answers, waited: pl.DataFrame) -> Edit:
    """Return the edit that takes the waits of these processes out, but not those after the last step."""
    every = answers.of(loader_waits).filter("timed")
    ends = waited.group_by("process", "thread").agg(
        (pl.col("start") + pl.col("duration")).max().alias("last")
    )
    mine = every.join(ends, on=["process", "thread"], how="inner", nulls_equal=True).filter(
        pl.col("start") < pl.col("last")
    )
    return Edit(host=mine.select("process", "thread", "start", "end", pl.lit(0.0).alias("factor")))


DETECTOR = Detector(
    name="data_loader",
    question="Do the steps wait for their data loader?",
    find=find,
    fires="more than 5 % of the steps' time",
    looks_at="Each wait of a step's thread for a batch: opscope's ranges around PyTorch's DataLoader,"
    " tf.data,"
    " MindSpore's dataset, Hugging Face's datasets and Grain, the PyTorch profiler's"
    " `enumerate(DataLoader)`, and phases named `input`. It fires where the waits are above 5 % of the"
    " steps' time; where one wait alone makes them that (workers that start), it says so and advises that.",
    abstains="Without steps; where no loader was seen on the steps' thread; where TensorFlow only"
    " announces the"
    " op that gets a batch.",
    known_as=("DLProf: Data Loader", "PyTorch profiler plug-in: DataLoader above 5 % of the step"),
)

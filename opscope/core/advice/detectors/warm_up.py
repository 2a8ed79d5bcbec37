"""First steps within the profiled range that compile, allocate and read for the first time."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import later_steps, run_of
from opscope.core.advice.finding import EVIDENCE, Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.marked_steps import marked_steps
from opscope.core.advice.pace import NO_STEPS, count
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.steps.outliers import FEWEST
from opscope.core.analysis.steps.step_times import covered
from opscope.core.analysis.summary.summary import compiles
from opscope.core.tables.intervals import Ints, merge

_LEAVE_OUT: Final = {
    "torch": "torch.profiler.profile(schedule=torch.profiler.schedule(skip_first={first}, wait=1,"
    " warmup=1, active=5))",
}
_CACHE: Final = {
    "torch": "keep compiled code between runs: TORCHINDUCTOR_CACHE_DIR=/path, torch.compile(…, dynamic=True)",
    "tensorflow": "compile once: give @tf.function an input_signature",
    "jax": 'keep compiled code between runs: jax.config.update("jax_compilation_cache_dir", "/path")',
    "mindspore": "keep compiled graphs between runs: MS_COMPILER_CACHE_ENABLE=1",
    "onnxruntime": "store the optimised model: SessionOptions.optimized_model_filepath",
    "tensorrt": "store the built engine, and set a timing cache",
}


def find(answers: Answers) -> Answer:
    """Return a finding if the step table marks the first steps of a process as warm-up."""
    steps = marked_steps(answers)
    if steps.is_empty():
        return CannotTell(NO_STEPS)
    judged = steps.filter(pl.col("warm_up").is_not_null())
    if judged.is_empty():
        return CannotTell(
            f"there are {len(steps):,} steps, but no process has the {FEWEST} that are needed to tell which"
            " are warm-up"
        )
    warm = judged.filter("warm_up")
    return [_finding(answers, judged, warm, len(steps) - len(judged))] if len(warm) else []


def _finding(answers: Answers, judged: pl.DataFrame, warm: pl.DataFrame, unjudged: int) -> Finding:
    later = (
        judged.filter(~pl.col("warm_up"))
        .group_by("process")
        .agg(pl.col("time").median().alias("usual"))
    )
    warm = warm.join(later, on="process", how="left", nulls_equal=True, maintain_order="left")
    warm = warm.with_columns(
        (pl.col("time") - pl.col("usual")).round().cast(pl.Int64).alias("more"),
        _compiling(answers, warm).alias("compiling"),
    )
    by_process = warm.group_by("process").agg(pl.col("more", "time", "compiling").sum(), pl.len())
    worst = by_process.sort("more", "process", descending=[True, False]).row(0, named=True)
    mine = pl.col("process").eq_missing(pl.lit(worst["process"], pl.Int32))
    total = int(judged.filter(mine)["time"].sum())
    lost, compiling = int(worst["more"]), int(worst["compiling"])
    usual = float(warm.filter(mine)["usual"][0])
    run = answers.of(run_of)
    kind = run.framework or ""
    first = int(warm.filter(mine)["step"].max()) + 1  # type: ignore[arg-type]
    recorded = later_steps(run, first)
    leave = (
        f"opscope run {recorded} -- python train.py" if recorded else f"judge steps from {first} on"
    )
    if kind in _LEAVE_OUT and not run.by_opscope:
        leave = _LEAVE_OUT[kind].format(first=worst["len"])
    cache = f"; {_CACHE[kind]}" if compiling and kind in _CACHE else ""
    rest = f"; steps that are not judged: {unjudged:,}" if unjudged else ""
    compiled = (
        f"; {ms(compiling)} of it compiling" if compiling else "; no compilation was recorded in it"
    )
    rows = warm.sort("more", descending=True, maintain_order=True).select(
        "process",
        "step",
        pl.lit(1, pl.Int64).alias("count"),
        pl.col("more").alias("time"),
        pl.format(
            "took {} ms, later steps {} ms",
            (pl.col("time") / 1e6).round(1),
            (pl.col("usual") / 1e6).round(1),
        ).alias("detail"),
    )
    return Finding(
        of="run",
        what=f"the first {'step' if worst['len'] == 1 else count(int(worst['len']), 'step')} of the range"
        f" {'is' if worst['len'] == 1 else 'are'} warm-up: {ms(lost)} more than as many later ones take,"
        " with a"
        f" median of {ms(usual)} ({share(lost, total)} of all steps' time)",
        evidence=f"{_steps(warm.filter(mine))}{compiled}{rest}",
        recommendation=f"Leave them out of what is measured: {leave}{cache}.",
        time=lost,
        saving_least=0,
        saving_most=lost,
        reasoning="Counted is the time of the steps whose warm_up is true in steps(), less the median of"
        " their"
        " process's other steps. A run of the same length saves nothing by leaving them out, but its figures"
        f" become those of the training; at most {ms(lost)} go if what happens once no longer happens.",
        confidence="high" if compiling > lost // 2 else "medium",
        rows=rows.select(pl.col(column).cast(EVIDENCE[column]) for column in rows.columns),
    )


def _compiling(answers: Answers, warm: pl.DataFrame) -> pl.Series:
    """Return how long (ns) the process compiled in each of its steps."""
    compiling = np.zeros(len(warm), np.int64)
    table = compiles(answers.trace)
    start, end = (warm[name].to_numpy() for name in ("start", "end"))
    for (process,), part in table.group_by("process"):
        here: Ints = np.flatnonzero((warm["process"].eq_missing(process)).to_numpy())
        spans = merge(part["start"].to_numpy(), part["end"].to_numpy())
        compiling[here] = covered(spans, start[here], end[here])
    return pl.Series(compiling)


def _steps(warm: pl.DataFrame) -> str:
    texts = [
        f"step {step}: {ms(time)}" for step, time in warm.select("step", "time").head(3).rows()
    ]
    return "; ".join(texts) + (f"; and {len(warm) - 3:,} more" if len(warm) > 3 else "")


DETECTOR = Detector(
    name="warm_up",
    question="Does the profiled range begin with steps of warm-up: compilation, allocation, first use?",
    find=find,
    fires="a first step that is an outlier and 20 % longer than the median, of five steps or more",
    looks_at="The first steps of each process, of at least five: those are warm-up that are outliers"
    " (modified"
    " z-score) and at least a fifth longer than the median of the later half, if they are no more than a"
    " third of all. Compilation within them is named where the profile has its ranges.",
    abstains="Without steps, and where no process has five.",
    known_as=("DLProf: Bad Iteration Range",),
)

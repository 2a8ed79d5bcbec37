"""Stretches of small kernels in which launches set the pace: a CUDA graph or a compiler saves the gaps."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.changes import Change, Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.pace import (
    DISPATCH,
    FEWEST,
    Pace,
    count,
    launched_work,
    longest,
    pace,
    said,
)
from opscope.core.advice.saying import ms, share
from opscope.core.question import parameters

#: The part of the steps' time from which the gaps are worth a change.
WORTH: Final = 0.05
_ADVICE: Final[Named] = {
    "torch": (
        Change(
            'model = torch.compile(model, mode="reduce-overhead") replays the kernels from a CUDA graph; or'
            " capture"
            " the step with torch.cuda.graph(g) or torch.cuda.make_graphed_callables(…). Shapes must not"
            " change from step to step.",
            compiled=False,
        ),
        Change(
            'The model is compiled: mode="reduce-overhead" in its torch.compile call replays the kernels from'
            " a CUDA graph; what is outside it, torch.cuda.graph(g). Shapes must not change from step to"
            " step.",
            compiled=True,
        ),
    ),
    "tensorflow": "Run the step as one program: @tf.function(jit_compile=True).",
    "keras": "model.compile(…, jit_compile=True) runs the step as one program.",
    "jax": "Put the whole step into one jax.jit function, loops over steps into jax.lax.scan.",
    "mindspore": "Run the step as a graph: @mindspore.jit on the function of the step.",
    "onnxruntime": Change(
        'Replay a CUDA graph: providers=[("CUDAExecutionProvider", {"enable_cuda_graph": "1"})].',
        vendors=("nvidia",),
    ),
    "tensorrt": "Capture context.execute_async_v3 into a CUDA graph (trtexec: --useCudaGraph).",
}
_GENERAL: Final = "Capture the launches that repeat into a CUDA graph, or fuse the small kernels."


def find(answers: Answers, least: float = WORTH) -> Answer:
    """Return a finding if the idle gaps between late launches take more than 5 % of the steps."""
    pace_of_steps = pace(answers)
    if isinstance(pace_of_steps, str):
        return CannotTell(pace_of_steps)
    time, total = pace_of_steps.time("launching"), pace_of_steps.whole
    if time <= least * total:
        return []
    return [_finding(answers, pace_of_steps, time, total)]


def _finding(answers: Answers, pace: Pace, time: int, total: int) -> Finding:
    rows = launched_work(answers)
    runs = pace.stretches
    launches = int(runs["launches"].sum())
    spans = runs.select("process", "thread", "start", "end", pl.lit(0.0).alias("factor"))
    threads = spans.filter(pl.col("thread").is_not_null()).unique(maintain_order=True)
    busy = _host_time(pace)
    most = min(pace.idle, busy)
    return Finding(
        what=f"the host launches more slowly than kernels run: in stretches with {launches:,} launches the"
        " GPU"
        f" idles for {ms(time)} of the {ms(total)} of {count(len(pace.steps), 'step')}"
        f" ({share(time, total)})",
        evidence=f"before launches of {said(rows)}{pace.left_out}",
        recommendation=fit(answers, _ADVICE, _GENERAL) + _zeroing(rows),
        time=time,
        saving_least=0,
        saving_most=most,
        reasoning=f"Counted are gaps of a device below {DISPATCH / 1e6:g} ms whose launch began after the"
        " work"
        f" before had ended (host_wait of idle_steps()), in runs of at least {FEWEST} such launches, outside"
        " CUDA graphs, waits for input and synchronising calls. At least nothing: something else may set the"
        f" pace once launches are fast. At most {ms(most)}: the lesser of the devices' idle time in the steps"
        f" (idle_time of idle_steps(): {ms(pace.idle)}) and of what the host took from the first to the last"
        f" launch of the stretches ({ms(busy)}). The replay lets the host take no time in the stretches."
        " It may save more than the gaps, as the time that launches take while kernels run is saved too.",
        confidence="high" if time > 2 * WORTH * total else "medium",
        rows=rows,
        edit=Edit(host=threads),
    )


def _zeroing(rows: pl.DataFrame) -> str:
    """Return the further change to propose if gradients are set to zero one by one."""
    zeroed = rows["op"].str.contains(r"zero_grad|\Aaten::zero_\z").fill_null(False).any()
    return " optimizer.zero_grad(set_to_none=True) launches nothing at all." if zeroed else ""


def _host_time(pace: Pace) -> int:
    """Return the host's time (ns) in the stretches: in each process of all threads, of ranks the longest."""
    by_thread = pace.stretches.group_by("process", "thread").agg(
        (pl.col("end") - pl.col("start")).sum().alias("time")
    )
    every = by_thread.group_by("process").agg(pl.col("time").sum())
    return longest(every.with_columns(pl.lit(0).alias("place")), "time")


DETECTOR = Detector(
    name="launch_bound",
    question="Are there stretches of small kernels in which the GPU waits for the next launch?",
    find=find,
    fires="more than {least} of the steps' time, in stretches of at least 20 launches",
    thresholds={"least": parameters.share("the least share of the time that this takes")},
    looks_at="Runs of at least 20 launches that each came after the GPU had run dry, with gaps below 0.5 ms:"
    " the time between two ops, in which a host does little but launch. Longer gaps are `host_bound`, gaps"
    " after a wait for input `data_loader`, gaps after a synchronising call `sync_calls`. Steps of warm-up do"
    " not count. It fires above 5 % of the steps' time.",
    abstains="Without a GPU's kernels, without their launches, and without steps. Work that a CUDA graph"
    " launches ends a run and never counts.",
)

"""Communication that no computation hides: collectives during which the device computes nothing."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.changes import Change, Named, fit, run_of
from opscope.core.advice.communicated import (
    as_int,
    by_kind,
    collective_kernels,
    on_computing_streams,
    rank_name,
    rates,
)
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.question import parameters

#: The part of a process's time from which exposed communication is worth a change.
LEAST: Final = 0.05
#: If the device works for less than this part of the time, the host sets the pace.
_IDLE: Final = 0.5
_BUSY: Final = 0.8
_TORCH: Final = {
    "ddp": "DistributedDataParallel(model, bucket_cap_mb=…, gradient_as_bucket_view=True,"
    " static_graph=True): with smaller buckets the first reduction begins earlier in the backward pass,"
    " larger ones cost fewer launches; try 10, 25, 50 and 100",
    "fsdp": "with fully_shard: module.set_modules_to_forward_prefetch([…]) and"
    " module.set_modules_to_backward_prefetch([…]); FullyShardedDataParallel(…,"
    " backward_prefetch=BackwardPrefetch.BACKWARD_PRE, forward_prefetch=True, limit_all_gathers=True)",
    "tensor_parallel": "torch.compile with torch._inductor.config._micro_pipeline_tp = True and"
    " enable_symm_mem_for_group(group.group_name), which splits the products around a collective",
    "all_to_all": "work = torch.distributed.all_to_all_single(out, into, async_op=True), then what does not"
    " need its result, then work.wait()",
    "send": "torch.distributed.batch_isend_irecv([…]) and more micro-batches, so that transfers run beside"
    " the computation of another micro-batch",
    "other": "work = torch.distributed.all_reduce(tensor, async_op=True), then what does not need its"
    " result, then work.wait()",
}
_OF_KIND: Final = {
    "recv": "send",
    "send_recv": "send",
    "permute": "send",
    "all_to_all": "all_to_all",
}
_OTHERS: Final[Named] = {
    "mindspore": "mindspore.set_auto_parallel_context(comm_fusion={'allreduce': {'mode': 'auto', 'config':"
    " None}}), or {'mode': 'size', 'config': 32} for buckets of 32 MB.",
    "tensorflow": "tf.distribute.experimental.CommunicationOptions(bytes_per_pack=32 * 1024 * 1024) for the"
    " strategy: gradients are reduced in packs while later ones are computed.",
    "jax": Change(
        "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true lets XLA move work between the start"
        " and the end of a collective.",
        on_gpu=True,
    ),
}
_OWN_STREAM: Final = "Put the collectives on a stream of their own first{how}. "
_HOW: Final = {"torch": " (async_op=True, or with torch.cuda.stream(…))"}
_GENERAL: Final = (
    "Begin each collective as soon as its data are ready, on a stream of its own, and wait for it only where"
    " its result is used."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding if exposed communication, less the waiting, is 5 % of a process's time or more."""
    rates_of_steps = rates(answers)
    if isinstance(rates_of_steps, CannotTell):
        return rates_of_steps
    worst = rates_of_steps.sort("moving", "exposed", "process", descending=[True, True, False])
    much = worst.filter(pl.col("moving") >= least * pl.col("window"))
    if much.is_empty():
        return []
    return [_finding(answers, worst, len(much), least)]


def _finding(answers: Answers, worst: pl.DataFrame, many: int, least: float) -> Finding:
    most = worst.row(0, named=True)
    exposed, total, window = (
        int(most[name]) for name in ("exposed", "communication_time", "window")
    )
    work = exposed + int(most["computation_time"])
    kernels = collective_kernels(answers)
    edited = kernels.filter((pl.col("exposed") > 0) & (pl.col("duration") > 0))
    kernels = kernels.filter(pl.col("process") == most["process"])
    kinds = by_kind(kernels)
    where = rank_name(most)
    others = (
        f" ({many:,} of {len(worst):,} processes: {100 * least:g} % or more)"
        if len(worst) > 1
        else ""
    )
    waiting = most["waiting_time"]
    waits = (
        f" Of {where}'s time in collectives, {ms(waiting)} is waiting for other ranks, which only even work"
        " shortens (uneven_ranks)."
        if waiting
        else " How much of it is waiting for other ranks is not known from this profile."
        if waiting is None
        else ""
    )
    rows = edited.filter(pl.col("process") == most["process"])
    at_once = int(kinds["exposed"].sum()) > exposed
    on_gpu = len(kernels) > 0
    shared = on_computing_streams(answers, rows)
    there = int(shared["exposed"].sum())
    streams = ", ".join(map(str, shared["stream"].drop_nulls().unique().sort().head(3)))
    serial = there * 2 > int(rows["exposed"].sum())
    cause = (
        f"; {ms(there)} of it is on the stream of the computation (stream {streams}), where one kernel runs"
        " after the other, so that nothing of it can run beside"
        if there
        else ""
    )
    said = "; ".join(
        f"{kind}: {count:,} collectives, {ms(hidden)} exposed of {ms(time)}"
        for kind, count, time, hidden in kinds.head(3).rows()
    )
    return Finding(
        what=f"{ms(exposed)} of {where}'s {ms(total)} of communication run while nothing is computed:"
        f" {share(exposed, window)} of its {ms(window)}{others}",
        evidence=f"{said}; by place: {places(rows, 'collectives', 'exposed')}{cause}"
        + ("; of collectives that ran at once each counts" if at_once else "")
        if on_gpu
        else "collectives that the backend ran on the CPU beside no op (communication())",
        recommendation=(_OWN_STREAM.format(how=fit(answers, _HOW, "")) if serial else "")
        + _recommendation(answers, kinds["kind"].to_list()),
        time=exposed,
        saving_least=0,
        saving_most=as_int(worst["exposed"].max()),
        reasoning="communication(): communication_time - overlap_time of the process that has most of it."
        " At least nothing: a collective whose result the next op needs cannot be hidden. At most all of"
        " it: ranks run at once, so that no more than the largest exposed time of a rank is saved."
        f"{waits}",
        confidence="high"
        if on_gpu and work >= _BUSY * window
        else "low"
        if work < _IDLE * window
        else "medium",
        rows=evidence(rows, "exposed") if on_gpu else None,
        edit=_edit(edited) if on_gpu else None,
    )


def _edit(rows: pl.DataFrame) -> Edit:
    """Return the edit that hides all exposed communication: only the hidden part of each kernel remains."""
    factor = (1 - rows["exposed"] / rows["duration"]).to_numpy()
    return Edit(kernels=(rows["row"].to_numpy(), factor))


def _recommendation(answers: Answers, kinds: list[str]) -> str:
    run = answers.of(run_of)
    used = run.framework
    if used != "torch":
        return fit(answers, _OTHERS, _GENERAL)
    shown = set(run.wrappers)
    if not kinds:
        return f"{_TORCH[next((name for name in _TORCH if name in shown), 'other')]}."
    chosen: list[str] = []
    for kind in kinds:
        if kind in _OF_KIND:
            chosen.append(_OF_KIND[kind])
        elif kind in ("all_gather", "reduce_scatter") and "ddp" in shown - {"fsdp"}:
            chosen.append("other")
        elif kind in ("all_gather", "reduce_scatter"):
            chosen.append("tensor_parallel" if "tensor_parallel" in shown else "fsdp")
        elif kind == "all_reduce" and "tensor_parallel" in shown and "ddp" not in shown:
            chosen.append("tensor_parallel")
        elif kind in ("all_reduce", "broadcast") and ("ddp" in shown or not shown):
            chosen.append("ddp")
        else:
            chosen.append("other")
    return "; ".join(_TORCH[choice] for choice in list(dict.fromkeys(chosen))[:3]) + "."


DETECTOR = Detector(
    name="unoverlapped_communication",
    question="Is communication 5 % or more of the time while nothing is computed?",
    find=find,
    fires="{least} of a process's window",
    thresholds={
        "least": parameters.share("the least share of the window that communication takes alone")
    },
    looks_at="communication(): the union of collectives less the union of all other work, within the captured"
    " steps of each process, and less the waiting for other ranks where it is known; on a GPU of kernels,"
    " on a"
    " CPU of what the backend ran beside the ops. The recommendation follows the kinds of collectives and the"
    " names of the ops that called them.",
    abstains="When the source has totals without times, when only the calls of collectives were recorded"
    " and not when they ran, and when the profile has neither kernels nor ops.",
    known_as=("Holistic Trace Analysis: communication computation overlap",),
)

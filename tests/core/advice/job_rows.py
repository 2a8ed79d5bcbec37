"""Rows of small profiles of jobs: kernels, ranges, steps, and a training on two ranks with gloo."""

from __future__ import annotations

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.profile import Profile

US = 1_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"


def kernel(start, end, name="gemm", process=0, device=0, stream=7, **more):
    return {"process": process, "device": device, "context": 1, "stream": stream, "start": start,
            "end": end, "name": name, **more}  # fmt: skip


def ranged(start, end, text, category=None, process=0, thread=1, domain="opscope.torch", **more):
    return {"process": process, "thread": thread, "end_thread": thread, "start": start, "end": end,
            "text": text, "domain": domain, "category": category, "kind": "pushpop", **more}  # fmt: skip


def step(number, start, end, process=0):
    return ranged(start, end, f"step {number}", "step", process)


def group(process, ranks, name="0"):
    text = f'process_group/{name} = group() -> () {{rank={process}, size={ranks}, ranks="0-{ranks - 1}"}}'
    return {**ranged(0, 0, text, "spec", process), "kind": "mark"}


def gloo_all_reduce(process, start, end):
    """The call returns at once; gloo's thread is in the collective from ``start`` to ``end``."""
    call = 'c10d::allreduce_([f32[8]], _) -> ([=0], _) {process_group="0"}'
    return [
        ranged(start - 2, start - 1, call, "communication", process),
        ranged(start, end, "gloo:all_reduce(f32[8])", "communication", process, thread=2),
    ]


def profile(**tables):
    made = {name: pl.DataFrame(rows, infer_schema_length=None) for name, rows in tables.items()}
    return Profile(Trace.of(made, {}))


def job(*rows, ranks=2, grouped=True, **more):
    """A job on CPUs, of rows or lists of rows of ranges, all on one clock."""
    flat = [one for row in rows for one in (row if isinstance(row, list) else [row])]
    flat += [group(rank, ranks) for rank in range(ranks)] if grouped else []
    return profile(
        ranges=sorted(flat, key=lambda one: one["start"]),
        processes=[{"process": rank, "rank": rank, "world_size": ranks, "clock_domain": 0}
                   for rank in range(ranks)],
        clocks=[{"clock_domain": 0, "machine": "one"}],
        **more,
    )  # fmt: skip


def one(detector, of):
    """The only finding of a detector."""
    (found,) = detector.find(of)
    return found


def open_at(spans, low, high):
    """Which ns from ``low`` to ``high`` lie in a span, one by one."""
    return {now for start, end in spans for now in range(max(start, low), min(end, high))}

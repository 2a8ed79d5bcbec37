"""A training as rows: steps, waits for input, launches with their kernels, copies and calls that wait; ns."""

from __future__ import annotations

import polars as pl

from opscope.core.tables.trace import Trace
from opscope.profile import Profile

MAIN, US = 1, 1000
PLACE = {"process": 0, "device": 0, "context": 1, "stream": 7}


def a_range(domain, category, text, start, end, thread=MAIN, **more):
    return {"process": 0, "thread": thread, "domain": domain, "category": category, "text": text,
            "start": start, "end": end, "kind": "pushpop", **more}  # fmt: skip


def step(number, start, end, **more):
    return a_range("opscope.step", "step", f"step {number}", start, end, **more)


def wait(start, end, workers=0, **more):
    text = f'DataLoader() {{dataset="Images", workers={workers}, prefetch=2}} @train.py:7'
    return a_range("opscope.input", "input", text, start, end, **more)


def op(text, start, end, direction="forward", **more):
    return a_range("opscope.torch", direction, text, start, end, **more)


def training(ranges, launches=(), copies=(), calls=(), samples=(), graph=None):
    """Return a Profile of one process and one device.

    ``launches``: (called, returned, start, end) of kernels; ``copies``: the same and the kind; ``calls``:
    (name, start, end, thread) of other calls.
    """
    made, kernels, memops = [], [], []
    for number, (called, returned, start, end) in enumerate(launches, 1):
        made.append(("cudaLaunchKernel", called, returned, MAIN, number))
        more = {"graph": graph, "graph_node": number} if graph else {}
        kernels.append(
            {**PLACE, "name": "k", "start": start, "end": end, "correlation": number, **more}
        )
    for number, (called, returned, start, end, kind) in enumerate(copies, 1_000_001):
        made.append(("cudaMemcpyAsync", called, returned, MAIN, number))
        memops.append({**PLACE, "kind": kind, "bytes": 4, "src_kind": "device", "dst_kind": "pageable",
                       "start": start, "end": end, "correlation": number})  # fmt: skip
    made += [(*call, number) for number, call in enumerate(calls, 2_000_001)]
    names = ("name", "start", "end", "thread", "correlation")
    tables = {"ranges": pl.DataFrame(list(ranges), infer_schema_length=None)}
    if made:
        rows = [{"process": 0, **dict(zip(names, one, strict=True))} for one in made]
        tables["calls"] = pl.DataFrame(rows).sort("start")
    if kernels:
        tables["kernels"] = pl.DataFrame(kernels)
    if memops:
        tables["memops"] = pl.DataFrame(memops)
    if samples:
        tables["samples"] = pl.DataFrame(list(samples))
    return Profile(Trace.of(tables, {}))


def steady(steps, length, first=0):
    """Return the ranges of so many steps, one after the other."""
    return [step(n, first + n * length, first + (n + 1) * length) for n in range(steps)]


def launching(start, end, every, took, many=None):
    """Return launches from ``start`` on, one each ``every`` ns, each with a kernel of ``took`` ns 5 us later."""
    times = range(start, end, every)
    return [(at, at + 3 * US, at + 5 * US, at + 5 * US + took) for at in list(times)[:many]]

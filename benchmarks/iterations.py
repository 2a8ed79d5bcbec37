"""Time to find iterations in a million ops: the sequence's period, a key node's, and DLProf's intervals.

    python benchmarks/iterations.py [OPS]

Prints seconds, seconds of CPU and peak memory for a trace of OPS ops (default 1,000,000) in 100 iterations, with and without
layers, beside the time of attribution, and what was found.
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np
import polars as pl

from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.steps.detected_iterations import by_key, detected
from opscope.core.analysis.steps.iterations import stable
from opscope.core.analysis.steps.key_ops import key_ops
from opscope.core.attribution.attribute import attribute
from opscope.core.dlprof.iterations import iterations
from opscope.core.tables.trace import Trace
from opscope.profile import Profile

ITERATIONS = 100


def made(many: int, layers: bool) -> Trace:
    """Return a trace of ``many`` ops: layers of ten ops, an op that runs once in each iteration."""
    each = many // ITERATIONS
    texts = [f"aten::op{n}(f32[32,{n % 7 + 1}])" for n in range(200)]
    one = np.random.default_rng(1).integers(0, len(texts), each)
    text = np.concatenate((np.array(texts, object)[one[:-1]], ["aten::mean(f32[4])"]))
    start = 1_000 * np.arange(many)
    frame = pl.DataFrame(
        {"start": start, "end": start + 800, "text": np.tile(text, ITERATIONS)[:many].tolist()}
    ).with_columns(pl.lit("forward").alias("category"))
    if layers:
        begin = 10_000 * np.arange(many // 10)
        path = [f"model.layer{n}" for n in range(each // 10)]
        around = pl.DataFrame(
            {"start": begin, "end": begin + 9_900, "text": (path * ITERATIONS)[: len(begin)]}
        ).with_columns(pl.lit("layer").alias("category"))
        frame = pl.concat([frame, around]).sort("start", "category", descending=[False, True])
    ranges = frame.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id"),
        pl.lit(0, pl.Int32).alias("process"),
        pl.lit(1, pl.Int64).alias("thread"),
        pl.lit("opscope.x").alias("domain"),
        pl.lit("pushpop").alias("kind"),
    )
    return Trace.of({"ranges": ranges})


def timed(what: str, work):
    """Print how long ``work`` takes, and return its result."""
    begin, cpu = time.perf_counter(), time.process_time()
    result = work()
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {what:44} {time.perf_counter() - begin:6.2f} s, CPU {cpu:6.2f} s, peak {peak:6.0f} MB"
    )
    return result


def main() -> None:
    """Measure both traces."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for layers in (False, True):
        trace = made(many, layers)
        print(f"{many:,} ops, {ITERATIONS} iterations, {'with' if layers else 'no'} layers")
        attribution = timed("attribution (with the steps it infers)", lambda: attribute(trace))  # noqa: B023
        ops = Ops(attribution)
        ((_, found, doubt),) = timed("the sequence's period", lambda: list(detected(ops, [0])))  # noqa: B023
        print(f"    found {0 if found is None else len(found)}; doubt: {doubt}")
        key = timed("a key node's instances", lambda: key_ops(ops, "aten::mean"))  # noqa: B023
        ended = timed("the iterations that they end", lambda: by_key(ops, key))  # noqa: B023
        print(f"    found {len(ended)}")
        intervals = timed(
            "DLProf's intervals",
            lambda: iterations(attribution.trace, attribution, key="aten::mean"),  # noqa: B023
        )
        print(f"    found {len(intervals.table)}")
        profile = Profile(trace)
        table = timed("profile.iterations(), attribution included", profile.iterations)
        print(f"    found {len(table)}, stable {stable(table)[0].reason}")


if __name__ == "__main__":
    main()

"""Remove kernels from real traces and compare the estimate of lost kernels with what was removed.

python scripts/lost_kernels.py ../shared/data [--seed 1] [--ops]

Prints a Markdown table, a row a trace, a column a share; each cell is how many kernels were removed and, where
an estimate was off, the largest error of all ways of removing them, or "cannot tell". With ``--ops``, a cell is
the estimate of lost ops over the number of those removed at random. Ends with exit code 1 where an error is above 10 % and above 2 kernels,
or where an untouched trace gives an alarm. Kernels are removed that the trace has a launch for: of others,
which were launched before the recording began, no trace tells anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

import opscope
from opscope.core.analysis.ops.lost_kernels import in_words, lost_kernels
from opscope.core.attribution.attribute import Attribution, attribute
from opscope.core.tables.trace import Trace

TRACES: Final = (
    "kineto/alexnet_cuda_sync_a100.json.gz",
    "kineto/ddp_memory_v100.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/nccl_meta.json.gz",
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/sampled_rank0.json.gz",
    "kineto/sampled_rank1.json.gz",
    "kineto/timesformer_h100.json.gz",
    "dlprof/nsys_profile.sqlite",
    "nsys/cudf_2020.sqlite",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
    "rocm/rpd/matmul_result.rpd",
    "xplane/jax_conv_mi300.xplane.pb",
)
SHARES: Final = (0.001, 0.01, 0.05, 0.1, 0.3, 0.5)
#: Traces with at least three steps that run the same kernels.
REPEATING: Final = (
    *(TRACES[n] for n in (1, 2, 3, 4, 5)),
    "kineto/vision_transformer_rank0.json.gz",
)
OP_SHARES: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4)
Rows = NDArray[np.int64]
#: Of the rows of kernels with a launch, by start: so many that are removed.
Way = Callable[[Trace, Rows, int, np.random.Generator], Rows]


def at_random(trace: Trace, rows: Rows, many: int, chance: np.random.Generator) -> Rows:
    """Return rows that are chosen at random."""
    return chance.choice(rows, many, replace=False)


def at_the_start(trace: Trace, rows: Rows, many: int, chance: np.random.Generator) -> Rows:
    """Return the first rows."""
    return rows[:many]


def of_one_stream(trace: Trace, rows: Rows, many: int, chance: np.random.Generator) -> Rows:
    """Return the first rows of the stream with the fewest kernels that has so many, else all of the largest."""
    streams = trace["kernels"]["stream"].fill_null(-1).to_numpy()[rows]
    names, sizes = np.unique(streams, return_counts=True)
    fits = sizes >= many
    stream = names[fits][np.argmin(sizes[fits])] if fits.any() else names[np.argmax(sizes)]
    return rows[streams == stream][:many]


def of_one_step(trace: Trace, rows: Rows, many: int, chance: np.random.Generator) -> Rows:
    """Return rows that follow each other in the middle of the trace, as a step's kernels do."""
    first = (len(rows) - many) // 2
    return rows[first : first + many]


WAYS: Final[Mapping[str, Way]] = {
    "at random": at_random,
    "at the start": at_the_start,
    "one stream": of_one_stream,
    "one step": of_one_step,
}


def launched(attribution: Attribution) -> Rows:
    """Return the rows of kernels whose launch is in the trace, by start."""
    rows = np.flatnonzero(attribution.kernels.call >= 0)
    start = attribution.trace["kernels"]["start"].to_numpy()[rows]
    return rows[np.argsort(start, kind="stable")].astype(np.int64)


def estimate(trace: Trace, removed: Rows) -> int | None:
    """Return the estimate of lost kernels of a trace without these kernels; None: it cannot tell."""
    kept = np.ones(len(trace["kernels"]), bool)
    kept[removed] = False
    left = trace.replace(kernels=trace["kernels"].filter(pl.Series(kept)))
    found = lost_kernels(attribute(left, infer_steps=False))["lost_kernels"]
    return None if found.null_count() == len(found) else int(found.sum())


def estimates_of_ops(trace: Trace, is_op: NDArray[np.bool_], seed: int) -> list[float]:
    """Return the estimate of lost ops over the number of those removed, for each of ``OP_SHARES``."""
    found = []
    for share in OP_SHARES:
        gone = is_op & (np.random.default_rng(seed).random(len(is_op)) < share)
        left = trace.replace(ranges=trace["ranges"].filter(pl.Series(~gone)))
        number = lost_kernels(attribute(left, infer_steps=False))["lost_ops"].sum()
        found.append(number / int(gone.sum()))
    return found


def ops(data: Path, seed: int) -> int:
    """Print the table of lost ops; return the exit code."""
    print(f"| trace | ops | {' | '.join(f'{100 * share:g} %' for share in OP_SHARES)} |")
    print(f"|---|---|{'---|' * len(OP_SHARES)}")
    wrong = 0
    for name in REPEATING:
        profile = opscope.load(data / name)
        trace = profile.trace
        is_op = profile.attribution.is_op[: len(trace["ranges"])]
        wrong += profile.lost_kernels()["lost_ops"].sum() != 0
        ratios = estimates_of_ops(trace, is_op, seed)
        wrong += sum(not 0.9 <= ratio <= 1.1 for ratio in ratios[1:])
        wrong += not 0.8 < ratios[0] < 1.2  # of 1 % few are counted
        cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {Path(name).name} | {int(is_op.sum()):,} | {cells} |", flush=True)
    print(f"\n{wrong} wrong", file=sys.stderr)
    return int(wrong > 0)


def _cell(many: int, errors: list[int | None]) -> str:
    if None in errors:
        return "cannot tell"
    worst = max((error for error in errors if error is not None), key=abs)
    return f"{many:,} ({worst:+d})" if worst else f"{many:,}"


def main() -> int:
    """Print the table; return the exit code."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("data", type=Path)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--ops", action="store_true", help="remove ops, not kernels")
    asked = given.parse_args()
    if asked.ops:
        return ops(asked.data, asked.seed)
    print(f"| trace | kernels | {' | '.join(f'{100 * share:g} %' for share in SHARES)} |")
    print(f"|---|---|{'---|' * len(SHARES)}")
    wrong = 0
    for name in TRACES:
        profile = opscope.load(asked.data / name)
        wrong += in_words(profile.lost_kernels()) is not None
        attribution = profile.attribution
        rows, trace = launched(attribution), profile.trace
        cells = []
        for share in SHARES:
            many = max(1, round(share * len(rows)))
            errors = []
            for chosen in WAYS.values():
                removed = chosen(trace, rows, many, np.random.default_rng(asked.seed))
                number = estimate(trace, removed)
                errors.append(None if number is None else number - len(removed))
                wrong += errors[-1] is None or abs(errors[-1]) > max(2, 0.1 * len(removed))
            cells.append(_cell(many, errors))
        print(f"| {Path(name).name} | {len(rows):,} | {' | '.join(cells)} |", flush=True)
    print(f"\n{wrong} wrong", file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

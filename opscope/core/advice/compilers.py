"""Whether a compiler made any of the work: torch.compile's regions, generated kernels, XLA's fusions."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.advice.finding import Answers
from opscope.core.analysis.ops.totals import summed_columns
from opscope.core.analysis.summary.regions import COUNTED
from opscope.core.analysis.summary.summary import compiles
from opscope.core.attribution.compiled_regions import GENERATED
from opscope.core.tables.columns import distinct_values

#: Kernels that a compiler generated: Inductor's, XLA's, nvFuser's, TorchScript's.
_GENERATED_KERNELS: Final = (
    rf"{GENERATED}|^(loop|input|wrapped)_\w+|^fusion(_\d+)?$|_fusion(_\d+)?$"
    r"|\bnvfuser_|CudaCodeGen::"
)
#: Families of the ops that represent compiled code.
_FAMILIES: Final = ("fused", "fusion", "compiled")
#: Reasons that a finding names.
_REASONS: Final = 3
#: Frameworks whose compile phases really compile; TensorFlow's compile phase is the tracing of a function.
_COMPILING: Final = ("torch", "jax", "flax", "mindspore")


def reasons_of(answers: Answers, kind: str) -> str:
    """Return the reasons that torch.compile itself gave for ``kind``, the most often first; empty if none."""
    notes = answers.trace["notes"].select(pl.col("what").cast(pl.String), "how_many")
    begin = f"{COUNTED}{kind}: "
    of_kind = notes.filter(pl.col("what").str.starts_with(begin)).sort("how_many", descending=True)
    reasons = [
        f"{text.removeprefix(begin)}{f' ({count:,} times)' if count > 1 else ''}"
        for text, count in of_kind.head(_REASONS).rows()
    ]
    return f"; torch.compile says: {'; '.join(reasons)}" if reasons else ""


def compiled_by(answers: Answers) -> str | None:
    """Return what shows that a compiler made some of the work; None if nothing in the profile does."""
    regions = answers.compiled()
    if not regions.is_empty():
        return f"{regions['region'].n_unique():,} compiled regions of torch.compile"
    names = distinct_values(answers.trace["kernels"]["name"]).cast(pl.String).drop_nulls()
    generated = names.filter(names.str.contains(_GENERATED_KERNELS))
    if len(generated):
        return f"{len(generated):,} generated kernels, such as {generated.sort()[0]}"
    families = distinct_values(
        summed_columns(answers, ("op_type",)).select("op_type")["op_type"]
    ).cast(pl.String)
    if families.is_in(_FAMILIES).any():
        return "ops that XLA or another compiler fused"
    processes = answers.trace["processes"]
    listed = (
        set(processes["framework"].cast(pl.String)) if "framework" in processes.columns else set()
    )
    if listed & set(_COMPILING) and not compiles(answers.trace).is_empty():
        return "phases in which a program was compiled"
    return None

"""Compiled regions: what a generated kernel computes is in its name (rule 6).

Inductor names a Triton kernel after what it fused: ``triton_poi_fused_add_gelu_3`` is pointwise
(``poi``; ``red`` and ``per`` reduce, ``tem`` is a template) and does an ``add`` and a ``gelu``. A C++ kernel
is ``cpp_fused_add_gelu_3``.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

#: How the ops begin that stand for a whole compiled region.
REGION_NAMES: Final = (
    "CompiledFunction",
    "Torch-Compiled Region",
    "## Call CompiledFxGraph",
    "autograd::engine::evaluate_function: CompiledFunctionBackward",
)
#: The start of a generated kernel's name, on a GPU and on the CPU.
GENERATED: Final = r"^(triton_(poi|red|per|tem|for|mm|split_scan|spl)|cpp)_fused_"
_FUSED: Final = re.compile(rf"{GENERATED}(?P<ops>.*?)_?\d+(?:d\d+.*)?\Z")


def fused_ops(kernel: str) -> str | None:
    """``add_gelu`` of ``triton_poi_fused_add_gelu_3``: the names of the fused ops, run together.

    They cannot be told apart for certain, since names of ops hold underscores themselves.
    """
    found = _FUSED.match(kernel)
    return found.group("ops").strip("_") or None if found else None


def family(name: str) -> str | None:
    """The op type of what a compiler made: ``fused`` for a kernel, ``compiled`` for a region."""
    if _FUSED.match(name):
        return "fused"
    return "compiled" if name.startswith(REGION_NAMES) else None


def name_fused(kernels: pl.DataFrame) -> pl.DataFrame:
    """Give each generated kernel that has an op its own name as that op.

    ``kernels`` has ``name``, ``op``, ``op_type`` and ``reason``. A region's op (such as
    ``Torch-Compiled Region: 0/0``) launches many different kernels: the kernel's name says more.
    """
    name = pl.col("name").cast(pl.String)
    generated = name.str.contains(GENERATED) & pl.col("reason").is_null()
    other = generated & (pl.col("op").cast(pl.String) != name)
    return kernels.with_columns(
        pl.when(other).then("name").otherwise("op").alias("op"),
        pl.when(other).then(pl.lit("fused", pl.Categorical)).otherwise("op_type").alias("op_type"),
    )


def region_as_layer(kernels: pl.DataFrame, region: pl.Series) -> pl.Series:
    """The column ``layer``, with the region where ``name_fused`` put a kernel's name over it."""
    replaced = (kernels["op"] != region).fill_null(False) & kernels["layer"].is_null()
    column: pl.Series = region.zip_with(replaced, kernels["layer"]).alias("layer")
    return column

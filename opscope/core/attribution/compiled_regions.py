"""Name the op of a generated kernel after the kernel: its name lists what it fused (rule 6).

Inductor names a Triton kernel after the ops that it fused: ``triton_poi_fused_add_gelu_3`` is pointwise
(``poi``; ``red`` and ``per`` reduce, ``tem`` is a template) and does an ``add`` and a ``gelu``. A C++
kernel is named ``cpp_fused_add_gelu_3``.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

#: Prefixes of ops that represent a whole compiled region.
REGION_NAMES: Final = (
    "CompiledFunction",
    "Torch-Compiled Region",
    "## Call CompiledFxGraph",
    "autograd::engine::evaluate_function: CompiledFunctionBackward",
)
#: Prefix of a generated kernel's name, on a GPU and on the CPU.
GENERATED: Final = r"^(triton_(poi|red|per|tem|for|mm|split_scan|spl)|cpp)_fused_"
_FUSED: Final = re.compile(rf"{GENERATED}(?P<ops>.*?)_?\d+(?:d\d+.*)?\Z")


def fused_ops(kernel: str) -> str | None:
    """Return the names of the fused ops, joined: ``add_gelu`` for ``triton_poi_fused_add_gelu_3``.

    They cannot be split for certain, because names of ops contain underscores themselves.
    """
    match = _FUSED.match(kernel)
    return match.group("ops").strip("_") or None if match else None


def family(name: str) -> str | None:
    """Return the op type: ``fused`` for a generated kernel, ``compiled`` for a region, None for others."""
    if _FUSED.match(name):
        return "fused"
    return "compiled" if name.startswith(REGION_NAMES) else None


def name_fused(kernels: pl.DataFrame) -> pl.DataFrame:
    """Replace the op of each generated kernel by the kernel's own name.

    ``kernels`` has ``name``, ``op``, ``op_type`` and ``reason``; a kernel without an op stays as it is.
    A region's op (such as ``Torch-Compiled Region: 0/0``) launches many different kernels, so the
    kernel's name says more.
    """
    name = pl.col("name").cast(pl.String)
    generated = name.str.contains(GENERATED) & pl.col("reason").is_null()
    other = generated & (pl.col("op").cast(pl.String) != name)
    return kernels.with_columns(
        pl.when(other).then("name").otherwise("op").alias("op"),
        pl.when(other).then(pl.lit("fused", pl.Categorical)).otherwise("op_type").alias("op_type"),
    )


def region_as_layer(kernels: pl.DataFrame, region: pl.Series) -> pl.Series:
    """Return ``layer`` with the region's name where ``name_fused`` replaced it and no layer is known."""
    replaced = (kernels["op"] != region).fill_null(False) & kernels["layer"].is_null()
    column: pl.Series = region.zip_with(replaced, kernels["layer"]).alias("layer")
    return column

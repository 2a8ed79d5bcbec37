"""Upper bounds, from their grids, of the elements and bytes of kernels over lists of tensors.

PyTorch's foreach and fused optimizers, and those of Apex, DeepSpeed and Transformer Engine, cut every
tensor into chunks of at most 65,536 elements and give each chunk a block
(``aten/src/ATen/native/cuda/MultiTensorApply.cuh``, ``kChunkSize``; the others' ``multi_tensor_applier``
is made with 2048 · 32). If a trace has no shapes of the lists, the number of blocks still bounds their
elements, and the kernel's name gives the number of lists and their type.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import polars as pl

from opscope.core.tables.columns import compact, gather

CHUNK: Final = 65_536
_LISTS: Final = re.compile(
    r"multi_tensor_apply_kernel<.*?Metadata<(?:[\w: ]+, ?)?(?:\(int\))?([1-9])>"
)
_WIDE: Final = re.compile(r"\b(?:double|long)\b")
SCHEMA: Final = {"elements": pl.Int64, "moved": pl.Int64}


def at_most(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return, per row of ``kernels`` (name, grid), upper bounds: ``elements`` of one list, ``moved`` bytes.

    It assumes that every list is read and written, with elements of 4 bytes (8 if the name contains a
    type of 8 bytes: states are as wide as f32, whatever the parameters are). Null for other kernels.
    """
    codes, names = compact(kernels["name"].cast(pl.Categorical))
    widths = pl.Series(
        [None if name is None else _bytes_an_element(name) for name in names], dtype=pl.Int64
    )
    width = gather(widths, codes)
    if width.null_count() == len(width):
        return pl.DataFrame(dict.fromkeys(SCHEMA, width), schema=SCHEMA)
    codes, grids = compact(kernels["grid"].cast(pl.Categorical))
    counts = pl.Series(grids, dtype=pl.String).str.extract(r"^(\d{1,10}),1,1$").cast(pl.Int64)
    blocks = gather(counts, codes)
    return pl.select(
        pl.when(width.is_not_null()).then(blocks * CHUNK).alias("elements"),
        (blocks * CHUNK * width).alias("moved"),
    )


@cache
def _bytes_an_element(name: str) -> int | None:
    match = _LISTS.search(name)
    if match is None:
        return None
    template = name.partition("(int")[0]
    return 2 * int(match.group(1)) * (8 if _WIDE.search(template) else 4)


def bound(elements: int | None, moved: int | None) -> str:
    """Return the bound as text to append to a reason; empty if there is none."""
    if elements is None or moved is None:
        return ""
    return (
        f"; by its grids at most {elements / 1e6:,.1f} million elements and {moved / 1e9:,.2f} GB"
    )

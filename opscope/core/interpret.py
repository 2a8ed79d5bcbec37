"""What each range means: distinct texts read once by the dialects, then spread over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects import Reading, own
from opscope.core.schema import OpCall
from opscope.core.trace import Trace

#: The dialects in the order in which they are asked; a text that none knows is a user range.
DIALECTS: Final = ("torch_nvtx", "markers", "nccl", "tsl", "tensorrt")
ROLES: Final = (
    "op",
    "layer",
    "step",
    "phase",
    "user",
    "source",
    "spec",
    "result",
    "graph",
)
ROLE: Final = {name: number for number, name in enumerate(ROLES)}
_KEY: Final = ("domain", "category", "text")


@dataclass(slots=True)
class Meaning:
    """The ranges of a trace, understood.

    ``reading``: for each range row its place in ``readings``. ``seq``, ``fwd_thread``: per row,
    -1 where unknown, from the columns or else from the text.
    """

    readings: list[Reading]
    texts: list[str]
    reading: NDArray[np.int32]
    seq: NDArray[np.int64]
    fwd_thread: NDArray[np.int64]

    @property
    def role(self) -> NDArray[np.uint8]:
        """The role (a place in ROLES) of each range row."""
        roles: NDArray[np.uint8] = np.array([ROLE[r.role] for r in self.readings], np.uint8)
        return roles[self.reading]


def interpret(trace: Trace) -> Meaning:
    """Read every distinct range text of ``trace``."""
    ranges = trace["ranges"]
    stripped = _strip(ranges)
    keyed = ranges.lazy().select(_KEY)
    if stripped is not None:
        keyed = keyed.join(stripped.lazy(), on="text", how="left", maintain_order="left").select(
            "domain", "category", pl.col("stripped").alias("text"), "text_seq"
        )
    rows = keyed.collect()
    distinct = rows.select(_KEY).unique(maintain_order=True).with_row_index("reading")
    reading = rows.join(distinct, on=_KEY, how="left", nulls_equal=True, maintain_order="left")[
        "reading"
    ]
    readings, texts = [], []
    modules = [import_module(f"opscope.core.dialects.{name}") for name in DIALECTS]
    for domain, category, text in distinct.select(_KEY).iter_rows():  # distinct texts, not events
        texts.append(text or "")
        readings.append(_read(modules, domain, category, text or ""))
    seq = ranges["seq"]
    if stripped is not None:
        seq = seq.zip_with(seq.is_not_null(), rows["text_seq"])
    return Meaning(
        readings,
        texts,
        reading.to_numpy().astype(np.int32),
        seq.fill_null(-1).to_numpy(),
        ranges["fwd_thread"].fill_null(-1).to_numpy(),
    )


def _strip(ranges: pl.DataFrame) -> pl.DataFrame | None:
    """For each distinct text the same without what differs from call to call, and its seq."""
    foreign = ranges.lazy().filter(
        ~pl.col("domain").cast(pl.String).str.starts_with("opscope.").fill_null(False)
        & ~pl.col("domain").cast(pl.String).is_in(["kineto", "user", "python"]).fill_null(False)
    )
    if foreign.select(pl.len()).collect().item() == 0:
        return None
    unique = ranges.select(pl.col("text").unique())
    text, seq = unique["text"].cast(pl.String), None
    for name in DIALECTS:
        strip = getattr(import_module(f"opscope.core.dialects.{name}"), "strip", None)
        if strip is not None:
            result = strip(text)
            text = result["text"]
            seq = result["seq"] if seq is None else seq.zip_with(seq.is_not_null(), result["seq"])
    if seq is None:
        seq = pl.Series([None] * len(text), dtype=pl.Int64)
    return unique.with_columns(
        text.cast(pl.Categorical).alias("stripped"), seq.cast(pl.Int64).alias("text_seq")
    )


def _read(
    modules: Sequence[ModuleType], domain: str | None, category: str | None, text: str
) -> Reading:
    if own.is_own(domain):
        assert domain is not None
        return own.read(domain, category, text) or Reading("user")
    for module in modules:
        reading: Reading | None = module.read(domain or "", text)
        if reading is not None:
            return reading
    return Reading("user")


def call_of(reading: Reading) -> OpCall | None:
    """The call of a reading that is an op's."""
    return reading.call if reading.role == "op" else None

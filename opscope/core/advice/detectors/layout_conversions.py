"""Conversions between NCHW and NHWC around convolutions: keep the layout that the kernels want."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.products import LEAST_SHARE
from opscope.core.advice.saying import evidence, framework, ms, places, share
from opscope.core.tables.columns import compact, gather

#: Kernels of cuDNN and MIOpen that only change the order of dimensions, by direction.
_TO_LAST: Final = re.compile(r"nchwTo\w*hwc|nchw2nhwc(?!_params)", re.IGNORECASE)
_TO_FIRST: Final = re.compile(r"n\w?hwcTo\w*chw|nhwc2nchw(?!_params)", re.IGNORECASE)
_TRANSPOSES: Final = re.compile(r"^(?:void )?batched_transpose_\w+")
#: The nodes that TensorFlow's layout optimizer inserts.
_NODE: Final = r"LayoutOptimizer|Transpose(?:NCHWToNHWC|NHWCToNCHW)"
#: Copies of one tensor to another of the same shape: their layouts tell whether the order changes.
_COPY: Final = r"^aten::(?:copy_|clone|contiguous|_to_copy)$"
_LAST: Final = ("{1,3,2,0}", "{1,4,3,2,0}")
TO_LAST, TO_FIRST, OTHER = "NCHW to NHWC", "NHWC to NCHW", "between layouts"


def find(answers: Answers) -> Answer:
    """Return one finding with the kernels that only change the order of dimensions around convolutions."""
    if answers.cpu_only:
        return CannotTell(
            "nothing in the profile ran on a GPU; a CPU's reorders are inside its convolutions"
        )
    kernels = answers.kernels(categories=True)
    if kernels.is_empty():
        return CannotTell("no kernels were recorded; capture with a source of GPU activity")
    ways = pl.coalesce(_by_name(kernels["name"]), _by_node(kernels), _by_layouts(kernels))
    conversions = kernels.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        *("op_id", "op", "direction", "layer", "source", "inputs", "dtypes", "duration", "name"),
        ways.alias("way"),
    ).filter(pl.col("way").is_not_null())
    total = int(kernels["duration"].sum())
    if not len(conversions) or int(conversions["duration"].sum()) < LEAST_SHARE * total:
        return []
    placed = len(kernels) == len(answers.trace["kernels"])
    return [_finding(answers, conversions, total, placed)]


def _by_name(names: pl.Series) -> pl.Series:
    codes, distinct = compact(names)
    return gather(pl.Series([_way(name or "") for name in distinct], dtype=pl.String), codes)


def _way(name: str) -> str | None:
    for way, pattern in ((TO_LAST, _TO_LAST), (TO_FIRST, _TO_FIRST), (OTHER, _TRANSPOSES)):
        if pattern.search(name):
            return way
    return None


def _by_node(kernels: pl.DataFrame) -> pl.Series:
    """Return the direction of TensorFlow's inserted transposes, from their nodes' names."""
    formats = pl.Series([None], dtype=pl.String).extend_constant(None, len(kernels) - 1)
    for column in ("op", "layer"):
        codes, distinct = compact(kernels[column])
        ways = [
            None
            if not re.search(_NODE, text or "")
            else TO_LAST
            if "NCHWToNHWC" in (text or "")
            else TO_FIRST
            if "NHWCToNCHW" in (text or "")
            else OTHER
            for text in distinct
        ]
        if any(ways):
            mine = gather(pl.Series(ways, dtype=pl.String), codes)
            formats = pl.select(pl.coalesce(formats, mine)).to_series()
    return formats


def _by_layouts(kernels: pl.DataFrame) -> pl.Series:
    """Return the direction of PyTorch's copies between two orders of one shape and dtype."""
    codes, ops = compact(kernels["op"])
    copies = gather(
        pl.Series([bool(re.search(_COPY, op or "")) for op in ops], dtype=pl.Boolean), codes
    )
    number, inputs = compact(kernels["inputs"])
    ways = gather(pl.Series([_between(text) for text in inputs], dtype=pl.String), number)
    return pl.select(pl.when(copies).then(ways)).to_series()


def _between(inputs: str | None) -> str | None:
    """Return the direction of a copy with known inputs (target, source): ``f32[2,3,4,5]{1,3,2,0},
    f32[2,3,4,5]``."""
    match = re.fullmatch(
        r"(\w+\[[\d,]+\])(\{[\d,]+\})?, (\w+\[[\d,]+\])(\{[\d,]+\})?", inputs or ""
    )
    if match is None or match[1] != match[3] or match[1].count(",") not in (3, 4):
        return None
    to, source = match[2], match[4]
    if to in _LAST and source is None:
        return TO_LAST
    return TO_FIRST if to is None and source in _LAST else None


def _finding(answers: Answers, table: pl.DataFrame, total: int, placed: bool) -> Finding:
    time = int(table["duration"].sum())
    by = (
        table.group_by("way")
        .agg(pl.len(), pl.col("duration").sum())
        .sort("duration", descending=True)
    )
    said = ", ".join(f"{count:,} {way} ({ms(took)})" for way, count, took in by.rows())
    rows = table["row"].to_numpy().astype(np.int64)
    half = table["dtypes"].cast(pl.String).str.contains("f16").fill_null(False)
    return Finding(
        what=f"{len(table):,} kernels only change the order of dimensions: {said}; {ms(time)},"
        f" {share(time, total)} of the kernels' time",
        evidence=places(table, "kernels"),
        recommendation=_recommendation(answers),
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="At most the time of these kernels (kernels(): name, op, layer, inputs, duration), all of"
        " which goes if the layout stays one; at least nothing, because other kernels may be slower in it.",
        confidence="high" if int(table.filter(half)["duration"].sum()) * 2 > time else "medium",
        rows=evidence(table),
        edit=Edit(kernels=(rows, np.zeros(len(rows)))) if placed else None,
    )


def _recommendation(answers: Answers) -> str:
    used = framework(answers)
    if used == "torch":
        return (
            "model = model.to(memory_format=torch.channels_last); x ="
            " x.to(memory_format=torch.channels_last)."
            " Convolutions in f16 and bf16 want NHWC; where f32 ones convert back to NCHW, keep"
            " them contiguous."
        )
    if used in ("tensorflow", "keras"):
        return 'Build the model with data_format="channels_last", which Tensor Cores want.'
    if used == "jax":
        return 'Convolve with dimension_numbers=("NHWC", "HWIO", "NHWC").'
    if used == "mindspore":
        return 'Build the layers with data_format="NHWC".'
    return (
        "Keep activations and weights in NHWC (channels last), which Tensor Cores want, from input to"
        " output."
    )


DETECTOR = Detector(
    name="layout_conversions",
    question="Do kernels only convert between NCHW and NHWC around convolutions?",
    find=find,
    fires="1 % of the kernels' time",
    looks_at="It looks at kernels(): names of cuDNN's and MIOpen's conversions, the nodes that"
    " TensorFlow's layout"
    " optimizer inserts (op, layer), and PyTorch's copies whose two inputs have one shape in two layouts.",
    abstains="It cannot tell without kernels, and on a CPU, where reorders are inside the"
    " convolutions. Copies of"
    " sources that record no layouts are not counted.",
)

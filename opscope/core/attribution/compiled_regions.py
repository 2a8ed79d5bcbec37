"""Name the op of a generated kernel after the kernel: its name lists what it fused (rule 6).

Inductor names a Triton kernel after the ops that it fused: ``triton_poi_fused_add_gelu_3`` is pointwise
(``poi``; ``red`` and ``per`` reduce, ``tem`` is a template) and does an ``add`` and a ``gelu``. A C++
kernel is named ``cpp_fused_add_gelu_3``, and in a trace of torch.profiler ``graph_0_cpp_fused_add_gelu_3``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import polars as pl

from opscope.core.dialects import Reading
from opscope.core.rangetext import format_call
from opscope.core.schema import INDUCTOR
from opscope.core.tables.columns import gather
from opscope.core.tables.interpret import ExtendedReadings, Meaning
from opscope.core.tables.trace import Trace

#: Prefixes of ops that represent a whole compiled region.
REGION_NAMES: Final = (
    "CompiledFunction",
    "Torch-Compiled Region",
    "## Call CompiledFxGraph",
    "autograd::engine::evaluate_function: CompiledFunctionBackward",
)
#: Prefix of a generated kernel's name, on a GPU and on the CPU.
GENERATED: Final = r"^(triton_(poi|red|per|tem|for|mm|split_scan|spl)|(graph_[0-9]+_)?cpp)_fused_"
_GRAPH: Final = r'^"?## Call CompiledFxGraph (\w+)'
_OWN_GRAPH: Final = re.compile(r"\Agraph_[0-9]+_(?=cpp_)")
_LINE: Final = re.compile(r"(.{1,512}):([0-9]{1,9})")
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


def with_lines(trace: Trace, meaning: Meaning) -> Meaning:
    """Return ``meaning`` in which calls of compiled graphs have the lines that torch.compile's log states.

    The log lists the kernels and library calls of a graph in the order of its code. Where a graph ran
    another number of calls of one name, these get no lines.
    """
    logged = trace["specs"].filter(pl.col("framework") == INDUCTOR)
    if logged.is_empty():
        return meaning
    keys = pl.Series("key", [_key(reading) for reading in meaning.readings], pl.String)
    graphs = pl.Series("graph", meaning.texts, pl.String).str.extract(_GRAPH)
    ranges = trace["ranges"].select("process", "thread", "start", "end").with_row_index("row")
    ranges = ranges.with_columns(gather(values, meaning.reading) for values in (keys, graphs))
    ranges = ranges.sort("start", maintain_order=True)
    runs = ranges.filter(pl.col("graph").is_not_null()).rename({"row": "run", "end": "last"})
    calls = (
        ranges.filter(pl.col("key").is_not_null(), pl.col("graph").is_null())
        .drop("graph")
        .join_asof(runs.drop("key"), on="start", by=["process", "thread"], check_sortedness=False)
        .filter(pl.col("start") < pl.col("last"))
    )
    lines = logged.select("process", pl.col("graph", "key", "text").cast(pl.String))
    same = ["process", "graph", "key", "nth", "of"]
    lined = _numbered(calls, "run", "key").join(_numbered(lines, *same[:3]), on=same)
    lined = lined.with_columns(number=pl.Series(meaning.reading).gather(lined["row"]))
    each, readings = lined.select("number", "text").unique(), ExtendedReadings(meaning)
    added = [_at_lines(readings, *pair) for pair in each.iter_rows()]
    lined = lined.join(each.with_columns(new=pl.Series(added, dtype=pl.Int32)), on=each.columns)
    return readings.meaning(lined["row"].to_numpy(), lined["new"].to_numpy())


def _key(reading: Reading) -> str | None:
    """Return an op's name as torch.compile's log has it."""
    if reading.role != "op" or reading.call is None:
        return None
    name = reading.call.name
    return (
        name.replace("aten::", "extern_kernels.", 1) if "::" in name else _OWN_GRAPH.sub("", name)
    )


def _numbered(rows: pl.DataFrame, *of: str) -> pl.DataFrame:
    """Return ``rows`` with the place of each among those that agree in ``of``, and their number."""
    return rows.with_columns(nth=pl.int_range(pl.len()).over(of), of=pl.len().over(of))


def _at_lines(readings: ExtendedReadings, number: int, text: str) -> int:
    """Add a reading with the call at the first of the lines in ``text``; return its number."""
    reading = readings.reading(number)
    frames = tuple((file, int(line)) for file, line in _LINE.findall(text))
    if reading.call is None or not frames:
        return number
    lines = ", ".join(f"{file}:{line}" for file, line in frames)
    params = (*reading.call.params, *((("lines", lines),) if len(frames) > 1 else ()))
    call = replace(reading.call, params=params, frames=frames[:1])
    return readings.add(replace(reading, call=call), format_call(call, None))


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

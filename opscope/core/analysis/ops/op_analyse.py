"""The time of named operators by the shapes of their inputs, as MindSpore's ``op_analyse`` returns it. The
form of the answer is that of MindSpore 1.8 to 2.10 (``OpAnalyser`` in
``mindspore/profiler/common/profiler_op_analyse.py``, earlier ``parser/op_intermediate_parser.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.ops import Ops
from opscope.core.rangetext import RangeTextError, parse
from opscope.core.schema import SameAs, TensorSpec, leaves
from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import NONE, Ints

#: One entry: op_side, input_shape, op_occurrences, op_total_time(us), op_avg_time(us).
Entry: TypeAlias = "dict[str, str | int | float]"
_DIGITS: Final = 4


class NoSuchOperator(ValueError):
    """No operator of the profile has this name."""


class NoSuchDevice(ValueError):
    """The profile has no device of this number."""


def op_analyse(ops: Ops, names: Sequence[str], device: int) -> Mapping[str, list[Entry]]:
    """Return for each name the occurrences and times (µs) of its calls by side and shapes of the inputs.

    A name is an op's (``Conv2D``, ``aten::mm``) or a node's in a prepared graph (``Conv2D-op0``). On the side
    ``gpu``, the time is that of the kernels and copies that a call, and the ops inside it, launched on
    ``device``. A call that launched none is on the side ``cpu``, with its time on the host. Raises
    NoSuchOperator and NoSuchDevice.
    """
    times = ops.times
    own, launched = _on(ops, device)
    forest = Forest(times.parent)
    total, works = forest.with_inside(own), forest.with_inside(launched) > 0
    elsewhere = forest.with_inside(times.kernels) > 0
    ranges = ops.attribution.trace["ranges"]
    start, end = (ranges[name].gather(times.rows).to_numpy() for name in ("start", "end"))
    reading = ops.attribution.meaning.reading[times.rows]
    entries: dict[str, list[Entry]] = {}
    for name in names:
        wanted = _name(ops, name)[reading]
        if not wanted.any():
            raise NoSuchOperator(
                f"no operator of this profile is named {name!r}; operator_statistics() lists them"
            )
        # an op inside another of the same name is part of the outer one, and a call on another device does
        # not count
        here = wanted & ~forest.inside_alike(wanted.astype(np.int8)) & (works | ~elsewhere)
        rows = np.flatnonzero(here)
        lasted = np.where(works, total, end - start)[rows]
        entries[name] = _entries(ops, times.rows[rows], works[rows], lasted)
    return entries


def _on(ops: Ops, device: int) -> tuple[Ints, Ints]:
    """Return per op the time of the work that it launched on the device, and its number of kernels and
    copies."""
    attribution, rows = ops.attribution, ops.times.rows
    index = np.full(len(attribution.is_op), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    time, count = (np.zeros(len(rows), np.int64) for _ in range(2))
    devices: set[int] = set()
    for name, executed in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        table = attribution.trace[name]
        devices |= set(table["device"].drop_nulls().unique())
        which = (table["device"] == device).fill_null(device == 0).to_numpy() & (executed.op >= 0)
        by = index[executed.op[which]]
        np.add.at(time, by, (table["end"] - table["start"]).fill_null(0).to_numpy()[which])
        np.add.at(count, by, 1)
    if devices and device not in devices:
        listed = ", ".join(map(str, sorted(devices)))
        raise NoSuchDevice(f"nothing of this profile ran on device {device}; there is {listed}")
    if not devices and device != 0:
        raise NoSuchDevice(f"nothing of this profile ran on device {device}; the CPU is device 0")
    return time, count


def _name(ops: Ops, name: str) -> NDArray[np.bool_]:
    """Return for each reading whether it is an operator, or a node, of this name."""
    flags = []
    for reading in ops.attribution.meaning.readings:
        call = reading.call
        node = str(call.param("node") or reading.key or "") if call is not None else ""
        flags.append(call is not None and name in (call.name, node, node.rpartition("/")[2]))
    return np.array(flags, bool)


def _entries(ops: Ops, rows: Ints, on_gpu: NDArray[np.bool_], lasted: Ints) -> list[Entry]:
    """Return one entry per side and shapes, the longest time first."""
    inputs = ops.identify(rows).call["inputs"].cast(pl.String)
    frame = pl.DataFrame(
        {"side": np.where(on_gpu, "gpu", "cpu"), "inputs": inputs, "time": lasted},
        schema={"side": pl.String, "inputs": pl.String, "time": pl.Int64},
    )
    by_text = frame.group_by("side", "inputs").agg(pl.len().alias("many"), pl.col("time").sum())
    shapes = by_text["inputs"].map_elements(_shapes, return_dtype=pl.String, skip_nulls=False)
    grouped = (
        by_text.with_columns(shapes.alias("shapes"))
        .group_by("side", "shapes")
        .agg(pl.col("many").sum(), pl.col("time").sum())
        .sort("time", "side", "shapes", descending=[True, False, False])
    )
    entries: list[Entry] = []
    row: dict[str, Any]
    for row in grouped.iter_rows(named=True):
        entries.append(
            {
                "op_side": row["side"],
                "input_shape": row["shapes"],
                "op_occurrences": row["many"],
                "op_total_time(us)": round(row["time"] / 1000, _DIGITS),
                "op_avg_time(us)": round(row["time"] / 1000 / row["many"], _DIGITS),
            }
        )
    return entries


def _shapes(inputs: str | None) -> str:
    """Return ``input_1:[8, 1, 32, 32],input_2:[6, 1, 5, 5]`` of ``f32[8,1,32,32], f32[6,1,5,5]``.

    Inputs that are not tensors are ``NoShape``, unknown sizes -1. Empty if the shapes were not recorded.
    """
    if inputs is None:
        return ""
    specs: list[object] = []
    for part in _parts(inputs):
        try:
            specs += leaves(parse(f"_({part})").inputs)
        except RangeTextError:  # a number in place of a tensor
            specs.append(None)
    same = [
        specs[arg.index] if isinstance(arg, SameAs) and 0 <= arg.index < len(specs) else arg
        for arg in specs
    ]
    return ",".join(f"input_{index}:{_shape(arg)}" for index, arg in enumerate(same, 1))


def _parts(inputs: str) -> list[str]:
    """Split arguments at the commas that are outside of brackets."""
    parts, level, begin = [], 0, 0
    for index, letter in enumerate(inputs):
        level += (letter in "[{(") - (letter in "]})")
        if letter == "," and level == 0:
            parts.append(inputs[begin:index])
            begin = index + 1
    return [part.strip() for part in [*parts, inputs[begin:]] if part.strip()]


def _shape(arg: object) -> str:
    if not isinstance(arg, TensorSpec):
        return "NoShape"
    return str([dim if isinstance(dim, int) else -1 for dim in arg.shape])

"""The distinct readings of a trace as a table: the columns that describe an op, once per reading."""

from __future__ import annotations

import polars as pl

from opscope.core import perf
from opscope.core.attribution import compiled_regions
from opscope.core.attribution.enclosing import source_text
from opscope.core.dialects import Reading
from opscope.core.dialects.aten_schema import tensor_arguments
from opscope.core.perf.shape_arguments import data_arguments
from opscope.core.rangetext import format_call, format_value
from opscope.core.schema import Arg, OpCall, TensorSpec, leaves
from opscope.core.tables.interpret import Meaning

_SCHEMA = {
    "op": pl.Categorical,
    "op_type": pl.Categorical,
    "direction": pl.Categorical,
    "source": pl.Categorical,
    "inputs": pl.Categorical,
    "outputs": pl.Categorical,
    "dtypes": pl.Categorical,
    "params": pl.Categorical,
    "device": pl.Categorical,
    "shaped": pl.Boolean,
}


def readings_table(meaning: Meaning) -> pl.DataFrame:
    """Return one row per reading: op, op_type, direction, source, inputs, outputs, dtypes, params, device.

    Shapes are written as in the range text (``f32[64,3], f32[8,3]``); ``shaped`` is whether the text has
    inputs or outputs. A column is null if the text does not contain it.
    """
    distinct, number = meaning.distinct
    table = pl.DataFrame(map(_row, distinct), schema=_SCHEMA, orient="row")[number]
    texts = pl.Series(meaning.texts, dtype=pl.String).cast(pl.Categorical)
    return table.with_columns(pl.col("op").fill_null(texts))


def _row(reading: Reading) -> tuple[object, ...]:
    call = reading.call
    if call is None:
        return (None, reading.role, reading.direction, *_source(reading), *[None] * 5, False)
    return (
        call.name,
        perf.op_type(call.name) or compiled_regions.family(call.name),
        reading.direction,
        *_source(reading),
        _inputs(call) if call.inputs or call.outputs else None,
        None if call.outputs is None else args_text(call.outputs),
        _dtypes(call),
        ", ".join(f"{key}={format_value(value)}" for key, value in call.params) or None,
        call.device,
        bool(call.inputs or call.outputs),
    )


def _inputs(call: OpCall) -> str:
    """Return the inputs as text, with each number that replaces a tensor (``x * 2``) at its position.

    The call has such a number among its parameters, under the argument's name.
    """
    given = dict(call.params)
    if None in call.inputs and given:
        names = tensor_arguments(call.name, len(call.inputs), frozenset(given))
        if names is not None and any(
            arg is None and name in given for name, arg in zip(names, call.inputs, strict=True)
        ):
            return ", ".join(
                format_value(given[name]) if arg is None and name in given else args_text((arg,))
                for name, arg in zip(names, call.inputs, strict=True)
            )
    return args_text(call.inputs)


def _source(reading: Reading) -> tuple[str | None]:
    frames = (reading.call.frames if reading.call is not None else ()) or reading.frames
    return (source_text(frames) or None if frames else None,)


def args_text(args: tuple[Arg, ...]) -> str:
    """Return arguments as text: ``f32[64,3], [f32[3]]*2, _``."""
    return format_call(OpCall("_", args), None)[len("_(") : -1]


def _dtypes(call: OpCall) -> str | None:
    """Return the distinct dtypes of the inputs (else the outputs), in order of appearance.

    Arguments that give a size or an axis do not count as data.
    """
    for args in (data_arguments(call), call.outputs or (), call.inputs):
        dtypes = [leaf.dtype for leaf in leaves(args) if isinstance(leaf, TensorSpec)]
        if dtypes:
            return ",".join(dict.fromkeys(dtypes))
    return None

"""Find ranges with only the name of a prepared graph's node, and give them the call in the node's spec."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.attribution.known import Note
from opscope.core.attribution.node_gradients import (
    forward_graph,
    is_marked_backward,
    pair_gradients,
)
from opscope.core.attribution.node_runs import runs_of
from opscope.core.attribution.specs import Specs, is_hlo
from opscope.core.dialects import Reading, hlo
from opscope.core.rangetext import format_call
from opscope.core.schema import Arg, Dim, OpCall, TensorSpec
from opscope.core.tables.columns import pairs
from opscope.core.tables.interpret import ExtendedReadings, Meaning
from opscope.core.tables.intervals import NONE
from opscope.core.tables.trace import Trace
from opscope.core.tensorrt_layers import PREFIX

#: Ops with as many rows in their results as in their inputs.
_KEEPS_ROWS: Final = re.compile(
    r"Conv|MatMul|Pool|BiasAdd(?!Grad)|Relu|Elu|Gelu|Sigmoid|Tanh|Softmax|BatchNorm|LayerNorm|Dropout|"
    r"\A_?(Cast|Identity|Add|AddV2|Sub|Mul|Div|RealDiv|DivNoNan|Maximum|Minimum|Select|SelectV2|Neg|"
    r"Square|Bitcast|Bitwise\w+|Sqrt|Rsqrt|Exp|Log|Abs|Pow|Less|LessEqual|Greater|GreaterEqual|Equal|"
    r"NotEqual|Logical\w+)\Z"
)
#: Part of the names of functions that tf.data runs.
_DATASET: Final = "_Dataset_"
_WHOSE_UNKNOWN: Final = (
    "ops on separate threads while several graphs with a node of that name ran: their graph is not known, "
    "and so their shapes are not known"
)
_BY_LATEST_SPEC: Final = (
    "ranges outside any run of their graph: each has the call in the latest spec of its name (inferred), "
    "which may be of another graph"
)
_BY_ONLY_GRAPH: Final = (
    "ranges outside any run of their graph: each has the call in the spec of its name (inferred) of the only "
    "graph that the trace describes"
)


def merge_specs(trace: Trace, meaning: Meaning) -> tuple[Meaning, tuple[Note, ...]]:
    """Return ``meaning`` in which each range whose text is only a name has the call of its spec; and notes.

    A range's graph is the one that it names itself, else the graph of the innermost run range (category
    ``graph``) open at its start, on its thread or else in its process. A note says how many calls were
    inferred from the latest spec alone. Backward ops of a graph get their forward op's number in ``seq``.
    """
    wanted = np.array([_is_bare(reading) for reading in meaning.readings], bool)
    rows = np.flatnonzero(wanted[meaning.reading]) if wanted.any() else np.empty(0, np.int64)
    if not len(rows):
        return meaning, ()
    specs = Specs.of(trace, meaning)
    ranges = trace["ranges"]
    run, unsure = runs_of(ranges, meaning, rows, specs.keys_of)
    process = ranges["process"].gather(rows).fill_null(NONE).to_numpy()
    time = ranges["start"].gather(rows).to_numpy()
    names = pl.Series([reading.graph for reading in meaning.readings], dtype=pl.String)
    keys = pl.Series([reading.key for reading in meaning.readings], dtype=pl.String)
    own = meaning.reading[rows]
    of_run = np.where(run >= 0, meaning.reading[np.maximum(run, 0)], own)
    graph = names.gather(own).zip_with(names.gather(own).is_not_null(), names.gather(of_run))
    spec, inferred = specs.find(
        process, time, ranges["domain"].gather(rows), graph, keys.gather(own)
    )
    inferred &= ~unsure
    explained = np.flatnonzero((spec >= 0) & ~unsure)
    notes = (Note("warning", _WHOSE_UNKNOWN, int(unsure.sum())),) if unsure.any() else ()
    if not len(explained):
        return meaning, notes
    meaning = pair_gradients(
        specs, meaning, ranges, rows[explained], spec[explained], run[explained]
    )
    readings_of, specs_of, inverse = pairs(own[explained], spec[explained])
    each = zip(readings_of.tolist(), specs_of.tolist(), strict=True)
    readings = ExtendedReadings(meaning)
    new_readings = np.array([_explain(readings, specs, *pair) for pair in each], np.int32)
    if inferred.any():
        several = specs.table["graph"].n_unique() > 1
        message = _BY_LATEST_SPEC if several else _BY_ONLY_GRAPH
        notes = (*notes, Note("info", message, int(inferred.sum())))
    return readings.meaning(rows[explained], new_readings[inverse]), notes


def _is_bare(reading: Reading) -> bool:
    return reading.key is not None and (reading.call is None or reading.call.outputs is None)


def _explain(readings: ExtendedReadings, specs: Specs, old: int, spec: int) -> int:
    """Add a reading with the spec's call and return its number; ``old`` if the spec has no call."""
    reading, call = readings.reading(old), specs.calls[spec]
    if call is None:
        return old
    layer, direction = call.param("layer"), reading.direction
    if isinstance(layer, str):
        params = tuple(param for param in call.params if param[0] != "layer")
        call, reading = replace(call, params=params), replace(reading, layer=layer or None)
    if is_hlo(call):  # the operation's path shows the direction, the range's name does not
        hlo_reading = hlo.reading(call)
        direction = hlo_reading.direction
        if not isinstance(layer, str):
            reading = replace(reading, layer=hlo_reading.layer or reading.layer)
    elif reading.call is not None and not call.truncated and not call.name.startswith(PREFIX):
        # keep the name of the node that ran: a fused kernel runs as the node of its last op, which has the
        # spec
        call = _as_ran(replace(call, name=reading.call.name), reading.call.inputs)
    if not is_hlo(call) and is_marked_backward(call):
        params = tuple(param for param in call.params if param[0] != "direction")
        call, direction = replace(call, params=params), direction or "backward"
    if forward_graph(call) is not None:  # it differentiates a function, or calls an op that does
        direction = direction or "backward"
    if _DATASET in specs.table["graph"][spec]:
        direction = "input"
    reading = replace(reading, role="op", call=call, direction=direction)
    return readings.add(reading, format_call(call, None))


def _as_ran(call: OpCall, inputs: tuple[Arg, ...]) -> OpCall:
    """Return the spec's call with the inputs recorded with the range, and varying sizes filled in.

    If the graph knows the leading size of neither inputs nor result, the result gets that of the inputs.
    """
    if not any(inputs):
        return call
    planned = (*call.inputs, *(None,) * len(inputs))
    actual_inputs = tuple(now or was for now, was in zip(inputs, planned, strict=False))
    outputs = call.outputs
    if outputs is not None and _KEEPS_ROWS.search(call.name):
        leading = {
            now.shape[0]
            for now, was in zip(actual_inputs, call.inputs, strict=False)
            if isinstance(now, TensorSpec) and isinstance(was, TensorSpec)
            if was.shape[:1] == ("?",) and now.shape
        }
        outputs = tuple(_with_rows(output, actual_inputs, leading) for output in outputs)
    return replace(call, inputs=actual_inputs, outputs=outputs)


def _with_rows(result: Arg, inputs: tuple[Arg, ...], leading: set[Dim]) -> Arg:
    if not isinstance(result, TensorSpec) or result.shape[:1] != ("?",):
        return result
    # Grappler reorders the operands of sums and products: then the other sizes identify the operand
    alike = {
        input_.shape[0]
        for input_ in inputs
        if isinstance(input_, TensorSpec) and input_.shape and input_.shape[1:] == result.shape[1:]
    }
    rows = leading or alike
    return replace(result, shape=(*rows, *result.shape[1:])) if len(rows) == 1 else result

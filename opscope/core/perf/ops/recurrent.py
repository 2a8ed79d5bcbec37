"""Recurrent layers and cells: every weight matrix is used once per time step and batch entry.

2 FLOPs per weight and token (also of packed sequences: each of their rows is a token), and the gates'
arithmetic: LSTM 22, GRU 17, plain RNN 3 FLOPs per hidden unit and token, counted like elementwise
functions (sigmoid 4, tanh 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from opscope.core.perf.api import cost as cost_of
from opscope.core.perf.registry import CannotKnow, Cost, backward_of, lookup, op, variant, words
from opscope.core.perf.shapes import (
    NO_OUTPUTS,
    NO_SHAPES,
    as_ints,
    cost,
    distinct_tensors,
    int_param,
    lists,
    need,
    numel,
    outputs,
    product,
    sizes,
    tensors,
)
from opscope.core.schema import OpCall, TensorSpec

#: (gates, FLOPs per hidden unit and token in addition to the products).
KINDS: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {"lstm": (4, 22), "gru": (3, 17), "rnn": (1, 3)}
)
#: cudnnRNNMode_t: RELU, TANH, LSTM, GRU.
_MODES: Final = ("rnn", "rnn", "lstm", "gru")
#: One layer in one direction. Inputs: input, two matrices, two biases, the states (also matrices).
_ONEDNN: Final = "aten::mkldnn_rnn_layer"
#: The kind (LSTM, GRU …) of ops whose name has it; the other ops have a parameter for it.
_KIND_OF: Final[Mapping[str, str]] = MappingProxyType(
    {
        "aten::lstm": "lstm", "aten::_lstm_mps": "lstm", "aten::lstm_cell": "lstm",
        "aten::gru": "gru", "aten::gru_cell": "gru",
        "aten::rnn_tanh": "rnn", "aten::rnn_relu": "rnn",
        "aten::rnn_tanh_cell": "rnn", "aten::rnn_relu_cell": "rnn",
    }
)  # fmt: skip
_SOURCE = "2 per weight and token; gates LSTM 22, GRU 17, RNN 3 per unit and token"


def _kind(call: OpCall) -> str:
    entry = lookup(call.name)
    kind = None if entry is None else _KIND_OF.get(entry.name)
    if kind is not None:
        return kind
    mode = as_ints(call.param("mode"))
    if mode and 0 <= mode[0] < 4:
        return _MODES[mode[0]]
    raise CannotKnow("the trace does not record the kind of the recurrent layer (mode)")


def _weights(call: OpCall) -> list[TensorSpec]:
    """Return the weight matrices of all layers.

    oneDNN's layer has two. Else they are the two-dimensional tensors of the list of weights, or, if no
    list was recorded, those after the input.
    """
    if variant(call, "onednn"):
        return tensors(call)[1:3]
    given_lists = lists(call)
    if given_lists:
        weights = [
            t for t in given_lists[0 if variant(call, "lists_first") else -1] if len(t.shape) == 2
        ]
        if weights:
            return weights
    matrices = [t for t in tensors(call)[1:] if len(t.shape) == 2]
    if matrices and len(tensors(call)[0].shape) == 2 and len(matrices) % 2:
        matrices = matrices[
            :-1
        ]  # batch sizes are never matrices; an odd number of matrices ends in a state
    return matrices


@op(
    "aten::lstm",
    "aten::gru",
    "aten::rnn_tanh",
    "aten::rnn_relu",
    "aten::_cudnn_rnn",
    "aten::miopen_rnn",
    "aten::mkldnn_rnn_layer",
    "aten::_lstm_mps",
    family="recurrent",
    source=_SOURCE,
    variants={
        "lists_first": "aten::_cudnn_rnn aten::miopen_rnn aten::mkldnn_rnn_layer",
        "onednn": _ONEDNN,
    },
)
def layer(call: OpCall) -> Cost:
    """All layers and both directions; the inputs include all their weight matrices."""
    x = need(call, 0, "input")
    kind = "lstm" if variant(call, "onednn") else _kind(call)
    gates, each = KINDS[kind]
    shape = sizes(x)
    tokens = product(shape[:-1])
    weights = _weights(call)
    if weights:
        matrix = 2 * tokens * sum(map(numel, weights))
        wide = sizes(weights[0])[0]  # a projection has fewer rows, and no gates
        units = sum(sizes(w)[0] for w in weights if sizes(w)[0] == wide) // (2 * gates)
    else:
        matrix, units = _from_parameters(call, gates, shape[-1], tokens)
    out = outputs(call)
    if variant(call, "onednn"):  # one layer per call; the layout of its workspace is not known
        states = tensors(call)[-2:]
        out = (
            out[:3] if out else [TensorSpec(x.dtype, (*shape[:-1], sizes(states[0])[-1])), *states]
        )
    elif out is None:
        wide = units // max(int_param(call, "num_layers", 1), 1)
        out = [TensorSpec(x.dtype, (*shape[:-1], wide))]
    return cost(
        distinct_tensors(call),
        out,
        matrix=matrix,
        vector=each * units * tokens,
        dtype=x.dtype,
    )


def _from_parameters(call: OpCall, gates: int, features: int, tokens: int) -> tuple[int, int]:
    hidden = int_param(call, "hidden_size")
    layers = int_param(call, "num_layers", 1)
    ways = 2 if call.param("bidirectional") is True else 1
    projected = int_param(call, "proj_size", 0) or hidden
    matrix = 0
    for number in range(layers):
        inner = features if number == 0 else ways * projected
        matrix += 2 * tokens * ways * gates * hidden * (inner + projected)
        if projected != hidden:
            matrix += 2 * tokens * ways * hidden * projected
    return matrix, layers * ways * hidden


@op(
    "aten::lstm_cell",
    "aten::gru_cell",
    "aten::rnn_tanh_cell",
    "aten::rnn_relu_cell",
    family="recurrent",
    source=_SOURCE,
    variants={"lstm": "aten::lstm_cell"},
)
def cell(call: OpCall) -> Cost:
    """One step: both weight matrices per batch entry."""
    x = need(call, 0, "input")
    _, each = KINDS[_kind(call)]
    states = 2 if variant(call, "lstm") else 1
    matrices = [t for t in tensors(call)[1 + states :] if len(t.shape) == 2]
    if len(matrices) < 2:
        raise CannotKnow("the trace has no shapes for the weights")
    batch = product(sizes(x)[:-1])
    units = sizes(matrices[1])[1]
    out = outputs(call) or [TensorSpec(x.dtype, (batch, units))] * states
    return cost(
        distinct_tensors(call),
        out,
        matrix=2 * batch * sum(map(numel, matrices[:2])),
        vector=each * batch * units,
        dtype=x.dtype,
    )


@op(
    "aten::_thnn_fused_lstm_cell",
    "aten::_thnn_fused_gru_cell",
    "aten::_thnn_differentiable_lstm_cell_backward",
    "aten::_thnn_fused_lstm_cell_backward",
    "aten::_thnn_fused_lstm_cell_backward_impl",
    "aten::_thnn_fused_gru_cell_backward",
    "aten::_thnn_differentiable_gru_cell_backward",
    family="activation",
    source="the gates' arithmetic only: LSTM 22, GRU 17 per unit; backward twice that",
    variants={"backward": "*backward*", "lstm": "*lstm*"},
)
def gates_only(call: OpCall) -> Cost:
    """The pointwise part only; the products are separate ops."""
    backward = variant(call, "backward")
    gates, each = KINDS["lstm" if variant(call, "lstm") else "gru"]
    x = need(call, 0, "gates")
    units = numel(x) if backward else numel(x) // gates
    writes = outputs(call) or _gates_written(call, x, units, gates)
    return cost(
        distinct_tensors(call),
        writes,
        vector=each * units * (2 if backward else 1),
        dtype=x.dtype,
    )


def _gates_written(call: OpCall, x: TensorSpec, units: int, gates: int) -> list[TensorSpec]:
    """Return the results of ``gates_only`` by its units.

    Forward: the states, and what is kept for backward (LSTM four per unit, GRU five). Backward: the
    gradients of the gates (LSTM's are one tensor for both products, GRU's two), of the state and of the
    biases.
    """
    lstm = variant(call, "lstm")
    if not variant(call, "backward"):
        parts = [units, units, 4 * units] if lstm else [units, 5 * units]
    else:
        parts = [gates * units, units] if lstm else [gates * units, gates * units, units]
        if call.param("has_bias") is True:
            parts += [gates * sizes(x)[-1]] * (1 if lstm else 2)
    return [TensorSpec(x.dtype, (count,)) for count in parts]


@op(
    "aten::_cudnn_rnn_backward",
    "aten::miopen_rnn_backward",
    "aten::mkldnn_rnn_layer_backward",
    family="recurrent",
    source="twice the forward: data and weight gradients",
    variants={"onednn": f"{_ONEDNN}_backward"},
)
def layer_backward(call: OpCall) -> Cost:
    """Data gradients and weight gradients, each with the forward's multiply-adds."""
    forward = layer(OpCall(call.name.replace("_backward", ""), call.inputs, None, call.params))
    writes = outputs(call)
    if writes is None and variant(call, "onednn"):  # the gradients of all inputs of the forward
        writes = tensors(call)[:7]
    return cost(
        distinct_tensors(call),
        writes,
        matrix=2 * forward.matrix_flops,
        vector=2 * forward.vector_flops,
        dtype=next(iter(forward.by_dtype), "?"),
        reason=NO_OUTPUTS,
    )


@op("aten::_cudnn_rnn_flatten_weight", "aten::_pack_padded_sequence", "aten::_pad_packed_sequence",
    "aten::_pack_padded_sequence_backward", family="copy", source="weights or time steps moved",
    variants={"padded": "aten::_pad_packed_sequence aten::_pack_padded_sequence_backward",
              "packed": "aten::_pack_padded_sequence"})  # fmt: skip
def repack(call: OpCall) -> Cost:
    """Read and write everything once."""
    operands, results = distinct_tensors(call), outputs(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    size = as_ints(call.param("input_size")) if variant(call, "padded") else None
    if results is None and size is not None:
        results = [TensorSpec(operands[0].dtype, size)]
    if results is None and (variant(call, "padded") or variant(call, "packed")):
        return cost(operands, None, reason="how much is padding is data that no trace records")
    return cost(operands, results or operands)


@backward_of("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", "aten::_cudnn_rnn",
             "aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell")  # fmt: skip
def recurrent_gradient(call: OpCall) -> tuple[Cost, Cost]:
    """Each gradient costs the forward's products; the data gradient has the gates' arithmetic."""
    forward, why = cost_of(call)
    if forward is None:
        raise CannotKnow(why or "the cost of the forward op is not known")
    dtype = next(iter(forward.by_dtype), "?")
    reads = distinct_tensors(call)
    x = need(call, 0, "input")
    weights = [t for t in tensors(call)[1:] if len(t.shape) == 2]
    return (
        cost(reads, [x], matrix=forward.matrix_flops, vector=2 * forward.vector_flops, dtype=dtype),
        cost(reads, weights, matrix=forward.matrix_flops, dtype=dtype),
    )


@op(
    "aten::lstm_mps_backward", family="recurrent", source="the forward's products for each gradient"
)
def lstm_mps_backward(call: OpCall) -> Cost:
    """Gradients of data and weights: twice the forward's products and twice its gates' arithmetic."""
    leaves, parameters = call.input_leaves(), lists(call)[-1:]
    x = leaves[5] if len(leaves) > 5 else None
    weights = [t for parameter in parameters for t in parameter if len(t.shape) == 2]
    if x is None or not weights:
        raise CannotKnow("the trace has no shapes for the input or the weights")
    tokens = product(sizes(x)[:-1])
    gates, each = KINDS["lstm"]
    units = sum(sizes(w)[0] for w in weights) // (2 * gates)
    return cost(
        distinct_tensors(call),
        outputs(call) or [x, *parameters[0]],
        matrix=4 * tokens * sum(map(numel, weights)),
        vector=2 * each * units * tokens,
        dtype=x.dtype,
    )


@op(
    *words(
        """
        aten::quantized_lstm aten::quantized_gru aten::quantized_lstm_cell aten::quantized_gru_cell
        aten::quantized_rnn_relu_cell aten::quantized_rnn_tanh_cell
        quantized::quantized_lstm_cell_dynamic quantized::quantized_gru_cell_dynamic
        quantized::quantized_rnn_relu_cell_dynamic quantized::quantized_rnn_tanh_cell_dynamic
        """
    ),
    family="recurrent",
    source="2 per weight and token, if the weights are not packed",
)
def packed_recurrent(call: OpCall) -> Cost:
    """Raise CannotKnow: the weights are in objects without a shape."""
    raise CannotKnow("the packed weights have no shape")


#: Names of the Python calls of PyTorch's modules, as PyProf's markers have them.
_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LSTMCell": "lstm",
        "GRUCell": "gru",
        "RNNCell": "rnn",
        "LSTM": "lstm",
        "GRU": "gru",
        "RNN": "rnn",
    }
)


@op(
    *(f"{name}.forward" for name in _MODULES),
    family="recurrent",
    source=f"{_SOURCE}; the weights from the sizes of input and state",
)
def module(call: OpCall) -> Cost:
    """A module's call has its input and its state, whose sizes give the sizes of the weights; biases are
    assumed."""
    name = call.name.partition(".")[0]
    gates, each = KINDS[_MODULES[name]]
    x, state = need(call, 0, "input"), need(call, 1, "state")
    layers = 1
    if not name.endswith("Cell"):
        layers = sizes(state)[0]
    if layers != 1:
        raise CannotKnow("the trace does not record the numbers of layers and directions")
    inputs, units = sizes(x)[-1], sizes(state)[-1]
    tokens = product(sizes(x)[:-1])
    states = 2 if _MODULES[name] == "lstm" else 1
    weights = [TensorSpec(x.dtype, (gates * units, width)) for width in (inputs, units)]
    biases = [TensorSpec(x.dtype, (gates * units,))] * 2
    result = TensorSpec(x.dtype, (*sizes(x)[:-1], units))
    kept = states - 1 if name.endswith("Cell") else states
    return cost(
        [x, *[state] * states, *weights, *biases],
        [result, *[state] * kept],
        matrix=2 * tokens * sum(map(numel, weights)),
        vector=each * tokens * units,
        dtype=x.dtype,
        note="the module is assumed to have biases",
    )

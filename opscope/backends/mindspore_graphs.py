"""Tell what the operators of MindSpore's compiled graphs are: shapes, dtypes, and what they differentiate.

MindSpore's profiler writes names, and shapes of inputs. The graphs that it runs are still in the process: the
executors give each one as a protobuf message (``anf_ir``), for which MindSpore brings the classes, with the
names that the profiler writes. 76 nodes take 2 ms; it is done once, after the profiler has ended.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from opscope.core.dialects.mindspore import node_name
from opscope.core.rangetext import SPEC_LIMIT, clean_value, format_call
from opscope.core.schema import DTYPE_NAMES, Arg, OpCall, ParamValue, TensorSpec

_log = logging.getLogger(__name__)
#: Largest number of graphs, and of nodes in one, that are told.
MAX_GRAPHS: Final = 1_000
MAX_NODES: Final = 200_000
#: Nodes that run nothing. ``Load`` and ``Depend`` hand on their first input.
_PASS: Final = frozenset({"Load", "Depend"})
_NO_KERNEL: Final = _PASS | {"UpdateState", "MakeTuple", "TupleGetItem", "Return", "return", ""}
#: Attributes that say nothing about the computation.
_NOT_PARAMS: Final = frozenset(
    "input_names output_names IsFeatureMapInputList IsFeatureMapOutput is_load side_effect_mem "
    "side_effect_propagate primitive_target out_channel pad_list visited".split()
)
_PAD_MODES: Final = ("pad", "same", "valid")


def graphs() -> Iterator[dict[str, Any]]:
    """Yield each compiled graph: ``graph``, its name, and ``nodes``: (name, call, layer, direction, forward).

    ``call`` is the operator's text; ``forward`` is the name of the operator that a backward one
    differentiates, or None. A graph that cannot be read is left out, with a line in the log.
    """
    for phase, message in _messages():
        try:
            nodes = nodes_of(message)
        except Exception as error:  # noqa: BLE001 - another version's graph must not cost the others
            _log.warning("opscope: MindSpore's graph %s cannot be read: %s", phase, error)
            continue
        if nodes:
            yield {"graph": phase, "nodes": nodes}


def _messages() -> Iterator[tuple[str, bytes]]:
    """Yield the name (phase) and the message of each graph that MindSpore keeps."""
    core = sys.modules.get("mindspore._c_expression")
    # mindspore.common.api until 2.8
    api = sys.modules.get("mindspore.graph.api") or sys.modules.get("mindspore.common.api")
    if core is None or api is None:
        return
    cells = getattr(api, "cells_compile_cache", {}).values()
    phases = {*getattr(api, "ms_compile_cache", ()), *(one for cell in list(cells) for one in cell)}
    executors = [
        getattr(core, name).get_instance()
        for name in ("GraphExecutor_", "JitExecutor_")
        if hasattr(core, name)
    ]
    for phase in sorted(phases)[:MAX_GRAPHS]:
        for executor in executors:
            try:
                if not executor.has_compiled(phase):
                    continue
                message = executor.get_func_graph_proto(phase, "anf_ir", False)
            except (RuntimeError, TypeError) as error:
                _log.debug("MindSpore gives no graph %s: %s", phase, error)
                continue
            if isinstance(message, bytes) and message:
                yield phase, message
                break


@dataclass(slots=True)
class _Node:
    name: str
    op: str
    ids: list[str]  # of its inputs without constants, handed-on ones resolved
    call: OpCall
    output: str


def nodes_of(message: bytes) -> list[list[str | None]]:
    """Return the nodes that run something: name, call, layer, direction, forward node's name."""
    from mindspore.train import anf_ir_pb2

    model = anf_ir_pb2.ModelProto()
    model.ParseFromString(message)
    graph = model.graph
    if len(graph.node) > MAX_NODES:
        raise ValueError(f"{len(graph.node)} nodes")
    types = {one.name: _argument(one.type) for one in graph.parameters}
    consts = {one.key: one.value for one in graph.const_vals}
    same: dict[str, str] = {}
    made: list[_Node] = []
    layer_by_parameter: dict[str, str] = {}
    parameters = frozenset(types)
    for node in graph.node:
        ids = [same.get(one.name, one.name) for one in node.input]
        types[node.name] = _argument(node.output_type)
        if node.op_type in _PASS and ids:
            same[node.name] = ids[0]
        elif node.op_type == "TupleGetItem" and len(ids) > 1:
            value = consts.get(ids[1])
            same[node.name] = f"{ids[0]}#{'' if value is None else value.int_val}"
        if node.op_type in _NO_KERNEL:
            continue
        tensors = [one for one in ids if one not in consts]
        found = _Node(node.full_name, node.op_type, tensors, _call(node, types, consts), node.name)
        made.append(found)
        if node_name(found.name).layer is None:
            owner = next((one for one in ids if one in parameters and "." in one), None)
            if owner is not None:
                layer_by_parameter[found.name] = owner.rpartition(".")[0]
    forward = forward_nodes(made)
    return [
        [
            one.name,
            format_call(one.call, SPEC_LIMIT),
            layer_by_parameter.get(one.name),
            node_name(one.name).direction,
            forward.get(one.name),
        ]
        for one in made
    ]


# ----------------------------------------------------------------------------- what a node is


def _call(node: Any, types: dict[str, Arg], consts: dict[str, Any]) -> OpCall:
    names = _input_names(node)
    inputs: list[Arg] = []
    params: list[tuple[str, ParamValue]] = []
    for place, one in enumerate(node.input):
        value = consts.get(one.name)
        if value is None:
            inputs.append(types.get(one.name))
            continue
        tensor = _const_tensor(value)
        inputs.append(tensor)
        if tensor is None and value.dtype:  # a monad has no dtype
            name = names[place] if place < len(names) else f"input_{place + 1}"
            params.append((name, clean_value(_value(value))))
    while inputs and inputs[-1] is None:
        inputs.pop()
    known = {name for name, _ in params}
    for attribute in node.attribute:
        if attribute.name in _NOT_PARAMS or attribute.name in known:
            continue
        value = _value(attribute.value)
        if attribute.name == "pad_mode" and isinstance(value, int) and 0 <= value < len(_PAD_MODES):
            value = _PAD_MODES[value]
        if value is not None:
            params.append((attribute.name, clean_value(value)))
    output = _argument(node.output_type)
    outputs = output if isinstance(output, tuple) else (output,)
    return OpCall(node.op_type, tuple(inputs), None if output is None else outputs, tuple(params))


def _argument(kind: Any) -> Arg:
    """Return a TypeProto as an argument; None for what is no tensor."""
    which = kind.WhichOneof("value") if kind.DESCRIPTOR.oneofs else None
    if which == "sequence_type" or (which is None and len(kind.sequence_type.elem_types)):
        return tuple(_argument(one) for one in kind.sequence_type.elem_types)
    tensor = kind.tensor_type
    if not tensor.elem_type:
        return None
    sizes = [one.size for one in tensor.shape.dim]
    if -2 in sizes:  # not even the number of dimensions is known
        return None
    dtype = dtype_name(_enum(tensor, "elem_type"))
    return TensorSpec(dtype, tuple("?" if size < 0 else size for size in sizes))


def _enum(message: Any, field: str) -> str:
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    found = kind.values_by_number.get(getattr(message, field))
    return "" if found is None else str(found.name)


def dtype_name(name: str) -> str:
    """Return opscope's name of a dtype that MindSpore calls ``DT_FLOAT32``; ``?`` if it is no element type."""
    name = name.removeprefix("DT_").removeprefix("BASE_").lower()
    return DTYPE_NAMES.get({"int4": "i4"}.get(name, name), {"int4": "i4"}.get(name, "?"))


def _const_tensor(value: Any) -> TensorSpec | None:
    if not value.HasField("tensor_val"):
        return None
    tensor = value.tensor_val
    return TensorSpec(dtype_name(_enum(tensor, "data_type")), tuple(tensor.dims))


def _value(value: Any) -> Any:
    """Return a ValueProto as Python's; None for what has no plain value."""
    if value.values:
        return tuple(_value(one) for one in value.values)
    for field in ("bool_val", "int_val", "uint_val", "float_val", "double_val", "str_val"):
        if value.HasField(field):
            return getattr(value, field)
    kind = _enum(value, "dtype")
    return () if kind in ("DT_TUPLE", "DT_LIST") else None


def _input_names(node: Any) -> list[str]:
    for attribute in node.attribute:
        if attribute.name == "input_names":
            return [one.str_val for one in attribute.value.values]
    return _schema_names(node.op_type)


@lru_cache(maxsize=4096)
def _schema_names(op: str) -> list[str]:
    """Return the names of an operator's arguments, inputs before what its primitive is made with."""
    generated = sys.modules.get("mindspore.ops.auto_generate")
    kind = getattr(generated, op, None)
    if not inspect.isclass(kind):
        return []
    names: list[str] = []
    for method in ("__call__", "__init__"):
        try:
            found = inspect.signature(getattr(kind, method)).parameters
        except (TypeError, ValueError):
            return []
        names += [name for name in found if name not in ("self", *names)]
    return names


# -------------------------------------------------------------------- what a node differentiates


def forward_nodes(nodes: Iterable[_Node]) -> dict[str, str]:
    """Return backward node → the node that it differentiates.

    Its path ends in the kind of that node (``Grad_Conv2D``). Of the nodes of this kind it is the one whose
    inputs or result it reads; MindSpore makes one gradient for all uses of an operator and gives it the path
    of one of them, so the path decides only where the data do not. One that reads only the gradient
    (``BiasAddGrad``) differentiates the node next to the one that shares this gradient.
    """
    listed = list(nodes)
    of_kind: dict[str, list[_Node]] = {}
    for one in listed:
        if node_name(one.name).direction != "backward":
            of_kind.setdefault(one.op, []).append(one)
    found: dict[str, str] = {}
    by_gradient: dict[str, _Node] = {}
    left: list[tuple[_Node, list[_Node]]] = []
    for one in listed:
        name = node_name(one.name)
        if name.direction != "backward" or name.gradient_of is None:
            continue
        candidates = of_kind.get(name.gradient_of, [])
        if not candidates:
            continue
        read = set(one.ids)
        scores = [len(read.intersection([*other.ids, other.output])) for other in candidates]
        best = max(scores)
        of_best = [other for other, score in zip(candidates, scores, strict=True) if score == best]
        if best and len(of_best) > 1:
            of_best = [other for other in of_best if _same_cells(one, other)] or of_best
        if best and len(of_best) == 1:
            found[one.name] = of_best[0].name
            for gradient in read.difference([*of_best[0].ids, of_best[0].output]):
                by_gradient.setdefault(gradient, of_best[0])
        else:
            left.append((one, of_best))
    for one, candidates in left:
        beside = next((by_gradient[tensor] for tensor in one.ids if tensor in by_gradient), None)
        if beside is not None:
            near = [
                other
                for other in candidates
                if beside.output in other.ids or other.output in beside.ids
            ]
            candidates = near or candidates
        fitting = [other for other in candidates if _has_result(other, one)]
        for chosen in (
            fitting,
            [other for other in fitting if _same_cells(one, other)],
        ):
            if len(chosen) == 1:
                found[one.name] = chosen[0].name
                break
    return found


def _same_cells(backward: _Node, forward: _Node) -> bool:
    return node_name(backward.name).layer == node_name(forward.name).layer


def _has_result(forward: _Node, backward: _Node) -> bool:
    """Whether a result of ``forward`` is like one of the inputs of ``backward``, as its gradient is."""
    outputs = forward.call.outputs or ()
    return any(isinstance(one, TensorSpec) and one in backward.call.inputs for one in outputs)

"""Describe the operators of MindSpore's compiled graphs: shapes, dtypes, and the operators they
differentiate.

MindSpore's profiler writes names, and shapes of inputs. The graphs that it runs are still in the process: the
executors give each one as a protobuf message (``anf_ir``), for which MindSpore brings the classes, with the
names that the profiler writes. 76 nodes take 2 ms; it is done once, after the profiler has ended. A cell's
graphs are deleted with the cell: ``Leaving`` keeps the graphs of cells that are deleted before that.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from opscope.core.dialects.mindspore import node_name
from opscope.core.rangetext import SPEC_LIMIT, clean_value, format_call
from opscope.core.schema import DTYPE_NAMES, Arg, OpCall, ParamValue, TensorSpec

_log = logging.getLogger(__name__)
#: Largest number of graphs, and of nodes in a graph, that are described.
MAX_GRAPHS: Final = 1_000
MAX_NODES: Final = 200_000
#: Bytes of graphs that are kept as they are deleted.
MAX_KEPT: Final = 64 << 20
#: Nodes that run nothing. ``Load`` and ``Depend`` return their first input.
_PASS: Final = frozenset({"Load", "Depend"})
_NO_KERNEL: Final = _PASS | {"UpdateState", "MakeTuple", "TupleGetItem", "Return", "return", ""}
#: Attributes that say nothing about the computation.
_NOT_PARAMS: Final = frozenset(
    ("input_names", "output_names", "IsFeatureMapInputList", "IsFeatureMapOutput", "is_load", "visited",
     "side_effect_mem", "side_effect_propagate", "primitive_target", "out_channel", "pad_list")
)  # fmt: skip
#: Sums: the gradient of the result is also the gradient of each operand.
_SUMS: Final = frozenset(("Add", "AddExt", "BiasAdd"))
#: Views: MindSpore removes pairs that undo each other, so the gradient has the size before or after.
_VIEWS: Final = frozenset(("Reshape", "Flatten", "ExpandDims", "Squeeze"))
_HAND_ON: Final = _SUMS | _VIEWS
_PAD_MODES: Final = ("pad", "same", "valid")


class Leaving:
    """Keeps the messages of graphs that MindSpore is about to delete, from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self._bytes = 0
        self._undo: Callable[[], None] | None = None

    def begin(self) -> None:
        """Hook what MindSpore calls before it deletes the graphs of a cell. A second call does nothing."""
        kind = getattr(_api(), "_CellGraphExecutor", None)
        original = getattr(kind, "del_net_res", None)
        if original is None or self._undo is not None:
            return

        @functools.wraps(original)
        def del_net_res(executor: Any, obj: Any, phases: Any) -> Any:
            try:
                self._keep(phases)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                _log.exception("opscope: a graph of MindSpore could not be kept")
            return original(executor, obj, phases)

        kind.del_net_res = del_net_res  # type: ignore[union-attr]

        def undo() -> None:
            if kind.del_net_res is del_net_res:  # type: ignore[union-attr]
                kind.del_net_res = original  # type: ignore[union-attr]

        self._undo = undo

    def end(self) -> None:
        """Remove the hook."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _keep(self, phases: Any) -> None:
        if self._undo is None:  # something else is hooked on top of ours
            return
        for phase, message in _messages_of(phases):
            if len(self.messages) < MAX_GRAPHS and self._bytes + len(message) <= MAX_KEPT:
                self.messages.append((phase, message))
                self._bytes += len(message)


def graphs(gone: Iterable[tuple[str, bytes]] = ()) -> Iterator[dict[str, Any]]:
    """Yield each compiled graph: ``graph``, its name, and ``nodes``: (name, call, layer, direction, forward).

    ``call`` is the operator's text; ``forward`` is the name of the operator that a backward one
    differentiates, or None. ``gone``: messages of graphs that MindSpore has deleted. A graph that cannot be
    read is left out, with a line in the log.
    """
    for phase, message in (*gone, *_messages()):
        try:
            nodes = nodes_of(message)
        except Exception as error:  # noqa: BLE001 - another version's graph must not cost the others
            _log.warning("opscope: MindSpore's graph %s cannot be read: %s", phase, error)
            continue
        if nodes:
            yield {"graph": phase, "nodes": nodes}


def _api() -> Any:
    # in mindspore.common.api until 2.8
    return sys.modules.get("mindspore.graph.api") or sys.modules.get("mindspore.common.api")


def _messages() -> Iterator[tuple[str, bytes]]:
    """Yield the name (phase) and the message of each graph that MindSpore keeps."""
    api = _api()
    cells = getattr(api, "cells_compile_cache", {}).values()
    yield from _messages_of(
        {*getattr(api, "ms_compile_cache", ()), *(entry for cell in list(cells) for entry in cell)}
    )


def _messages_of(phases: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    core = sys.modules.get("mindspore._c_expression")
    if core is None:
        return
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
    ids: list[str]  # the ids of what computes each input, without constants
    call: OpCall
    output: str
    #: Specs of the inputs that are single tensors.
    tensors: list[str]
    specs: list[TensorSpec]


def nodes_of(message: bytes) -> list[list[str | None]]:
    """Return the nodes that run something: name, call, layer, direction, name of the forward node."""
    from mindspore.train import anf_ir_pb2

    model = anf_ir_pb2.ModelProto()
    model.ParseFromString(message)
    graph = model.graph
    if len(graph.node) > MAX_NODES:
        raise ValueError(f"{len(graph.node)} nodes")
    types = {parameter.name: _argument(parameter.type) for parameter in graph.parameters}
    consts = {const_val.key: const_val.value for const_val in graph.const_vals}
    same: dict[str, list[str]] = {}
    nodes: list[_Node] = []
    layer_by_parameter: dict[str, str] = {}
    parameters = frozenset(types)
    items = _items(graph.node, consts)
    for node in graph.node:
        types[node.name] = _result(node, items)
        ids = [name for source in node.input for name in same.get(source.name, [source.name])]
        if node.op_type in _PASS and node.input:
            same[node.name] = same.get(node.input[0].name, [node.input[0].name])
        elif node.op_type == "MakeTuple":  # the element's own type lacks the sizes
            same[node.name] = ids
            types[node.name] = tuple(types.get(source.name) for source in node.input)
        elif node.op_type == "TupleGetItem" and len(node.input) > 1:
            value = consts.get(node.input[1].name)
            same[node.name] = [f"{id_}#{'' if value is None else value.int_val}" for id_ in ids[:1]]
        if node.op_type in _NO_KERNEL:
            continue
        tensors = [id_ for id_ in ids if id_ not in consts]
        single = [
            (name, spec)
            for source in node.input
            if isinstance(spec := types.get(source.name), TensorSpec) and source.name not in consts
            for name in same.get(source.name, [source.name])[:1]
        ]
        found = _Node(
            node.full_name,
            node.op_type,
            tensors,
            _call(node, types, consts),
            node.name,
            [argument for argument, _ in single],
            [spec for _, spec in single],
        )
        nodes.append(found)
        if node_name(found.name).layer is None:
            owner = next((id_ for id_ in ids if id_ in parameters and "." in id_), None)
            if owner is not None:
                layer_by_parameter[found.name] = owner.rpartition(".")[0]
    forward = forward_nodes(nodes)
    return [
        [
            node.name,
            format_call(node.call, SPEC_LIMIT),
            layer_by_parameter.get(node.name),
            node_name(node.name).direction,
            forward.get(node.name),
        ]
        for node in nodes
    ]


# ----------------------------------------------------------------------------- what a node is


def _items(nodes: Iterable[Any], consts: dict[str, Any]) -> dict[str, dict[int, Arg]]:
    """Return node → the item taken out of its tuple. The type of a tuple has no sizes; the item's type
    has."""
    items: dict[str, dict[int, Arg]] = {}
    for node in nodes:
        if node.op_type == "TupleGetItem" and len(node.input) > 1:
            index = consts.get(node.input[1].name)
            if index is not None:
                item = _argument(node.output_type)
                items.setdefault(node.input[0].name, {})[index.int_val] = item
    return items


def _result(node: Any, items: dict[str, dict[int, Arg]]) -> Arg:
    """Return the outputs of a node; None if they are no tensors, or a tuple with an unknown item."""
    result = _argument(node.output_type)
    if not isinstance(result, tuple):
        return result
    entries = items.get(node.name, {})
    each = tuple(entries.get(index) for index in range(len(result)))
    return None if None in each else each


def _call(node: Any, types: dict[str, Arg], consts: dict[str, Any]) -> OpCall:
    names = _input_names(node)
    inputs: list[Arg] = []
    params: list[tuple[str, ParamValue]] = []
    for index, source in enumerate(node.input):
        value = consts.get(source.name)
        if value is None:
            inputs.append(types.get(source.name))
            continue
        tensor = _const_tensor(value)
        inputs.append(tensor)
        if tensor is None and value.dtype:  # a monad has no dtype
            name = names[index] if index < len(names) else f"input_{index + 1}"
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
    output = types[node.name]
    outputs = output if isinstance(output, tuple) else (output,)
    return OpCall(node.op_type, tuple(inputs), None if output is None else outputs, tuple(params))


def _argument(kind: Any) -> Arg:
    """Return a TypeProto as an argument; None if it is not a tensor."""
    which = kind.WhichOneof("value") if kind.DESCRIPTOR.oneofs else None
    if which == "sequence_type" or (which is None and len(kind.sequence_type.elem_types)):
        return tuple(_argument(elem_type) for elem_type in kind.sequence_type.elem_types)
    tensor = kind.tensor_type
    if not tensor.elem_type:
        return None
    sizes = [dim.size for dim in tensor.shape.dim]
    if -2 in sizes:  # not even the number of dimensions is known
        return None
    dtype = dtype_name(_enum(tensor, "elem_type"))
    return TensorSpec(dtype, tuple("?" if size < 0 else size for size in sizes))


def _enum(message: Any, field: str) -> str:
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    value_descriptor = kind.values_by_number.get(getattr(message, field))
    return "" if value_descriptor is None else str(value_descriptor.name)


def dtype_name(name: str) -> str:
    """Return opscope's name of MindSpore's ``DT_FLOAT32``; ``?`` if it is no element type."""
    name = name.removeprefix("DT_").removeprefix("BASE_").lower()
    return DTYPE_NAMES.get({"int4": "i4"}.get(name, name), {"int4": "i4"}.get(name, "?"))


def _const_tensor(value: Any) -> TensorSpec | None:
    if not value.HasField("tensor_val"):
        return None
    tensor = value.tensor_val
    return TensorSpec(dtype_name(_enum(tensor, "data_type")), tuple(tensor.dims))


def _value(value: Any) -> Any:
    """Return a ValueProto as a Python value; None if it has no plain value."""
    if value.values:
        return tuple(_value(value) for value in value.values)
    for field in ("bool_val", "int_val", "uint_val", "float_val", "double_val", "str_val"):
        if value.HasField(field):
            return getattr(value, field)
    kind = _enum(value, "dtype")
    return () if kind in ("DT_TUPLE", "DT_LIST") else None


def _input_names(node: Any) -> list[str]:
    for attribute in node.attribute:
        if attribute.name == "input_names":
            return [value.str_val for value in attribute.value.values]
    return _schema_names(node.op_type)


@lru_cache(maxsize=4096)
def _schema_names(op: str) -> list[str]:
    """Return the names of an operator's arguments, inputs first, then the arguments of its primitive."""
    generated = sys.modules.get("mindspore.ops.auto_generate")
    kind = getattr(generated, op, None)
    if not inspect.isclass(kind):
        return []
    names: list[str] = []
    for method in ("__call__", "__init__"):
        try:
            parameters = inspect.signature(getattr(kind, method)).parameters
        except (TypeError, ValueError):
            return []
        names += [name for name in parameters if name not in ("self", *names)]
    return names


# -------------------------------------------------------------------- what a node differentiates


def forward_nodes(nodes: Iterable[_Node]) -> dict[str, str]:
    """Return backward node → the node that it differentiates.

    Its path ends in the kind of that node (``Grad_Conv2D``). MindSpore makes one gradient for all uses of an
    operator and gives it the path of one of them, so the path alone does not identify the node. The data do:
    the gradient reads the gradient of the node's result, or the node's inputs or result.
    """
    listed = list(nodes)
    of_kind: dict[str, list[_Node]] = {}
    for node in listed:
        if node_name(node.name).direction != "backward":
            of_kind.setdefault(node.op, []).append(node)
    same = _SameGradient(one for each in of_kind.values() for one in each)
    found: dict[str, str] = {}
    gradient_of: dict[str, str] = {}  # tensor → the forward tensor that it is the gradient of
    for node in listed:
        name = node_name(node.name)
        if name.direction != "backward":
            continue
        forward = None
        candidates = of_kind.get(name.gradient_of or "", [])
        if candidates:
            of = {gradient_of[tensor] for tensor in node.ids if tensor in gradient_of}
            forward = _by_gradient(same.tensors(of), candidates) or _by_data(node, candidates)
        if forward is not None:
            found[node.name] = forward.name
            _note_gradients(node, forward, gradient_of)
        elif node.op == "AddN":
            of = {gradient_of.get(tensor, "") for tensor in node.ids}
            if len(of) == 1 and "" not in of:
                gradient_of[node.output] = of.pop()
    return found


class _SameGradient:
    """Finds which forward tensors share one gradient: sums and views pass it on, and may run nothing for
    that.

    An operand that is also read elsewhere has a further gradient, and so a different sum.
    """

    def __init__(self, forward: Iterable[_Node]) -> None:
        self._made_by: dict[str, _Node] = {}
        self._readers: dict[str, list[_Node]] = {}
        for node in forward:
            self._made_by[node.output] = node
            for tensor in node.ids:
                self._readers.setdefault(tensor, []).append(node)

    def tensors(self, of: Iterable[str]) -> set[str]:
        """Return the tensors that have the same gradient as those in ``of``."""
        tensors: set[str] = set()
        pending = list(of)
        while pending:
            tensor = pending.pop()
            if tensor in tensors:
                continue
            tensors.add(tensor)
            maker = self._made_by.get(tensor)
            if maker is not None and maker.op in _HAND_ON:
                pending += [
                    tensor_name
                    for tensor_name in self._added(maker)
                    if len(self._readers[tensor_name]) == 1
                ]
            readers = self._readers.get(tensor, [])
            if (
                len(readers) == 1
                and readers[0].op in _HAND_ON
                and tensor in self._added(readers[0])
            ):
                pending.append(readers[0].output)
        return tensors

    @staticmethod
    def _added(node: _Node) -> list[str]:
        """The operands of a sum that have the sum's size (others get the gradient summed up), or the operand
        of a view."""
        if node.op in _VIEWS:
            return node.tensors[:1]
        result = node.call.outputs[0] if node.call.outputs else None
        pairs = zip(node.tensors, node.specs, strict=True)
        return [tensor for tensor, spec in pairs if spec == result]


def _by_gradient(results: set[str], candidates: list[_Node]) -> _Node | None:
    """Return the only node with one of ``results``."""
    plain = {tensor.partition("#")[0] for tensor in results}
    fitting = [other for other in candidates if other.output in plain]
    return fitting[0] if len(fitting) == 1 else None


def _by_data(node: _Node, candidates: list[_Node]) -> _Node | None:
    """Return the node that shares most tensors with ``node``; if none shares any, the only candidate."""
    read = {tensor.partition("#")[0] for tensor in node.ids}
    scores = [
        len(read.intersection([*(tensor.partition("#")[0] for tensor in other.ids), other.output]))
        for other in candidates
    ]
    best = max(scores)
    fitting = [other for other, score in zip(candidates, scores, strict=True) if score == best]
    if not best:
        fitting = [other for other in fitting if _has_result(other, node)]
    return fitting[0] if len(fitting) == 1 else None


def _note_gradients(node: _Node, forward: _Node, gradient_of: dict[str, str]) -> None:
    """Note for which tensors the results of ``node`` are the gradients: inputs of ``forward`` with their
    sizes.

    The gradient of a product reads the other operand.
    """
    results = node.call.outputs or ()
    read = set(node.ids)
    starts = [tensor for tensor in node.tensors if tensor not in (*forward.ids, forward.output)]
    if len(starts) == 1 and starts[0] not in gradient_of:
        gradient_of[starts[0]] = forward.output
    for index, result in enumerate(results):
        name = node.output if len(results) == 1 else f"{node.output}#{index}"
        if not isinstance(result, TensorSpec):
            continue
        alike = [
            tensor
            for tensor, spec in zip(forward.tensors, forward.specs, strict=True)
            if spec == result
        ]
        if len(alike) > 1:
            alike = [tensor for tensor in alike if tensor not in read] or alike
        if len(alike) == 1:
            gradient_of[name] = alike[0]
    if len(results) == 1 and len(forward.ids) == 1:
        gradient_of[node.output] = forward.ids[0]


def _has_result(forward: _Node, backward: _Node) -> bool:
    """Whether a result of ``forward`` has the type and size of an input of ``backward``, as its gradient
    does."""
    outputs = forward.call.outputs or ()
    return any(
        isinstance(output, TensorSpec) and output in backward.call.inputs for output in outputs
    )

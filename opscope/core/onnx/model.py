"""Read an ONNX model as a list of nodes: the call, layer, weights and origins of each.

    for node in nodes_of("model.optimized.onnx", original="model.onnx"):
        print(node.graph, node.key, node.text, node.origins)

The package onnx is needed, and imported only here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from opscope.core.rangetext import clean_value, format_call
from opscope.core.schema import Arg, Dim, OpCall, ParamValue, SameAs, TensorSpec

from . import dtypes
from .origins import origins, stem
from .places import common_layer, frames_of, layer_of
from .protos import ModelError, OnnxMissing, inner_graphs, parsed

__all__ = ["Model", "ModelError", "Node", "OnnxMissing", "nodes_of", "read"]

#: Domains that are ONNX's own.
_OWN_DOMAINS: Final = ("", "ai.onnx")
#: Domains that ONNX Runtime declares in every model that it saves, and that exporters do not use.
_SAVED: Final = frozenset(
    ("com.microsoft.nchwc", "com.microsoft.experimental", "ai.onnx.preview.training")
)
#: Domain of nodes whose data is in blocks of channels.
_BLOCKED: Final = "com.microsoft.nchwc"
#: Most nodes that a call lists as its origins.
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a model.

    ``graph``: ``""`` for the main graph, else the path of the node that holds it (``/Loop.body``),
    or ``function domain::name``. ``name``: the node's name, may be empty; ``key``: the name under
    which ONNX Runtime profiles it (``Add_3`` for a nameless one). ``index``: its place in its
    graph, Constant nodes not counted. ``inputs``, ``outputs``: names of tensors, empty if absent.
    ``weights``: the positions of inputs that are initializers or constants. ``origins``: names of
    the original model's nodes that it replaces. ``holder``: the key of the node that holds its
    graph, empty in the main graph.

    ``call``: shapes and dtypes as far as the model shows them (a size may be a symbol; None: not even the
    rank is known), attributes, ``domain`` if it is not ONNX's, ``node``, ``layer``, ``origins``.
    """

    graph: str
    name: str
    key: str
    index: int
    op: str
    domain: str
    call: OpCall
    layer: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[int, ...]
    origins: tuple[str, ...] = ()
    holder: str = ""

    @property
    def text(self) -> str:
        """The call as range text."""
        return format_call(self.call, None)


@dataclass(frozen=True)
class Model:
    """The nodes of a model, a subgraph's nodes follow the node that contains it, functions' bodies come last.

    ``inputs``, ``outputs``: the main graph's tensors that are not initializers (None: rank not known).
    ``weights``: the initializers of all graphs by name. ``producer``: which tool made the model. ``saved``:
    whether ONNX Runtime saved the file, which then declares domains that its nodes do not use.
    """

    nodes: tuple[Node, ...]
    inputs: Mapping[str, TensorSpec | None]
    outputs: Mapping[str, TensorSpec | None]
    weights: Mapping[str, TensorSpec | None]
    producer: str
    saved: bool = False

    @cached_property
    def by_key(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes by ``key``; nodes of several graphs may share one."""
        nodes_by_key: dict[str, list[Node]] = {}
        for node in self.nodes:
            nodes_by_key.setdefault(node.key, []).append(node)
        return {key: tuple(nodes) for key, nodes in nodes_by_key.items()}


def read(
    source: str | os.PathLike[str] | bytes, original: str | os.PathLike[str] | bytes | None = None
) -> Model:
    """Return the model in a file, or in its bytes. Raises ModelError, with one line that says why.

    ``original`` is the model that ONNX Runtime was given, if ``source`` is the one that it saved
    (``SessionOptions.optimized_model_filepath``): each node then has its ``origins``, and their layer.
    Weights that lie in other files are not read: their sizes are in the model.
    """
    model = _Reader(parsed(source)).model()
    return model if original is None else _with_origins(model, read(original))


def nodes_of(
    source: str | os.PathLike[str] | bytes, original: str | os.PathLike[str] | bytes | None = None
) -> list[Node]:
    """Return the nodes of a model, as ``read`` does. Raises ModelError."""
    return list(read(source, original).nodes)


def with_origins(model: Model, original: Model) -> Model:
    """Return ``model``, which ONNX Runtime made of ``original``, with the origins of each node."""
    return _with_origins(model, original)


def _with_origins(model: Model, original: Model) -> Model:
    origins_of_nodes = origins(model.nodes, original.nodes, frozenset(model.weights))
    types = _known_types(original)
    nodes = []
    for node, those in zip(model.nodes, origins_of_nodes, strict=True):
        names = tuple(origin.name or origin.key for origin in those)
        layer = node.layer or common_layer([origin.layer for origin in those])
        frames = node.call.frames or next(
            (origin.call.frames for origin in those if origin.call.frames), ()
        )
        params = tuple(
            param for param in node.call.params if param[0] not in ("layer", "origins", "node")
        )
        if node.domain == _BLOCKED and node.op == "Conv":
            weight = node.call.tensor(1)
            params = (*params, *unpadded(weight.shape if weight else (), those))
        named = (*params, *_place_params(node.key, layer, names))
        call = replace(
            node.call,
            params=named,
            frames=frames,
            inputs=_complete(node.call.inputs, node.inputs, types),
            outputs=_complete(node.call.outputs or (), node.outputs, types),
        )
        nodes.append(replace(node, call=call, layer=layer, origins=names))
    return replace(model, nodes=tuple(nodes))


def unpadded(shape: tuple[Dim, ...], nodes: Sequence[Node]) -> list[tuple[str, ParamValue]]:
    """Return the parameter ``unpadded``: the weight's sizes before channels were padded to whole blocks.

    ``shape``: the padded sizes; ``nodes``: the origins of the convolution. Empty if nothing was padded.
    """
    weights = [node.call.tensor(1) for node in nodes if node.op == "Conv"]
    if len(weights) != 1 or weights[0] is None or len(weights[0].shape) != len(shape):
        return []
    true = weights[0].shape
    if true == shape or not all(
        isinstance(was, int) and isinstance(now, int) and was <= now
        for was, now in zip(true, shape, strict=True)
    ):
        return []
    return [("unpadded", true)]


def _known_types(model: Model) -> Mapping[str, Arg]:
    """Return the tensors of a model by name, without ambiguous names."""
    types: dict[str, Arg] = {}
    for node in model.nodes:
        for name, arg in zip(node.outputs, node.call.outputs or (), strict=True):
            types[name] = arg if types.get(name, arg) == arg else None
    return {**types, **model.inputs}


def _complete(
    args: tuple[Arg, ...], names: tuple[str, ...], types: Mapping[str, Arg]
) -> tuple[Arg, ...]:
    """Return ``args``, with unknown tensors taken from the original model, by name. ONNX Runtime saves no
    types of intermediate tensors, and onnx does not know ONNX Runtime's own nodes."""
    return tuple(
        types.get(name) if arg is None and name else arg
        for arg, name in zip(args, names, strict=True)
    )


def _place_params(
    key: str, layer: str | None, names: tuple[str, ...]
) -> Iterator[tuple[str, ParamValue]]:
    yield "node", key
    if names and names != (key,):
        yield "origins", names if len(names) <= _SHOWN else (*names[:_SHOWN], "…")
    if layer is not None:
        yield "layer", layer


# ------------------------------------------------------------------------------------ reading

_Types = dict[str, "TensorSpec | None"]


class _Reader:
    """Reads one ``ModelProto``."""

    def __init__(self, proto: Any) -> None:
        self._proto = proto
        self._weights: _Types = {}

    def model(self) -> Model:
        proto = self._proto
        nodes = list(self._graph(proto.graph, "", {}, frozenset()))
        for function in proto.functions:
            where = f"function {function.domain}::{function.name}"
            nodes += self._nodes(function.node, where, {}, frozenset())
        main = {initializer.name for initializer in proto.graph.initializer}
        return Model(
            tuple(nodes),
            {
                value_info.name: _type(value_info.type)
                for value_info in proto.graph.input
                if value_info.name not in main
            },
            {value_info.name: _type(value_info.type) for value_info in proto.graph.output},
            self._weights,
            f"{proto.producer_name} {proto.producer_version}".strip(),
            len(_SAVED & {opset.domain for opset in proto.opset_import}) > 1,
        )

    def _graph(
        self,
        graph: Any,
        where: str,
        outer: _Types,
        outer_fixed: frozenset[str],
        holder: str = "",
    ) -> Iterator[Node]:
        """Yield the nodes of a graph, which can also use tensors and constants of the enclosing graphs."""
        types = dict(outer)
        for value_info in (*graph.value_info, *graph.output, *graph.input):
            types[value_info.name] = _type(value_info.type)
        fixed = set(outer_fixed) - {one.name for one in graph.input}
        for tensor in graph.initializer:
            types[tensor.name] = _tensor(tensor)
            fixed.add(tensor.name)
            self._weights[tensor.name] = types[tensor.name]
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            sizes = tuple(sparse.dims)
            stored = sparse.values.dims[0] if len(sparse.values.dims) else None
            spec = TensorSpec(
                dtypes.of_number(sparse.values.data_type), sizes, layout="coo", stored=stored
            )
            types[name] = self._weights[name] = spec
            fixed.add(name)
        for node in graph.node:
            if node.op_type == "Constant" and node.domain in _OWN_DOMAINS and node.output:
                fixed.add(node.output[0])
                types[node.output[0]] = types.get(node.output[0]) or _constant(node)
        yield from self._nodes(graph.node, where, types, frozenset(fixed), holder)

    def _nodes(
        self, protos: Any, where: str, types: _Types, fixed: frozenset[str], holder: str = ""
    ) -> Iterator[Node]:
        index = 0
        for proto in protos:
            # ONNX Runtime turns Constant nodes into initializers before it numbers the nodes
            # (onnxruntime/core/graph/graph.cc)
            if proto.op_type == "Constant" and proto.domain in _OWN_DOMAINS:
                continue
            key = proto.name or f"{proto.op_type}_{index}"
            yield _node(proto, (where, holder), key, index, types, fixed)
            for name, inner in inner_graphs(proto):
                path = f"{where}/{key}.{name}" if where else f"{key}.{name}"
                yield from self._graph(inner, path, types, fixed, key)
            index += 1


def _node(
    proto: Any,
    location: tuple[str, str],
    key: str,
    index: int,
    types: _Types,
    fixed: frozenset[str],
) -> Node:
    metadata = {entry.key: entry.value for entry in getattr(proto, "metadata_props", ())}
    layer = layer_of(stem(proto.name), metadata)
    domain = "" if proto.domain in _OWN_DOMAINS else proto.domain
    params = [
        (attribute.name, value) for attribute in proto.attribute for value in _attribute(attribute)
    ]
    if domain:
        params.append(("domain", domain))
    call = OpCall(
        proto.op_type or "?",
        _args(proto.input, types),
        tuple(types.get(name) if name else None for name in proto.output),
        (*params, *_place_params(key, layer, ())),
        None,
        frames_of(metadata),
    )
    weights = tuple(at for at, name in enumerate(proto.input) if name in fixed)
    return Node(
        location[0], proto.name, key, index, proto.op_type, domain, call, layer,
        tuple(proto.input), tuple(proto.output), weights, (), location[1],
    )  # fmt: skip


def _args(names: Any, types: _Types) -> tuple[Arg, ...]:
    first: dict[str, int] = {}
    args: list[Arg] = []
    for index, name in enumerate(names):
        if name in first and types.get(name) is not None:
            args.append(SameAs(first[name]))
            continue
        if name:
            first[name] = index
        args.append(types.get(name) if name else None)
    return tuple(args)


def _type(proto: Any) -> TensorSpec | None:
    """Return the tensor of a ``TypeProto``; None for other types and if the rank is not known."""
    kind = proto.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return None
    tensor = getattr(proto, kind)
    if not tensor.HasField("shape"):
        return None
    layout = "other" if kind == "sparse_tensor_type" else None
    shape = tuple(map(_dim, tensor.shape.dim))
    return TensorSpec(dtypes.of_number(tensor.elem_type), shape, layout=layout)


def _dim(dim: Any) -> Dim:
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return int(dim.dim_value)
    name = str(dim.dim_param)
    # onnx's inference numbers the sizes that it cannot name
    return name[:64] if name and not name.startswith("unk__") else "?"


def _tensor(proto: Any) -> TensorSpec:
    shape: tuple[Dim, ...] = tuple(int(dim) if dim >= 0 else "?" for dim in proto.dims)
    return TensorSpec(dtypes.of_number(proto.data_type), shape)


def _constant(proto: Any) -> TensorSpec | None:
    """Return the tensor that a Constant node makes, from whichever attribute has it."""
    for attribute in proto.attribute:
        if attribute.name == "value":
            return _tensor(attribute.t)
        if attribute.name == "value_float":
            return TensorSpec("f32", ())
        if attribute.name == "value_int":
            return TensorSpec("i64", ())
        if attribute.name == "value_floats":
            return TensorSpec("f32", (len(attribute.floats),))
        if attribute.name == "value_ints":
            return TensorSpec("i64", (len(attribute.ints),))
    return None


def _attribute(attribute: Any) -> Iterator[ParamValue]:
    """Yield the value of an attribute; nothing for graphs, whose nodes are listed."""
    kind = attribute.type
    if kind == 1:  # AttributeProto.AttributeType, onnx/onnx.proto
        yield clean_value(float(attribute.f))
    elif kind == 2:
        yield clean_value(int(attribute.i))
    elif kind == 3:
        yield attribute.s.decode("utf-8", "replace")[:256]
    elif kind == 4:
        spec = _tensor(attribute.t)
        yield f"{spec.dtype}{list(spec.shape)}"
    elif kind == 6:
        yield clean_value(tuple(float(value) for value in attribute.floats[:257]))
    elif kind == 7:
        yield clean_value(tuple(int(value) for value in attribute.ints[:257]))
    elif kind == 8:
        yield clean_value(
            tuple(value.decode("utf-8", "replace")[:256] for value in attribute.strings[:257])
        )

"""Parse a model's bytes into onnx's messages and infer shapes; nothing beside the file is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

#: The largest message that protobuf can parse, in bytes.
LARGEST: Final = (1 << 31) - 1
#: An initializer's values are kept up to this many bytes: only small ones determine shapes.
KEPT: Final = 1 << 14
#: How deep graphs may nest in the attributes of nodes.
MAX_DEPTH: Final = 32
#: Largest number of nodes, those of all graphs and functions together.
MAX_NODES: Final = 1 << 20
_GRAPH: Final = 5  # AttributeProto.AttributeType
_GRAPHS: Final = 10
_EXTERNAL: Final = 1  # TensorProto.DataLocation
_VALUES: Final = (
    "raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data",
)  # fmt: skip
#: The identifier of ONNX Runtime's own format (``.ort``, a flat buffer).
_ORT_FORMAT: Final = b"ORTM"


class ModelError(ValueError):
    """A model that cannot be read; the message says why in one line."""


class OnnxMissing(ModelError):
    """The package onnx, which reads models, is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "reading an ONNX model needs the package onnx: pip install 'opscope[onnx]'"
        )


def parsed(source: str | os.PathLike[str] | bytes) -> Any:
    """Return the ``ModelProto`` of a file or of its bytes, with inferred shapes and without large values.

    A stranger's model is data: external tensors are not opened, large values are dropped before onnx's
    shape inference reads them, and functions that call themselves are refused. Raises ModelError.
    """
    onnx = _onnx()
    data = source if isinstance(source, bytes) else _bytes(Path(source))
    if data[4:8] == _ORT_FORMAT:
        raise ModelError("a model in ONNX Runtime's own format (.ort): give the .onnx file")
    if len(data) > LARGEST:
        raise ModelError(f"larger than {LARGEST} bytes, the most that protobuf reads")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise ModelError("not an ONNX model, or a truncated one") from error
    del data
    if not model.HasField("graph") or not (model.graph.node or model.graph.input):
        raise ModelError("not an ONNX model: it has no graph")
    _refuse_large(model)
    _refuse_recursion(model)
    for graph in graphs(model.graph):
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            _drop_values(tensor)
    for nodes in (
        *(graph.node for graph in graphs(model.graph)),
        *(f.node for f in model.functions),
    ):
        for node in nodes:
            for attribute in node.attribute:
                for tensor in (attribute.t, *attribute.tensors):
                    _drop_values(tensor)
    return _inferred(onnx, model)


def graphs(graph: Any, depth: int = 0) -> Iterator[Any]:
    """Yield ``graph`` and the graphs in its nodes' attributes, at any depth. Raises ModelError."""
    if depth > MAX_DEPTH:
        raise ModelError(f"graphs are nested more than {MAX_DEPTH} deep")
    yield graph
    for node in graph.node:
        for _, inner in inner_graphs(node):
            yield from graphs(inner, depth + 1)


def inner_graphs(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, graph) of the graphs in a node's attributes: ``body``, ``then_branch`` …"""
    for attribute in node.attribute:
        if attribute.type == _GRAPH or attribute.HasField("g"):
            yield attribute.name, attribute.g
        elif attribute.type == _GRAPHS or attribute.graphs:
            for number, graph in enumerate(attribute.graphs):
                yield f"{attribute.name}{number}", graph


def _onnx() -> Any:
    try:
        return import_module("onnx")
    except ImportError:
        raise OnnxMissing from None


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ModelError("no such file" if not path.exists() else "not a file")
        if path.stat().st_size > LARGEST:
            raise ModelError(f"larger than {LARGEST} bytes, the most that protobuf reads")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(error.strerror or str(error)) from error


def _refuse_large(model: Any) -> None:
    node_count = sum(len(function.node) for function in model.functions)
    for graph in graphs(model.graph):
        node_count += len(graph.node)
        if node_count > MAX_NODES:
            raise ModelError(f"over {MAX_NODES} nodes")


def _refuse_recursion(model: Any) -> None:
    """Refuse functions that call themselves: onnx would follow them until its stack ends."""
    calls: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for function in model.functions:
        callees = calls.setdefault((function.domain, function.name), set())
        waiting = list(function.node)
        depth = 0
        while waiting:
            depth += 1
            if depth > MAX_NODES:
                raise ModelError(f"over {MAX_NODES} nodes")
            node = waiting.pop()
            callees.add((node.domain, node.op_type))
            for _, inner in inner_graphs(node):
                waiting += inner.node
    done: set[tuple[str, str]] = set()
    for first in calls:
        path, stack = [first], [iter(calls[first])]
        while stack:
            following = next(
                (callee for callee in stack[-1] if callee in calls and callee not in done), None
            )
            if following is None:
                done.add(path.pop())
                stack.pop()
            elif following in path:
                raise ModelError(f"the function {following[1]!r} calls itself")
            elif len(path) > MAX_DEPTH:
                raise ModelError(f"functions call each other more than {MAX_DEPTH} deep")
            else:
                path.append(following)
                stack.append(iter(calls[following]))


def _drop_values(tensor: Any) -> None:
    """Drop the values of a large tensor; its name, type and sizes remain."""
    if tensor.ByteSize() <= KEPT:
        return
    for name in _VALUES:
        tensor.ClearField(name)
    # a tensor without values is valid only if it says that its values are elsewhere
    tensor.data_location = _EXTERNAL


def _inferred(onnx: Any, model: Any) -> Any:
    """Return the model with types of its intermediate tensors, as far as onnx can infer them."""
    shape_inference = import_module("onnx.shape_inference")
    try:
        # not strict: a node of another domain or with a wrong attribute does not keep others from
        # getting shapes
        return shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    except Exception:  # noqa: BLE001 - the file's own types of its tensors are still right
        return model

"""Copy an ONNX model without the values of its weights; the copy has its nodes and all sizes."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opscope.core.hlo.wire import VARINT, Value, WireError, field, numbers, walk

#: Tensors up to this size keep their values: shapes are computed from small ones.
KEPT: Final = 1 << 14
#: The largest model that is copied, in bytes without weights.
MOST: Final = 256 << 20
#: How deep graphs may nest.
MAX_DEPTH: Final = 32
_ORT_FORMAT: Final = b"ORTM"

# Fields of the messages in onnx/onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_NODE_ATTRIBUTE: Final = 5
_FUNCTION_NODE: Final = 7
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = (5, 10), (6, 11)
_SPARSE_PARTS: Final = (1, 2)
_TENSOR_VALUES: Final = (4, 5, 6, 7, 9, 10, 11)
_TENSOR_DIMS, _TENSOR_TYPE = 1, 2
#: ``data_location = EXTERNAL``: a tensor may lack its values only where they lie elsewhere.
_ELSEWHERE: Final = bytes((14 << 3 | VARINT, 1))
#: Bytes of an element, by TensorProto.DataType, for the types that weights have; 4 for all others.
_WIDTH: Final = {
    2: 1,
    3: 1,
    4: 2,
    5: 2,
    7: 8,
    9: 1,
    10: 2,
    11: 8,
    13: 8,
    16: 2,
    17: 1,
    18: 1,
    19: 1,
}

#: Start and end of a message.
_Span = tuple[int, int]


class OrtFormat(ValueError):
    """The model is in ONNX Runtime's own format, which only ONNX Runtime reads."""


@dataclass(frozen=True, slots=True)
class Stripped:
    """A model without values: its bytes, how many nodes it has, and how many bytes its weights take."""

    data: bytes
    nodes: int
    weights: int


def of_file(path: str | os.PathLike[str]) -> Stripped:
    """Return the model in a file. Raises OSError, and ValueError if it is not an ONNX model."""
    with (
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return of_bytes(data)


def of_bytes(data: Any) -> Stripped:
    """Return the model in ``data`` (bytes or a mapped file). Raises ValueError if it is not an ONNX model."""
    if data[4:8] == _ORT_FORMAT:
        raise OrtFormat("the model is in ONNX Runtime's own format")
    return _Copy(data).model()


class _Copy:
    def __init__(self, data: Any) -> None:
        self._data = data
        self._nodes = 0
        self._weights = 0
        self._left = MOST

    def model(self) -> Stripped:
        model = self._message(
            (0, len(self._data)),
            {_MODEL_GRAPH: lambda at: self._graph(at, 0), _MODEL_FUNCTIONS: self._function},
        )
        return Stripped(model, self._nodes, self._weights)

    def _graph(self, span: _Span, depth: int) -> bytes:
        if depth > MAX_DEPTH:
            raise WireError(f"graphs are nested more than {MAX_DEPTH} deep")
        return self._message(
            span,
            {
                _GRAPH_NODE: lambda at: self._node(at, depth),
                _GRAPH_INITIALIZER: self._tensor,
                _GRAPH_SPARSE: lambda at: self._message(
                    at, dict.fromkeys(_SPARSE_PARTS, self._tensor)
                ),
            },
        )

    def _function(self, span: _Span) -> bytes:
        return self._message(span, {_FUNCTION_NODE: lambda at: self._node(at, 0)})

    def _node(self, span: _Span, depth: int) -> bytes:
        self._nodes += 1
        return self._message(span, {_NODE_ATTRIBUTE: lambda at: self._attribute(at, depth)})

    def _attribute(self, span: _Span, depth: int) -> bytes:
        return self._message(
            span,
            {
                **dict.fromkeys(_ATTRIBUTE_TENSORS, self._tensor),
                **dict.fromkeys(_ATTRIBUTE_GRAPHS, lambda at: self._graph(at, depth + 1)),
            },
        )

    def _tensor(self, span: _Span) -> bytes:
        start, end = span
        sizes: list[Value] = []
        width, kept, values = 4, [], False
        for number, value, begin, stop in walk(self._data, start, end):
            if number in _TENSOR_VALUES:
                values = True
                continue
            kept.append(self._data[begin:stop])
            if number == _TENSOR_DIMS:
                sizes.append(value)
            elif number == _TENSOR_TYPE and isinstance(value, int):
                width = _WIDTH.get(value, 4)
        dims = numbers(self._data, {_TENSOR_DIMS: sizes}, _TENSOR_DIMS)
        self._weights += math.prod(dims) * width if all(0 <= d < 1 << 40 for d in dims) else 0
        if end - start <= KEPT or not values:
            return self._taken(self._data[start:end])
        return self._taken(b"".join((*kept, _ELSEWHERE)))

    def _message(self, span: _Span, inner: dict[int, Callable[[_Span], bytes]]) -> bytes:
        """Return the payload of a message with the fields in ``inner`` copied by their functions."""
        data, parts = self._data, []
        for number, value, begin, stop in walk(data, *span):
            copy = inner.get(number)
            if copy is None or isinstance(value, int):
                parts.append(self._taken(data[begin:stop]))
            else:
                parts.append(field(number, copy(value)))
        return b"".join(parts)

    def _taken(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise WireError(f"the model has more than {MOST} bytes beside its weights")
        return data

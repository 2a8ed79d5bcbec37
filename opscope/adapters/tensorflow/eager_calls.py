"""The cache entry of an eager call, the key that identifies a call, and the description of its tensors."""

from __future__ import annotations

from typing import Any, Final

from tensorflow.python.framework import dtypes

from opscope.adapters.shared.source import Source
from opscope.core.capture.emit import Prepared
from opscope.core.schema import Arg, OpCall, TensorSpec

from .call import device_name, tensor_spec

#: Ops whose result sizes depend on values: the range gets the results when it ends.
_DYNAMIC_NAMES: Final = """
    Where Unique UniqueV2 UniqueWithCounts Reshape Range Fill Tile Slice StridedSlice Pad PadV2
    MirrorPad BroadcastTo BooleanMask DynamicPartition DynamicStitch NonMaxSuppressionV3
    NonMaxSuppressionV4 NonMaxSuppressionV5 IteratorGetNext IteratorGetNextSync GatherNd Bincount
    DenseBincount RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt
    StatelessRandomUniformV2 StatelessRandomNormalV2 StatelessTruncatedNormalV2 OneHot SplitV
    Conv2DBackpropInput Conv2DBackpropFilter Conv3DBackpropInputV2 Conv3DBackpropFilterV2
    DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter Sum Mean Max Min Prod
    All Any ExpandDims Transpose ConcatV2 ResizeBilinear ResizeNearestNeighbor DecodeRaw
    UnsortedSegmentSum ReadFile SpaceToBatchND BatchToSpaceND Squeeze ArgMax ArgMin TopKV2
    OptionalGetValue ReadVariableOp TensorListStack TensorListGetItem StringSplitV2
"""
DYNAMIC: Final = frozenset(_DYNAMIC_NAMES.split())
#: Types of arguments that enter the key as they are.
PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})


class Entry:
    """What is remembered of a call that was seen before."""

    __slots__ = (
        "call",
        "category",
        "dynamic",
        "falls_back",
        "known",
        "prepared",
        "result",
        "results",
        "shape",
        "source",
    )

    def __init__(
        self, call: OpCall, category: str, prepared: Prepared, source: Source, dynamic: bool
    ) -> None:
        self.source = source
        self.call = call
        self.category = category
        self.prepared = prepared
        self.dynamic = dynamic
        #: Whether ``prepared`` contains the outputs.
        self.known = False
        #: Whether TensorFlow's fast entry point rejects these arguments.
        self.falls_back = False
        #: The key (``sign``) of the result that ``prepared`` describes.
        self.result: tuple[Any, ...] = ()
        #: The shape of that result, if it is a single tensor.
        self.shape: Any = None
        #: The complete range for each key of a result, if results differ from call to call.
        self.results: dict[Any, Prepared] = {}


def same(expected: tuple[Any, ...], result: Any) -> bool:
    """Whether a result matches the expected key. None always does; of one tensor only the shape counts."""
    if type(result) is list:
        key: list[Any] = []
        sign(key, result, True)
        return tuple(key) == expected
    if result is None:
        return True
    return len(expected) == 2 and result._shape_tuple() == expected[1]


def sign(key: list[Any], values: Any, numbers: bool) -> None:
    """Append to ``key`` everything about ``values`` on which the text of a call depends.

    Numbers enter by value if ``numbers``, else only by type: the text does not contain inputs' values.
    """
    add = key.append
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            add(value if numbers else kind)
            continue
        try:
            add(value._datatype_enum())
            add(value._shape_tuple())
        except AttributeError:
            if kind is list or kind is tuple:
                add(len(value))
                sign(key, value, numbers)
            elif kind is dtypes.DType:
                add(value.as_datatype_enum)
            else:
                add(getattr(value, "dtype", kind))
                add(_sizes(value))


def _sizes(value: Any) -> Any:
    shape = getattr(value, "shape", None)
    try:
        return None if shape is None else tuple(shape)
    except (TypeError, ValueError):  # a shape of unknown rank
        return "?"


def argument(value: Any) -> Arg:
    if isinstance(value, (list, tuple)):
        return tuple(map(argument, value)) if any(hasattr(v, "dtype") for v in value) else None
    if isinstance(value, bool):
        return TensorSpec("bool", ())
    if isinstance(value, (int, float)):
        return TensorSpec("i32" if isinstance(value, int) else "f32", ())
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return None
    return tensor_spec(value)


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def device_of(results: Any) -> str | None:
    """Return the device of the first result that has one (``cuda:0``, ``cpu`` …), else None."""
    for result in results:
        device = device_name(getattr(result, "device", None))
        if device is not None:
            return device
    return None

"""Push a range around each op. Its text is the op's call, which is prepared once and remembered."""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

import paddle

from opscope.adapters.shared.source import NOWHERE, Sources
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.rangetext import clean_value
from opscope.core.schema import DTYPE_NAMES, Arg, OpCall, TensorSpec

from .backward import Backward
from .steps import Steps

#: Names of Paddle's ops are lower case without a namespace, as ATen's are in old traces.
NAMESPACE: Final = "paddle::"
#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_CALLS: Final = 65_536
_DTYPES: Final = {
    getattr(paddle, name): short for name, short in DTYPE_NAMES.items() if hasattr(paddle, name)
}
#: Operators of Tensor that are written in C++ and so do not call ``_C_ops``, with the op that they run.
OPERATORS: Final[Mapping[str, str]] = {
    "__add__": "add", "__radd__": "add", "__sub__": "subtract", "__rsub__": "subtract",
    "__mul__": "multiply", "__rmul__": "multiply", "__truediv__": "divide", "__rtruediv__": "divide",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "elementwise_pow",
    "__rpow__": "elementwise_pow", "__matmul__": "matmul", "__gt__": "greater_than",
    "__ge__": "greater_equal", "__lt__": "less_than", "__le__": "less_equal", "__eq__": "equal",
    "__ne__": "not_equal",
}  # fmt: skip
#: What these run instead where the other operand is a number.
_WITH_NUMBER: Final = {"add": "scale", "subtract": "scale", "multiply": "scale", "divide": "scale",
                       "elementwise_pow": "pow"}  # fmt: skip
#: Names of the arguments after the tensors, as in Paddle's list of ops (ops.yaml); others are numbered.
_PARAMETERS: Final = {
    "matmul": ("transpose_x", "transpose_y"),
    "conv2d": ("strides", "paddings", "padding_algorithm", "dilations", "groups", "data_format"),
    "depthwise_conv2d": ("strides", "paddings", "padding_algorithm", "groups", "dilations", "data_format"),
    "pool2d": ("kernel_size", "strides", "paddings", "ceil_mode", "exclusive", "data_format",
               "pooling_type", "global_pooling", "adaptive", "padding_algorithm"),
    "softmax": ("axis",), "log_softmax": ("axis",), "gelu": ("approximate",), "reshape": ("shape",),
    "transpose": ("perm",), "sum": ("axis", "dtype", "keepdim"), "mean": ("axis", "keepdim"),
}  # fmt: skip


class _Call:
    """A call that was seen before: its range, that of its gradient's node, whether it has the outputs."""

    __slots__ = ("category", "complete", "described", "gradient", "prepared", "wanted")

    def __init__(
        self, described: OpCall, category: str, prepared: Prepared, complete: bool
    ) -> None:
        self.described = described
        self.category = category
        self.prepared = prepared
        self.gradient: Prepared | None = None
        self.complete = complete
        #: Of each input, whether its gradient is computed.
        self.wanted: tuple[bool, ...] = ()


class _Thread(threading.local):
    """This thread's number, from 1, in the order in which threads ran their first op."""

    numbers = itertools.count(1)

    def __init__(self) -> None:
        self.number = next(_Thread.numbers)


class Ops:
    """The hook of every function of ``_C_ops``, and of the operators of ``Tensor``."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        shapes: bool,
        steps: Steps,
        backward: Backward,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._sources = sources
        self._shapes = shapes
        self._steps = steps
        self._backward = backward
        self._failed = failed
        self._calls: dict[Any, _Call] = {}
        self._sequence = itertools.count()
        self._thread = _Thread()

    def around(self, name: str, operator: bool = False) -> Callable[[Any], Any]:
        """Return what makes the replacement of the function that runs the op ``name``."""
        emitter, begin, end, thread = self._emitter, self._begin, self._end, self._thread

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def run(*args: Any, **kwargs: Any) -> Any:
                # Check this first: another thread may have entered the hook before it was removed.
                if not emitter.active:
                    return original(*args, **kwargs)
                op = name
                if operator and not isinstance(args[1], paddle.Tensor):
                    op = _WITH_NUMBER.get(name, name)
                seq = next(self._sequence)
                call = begin(op, args, kwargs, seq, sys._getframe(1))
                result = None
                try:
                    result = original(*args, **kwargs)
                finally:  # an op that raises has also ended, without outputs
                    if call is not None:
                        end(call, result, seq, thread.number)
                return result

            return run

        return make

    def _begin(
        self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], seq: int, frame: FrameType
    ) -> _Call | None:
        """Push the call. Return None on failure: a hook in the user's program never raises."""
        try:
            source = NOWHERE if self._sources is None else self._sources.find(frame)
            category = "optimizer" if self._steps.optimizing else "forward"
            inputs, params, device = _arguments(op, args, kwargs)
            if not self._shapes:
                inputs, params = (), ()
            wanted = tuple(not one.stop_gradient for one in args if isinstance(one, paddle.Tensor))
            key = (op, source, category, inputs, params, device, wanted)
            call = self._calls.get(key)
            if call is None:
                described = OpCall(NAMESPACE + op, inputs, None, params, device, source.frames)
                call = self._remember(key, described, category, wanted)
            self._emitter.push(call.prepared, seq, self._thread.number)
            return call
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an op could not be described")
            return None

    def _remember(
        self, key: Any, described: OpCall, category: str, wanted: tuple[bool, ...]
    ) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            self._calls.clear()
        prepared = self._emitter.prepare(described, category)
        call = self._calls[key] = _Call(described, category, prepared, not self._shapes)
        call.wanted = wanted
        return call

    def _end(self, call: _Call, result: Any, seq: int, thread: int) -> None:
        """Pop the call. The first time, add the outputs, which were unknown when it was pushed."""
        complete = None
        try:
            if result is not None:
                if not call.complete:
                    described = _with_outputs(call.described, result)
                    complete = call.prepared = self._emitter.prepare(described, call.category)
                    call.described, call.complete = described, True
                first = result[0] if isinstance(result, (list, tuple)) and result else result
                if isinstance(first, paddle.Tensor) and not (first.stop_gradient or first.is_leaf):
                    self._backward.watch(first, self._gradient(call), seq, thread)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an op's result could not be described")
        self._emitter.pop(complete)

    def _gradient(self, call: _Call) -> Prepared:
        """Return the range of the gradient's node: the gradient of the result and the op's inputs go in."""
        if call.gradient is None:
            forward = call.described
            inputs = (*(forward.outputs or ())[:1], *forward.inputs) if self._shapes else ()
            params = (*forward.params, ("gradients", call.wanted))
            described = OpCall(
                f"{forward.name}_grad", inputs, None, params, forward.device, forward.frames
            )
            call.gradient = self._emitter.prepare(described, "backward")
        return call.gradient


def _arguments(
    op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Arg, ...], tuple[tuple[str, Any], ...], str | None]:
    """Return the tensors, the other arguments by name, and the device of the first tensor."""
    inputs: list[Arg] = []
    others: list[Any] = []
    device: str | None = None
    for value in args:
        if isinstance(value, paddle.Tensor):
            inputs.append(_tensor(value))
            device = device or _device(value)
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], paddle.Tensor):
            inputs.append(tuple(map(_tensor, value)))
            device = device or _device(value[0])
        elif value is None and not others:
            inputs.append(None)  # a tensor that is left out, such as a bias
        else:
            others.append(value)
    names = _PARAMETERS.get(op, ())
    params = [
        (names[number] if number < len(names) else f"arg{number}", _parameter(value))
        for number, value in enumerate(others)
    ]
    params += [(name, _parameter(value)) for name, value in kwargs.items()]
    return tuple(inputs), tuple(params), device


def _parameter(value: Any) -> Any:
    return _DTYPES.get(value, str(value)) if isinstance(value, paddle.dtype) else clean_value(value)


def _tensor(value: Any) -> TensorSpec:
    return TensorSpec(_DTYPES.get(value.dtype, "?"), tuple(value.shape))


def _device(value: Any) -> str:
    place = value.place
    return f"cuda:{place.gpu_device_id()}" if place.is_gpu_place() else "cpu"


def _with_outputs(call: OpCall, result: Any) -> OpCall:
    results = result if isinstance(result, (list, tuple)) else (result,)
    outputs = tuple(_tensor(one) for one in results if isinstance(one, paddle.Tensor))
    return OpCall(call.name, call.inputs, outputs, call.params, call.device, call.frames)

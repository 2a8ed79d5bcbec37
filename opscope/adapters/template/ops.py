"""Push a range around each op. Its text is the op's call, which is prepared once and remembered."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.rangetext import clean_value
from opscope.core.schema import OpCall, TensorSpec

from .steps import Steps

#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_CALLS: Final = 65_536
#: How opscope writes the framework's element types.
_DTYPES: Final = {"real64": "f64", "real32": "f32", "whole": "i64"}


class _Call:
    """A call that was seen before: the range to push, and whether it already has the outputs."""

    __slots__ = ("category", "complete", "described", "prepared")

    def __init__(
        self, described: OpCall, category: str, prepared: Prepared, complete: bool
    ) -> None:
        self.described = described
        self.category = category
        self.prepared = prepared
        self.complete = complete


class Ops:
    """The hook of ``engine.run``."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        shapes: bool,
        steps: Steps,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._sources = sources
        self._shapes = shapes
        self._steps = steps
        self._failed = failed
        self._calls: dict[Any, _Call] = {}

    def around(self, original: Any) -> Any:
        """Return the replacement of ``engine.run``."""

        @functools.wraps(original)
        def run(op: str, *inputs: Any, **params: Any) -> Any:
            # Check this first: another thread may have entered the hook before it was removed.
            if not self._emitter.active:
                return original(op, *inputs, **params)
            call = self._begin(op, inputs, params, sys._getframe(1))
            result = None
            try:
                result = original(op, *inputs, **params)
            finally:  # an op that raises has also ended, without outputs
                if call is not None:
                    self._end(call, result)
            return result

        return run

    def _begin(
        self, op: str, inputs: tuple[Any, ...], params: dict[str, Any], frame: FrameType
    ) -> _Call | None:
        """Push the call. Return None on failure: a hook in the user's program never raises."""
        try:
            source = NOWHERE if self._sources is None else self._sources.find(frame)
            category = "optimizer" if self._steps.optimizing else "forward"
            arguments = tuple(map(_tensor, inputs)) if self._shapes else ()
            key = (op, source, category, arguments, tuple(params.items()))
            call = self._calls.get(key)
            if call is None:
                call = self._remember(key, _described(op, arguments, params, source), category)
            self._emitter.push(call.prepared)
            return call
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an op could not be described")
            return None

    def _remember(self, key: Any, described: OpCall, category: str) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            self._calls.clear()
        prepared = self._emitter.prepare(described, category)
        call = self._calls[key] = _Call(described, category, prepared, not self._shapes)
        return call

    def _end(self, call: _Call, result: Any) -> None:
        """Pop the call. The first time, add the outputs, which were unknown when it was pushed."""
        complete = None
        try:
            if not call.complete and result is not None:
                described = _with_outputs(call.described, result)
                complete = call.prepared = self._emitter.prepare(described, call.category)
                call.complete = True
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an op's result could not be described")
        self._emitter.pop(complete)


def _tensor(value: Any) -> TensorSpec:
    return TensorSpec(_DTYPES.get(value.dtype, value.dtype), tuple(value.shape))


def _described(
    op: str, inputs: tuple[TensorSpec, ...], params: dict[str, Any], source: Source
) -> OpCall:
    """Return the call as the range text writes it: the framework's own op name, then the arguments."""
    cleaned = tuple((name, clean_value(value)) for name, value in params.items())
    return OpCall(op, inputs, None, cleaned, "cpu", source.frames)


def _with_outputs(call: OpCall, result: Any) -> OpCall:
    return OpCall(call.name, call.inputs, (_tensor(result),), call.params, call.device, call.frames)

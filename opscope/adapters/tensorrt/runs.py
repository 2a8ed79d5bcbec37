"""Push ranges around each run of an engine: which engine, and the call with its tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost
from opscope.core.schema import OpCall, ParamValue, TensorSpec
from opscope.core.tensorrt_layers import PREFIX

from .engines import Engine, Engines
from .layer_times import LayerTimes

#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_CALLS: Final = 4096


class Runs:
    """The hooks of ``IExecutionContext.execute*``."""

    def __init__(
        self,
        emitter: Emitter,
        engines: Engines,
        shapes: bool,
        times: LayerTimes | None,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._engines = engines
        self._shapes = shapes
        self._times = times
        self._failed = failed
        self._calls: dict[Any, Prepared] = {}
        self._streams: dict[int, int] = {}
        #: The cost of describing a run before it and after it. Runs are few, so all are timed.
        self.cost = Cost("runs", 1, 2)

    def around(self, method: str) -> Callable[[Any], Any]:
        """Return a function that makes the replacement of a method."""

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def execute(context: Any, *args: Any, **kwargs: Any) -> Any:
                emitter = self._emitter
                if not emitter.active:
                    return original(context, *args, **kwargs)
                engine = self._begin(method, context, args, kwargs)
                if engine is None:
                    return original(context, *args, **kwargs)
                ran = None
                try:
                    ran = original(context, *args, **kwargs)
                    return ran
                finally:
                    began = self.cost.begin()
                    if self._times is not None:
                        self._times.after(context, engine, bool(ran))
                    emitter.pop()
                    emitter.pop()
                    self.cost.end(began)

            return execute

        return make

    def _begin(
        self, method: str, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Engine | None:
        """Push the engine and the call. Return None on failure: a hook never raises."""
        pushed = 0
        began = self.cost.begin()
        try:
            engine = self._engines.of(context)
            if engine.run is None:
                engine.run = self._emitter.prepare(engine.graph, "graph")
            call = self._call(method, context, engine, args, kwargs)
            if self._times is not None:
                self._times.before(context)
            self._emitter.push(engine.run)
            pushed = 1
            self._emitter.push(call)
            self.cost.end(began)
            return engine
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            if pushed:
                self._emitter.pop()
            self._failed("a run of an engine could not be described")
            return None

    def _call(
        self,
        method: str,
        context: Any,
        engine: Engine,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Prepared:
        shapes = tuple(
            tuple(context.get_tensor_shape(tensor.name)) if tensor.varies else tensor.shape
            for tensor in engine.tensors
        )
        profile = int(context.active_optimization_profile)
        stream = self._stream(method, args, kwargs)
        key = (engine.graph, method, shapes, profile, stream)
        found = self._calls.get(key)
        if found is not None:
            return found
        if len(self._calls) >= MAX_CALLS:
            self._calls.clear()
        sides: tuple[list[TensorSpec], list[TensorSpec]] = ([], [])
        for tensor, shape in zip(engine.tensors, shapes, strict=True):
            sides[not tensor.is_input].append(tensor.spec(shape))
        params: list[tuple[str, ParamValue]] = [("engine", engine.graph), ("profile", profile)]
        if stream is not None:
            params.append(("stream", stream))
        outputs = tuple(sides[1]) if self._shapes else None
        call = OpCall(PREFIX + method, tuple(sides[0]), outputs, tuple(params))
        prepared = self._calls[key] = self._emitter.prepare(call, "forward")
        return prepared

    def _stream(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """A number for the stream of a call, 0 for the first that is seen; None if the call names none."""
        position = {"execute_async_v3": 0, "execute_async_v2": 1, "execute_async": 2}.get(method)
        if position is None:
            return None
        handle = args[position] if len(args) > position else kwargs.get("stream_handle")
        if not isinstance(handle, int):
            return None
        return self._streams.setdefault(handle, len(self._streams))

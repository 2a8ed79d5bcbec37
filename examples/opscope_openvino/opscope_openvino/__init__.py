"""The OpenVINO adapter: supported versions, hooks, what each hook emits, and removal.

A compiled model runs in C++, where Python sees no node. While something listens, a range is pushed around
each run. The nodes of a run (``models.py``) have lengths and no beginning: they are recorded one after the
other, up to the end of the run.
"""

from __future__ import annotations

import functools
import sys
import weakref
from time import perf_counter_ns
from typing import Any, ClassVar, Final

import openvino

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.source import NOWHERE, Source, Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.capture.own_cost import Cost
from opscope.core.schema import Arg, OpCall

from .models import Model, Sizes, specs

#: Distinct calls to remember. When there are more, all are forgotten and prepared again.
MAX_CALLS: Final = 4096
#: What describes a call: its name, model, whether nodes are timed, line, and the sizes of its tensors.
Key = tuple[str, Model | None, bool, Source, Sizes | None]


class OpenVinoAdapter(Adapter):
    """OpenVINO: runs of compiled models, and the times of their nodes."""

    name: ClassVar[str] = "openvino"
    title: ClassVar[str] = "OpenVINO"
    module: ClassVar[str] = "openvino"
    #: The oldest version that is tested.
    requires: ClassVar[str] = ">=2025.0"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._always = Patches()
        self._while_active = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook what makes models and requests, and hook runs if something already listens."""
        if self._emitter is not None:
            return
        self.broken = False
        self._emitter, self._options = emitter, options
        self._sources = Sources() if options.source else None
        self._models: weakref.WeakKeyDictionary[Any, Model] = weakref.WeakKeyDictionary()
        self._requests: weakref.WeakKeyDictionary[Any, Model] = weakref.WeakKeyDictionary()
        self._calls: dict[Key, Prepared] = {}
        self._recording: object = None
        #: The cost of describing a run before it and after it. Runs are few, so all are timed.
        self._cost = Cost("runs", 1, 2)
        self._always.wrap(openvino.Core, "compile_model", self._around_compilation)
        self._always.wrap(openvino.CompiledModel, "create_infer_request", self._around_request)
        self._always.wrap(openvino.AsyncInferQueue, "__init__", self._around_queue)
        self.listen()

    def listen(self) -> None:
        """Hook runs while the emitter is active, or the runs of a model are counted; else unhook them."""
        if self._emitter is None or self.broken:
            return
        recorder = session.recorder()
        if recorder is not None and recorder is not self._recording:
            self._cost.reset()
            recorder.spending.append(self._cost.spent)
        self._recording = recorder
        if not self._emitter.active and not any(model.timed for model in self._models.values()):
            self._while_active.restore()
        elif not self._while_active:
            self._while_active.wrap(openvino.InferRequest, "infer", self._around_run)
            for owner, waiting in (
                (openvino.InferRequest, "wait"),
                (openvino.AsyncInferQueue, "wait_all"),
            ):
                for method in ("start_async", waiting):
                    self._while_active.wrap(
                        owner, method, self._around(f"{owner.__name__}.{method}")
                    )

    def uninstall(self) -> None:
        """Restore everything."""
        self._while_active.restore()
        self._always.restore()
        self._emitter = None

    def _around_compilation(self, original: Any) -> Any:
        @functools.wraps(original)
        def compile_model(
            core: Any, model: Any, device_name: Any = None, config: Any = None, **rest: Any
        ) -> Any:
            if self._options.profiler or session.is_run():
                config = {"PERF_COUNT": True, **(config or {})}
            compiled = original(core, model, device_name, config, **rest)
            try:
                self._models[compiled] = Model(compiled)
                self.listen()
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self.failed("a compiled model could not be described")
            return compiled

        return compile_model

    def _around_request(self, original: Any) -> Any:
        @functools.wraps(original)
        def create_infer_request(compiled: Any) -> Any:
            request = original(compiled)
            if (model := self._models.get(compiled)) is not None:
                self._requests[request] = model
            return request

        return create_infer_request

    def _around_queue(self, original: Any) -> Any:
        @functools.wraps(original)
        def __init__(queue: Any, compiled: Any, *args: Any, **kwargs: Any) -> None:
            original(queue, compiled, *args, **kwargs)
            if (model := self._models.get(compiled)) is not None:
                self._requests[queue] = model

        return __init__

    def _around(self, name: str) -> Any:
        """Return what makes the replacement of a method that begins a run or waits for runs."""

        def make(original: Any) -> Any:
            @functools.wraps(original)
            def call(request: Any, *args: Any, **kwargs: Any) -> Any:
                model = self._requests.get(request)
                if model is not None and name.endswith("start_async"):
                    model.timed = False  # nothing tells when such a run ends
                emitter = self._emitter
                begun = self._begin(name, model, sys._getframe(1))
                try:
                    return original(request, *args, **kwargs)
                finally:
                    if begun is not None and emitter is not None:
                        emitter.pop()

            return call

        return make

    def _around_run(self, original: Any) -> Any:
        """Return the replacement of ``InferRequest.infer``."""

        @functools.wraps(original)
        def infer(request: Any, *args: Any, **kwargs: Any) -> Any:
            model, emitter = self._requests.get(request), self._emitter
            if model is not None:
                model.open += 1
            key = self._begin("InferRequest.infer", model, sys._getframe(1))
            begin = perf_counter_ns()
            succeeded = False
            try:
                result = original(request, *args, **kwargs)
                succeeded = True
            finally:
                end = perf_counter_ns()
                recorded = key is not None and emitter is not None
                if model is not None and not model.ended(succeeded, recorded):
                    begin = end  # no time to share out among the nodes
                if key is not None and emitter is not None:
                    self._end(request, model if succeeded else None, key, begin, end, emitter)
            return result

        return infer

    def _begin(self, name: str, model: Model | None, frame: Any) -> Key | None:
        """Push a call, return its key. Return None on failure: a hook in the user's program never raises."""
        emitter = self._emitter
        if emitter is None or not emitter.active:
            return None
        began = self._cost.begin()
        try:
            source = NOWHERE if self._sources is None else self._sources.find(frame)
            key = name, model, model is not None and model.timed, source, None
            emitter.push(self._calls.get(key) or self._remember(emitter, key, (), None))
            self._cost.end(began)
            return key
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a run could not be described")
            return None

    def _end(
        self, request: Any, model: Model | None, key: Key, begin: int, end: int, emitter: Emitter
    ) -> None:
        """Pop a run, with its tensors, after the nodes of its model in the time from ``begin``."""
        began = self._cost.begin()
        complete: Prepared | None = None
        nodes: dict[Prepared, int] = {}
        try:
            if model is not None:
                sizes = model.sizes(request)
                if begin < end:
                    nodes = model.times(request, sizes, (end - begin) // 1000, emitter)
                if self._options.shapes:
                    key = (*key[:4], sizes)
                    complete = self._calls.get(key) or self._remember(
                        emitter, key, *map(specs, model.tensors(request))
                    )
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self.failed("a run's tensors or nodes could not be described")
        at = end - sum(nodes.values())
        for prepared, took in nodes.items():
            emitter.past(prepared, at, at := at + took)
        emitter.pop_past(complete, end)
        self._cost.end(began)

    def _remember(
        self, emitter: Emitter, key: Key, inputs: tuple[Arg, ...], outputs: tuple[Arg, ...] | None
    ) -> Prepared:
        name, model, timed, source, _ = key
        params: tuple[tuple[str, str], ...] = () if model is None else (("model", model.name),)
        if timed:
            params = (*params, ("nodes", "timed"))
        device = None if model is None else model.device
        if len(self._calls) >= MAX_CALLS:
            self._calls.clear()
        call = OpCall(name, inputs, outputs, params, device, source.frames)
        prepared = self._calls[key] = emitter.prepare(call, "forward")
        return prepared

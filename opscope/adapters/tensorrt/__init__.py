"""The TensorRT adapter: supported versions, hooks, what each hook emits, and removal.

An engine runs as one call (``IExecutionContext.execute_async_v3``). TensorRT itself pushes an NVTX range for
each layer (domain ``TensorRT``), which carries only the layer's name. This adapter emits a range for each
call, with its tensors, and specs that describe each layer, from the engine inspector. It never imports
TensorRT; it hooks the binding classes once the program has imported them.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, ClassVar, Final

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.imported import when_imported
from opscope.adapters.shared.patch import Patches
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter

from .engines import Engines
from .layer_times import LayerTimes
from .runs import Runs
from .torch_modules import MODULE, TorchModules
from .verbosity import Verbosity

_log = logging.getLogger(__name__)

#: Set to 1: record layers' times by an IProfiler. It makes each run wait for its end.
LAYER_TIMES: Final = "OPSCOPE_TENSORRT_LAYER_TIMES"
#: Set to 0: leave the profiling verbosity of engines that are built as it is.
VERBOSITY: Final = "OPSCOPE_TENSORRT_VERBOSITY"


class TensorRTAdapter(Adapter):
    """TensorRT: runs of engines, their layers, and on request the layers' times."""

    name: ClassVar[str] = "tensorrt"
    title: ClassVar[str] = "TensorRT"
    module: ClassVar[str] = "tensorrt"
    #: 8.5 introduced tensors' names, by which a context can be queried; 8.6 is the first version with
    #: everything that is needed here.
    requires: ClassVar[str] = ">=8.6"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._engines: Engines | None = None
        self._times: LayerTimes | None = None
        self._verbosity: Verbosity | None = None
        self._torch: TorchModules | None = None
        self._patches = Patches()
        self._while_active = Patches()
        self._runs: Runs | None = None
        self._recording: object = None
        self._trt: Any = None

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook the creation of contexts and the building of engines; runs only while something listens."""
        if self._emitter is not None:
            return
        trt = sys.modules["tensorrt"]
        for needed in ("IExecutionContext", "ICudaEngine", "LayerInformationFormat"):
            if not hasattr(trt, needed):
                raise RuntimeError(f"this build of TensorRT has no {needed}")
        self.broken = False
        self._trt, self._emitter = trt, emitter
        self._engines = Engines(trt, emitter, options.shapes, self.failed)
        if os.environ.get(LAYER_TIMES) == "1":
            self._times = LayerTimes(trt, self.failed)
        self._runs = Runs(emitter, self._engines, options.shapes, self._times, self.failed)
        created = [
            attribute
            for attribute in dir(trt.ICudaEngine)
            if attribute.startswith("create_execution_context")
        ]
        for method in created:
            self._patches.wrap(trt.ICudaEngine, method, self._engines.around_creation)
        if os.environ.get(VERBOSITY) != "0":
            self._verbosity = Verbosity(trt, self.failed)
            self._verbosity.install(self._patches)
        self._torch = TorchModules(emitter, self._engines, self.failed)
        when_imported(MODULE, self._torch.install)
        self.listen()

    def listen(self) -> None:
        """Hook runs while something listens; a new listener gets the specs of all engines again."""
        emitter, runs, engines = self._emitter, self._runs, self._engines
        if emitter is None or runs is None or engines is None or self.broken:
            return
        recorder = session.recorder()
        if self._times is not None:
            self._times.listen(recorder)
        if recorder is not None and recorder is not self._recording:
            runs.cost.reset()
            recorder.spending.append(runs.cost.spent)
        self._recording = recorder
        if not emitter.active:
            self._while_active.restore()
            return
        if not self._while_active:
            context = self._trt.IExecutionContext
            for method in (
                attribute for attribute in dir(context) if attribute.startswith("execute")
            ):
                self._while_active.wrap(context, method, runs.around(method))
        engines.emit_specs()

    def uninstall(self) -> None:
        """Restore every attribute, and take our profiler from contexts that still have it."""
        if self._times is not None:
            self._times.listen(None)
            self._times.detach()
        if self._torch is not None:
            self._torch.uninstall()
        self._while_active.restore()
        self._patches.restore()
        if self._verbosity is not None:
            self._verbosity.uninstall()
        self._emitter = self._engines = self._times = self._verbosity = None
        self._torch = self._runs = self._trt = None

"""The MindSpore adapter: supported versions, hooks, what each hook emits, and removal.

While something listens, it puts a dispatch mode on threads (for ops of PyNative mode; in versions without
dispatch modes, the functions by which Python hands an op to MindSpore are hooked), wraps ``Cell.__call__``
(layers) and the executor of PyNative mode (directions, and which forward op a gradient is of), the compiler,
and iterators of datasets (waits for input). While nothing listens, it only wraps optimizers and runs of
graphs, to count steps.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final

from mindspore import Tensor, profiler
from mindspore.nn import Cell

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.reads import Reads
from opscope.adapters.shared.saves import Saves
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter

from . import model_train, mstx, results
from .dispatch import Modes
from .entry import EntryPoints
from .graphs import Graphs
from .layers import Layers
from .loading import Loading
from .ops import Ops
from .phases import Phases
from .state import Threads
from .steps import Steps
from .sync import Synchronous

_log = logging.getLogger(__name__)
#: Methods that read a tensor's values.
_READS: Final = ("asnumpy", "item", "tolist", "__float__", "__int__", "__bool__")


class MindSporeAdapter(Adapter):
    """MindSpore: PyNative mode, and runs of graphs."""

    name: ClassVar[str] = "mindspore"
    title: ClassVar[str] = "MindSpore"
    module: ClassVar[str] = "mindspore"
    #: 2.7 is the oldest version that is tested; 2.9 is the first with dispatch modes.
    requires: ClassVar[str] = ">=2.7"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._threads = Threads()
        self._reads = Reads(None, self.failed)
        self._saves = Saves(self.failed)
        self._sync: Synchronous | None = None
        self._ops: Ops | None = None
        self._modes: Modes | None = None
        self._entry: EntryPoints | None = None
        self._layers: Layers | None = None
        self._phases: Phases | None = None
        self._graphs: Graphs | None = None
        self._loading: Loading | None = None
        self._recording: Any = None
        self._undo: list[Callable[[], None]] = []
        #: Hooks that are always set, and hooks that are set while something listens.
        self._always = Patches()
        self._while_active = Patches()

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook what counts steps, and the rest if something already listens."""
        if self._emitter is not None:
            return
        self.broken = False
        self._emitter = emitter
        marked: Any = emitter
        if mstx.on_ascend() and hasattr(profiler, "mstx"):
            marked = mstx.Marked(emitter, profiler.mstx)
            self._undo.append(session.on_step(marked.mark_step))
        threads, failed = self._threads, self.failed
        sources = Sources() if options.source else None
        steps = Steps() if options.steps else None
        self._reads = Reads(sources, failed)
        self._sync = sync = Synchronous()
        self._ops = ops = Ops(
            marked,
            threads,
            sources,
            options.shapes,
            failed,
            sync.device,
            sync.wait,
            sync.guard,
        )
        self._modes = Modes(ops)
        self._entry = None if self._modes.available else EntryPoints(ops)
        ops.sees_gradients = self._modes.available
        self._phases = Phases(marked, threads, ops, steps, failed)
        self._graphs = Graphs(marked, threads, ops, steps, failed)
        if options.steps:
            self._loading = Loading(marked, sources, failed)
            self._saves.install("mindspore.train.serialization:_exec_save")
        entering, leaving = self._phases.entering, self._phases.leaving
        self._layers = Layers(marked, threads, options.layers, failed, entering, leaving)
        self._layers.arrives = self._modes.enter
        self._phases.watch(self._always)
        self._graphs.watch(self._always)
        model_train.install(marked, failed, options.steps)
        atexit.register(self._exits)
        self.listen()

    def listen(self) -> None:
        """Hook while the emitter is active, else unhook."""
        emitter = self._emitter
        if emitter is None or self.broken:
            return
        try:
            if emitter.active:
                self._begin(emitter)
            else:
                self._stop()
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            self.failed("hooks could not be set")

    def _begin(self, emitter: Emitter) -> None:
        recorder = session.recorder()
        ops, layers, phases = self._ops, self._layers, self._phases
        graphs, modes, sync = self._graphs, self._modes, self._sync
        assert ops is not None
        assert layers is not None
        assert phases is not None
        assert graphs is not None
        assert modes is not None
        assert sync is not None
        if recorder is not self._recording or not ops.on:
            self._recording = recorder
            self._threads.run += 1
            if recorder is not None:
                ops.cost.reset()
                layers.cost.reset()
                recorder.spending.append(ops.cost.spent)
                recorder.spending.append(layers.cost.spent)
        ops.on = layers.on = phases.on = graphs.on = True
        if not self._while_active:
            self._while_active.wrap(Cell, "__call__", layers.around)
            phases.install(self._while_active)
            graphs.install(self._while_active)
            if self._loading is not None:
                self._loading.install(self._while_active)
            for name in _READS:
                self._while_active.wrap(
                    Tensor, name, self._reads.around(f"mindspore.Tensor.{name}")
                )
        sync.begin()
        modes.install()
        if self._entry is not None:
            self._entry.install()

    def _stop(self) -> None:
        for part in (self._ops, self._layers, self._phases, self._graphs):
            if part is not None:
                part.on = False
        self._while_active.restore()
        if self._modes is not None:
            self._modes.uninstall()
        if self._entry is not None:
            self._entry.uninstall()
        if self._sync is not None:
            self._sync.end()
        self._recording = None

    def uninstall(self) -> None:
        """Remove every hook."""
        if self._emitter is None:
            return
        self._stop()
        self._saves.uninstall()
        self._always.restore()
        results.unhook_all()
        model_train.uninstall()
        while self._undo:
            self._undo.pop()()
        atexit.unregister(self._exits)
        self._emitter = self._ops = self._modes = self._entry = self._layers = None
        self._phases = self._graphs = self._sync = self._loading = None

    def withdraw(self) -> None:
        """Remove all hooks but keep the adapter's objects: one of its hooks may still be running."""
        self._stop()
        self._always.restore()
        results.unhook_all()
        model_train.uninstall()

    def _exits(self) -> None:
        """Take the mode off the main thread: a mode left there would end the process with an error."""
        if self._modes is not None:
            self._modes.leave()

"""The PyTorch adapter: which versions, what is hooked, what is emitted, how it is undone.

While something listens: a C++ callback or, where that cannot be built, a dispatch mode on every
thread (ops), what stands around each module's call (layers), the
optimizer's global hooks (steps, the optimizer phase), the entry of the backward pass and a data
loader's ``__next__`` (phases), CUDA graphs, what Inductor compiled, and the start of new threads. While
nothing listens, only the optimizer's hooks stay, once a step, to count steps, and those that hear of
new process groups, of what is compiled, and of graphs being captured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter
from opscope.core.capture.recorder_sink import Recorder

from .compilations import Compilations
from .dispatch import OpMode
from .gradients import Gradients
from .graphs import CudaGraphs
from .higher_order import HigherOrder, Rules
from .inductor import Inductor
from .memory import Memory
from .modules import Layers
from .native import binary, native_mode, prepare
from .phases import BackwardAndInput, OptimizerHooks, Phases
from .ranks import Ranks
from .state import Threads, ThreadState
from .threads import NewThreads, enter, leave

_log = logging.getLogger(__name__)


class TorchAdapter(Adapter):
    """PyTorch, by the native observer where it can be built, else in pure Python."""

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    module: ClassVar[str] = "torch"
    #: 2.6 has every hook used here.
    requires: ClassVar[str] = ">=2.6"

    def __init__(self) -> None:
        self._mode: OpMode | None = None
        self._emitter: Emitter | None = None
        #: Those that do something of their own when a recording begins or ends.
        self._followers: list[Any] = []
        self._parts: list[Any] = []
        self._always: list[Any] = []
        self._options = Options()
        self._recorder: Recorder | None = None
        #: Whether it is still to be chosen how ops are seen: only when first something listens.
        self._choose = True

    @classmethod
    def prepare(cls, options: Options) -> None:
        """The native observer, and with ``memory`` that of memory."""
        prepare(options)

    @classmethod
    def build(cls) -> Iterator[Path]:
        """The native observer, that of memory, and, where PyTorch has any, that of process groups."""
        groups = [binary.GROUPS] if distributed.is_available() else []
        for source in (binary.SOURCE, binary.MEMORY, *groups):
            yield binary.build(binary.plan(source))

    def install(self, emitter: Emitter, options: Options) -> None:
        """Hook what must be there to count steps, and the rest if something listens already."""
        if self._mode is not None:
            return
        self.prepare(options)
        self.broken = False
        self._choose = True
        self._recorder = None
        self._emitter = emitter
        self._options = options
        threads = Threads()
        sources = Sources() if options.source else None
        mode = OpMode(emitter, threads, sources, options.shapes, self.failed)
        phases = Phases(emitter, threads)

        def entering(state: ThreadState, training: bool) -> None:
            enter(mode)  # a thread that was there before us
            if options.steps:
                phases.entering(state, training)

        graphs = CudaGraphs(emitter, threads, self.failed)
        self._always = [
            OptimizerHooks(mode, threads, phases, self.failed, options.steps),
            graphs.captures,
        ]
        self._parts = [
            NewThreads(mode),
            graphs,
            Gradients(mode, threads, self.failed),
            HigherOrder(emitter, sources, options.shapes, self.failed),
            Rules(),
        ]
        if options.steps:
            self._parts.append(BackwardAndInput(mode, threads, phases, self.failed))
        if options.layers:
            layers = Layers(emitter, threads, self.failed, entering, phases.leaving)
            self._parts.append(layers)
            self._always.append(layers.hidden)
        self._always.append(
            Compilations(emitter, mode, threads, phases, options.source, self.failed)
        )
        self._mode = mode
        self._followers = [
            Ranks(emitter, self.failed, self._grouped),
            Inductor(emitter, threads, options.source, self.failed),
        ]
        if options.memory:
            self._followers.append(Memory())
        for part in (*self._always, *self._followers):
            part.install()
        self.listen()

    def listen(self) -> None:
        """Hook or unhook as the emitter is active or not."""
        mode, emitter = self._mode, self._emitter
        if mode is None or emitter is None or self.broken:
            return
        try:
            if emitter.active and not mode.on and self._choose:
                self._choose = False
                mode.native = native_mode(emitter, mode.threads, self._options)
                for part in self._parts:
                    if isinstance(part, Layers):
                        part.native = None if mode.native is None else mode.native.for_layers()
                if mode.native is None and not hasattr(
                    TorchDispatchMode, "ignore_compile_internals"
                ):
                    _log.warning(
                        "opscope: while a dispatch mode sees its ops, this PyTorch does not compile what"
                        " torch.compile is given, or compiles it again and again"
                    )
            if mode.native is not None:
                mode.native.listen()
            for part in self._followers:
                part.listen()
            self._tell_costs(mode)
            if mode.on == emitter.active:
                return
            if emitter.active:
                mode.threads.run += 1
                mode.on = True
                unneeded = (HigherOrder,) if mode.native is None else (NewThreads, Rules)
                for part in self._parts:
                    if not isinstance(part, unneeded):
                        part.install()
                enter(mode)
            else:
                self._stop(mode)
        except Exception:  # noqa: BLE001 - a capture, and the program, go on without this adapter
            self.failed("hooks could not be set")

    def _grouped(self) -> None:
        if self._mode is not None and self._mode.native is not None:
            self._mode.native.name_groups()

    def _tell_costs(self, mode: OpMode) -> None:
        recorder = session.recorder()
        if recorder is self._recorder:
            return
        self._recorder = recorder
        if recorder is None:
            return
        layers = [part for part in self._parts if isinstance(part, Layers)]
        costs = [part.cost for part in layers if part.native is None]
        if mode.native is None:
            costs.append(mode.cost)
        for cost in costs:
            cost.reset()
            recorder.spending.append(cost.spent)

    def _stop(self, mode: OpMode) -> None:
        mode.on = False
        if mode.native is not None:
            mode.native.stop()
        for part in reversed(self._parts):
            part.uninstall()
        leave(mode)

    def uninstall(self) -> None:
        """Take every hook away. A mode on another thread's stack does nothing from here on, and
        goes when that thread ends."""
        mode, self._mode = self._mode, None
        if mode is None:
            return
        self._stop(mode)
        for part in self._lasting():
            part.uninstall()
        self._parts, self._always, self._followers, self._emitter = [], [], [], None

    def withdraw(self) -> None:
        """The mode, were we inside it, is put back by PyTorch when the op ends; it is off, and leaves
        the stack at shutdown.
        """
        if self._mode is not None:
            self._mode.on = False
            if self._mode.native is not None:
                self._mode.native.stop()
        for part in (*self._parts, *self._lasting()):
            part.uninstall()

    def _lasting(self) -> list[Any]:
        """What also is there while nothing listens. The last to be installed comes first, for two of
        them are around one function."""
        return [*self._followers[::-1], *self._always[::-1]]

"""The PyTorch adapter: the supported versions, its hooks, what they emit, how they are removed.

While a listener (a recorder or an NVTX tool) is attached, these hooks are installed: a C++ callback for
ops, or a dispatch mode on every thread where the callback cannot be built; a wrapper of module calls
(layers); the optimizer's global hooks (steps, the optimizer phase); the entry of the backward pass and a
data loader's ``__next__`` (phases); CUDA graphs; code that Inductor compiled; launches of the user's own
Triton kernels; the start of new threads.
Without a listener only these hooks remain: the optimizer's, once per step, to count steps, and those that
notice new process groups, compilations and CUDA graph captures.
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
from .light import LightHooks
from .memory import Memory
from .modules import Layers
from .native import binary, native_mode, prepare
from .phases import BackwardAndInput, OptimizerHooks, Phases
from .ranks import Ranks
from .state import Threads, ThreadState
from .threads import NewThreads, enter, leave
from .triton_kernels import TritonKernels

_log = logging.getLogger(__name__)


class TorchAdapter(Adapter):
    """Observes PyTorch: with the native observer where it can be built, else in pure Python."""

    name: ClassVar[str] = "torch"
    title: ClassVar[str] = "PyTorch"
    module: ClassVar[str] = "torch"
    #: 2.6 has every hook used here.
    requires: ClassVar[str] = ">=2.6"

    def __init__(self) -> None:
        self._mode: OpMode | None = None
        self._emitter: Emitter | None = None
        #: Parts that act when a recording begins or ends.
        self._followers: list[Any] = []
        #: Parts that are installed while something listens, and parts that are installed always.
        self._parts: list[Any] = []
        self._always: list[Any] = []
        self._options = Options()
        self._recorder: Recorder | None = None
        #: Whether the choice between native observer and dispatch mode is still open. The first listener
        #: triggers it.
        self._choose = True

    @classmethod
    def prepare(cls, options: Options) -> None:
        """Build the native observer and, with ``memory``, the memory observer."""
        prepare(options)

    @classmethod
    def build(cls) -> Iterator[Path]:
        """Build the native observer, the memory observer and, where PyTorch has ``torch.distributed``, the
        observer of process groups; yield each library's path."""
        groups = [binary.GROUPS] if distributed.is_available() else []
        for source in (binary.SOURCE, binary.MEMORY, *groups):
            yield binary.build(binary.plan(source))

    def install(self, emitter: Emitter, options: Options) -> None:
        """Install the permanent hooks, and the others if something listens already."""
        if self._mode is not None:
            return
        if session.light() is None or options.spells:
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
            enter(mode)  # this thread started before opscope
            if options.steps:
                phases.entering(state, training)

        graphs = CudaGraphs(emitter, threads, self.failed)
        clock = session.light()
        self._always = [] if clock is None else [LightHooks(clock, self.failed)]
        self._always += [
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
            self._parts.append(BackwardAndInput(mode, threads, phases, sources, self.failed))
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
            TritonKernels(emitter, mode, threads, sources, options.shapes, self.failed),
        ]
        if options.memory:
            self._followers.append(Memory())
        for part in (*self._always, *self._followers):
            part.install()
        self.listen()

    def listen(self) -> None:
        """Install or remove hooks, depending on whether the emitter is active."""
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
                        "opscope: a dispatch mode observes the ops, under which this PyTorch version skips"
                        " torch.compile or recompiles again and again; the native observer has no such"
                        " effect, see `opscope doctor`"
                    )
            if mode.native is not None:
                mode.native.listen()
            for part in self._followers:
                part.listen()
            self._register_costs(mode)
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
        except Exception:  # noqa: BLE001 - the capture and the program continue without this adapter
            self.failed("hooks could not be set")

    def _grouped(self) -> None:
        """Let native code name process groups, now that some exist."""
        if self._mode is not None and self._mode.native is not None:
            self._mode.native.name_groups()

    def _register_costs(self, mode: OpMode) -> None:
        """Register the cost counters of the Python hooks with a new recorder."""
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
        """Remove every hook. A dispatch mode on another thread's stack does nothing from here on; it
        disappears when that thread ends."""
        mode, self._mode = self._mode, None
        if mode is None:
            return
        self._stop(mode)
        for part in self._lasting():
            part.uninstall()
        self._parts, self._always, self._followers, self._emitter = [], [], [], None

    def withdraw(self) -> None:
        """Remove the hooks after a fault, but only switch the dispatch mode off.

        If the fault happened inside the mode, PyTorch pushes the mode again when the op ends. It leaves the
        stack at shutdown.
        """
        if self._mode is not None:
            self._mode.on = False
            if self._mode.native is not None:
                self._mode.native.stop()
        for part in (*self._parts, *self._lasting()):
            part.uninstall()

    def _lasting(self) -> list[Any]:
        """The parts that stay installed without a listener. The last one installed comes first, because
        two of them wrap the same function."""
        return [*self._followers[::-1], *self._always[::-1]]

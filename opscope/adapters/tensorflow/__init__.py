"""The TensorFlow adapter: supported versions, hooks, what each hook emits, and removal.

While something listens, it hooks the two entry points of eager ops and the gradient function (ops), the
call of a function's graph (a range for the run, and specs of the nodes), the tracing of functions, the
annotations with which TensorFlow announces each graph op that it runs, and sessions of TensorFlow 1 style.
While nothing listens, it only watches graphs being built, so that the source lines of their nodes are
known, and counts runs of training functions as steps.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.compiled import BuildError
from opscope.adapters.shared.saves import Saves
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter
from opscope.core.schema import UNHEARD_READS

from .eager import EagerOps
from .functions import Functions
from .graphs import Graphs
from .profiled import Profiled
from .programs import Programs
from .running import GraphRanges, Recording, inputs_library, observer_library, prepare
from .steps import Steps

_log = logging.getLogger(__name__)
_SAVES = (
    "tensorflow:train.Checkpoint.save",
    "tensorflow:train.Checkpoint.write",
    "tensorflow:saved_model.save",
)


class TensorFlowAdapter(Adapter):
    """TensorFlow 2: eager ops, functions, and sessions."""

    name: ClassVar[str] = "tensorflow"
    title: ClassVar[str] = "TensorFlow"
    module: ClassVar[str] = "tensorflow"
    #: 2.17 is the first version that announces graph ops in CPU builds too.
    requires: ClassVar[str] = ">=2.17"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._eager: EagerOps | None = None
        self._functions: Functions | None = None
        self._graphs: Graphs | None = None
        self._ranges: GraphRanges | None = None
        self._optimizers: Callable[[], None] | None = None
        self._saves = Saves(self.failed)
        self._recording: tuple[Any, Recording] | None = None
        #: The replacement of ``_ranges`` where that is unavailable, and the reason.
        self._profiled: Profiled | None = None
        self._why: str | None = None
        #: The recorder that has the note about the reads that are not observed.
        self._noted: Any = None

    @classmethod
    def prepare(cls, options: Options) -> None:
        """Build the library that observes graph ops, and the one that reads the sizes of their inputs."""
        prepare(sys.modules["tensorflow"])

    @classmethod
    def build(cls) -> Iterator[Path]:
        """Build the same two libraries and yield their paths. Raises BuildError on failure."""
        yield observer_library()
        yield inputs_library(sys.modules["tensorflow"])

    def install(self, emitter: Emitter, options: Options) -> None:
        """Watch graphs being built, and hook the rest if something already listens."""
        if self._emitter is not None:
            return
        self.prepare(options)
        self.broken = False
        sources = Sources() if options.source else None
        self._graphs = Graphs(emitter, sources, self._definition, self._imported)
        self._eager = EagerOps(emitter, sources, options.shapes, self.failed)
        programs = Programs(emitter, options.shapes)
        steps = Steps(self._graphs.trains) if options.steps else None
        self._functions = Functions(
            emitter, self._graphs, self._eager, programs, steps, self.failed
        )
        self._emitter = emitter
        if options.steps:
            self._saves.install(*_SAVES)
        self._functions.watch()
        self._optimizers = session.on_optimizer(
            self._eager.optimizer_begins, self._eager.optimizer_ends
        )
        self.listen()

    def listen(self) -> None:
        """Hook while the emitter is active, else unhook."""
        eager, functions, emitter = self._eager, self._functions, self._emitter
        if eager is None or functions is None or emitter is None or self.broken:
            return
        try:
            if emitter.active:
                self._begin(emitter)
                functions.install(self._ranges or self._profiled)
                if not eager.install(self._ranges):
                    self._note_unheard()
            else:
                self._stop()
        except Exception:  # noqa: BLE001 - the capture and the program go on without this adapter
            self.failed("hooks could not be set")

    def _begin(self, emitter: Emitter) -> None:
        """Observe graph ops, for the current recorder if there is one."""
        assert self._graphs is not None
        assert self._functions is not None
        recorder = session.recorder()
        if self._recording is not None and self._recording[0] is recorder:
            return
        self._forget_recorder()
        self._graphs.begin()
        self._functions.begin()
        if self._ranges is None and self._why is None:
            try:
                self._ranges = GraphRanges.load(sys.modules["tensorflow"])
            except BuildError as error:
                self._why = str(error)
                if emitter.nvtx:
                    _log.warning(
                        "opscope: NVTX gets no ranges for ops inside tf.function: %s", error
                    )
        ranges = self._ranges
        if ranges is None:
            if recorder is not None and recorder.ring:
                recorder.note(
                    "info",
                    "ops inside tf.function are not recorded: opscope's own observer is not available, and"
                    f" TensorFlow's profiler keeps all, which no ring can hold: {self._why}",
                )
            elif recorder is not None:
                recorder.note(
                    "info",
                    "TensorFlow's profiler records the ops inside tf.function, as opscope's own "
                    f"observer is not available: {self._why}",
                )
                self._profiled = Profiled(recorder)
                self._profiled.start()
            return
        if recorder is not None:
            recording = Recording(ranges)
            self._recording = recorder, recording
            recorder.attach(recording)
            for domain in ranges.domains:
                recorder.fact(**domain)
        ranges.listen(recorder is not None, emitter.nvtx)

    def _note_unheard(self) -> None:
        """Note once in a recording that it lacks some reads of values."""
        recorder = session.recorder()
        if recorder is not None and recorder is not self._noted:
            self._noted = recorder
            recorder.note("info", UNHEARD_READS)

    def _forget_recorder(self) -> None:
        if self._profiled is not None:
            self._profiled.stop()
            self._profiled = None
        if self._recording is not None:
            recorder, recording = self._recording
            self._recording = None
            if recording.lost:
                recorder.note(
                    "warning",
                    "graph ops were not recorded: opscope's memory for them was full",
                    recording.lost,
                )
            if self._ranges is not None and self._ranges.sizes_reason is not None:
                why = self._ranges.sizes_reason
                recorder.note("warning", f"tensor sizes that graphs do not know are missing: {why}")

    def _stop(self) -> None:
        if self._eager is not None:
            self._eager.uninstall()
        if self._functions is not None:
            self._functions.uninstall()
        if self._ranges is not None:
            self._ranges.silence()
        self._forget_recorder()

    def uninstall(self) -> None:
        """Remove every hook."""
        if self._emitter is None:
            return
        self._stop()
        self._saves.uninstall()
        assert self._functions is not None
        self._functions.unwatch()
        if self._optimizers is not None:
            self._optimizers()
            self._optimizers = None
        self._emitter = self._eager = self._functions = self._graphs = None

    def withdraw(self) -> None:
        """Remove all hooks but keep the adapter's objects: one of its hooks may still be running."""
        self._stop()
        if self._functions is not None:
            self._functions.unwatch()

    @staticmethod
    def _definition(name: str) -> Any | None:
        """Return a function's definition, None if the eager context does not know it."""
        from tensorflow.python.eager import context

        try:
            return context.context().get_function_def(name)
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; callers accept None
            _log.info("opscope: the definition of function %s was not found: %s", name, error)
            return None

    @staticmethod
    def _imported(definition: Any) -> Any | None:
        """Rebuild the graph of a function from its definition: it was traced before opscope was there."""
        from tensorflow.python.framework import function_def_to_graph

        try:
            return function_def_to_graph.function_def_to_graph(definition)
        except Exception as error:  # noqa: BLE001 - TensorFlow's importer raises many kinds
            # without the graph, the function's nodes have no spec
            name = definition.signature.name
            _log.info("opscope: the graph of function %s could not be rebuilt: %s", name, error)
            return None

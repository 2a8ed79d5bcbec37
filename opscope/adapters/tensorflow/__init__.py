"""The TensorFlow adapter: which versions, what is hooked, what is emitted, how it is undone.

While something listens: the two entries of eager ops and the gradient function (ops), the call of a
function's graph (its run, and the specs of its nodes), the tracing of functions, TensorFlow's own
announcements of the graph ops that it runs, and sessions of TensorFlow 1 style. While nothing listens
only the making of graphs is watched, so that their nodes' source lines are known, and runs of training
functions are counted as steps.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from opscope.adapters.base import Adapter, Options
from opscope.adapters.shared.compiled import BuildError
from opscope.adapters.shared.source import Sources
from opscope.core.capture import session
from opscope.core.capture.emit import Emitter

from .eager import EagerOps
from .functions import Functions
from .graphs import Graphs
from .profiled import Profiled
from .programs import Programs
from .running import GraphRanges, Recording, ears_library, inputs_library, prepare
from .steps import Steps

_log = logging.getLogger(__name__)


class TensorFlowAdapter(Adapter):
    """TensorFlow 2: eager ops, functions, and sessions."""

    name: ClassVar[str] = "tensorflow"
    title: ClassVar[str] = "TensorFlow"
    module: ClassVar[str] = "tensorflow"
    #: The first that announces the ops of graphs in CPU builds too.
    requires: ClassVar[str] = ">=2.17"

    def __init__(self) -> None:
        self._emitter: Emitter | None = None
        self._eager: EagerOps | None = None
        self._functions: Functions | None = None
        self._graphs: Graphs | None = None
        self._ranges: GraphRanges | None = None
        self._optimizers: Callable[[], None] | None = None
        self._recording: tuple[Any, Recording] | None = None
        #: What stands in for ``_ranges`` where these cannot be had, and why.
        self._profiled: Profiled | None = None
        self._why: str | None = None

    @classmethod
    def prepare(cls, options: Options) -> None:
        """What hears graph ops, and what reads their sizes."""
        prepare(sys.modules["tensorflow"])

    @classmethod
    def build(cls) -> Iterator[Path]:
        """Likewise."""
        yield ears_library()
        yield inputs_library(sys.modules["tensorflow"])

    def install(self, emitter: Emitter, options: Options) -> None:
        """Watch graphs being made, and hook the rest if something listens already."""
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
        self._functions.watch()
        self._optimizers = session.on_optimizer(
            self._eager.optimizer_begins, self._eager.optimizer_ends
        )
        self.listen()

    def listen(self) -> None:
        """Hook or unhook as the emitter is active or not."""
        eager, functions, emitter = self._eager, self._functions, self._emitter
        if eager is None or functions is None or emitter is None or self.broken:
            return
        try:
            if emitter.active:
                self._begin(emitter)
                functions.install(self._ranges or self._profiled)
                eager.install()
            else:
                self._stop()
        except Exception:  # noqa: BLE001 - a capture, and the program, go on without this adapter
            self.failed("hooks could not be set")

    def _begin(self, emitter: Emitter) -> None:
        """Hear graph ops, into the recorder that runs now, if any."""
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
                    _log.warning("opscope: NVTX has no ops inside tf.function: %s", error)
        ranges = self._ranges
        if ranges is None:
            if recorder is not None:
                recorder.note(
                    "info",
                    f"ops inside tf.function are told by TensorFlow's profiler: {self._why}",
                )
                self._profiled = Profiled(recorder)
                self._profiled.start()
            return
        if recorder is not None:
            recording = Recording(ranges)
            self._recording = recorder, recording
            recorder.attach(recording)
            recorder.fact(**ranges.domain)
        ranges.listen(recorder is not None, emitter.nvtx)

    def _forget_recorder(self) -> None:
        if self._profiled is not None:
            self._profiled.stop()
            self._profiled = None
        if self._recording is not None:
            recorder, recording = self._recording
            self._recording = None
            if recording.lost:
                recorder.note(
                    "warning", "ops of graphs were not recorded for want of memory", recording.lost
                )
            if self._ranges is not None and self._ranges.sizes_lack is not None:
                why = self._ranges.sizes_lack
                recorder.note("warning", f"sizes that graphs do not know are not told: {why}")

    def _stop(self) -> None:
        if self._eager is not None:
            self._eager.uninstall()
        if self._functions is not None:
            self._functions.uninstall()
        if self._ranges is not None:
            self._ranges.silence()
        self._forget_recorder()

    def uninstall(self) -> None:
        """Take every hook away."""
        if self._emitter is None:
            return
        self._stop()
        assert self._functions is not None
        self._functions.unwatch()
        if self._optimizers is not None:
            self._optimizers()
            self._optimizers = None
        self._emitter = self._eager = self._functions = self._graphs = None

    def withdraw(self) -> None:
        """All hooks; what stands in a program's graphs stays, and tells nothing."""
        self._stop()
        if self._functions is not None:
            self._functions.unwatch()

    @staticmethod
    def _definition(name: str) -> Any | None:
        """A function's definition, where the eager context knows it."""
        from tensorflow.python.eager import context

        try:
            return context.context().get_function_def(name)
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; what asks does without
            _log.info("opscope: function %s is not known: %s", name, error)
            return None

    @staticmethod
    def _imported(definition: Any) -> Any | None:
        """A function's graph, made again from its definition: it was traced before us."""
        from tensorflow.python.framework import function_def_to_graph

        try:
            return function_def_to_graph.function_def_to_graph(definition)
        except Exception as error:  # noqa: BLE001 - TensorFlow's importer raises many kinds
            # the function's nodes then have no spec
            name = definition.signature.name
            _log.info("opscope: the graph of %s is not known: %s", name, error)
            return None

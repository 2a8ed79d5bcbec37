"""Push a range around each run of a function or session, and emit the graph's specs before the first.

Also pair gradients: TensorFlow calls one function for each op that it differentiates, with the op's name
and tensors. The ops that this function runs eagerly, or adds to a graph, belong to that op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from tensorflow.python import pywrap_tfe
from tensorflow.python.client import session as sessions
from tensorflow.python.eager import backprop, context
from tensorflow.python.eager.polymorphic_function import atomic_function, tracing_compilation
from tensorflow.python.framework import ops

from opscope.adapters.shared.patch import Patches
from opscope.adapters.shared.phase import in_phase
from opscope.core.capture.emit import Emitter
from opscope.core.schema import COMPILE

from .eager import EagerOps
from .graphs import Graphs, Known
from .profiled import Profiled
from .programs import Programs
from .running import GraphRanges
from .steps import Steps
from .tapes import Tapes

#: TensorFlow's function that traces a tf.function and builds its graph.
_TRACING: Final = "_create_concrete_function"


class Functions:
    """Hooks of functions: ``watch`` records the graph of each function, ``install`` also its runs."""

    def __init__(
        self,
        emitter: Emitter,
        graphs: Graphs,
        eager: EagerOps,
        programs: Programs,
        steps: Steps | None,
        failed: Callable[[str], None],
    ) -> None:
        self._emitter = emitter
        self._eager = eager
        self._graphs = graphs
        self._programs = programs
        self._steps = steps
        self._failed = failed
        self._tapes = Tapes(eager, graphs, failed)
        self._watched = Patches()
        self._patches = Patches()
        self._ranges: GraphRanges | Profiled | None = None
        self.on = False

    def watch(self) -> None:
        """Record each function's graph when it is built, which nodes differentiate which, and steps."""
        if not self._watched:
            if self._steps is not None:
                self._watched.wrap(atomic_function.AtomicFunction, "call_flat", self._stepping)
            self._watched.wrap(atomic_function, "from_func_graph", self._build)
            self._tapes.watch(self._watched)
            self._watched.wrap(backprop, "_gradient_function", self._differentiate)
            # TensorFlow holds this function in C, so a new one must be registered there
            pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)

    def unwatch(self) -> None:
        """Remove the hooks of ``watch``."""
        if self._watched:
            self._watched.restore()
            pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)

    def begin(self) -> None:
        """Begin a new capture: it has no program's specs yet."""
        self._programs.begin()

    def install(self, ranges: GraphRanges | Profiled | None) -> None:
        """Hook runs of graphs: push a range around each."""
        self.on = True
        self._ranges = ranges
        if not self._patches:
            self._patches.wrap(atomic_function.AtomicFunction, "call_flat", self._called)
            self._patches.wrap(sessions.BaseSession, "_call_tf_sessionrun", self._session)
            if _TRACING in vars(tracing_compilation):  # a private name, which may differ by version
                self._patches.wrap(tracing_compilation, _TRACING, self._traced)

    def uninstall(self) -> None:
        """Remove the hooks of ``install``."""
        self.on = False
        self._patches.restore()

    def _build(self, original: Any) -> Any:
        @functools.wraps(original)
        def from_func_graph(name: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
            function_graph = original(name, graph, *args, **kwargs)
            try:
                self._graphs.built(_text(function_graph.name), graph)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a function's graph could not be stored")
            return function_graph

        return from_func_graph

    def _differentiate(self, original: Any) -> Any:
        eager, graphs = self._eager, self._graphs
        eagerly, default_graph = context.executing_eagerly, ops.get_default_graph

        @functools.wraps(original)
        def _gradient_function(
            name: Any, attrs: Any, count: Any, inputs: Any, outputs: Any, *rest: Any
        ) -> Any:
            op_name = _text(name)
            if not eagerly():
                graph = default_graph()
                before = graph.version
                result = original(name, attrs, count, inputs, outputs, *rest)
                try:
                    graphs.differentiated(graph, before, graph.version, op_name, inputs, outputs)
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    self._failed("a gradient could not be paired with its forward op")
                return result
            if not self.on:
                return original(name, attrs, count, inputs, outputs, *rest)
            eager.enter_gradient(op_name, inputs, outputs)
            try:
                return original(name, attrs, count, inputs, outputs, *rest)
            finally:
                eager.leave_gradient()

        return _gradient_function

    def _stepping(self, original: Any) -> Any:
        steps = self._steps
        assert steps is not None
        eagerly = context.executing_eagerly

        @functools.wraps(original)
        def call_flat(function: Any, *args: Any) -> Any:
            if not eagerly():
                return original(function, *args)
            kind = None
            try:
                kind = steps.begins(_text(function.name), lambda: function.graph)
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                self._failed("a training step could not be counted")
            try:
                return original(function, *args)
            finally:
                if kind is not None:
                    steps.ended(kind)

        return call_flat

    def _called(self, original: Any) -> Any:
        emitter = self._emitter
        eagerly = context.executing_eagerly

        @functools.wraps(original)
        def call_flat(function: Any, *args: Any) -> Any:
            if not self.on or not eagerly():
                return original(function, *args)
            function_record = self._open(_text(function.name), lambda: function.graph)
            try:
                return original(function, *args)
            finally:
                if function_record is not None:
                    emitter.pop()
                    if function_record.compiled:
                        self._compiled(function_record)

        return call_flat

    def _traced(self, original: Any) -> Any:
        return in_phase(original, self._emitter, COMPILE, lambda: self.on)

    def _session(self, original: Any) -> Any:
        emitter = self._emitter

        @functools.wraps(original)
        def _call_tf_sessionrun(session_call: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.on:
                return original(session_call, *args, **kwargs)
            graph = session_call.graph
            # A TensorFlow 1 graph grows: each of its versions is treated as a separate graph.
            name = f"graph_{id(graph):x}_{graph.version}"
            function_record = self._open(name, lambda: graph)
            try:
                return original(session_call, *args, **kwargs)
            finally:
                if function_record is not None:
                    emitter.pop()
                    if function_record.compiled:
                        self._compiled(function_record)

        return _call_tf_sessionrun

    def _open(self, name: str, graph: Callable[[], Any]) -> Known | None:
        try:
            function_record = self._graphs.run(name, graph)
            if self._ranges is not None:
                self._ranges.before_run(function_record.unknown, function_record.compiled)
            self._emitter.push(function_record.run)
            return function_record
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the run of a function could not be recorded")
            return None

    def _compiled(self, function_record: Known) -> None:
        """Emit the specs of new XLA programs: XLA has run a function and may have just compiled it."""
        try:
            if isinstance(self._ranges, GraphRanges) and self.on:
                self._programs.emit_new(self._ranges, function_record.origins)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the operations of a function compiled by XLA could not be described")


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)

"""Emit specs, which describe the nodes of a function's graph, when the graph first runs or is built."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opscope.adapters.shared.source import Sources
from opscope.core.capture.emit import Emitter, Prepared
from opscope.core.rangetext import format_spec
from opscope.core.schema import OpCall, TensorSpec

from .call import arguments
from .nodes import FUNCTION, Nodes

#: Part of the names of functions that datasets run.
_DATASET: Final = "_Dataset_"
#: Attribute of a function that XLA must compile.
_MUST_COMPILE: Final = "_XlaMustCompile"
#: Attribute of a function: the function that it differentiates.
_DIFFERENTIATES: Final = "forward_function_name"
#: Nodes to describe in one graph.
MAX_NODES: Final = 200_000

#: Function that XLA compiles → node name → the node's call. XLA's operations are described from these.
Origins = dict[str, dict[str, OpCall]]


@dataclass(frozen=True, slots=True)
class Known:
    """A described graph: the range of its runs, its specs, and how it runs."""

    run: Prepared
    specs: list[Prepared]
    #: Some sizes are unknown until the graph runs.
    unknown: bool
    #: XLA compiles the graph, or a function that it calls.
    compiled: bool
    origins: Origins


class Graphs:
    """The graphs of a program's functions, and which of them have their specs in the current capture."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        definition: Callable[[str], Any | None],
        imported: Callable[[Any], Any | None],
    ) -> None:
        """``definition`` finds a function's FunctionDef, ``imported`` builds a graph from one."""
        self._emitter = emitter
        self._definition = definition
        self._imported = imported
        self._nodes = Nodes(sources, self.graph, self._forward, self._pairs, self._of_tapes)
        #: Rebuilt graphs of functions that were traced before opscope was installed.
        self._again: dict[str, Any] = {}
        self._graphs: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._known: dict[str, Known] = {}
        self._emitted: set[str] = set()
        #: Graph → (from, to, name): the nodes in the span [from, to) differentiate node ``name``.
        self._gradients: weakref.WeakKeyDictionary[Any, list[tuple[int, int, str]]] = (
            weakref.WeakKeyDictionary()
        )

        #: Graph → (from, to): traversals of gradient tapes created the nodes in the span [from, to).
        self._taped: weakref.WeakKeyDictionary[Any, list[tuple[int, int]]] = (
            weakref.WeakKeyDictionary()
        )

    def built(self, name: str, graph: Any) -> None:
        """Record that function ``name`` has this FuncGraph."""
        self._graphs[name] = graph
        if _DATASET in name and self._emitter.active:
            self.run(name, lambda: graph)

    def begin(self) -> None:
        """Begin a new capture: it has no specs yet. Emit the specs of tf.data now, as no hook sees it run."""
        self._emitted.clear()
        for name, graph in list(self._graphs.items()):
            if _DATASET in name:
                self.run(name, lambda graph=graph: graph)  # type: ignore[misc]

    def differentiated(
        self, graph: Any, before: int, after: int, name: str, inputs: Any, outputs: Any
    ) -> None:
        """Record that the nodes from ``before`` to ``after`` are the gradient of the op that has these
        tensors."""
        forward = _maker(name, inputs, outputs)
        if forward is not None and forward.graph is graph and after > before:
            self._gradients.setdefault(graph, []).append((before, after, forward.name))

    def taped(self, graph: Any, before: int, after: int) -> None:
        """Record that a traversal of a gradient tape created the nodes from ``before`` to ``after``."""
        if after > before:
            self._taped.setdefault(graph, []).append((before, after))

    def graph(self, name: str) -> Any | None:
        """Return the FuncGraph of a function, as traced or else rebuilt from its definition; or None."""
        entry = self._graphs.get(name)
        if entry is not None:
            return entry
        if name not in self._again:
            definition = self._definition(name)
            self._again[name] = None if definition is None else self._imported(definition)
        return self._again[name]

    def run(self, name: str, graph: Callable[[], Any]) -> Known:
        """Describe a graph that is about to run, and emit its specs if the capture lacks them."""
        function_record = self._known.get(name)
        if function_record is None:
            function_record = self._describe(name, self._graphs.get(name) or graph())
        if name not in self._emitted:
            self._emitted.add(name)
            for spec in function_record.specs:
                self._emitter.mark(spec)
        return function_record

    def trains(self, name: str, graph: Callable[[], Any]) -> bool:
        """Whether a run of the function is a training step."""
        return self._nodes.trains(self._graphs.get(name) or graph())

    def _describe(self, name: str, graph: Any) -> Known:
        emitter = self._emitter
        specs: list[Prepared] = []
        unknown = False
        inside = {name: graph} if self._compiled(name) else {}
        for key, call in itertools.islice(self._nodes.calls(graph, name), MAX_NODES):
            unknown |= _unknown(call)
            function = call.param(FUNCTION)
            if isinstance(function, str) and function not in inside and self._compiled(function):
                inside[function] = self.graph(function)
            specs.append(emitter.prepare(format_spec(name, key, call), "spec"))
        if name in inside:  # XLA runs it as one op with the function's name
            given, results = arguments(graph.inputs), arguments(graph.outputs)
            params = ((FUNCTION, name), *self._nodes.differentiates(name))
            whole = OpCall("StatefulPartitionedCall", given, results, params)
            specs.append(emitter.prepare(format_spec(name, name, whole), "spec"))
        origins = {
            function: dict(itertools.islice(self._nodes.calls(inner_graph, function), MAX_NODES))
            for function, inner_graph in inside.items()
            if inner_graph is not None
        }
        function_record = Known(
            emitter.prepare(name, "graph"), specs, unknown, bool(inside), origins
        )
        self._known[name] = function_record
        return function_record

    def _compiled(self, name: str) -> bool:
        """Whether XLA compiles this function."""
        definition = self._definition(name)
        return definition is not None and definition.attr[_MUST_COMPILE].b

    def _forward(self, name: str) -> str | None:
        """Return the function that this one differentiates, or None."""
        definition = self._definition(name)
        return None if definition is None else definition.attr[_DIFFERENTIATES].s.decode() or None

    def _pairs(self, graph: Any) -> list[tuple[int, int, str]]:
        return self._gradients.get(graph, [])

    def _of_tapes(self, graph: Any) -> list[tuple[int, int]]:
        return self._taped.get(graph, [])


def _maker(name: str, inputs: Any, outputs: Any) -> Any | None:
    """Return the node of op type ``name`` that made the outputs or took the inputs, or None.

    TensorFlow passes None for tensors that the gradient does not need.
    """
    for output in outputs or ():
        node = getattr(output, "op", None)
        if node is not None and node.type == name:
            return node
    took = [input_tensor for input_tensor in inputs or () if hasattr(input_tensor, "consumers")]
    nodes = [
        node for input_tensor in took[:1] for node in input_tensor.consumers() if node.type == name
    ]
    for node in nodes:
        names = {input_.name for input_ in node.inputs}
        if all(input_tensor.name in names for input_tensor in took):
            return node
    return None


def _unknown(call: OpCall) -> bool:
    return any(
        isinstance(tensor, TensorSpec) and "?" in tensor.shape
        for tensor in (*call.inputs, *(call.outputs or ()))
    )

"""From a graph's nodes to OpCalls: those of the functions that it calls too, and of fused kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from opscope.adapters.shared import scopes
from opscope.adapters.shared.source import Sources
from opscope.core import node_names
from opscope.core.schema import Frame, OpCall, ParamValue

from .call import node_call, tensor_spec
from .fusion import chains, fused_call

#: Ops whose functions are inlined into the graph that calls them, the caller's name before theirs.
_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
#: Loops and branches: the attribute that holds the function, and what inlining calls it.
_BODIES: Final = {
    **dict.fromkeys(("While", "StatelessWhile"), (("body", "body"), ("cond", "cond"))),
    **dict.fromkeys(("If", "StatelessIf"), (("then_branch", "then"), ("else_branch", "else"))),
}
_CASES: Final = frozenset({"Case", "StatelessCase"})
#: Never kernels of their own.
_UNTOLD: Final = frozenset({"NoOp"})
#: What the name of a function's result cannot have.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]")
#: Functions within functions deeper than this are left out.
_DEPTH: Final = 16
#: The parameter of a call of a function: the function's name; and of what differentiates one.
FUNCTION: Final = "function"
FORWARD_GRAPH: Final = "forward_graph"
#: The parameter of a node whose name does not tell it.
DIRECTION: Final = "direction"
#: A node of a gradient that TensorFlow made of a whole function: of which node it is follows.
_OF_GRADIENT: Final = re.compile(r"gradients(?:_[0-9]+)?/(.+)")
_GRAD: Final = "_grad"
#: What stands before the scopes of nodes that differentiate others.
_TAPE: Final = re.compile(r"(?:gradient_tape|gradients(?:_[0-9]+)?)/")
_UPDATES: Final = (
    "ResourceApply",
    "ResourceSparseApply",
    "AssignSubVariableOp",
    "AssignAddVariableOp",
)


@dataclass(frozen=True, slots=True)
class _Gradient:
    """What a body differentiates: a function, run by itself or beside it in one graph."""

    function: str | None
    #: Before the names of that function's nodes.
    prefix: str
    nodes: frozenset[str]
    graph: Any


class _Walk:
    """A graph on the way through a program's: what all its nodes share."""

    def __init__(
        self,
        nodes: Nodes,
        graph: Any,
        prefix: str,
        gradient: _Gradient | None,
        layer: str | None,
        backward: bool,
        depth: int,
    ) -> None:
        self.graph = graph
        #: Before the names of its nodes, where it is inlined into another.
        self.prefix = prefix
        self.gradient = gradient
        #: The layer that calls it, and whether that is backward work.
        self.layer = layer
        self.backward = backward
        self.depth = depth
        self.operations = graph.get_operations()
        #: Nodes by number → the name of the one that they differentiate.
        self._forward = {
            number: name
            for before, after, name in nodes.pairs(graph)
            for number in range(before, after)
        }
        self._taped = {number for span in nodes.taped(graph) for number in range(*span)}
        self._layers = scopes.layers(graph)
        self._made = _made_for_ops(self.operations)
        #: What stands before the names of a function's nodes that a node of this graph called.
        self.called: dict[str, str] = {}

    def is_backward(self, number: int) -> bool:
        """Whether a tape made the node, or what calls the graph is backward work."""
        return self.backward or number in self._taped

    def layer_of(self, op: Any) -> str | None:
        """The layer in whose scope the node is, else that of the call; None where its name tells it."""
        mine = _layer(op.name, self._layers) or self.layer
        return _without_op(op.name, self._made) if mine is None else mine

    def differentiated(self, number: int, op: Any) -> tuple[Any, Any, list[tuple[str, ParamValue]]]:
        """The node that this one differentiates, its graph, and the parameters that tell of it."""
        if number in self._forward:
            name = self._forward[number]
            return _operation(self.graph, name), self.graph, [("forward", self.prefix + name)]
        found = None if self.gradient is None else _differentiated(op.name, self.gradient)
        if self.gradient is None or found is None:
            return None, None, []
        graph = self.gradient.graph
        return _operation(graph, found), graph, [*_differentiates(found, self.gradient)]


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as it is told, and what those that run with it or within it have of it."""

    op: Any
    key: str
    call: OpCall
    #: The node that it differentiates.
    source: Any
    layer: str | None
    backward: bool
    #: The parameter of a node that a tape made and that differentiates no other.
    of_tape: tuple[tuple[str, ParamValue], ...]


class Nodes:
    """Describes graphs. ``graph`` finds a function's, ``forward`` names what a function differentiates."""

    def __init__(
        self,
        sources: Sources | None,
        graph: Callable[[str], Any | None],
        forward: Callable[[str], str | None],
        pairs: Callable[[Any], list[tuple[int, int, str]]],
        taped: Callable[[Any], list[tuple[int, int]]],
    ) -> None:
        self._sources = sources
        self._graph = graph
        self._forward = forward
        self.pairs = pairs
        self.taped = taped

    def calls(self, graph: Any, name: str) -> Iterator[tuple[str, OpCall]]:
        """Key and call of each node of function ``name`` and of the functions inlined into it."""
        function = self._forward(name)
        gradient = None if function is None else self._gradient(function, function, "")
        yield from self._calls(_Walk(self, graph, "", gradient, None, False, 0))

    def differentiates(self, function: str) -> Iterator[tuple[str, ParamValue]]:
        """The parameter that tells which function this one differentiates, if any."""
        forward = self._forward(function)
        if forward is not None:
            yield FORWARD_GRAPH, forward

    def trains(self, graph: Any) -> bool:
        """Whether a run of the graph differentiates something and updates variables."""
        backward, updates = self._does(graph, 0)
        return backward and updates

    def _does(self, graph: Any, depth: int) -> tuple[bool, bool]:
        backward, updates = bool(self.pairs(graph)), False
        for op in graph.get_operations():
            backward = backward or _TAPE.match(op.name) is not None
            updates = updates or op.type.startswith(_UPDATES)
            if depth < _DEPTH and not (backward and updates):
                for name, _ in _inner(op, ""):
                    body = self._graph(name)
                    if body is not None:
                        inner = self._does(body, depth + 1)
                        backward, updates = backward or inner[0], updates or inner[1]
            if backward and updates:
                break
        return backward, updates

    def _gradient(self, function: str, told: str | None, prefix: str) -> _Gradient | None:
        graph = self._graph(function)
        if graph is None:
            return None
        nodes = frozenset(op.name for op in graph.get_operations())
        return _Gradient(told, prefix, nodes, graph)

    def _calls(self, walk: _Walk) -> Iterator[tuple[str, OpCall]]:
        for number, op in enumerate(walk.operations):
            if op.type in _UNTOLD:
                continue
            node = self._node(walk, number, op)
            yield node.key, node.call
            yield from self._fused(walk, node)
            yield from self._within(walk, node)
        for one in getattr(walk.graph, "outputs", ()):
            name = _UNUSUAL.sub("_", one.op.name).lower()
            yield f"{walk.prefix}{name}_retval_RetVal", OpCall("_Retval", (tensor_spec(one),), ())

    def _node(self, walk: _Walk, number: int, op: Any) -> _Node:
        key = walk.prefix + op.name
        source, graph, more = walk.differentiated(number, op)
        call = node_call(op, self._frames(op if source is None else source))
        layer = walk.layer_of(op)
        if source is not None:
            # as of an eager op: where the op stands that it differentiates, not the tape's end
            layer = _layer(source.name, scopes.layers(graph)) or layer or _scope(source.name)
        backward = walk.is_backward(number)
        of_tape = ((DIRECTION, "backward"),) if backward and not more else ()
        more += of_tape
        if layer is not None:
            more.append(("layer", layer))
        if op.type in _CALLS:
            more += [(FUNCTION, _called(op)), *self.differentiates(_called(op))]
            walk.called[_called(op)] = f"{key}/"
        call = replace(call, params=(*call.params, *more))
        if op.type == "Placeholder":  # runs as the argument that it stands for
            call = OpCall("_Arg", (), call.outputs)
        return _Node(op, key, call, source, layer, backward, of_tape)

    def _fused(self, walk: _Walk, node: _Node) -> Iterator[tuple[str, OpCall]]:
        """The kernels that may run the node together with those before it."""
        for root, chain in chains(node.op):
            inside = tuple(walk.prefix + one.name for one in chain)
            call = fused_call(chain, node.call, inside)
            first = chain[-1]
            # the kernel bears the last node's name, and is the work of the one it begins with
            layer = walk.layer_of(first) if node.source is None else node.layer
            told = ("layer", _scope(first.name) if layer is None else layer)
            yield (
                f"{node.key}:{root}",
                replace(
                    call,
                    params=(*call.params, *node.of_tape, told),
                    frames=self._frames(first) if node.source is None else node.call.frames,
                ),
            )

    def _within(self, walk: _Walk, node: _Node) -> Iterator[tuple[str, OpCall]]:
        """The nodes of the functions that the node runs."""
        if walk.depth >= _DEPTH:
            return
        for name, prefix in _inner(node.op, node.key):
            body = self._graph(name)
            if body is None:
                continue
            function = self._forward(name)
            place = None if function is None else walk.called.get(function)
            gradient = (
                None if function is None or place is None else self._gradient(function, None, place)
            )
            layer, depth = node.layer or None, walk.depth + 1
            yield from self._calls(_Walk(self, body, prefix, gradient, layer, node.backward, depth))

    def _frames(self, op: Any) -> tuple[Frame, ...]:
        if self._sources is None:
            return ()
        trace = op.traceback
        if trace is None:
            return ()
        return self._sources.places((one.filename, one.lineno) for one in reversed(trace))


def _layer(name: str, layers: dict[str, str]) -> str | None:
    """The layer in whose name scope the node is, or the node that it differentiates."""
    if not layers:
        return None
    scope = _TAPE.sub("", name, count=1)
    while scope:
        scope = scope.rpartition("/")[0]
        found = layers.get(scope) or layers.get(scope.removesuffix(_GRAD))
        if found is not None:
            return found
    return None


def _made_for_ops(operations: list[Any]) -> set[str]:
    """Scopes that are no more than ops: what ``net/MatMul`` reads is ``net/MatMul/ReadVariableOp``.

    The op itself may have turned out to be needless.
    """
    reads = {op.name.rpartition("/")[0] for op in operations if op.type == "ReadVariableOp"}
    others = {op.name.rpartition("/")[0] for op in operations if op.type != "ReadVariableOp"}
    inside = {scope.rpartition("/")[0] for scope in reads | others}
    return {op.name for op in operations} | (reads - others - inside)


def _without_op(name: str, made: set[str]) -> str | None:
    """The scopes of a node in such a scope; None for any other."""
    parent = name.rpartition("/")[0]
    return parent.rpartition("/")[0] if parent in made and not _TAPE.match(name) else None


def _scope(name: str) -> str:
    """The scopes that a node's name tells, "" where there is none."""
    return node_names.layer_of(name) or ""


def _operation(graph: Any, name: str) -> Any | None:
    """The node of that name; None where the graph has it no longer."""
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def _differentiates(node: str, gradient: _Gradient) -> Iterator[tuple[str, ParamValue]]:
    """The parameters that tell of which node this one is the gradient."""
    yield "forward", gradient.prefix + node
    if gradient.function is not None:
        yield FORWARD_GRAPH, gradient.function


def _differentiated(name: str, gradient: _Gradient) -> str | None:
    """``gradients/net/MatMul_grad/MatMul_1`` is of ``net/MatMul``."""
    found = _OF_GRADIENT.match(name)
    path = found.group(1) if found else ""
    at = len(path)
    while (at := path.rfind(_GRAD, 0, at)) > 0:
        if path[at + len(_GRAD) :][:1] in ("", "/") and path[:at] in gradient.nodes:
            return path[:at]
    return None


def _called(op: Any) -> str:
    name: str = op.node_def.attr["f"].func.name
    return name


def _inner(op: Any, key: str) -> Iterator[tuple[str, str]]:
    """Functions that a node runs: their names, and what stands before their nodes' names."""
    if op.type not in _CALLS and op.type not in _BODIES and op.type not in _CASES:
        return
    attributes = op.node_def.attr
    if op.type in _CALLS:
        yield _called(op), f"{key}/"
    elif op.type in _BODIES:
        for attribute, called in _BODIES[op.type]:
            yield attributes[attribute].func.name, f"{key}/{called}/_/"
    else:
        for number, branch in enumerate(attributes["branches"].list.func):
            yield branch.name, f"{key}/branch{number}/_/"

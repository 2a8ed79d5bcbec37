"""Make OpCalls of a graph's nodes, of the nodes of functions that it calls, and of fused kernels."""

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

#: Ops whose function is inlined into the calling graph; its node names get the caller's as a prefix.
_CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
#: Loops and branches: (attribute that holds the function, its name in the inlined nodes).
_BODIES: Final = {
    **dict.fromkeys(("While", "StatelessWhile"), (("body", "body"), ("cond", "cond"))),
    **dict.fromkeys(("If", "StatelessIf"), (("then_branch", "then"), ("else_branch", "else"))),
}
_CASES: Final = frozenset({"Case", "StatelessCase"})
#: Ops that never run as a kernel; they get no spec.
_NEVER_RUN: Final = frozenset({"NoOp"})
#: Characters that the name of a function's result cannot have.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]")
#: Limit of nested function calls; deeper functions are left out.
_DEPTH: Final = 16
#: Parameters: the function that a node calls, and the function that a function differentiates.
FUNCTION: Final = "function"
FORWARD_GRAPH: Final = "forward_graph"
#: Parameter: the direction of a node whose name does not show it.
DIRECTION: Final = "direction"
#: The name of a node in the gradient of a whole function; the group names the forward node.
_OF_GRADIENT: Final = re.compile(r"gradients(?:_[0-9]+)?/(.+)")
_GRAD: Final = "_grad"
#: Prefix of the scopes of nodes that differentiate other nodes.
_TAPE: Final = re.compile(r"(?:gradient_tape|gradients(?:_[0-9]+)?)/")
_UPDATES: Final = (
    "ResourceApply",
    "ResourceSparseApply",
    "AssignSubVariableOp",
    "AssignAddVariableOp",
)


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The function that a graph differentiates. It runs by itself, or is inlined into the same graph."""

    #: The function's name if it runs by itself, None if it is inlined.
    function: str | None
    #: Prefix of the names of that function's nodes.
    prefix: str
    nodes: frozenset[str]
    graph: Any


class _Walk:
    """One graph in the walk through a graph and the functions that it calls: data that its nodes share."""

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
        #: Prefix of the names of its nodes, if it is inlined into another graph.
        self.prefix = prefix
        self.gradient = gradient
        #: The layer of the node that calls it, and whether that node is backward work.
        self.layer = layer
        self.backward = backward
        self.depth = depth
        self.operations = graph.get_operations()
        #: Index of a node → the name of the node that it differentiates.
        self._forward = {
            number: name
            for before, after, name in nodes.pairs(graph)
            for number in range(before, after)
        }
        self._taped = {number for span in nodes.taped(graph) for number in range(*span)}
        self._layers = scopes.layers(graph)
        self._made = _made_for_ops(self.operations)
        #: Function that a node of this graph has called → prefix of the function's node names.
        self.called: dict[str, str] = {}

    def is_backward(self, number: int) -> bool:
        """Whether a gradient tape created the node, or the caller of this graph is backward work."""
        return self.backward or number in self._taped

    def layer_of(self, op: Any) -> str | None:
        """Return the layer whose scope contains the node, else the caller's layer.

        If neither is known, return the scopes around the op if the node's own scope is only an op; else None,
        and the layer is taken from the node's name.
        """
        mine = _layer(op.name, self._layers) or self.layer
        return _without_op(op.name, self._made) if mine is None else mine

    def differentiated(self, number: int, op: Any) -> tuple[Any, Any, list[tuple[str, ParamValue]]]:
        """Return the node that this one differentiates, its graph, and the parameters that name it."""
        if number in self._forward:
            name = self._forward[number]
            return _operation(self.graph, name), self.graph, [("forward", self.prefix + name)]
        pairs = None if self.gradient is None else _differentiate(op.name, self.gradient)
        if self.gradient is None or pairs is None:
            return None, None, []
        graph = self.gradient.graph
        return _operation(graph, pairs), graph, [*_differentiates(pairs, self.gradient)]


@dataclass(frozen=True, slots=True)
class _Node:
    """A described node, with the data that its fused kernels and called functions need."""

    op: Any
    key: str
    call: OpCall
    #: The node that it differentiates, or None.
    source: Any
    layer: str | None
    backward: bool
    #: The direction parameter, if the node is backward work that differentiates no single node; else empty.
    of_tape: tuple[tuple[str, ParamValue], ...]


class Nodes:
    """Describes the nodes of graphs.

    ``graph`` finds a function's graph, ``forward`` the function that a function differentiates. ``pairs``
    and ``taped`` give spans of node indices in a graph: ``pairs``: (from, to, name of the node that they
    differentiate); ``taped``: (from, to) of nodes that gradient tapes created.
    """

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
        """Yield the key and call of each node of function ``name`` and of the functions inlined into it."""
        function = self._forward(name)
        gradient = None if function is None else self._gradient(function, function, "")
        yield from self._calls(_Walk(self, graph, "", gradient, None, False, 0))

    def differentiates(self, function: str) -> Iterator[tuple[str, ParamValue]]:
        """Yield the parameter that names the function that this one differentiates, if any."""
        forward = self._forward(function)
        if forward is not None:
            yield FORWARD_GRAPH, forward

    def trains(self, graph: Any) -> bool:
        """Whether a run of the graph computes gradients and updates variables."""
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

    def _gradient(self, function: str, own_name: str | None, prefix: str) -> _Gradient | None:
        graph = self._graph(function)
        if graph is None:
            return None
        nodes = frozenset(op.name for op in graph.get_operations())
        return _Gradient(own_name, prefix, nodes, graph)

    def _calls(self, walk: _Walk) -> Iterator[tuple[str, OpCall]]:
        for number, op in enumerate(walk.operations):
            if op.type in _NEVER_RUN:
                continue
            node = self._node(walk, number, op)
            yield node.key, node.call
            yield from self._fused(walk, node)
            yield from self._within(walk, node)
        for output in getattr(walk.graph, "outputs", ()):
            name = _UNUSUAL.sub("_", output.op.name).lower()
            yield (
                f"{walk.prefix}{name}_retval_RetVal",
                OpCall("_Retval", (tensor_spec(output),), ()),
            )

    def _node(self, walk: _Walk, number: int, op: Any) -> _Node:
        key = walk.prefix + op.name
        source, graph, more = walk.differentiated(number, op)
        call = node_call(op, self._frames(op if source is None else source))
        layer = walk.layer_of(op)
        if source is not None:
            # like an eager op: the layer of the node that it differentiates, not the layer of the tape
            layer = _layer(source.name, scopes.layers(graph)) or layer or _scope(source.name)
        backward = walk.is_backward(number)
        of_tape = ((DIRECTION, "backward"),) if backward and not more else ()
        more += of_tape
        if layer is not None:
            more.append(("layer", layer))
        if op.type in _CALLS:
            more += [(FUNCTION, _call(op)), *self.differentiates(_call(op))]
            walk.called[_call(op)] = f"{key}/"
        call = replace(call, params=(*call.params, *more))
        if op.type == "Placeholder":  # runs as the function's argument
            call = OpCall("_Arg", (), call.outputs)
        return _Node(op, key, call, source, layer, backward, of_tape)

    def _fused(self, walk: _Walk, node: _Node) -> Iterator[tuple[str, OpCall]]:
        """Yield the key and call of each kernel that may run the node fused with nodes before it."""
        for root, chain in chains(node.op):
            inside = tuple(walk.prefix + operation.name for operation in chain)
            call = fused_call(chain, node.call, inside)
            first = chain[-1]
            # the kernel has the last node's name, and the layer and source of the first node
            layer = walk.layer_of(first) if node.source is None else node.layer
            layer_param = ("layer", _scope(first.name) if layer is None else layer)
            yield (
                f"{node.key}:{root}",
                replace(
                    call,
                    params=(*call.params, *node.of_tape, layer_param),
                    frames=self._frames(first) if node.source is None else node.call.frames,
                ),
            )

    def _within(self, walk: _Walk, node: _Node) -> Iterator[tuple[str, OpCall]]:
        """Yield the key and call of each node of the functions that the node runs."""
        if walk.depth >= _DEPTH:
            return
        for name, prefix in _inner(node.op, node.key):
            body = self._graph(name)
            if body is None:
                continue
            function = self._forward(name)
            caller = None if function is None else walk.called.get(function)
            gradient = (
                None
                if function is None or caller is None
                else self._gradient(function, None, caller)
            )
            layer, depth = node.layer or None, walk.depth + 1
            yield from self._calls(_Walk(self, body, prefix, gradient, layer, node.backward, depth))

    def _frames(self, op: Any) -> tuple[Frame, ...]:
        if self._sources is None:
            return ()
        trace = op.traceback
        if trace is None:
            return ()
        return self._sources.places((frame.filename, frame.lineno) for frame in reversed(trace))


def _layer(name: str, layers: dict[str, str]) -> str | None:
    """Return the layer whose name scope contains the node, or the node that it differentiates."""
    if not layers:
        return None
    scope = _TAPE.sub("", name, count=1)
    while scope:
        scope = scope.rpartition("/")[0]
        layer = layers.get(scope) or layers.get(scope.removesuffix(_GRAD))
        if layer is not None:
            return layer
    return None


def _made_for_ops(operations: list[Any]) -> set[str]:
    """Return the scopes that are ops and not layers: ``net/MatMul/ReadVariableOp`` is in ``net/MatMul``.

    The op itself may be missing because it was not needed.
    """
    reads = {op.name.rpartition("/")[0] for op in operations if op.type == "ReadVariableOp"}
    others = {op.name.rpartition("/")[0] for op in operations if op.type != "ReadVariableOp"}
    inside = {scope.rpartition("/")[0] for scope in reads | others}
    return {op.name for op in operations} | (reads - others - inside)


def _without_op(name: str, op_names: set[str]) -> str | None:
    """Return the scopes around the op of a node in a scope that ``op_names`` has; None for any other node."""
    parent = name.rpartition("/")[0]
    return parent.rpartition("/")[0] if parent in op_names and not _TAPE.match(name) else None


def _scope(name: str) -> str:
    """Return the scopes in a node's name, "" if there are none."""
    return node_names.layer_of(name) or ""


def _operation(graph: Any, name: str) -> Any | None:
    """Return the node of that name, None if the graph no longer has it."""
    try:
        return graph.get_operation_by_name(name)
    except (KeyError, ValueError):
        return None


def _differentiates(node: str, gradient: _Gradient) -> Iterator[tuple[str, ParamValue]]:
    """Yield the parameters that name the node whose gradient is computed."""
    yield "forward", gradient.prefix + node
    if gradient.function is not None:
        yield FORWARD_GRAPH, gradient.function


def _differentiate(name: str, gradient: _Gradient) -> str | None:
    """Return the forward node, ``net/MatMul`` for ``gradients/net/MatMul_grad/MatMul_1``, or None."""
    match = _OF_GRADIENT.match(name)
    path = match.group(1) if match else ""
    at = len(path)
    while (at := path.rfind(_GRAD, 0, at)) > 0:
        if path[at + len(_GRAD) :][:1] in ("", "/") and path[:at] in gradient.nodes:
            return path[:at]
    return None


def _call(op: Any) -> str:
    name: str = op.node_def.attr["f"].func.name
    return name


def _inner(op: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each function that a node runs, and the prefix of that function's node names."""
    if op.type not in _CALLS and op.type not in _BODIES and op.type not in _CASES:
        return
    attributes = op.node_def.attr
    if op.type in _CALLS:
        yield _call(op), f"{key}/"
    elif op.type in _BODIES:
        for attribute, called in _BODIES[op.type]:
            yield attributes[attribute].func.name, f"{key}/{called}/_/"
    else:
        for number, branch in enumerate(attributes["branches"].list.func):
            yield branch.name, f"{key}/branch{number}/_/"

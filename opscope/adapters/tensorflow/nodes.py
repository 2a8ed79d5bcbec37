"""From a graph's nodes to OpCalls: those of the functions that it calls too, and of fused kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from opscope.adapters.shared import scopes
from opscope.adapters.shared.source import Sources
from opscope.core import node_names
from opscope.core.schema import Arg, Frame, OpCall, ParamValue

from .call import arguments, device_name, parameters, tensor_spec

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
#: Ops that Grappler and oneDNN fuse onto the end of another, keeping the last one's name …
_FOLLOWERS_NAMES: Final = """
    BiasAdd Add AddV2 Relu Relu6 Elu LeakyRelu Tanh Sigmoid Mul Maximum FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 Sub Cast Identity
"""
_FOLLOWERS: Final = frozenset(_FOLLOWERS_NAMES.split())
#: … and those that such a chain begins with: as the fused kernel's name has it.
_ROOTS: Final = {
    **{name: name for name in ("Conv2D", "Conv3D", "MatMul", "DepthwiseConv2dNative")},
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), "BatchMatMul"),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), "BatchNorm"),
}
_CHAIN: Final = 4
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
        self._pairs = pairs
        self._taped = taped

    def calls(self, graph: Any, name: str) -> Iterator[tuple[str, OpCall]]:
        """Key and call of each node of function ``name`` and of the functions inlined into it."""
        function = self._forward(name)
        gradient = None if function is None else self._gradient(function, function, "")
        yield from self._calls(graph, "", gradient, None, False, 0)

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
        backward, updates = bool(self._pairs(graph)), False
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

    def _calls(
        self,
        graph: Any,
        prefix: str,
        gradient: _Gradient | None,
        layer: str | None,
        backward: bool,
        depth: int,
    ) -> Iterator[tuple[str, OpCall]]:
        """``backward``: what calls this graph is backward work."""
        forward = {
            number: name
            for before, after, name in self._pairs(graph)
            for number in range(before, after)
        }
        taped = {number for span in self._taped(graph) for number in range(*span)}
        layers = scopes.layers(graph)
        called: dict[str, str] = {}
        operations = graph.get_operations()
        made = _made_for_ops(operations)

        def layer_of(op: Any) -> str | None:
            mine = _layer(op.name, layers) or layer
            return _without_op(op.name, made) if mine is None else mine

        for number, op in enumerate(operations):
            if op.type in _UNTOLD:
                continue
            key = prefix + op.name
            more: list[tuple[str, ParamValue]] = []
            of: tuple[Any, str] | None = None
            if number in forward:
                of = graph, forward[number]
                more.append(("forward", prefix + forward[number]))
            elif gradient is not None:
                node = _differentiated(op.name, gradient)
                if node is not None:
                    of = gradient.graph, node
                    more += _differentiates(node, gradient)
            source = None if of is None else _operation(*of)
            call = _call(op, self._frames(op if source is None else source))
            mine = layer_of(op)
            if source is not None and of is not None:
                # as of an eager op: where the op stands that it differentiates, not the tape's end
                mine = _layer(source.name, scopes.layers(of[0])) or mine or _scope(source.name)
            back = backward or number in taped
            of_tape = ((DIRECTION, "backward"),) if back and not more else ()
            more += of_tape
            if mine is not None:
                more.append(("layer", mine))
            if op.type in _CALLS:
                more += [(FUNCTION, _called(op)), *self.differentiates(_called(op))]
                called[_called(op)] = f"{key}/"
            call = replace(call, params=(*call.params, *more))
            if op.type == "Placeholder":  # runs as the argument that it stands for
                call = OpCall("_Arg", (), call.outputs)
            yield key, call
            for root, chain in _chain(op):
                fused = tuple(prefix + one.name for one in chain)
                one = _fused(chain, call, fused)
                one = replace(one, params=(*one.params, *of_tape))
                # the kernel bears the last node's name, and is the work of the one it begins with
                theirs = layer_of(chain[-1]) if source is None else mine
                one = replace(
                    one,
                    params=(
                        *one.params,
                        ("layer", _scope(chain[-1].name) if theirs is None else theirs),
                    ),
                    frames=self._frames(chain[-1]) if source is None else call.frames,
                )
                yield f"{key}:{root}", one
            for name, inner in _inner(op, key) if depth < _DEPTH else ():
                body = self._graph(name)
                if body is not None:
                    function = self._forward(name)
                    place = None if function is None else called.get(function)
                    within = (
                        None
                        if function is None or place is None
                        else self._gradient(function, None, place)
                    )
                    yield from self._calls(body, inner, within, mine or None, back, depth + 1)

        for one in getattr(graph, "outputs", ()):
            name = _UNUSUAL.sub("_", one.op.name).lower()
            yield f"{prefix}{name}_retval_RetVal", OpCall("_Retval", (tensor_spec(one),), ())

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


def _call(op: Any, frames: tuple[Frame, ...]) -> OpCall:
    told = ((name, _attribute(value)) for name, value in op.node_def.attr.items())
    return OpCall(
        op.type,
        arguments(op.inputs),
        tuple(tensor_spec(one) for one in op.outputs),
        parameters(op.type, told),
        device_name(op.device),
        frames,
    )


def _attribute(value: Any) -> Any:
    """An AttrValue that is a number, a text or a list of these; None for any other."""
    kind = value.WhichOneof("value")
    if kind in ("s", "i", "f", "b"):
        return getattr(value, kind)
    if kind == "list":
        for field in ("i", "f", "b", "s"):
            items = getattr(value.list, field)
            if items:
                return list(items)
    return None


def _chain(op: Any) -> Iterator[tuple[str, list[Any]]]:
    """Chains of ops that end in ``op`` and may run as one kernel under its name, last op first."""
    chain = [op]
    while chain[-1].type in _FOLLOWERS and len(chain) <= _CHAIN:
        before = [one.op for one in chain[-1].inputs]
        likely = [one for one in before if one.type in _FOLLOWERS or one.type in _ROOTS]
        if not likely:
            return
        chain.append(likely[0])
        root = _ROOTS.get(likely[0].type)
        if root is not None:
            yield root, list(chain)


def _fused(chain: list[Any], last: OpCall, inside: tuple[str, ...]) -> OpCall:
    """One call for the chain: its first op's inputs, what the others add, the last one's result."""
    root = chain[-1]
    produced = {one.name for op in chain for one in op.outputs}
    more = [one for op in reversed(chain[:-1]) for one in op.inputs if one.name not in produced]
    first = _call(root, ())
    given: tuple[Arg, ...] = (*first.inputs, *arguments(more))
    params = (*first.params, ("fused", inside))
    return OpCall(root.type, given, last.outputs, params, last.device, last.frames)


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

"""What the names in a graph mean: specs, made of a function's graph when it is first run or built."""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from opscope.adapters.source import Sources
from opscope.core.emit import Emitter, Prepared
from opscope.core.rangetext import format_spec
from opscope.core.schema import Arg, Frame, OpCall, TensorSpec

from .call import arguments, parameter, tensor_spec

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
#: What the names of functions that datasets run have in them.
_DATASET: Final = "_Dataset_"
#: The attribute of a function that XLA is to compile.
_MUST_COMPILE: Final = "_XlaMustCompile"
#: The parameter of a call of a function: the function's name.
_FUNCTION: Final = "function"
#: Nodes told of one graph.
MAX_NODES: Final = 200_000


#: Of the nodes of functions that XLA compiles: the user's frames, and the node that each
#: differentiates.
Origins = dict[str, tuple[tuple[Frame, ...], str | None]]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a graph: its run range, its specs, and how it runs."""

    run: Prepared
    specs: list[Prepared]
    #: Sizes are not all known before it runs.
    unknown: bool
    #: XLA compiles it, or a function in it.
    compiled: bool
    origins: Origins


class Graphs:
    """The graphs of a program's functions, and the specs told of them in the capture that runs."""

    def __init__(
        self,
        emitter: Emitter,
        sources: Sources | None,
        definition: Callable[[str], Any | None],
        imported: Callable[[Any], Any | None],
    ) -> None:
        """``definition`` finds a function's FunctionDef, ``imported`` makes a graph of one."""
        self._emitter = emitter
        self._sources = sources
        self._definition = definition
        self._imported = imported
        self._graphs: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self._known: dict[str, Known] = {}
        self._told: set[str] = set()
        #: Of each graph: (from, to, name): the nodes made between differentiate the one named.
        self._gradients: weakref.WeakKeyDictionary[Any, list[tuple[int, int, str]]] = (
            weakref.WeakKeyDictionary()
        )

    def built(self, name: str, graph: Any) -> None:
        """Function ``name`` has this FuncGraph."""
        self._graphs[name] = graph
        if _DATASET in name and self._emitter.active:
            self.run(name, lambda: graph)

    def begin(self) -> None:
        """A new capture has heard of no graph yet. Those of tf.data run unasked: it is told now."""
        self._told.clear()
        for name, graph in list(self._graphs.items()):
            if _DATASET in name:
                self.run(name, lambda graph=graph: graph)  # type: ignore[misc]

    def differentiated(
        self, graph: Any, before: int, after: int, name: str, inputs: Any, outputs: Any
    ) -> None:
        """The nodes made from ``before`` to ``after`` are the gradient of an op with these tensors."""
        forward = _maker(name, inputs, outputs)
        if forward is not None and forward.graph is graph and after > before:
            self._gradients.setdefault(graph, []).append((before, after, forward.name))

    def graph(self, name: str) -> Any | None:
        """The FuncGraph of a function, as it was traced, or made again from its definition."""
        found = self._graphs.get(name)
        if found is not None:
            return found
        definition = self._definition(name)
        return None if definition is None else self._imported(definition)

    def run(self, name: str, graph: Callable[[], Any]) -> Known:
        """A graph that is about to run, its specs told before."""
        known = self._known.get(name)
        if known is None:
            known = self._describe(name, self._graphs.get(name) or graph())
        if name not in self._told:
            self._told.add(name)
            for spec in known.specs:
                self._emitter.mark(spec)
        return known

    def _describe(self, name: str, graph: Any) -> Known:
        emitter = self._emitter
        specs: list[Prepared] = []
        unknown = False
        inside = {name: graph} if self._compiled(name) else {}
        for key, call in itertools.islice(self.calls(graph), MAX_NODES):
            unknown |= _unknown(call)
            function = call.param(_FUNCTION)
            if isinstance(function, str) and function not in inside and self._compiled(function):
                inside[function] = self.graph(function)
            specs.append(emitter.prepare(format_spec(name, key, call), "spec"))
        if name in inside:  # it runs as one op of its name
            whole = OpCall(name, arguments(graph.inputs), arguments(graph.outputs))
            specs.append(emitter.prepare(format_spec(name, name, whole), "spec"))
        origins: Origins = {}
        for one in inside.values():
            for key, call in () if one is None else self.calls(one):
                forward = call.param("forward")
                origins[key] = (call.frames, forward if isinstance(forward, str) else None)
        known = Known(emitter.prepare(name, "graph"), specs, unknown, bool(inside), origins)
        self._known[name] = known
        return known

    def _compiled(self, name: str) -> bool:
        """Whether XLA compiles this function."""
        definition = self._definition(name)
        return definition is not None and definition.attr[_MUST_COMPILE].b

    def calls(self, graph: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, OpCall]]:
        """Key and call of each node of ``graph`` and of the functions that are inlined into it."""
        operations = graph.get_operations()
        forward = {
            number: name
            for before, after, name in self._gradients.get(graph, ())
            for number in range(before, after)
        }
        for number, op in enumerate(operations):
            if op.type in _UNTOLD:
                continue
            key = prefix + op.name
            call = _call(op, self._frames(op))
            if number in forward:
                params = (*call.params, ("forward", prefix + forward[number]))
                call = replace(call, params=params)
            if op.type in _CALLS:
                call = replace(call, params=(*call.params, (_FUNCTION, _called(op))))
            if op.type == "Placeholder":  # runs as the argument that it stands for
                call = OpCall("_Arg", (), call.outputs)
            yield key, call
            for root, chain in _chain(op):
                fused = tuple(prefix + one.name for one in chain)
                yield f"{key}:{root}", _fused(chain, call, fused, prefix)
            if depth < _DEPTH:
                for name, inner in _inner(op, key):
                    body = self.graph(name)
                    if body is not None:
                        yield from self.calls(body, inner, depth + 1)

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


def _maker(name: str, inputs: Any, outputs: Any) -> Any | None:
    """The node of that kind which made the outputs or took the inputs; those not needed are None."""
    for one in outputs or ():
        node = getattr(one, "op", None)
        if node is not None and node.type == name:
            return node
    took = [one for one in inputs or () if hasattr(one, "consumers")]
    nodes = [node for one in took[:1] for node in one.consumers() if node.type == name]
    for node in nodes:
        names = {one.name for one in node.inputs}
        if all(one.name in names for one in took):
            return node
    return None


def _call(op: Any, frames: tuple[Frame, ...]) -> OpCall:
    told = (parameter(name, _attribute(value)) for name, value in op.node_def.attr.items())
    return OpCall(
        op.type,
        arguments(op.inputs),
        tuple(tensor_spec(one) for one in op.outputs),
        tuple(one for one in told if one is not None),
        None,
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


def _unknown(call: OpCall) -> bool:
    return any(
        isinstance(one, TensorSpec) and "?" in one.shape
        for one in (*call.inputs, *(call.outputs or ()))
    )


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


def _fused(chain: list[Any], last: OpCall, inside: tuple[str, ...], prefix: str) -> OpCall:
    """One call for the chain: its first op's inputs, what the others add, the last one's result."""
    root = chain[-1]
    produced = {one.name for op in chain for one in op.outputs}
    more = [one for op in reversed(chain[:-1]) for one in op.inputs if one.name not in produced]
    first = _call(root, ())
    given: tuple[Arg, ...] = (*first.inputs, *arguments(more))
    params = (*first.params, ("fused", inside))
    return OpCall(root.type, given, last.outputs, params, None, last.frames)


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

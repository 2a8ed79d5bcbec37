"""Pair the nodes of an autograd graph with the forward ops that made them, and observe when each node runs.

Once a function's autograd graph is built, its nodes are walked from the results, in the order of their
sequence numbers, beside the ops that ran meanwhile: a node has the name of its op and the shape of its
result. Hooks on a node show when its gradient begins and ends. So each op of a backward pass is linked to its
forward op. No dispatch mode sees the ops that differentiate what MindSpore runs through a Primitive
(``Conv2D``, ``MaxPool``), nor those of some others (``Softmax``): their ranges are the nodes' own.

MindSpore has had these nodes since 2.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter_ns
from typing import Any, Final

from .call import is_tensor
from .ops import Ops
from .state import Entry, State

#: The most nodes of a graph that are walked.
MAX_NODES: Final = 100_000
#: The sequence number of a leaf.
_LEAF: Final = 2**64 - 1
_VIEW: Final = "View"
#: If the dtypes of its inputs differ, an op casts them internally: the cast has a node, but is not an op.
_CAST: Final = "Cast"
#: Ops whose gradients run nothing, because the gradients return their input.
_PASSES: Final = frozenset(
    {"Add", "AddExt", "AddV2", "OnesLike", "Identity", "Contiguous", "StopGradient"}
)
#: By an op's name: whether its gradient hides its ops, determined when the first one in this process ran.
_hides: Final[dict[str, bool]] = {}


def link(ops: Ops, state: State, results: Any) -> None:
    """Hook the nodes of the graph that made ``results``.

    An op that is not differentiated has no node, so ops are skipped until one fits, but never beyond the next
    op whose node is known (``State.anchors``).
    """
    calls, anchors = state.made, state.anchors
    fixed = sorted(anchors.items())
    start, following = 0, 0
    nodes, readers = _walk(results)
    placed: dict[int, int] = {}
    hidden: list[tuple[int, Any]] = []
    for seq, node in nodes:
        while following < len(fixed) and fixed[following][0] <= seq:
            following += 1
        at = anchors.get(seq)
        if at is None:
            name, shape = node.name(), _shape(node)
            until = fixed[following][1] if following < len(fixed) else len(calls)
            places = range(start, until)
            at = next((index for index in places if _fits(calls[index][1], name, shape)), None)
        if at is None:
            if node.name() == _CAST:
                hidden.append((seq, node))
            continue
        start = at + 1
        placed[seq] = at
        _hook(node, _Node(ops, calls[at][0], state.number, calls[at][1]))
    for seq, node in hidden:
        at = placed.get(readers.get(seq, -1))
        if at is not None:
            _hook(node, _Node(ops, calls[at][0], state.number, calls[at][1], within=True))


def _hook(node: Any, record: _Node) -> None:
    node.register_prehook(record.before)
    node.register_hook(record.after)


def _walk(results: Any) -> tuple[list[tuple[int, Any]], dict[int, int]]:
    """Return the inner nodes of a graph with their sequence numbers, in order, and for each node a node
    that reads its result (one of several).
    """
    pending = [getattr(result, "_grad_node", None) for result in _tensors(results)]
    nodes: dict[int, Any] = {}
    readers: dict[int, int] = {}
    while pending and len(nodes) < MAX_NODES:
        node = pending.pop()
        if node is None or node.is_leaf():
            continue
        number = node._sequence_nr()
        if number in nodes:
            continue
        nodes[number] = node
        for child, _ in node.next_functions or ():
            pending.append(child)
            if child is not None and not child.is_leaf():
                readers[child._sequence_nr()] = number
    nodes.pop(_LEAF, None)
    return sorted(nodes.items()), readers


def _tensors(values: Any) -> Iterable[Any]:
    if is_tensor(values):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)


def _shape(node: Any) -> tuple[int, ...] | None:
    for metadata in getattr(node, "_input_metadata", None) or ():  # since 2.9
        if metadata is not None:
            return tuple(metadata.shape)
    return None


def _fits(entry: Entry, name: str, shape: tuple[int, ...] | None) -> bool:
    """Return whether a node with this name and result belongs to the op."""
    mine = entry.call.name
    if mine != name and mine.removesuffix(_VIEW) != name.removesuffix(_VIEW):
        return False
    return shape is None or entry.shape is None or tuple(entry.shape) == shape


class _Node:
    """The hooks of one node. They hold neither the node nor a tensor.

    ``within``: whether the node is a cast's within the op.
    """

    __slots__ = (
        "_begun",
        "_entry",
        "_number",
        "_ops",
        "_ran",
        "_seq",
        "_since",
        "_unsure",
        "_within",
    )

    def __init__(self, ops: Ops, seq: int, number: int, entry: Entry, within: bool = False) -> None:
        self._ops = ops
        self._seq = seq
        self._number = number
        self._entry = entry
        self._within = within
        self._begun: Entry | None = None
        self._ran = -1
        #: The first gradient of an op of this name, and when it began, to find out whether it hides its ops.
        self._unsure: Entry | None = None
        self._since = 0

    def before(self, grads: Any) -> None:
        """The node's gradient begins."""
        ops = self._ops
        if not ops.on:
            return
        try:
            state = ops.state()
            state.nodes.append((self._seq, self._number, self._entry.source))
            self._ran = state.seen
            name = self._entry.call.name
            if name in _PASSES or self._within:
                return
            if self._entry.opaque or not ops.sees_gradients or _hides.get(name):
                self._begun = ops.begin_gradient(self._entry, grads)
            elif name not in _hides:
                self._unsure = ops.gradient(self._entry, grads, self._entry.source)
                self._since = perf_counter_ns()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            ops.failed("a gradient could not be described")

    def after(self, grad_inputs: Any, grad_outputs: Any) -> None:
        """The node's gradient has run."""
        ops = self._ops
        begun, self._begun = self._begun, None
        unsure, self._unsure = self._unsure, None
        if self._ran < 0 or not ops.on:
            return
        try:
            state = ops.state()
            if begun is None and self._entry.call.name not in _PASSES and not self._within:
                self._learn(state.seen == self._ran, unsure, grad_inputs)
            if state.nodes and state.nodes[-1][0] == self._seq:
                state.nodes.pop()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            ops.failed("a gradient could not be described")
        self._ran = -1
        if begun is not None:
            ops.wait()
            ops.end(begun, grad_inputs)

    def _learn(self, hid: bool, unsure: Entry | None, grad_inputs: Any) -> None:
        """Note whether the gradient hid its ops. If the first gradient did, record it now."""
        name = self._entry.call.name
        _hides[name] = hid or _hides.get(name, False)
        if hid and unsure is not None:
            self._ops.past_gradient(unsure, self._since, grad_inputs)

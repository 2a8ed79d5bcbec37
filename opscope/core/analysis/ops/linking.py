"""Compute the costs of calls whose own text is not enough, with the help of their forward or backward op.

A weight gradient's size is in its forward's call; a forward's result is as large as the gradient that
its backward node takes. Each distinct pair of readings is costed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core import perf
from opscope.core.analysis.ops import served_costs
from opscope.core.analysis.ops.levels import Names
from opscope.core.analysis.ops.list_sizes import (
    ACCUMULATES,
    OVER_PARAMETERS,
    lacks_sizes,
    sizes_of_lists,
    with_sizes,
)
from opscope.core.attribution.attribute import Attribution
from opscope.core.dialects import Reading
from opscope.core.perf import linear, tensorcore
from opscope.core.perf.shapes import expanded, is_scalar_slot, tensors
from opscope.core.schema import Arg, Dim, OpCall, TensorSpec
from opscope.core.tables.columns import at, compact
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.mapped import let_go

ForwardOf = Callable[[Ints], Ints]
Served: TypeAlias = "Callable[[], pl.DataFrame]"
#: Function that returns the catalogue rows of distinct calls, each given with the number of its completion.
CostFunction: TypeAlias = "Callable[[list[OpCall], list[int]], pl.DataFrame]"
Numbers: TypeAlias = NDArray[np.int32]
_NO_CALL: Final = OpCall("")
_LOOKUP_NODE: Final = "torch::autograd::CppNode<SplitLookup"
_EVALUATE: Final = "autograd::engine::evaluate_function: "
#: Ops over lists of tensors: Kineto records the sizes of the tensors, but not their element types.
_OVER_LISTS: Final = re.compile(
    r"aten::(?:_?(?:cat|stack)$|concat|(?:[hvd]|row_|column_)stack$|(?:_amp)?_foreach_|"
    r"_fused_(?:adam|adamw|sgd|adagrad)_?$)"
)
#: The template argument of ATen's kernels of these ops: an element's size, or its C++ type.
_OPAQUE: Final = re.compile(r"CatArrayBatchedCopy\w*<[^,]*OpaqueType<(?:\(unsigned int\))?(\d+)u?>")
_TYPED: Final = (
    re.compile(r"CatArrayBatchedCopy\w*<([\w: ]+),"),
    re.compile(
        r"multi_tensor_apply_kernel<.*?Metadata<[^>]*>, ?[^<]*?(?:<unnamed>::)?\w*Functor<([\w: ]+),"
    ),
)
_TYPES: Final = {
    "float": "f32", "double": "f64", "long": "i64", "int": "i32", "short": "i16", "bool": "bool",
    "signed char": "i8", "unsigned char": "u8", "c10::Half": "f16", "c10::BFloat16": "bf16",
}  # fmt: skip
_DTYPES: Final = tuple(_TYPES.values())
#: From this number on, a kind is this number plus a place in _DTYPES; smaller kinds are sizes of elements
#: (bytes).
_FIRST_TYPE: Final = 1 << 16


def linked_costs(
    attribution: Attribution,
    catalogue: pl.DataFrame,
    forward_of: ForwardOf,
    target: tensorcore.Target | None = None,
    served: Served | None = None,
) -> tuple[pl.DataFrame, Numbers]:
    """Return the catalogue with a row for each completed call, and each range row's place in it.

    It completes only ops whose own FLOPs or bytes are not known, and only if the completed call makes them
    known. ``served`` returns the steps that a server names (``served_steps.SERVED``).
    """
    ops = _Ops.of(attribution, catalogue, forward_of, target, served)
    reading = ops.reading.copy()
    for way in _WAYS:
        rows, numbers, added = _price(ops, catalogue, way(ops))
        let_go()
        reading[rows] = numbers
        if len(added):
            catalogue = pl.concat([catalogue, added])
    return catalogue, reading


@dataclass(frozen=True, slots=True)
class _Ops:
    """The ops of a trace.

    ``calls``: the call of each reading; ``unknown``: whether its FLOPs or bytes are not known.
    """

    attribution: Attribution
    calls: list[OpCall]
    names: Names
    unknown: NDArray[np.bool_]
    forward_of: ForwardOf
    target: tensorcore.Target | None
    served: Served | None

    @classmethod
    def of(
        cls,
        attribution: Attribution,
        catalogue: pl.DataFrame,
        forward_of: ForwardOf,
        target: tensorcore.Target | None,
        served: Served | None,
    ) -> _Ops:
        unknown = (catalogue["matrix_flops"].is_null() | catalogue["bytes"].is_null()).to_numpy()
        calls = [reading.call or _NO_CALL for reading in attribution.meaning.readings]
        return cls(attribution, calls, Names(attribution), unknown, forward_of, target, served)

    @property
    def reading(self) -> Numbers:
        return self.attribution.meaning.reading

    def op_rows(self, chosen: NDArray[np.bool_]) -> Ints:
        """Return the rows of the ops whose readings are ``chosen``."""
        if not chosen.any():  # the usual case: skip the pass over all ops
            return np.empty(0, np.int64)
        return np.flatnonzero(self.attribution.is_op & chosen[self.reading])

    def uncosted_rows(self, wanted: Callable[[str], bool]) -> Ints:
        """Return the rows of the ops whose cost is not known and whose name is ``wanted``."""
        return self.op_rows(self.names.readings(wanted) & self.unknown)

    def costs(self, change: Callable[[OpCall, OpCall], OpCall]) -> CostFunction:
        """Return a function that costs calls after ``change(call, completing call)``."""

        def changed(op_call: OpCall, other: OpCall) -> OpCall:
            return replace(change(op_call, other), truncated=op_call.truncated or other.truncated)

        return lambda own, others: perf.columns(
            [changed(number, self.calls[other]) for number, other in zip(own, others, strict=True)],
            target=self.target,
        )

    def priced(self, calls: Sequence[OpCall]) -> pl.DataFrame:
        """Return the costs of calls."""
        return perf.columns(calls, target=self.target)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Op rows, the completion of each (a reading or another number, -1: nothing), and the function that
    computes the costs of the pairs."""

    rows: Ints
    others: Ints | Numbers
    cost: CostFunction


def _by_forward(ops: _Ops) -> _Pairs:
    """Return the gradients whose cost needs their forward's call."""
    rows = ops.uncosted_rows(perf.wants_forward)
    forward = _shaped_around(ops, _lookups(ops, rows, ops.forward_of(rows)))

    def cost(own: list[OpCall], others: list[int]) -> pl.DataFrame:
        forwards = [ops.calls[other] for other in others]
        return perf.columns(own, forwards=forwards, target=ops.target)

    return _Pairs(rows, at(ops.reading, forward), cost)


def _by_gradient(ops: _Ops) -> _Pairs:
    """Return the forward ops whose results are as large as the gradients that their backward node takes."""
    is_node = ops.names.readings(_is_node)
    readings = ops.attribution.meaning.readings
    is_node[is_node] = [_gives_outputs(readings[code]) for code in np.flatnonzero(is_node)]
    nodes = ops.op_rows(is_node)
    origin = _lookups(ops, nodes, ops.forward_of(nodes))
    lacks = at(ops.unknown, at(ops.reading, origin), False) & (origin >= 0)
    return _Pairs(origin[lacks], ops.reading[nodes[lacks]], ops.costs(_with_outputs))


def _by_mean(ops: _Ops) -> _Pairs:
    """Return the divisions inside a mean's backward node."""
    rows = ops.op_rows(ops.names.readings(lambda name: name == "aten::div"))
    means = ops.names.readings(lambda name: name.startswith("MeanBackward"))
    node = ops.attribution.climb(rows, ops.attribution.is_op & means[ops.reading])
    return _Pairs(rows, at(ops.reading, node), ops.costs(_divided_gradient))


def _by_engine(ops: _Ops) -> _Pairs:
    """Return the sums by which autograd reduces a gradient to the shape of its forward's input."""
    rows = ops.uncosted_rows(lambda name: name == "aten::sum")
    forward = ops.forward_of(_returning(ops, rows))
    return _Pairs(rows, at(ops.reading, forward), ops.costs(_summed_gradient))


def _by_kernels(ops: _Ops) -> _Pairs:
    """Return the ops over lists whose kernels' names contain the type of the elements."""
    rows = ops.uncosted_rows(lambda name: _OVER_LISTS.match(name) is not None)

    def cost(own: list[OpCall], kinds: list[int]) -> pl.DataFrame:
        typed = [_of_elements(*pair) for pair in zip(own, kinds, strict=True)]
        return perf.columns(typed, target=ops.target)

    return _Pairs(rows, _elements(ops.attribution, rows), cost)


def _by_parameters(ops: _Ops) -> _Pairs:
    """Return the ops over lists without sizes whose kernels show that these are lists of the parameters."""
    unsized = ops.attribution.meaning.each(
        lambda reading: reading.call is not None and lacks_sizes(reading.call)
    )
    rows = ops.uncosted_rows(lambda name: OVER_PARAMETERS.match(name) is not None)
    rows = rows[unsized[ops.reading[rows]]]
    gradients = ops.op_rows(ops.names.readings(ACCUMULATES.__eq__)) if len(rows) else rows
    lists, places = sizes_of_lists(ops.attribution, ops.calls, rows, gradients)
    kinds = _elements(ops.attribution, rows)
    span = len(lists) or 1

    def cost(own: list[OpCall], numbers: list[int]) -> pl.DataFrame:
        sized = [
            _of_elements(with_sizes(call, lists[number % span]), number // span)
            for call, number in zip(own, numbers, strict=True)
        ]
        return perf.columns(sized, target=ops.target)

    both = (places >= 0) & (kinds >= 0)
    return _Pairs(rows, np.where(both, kinds * span + places, NONE), cost)


def _by_engine_step(ops: _Ops) -> _Pairs:
    """Return the attention over a cache, completed by the sums of a server's step around it."""
    rows = ops.uncosted_rows(perf.wants_lengths)
    sums, more, numbers = served_costs.lengths_and_windows(
        ops.attribution, ops.served() if ops.served and len(rows) else None, ops.calls, rows
    )

    def cost(own: list[OpCall], numbers: list[int]) -> pl.DataFrame:
        row, which = np.divmod(np.array(numbers, np.int64), len(more))
        return linear.columns(own, sums[row], which, more, ops.priced)

    return _Pairs(rows, numbers, cost)


def _by_model_config(ops: _Ops) -> _Pairs:
    """Return the layers of experts, completed by the model's configuration."""
    rows = ops.uncosted_rows(perf.wants_model)
    params = served_costs.experts_of_model(ops.attribution.trace, ops.calls) if len(rows) else []

    def cost(own: list[OpCall], numbers: list[int]) -> pl.DataFrame:
        return ops.priced([linear.with_params(call, params[0]) for call in own])

    return _Pairs(rows, np.full(len(rows), 0 if params else NONE), cost)


#: The ways to complete a call, in order: if two complete one op, the later one counts.
_WAYS: Final = (
    _by_forward,
    _by_gradient,
    _by_mean,
    _by_engine,
    _by_kernels,
    _by_parameters,
    _by_engine_step,
    _by_model_config,
)


def _price(ops: _Ops, catalogue: pl.DataFrame, pairs: _Pairs) -> tuple[Ints, Ints, pl.DataFrame]:
    """Return the op rows whose cost becomes known, their places in the catalogue, and its additional rows.

    The cost of each distinct pair of a reading and its completion is computed once.
    """
    completed = pairs.others >= 0
    rows, others = pairs.rows[completed], pairs.others[completed]
    if not len(rows):
        return rows, rows, catalogue.clear()
    # one number per pair: sorting rows of two columns is several times slower
    span = int(others.max()) + 1
    keys = ops.reading[rows].astype(np.int64) * span + others
    distinct, which = np.unique(keys, return_inverse=True)
    own, completing = np.divmod(distinct, span)
    costs_of_pairs = pairs.cost([ops.calls[number] for number in own.tolist()], completing.tolist())
    # an op whose FLOPs were known before gains only if its bytes become known
    bare = catalogue["matrix_flops"].is_null().gather(own)
    better = costs_of_pairs["matrix_flops"].is_not_null() & (
        bare | costs_of_pairs["bytes"].is_not_null()
    )
    is_better = better.to_numpy()
    placed = np.where(is_better, len(catalogue) + np.cumsum(is_better) - 1, NONE)[which]
    gained = placed >= 0
    return rows[gained], placed[gained], costs_of_pairs.filter(pl.Series(is_better))


def _shaped_around(ops: _Ops, forward: Ints) -> Ints:
    """Return ``forward`` with each op without shapes replaced by the marker around it.

    PyProf's and DLProf's markers give shapes at the API's level. A marker replaces an op only if both are
    of one family and no other op of ``forward`` is inside it: its sizes do not show how several ops share
    them.
    """
    distinct, which = np.unique(forward[forward >= 0], return_inverse=True)
    if not len(distinct):
        return forward
    attribution, reading = ops.attribution, ops.reading
    shaped = np.array([bool(tensors(call)) for call in ops.calls], bool)
    bare = distinct[~shaped[reading[distinct]]]
    if not len(bare):
        return forward
    around = attribution.climb(bare, attribution.is_op & shaped[reading])
    families = {name: perf.op_type(name) for name in {call.name for call in ops.calls}}
    number = {family: index for index, family in enumerate(sorted(filter(None, families.values())))}
    code = np.array([number.get(families[call.name] or "", NONE) for call in ops.calls])
    alike = (
        (around >= 0)
        & (code[reading[bare]] == at(code, at(reading, around)))
        & (code[reading[bare]] >= 0)
    )
    markers, times = np.unique(around[alike], return_counts=True)
    alone = alike & np.isin(around, markers[times == 1])
    stands = distinct.copy()
    stands[np.searchsorted(distinct, bare[alone])] = around[alone]
    op_row: Ints = forward.copy()
    op_row[forward >= 0] = stands[which]
    return op_row


def _with_outputs(call: OpCall, node: OpCall) -> OpCall:
    """Return the forward call, with outputs as large as the gradients that its node takes."""
    return replace(call, outputs=node.inputs)


def _divided_gradient(call: OpCall, node: OpCall) -> OpCall:
    """Return the division with its gradient marked as expanded, which traces without strides do not show.

    A mean's gradient is the gradient of its result, expanded and divided. The dimensions that the
    expansion repeats are read once.
    """
    grad, *rest = call.inputs or (None,)
    averaged = node.inputs[0] if node.inputs else None
    if (
        isinstance(grad, TensorSpec)
        and isinstance(averaged, TensorSpec)
        and grad.strides is None
        and grad.layout is None
        and len(grad.shape) == len(averaged.shape)
    ):
        call = replace(call, inputs=(expanded(averaged, grad), *rest))
    return call


def _returning(ops: _Ops, rows: Ints) -> Ints:
    """Return the autograd engine's range directly around each op, outside any node's own work; -1: none.

    There the engine reduces a node's gradients to the shapes of the forward's inputs.
    """
    engine = ops.names.readings(lambda name: name.startswith(_EVALUATE))[ops.reading]
    same = ops.names.readings(lambda name: name == "aten::sum")[ops.reading]
    above = ops.attribution.climb(rows, ops.attribution.is_op & ~same)
    return np.where(at(engine, above, False), above, NONE)


def _summed_gradient(call: OpCall, forward: OpCall) -> OpCall:
    """Return the sum of a gradient over the dimensions that its forward input was broadcast over, as in
    sum_to_size.

    If inputs of two shapes are possible the call is unchanged.
    """
    grad = call.inputs[0] if call.inputs else None
    if not isinstance(grad, TensorSpec):
        return call
    shapes = {
        leaf.shape
        for leaf in forward.input_leaves()
        if leaf is not None and not is_scalar_slot(leaf) and _broadcasts(leaf.shape, grad.shape)
    }
    if len(shapes) != 1:
        return call
    return replace(call, outputs=(TensorSpec(grad.dtype, shapes.pop()),))


def _broadcasts(small: tuple[Dim, ...], large: tuple[Dim, ...]) -> bool:
    """Return whether broadcasting repeats a tensor of shape ``small`` to get the shape ``large``."""
    if small == large or len(small) > len(large):
        return False
    ends = large[len(large) - len(small) :]
    return all(a in (1, b) for a, b in zip(small, ends, strict=True))


def _elements(attribution: Attribution, rows: Ints) -> Ints:
    """Return for each op row the kind of its elements (``_kind``), from a kernel's name; -1: not known."""
    kernels = attribution.trace["kernels"]
    if not len(rows) or not len(kernels):
        return np.full(len(rows), NONE, np.int64)
    codes, names = compact(kernels["name"])
    kinds = np.array([NONE if name is None else _kind(name) for name in names], np.int64)
    typed = (kinds > 0)[codes] & (attribution.kernels.op >= 0)
    kind = np.full(len(attribution.parent), NONE, np.int64)
    kind[attribution.kernels.op[typed]] = kinds[codes[typed]]
    return kind[rows]


def _kind(kernel: str) -> int:
    """Return an element's size, or _FIRST_TYPE plus its type's place in _DTYPES; -1: unknown or two types."""
    opaque = _OPAQUE.search(kernel)
    if opaque:
        return int(opaque.group(1))
    for pattern in _TYPED:
        typed = pattern.search(kernel)
        if typed and typed.group(1) in _TYPES and "::Copy<" not in kernel:
            return _FIRST_TYPE + _DTYPES.index(_TYPES[typed.group(1)])
    return NONE


def _of_elements(call: OpCall, kind: int) -> OpCall:
    """Return the call with this kind of elements for its lists whose type is not known."""
    if kind < _FIRST_TYPE:
        return replace(call, params=(*call.params, ("element_size", kind)))
    dtype = _DTYPES[kind - _FIRST_TYPE]

    def typed(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(map(typed, arg))
        if not isinstance(arg, TensorSpec) or arg.dtype != "?":
            return arg
        # a fused optimizer's step counts are f32, whatever the dtype of its parameters
        counts = not arg.shape and call.name.startswith("aten::_fused")
        return replace(arg, dtype="f32" if counts else dtype)

    inputs = (typed(arg) if isinstance(arg, tuple) else arg for arg in call.inputs)
    return replace(call, inputs=tuple(inputs))


def _is_node(name: str) -> bool:
    """Whether a name is of an autograd node."""
    is_backward = "Backward" in name or name.startswith(_LOOKUP_NODE)
    return is_backward and not name.startswith(("aten::", "autograd::"))


def _gives_outputs(reading: Reading) -> bool:
    """Return whether a node's reading has shapes: its inputs are its forward's gradients."""
    is_node = reading.role == "op" and reading.direction == "backward"
    return is_node and reading.call is not None and bool(reading.call.inputs)


def _lookups(ops: _Ops, rows: Ints, forward: Ints) -> Ints:
    """Return ``forward`` with the right embedding lookup for the node of each C++ autograd function.

    In old traces such a function has no sequence number of its own, so ``forward`` is the latest op with
    its node's number, which ran just before it. The next lookup on that thread is the right one, unless an
    op with a later number comes first.
    """
    attribution, meaning = ops.attribution, ops.attribution.meaning
    named = ops.names.readings(
        lambda name: name.startswith("fbgemm::split_embedding_codegen_lookup")
    )
    node = ops.names.readings(lambda name: name.startswith(_LOOKUP_NODE))
    if not (named.any() and node.any()):
        return forward
    lookup_nodes = (
        np.flatnonzero(node[meaning.reading[rows]] & (forward >= 0)) if len(rows) else rows
    )
    lookups = np.flatnonzero(attribution.is_op & named[meaning.reading])
    if not len(lookup_nodes) or not len(lookups):
        return forward
    ranges = attribution.trace["ranges"]
    start, thread = ranges["start"].to_numpy(), ranges["thread"].fill_null(NONE).to_numpy()
    process = ranges["process"].fill_null(NONE).to_numpy()
    lane = np.unique(np.stack((process, thread)), axis=1, return_inverse=True)[1].reshape(-1)
    order = lookups[np.lexsort((start[lookups], lane[lookups]))]
    seq = meaning.seq.column.fill_null(NONE).to_numpy()
    numbered = np.flatnonzero(attribution.is_op & (seq >= 0))
    numbered = numbered[np.lexsort((start[numbered], lane[numbered]))]
    here = forward[lookup_nodes]
    after = _next(order, lane, start, here)
    # the last op with a number before the lookup must still have the node's number
    before = _last(numbered, lane, start, after)
    fits = (after >= 0) & (at(seq, before) == seq[here])
    forward = forward.copy()
    forward[lookup_nodes] = np.where(fits, after, NONE)
    return forward


def _next(order: Ints, lane: Ints, start: Ints, rows: Ints) -> Ints:
    """Return for each row the first of ``order`` (sorted by lane and start) at or after it on its lane."""
    keys, asked = _keys(lane, start, order, rows)
    index = np.searchsorted(keys, asked, side="left")
    hit = order[np.minimum(index, len(order) - 1)]
    return np.where((index < len(order)) & (lane[hit] == lane[rows]), hit, NONE)


def _last(order: Ints, lane: Ints, start: Ints, rows: Ints) -> Ints:
    """Return for each row (-1: none) the last of ``order`` before it on its lane."""
    safe = np.where(rows >= 0, rows, 0)
    keys, asked = _keys(lane, start, order, safe)
    index = np.searchsorted(keys, asked, side="left") - 1
    hit = order[np.maximum(index, 0)]
    return np.where((rows >= 0) & (index >= 0) & (lane[hit] == lane[safe]), hit, NONE)


def _keys(lane: Ints, start: Ints, order: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return one number for lane and start of each of ``order`` and of ``rows``, in their order. Times of
    files with different clocks (boot, Unix time) are so far apart that lanes times their span do not fit into
    64 bits, so the number holds the place of the time among all these times."""
    both = np.concatenate([order, rows])
    times, index = np.unique(start[both], return_inverse=True)
    key = lane[both].astype(np.int64) * (len(times) + 1) + index.reshape(-1)
    return key[: len(order)], key[len(order) :]

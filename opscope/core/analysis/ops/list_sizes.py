"""Find the sizes of an optimizer's lists of tensors where the trace has none, from the gradients before them.

PyTorch's profiler writes no sizes of a list of more than 30 tensors. A kernel of ATen's
``multi_tensor_apply`` has a block for each 65,536 elements of each tensor (``kChunkSize``; in a trace of
ResNet-50 the kernels of each op have the 508 blocks that its 161 parameters need). So if the kernels of an op
have as many blocks as the parameters need whose gradients autograd accumulated just before, the list is as
large as these parameters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from operator import mul
from typing import Final, TypeAlias

import numpy as np

from opscope.core.attribution.attribute import Attribution
from opscope.core.perf.registry import CannotKnow
from opscope.core.perf.shapes import need, numel
from opscope.core.schema import Dim, OpCall, TensorSpec
from opscope.core.tables.columns import compact, extents, matching
from opscope.core.tables.intervals import NONE, Ints

Shape: TypeAlias = "tuple[Dim, ...]"
_Pass: TypeAlias = "tuple[list[Shape], list[int], int]"
#: The autograd node that adds a gradient to its parameter's.
ACCUMULATES: Final = "torch::autograd::AccumulateGrad"
#: Elements of a tensor that a block works on.
CHUNK: Final = 65_536
_APPLIES: Final = "multi_tensor_apply_kernel"
#: Ops of optimizers over lists.
OVER_PARAMETERS: Final = re.compile(r"aten::(?:_foreach_|_fused_(?:adamw?|sgd|adagrad)_?$)")
_FUSED: Final = re.compile(r"aten::_fused_(\w+?)_?$")
#: How many lists of a fused optimizer are as large as the parameters, and the option for one more; the step
#: counts follow.
_LISTS: Final[Mapping[str, tuple[int, str | None]]] = {
    "adam": (4, "amsgrad"),
    "adamw": (4, "amsgrad"),
    "sgd": (2, "momentum"),
    "adagrad": (3, None),
}


def lacks_sizes(call: OpCall) -> bool:
    """Whether the call has lists and no sizes of any."""
    lists = [arg for arg in call.inputs if isinstance(arg, tuple)]
    return bool(lists) and all(tensors == (TensorSpec("?", ("?",)),) for tensors in lists)


def with_sizes(call: OpCall, shapes: tuple[Shape, ...]) -> OpCall:
    """Return the call with lists of tensors of these shapes, whose dtypes are not known."""
    tensors = tuple(TensorSpec("?", shape) for shape in shapes)
    fused = _FUSED.search(call.name)
    count, option = _LISTS[fused.group(1)] if fused else (len(call.inputs), None)
    more = call.param(option) if option else False
    if more is None:
        return call  # whether there is another list of states is not known
    steps = (TensorSpec("?", ()),) * len(shapes)
    lists = (
        *(tensors,) * (count + bool(more)),
        *((),) * (option is not None and not more),
        *(steps,) * len(call.inputs),
    )
    pairs = zip(call.inputs, lists, strict=False)
    inputs = tuple(sized if isinstance(arg, tuple) else arg for arg, sized in pairs)
    return replace(call, inputs=inputs)


def sizes_of_lists(
    attribution: Attribution, calls: list[OpCall], rows: Ints, gradients: Ints
) -> tuple[list[tuple[Shape, ...]], Ints]:
    """Return the distinct lists of shapes, and for each of the ops ``rows`` the place of its list; -1 if it
    is not known. ``gradients``: the rows of the nodes that accumulate gradients."""
    places = np.full(len(rows), NONE, np.int64)
    if not len(rows) or not len(gradients):
        return [], places
    ranges, reading = attribution.trace["ranges"], attribution.meaning.reading
    blocks = _blocks(attribution)[rows]
    process = ranges["process"].fill_null(NONE).to_numpy()
    start = ranges["start"].fill_null(0).to_numpy()
    lists: dict[tuple[Shape, ...], int] = {}
    for number in np.unique(process[gradients]).tolist():
        mine = np.flatnonzero((process[rows] == number) & (blocks > 0))
        added = gradients[process[gradients] == number]
        added = added[np.argsort(start[added], kind="stable")]
        # a pass: the gradients between two of the ops
        edges = np.searchsorted(np.sort(start[rows[mine]]), start[added])
        first = np.concatenate(([0], np.flatnonzero(np.diff(edges)) + 1))
        kinds: dict[tuple[tuple[int, int], ...], int] = {}
        kind_of_pass = [
            kinds.setdefault(tuple(sorted(Counter(part.tolist()).items())), len(kinds))
            for part in np.split(reading[added], first[1:])
        ]
        latest = np.searchsorted(start[added[first]], start[rows[mine]]) - 1
        mine, latest = mine[latest >= 0], latest[latest >= 0]
        pairs = np.stack((np.array(kind_of_pass)[latest], blocks[mine]))
        distinct, which = np.unique(pairs, axis=1, return_inverse=True)
        passes = [_of_pass(kind, calls) for kind in kinds]
        shapes = [_parameters(passes[kind], count) for kind, count in distinct.T.tolist()]
        chosen = [NONE if each is None else lists.setdefault(each, len(lists)) for each in shapes]
        places[mine] = np.array(chosen, np.int64)[which.ravel()]
    return list(lists), places


def _of_pass(gradients: tuple[tuple[int, int], ...], calls: list[OpCall]) -> _Pass | None:
    """Return the shapes of a pass's gradients, how many each has, and how many blocks they need in all."""
    try:
        tensors = [need(calls[code], 0, "gradient") for code, _ in gradients]
        blocks = [-(-numel(tensor) // CHUNK) for tensor in tensors]
    except CannotKnow:
        return None
    counts = [count for _, count in gradients]
    needed = sum(map(mul, blocks, counts))
    # if no tensor needs two blocks, a list of as many scalars would need the same number of blocks
    shapes = [tensor.shape for tensor in tensors]
    return (shapes, counts, needed) if needed > sum(counts) else None


def _parameters(gradients: _Pass | None, blocks: int) -> tuple[Shape, ...] | None:
    """Return the shapes of the parameters that need this many blocks; each may have several gradients."""
    shapes, counts, needed = gradients or ([], [], 0)
    times, rest = divmod(needed, blocks)
    if rest or not times or gcd(*counts) % times:
        return None
    return tuple(
        shape for shape, count in zip(shapes, counts, strict=True) for _ in range(count // times)
    )


def _blocks(attribution: Attribution) -> Ints:
    """Return for each range the blocks of the kernels over lists that it launched."""
    kernels = attribution.trace["kernels"]
    total = np.zeros(len(attribution.parent), np.int64)
    codes, grids = compact(kernels["grid"])
    applies = matching(kernels["name"], _APPLIES) & (attribution.kernels.op >= 0)
    blocks = extents(grids).fill_null(0).to_numpy()[codes]
    np.add.at(total, attribution.kernels.op[applies], blocks[applies])
    return total

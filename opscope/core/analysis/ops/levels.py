"""Which level of a nest of PyTorch's ops does the work, and which ops do none.

PyTorch records an op, the ops that its kernel calls (``aten::add`` of a number copies that number), and
those into which a composite op decomposes (``aten::linear``). Where a tensor's subclass or a dispatch mode
takes the op, a marker follows inside it: what a DTensor runs on its rank is inside ``PythonSubclass``, and
what a mode does instead of the op is inside ``PythonDispatchMode``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.dialects.aten_schema import is_composite
from opscope.core.schema import OpCall
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints

_MODE: Final = "PythonDispatchMode"
_SUBCLASS: Final = "PythonSubclass"
#: Composite ops that return their input where nothing is to be done; what they do otherwise is an op inside.
_MAY_DO_NOTHING: Final = frozenset(
    f"aten::{name}"
    for name in (
        *("to", "type_as", "contiguous", "conj_physical"),
        *("dropout", "feature_dropout", "alpha_dropout"),
    )
)
_WITHOUT_WORK: Final = re.compile(
    r"aten::_foreach_|autograd::engine::evaluate_function|\w+Backward[0-9]+\Z"
)
Flags = NDArray[np.bool_]


def kernels_of_their_own(attribution: Attribution, priced: Flags, launches: Flags) -> Flags:
    """Return which of the ``priced`` ops (a flag per range row) count with all that is inside them.

    They are operators of PyTorch's dispatcher that neither decompose nor are passed on: to a subclass of a
    tensor, to a dispatch mode, to an op of the same name, as ``aten::where`` of a number is, or to an op
    inside that launched the work (``launches``). Of nested ones it is the outermost.
    """
    names = _names(attribution)
    own = priced & _rows(attribution, lambda name: "::" in name and not _passes_on(name))
    if not own.any():
        return own
    own &= ~attribution.above(_marked(attribution, _MODE, _SUBCLASS))
    own &= ~_calls(attribution, lambda call: call.param("subclass") is True)
    lists = own & _rows(attribution, lambda name: name.startswith("aten::_foreach_"))
    if lists.any():  # the ops inside, one for each tensor, have the element types that lists lack
        own &= ~(lists & attribution.above(priced))
    if launches.any():
        own &= launches | ~attribution.above(launches & attribution.is_op)
    word = np.unique(np.array([name.partition(".")[0] for name in names]), return_inverse=True)[1]
    rows = np.flatnonzero(own)
    nearest = attribution.climb(at(attribution.parent, rows).astype(np.int64), own)
    reading = attribution.meaning.reading
    same = (nearest >= 0) & (word[reading[nearest]] == word[reading[rows]])
    own[nearest[same]] = False
    rows = np.flatnonzero(own)
    own[rows] = attribution.climb(at(attribution.parent, rows).astype(np.int64), own) == NONE
    return own


def fake_runs(attribution: Attribution) -> Ints:
    """Return the rows of ops that ran with fake tensors: a compiler's, or those by which a DTensor finds out
    how the result is divided.

    A fake tensor is made by an ``aten::empty_strided`` and an ``aten::detach`` beside the op that the mode
    runs; no other mode does both. Within a tensor's subclass every dispatch mode is of that kind: a mode of
    the user's takes the op before the subclass does. Ops on the meta device are told by the device, where
    the trace has it, or by what PyTorch's Python formulas call: ops of ``prims``, or nothing but
    ``aten::new_empty``.
    """
    nothing = np.empty(0, np.int64)
    on_meta = np.flatnonzero(_calls(attribution, lambda call: call.device == "meta"))
    mode, prims = _marked(attribution, _MODE), _rows(attribution, _is_prim)
    meta = np.union1d(_meta_products(attribution), on_meta)
    if not (mode.any() or prims.any() or len(meta)):
        return nothing
    parent, is_op = attribution.parent, attribution.is_op
    subclass = _marked(attribution, _SUBCLASS)
    made = _holds(attribution, "aten::empty_strided") & _holds(attribution, "aten::detach")
    rows = np.flatnonzero(mode)
    under = attribution.climb(at(parent, rows).astype(np.int64), subclass) != NONE
    fake = np.zeros(len(is_op), bool)
    fake[rows[made[rows] | under]] = True
    fake[meta] = True
    above_prims = at(parent, np.flatnonzero(prims)).astype(np.int64)
    above_prims = above_prims[above_prims >= 0]
    fake[above_prims[_rows(attribution, _is_aten)[above_prims]]] = True
    passing = mode | _rows(attribution, lambda name: "::" in name and "::engine" not in name)
    here = np.flatnonzero(fake)
    rows = np.flatnonzero(is_op & ~fake)
    fake[rows[attribution.climb(rows, fake) != NONE]] = True
    while len(here):  # what is around up to the subclass has no work of its own either
        here = np.unique(at(parent, here).astype(np.int64))
        here = here[here >= 0]
        here = here[passing[here] & ~fake[here]]
        fake[here] = True
    return np.flatnonzero(fake & is_op)


def idle_calls(attribution: Attribution, launches: Flags) -> Ints:
    """Return the rows of composite ops that did nothing, as ``aten::to`` of a tensor that is right already:
    no op is inside them, and they launched nothing (``launches``: a flag per range row)."""
    quiet = _rows(attribution, _MAY_DO_NOTHING.__contains__) & ~launches
    if not quiet.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(quiet & ~attribution.above(attribution.is_op))


def only_calls_ops(attribution: Attribution) -> Flags:
    """Return per reading whether all that the op does is ops inside it, if there are any, whatever its cost.

    That is so of PyTorch's own autograd nodes, whose names have a number, and of ops over lists:
    without a kernel for the list, whose sizes a trace may lack, PyTorch calls an op for each tensor.
    """
    return np.array([_WITHOUT_WORK.match(name) is not None for name in _names(attribution)], bool)


def _meta_products(attribution: Attribution) -> Ints:
    """Return the rows of products on the meta device: all that they call is ``aten::new_empty``."""
    inside = np.flatnonzero(_marked(attribution, "aten::new_empty"))
    rows = np.unique(at(attribution.parent, inside).astype(np.int64))
    rows = rows[rows >= 0]
    rows = rows[_rows(attribution, _is_product)[rows]]
    if not len(rows):
        return rows
    children = np.flatnonzero(attribution.is_op & np.isin(attribution.parent, rows))
    others = children[~np.isin(children, inside)]
    return np.setdiff1d(rows, attribution.parent[others].astype(np.int64))


def _holds(attribution: Attribution, name: str) -> Flags:
    """Return per range row whether an op of this name is directly inside it."""
    flags = np.zeros(len(attribution.is_op), bool)
    parents = at(attribution.parent, np.flatnonzero(_marked(attribution, name)))
    flags[parents[parents >= 0]] = True
    return flags


def _marked(attribution: Attribution, *names: str) -> Flags:
    return _rows(attribution, lambda name: name in names)


def _rows(attribution: Attribution, wanted: Callable[[str], bool]) -> Flags:
    """Return per range row whether it is an op with a ``wanted`` name."""
    return _calls(attribution, lambda call: wanted(call.name))


def _calls(attribution: Attribution, wanted: Callable[[OpCall], bool]) -> Flags:
    """Return per range row whether it is an op with a ``wanted`` call."""
    readings = attribution.meaning.readings
    chosen = np.array([r.call is not None and wanted(r.call) for r in readings], bool)
    if not chosen.any():  # the usual case: skip the pass over all ranges
        return np.zeros(len(attribution.is_op), bool)
    flags: Flags = chosen[attribution.meaning.reading] & attribution.is_op
    return flags


def _names(attribution: Attribution) -> list[str]:
    return [
        "" if reading.call is None else reading.call.name
        for reading in attribution.meaning.readings
    ]


def _passes_on(name: str) -> bool:
    """Whether an op's work is that of ops inside it: autograd's nodes, collectives, composite ops."""
    return name.startswith(("autograd::", "torch::", "c10d::", "_c10d_functional::", "nccl:")) or (
        is_composite(name)
    )


def _is_aten(name: str) -> bool:
    return name.startswith("aten::")


def _is_prim(name: str) -> bool:
    return name.startswith("prims::")


def _is_product(name: str) -> bool:
    return name.partition(".")[0] in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")

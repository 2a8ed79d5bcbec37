"""Find the level of a nest of PyTorch's ops that does the work, and the ops that do no work.

PyTorch records an op, the ops that its kernel calls (``aten::add`` of a number copies that number), and those
into which a composite op decomposes (``aten::linear``). If a tensor's subclass or a dispatch mode handles the
op, a marker follows inside it: the ops that a DTensor runs on its rank are inside ``PythonSubclass``, and the
ops that a mode runs instead are inside ``PythonDispatchMode``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.dialects import Reading
from opscope.core.dialects.aten_schema import is_composite, is_partly_composite
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints

_MODE: Final = "PythonDispatchMode"
_SUBCLASS: Final = "PythonSubclass"
_FORWARD_DERIVATIVE: Final = "aten::_fw_primal"
#: Composite ops that return their input if there is nothing to do; otherwise they call an op inside.
_MAY_DO_NOTHING: Final = frozenset(
    f"aten::{name}"
    for name in (
        *("to", "type_as", "contiguous", "conj_physical", "to_dense"),
        *("_autocast_to_reduced_precision", "_autocast_to_full_precision"),
        *("dropout", "feature_dropout", "alpha_dropout"),
    )
)
_PRODUCTS: Final = frozenset(
    f"aten::{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot")
)
_WITHOUT_WORK: Final = re.compile(
    r"aten::_foreach_|autograd::engine::evaluate_function|\w+Backward[0-9]+\Z"
)
Flags = NDArray[np.bool_]


class Names:
    """The names of a trace's ops; each distinct name is tested once: a million distinct calls have some
    hundred names."""

    def __init__(self, attribution: Attribution) -> None:
        self.attribution = attribution
        numbers: dict[str, int] = {}
        each = attribution.meaning.each
        self._code = each(
            lambda r: numbers.setdefault(r.call.name if r.call else "", len(numbers)), np.int32
        )
        self._names = list(numbers)
        self._of_subclass = each(lambda r: r.call is not None and r.call.param("subclass") is True)
        self._on_meta = each(lambda r: r.call is not None and r.call.device == "meta")

    def readings(self, wanted: Callable[[str], bool]) -> Flags:
        """Return per reading whether its op has a ``wanted`` name."""
        found: Flags = np.array([wanted(name) for name in self._names], bool)[self._code]
        return found

    def rows(self, wanted: Callable[[str], bool]) -> Flags:
        """Return per range row whether it is an op with a ``wanted`` name."""
        return self._spread(self.readings(wanted))

    def named(self, *names: str) -> Flags:
        """Return per range row whether it is an op with one of the ``names``."""
        return self.rows(names.__contains__)

    def words(self) -> Ints:
        """Return per reading a number for its op's name without the overload."""
        words = np.array([name.partition(".")[0] for name in self._names])
        found: Ints = np.unique(words, return_inverse=True)[1][self._code]
        return found

    def sizes(self) -> Ints:
        """Return per reading a number for the sizes of its op's tensors, numbers aside; -1 if it has none."""
        numbers: dict[object, int] = {frozenset(): NONE}

        def number(reading: Reading) -> int:
            leaves = () if reading.call is None else reading.call.input_leaves()
            key = frozenset(leaf.shape for leaf in leaves if leaf is not None and leaf.shape)
            return numbers.setdefault(key, len(numbers))

        return self.attribution.meaning.each(number, np.int64)

    def of_subclass(self) -> Flags:
        """Return per range row whether it is an op that, by the recording, a tensor's subclass handled."""
        return self._spread(self._of_subclass)

    def on_meta(self) -> Flags:
        """Return per range row whether it is an op on the meta device."""
        return self._spread(self._on_meta)

    def _spread(self, chosen: Flags) -> Flags:
        if not chosen.any():  # the usual case of markers: skip the pass over all ranges
            return np.zeros(len(self.attribution.is_op), bool)
        flags: Flags = chosen[self.attribution.meaning.reading] & self.attribution.is_op
        return flags


def kernels_of_their_own(names: Names, priced: Flags, launches: Flags) -> Flags:
    """Return which of the ``priced`` ops (a flag per range row) count together with everything inside them.

    They are operators of PyTorch's dispatcher that neither decompose nor are passed on: to a subclass of a
    tensor, to a dispatch mode, to another overload of the same name, as ``aten::where`` of a number is, to an
    op of the same name on other sizes (a rank's part, or all of a vmap's batch), to several of the same name,
    to the ``aten::matmul`` by which vmap runs a product of the batch, to the ops of a forward derivative, or
    to an op inside that launched the work (``launches``). Of nested ops of this kind, the outermost counts.
    """
    attribution = names.attribution
    own = priced & names.rows(lambda name: "::" in name and not _passes_on(name))
    if not own.any():
        return own
    own &= ~attribution.above(names.named(_MODE, _SUBCLASS, _FORWARD_DERIVATIVE))
    own &= ~(names.rows(_is_product) & attribution.above(names.named("aten::matmul")))
    own &= ~names.of_subclass()
    lists = own & names.rows(lambda name: name.startswith("aten::_foreach_"))
    if lists.any():  # the ops inside, one for each tensor, have the element types that lists lack
        own &= ~(lists & attribution.above(priced))
    if launches.any():
        own &= launches | ~attribution.above(launches & attribution.is_op)
    word, sizes = names.words(), names.sizes()
    rows = np.flatnonzero(own)
    nearest = attribution.climb(at(attribution.parent, rows).astype(np.int64), own)
    rows, nearest = rows[nearest >= 0], nearest[nearest >= 0]
    inner, outer = attribution.meaning.reading[rows], attribution.meaning.reading[nearest]
    other = (sizes[inner] != sizes[outer]) & (sizes[inner] >= 0) & (sizes[outer] >= 0)
    other |= names.readings(is_partly_composite)[inner]
    same = word[inner] == word[outer]
    rows, nearest, other = rows[same], nearest[same], other[same]
    # an op that calls ops of its own kind several times is a loop over a batch
    passed = np.bincount(nearest, minlength=len(own)) > 1
    passed[nearest[other]] = True
    more = rows[passed[rows]]
    # if the same op of another layer of the dispatcher is around it, that op passes it on, too
    while len(more):
        around = np.unique(nearest[np.searchsorted(rows, more)])
        around = around[~passed[around]]
        passed[around] = True
        more = around[at(rows, np.searchsorted(rows, around)) == around]
    own &= ~passed
    rows = np.flatnonzero(own)
    own[rows] = attribution.climb(at(attribution.parent, rows).astype(np.int64), own) == NONE
    return own


def composites(names: Names, kernels: Flags) -> Flags:
    """Return which composite PyTorch ops call these ``kernels`` to do their work (a flag per range row)."""
    flags: Flags = names.attribution.above(kernels)
    flags &= names.rows(lambda name: name.startswith("aten::") and is_composite(name))
    return flags


def fake_runs(names: Names) -> Ints:
    """Return the rows of ops that ran with fake tensors: a compiler's, or those by which a DTensor finds out
    how the result is divided.

    A fake tensor is made by an ``aten::empty_strided`` and an ``aten::detach`` beside the op that the mode
    runs; no other mode does both. Inside a tensor's subclass every dispatch mode is of that kind, because a
    user's mode handles the op before the subclass. Ops on the meta device are recognised by the device, if
    the trace has it, or by the ops that PyTorch's Python formulas call: ops of ``prims``, or nothing but
    ``aten::new_empty``.
    """
    nothing = np.empty(0, np.int64)
    on_meta = np.flatnonzero(names.on_meta())
    mode, prims = names.named(_MODE), names.rows(_is_prim)
    meta = np.union1d(_meta_products(names), on_meta)
    if not (mode.any() or prims.any() or len(meta)):
        return nothing
    attribution = names.attribution
    parent, is_op = attribution.parent, attribution.is_op
    subclass = names.named(_SUBCLASS)
    made = _holds(names, "aten::empty_strided") & _holds(names, "aten::detach")
    rows = np.flatnonzero(mode)
    under = attribution.climb(at(parent, rows).astype(np.int64), subclass) != NONE
    fake = np.zeros(len(is_op), bool)
    fake[rows[made[rows] | under]] = True
    fake[meta] = True
    above_prims = at(parent, np.flatnonzero(prims)).astype(np.int64)
    above_prims = above_prims[above_prims >= 0]
    fake[above_prims[names.rows(_is_aten)[above_prims]]] = True
    passing = mode | names.rows(lambda name: "::" in name and "::engine" not in name)
    here = np.flatnonzero(fake)
    rows = np.flatnonzero(is_op & ~fake)
    fake[rows[attribution.climb(rows, fake) != NONE]] = True
    # the ops around it, up to the one of the subclass, do no work of their own either
    while len(here):
        here = np.unique(at(parent, here).astype(np.int64))
        here = here[here >= 0]
        here = here[passing[here] & ~fake[here]]
        fake[here] = True
    return np.flatnonzero(fake & is_op)


def idle_calls(names: Names, launches: Flags) -> Ints:
    """Return the rows of composite ops that did nothing, such as ``aten::to`` of a tensor that needs no
    change: no other op is inside them, and they launched nothing (``launches``: a flag per range row)."""
    quiet = names.rows(_MAY_DO_NOTHING.__contains__) & ~launches
    if not quiet.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(quiet & ~names.attribution.above(names.attribution.is_op & ~quiet))


def only_calls_ops(names: Names) -> Flags:
    """Return per reading whether the op only calls the ops inside it, if there are any, whatever its cost.

    This holds for PyTorch's own autograd nodes, whose names have a number, and for ops over lists: without a
    kernel for the list, whose sizes a trace may lack, PyTorch calls an op for each tensor.
    """
    return names.readings(lambda name: _WITHOUT_WORK.match(name) is not None)


def _meta_products(names: Names) -> Ints:
    """Return the rows of products on the meta device, which only call ``aten::new_empty``."""
    attribution = names.attribution
    inside = np.flatnonzero(names.named("aten::new_empty"))
    rows = np.unique(at(attribution.parent, inside).astype(np.int64))
    rows = rows[rows >= 0]
    rows = rows[names.rows(_is_product)[rows]]
    if not len(rows):
        return rows
    children = np.flatnonzero(attribution.is_op & np.isin(attribution.parent, rows))
    others = children[~np.isin(children, inside)]
    return np.setdiff1d(rows, attribution.parent[others].astype(np.int64))


def _holds(names: Names, name: str) -> Flags:
    """Return per range row whether an op of this name is directly inside it."""
    parent = names.attribution.parent
    flags = np.zeros(len(parent), bool)
    parents = at(parent, np.flatnonzero(names.named(name)))
    flags[parents[parents >= 0]] = True
    return flags


def _passes_on(name: str) -> bool:
    """Return whether the op's work is done by ops inside it: autograd's nodes, collectives, composite ops."""
    return name.startswith(("autograd::", "torch::", "c10d::", "_c10d_functional::", "nccl:")) or (
        is_composite(name)
    )


def _is_aten(name: str) -> bool:
    return name.startswith("aten::")


def _is_prim(name: str) -> bool:
    return name.startswith("prims::")


def _is_product(name: str) -> bool:
    return name.partition(".")[0] in _PRODUCTS

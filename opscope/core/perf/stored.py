"""Sparse tensors: most costs are unknown, because the stored elements are data.

A text may have the number of elements that an operand stores (``f32[8,8]{csr:12}``), from which the
FLOPs of a product with a dense matrix follow. No text has which elements these are, or the width of
their indices.
"""

from __future__ import annotations

from opscope.core.schema import OpCall, TensorSpec

from .registry import CannotKnow, Cost, words
from .shapes import cost, need, promote, sizes

STORED = "what the sparse tensor stores is data that the trace does not record"
STRIDELESS = "a tensor has no strides, and the trace does not record its layout"
_INDICES = "the trace does not record a sparse tensor's indices"


def sparse_reason(call: OpCall) -> str | None:
    """Return why the tensors' sizes do not show which bytes the call touches, or None if they do."""
    leaves = (*call.input_leaves(), *(call.output_leaves() or ()))
    layouts = {leaf.layout for leaf in leaves if leaf is not None and leaf.is_sparse}
    return None if not layouts else STRIDELESS if layouts == {"other"} else STORED


#: Matrix products: the position of the first factor among the tensors.
_FIRST_FACTOR = {
    **dict.fromkeys(words("mm bmm mv _sparse_mm smm spmm hspmm"), 0),
    **dict.fromkeys(words("addmm baddbmm addmv _sparse_addmm sspaddmm _addmm_activation"), 1),
}


def stored_cost(name: str, call: OpCall, why: str) -> Cost:
    """Return the cost of a call with a sparse tensor, for the op registered as ``name``.

    A product of a sparse and a dense matrix is 2·stored·N; N is the dense matrix's number of columns
    (of rows, if the second factor is sparse). Raises CannotKnow(why) for any other call.
    """
    word = name.removeprefix("aten::")
    if word == "sparse_sampled_addmm":
        pattern, a, b = (need(call, number, "matrix") for number in range(3))
        if a.is_sparse or b.is_sparse or pattern.stored is None:
            raise CannotKnow(why)
        return _stored_product(pattern.stored, sizes(a)[-1], [a, b])
    if word not in _FIRST_FACTOR:
        raise CannotKnow(why)
    a, b = (need(call, _FIRST_FACTOR[word] + number, "matrix") for number in (0, 1))
    stored = a.stored if a.is_sparse else b.stored
    if a.is_sparse == b.is_sparse or stored is None:
        raise CannotKnow(why)
    left, right = sizes(a), sizes(b)
    if left[-1] != right[-2 if len(right) > 1 else 0] or left[:-2] != right[:-2]:
        raise CannotKnow(f"not matrices: {list(left)} and {list(right)}")
    wide = left[-2] if b.is_sparse else right[-1] if len(right) > 1 else 1
    return _stored_product(stored, wide, [a, b])


def _stored_product(stored: int, wide: int, factors: list[TensorSpec]) -> Cost:
    return cost(None, None, matrix=2 * stored * wide, dtype=promote(factors), reason=_INDICES)

"""Cost models of Transformer Engine's calls in XLA programs: fused attention and cuBLAS products.

A trace does not record the calls' attributes (layout, mask, dimension numbers). The shapes of operands and
results show the layout, but no shape shows the mask. Shapes: Transformer Engine
``transformer_engine/jax/cpp_extensions/attention.py`` and ``gemm.py``.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import Final

from opscope.core.perf.ops.attention import attention_cost
from opscope.core.perf.registry import CannotKnow, Cost
from opscope.core.perf.shapes import cost, need, numel, output, outputs, product, sizes, tensors
from opscope.core.schema import OpCall, TensorSpec

from .targets import target

_MASK: Final = "the trace does not record the mask: every pair of a query and a key is counted"
_SEGMENTS: Final = "the lengths of the packed sequences are data that no trace records"


@target("te_fused_attn_forward_ffi", "te_fused_attn_forward")
def attention(call: OpCall) -> Cost:
    """Operands […, S, H, d]; queries, keys and values may share a tensor, or keys and values one."""
    q, k, v = _operands(call)
    results = outputs(call)
    if results is None or len(results) < 2:
        raise CannotKnow("the results are not recorded: they show whether sequences are packed")
    _refuse_packed(q, k, results[1])
    figures = _price(call, q, k, v, backward=False, writes=results[:2])
    return replace(figures, note=_MASK)


@target("te_fused_attn_backward_ffi", "te_fused_attn_backward")
def attention_backward(call: OpCall) -> Cost:
    """The forward's operands, the tensors that the forward saved, its result and the result's gradient."""
    q, k, v = _operands(call)
    statistics = [t for t in tensors(call)[3:] if t.dtype == "f32" and len(t.shape) == len(q.shape)]
    *_, queries, heads, _ = sizes(q)
    among = ((heads, queries), (queries, heads))
    softmax = next((t for t in statistics if sizes(t)[-3:-1] in among), None)
    if softmax is None:
        raise CannotKnow("the softmax statistics are not among the operands")
    _refuse_packed(q, k, softmax)
    results = outputs(call)
    gradients = [q, k, v] if results is None else results[:3]
    result_shape = sizes(q)[:-1] + sizes(v)[-1:]
    result = [t for t in tensors(call)[3:] if t.dtype == q.dtype and t.shape == result_shape][:2]
    # the result and its gradient are both read
    figures = _price(call, q, k, v, backward=True, writes=gradients, grads=(softmax, *result))
    return replace(figures, note=_MASK)


def _operands(call: OpCall) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Return queries, keys and values as […, S, H, d] tensors, split if they share a tensor."""
    q, k, v = (need(call, n, label) for n, label in enumerate(("query", "key", "value")))
    shape, keys = sizes(q), sizes(k)
    if not numel(k) and len(shape) >= 5 and shape[-3] == 3:
        part = TensorSpec(q.dtype, (*shape[:-3], *shape[-2:]))
        return part, part, part
    if not numel(v) and len(keys) >= 5 and keys[-3] == 2:
        part = TensorSpec(k.dtype, (*keys[:-3], *keys[-2:]))
        return q, part, part
    if len(shape) < 4 or len(keys) != len(shape) or shape[:-3] != keys[:-3]:
        raise CannotKnow(f"the layout is not known: {list(shape)}, {list(keys)}")
    return q, k, v


def _refuse_packed(q: TensorSpec, k: TensorSpec, softmax: TensorSpec) -> None:
    """Raise CannotKnow if the sequences are packed, or if the shapes do not show whether they are.

    The softmax statistics are […, H, S, 1] (or have a column per key), unless sequences are packed: then
    they are […, S, H, 1], or have a column per segment.
    """
    (*_, queries, heads, _), keys = sizes(q), sizes(k)[-3]
    extents = sizes(softmax)[-3:]
    if queries == heads and extents[2:] == (1,):
        raise CannotKnow("as many heads as tokens: the shapes do not show if sequences are packed")
    if extents[:2] != (heads, queries) or extents[2] not in (1, keys):
        raise CannotKnow(_SEGMENTS)


def _price(
    call: OpCall,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    *,
    backward: bool,
    writes: list[TensorSpec],
    grads: tuple[TensorSpec, ...] = (),
) -> Cost:
    *batch, queries, heads, dim = sizes(q)
    pairs = product(batch) * heads * queries * sizes(k)[-3]
    # lengths, seeds and empty operands do not count as traffic
    bare = OpCall(call.name, tuple(tensors(call)[:3]))
    dims = dim, sizes(v)[-1]
    return attention_cost(
        bare, q, k, v, (pairs, pairs), dims, backward=backward, writes=writes, grads=grads
    )


@target("te_gemm_ffi", "te_gemm_v2_ffi")
def gemm(call: OpCall) -> Cost:
    """2·M·N·K for [M…, K] and [K, N…]; either may be transposed, which the result [M…, N…] shows."""
    lhs, rhs = need(call, 0, "first operand"), need(call, 2, "second operand")
    result = output(call)
    if result is None:
        raise CannotKnow("the results are not recorded")
    left, right, out = sizes(lhs), sizes(rhs), sizes(result)
    if not product(out):
        return cost([lhs, rhs], [result], dtype=lhs.dtype)
    k = isqrt(product(left) * product(right) // product(out))
    if k**2 * product(out) != product(left) * product(right) or not any(
        (*rows, *columns) == out for rows in _without(left, k) for columns in _without(right, k)
    ):
        raise CannotKnow(
            f"the shapes are not those of a matrix product: {list(left)}, {list(right)}, {list(out)}"
        )
    return cost([lhs, rhs], [result], matrix=2 * product(out) * k, dtype=lhs.dtype)


def _without(shape: tuple[int, ...], k: int) -> list[tuple[int, ...]]:
    """Return a shape without those dimensions, at its end or its start, whose product is ``k``."""
    left = [shape[:at] for at in range(len(shape)) if product(shape[at:]) == k]
    return left + [shape[at:] for at in range(1, len(shape) + 1) if product(shape[:at]) == k]

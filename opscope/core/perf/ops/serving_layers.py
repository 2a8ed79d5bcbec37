"""Norms, gates and quantisers of serving libraries, which write into a tensor argument.

FLOPs per element are those of the models in ``normalization``, ``activation`` and ``quantize``; a
fused op is the sum of its parts. Schemas: vLLM ``csrc/torch_bindings.cpp`` and
``csrc/libtorch_stable/torch_bindings.cpp``, SGLang ``sgl-kernel/csrc/common_extension.cc``, FlashInfer
``norm`` and ``activation``, aiter ``ops/rmsnorm.py``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from opscope.core.perf.registry import CannotKnow, Cost, op, variant, words
from opscope.core.perf.shapes import cost, distinct_tensors, int_param, need, numel, tensors
from opscope.core.schema import FLOATS, OpCall, TensorSpec

#: FLOPs per element: RMS norm, residual sum, quantise by a given scale, quantise by a computed scale.
_NORM, _ADD, _SCALE, _FIND = 4, 1, 3, 4


class Layer(NamedTuple):
    """FLOPs per element of the input, and the positions of the written tensors; the others are read."""

    each: int
    writes: tuple[int, ...]
    input: int
    family: str
    residual: bool = False  #: whether a residual may follow, which the sum overwrites


_LAYERS: Final = (
    # the result, then the input
    (Layer(_NORM, (0,), 1, "norm"), "sgl_kernel::rmsnorm flashinfer::rmsnorm"),
    # Gemma adds 1 to each element of the weight, which is not counted
    (Layer(_NORM, (0,), 1, "norm"), "sgl_kernel::gemma_rmsnorm flashinfer::gemma_rmsnorm"),
    (Layer(_NORM - 1, (0,), 1, "norm"), "_C::rms_norm_weightless"),
    (Layer(_NORM + _SCALE, (0,), 1, "norm"), "_C::rms_norm_static_fp8_quant"),
    (
        Layer(_NORM + _FIND, (0, 3), 1, "norm", residual=True),
        "_C::rms_norm_dynamic_per_token_quant _C::rms_norm_per_block_quant",
    ),
    (Layer(_NORM + _ADD + _SCALE, (0, 2), 1, "norm"), "_C::fused_add_rms_norm_static_fp8_quant"),
    (Layer(_SCALE, (0,), 1, "quantize"), "_C::static_scaled_int8_quant"),
    (Layer(_FIND, (0, 2), 1, "quantize"), "_C::dynamic_scaled_int8_quant"),
    # the input and the residual; both are overwritten
    (
        Layer(_NORM + _ADD, (0, 1), 0, "norm"),
        """sgl_kernel::fused_add_rmsnorm sgl_kernel::gemma_fused_add_rmsnorm
        flashinfer::fused_add_rmsnorm flashinfer::gemma_fused_add_rmsnorm""",
    ),
    (Layer(_NORM - 1 + _ADD, (0, 1), 0, "norm"), "_C::fused_add_rms_norm_weightless"),
    # aiter's: the result, the input, the residual, its sum, the weight
    (
        Layer(_NORM + _ADD, (0, 3), 1, "norm"),
        "aiter::rmsnorm2d_fwd_with_add aiter::rmsnorm2d_fwd_with_add_ck",
    ),
    # the input, the result, its scales
    (
        Layer(_FIND, (1, 2), 0, "quantize"),
        """_C::per_token_group_fp8_quant _C::per_token_group_fp8_quant_packed
        _C::per_token_group_quant_int8 sgl_kernel::sgl_per_token_group_quant_fp8
        sgl_kernel::sgl_per_token_group_quant_8bit sgl_kernel::sgl_per_token_group_quant_int8
        sgl_kernel::sgl_per_token_quant_fp8""",
    ),
)
_BY_NAME: Final = {name: layer for layer, names in _LAYERS for name in words(names)}


def _layer(call: OpCall) -> Cost:
    layer = _BY_NAME[call.name]
    operands = tensors(call)
    x = need(call, layer.input, "input")
    if len(operands) <= max(layer.writes):
        raise CannotKnow("the trace has no shape for the result")
    writes = [operands[n] for n in layer.writes]
    overwritten = layer.input in layer.writes
    reads = [t for n, t in enumerate(operands) if n not in layer.writes or overwritten]
    each = layer.each
    if layer.residual:
        residual = [t for t in operands[4:] if t.shape == x.shape]
        writes += residual
        each += _ADD * len(residual)
    return cost(reads, writes, vector=each * numel(x), dtype=x.dtype)


for _family in ("norm", "quantize"):
    op(
        *(name for name, layer in _BY_NAME.items() if layer.family == _family),
        family=_family,
        source="the sum of its parts: RMS norm 4, a residual 1, quantise 3, with a computed scale 4",
    )(_layer)


@op(
    "sgl_kernel::sgl_per_tensor_quant_fp8",
    family="quantize",
    source="3 per element, 4 with a computed scale",
)
def quantize_tensor(call: OpCall) -> Cost:
    """Input, result and one scale; a given scale is read, a computed one written."""
    x, result, scale = (need(call, n, "operand") for n in range(3))
    given = call.param("is_static")
    if not isinstance(given, bool):
        raise CannotKnow("the trace does not record is_static")
    reads, writes = ([x, scale], [result]) if given else ([x], [result, scale])
    return cost(reads, writes, vector=(_SCALE if given else _FIND) * numel(x), dtype=x.dtype)


@op(
    "_C::scaled_fp4_quant",
    "sgl_kernel::scaled_fp4_quant",
    family="quantize",
    source="4 per element: the largest of each 16, scale, round, clamp",
    variants={"sgl_kernel": "sgl_kernel::scaled_fp4_quant"},
)
def quantize_fp4(call: OpCall) -> Cost:
    """Two elements per byte, and a scale per 16 elements (padded to tiles)."""
    operands = tensors(call)
    if variant(call, "sgl_kernel") or (operands and operands[0].dtype not in FLOATS):
        result, x, scales = (need(call, n, "operand") for n in range(3))
        writes = [result, scales]
    else:
        x = need(call, 0, "input")
        written = call.output_leaves()
        writes = [t for t in written if t is not None] if written else []
        if not writes:
            packed = (*x.shape[:-1], numel(x) // max(numel_of_rows(x), 1) // 2)
            writes = [TensorSpec("u8", packed)]
    return cost([x], writes, vector=_FIND * numel(x), dtype=x.dtype)


def numel_of_rows(x: TensorSpec) -> int:
    """Return the number of rows of ``x``."""
    return numel(TensorSpec(x.dtype, x.shape[:-1]))


#: FLOPs per element of the result: the activation and the product with the other half.
_GATES: Final = {
    "sgl_kernel::silu_and_mul": 6, "flashinfer::silu_and_mul": 6, "_C::mul_and_silu": 6,
    "sgl_kernel::gelu_and_mul": 6, "flashinfer::gelu_and_mul": 6,
    "sgl_kernel::gelu_tanh_and_mul": 9, "flashinfer::gelu_tanh_and_mul": 9,
    "_C::silu_and_mul_quant": 6 + _SCALE,
}  # fmt: skip


@op(*_GATES, family="activation", source="as _C::silu_and_mul; 3 more to quantise")
def gate(call: OpCall) -> Cost:
    """The result comes first, then the input, twice as wide."""
    out, x, *more = distinct_tensors(call)[:3] or [need(call, 0, "result")]
    return cost([x, *more], [out], vector=_GATES[call.name] * numel(out), dtype=x.dtype)


@op(
    "_C::silu_and_mul_per_block_quant",
    family="activation",
    source="silu_and_mul 6, quantise with a computed scale 4",
)
def gate_blocks(call: OpCall) -> Cost:
    """The operands are the result, the input, the scales of the result's blocks."""
    out, x, scales = (need(call, n, "operand") for n in range(3))
    return cost([x], [out, scales], vector=(6 + _FIND) * numel(out), dtype=x.dtype)


@op(
    "_C::fused_qk_norm_rope",
    family="norm",
    source="RMS norm 4 and rotary 3 per element of queries and keys; values do not change",
)
def norm_and_rotate(call: OpCall) -> Cost:
    """Change [T, (q + k + v heads)·d] in place."""
    qkv = need(call, 0, "queries, keys and values")
    heads = int_param(call, "num_heads_q") + int_param(call, "num_heads_k")
    tokens = numel_of_rows(qkv)
    turned = TensorSpec(qkv.dtype, (tokens, heads * int_param(call, "head_dim")))
    reads = [turned, *[t for t in distinct_tensors(call) if t is not qkv]]
    return cost(reads, [turned], vector=7 * numel(turned), dtype=qkv.dtype)


@op(
    "_C_cache_ops::concat_and_cache_mla",
    "sgl_kernel::concat_mla_k",
    "_C_cache_ops::concat_mla_q",
    family="copy",
    source="two parts of each token are written side by side",
    variants={
        "mla": "_C_cache_ops::concat_and_cache_mla",
        "sgl_kernel": "sgl_kernel::concat_mla_k",
    },
)
def concat_mla(call: OpCall) -> Cost:
    """Read two parts and write them side by side; of a cache, write only the new tokens."""
    operands = distinct_tensors(call)
    parts = operands[1:3] if variant(call, "sgl_kernel") else operands[:2]
    if len(parts) < 2:
        raise CannotKnow("the trace has no shapes for the parts")
    if variant(call, "mla"):
        return cost(parts, parts)
    result = operands[0] if variant(call, "sgl_kernel") else need(call, 2, "result")
    return cost(parts, [result])

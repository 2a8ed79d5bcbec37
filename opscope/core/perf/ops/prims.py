"""Ops of PyTorch's primitives (``prims::``), Static Runtime and others that are ATen ops by another name."""

from __future__ import annotations

from typing import Final

from opscope.core.perf.registry import Cost, also, as_name, lookup, op, variant, words
from opscope.core.perf.shapes import cost, need, numel, span
from opscope.core.schema import OpCall

#: From the primitive's name to the ATen name, where they differ.
RENAMED: Final = {
    "bessel_i0": "i0",
    "bessel_i0e": "special_i0e",
    "bessel_i1": "special_i1",
    "bessel_i1e": "special_i1e",
    "bessel_j0": "special_bessel_j0",
    "bessel_j1": "special_bessel_j1",
    "cbrt": "sqrt",
    "erf_inv": "erfinv",
    "erfcx": "special_erfcx",
    "ndtri": "special_ndtri",
    "spherical_bessel_j0": "special_spherical_bessel_j0",
    "zeta": "special_zeta",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "fft_c2c": "_fft_c2c",
    "fft_c2r": "_fft_c2r",
    "fft_r2c": "_fft_r2c",
    "iota": "arange",
    "rev": "flip",
    "copy_to": "copy",
    "copy_strided": "clone",
    "reshape": "clone",
    "collapse": "clone",
    "device_put": "clone",
    "xor_sum": "sum",
    "svd": "linalg_svd",
}
_SAME: Final = words(
    """
    abs acos acosh add amax amin as_strided_scatter asin asinh atan atan2 atanh bitwise_and
    bitwise_not bitwise_or bitwise_xor cat ceil clone conj_physical cos cosh digamma div eq erf erfc
    exp exp2 expm1 fill floor fmax fmin fmod frexp full full_like gcd ge gt hypot igamma igammac
    isfinite item le lgamma log log10 log1p log2 lt maximum minimum mul ne neg nextafter normal pow
    prod reciprocal remainder round rsqrt scalar_tensor sign signbit sin sinh sqrt sub sum tan tanh
    trunc uniform var where
    """
)
_VIEWS: Final = words(
    """
    as_strided broadcast_in_dim collapse_view conj imag real split_dim squeeze
    transpose view_of view_of_dtype empty empty_permuted empty_strided maximum_value minimum_value
    resize _make_token _sink_tokens
    """
)

for _name in (*_SAME, *RENAMED):
    _aten = f"aten::{RENAMED.get(_name, _name)}"
    _entry = lookup(_aten)
    assert _entry is not None, f"{_aten} has no model"
    op(f"prims::{_name}", family=_entry.family, source=f"as {_aten}")(as_name(_aten))


@op(*(f"prims::{name}" for name in _VIEWS), family="view", view=True, source="moves nothing")
def view(call: OpCall) -> Cost:
    """A view of the same memory, or memory that is not touched."""
    return Cost()


also("aten::_foreach_mm", "_native::_foreach_mm_native_0")
also("aten::mm", "symm_mem::_async_input_mm")
also("aten::linear", "vllm::rocm_unquantized_gemm vllm::rocm_unquantized_gemm_impl")
also("aten::cat", "quantized::cat quantized::cat_out quantized::cat_relu quantized::cat_relu_out")
also("aten::clone", "static_runtime::permute_copy static_runtime::reshape_copy "
     "static_runtime::flatten_copy static_runtime::expand_dims_copy")  # fmt: skip
also("aten::_to_copy", "static_runtime::to_copy static_runtime::to_maybe_copy_out")
also("aten::dequantize", "static_runtime::dequantize_copy")
also("aten::embedding_bag", "static_runtime::embedding_bag")
also("aten::layer_norm", "static_runtime::layer_norm")
also("aten::split_copy", "static_runtime::fused_equally_split")


@op("static_runtime::signed_log1p", "static_runtime::clamp_nan_to_num", family="elementwise",
    source="per element: sign, magnitude, log1p, product 4; 1 per bound, nan_to_num 3",
    variants={"log1p": "static_runtime::signed_log1p"})  # fmt: skip
def runtime_elementwise(call: OpCall) -> Cost:
    """Two elementwise functions that Static Runtime fuses."""
    x = need(call, 0, "operand")
    bounds = sum(call.param(key) is not None for key in ("min", "max"))
    each = 4 if variant(call, "log1p") else bounds + 3
    return cost([x], [x], vector=each * numel(x), dtype=x.dtype)


@op("symm_mem::memset32_", family="fill", source="every element written once")
def set_words(call: OpCall) -> Cost:
    """Write ``count`` words of 32 bits."""
    x, count = need(call, 0, "buffer"), call.param("count")
    if type(count) is not int:
        return cost([], None, reason="the trace does not record how many words are set")
    return cost([], [span(x, min(count, numel(x)))])


@op(
    "inductor::accumulate_grad_",
    family="elementwise",
    source="one per element if there was a gradient",
)
def accumulate_grad(call: OpCall) -> Cost:
    """Add the new gradient to the existing one, or store it if there is none."""
    leaves = [*call.input_leaves(), None, None, None]
    old, new = leaves[1:3]
    if new is None:
        return Cost()
    if old is None:
        return cost([new], [new])
    return cost([old, new], [old], vector=numel(new), dtype=new.dtype)

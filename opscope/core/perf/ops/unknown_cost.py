"""Ops whose cost cannot be computed from any call, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from opscope.core.perf.registry import CannotKnow, Cost, op, words
from opscope.core.schema import OpCall

_INSIDE = "it runs other ops, and their costs are counted there"
_PACKED = "the packed weight has no shape"
_DATA = "the number of search iterations depends on the data"
_REGISTRY_TEST = "an op of PyTorch's own tests, with no meaning of its own"

#: (reason, family, names).
REASONS: Final = (
    (_INSIDE, "autograd", "aten::_backward aten::get_gradients"),
    (_DATA, "quantize", "aten::choose_qparams_optimized"),
    (
        "it times kernels that the library chooses",
        "gemm",
        "aten::_cslt_sparse_mm_search",
    ),
    (
        _PACKED,
        "copy",
        """quantized::conv1d_unpack quantized::conv2d_unpack quantized::conv2d_unpack_sizes
        quantized::conv3d_unpack quantized::conv_unpack quantized::conv_transpose1d_unpack
        quantized::conv_transpose2d_unpack quantized::conv_transpose3d_unpack quantized::linear_unpack
        quantized::linear_unpack_fp16 quantized::embedding_bag_unpack sparse::qlinear_unpack""",
    ),
    (
        _REGISTRY_TEST,
        "test",
        """aten::_foobar aten::_test_ambiguous_defaults aten::_test_autograd_multiple_dispatch
        aten::_test_autograd_multiple_dispatch_view_copy
        aten::_test_check_tensor aten::_test_functorch_fallback aten::_test_optional_filled_intlist
        aten::_test_optional_floatlist aten::_test_optional_intlist aten::_test_parallel_materialize
        aten::_test_serialization_subcmul aten::_test_string_default aten::_test_warn_in_autograd
        _test::cat _test::get_first _test::leaky_relu""",
    ),
)


def _not_known(reason: str) -> Callable[[OpCall], Cost]:
    def model(call: OpCall) -> Cost:
        raise CannotKnow(reason)

    return model


for _reason, _family, _names in REASONS:
    op(*words(_names), family=_family, source=f"null: {_reason}")(_not_known(_reason))

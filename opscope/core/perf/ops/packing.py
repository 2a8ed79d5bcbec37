"""Ops that pack weights for a library's kernels: read once, written once."""

from __future__ import annotations

from opscope.core.perf.registry import Cost, op, words
from opscope.core.perf.shapes import NO_SHAPES, cost, distinct_tensors, outputs
from opscope.core.schema import OpCall


@op(
    *words(
        """
        quantized::conv1d_prepack quantized::conv2d_prepack quantized::conv3d_prepack
        quantized::conv_prepack quantized::conv_transpose1d_prepack quantized::conv_transpose2d_prepack
        quantized::conv_transpose3d_prepack quantized::linear_prepack quantized::linear_prepack_fp16
        quantized::embedding_bag_prepack quantized::embedding_bag_byte_prepack
        quantized::embedding_bag_4bit_prepack quantized::embedding_bag_2bit_prepack
        _quantized::linear_prepack _quantized::conv2d_prepack _quantized::conv3d_prepack
        _quantized::_wrapped_linear_prepack aten::_wrapped_linear_prepack
        onednn::qconv_prepack onednn::qlinear_prepack onednn::linear_prepack_fp16
        mkldnn::_reorder_convolution_weight mkldnn::_reorder_linear_weight
        mkldnn::_reorder_convolution_transpose_weight mkldnn::_reorder_mkldnn_rnn_layer_weight
        mkl::_mkl_reorder_linear_weight mkldnn_prepacked::conv2d_prepack
        aten::mkldnn_reorder_conv2d_weight aten::mkldnn_reorder_conv3d_weight
        aten::fbgemm_pack_gemm_matrix_fp16 aten::fbgemm_pack_quantized_matrix
        aten::_convert_weight_to_int4pack aten::_convert_weight_to_int4pack_for_cpu
        aten::_dyn_quant_pack_4bit_weight
        quantized::linear_prepack_legacy quantized::linear_prepack_fp16_legacy sparse::qlinear_prepack
        _quantized::linear_prepack_fp16 _quantized::linear_prepack_fp16_legacy
        _quantized::linear_prepack_legacy _quantized::conv_transpose1d_prepack
        _quantized::conv_transpose2d_prepack _quantized::conv_transpose3d_prepack
        _quantized::wrapped_fbgemm_pack_gemm_matrix_fp16 aten::_mkldnn_reshape
        quantization::_FloatToBfloat16Quantized quantization::_Bfloat16QuantizedToFloat
        """
    ),
    family="copy",
    source="read and written once, packed",
)
def pack(call: OpCall) -> Cost:
    """Write the result as recorded, else as large as the first input."""
    operands = distinct_tensors(call)
    if not operands:
        return cost(None, None, reason=NO_SHAPES)
    return cost(operands, outputs(call) or operands[:1])

"""Look up the first arguments of other libraries' ops, for traces that give arguments by position only.

PyTorch's own schemas are in ``aten_schema``. These libraries add arguments at the end from version to
version, so a line lists the first arguments, as far as a cost needs them, and applies only if the types in
the trace agree with it. Several lines of one op are several versions.

From vLLM ``csrc/torch_bindings.cpp``, its flash-attention's ``flash_api_torch_lib.cpp``, SGLang
``sgl-kernel/csrc/common_extension.cc``, aiter ``aiter/ops/mha.py``, flash-attention
``flash_attn_interface.py``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from .aten_schema import MARKS, Argument

_DENSE: Final = "*q *k *v dropout_p softmax_scale is_causal window_size_left window_size_right"
_FLASH: Final = "*q *k *v dropout_p softmax_scale causal window_size_left window_size_right"
_PACKED: Final = (
    "*q *k *v *cu_seqlens_q *cu_seqlens_k max_seqlen_q max_seqlen_k min_seqlen_q dropout_p softmax_scale "
    "logits_soft_cap zero_tensors is_causal window_size_left window_size_right"
)
_PREFILL: Final = (
    "*q *k *v *cu_seqlens_q *kv_indptr *kv_page_indices max_seqlen_q max_seqlen_k dropout_p softmax_scale "
    "logits_soft_cap zero_tensors is_causal window_size_left window_size_right"
)
_VARLEN: Final = (
    "max_seqlen_q max_seqlen_k p_dropout softmax_scale zero_tensors is_causal "
    "window_size_left window_size_right"
)
_PAGED: Final = (
    "*query *key_cache *value_cache num_kv_heads scale *block_tables *seq_lens "
    "block_size max_seq_len"
)
_MARLIN_SIZES: Final = "b_q_type_id size_m size_n size_k"
#: Words as in ``aten_schemas.json``: ``*`` marks a tensor.
_LEADING: Final[dict[str, tuple[str, ...]]] = {
    "aiter::mha_fwd": (_DENSE,),
    "aiter::fmha_v3_fwd": (_DENSE,),
    "aiter::mha_varlen_fwd": (_PACKED,),
    "aiter::fmha_v3_varlen_fwd": (_PACKED,),
    "aiter::mha_batch_prefill": (_PREFILL,),
    "flash_attn::_flash_attn_forward": (_FLASH,),
    "flash_attn::_flash_attn_varlen_forward": (
        "*q *k *v *cu_seqlens_q *cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p softmax_scale causal "
        "window_size_left window_size_right",
    ),
    "_vllm_fa2_C::varlen_fwd": (
        f"*q *k *v *out *cu_seqlens_q *cu_seqlens_k *seqused_k *leftpad_k *block_table "
        f"*alibi_slopes {_VARLEN}",
        f"*q *k *v *out *cu_seqlens_q *cu_seqlens_k *seqused_k *block_table *alibi_slopes {_VARLEN}",
    ),
    "_vllm_fa3_C::fwd": (
        "*q *k *v *k_new *v_new *q_v *out *cu_seqlens_q *cu_seqlens_k *cu_seqlens_k_new *seqused_q "
        "*seqused_k "
        "max_seqlen_q max_seqlen_k",
    ),
    "_C::paged_attention_v1": (f"*out {_PAGED}",),
    "_C::paged_attention_v2": (f"*out *exp_sums *max_logits *tmp_out {_PAGED}",),
    "_C::marlin_gemm": (
        "*a *c_or_none *b_q_weight *b_bias_or_none *b_scales *a_scales *global_scale *b_zeros_or_none "
        f"*g_idx_or_none *perm_or_none *workspace {_MARLIN_SIZES}",
    ),
    "sgl_kernel::gptq_marlin_gemm": (
        "*a *c_or_none *b_q_weight *b_scales *global_scale_or_none *b_zeros_or_none *g_idx_or_none "
        f"*perm_or_none *workspace {_MARLIN_SIZES}",
    ),
    "sgl_kernel::moe_wna16_marlin_gemm": (
        "*a *c_or_none *b_q_weight *b_scales *b_zeros_or_none *g_idx_or_none *perm_or_none *workspace "
        "*sorted_token_ids *expert_ids *num_tokens_past_padded *topk_weights moe_block_size top_k "
        f"mul_topk_weights is_ep {_MARLIN_SIZES}",
    ),
    "_C::fused_qk_norm_rope": ("*qkv num_heads_q num_heads_k num_heads_v head_dim eps",),
    "sgl_kernel::sgl_per_tensor_quant_fp8": ("*input *output_q *output_s is_static",),
}


@lru_cache(maxsize=8192)
def leading_arguments(
    name: str, tensors: tuple[bool | None, ...]
) -> tuple[Argument | None, ...] | None:
    """Return the known arguments of ``name``, and None for each argument after these.

    ``tensors``: for each argument, whether it is a tensor (None: the trace does not say). Returns None for
    an op that is not listed, and if no version agrees with the trace.
    """
    for line in _LEADING.get(name.partition(".")[0], ()):
        arguments = [
            Argument(word.lstrip("*"), MARKS.get(word[:1], "scalar")) for word in line.split(" ")
        ]
        if len(arguments) <= len(tensors) and all(
            is_tensor is None or is_tensor == (argument.kind == "tensor")
            for argument, is_tensor in zip(arguments, tensors, strict=False)
        ):
            return (*arguments, *[None] * (len(tensors) - len(arguments)))
    return None

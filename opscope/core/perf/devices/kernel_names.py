"""Decide from a kernel's name whether it computes on Tensor Cores, and whether by a fast algorithm.

AMD's matrix cores are included. A name proves that a kernel uses them (it contains an instruction, or all
kernels of a library with that name use them), or that it does not (the kernel adds, moves, converts), or
neither. tests/core/perf/kernel_names.csv has labelled names by library, with source and explanation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from opscope.core.communication import is_kernel
from opscope.core.dialects.demangle import LONGEST, all_demangled, demangled
from opscope.core.schema import SEARCHED


class Rule(NamedTuple):
    """Whether kernels whose name matches ``pattern`` use Tensor Cores (``tensor_cores``), and ``why``.

    ``own_name_only``: search only the function's own name, without template arguments.
    """

    tensor_cores: bool
    why: str
    pattern: re.Pattern[str]
    own_name_only: bool = False


def _any(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(words))


#: An instruction of the matrix units anywhere in the name.
_INSTRUCTION: Final = _any(
    # M, N and K of the instruction, then the kind of product: s884gemm, h16816, i8816cudnn, tensor16x8x16
    r"(?<![0-9])(?:884|1688|8816|8832|16816|16832|16864|161616|88128|168128|168256|1684)"
    r"(?:g_|_|x\d|gemm|cudnn|fprop|dgrad|wgrad|conv|symm|trmm|syrk|herk|hemm|tf32|3xtf32)",
    r"(?<![0-9])\d+x\d+x\d+(?:tf32)?gemm_",
    r"tensor_?op|(?<!Sub)TensorOp(?!WithScalar)|_tensor\d+x\d+x\d+",
    r"(?<![A-Za-z])(?:[hiqobd]mma|u?mma|[wu]gmma|wmma|gmma|tcgen05)(?![a-z])",
    r"(?<![A-Z])(?:WMMA|GMMA|UMMA|QMMA|HMMA|IMMA)_|UMMA::|GMMA::|MmaUniversal|wmma::",
    r"SM(?:70|75|80|89|90|100|120)_\d+x\d+x\d+|SM100_MMA|Mma_m\d+n\d+k\d+|m\d+n\d+k\d+",
    r"(?i:mfma)|_xdlops|_xdl_|xdl_cshuffle|Xdl(?:ops|_|[A-Z])|_wmma_",
)
_MULTIPLIES: Final = Rule(
    False,
    "the name stands for plain multiply-adds on the vector units",
    _any(
        r"(?i:simt)(?!ensor)|_ffma_|ffma_|MmaSimt|OpClassSimt|(?i:gemv|gemmSN|gemmk1)|dp4a",
        r"implicit_convolve_[sh]gemm|explicit_convolve_[sh]gemm|convolve_common_engine",
        r"[_l]scudnn|wgrad_alg[01]_engine|dgrad_engine|(?:d|w)grad2d_(?:grouped_direct|c1_k1)"
        r"|conv2d_(?:grouped_direct|c1_k1)",
        r"(?i:winograd)|fft2d_|_fft_|vector_fft|regular_fft|fft_rtc|miopenSp3AsmConv|miopenGcnAsmConv",
        r"igemm_(?:fwd|bwd|wrw)_gtcn\d*_|(?<!x)dlops|_dl_|naive_conv|gemm_naive|_naive(?![a-z])",
        r"fmha_cutlass[FB]_f32_\w*?sm(?:50|70|75)|fmha_cutlass[FB]_\w*?sm50",
    ),
)
#: Rules before the search for instructions: helper kernels carry the names of the kernels that they help.
_FIRST: Final = (
    Rule(
        False,
        "a copy, a set or a collective",
        _any(r"(?i:memcpy|memset)|amd_rocclr_(?:copy|fill)"),
    ),
    Rule(
        False,
        "it adds or combines the parts of a product",
        _any(
            r"(?i:split_?k_?reduce|reduce_?split_?k)|reduction::kernel",
            r"(?i:splitkv?_?combine)|FmhaFwdSplitKVCombine|flash_fwd_\w*combine|FlashAttnFwdCombine",
            r"mla_combine|combine_kernel|CombineKernel|_combine_|reduce_segments|mla_reduce|MlaReduce",
            r"ll4mi_reduce|MergeStates?Kernel|merge_attn_states|_merge_state|splitkv_merge",
            r"flash_attn_combine|_fixup|ps_reduce|attention_reduce|fwd_kernel_stage2|pa_\w*reduce_kernel",
            r"moe_(?:sum|reduce|weighted_reduce)|finalizeMoe|finalize_?[Kk]ernel|finalize_matmul_scatter",
        ),
    ),
    Rule(
        False,
        "it converts a gradient, or multiplies elements and adds them up, for attention's backward",
        _any(
            r"(?i:convert_?d(?:q|kv|k_?dv))|dq_convert|ConvertQGrad|dq_shuffle",
            r"(?i:dot_?(?:do_?o|o_?do))|OGradDotO|_odo_|FlashAttnBwd(?:Pre|Post)process",
            r"bwd_preprocess|flash_bwd_clear|fmha_bwd_\w*preprocess"
            r"|cutlass::fmha::kernel::FmhaKernelBwd(?:SumOdO|Convert)",
        ),
    ),
    Rule(
        False,
        "it lays out or scales data, or computes offsets, for another kernel",
        _any(
            r"(?i:compute\w*Offsets|nchwTo[A-Z]?hwc|nhwcTo[A-Z]?chw|transform_filter|flip_filter)",
            r"scalePackedTensor|AddPaddingKernel|tensorTransformGeneric|compute_gemm_pointers|_permute_cols",
            r"prepare_varlen|get_mla_metadata|mla_metadata|paged_mqa_logits_metadata|clean_logits",
            r"(?i:marlin_(?:moe_)?(?:repack|permute)|awq_marlin_repack|gptq_marlin_repack|prepackB"
            r"|permute_cols)",
            r"__get_group_gemm_starts|get_group(?:ed)?_(?:mm|gemm)_(?:starts|data|info)|group_gemm_starts",
            r"(?i:im2d?2?col|im2col|col2im)|im3d2col|Im3d2Col|transpose_and_pack|transpose_fp32"
            r"|batched_transpose",
            r"(?i:^(?!.*(?:gemm|matmul|_mm|dot|moe|attn|attention|mul_mat)).*de_?quant)",
            r"matrix_to_m\d+n\d+k\d+",
        ),
        own_name_only=True,
    ),
    _MULTIPLIES,
)
#: Names of cuBLAS's plain kernels; a name that also has an instruction's numbers is not one of them.
_LETTERS: Final = Rule(
    False,
    "the library's kernel of this name multiplies on the vector units",
    _any(
        r"(?:maxwell|pascal|volta|turing|ampere|hopper)_(?:[sdhcz]|g?c)gemm_(?!.*(?:tensor|nvjet))",
        r"(?:^|[_ ])(?:sgemm|dgemm|cgemm|zgemm)(?:_|E|$)|gcgemm_|sgemmEx|sgemm_largek",
    ),
)
_PRODUCTS: Final = (
    Rule(True, "the name contains an instruction of the matrix units", _INSTRUCTION),
    Rule(
        True,
        "cuBLAS and cuDNN: all kernels of this name run on Tensor Cores",
        _any(
            r"\bnvjet_",
            r"(?<![a-z])xmma_|_xmma_",
            r"cudnn_generated_fort_native_sdpa|sdpa_sm\d+_flash|cudnn\w*flash_[fb]prop",
        ),
    ),
    Rule(
        True,
        "attention of FlashAttention, xFormers, cuDNN, TensorRT-LLM: its products run on Tensor Cores",
        _any(
            r"flash_(?:fwd|bwd)_\w*kernel|flash_(?:fwd|bwd)_(?:splitkv_)?mla|FlashAttn(?:Fwd|Bwd)Sm"
            r"|flash::Flash\w+(?:Forward|Backward)",
            r"flash_(?:fwd|bwd)(?:_|$)|FlashAttnFwd|FlashAttnBwd|FlashAttention(?:Forward|Backward)Sm",
            r"fmha_cutlass[FB]_|fmha_v2|[fF]mhaSm\d|flash_attention_(?:fp16|bf16|e4m3)"
            r"|CollectiveMmaAttention",
            r"Sm(?:90|100|103|120)(?:Array)?(?:Tma|Mma|Umma)|Sm\d+Fmha\w*Kernel|FmhaKernelTma|FmhaMlaKernel",
            r"flash_attn_ext_f16|flash_attn_mma",
        ),
    ),
    Rule(
        True,
        "FlashInfer: its prefill and MLA kernels multiply with mma or wgmma",
        _any(
            r"(?:Batch|Single)?Prefill(?:With\w+)?KVCache\w*Kernel|PrefillWithKVCache",
            r"BatchMLAPagedAttention\w*Kernel|BatchMLAPageAttention\w*|PODWithKVCache\w*|BatchPODWith\w*",
        ),
    ),
    Rule(
        True,
        "TensorRT-LLM's generated products: the dtypes of C, A and B are in the name",
        _any(
            r"^(?:bmm|gemm)_(?:Mx)?(?:Fp32|Fp16|Bfloat16|E\dm\d|Int8)_(?:Mx)?(?:Fp16|Bfloat16"
            r"|E\dm\d|Int8|Tf32|Fp32)",
            r"fused_a_gemm_kernel|fp8_blockscale_gemm|kernel_mha\b(?!\w)",
        ),
    ),
    Rule(
        True,
        "a library's low-precision product, written for mma or wgmma",
        _any(
            r"(?i:marlin)|machete|awq_gemm_kernel|awq::gemm_forward|gemm_forward_4bit|tinygemm_",
            r"deep_gemm::\w*(?:gemm|bmm|einsum|mqa_logits)|(?<![a-z])fp8_gemm_kernel|sm(?:90|100"
            r"|120)_\w*(?:fp8|bf16|fp4)_\w*(?:gemm|mqa_logits)",
            r"kgemm_4bit_inference(?!_naive)|qserve\w*gemm|cutlass_w4a8|Fp8Gemm|fp8_rowwise_gemm",
        ),
    ),
    Rule(
        True,
        "a Triton kernel of this name multiplies blocks with tl.dot",
        _any(
            r"triton_tem_|^triton_mm|^(?:triton_)?gemm_(?:fusion_)?dot|^_(?:p_)?matmul_ogs_",
            r"fused_moe_kernel|_w8a8_(?:block_fp8_matmul|triton_block_scaled_mm)|_lora_(?:shrink"
            r"|expand)_kernel",
            r"kernel_unified_attention_[23]d|unified_attention_[23]d|_fwd_grouped_kernel_stage1"
            r"|_attn_fwd_inner",
            r"(?:^|[^a-z])_?attn_(?:fwd|bwd)(?!_pre|_post|_res)|^bwd_kernel_(?:dk_dv|dq|fuse)",
            r"^_(?:gemm|batched_gemm)_a\d+_?w(?:fp)?\d+|^_gemm_afp4|^_bmm_chunk_fwd|^_chunk_(?:scan"
            r"|state)_(?:fwd|bwd|varlen)",
            r"^chunk_(?:fwd_kernel_o|scaled_dot_kkt|gated_delta_rule_fwd_kernel_h)"
            r"|^recompute_w_u_fwd|_inverse_kernel$",
            r"nvfuser_matmul_|_grouped_mm_|scaled_mm_kernel|_grouped_gemm_kernel",
        ),
        own_name_only=True,
    ),
    Rule(
        True,
        "AMD: Tensile's and MIOpen's names contain the matrix instruction (MI, gtcx, gtcw)",
        _any(r"^Cijk_.*_MI\d+x\d+", r"igemm_(?:fwd|bwd|wrw)_gtc[xw]\d*_"),
    ),
    Rule(
        True,
        "AMD: Composable Kernel's products and attention are written for MFMA or WMMA",
        _any(
            r"ck_tile::\w*(?:Fmha(?:Fwd|Bwd|Batch)|[Gg]emm|Flatmm|GroupedConv)",
            r"\dFmha(?:Fwd|Bwd|Batch)\w{0,80}KernelI",
            r"batched_gemm.*xdl|moe_ck2stages_gemm|kernel_moe_(?:mx)?gemm|kernel_gemm_xdl",
        ),
    ),
    Rule(
        True,
        "AMD: aiter's assembly kernels of products and attention are written for MFMA",
        _any(
            r"aiter::(?:fmha_(?:fwd|bwd)_|mla_(?:a\d|dec_stage1|pfl)|pa_(?:bf16|fp16)_|PA_A\d+W\d+"
            r"|fmoe_|fmha_)",
            r"aiter::(?:bf16gemm|fp8gemm|f[468](?:f[468])?gemm|i8gemm|a16w8gemm|flatmm|hgemm|f4gemm)",
            r"\d+(?:fmha_(?:fwd|bwd)_hd|mla_(?:a\d|dec_stage1|pfl)|pa_(?:bf16|fp16)_|fmoe_)\w*E",
        ),
    ),
)
#: Names of functions that pass once over their elements.
_ELEMENTS: Final = Rule(
    False,
    "it passes over elements: it adds, compares, converts, moves, sorts or draws random numbers",
    _any(
        r"^(?:\S+ )?at::native::(?!.*tinygemm).*(?:elementwise|reduce|[Ss]oft_?[Mm]ax"
        r"|[Cc]at_?[Aa]rray|[Ii]ndex|gather|scatter"
        r"|[Ll]ayer_?[Nn]orm|LayerNorm|[Mm]oments|GammaBeta|rms_norm|batch_norm|group_norm"
        r"|GroupNorm|pool|upsample|dropout"
        r"|distribution|multi_tensor_apply|embedding|loss|sort|[Tt]op[Kk]|scan|cumsum|arange|fill"
        r"|copy|Gradients|FusedParams|[Rr]oll|unfold|[Gg]ather)",
        r"(?:^|[: _])(?:vectorized|unrolled|index|legacy)?_?elementwise_kernel"
        r"|elementwise_kernel_with_index|kernelPointwiseApply|kernelReduceAll",
        r"multi_tensor_apply_kernel|CatArrayBatchedCopy|(?:indexSelect|indexFunc)\w*Index|cunn_\w+"
        r"|[Ss]oft_?[Mm]ax_?(?:warp|fw|bw|block|[Ff]orward|[Bb]ackward|kernel)",
        r"^(?:void )?(?:at_cuda_detail::)?(?:cub|thrust|rocprim|hipcub)::|at_cuda_detail::cub"
        r"|thrust::cuda_cub|rocprim::",
        r"^triton_(?:poi|per|red|for)_(?!.*(?:_mm|bmm|addmm|_dot|matmul|baddbmm))|^triton__\d"
        r"|^triton_softmax",
        r"nvfuser_(?:pointwise|reduction|inner_persistent|outer_persistent|inner_outer_persistent"
        r"|transpose)_",
        r"^(?:input|loop|wrapped)_\w*(?:fusion|transpose|reduce|add|convert|copy|broadcast|select"
        r"|compare|multiply)",
    ),
    own_name_only=True,
)
#: Whole names of helper kernels; such a name may contain the name of the product that the kernel helps.
_SERVING: Final = Rule(
    False,
    "a library's kernel that serves products, or handles one query at a time on the vector units",
    _any(
        r"paged_attention_v[12](?:_reduce)?_kernel|BatchDecodeWithPagedKVCacheKernel$"
        r"|SingleDecodeWithKVCache",
        r"flash_attn_(?:ext_vec|vec_ext|tile_ext)|mul_mat_vec|reshape_and_cache|store_kv_?cache",
        r"[Aa]ppendPagedKVCache|concat_and_cache|copy_blocks|kv_indices|_causal_conv1d|causal_conv1d",
        r"_selective_scan|selective_scan|_state_passing|_chunk_cumsum|chunk_local_cumsum|fused_recurrent",
        r"moe_(?:align|sort|permute|unpermute)|grouped_topk|moe_sorting|MoeSorting|expandInputRows|dispatch_layout",
        r"moe::dev::(?:routing|finalize|activation|permute|convertsf)|fused_mx_quant_moe_sort",
        r"_combined_routing|_sum_bitmatrix_rows|_compute_writeback_idx",
        r"elemWiseRNNcell|LSTM_elementWise|GRU_elementWise|epilogue::impl::globalKernel|scal_kernel"
        r"|axpy_kernel",
        r"(?:^|::)dot_kernel|reduce_1Block_kernel|reduce_wgrad_\w*helper|kOptimizer|kQuantize"
        r"|kDequantize|kgetColRowStats",
        r"split_embedding|fbgemm_gpu::(?!.*gemm)|bounds_check_indices|permute_pooled_embs"
        r"|linearize_index|recat_",
        r"MIOpenBatchNorm|MIOpenNeuron|MIOpenPooling|mloPooling|SubTensorOp|Op[1-5]dTensor|OpTensor",
        r"cudnn::(?:ops|bn|pooling)\w*::|op_generic_tensor_kernel|pooling_[fb]w|softmax_[fb]w_kernel|nchwBN",
        r"ck_tile::(?:Rmsnorm2d|Layernorm2d|Smoothquant|MoeSorting|Reduce|Elementwise|Permute|TopkSoftmax)",
        r"ck_tile::(?:BatchedTranspose|Pool|Add\w*Rms|Im2Col|ImageToColumn|MoeSmoothquant)",
        r"rms_norm_f32|k_get_rows|k_bin_bcast|cpy_f\d+|soft_max_f\d+|rope_(?:norm|neox|yarn)|convert_unary",
        r"bn_(?:fw|bw)|cudf::detail::",
    ),
    own_name_only=True,
)
#: Words for passes over elements; they prove nothing if the name also has a word for a product.
_WORDS: Final = Rule(
    False,
    "norms, activations, rotations, routing, sampling, optimizers: it contains no product",
    _any(
        r"(?i:(?:rms|layer|batch|group|instance|l2)_?norm)",
        r"(?i:(?:silu|gelu|swiglu|geglu|relu|situ|act)_?(?:and_)?_?mul)|(?i:swiglu|geglu|silu|gelu)"
        r"|[Aa]ctivation_?[Kk]ernel",
        r"(?i:rotary|rope(?![a-z]))|(?i:top_?k(?![a-z]))|(?i:topk_?(?:gating|softmax|forward|renorm"
        r"|mask))|routing",
        r"(?i:(?:per_(?:token|tensor|channel)_?(?:group_)?|scaled_fp8_|mx_?|fp4_|fp8_|nvfp4_|mxfp8_"
        r"|static_|dynamic_)quant)",
        r"quantize_(?:q8|mmq|with|fp|kernel)|_quantize|cvt_fp16_to_fp4|(?i:adam|lamb_|sgd_)",
        r"(?i:cross_?entropy|nll_?loss|sampling|argmax|penalt|softmax)|bitonic|radix_?sort|RadixTopK",
        r"transformer_engine::\w*(?:cast|transpose|norm|gated|activation|softmax|quant|permute|rope)",
        r"(?:^|_)(?:dropout|embedding|pad|gather|scatter|concat|transpose|cast|copy|fill|add|mul"
        r"|arange|where|iota)_?(?:fwd|bwd|forward|backward)?_?kernel",
    ),
    own_name_only=True,
)
_PRODUCT_WORD: Final = re.compile(
    r"(?i:gemm(?!a)|matmul|mul_mat|attn|attention|fmha|mha|mla|dot|linear|conv(?!ert)|einsum|bmm"
    r"|_mm_|_mm$|moe(?!_align|_sort|::))"
)
_TEMPLATE: Final = re.compile(r"<[^<>]*>")
_ENTERS: Final = re.compile(r"kentry<[^A-Za-z_]*(?=ck_tile::)")
_END: Final = re.compile(r"[(<>,]")


def search_name(kernel: str) -> str:
    """Return the demangled name of a kernel, cut to the length that patterns search."""
    # a longer text cannot be a symbol, so it is not copied
    name = kernel[:LONGEST].strip() if len(kernel) > LONGEST else demangled(kernel.strip()) or ""
    return name[:SEARCHED]


@lru_cache(maxsize=65_536)
def verdict(kernel: str) -> tuple[bool | None, str]:
    """Return whether a kernel with this name computes on Tensor Cores, and the reason.

    Return None with a reason if the name proves neither.
    """
    name = search_name(kernel)
    name = name.removesuffix(" [clone .kd]").removesuffix(".kd")
    own = own_name(name)
    if is_kernel(own):
        return False, _FIRST[0].why
    for rule in _FIRST:
        if rule.pattern.search(own if rule.own_name_only else name):
            return rule.tensor_cores, rule.why
    if _LETTERS.pattern.search(own) and not _INSTRUCTION.search(name):
        return False, _LETTERS.why
    if _ELEMENTS.pattern.search(own):
        return False, _ELEMENTS.why
    for rule in _PRODUCTS:
        if rule.pattern.search(own if rule.own_name_only else name):
            return rule.tensor_cores, rule.why
    if _SERVING.pattern.search(own):
        return False, _SERVING.why
    if _WORDS.pattern.search(own) and not _PRODUCT_WORD.search(own):
        return False, _WORDS.why
    return None, "the name does not show it"


def uses_tensor_cores(kernel: str) -> bool | None:
    """Whether a kernel with this name computes on Tensor Cores; ``None`` if the name does not show it."""
    return verdict(kernel)[0]


def multiplies_on_vector_units(kernel: str) -> bool:
    """Whether the name proves that the kernel computes a product, and without Tensor Cores."""
    return verdict(kernel) in ((False, _LETTERS.why), (False, _MULTIPLIES.why))


def which_use_tensor_cores(kernels: Sequence[str | None]) -> list[bool | None]:
    """Return ``uses_tensor_cores`` of each name; mangled symbols are demangled in one batch."""
    all_demangled(kernels)
    return [None if name is None else uses_tensor_cores(name) for name in kernels]


def own_name(name: str) -> str:
    """Return the function's own name, without template arguments and signature.

    For a kernel that only calls the struct in its template arguments, return the name of the struct.
    """
    text = name.removeprefix("void ").replace("(anonymous namespace)", "<unnamed>")
    entered = _ENTERS.search(text)
    if entered:
        text = text[entered.end() :]
    for _ in range(64):
        bare = _TEMPLATE.sub("", text)
        if bare == text:
            break
        text = bare
    return _END.split(text, maxsplit=1)[0] or name


_FAST = re.compile(r"winograd|fft2d|_fft|fft_|cgemm|r2c|c2r|strassen", re.IGNORECASE)


def fast_algorithm(kernel: str) -> bool:
    """Whether the kernel computes a convolution with fewer multiplications (Winograd, FFT)."""
    return bool(_FAST.search(kernel, 0, SEARCHED))


_HELPER = re.compile(
    r"splitk_?reduce|reducesplitk|computeOffsets|computeBOffsets|nchwToNhwc|nhwcToNchw|compute_gemm_pointers|"
    r"scalePackedTensor|transform_filter|flip_filter|GammaBeta",
    re.IGNORECASE,
)


def helps(kernel: str) -> bool:
    """Whether the kernel only helps another kernel of its op:

    it adds up partial results, changes the layout of the data, or computes the rest of a layer norm's
    backward.
    """
    return bool(_HELPER.search(kernel, 0, SEARCHED))

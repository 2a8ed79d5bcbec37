"""Sort work into kinds (matrix products, attention, copies …) by an op's family or a kernel's name.

Kinds are for a person who sees a profile for the first time: there are few, and each has its own remedies.

    kind("matrix products", "…", families=("gemm", …))

The direction of an op decides first if it is optimizer or communication, then its family. Kernels of a
compiler, of unregistered library ops and without an op get the kind that the kernel's name proves.
``OTHER``: known to be none of the other kinds. ``UNKNOWN``: nothing shows the kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.communication import is_kernel
from opscope.core.dialects.demangle import all_demangled
from opscope.core.perf.devices.kernel_names import own_name, search_name
from opscope.core.perf.registry import words
from opscope.core.tables.columns import compact, matching


class Kind(NamedTuple):
    """A kind of work: its name, what it includes, and the families of ops that belong to it."""

    name: str
    means: str
    families: tuple[str, ...]


_KINDS: dict[str, Kind] = {}
_BY_FAMILY: dict[str, str] = {}


def kind(name: str, means: str, families: Sequence[str] = ()) -> str:
    """Register a kind and return its name. Raises ValueError if one of its families already has a kind."""
    for family in families:
        if family in _BY_FAMILY:
            raise ValueError(f"{family} already has the kind {_BY_FAMILY[family]}")
        _BY_FAMILY[family] = name
    _KINDS[name] = Kind(name, means, tuple(families))
    return name


MATRIX: Final = kind(
    "matrix products",
    "linear layers, batched products, experts, recurrent layers",
    ("gemm", "moe", "recurrent"),
)
ATTENTION: Final = kind("attention", "fused attention, forward and backward", ("attention",))
CONVOLUTION: Final = kind("convolution", "convolutions, forward and backward", ("conv",))
NORMALISATION: Final = kind(
    "normalisation", "layer, batch, group and RMS norms, softmax", ("norm", "softmax")
)
ELEMENTWISE: Final = kind(
    "elementwise",
    "arithmetic on each element, activations, dropout, casts to other number formats, random numbers",
    ("elementwise", "activation", "dropout", "quantize", "random"),
)
REDUCTIONS: Final = kind(
    "reductions",
    "sums, means, maxima, prefix sums, pooling, losses",
    ("reduction", "scan", "pooling", "loss"),
)
COPIES: Final = kind(
    "copies",
    "copies, sets, transposes, concatenation, gathering and scattering of elements",
    ("copy", "fill", "index", "view", "allocation"),
)
EMBEDDING: Final = kind(
    "embedding", "lookups in embedding tables, and their gradients", ("embedding",)
)
OPTIMIZER: Final = kind("optimizer", "updates of the parameters", ("optimizer",))
COMMUNICATION: Final = kind("communication", "collectives, sends and receives", ("communication",))
OTHER: Final = kind(
    "other",
    "sorting, joins, routing, FFT, decompositions, resampling",
    ("sort", "search", "fft", "linalg", "interpolation", "host", "query", "autograd", "test"),
)
UNKNOWN: Final = kind(
    "unknown",
    "neither the op nor the kernel's name shows the kind of work",
)
#: Time that no op covers, in a profile without a GPU.
NO_OP: Final = kind("outside any op", "inside steps: Python, and libraries without an adapter")

#: Families that do not show what an op does: its kernels' names or the compiler's parameters show it.
UNCLEAR_FAMILIES: Final = frozenset({"fused", "fusion", "compiled", "session"})
#: Roles of ranges that are not ops of a framework.
_RANGES: Final = frozenset({"user", "layer", "step", "phase", "graph"})
_BY_DIRECTION: Final = MappingProxyType({"optimizer": OPTIMIZER, "communication": COMMUNICATION})


def kinds() -> Mapping[str, Kind]:
    """Every kind by its name."""
    return MappingProxyType(_KINDS)


def families() -> Mapping[str, str]:
    """The kind of each family of ops."""
    return MappingProxyType(_BY_FAMILY)


def of_op(
    op: str | None, family: str | None, direction: str | None, params: str | None
) -> str | None:
    """Return the kind of an op by its direction, family or compiler; None if only its kernels show it.

    ``params``: the op's parameters as text; for an XLA fusion they list the fused operations.
    """
    if family == "communication":
        return COMMUNICATION
    if direction is not None and direction in _BY_DIRECTION:
        return _BY_DIRECTION[direction]
    if family in _BY_FAMILY:
        return _BY_FAMILY[family]
    if family == "fusion":
        return _of_fusion(params or "")
    if family == "fused" and op is not None:
        kind = of_kernel(op)
        return None if kind == UNKNOWN else kind
    return None


def of_op_by_name(op: str | None, family: str | None) -> str:
    """If ``of_op`` is None for an op without kernels, return the kind that its name shows, else the kind
    "unknown"."""
    return UNKNOWN if op is None or family in _RANGES else of_kernel(op)


_FUSED_OPS: Final = re.compile(r'\bops="([^"]*)"')
_PRODUCT: Final = re.compile(r"\bmatrix_flops=[1-9]")
_MOVES: Final = frozenset(
    words(
        "transpose copy bitcast reshape broadcast slice dynamic-slice dynamic-update-slice concatenate pad"
        " gather scatter reverse iota constant parameter tuple get-tuple-element"
    )
)


def _of_fusion(params: str) -> str | None:
    """Return the kind of an XLA fusion from its list of fused operations; None without the list."""
    listing = _FUSED_OPS.search(params)
    if listing is None:
        return None
    fused = set(re.split(r"[\s,]+", listing.group(1).strip()))
    if "convolution" in fused:
        return CONVOLUTION
    if _PRODUCT.search(params) or "dot" in fused:
        return MATRIX
    if fused & {"reduce", "reduce-window", "select-and-scatter"}:
        return REDUCTIONS
    return COPIES if fused <= _MOVES else ELEMENTWISE


class _Rule(NamedTuple):
    kind: str
    pattern: re.Pattern[str]
    #: Search the whole name, template arguments included.
    whole: bool = False


def _rule(kind: str, *words: str, whole: bool = False) -> _Rule:
    return _Rule(kind, re.compile("|".join(words), re.IGNORECASE), whole)


#: Rules for kernel names; the first that matches decides. Helper kernels come before the kernels that they
#: help, names of a purpose (norm, optimizer) before names of a form (elementwise, reduce).
_RULES: Final = (
    _rule(
        COPIES,
        r"memcpy|memset|amd_rocclr_(?:copy|fill)|copy_kernel|copy_blocks|CatArray|batched_copy"
        r"|convert_and_copy",
        r"reshape_and_cache|concat_and_cache|store_kv_?cache|AppendPagedKVCache|kv_cache_(?:update|copy)",
        r"nchwTo[A-Z]?hwc|nhwcTo[A-Z]?chw|batched_?transpose|(?:^|_|::)transpose|concat_|(?:^|_|::)pad_",
    ),
    _rule(
        EMBEDDING,
        r"(?<!rotary_)embedding|_embs_|indexSelect|lookup_rows|split_embedding|bounds_check_indices"
        r"|linearize_index",
    ),
    _rule(
        OPTIMIZER,
        r"adam(?!ant)|adagrad|\blamb|_lamb|rmsprop|kOptimizer|FusedSGD|sgd_|shampoo",
    ),
    _rule(
        OPTIMIZER,
        r"multi_tensor_apply.*(?:adam|sgd|lamb|adagrad|momentum|novograd|rmsprop|adadelta|lars)",
        whole=True,
    ),
    _rule(
        NORMALISATION,
        r"(?:layer|batch|group|rms|instance|l2)_?norm|GammaBeta|ComputeInternalGradients"
        r"|ComputeGradientFusedParams|RowwiseMoments|welford|cudnn::bn|bn_[fb]w|nchwBN",
        r"(?<!topk)(?<!topk_)(?<!gating)(?<!gating_)soft_?max(?!_topk)|(?:^|_)norm_(?:fwd|bwd"
        r"|kernel)|rmsnorm",
        r"MIOpenBatchNorm",
    ),
    _rule(
        ATTENTION,
        r"attention|attn|flash_(?:fwd|bwd)|fmha|(?<![a-z])mha|mla_|_mla(?![a-z])|sdpa|KVCache|merge_?states?",
        r"splitkv|pa_(?:bf16|fp16|reduce|a\d)|mqa_logits|convert_?dq|dot_?do_?o|bwd_kernel_(?:dk_dv|dq|fuse)",
        r"_fwd_grouped_kernel|lse_combine|^_?bwd_preprocess|prepare_varlen|kv_indices|_fwd_kernel_stage",
        # replacements of attention: state spaces, gated delta rules, linear attention
        r"chunk_(?:scan|state|fwd|bwd|scaled|gated|cumsum|local)|_(?:gated_delta|kda|gla)_|selective_scan",
        r"state_passing|recompute_w_u|_inverse_kernel|fused_recurrent",
    ),
    _rule(ATTENTION, r"fmha|AttentionKernel|FlashAttn|flash_attn|sdpa", whole=True),
    _rule(
        CONVOLUTION,
        r"(?<![a-z])conv(?!ert)|conv(?:olve|olution|[123]d)|fprop|dgrad|wgrad|winograd|igemm_|im[23]d?2?col",
        r"col2im|scudnn|cudnn_(?:infer|train)|hcudnn|computeOffsets|flip_filter|transform_filter"
        r"|miopenSp3Asm",
        r"GroupedConv|AsmConv|s\d+cudnn|\d+_\w*cudnn|fft2d_|BOffsets",
    ),
    _rule(
        CONVOLUTION,
        r"cutlass.*(?:fprop|dgrad|wgrad|ImplicitGemm)|xdl.*conv|conv.*xdl",
        whole=True,
    ),
    _rule(
        MATRIX,
        r"(?<!fb)gemm|gemv|matmul|mul_mat|(?<![a-z])bmm|_mm_|_mm(?![a-z])|nvjet|xmma|Cijk_|cublas"
        r"|dot_kernel|marlin|machete",
        r"cutlass::Kernel|cutlass_\d+_|split_?k|fused_moe|moe_kernel|kernel_moe|triton_tem_|RNNcell"
        r"|LSTM_|GRU_",
        r"fmoe_|mfma_moe|_moe_\w*kernel|moe::dev::finalize|moe::\w*stage|(?:block|persist)_?RNN"
        r"|RNN_(?:block|persist)|flatmm|_grouped_mm|einsum|reduce_1Block|gemmk1|lora_(?:shrink|expand)",
    ),
    _rule(MATRIX, r"device_kernel<cutlass::gemm|cutlass::gemm::kernel|tinygemm", whole=True),
    _rule(
        OTHER,
        r"sort(?!ed)|top_?k|searchsorted|fft_|_fft|vector_fft|upsample|getrf|potrf|trsm|bucketize|sampling",
        r"routing|dispatch_layout|moe_(?:align|permute|unpermute)|expandInputRows|nms_|cudf::|hash_table|hashtbl",
    ),
    _rule(
        COPIES,
        r"(?<!i)gather|indexFunc|get_rows|matrix_to_m\d|scatter|(?:^|_|::)index_?(?:put|copy|fill"
        r"|elementwise|kernel|add)|permute|unpermute|recat_",
        r"(?:^|_|::)fill|broadcast_kernel|(?:^|_)cast_|(?:^|_)copy|^(?:loop|input"
        r"|wrapped)_(?:transpose|copy|broadcast|concatenate|slice|gather|scatter|pad)",
    ),
    # PyTorch's elementwise kernels take their operation as a template argument
    _rule(OTHER, r"merge_sort|radix_sort|cudf::", whole=True),
    _rule(COPIES, r"elementwise_kernel.*(?:copy_kernel|FillFunctor)|index_elementwise", whole=True),
    _rule(
        REDUCTIONS,
        r"triton_(?:red|per)_|reduce|reduction|cub::Device(?:Scan|Segmented)|scan|cumsum|arg_?max"
        r"|arg_?min|pool",
        r"nll_?loss|NLLCriterion|nvfuser_(?:inner|outer)\w*_(?:persistent|reduction)|cross_?entropy"
        r"|(?:^|_)sum_|^(?:loop|input|wrapped)_reduce",
    ),
    _rule(REDUCTIONS, r"multi_tensor_apply.*norm", whole=True),
    _rule(
        ELEMENTWISE,
        r"elementwise|pointwise|triton_poi_|multi_tensor_apply|dropout|activation|[sg]elu|silu"
        r"|swiglu|relu|sigmoid",
        r"(?:^|_)tanh|rotary|(?<![a-z])rope|quant|cvt_|distribution|axpy|scal_kernel|OpTensor"
        r"|op_generic_tensor",
        r"op_tensor|SubTensorOp|scalePacked|triton_for_|epilogue::impl|Op\dTensor|Op\dDTensor"
        r"|where_kernel|arange|add_kernel|mul_kernel|_and_mul|bias_(?:add|act)",
        r"^(?:loop|input|wrapped)_\w*fusion|^wrapped_|(?:^|_)cpp_fused_|convert_|nvfuser_pointwise",
    ),
)
_FUSED_NORM: Final = re.compile(r"^triton_(?:red|per)_\w*?(?:norm|softmax|var_mean)")
_FUSED_COPY: Final = re.compile(
    r"^triton_poi_fused_+(?:(?:_?to_copy|clone|copy|cat|t|view|transpose|permute|slice|expand"
    r"|squeeze|unsqueeze"
    r"|_unsafe_view|fill|zeros|zeros_like|full|stack|split)_+)+\d"
)


@lru_cache(maxsize=65_536)
def of_kernel(kernel: str) -> str:
    """Return the kind that a kernel's name proves, else ``UNKNOWN``."""
    name = search_name(kernel)
    own = own_name(name)
    if is_kernel(own):
        return COMMUNICATION
    if _FUSED_NORM.search(own):
        return NORMALISATION
    if _FUSED_COPY.search(own):
        return COPIES
    for rule in _RULES:
        if rule.pattern.search(name if rule.whole else own):
            return rule.kind
    return UNKNOWN


def of_kernels(kernels: Sequence[str]) -> list[str]:
    """Return ``of_kernel`` of each name; mangled symbols are demangled in one batch."""
    all_demangled(kernels)
    return [of_kernel(name) for name in kernels]


def communicates(names: pl.Series, directions: pl.Series | None = None) -> NDArray[np.bool_]:
    """Return which kernels communicate, by Categorical columns of their names and of their ops' directions.
    The result for rows of ``Profile.kernels()`` equals ``exchanges.communicating`` for the trace."""
    codes, texts = compact(names)
    kinds = of_kernels([text or "" for text in texts])
    flags: NDArray[np.bool_] = np.array([kind == COMMUNICATION for kind in kinds], bool)[codes]
    return flags if directions is None else flags | matching(directions, f"^{COMMUNICATION}$")

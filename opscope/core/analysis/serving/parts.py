"""Sort a server's device work into the parts of a step: attention, experts, products, sampling …"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from opscope.core.perf import kinds

#: The parts of a step's device work. Waits of the device are ``host`` and ``between``.
ATTENTION, EXPERTS, PRODUCTS, SAMPLING = "attention", "experts", "products", "sampling"
COMMUNICATION, COPIES, OTHER = "communication", "copies", "other"
PARTS: Final = (ATTENTION, EXPERTS, PRODUCTS, SAMPLING, COMMUNICATION, COPIES, OTHER)
#: Names of ops and kernels, by the part that they prove; the first that matches decides.
_RULES: Final = (
    (
        EXPERTS,
        r"(?<![a-z])moe|_moe_|experts?(?![a-z])|grouped_(?:gemm|mm)|group_gemm|matmul_ogs|topk_(?:softmax|sigmoid)"
        r"|grouped_topk|SortTokens|combined_routing|sum_bitmatrix|moe_align|deep_?ep|_topk_forward"
        r"|finalize_?(?:matmul_scatter|moe)|expand_?input_?rows|doActivation.*Expert|fmoe|fusedMoe|dynBatch",
    ),
    (
        ATTENTION,
        r"reshape_and_cache|concat_and_cache|kv_?cache|mla(?![a-z])|paged_attention|fmha|reduce_segments"
        r"|merge_attn|merge_state",
    ),
    (
        SAMPLING,
        r"sampl(?:e|er|ing)(?![a-z]*_grid)|multinomial|arg_?max|top_?k_?top_?p|top_?p(?![a-z])|gumbel|penalt(?:y|ies)"
        r"|rejection|logits?_process|(?:verify|build)_tree|TreeSpeculative|exponential_?kernel",
    ),
)
_PATTERNS: Final = tuple((part, re.compile(pattern, re.IGNORECASE)) for part, pattern in _RULES)
_OF_KINDS: Final = {
    kinds.COMMUNICATION: COMMUNICATION,
    kinds.ATTENTION: ATTENTION,
    kinds.MATRIX: PRODUCTS,
    kinds.COPIES: COPIES,
}


def part_of(op: str | None, family: str | None, kernel: str | None, kind: str | None) -> str:
    """Return the part that work belongs to, from its op, the op's family, its kernel's name and its kind."""
    if kind == kinds.COMMUNICATION:
        return COMMUNICATION
    if family == "moe":
        return EXPERTS
    for text in (op, kernel):
        for part, pattern in _PATTERNS:
            if text and pattern.search(text):
                return part
    return _OF_KINDS.get(kind or "", OTHER)


def parts_of(
    ops: Sequence[tuple[str | None, str | None]], kernels: Sequence[str | None]
) -> list[str]:
    """Return the part of each pair of an op (name and family) and a kernel's name."""
    by_kernel = kinds.of_kernels([kernel or "" for kernel in kernels])
    parts = []
    for (op, family), kernel, named in zip(ops, kernels, by_kernel, strict=True):
        kind = kinds.of_op(op if family == "fused" else None, family, None, None)
        if named == kinds.COMMUNICATION or kind is None:
            kind = named
        parts.append(part_of(op, family, kernel, kind))
    return parts

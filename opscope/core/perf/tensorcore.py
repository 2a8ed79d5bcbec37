"""Tensor Cores: could this op use them, does it as it stands, did this kernel."""

from __future__ import annotations

from opscope.core.schema import OpCall

from .registry import lookup

#: Families that Tensor Cores can compute in some dtype.
MATRIX_FAMILIES = frozenset({"gemm", "conv", "attention", "recurrent"})


def eligible(name: str) -> bool:
    """Whether the op's kind could use Tensor Cores in some dtype (DLProf's meaning)."""
    entry = lookup(name)
    return entry is not None and entry.family in MATRIX_FAMILIES


def ready(call: OpCall, cc: tuple[int, int] | None = None) -> tuple[bool | None, str | None]:
    """Whether the call can use them as it stands, and the reason where not."""
    return None, None

"""Profiles of made rows for the detectors of matrix products: ops as PyTorch calls them, and their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from opscope.core.advice.finding import CannotTell, Finding
from opscope.core.tables.trace import Trace
from opscope.profile import Profile

A100, V100, H100, MI300 = (
    {"name": "NVIDIA A100-SXM4-40GB", "cc": "8.0", "sm_count": 108, "memory": 42_505_273_344},
    {"name": "Tesla V100-SXM2-32GB", "cc": "7.0", "sm_count": 80, "memory": 34_084_028_416},
    {"name": "NVIDIA H100 80GB HBM3", "cc": "9.0", "sm_count": 132, "memory": 85_018_279_936},
    {"name": "AMD Instinct MI300X", "cc": "gfx942", "sm_count": 304, "memory": 206_141_652_992},
)
#: Kernels of which the name proves the units.
SGEMM, TF32, HALF, SECRET = (
    "ampere_sgemm_128x64_nn",
    "cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4",
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn",
    "a_kernel_of_unknown_make",
)
FILL = "void at::native::vectorized_elementwise_kernel<4>"


def made(*rows: Sequence[Any], device: dict[str, Any] | None = A100, **tables: Any) -> Profile:
    """A profile of calls whose kernels queue on one stream: (text of the op, None for none; kernel, ns[, more of the kernel]).

    ``text`` may begin with a category and a colon: ``backward|aten::mm(…)``; forward is the default.
    """
    free, ranges, calls, kernels = 0, [], [], []
    for number, (text, name, time, *more) in enumerate(rows):
        where, at = {"process": 0, "thread": 1}, 20 * number
        if text:
            category, _, call = text.rpartition("|")
            ranges.append({**where, "start": at, "end": at + 10, "text": call, "kind": "pushpop",
                           "domain": "opscope.torch", "category": category or "forward"})  # fmt: skip
        calls.append({**where, "start": at + 1, "end": at + 2, "correlation": number,
                      "name": "cudaLaunchKernel"})  # fmt: skip
        begin = max(at + 3, free)
        free = begin + time
        kernels.append({"process": 0, "device": 0, "stream": 7, "start": begin, "end": free,
                        "name": name, "correlation": number, "grid": "1024,1,1", **(more[0] if more else {})})  # fmt: skip
    found: dict[str, pl.DataFrame] = {
        "calls": pl.DataFrame(calls),
        "kernels": pl.DataFrame(kernels),
    }
    if ranges:
        found["ranges"] = pl.DataFrame(ranges)
    if device:
        found["devices"] = pl.DataFrame([{"process": 0, "device": 0, **device}])
    found |= {name: pl.DataFrame(table) for name, table in tables.items()}
    return Profile(Trace.of(found, {}))


def one(answer: Any) -> Finding:
    """The only finding of an answer."""
    assert not isinstance(answer, CannotTell), answer.reason
    (found,) = answer
    assert isinstance(found, Finding)
    assert 0 <= found.saving_least <= (found.saving_most or 0)
    return found


def reason(answer: Any) -> str:
    """Why an answer cannot tell."""
    assert isinstance(answer, CannotTell), answer
    return answer.reason

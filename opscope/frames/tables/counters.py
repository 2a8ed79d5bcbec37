"""The frames of hardware counters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_START: Final = ("ns", "start of the kernel; of its launch, if the trace has no kernels")
_DURATION: Final = ("ns", "duration of the kernel; null if the trace has no kernels")
_INNER: Final = ("text", "the innermost op around the launch")


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "counters()",
        "one row per kernel execution whose counters were measured; a column per counter follows",
        columns(
            "process rank device stream start duration name correlation op_id bottom_op top_op op_stack"
            " direction layer step range reason",
            start=_START,
            duration=_DURATION,
            reason=("text", "why the kernel has no op; null if it has one"),
        ),
    )
    yield Frame(
        "counter_totals()",
        "one row per kernel name, innermost op and counter, in the order of the first launch",
        columns(
            "name op counter counted_kernels counted mean_count least_count most_count", op=_INNER
        ),
    )
    yield Frame(
        "counter_work()",
        "one row per kernel execution whose counters were measured",
        columns(
            "process device stream start duration name op_id op f64_flops f32_flops f16_flops tensor_flops"
            " dram_read dram_written dram_bytes counted_time no_vector no_tensor no_dram",
            start=_START,
            duration=_DURATION,
            op=_INNER,
        ),
    )
    yield Frame(
        "counter_roofline()",
        "one row per op, inputs and direction of which kernels were measured, by duration; kernels without an"
        " op are one row per name",
        columns(
            "op inputs direction name calls kernels duration model_flops counted_flops flops_difference"
            " model_bytes counted_bytes bytes_difference model_intensity counted_intensity model_bound"
            " counted_bound model_efficiency counted_efficiency model_reason counted_reason",
            name=("text", "the kernel's name, if its op is not known"),
            calls=("count", "executions of the op of which kernels were measured"),
            kernels=("count", "kernels that were measured"),
            duration=(
                "ns",
                "durations of these kernels; null if the trace and the counters have none",
            ),
            model_flops=(
                "FLOP",
                "FLOPs of these calls by the cost model, without those that a mask saves",
            ),
        ),
    )

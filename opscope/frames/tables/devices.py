"""The frames about the use of the device: utilization, occupancy, launches, short kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from opscope.core.question.column import Frame
from opscope.core.question.words import columns

_SUMS: Final = (
    "kernel_busy gpu_utilization sm_efficiency achieved_occupancy theoretical_occupancy kernel_time"
    " tensor_core_time tensor_core_undetermined_time tensor_core_share grid_known occupancy_known"
)
_INSIDE: Final = {
    "kernel_time": ("ns", "durations of the kernels added up, of each the part inside"),
}
_TIMES: Final = "calls total mean min max share"
_RATED: Final = (
    "device_name sm_count blocks blocks_per_sm warps_per_block resident_blocks theoretical_occupancy"
    " limited_by achieved_occupancy waves tail_share register_use shared_use clustered occupancy_reason"
)


def frames() -> Iterator[Frame]:
    """Yield each frame of this subject."""
    yield Frame(
        "device_use()",
        "one row per process and device that ran kernels",
        columns(
            f"process device device_name sm_count window {_SUMS} kernels utilization_reason occupancy_reason",
            window=(
                "ns",
                "from the first step's start until the last step and what the steps launched have ended;"
                " without steps, from the process's first event to its last",
            ),
            **_INSIDE,
            kernels=("count", "kernels of which a part is inside the window"),
            occupancy_reason=(
                "text",
                "why the occupancy of most kernels without one is not known, from a closed list",
            ),
        ),
    )
    yield Frame(
        "device_curve()",
        "one row per process, device and part of its window, in order",
        columns(f"process device start end {_SUMS}", **_INSIDE),
    )
    yield Frame(
        "kernel_occupancy()",
        "one row per kernel name, by time",
        columns(
            f"name op ops configurations {_TIMES} tensor_core blocks_per_sm theoretical_occupancy"
            " achieved_occupancy waves tail_share limited_by occupancy_known occupancy_reason",
            blocks_per_sm=(
                "fraction",
                "blocks of the grid / multiprocessors of the device, weighted by the kernels' time",
            ),
            waves=("fraction", "waves of blocks, weighted by the kernels' time"),
            limited_by=("text", "what limits the configuration with most of the time"),
        ),
    )
    yield Frame(
        "kernel_launches()",
        "one row per kernel name, launch configuration and model of device, by time",
        columns(
            f"name op ops grid block cluster registers shared_memory {_TIMES} tensor_core {_RATED}"
        ),
    )
    yield Frame(
        "kernel_lengths()",
        "one row per range of lengths, from the shortest that kernels have to the longest",
        columns("at_least below calls calls_share calls_running total share"),
    )
    yield Frame(
        "short_kernels()",
        "one row per name of kernels of which some are shorter than 10 µs, the most first",
        columns(
            "name op ops calls short short_share short_time total share mean median",
            op=("text", "the op that most of the short executions belong to"),
            ops=("count", "ops that the short executions belong to"),
            share=("fraction", "short_time / the time of all kernels"),
        ),
    )
    yield Frame(
        "fusable_kernels()",
        "one row per distinct chain of kernels and direction, by the most that joining them would save",
        columns(
            "chain sequence direction layer layers length calls kernels duration gap_time"
            " intermediate_bytes saving_most share",
            layer=("text", "the layer in which most of the chains begin"),
            layers=("count", "layers in which the chains begin"),
            calls=("count", "how often the chain ran"),
            kernels=("count", "kernels of all these chains"),
            duration=("ns", "durations of the chains' kernels added up"),
            saving_most=(
                "ns",
                "upper bound of what one kernel in place of each chain would save, an estimate: gap_time and,"
                " of the kernels' time, what the intermediate bytes take, at most all but the longest kernel",
            ),
            share=("fraction", "duration / the time of all kernels"),
        ),
    )

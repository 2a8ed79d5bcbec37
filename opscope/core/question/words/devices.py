"""The words of the frames about the use of the device: utilization, occupancy, launches, short kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "kernel_busy": "time during which at least one kernel ran",
        "at_least": "shortest length in this row",
        "below": "lengths in this row are less than this; null if there is no bound",
        "short_time": "durations of the short executions added up",
        "gap_time": "time between the kernels of these chains, during which their stream ran nothing",
    },
    "bytes": {
        "intermediate_bytes": (
            "at most what the chains' kernels write for each other and read again: for each two neighbours"
            " the smaller of what they read and write; null if not known"
        ),
    },
    "fraction": {
        "gpu_utilization": "kernel_busy / the window",
        "sm_efficiency": (
            "estimate: multiprocessors that have a block, from the grids of all kernels that run at one time,"
            " / all multiprocessors; the mean over the window; kernels of unknown grid count as 0"
        ),
        "achieved_occupancy": (
            "estimate: warps of the blocks that there are for each multiprocessor, at most those that fit,"
            " / warps that it can hold; a mean is weighted by the kernels' time"
        ),
        "theoretical_occupancy": (
            "warps of the blocks that fit on a multiprocessor at one time / warps that it can hold; a mean is"
            " weighted by the kernels' time"
        ),
        "tensor_core_share": "tensor_core_time / the kernels' durations added up",
        "grid_known": "part of the kernels' time whose grid and number of multiprocessors are known",
        "occupancy_known": "part of the kernels' time whose achieved occupancy is known",
        "tail_share": (
            "estimate: part of all waves' places for blocks that is empty in the last wave; so much shorter"
            " might it be with a full last wave, if all blocks take equally long"
        ),
        "blocks_per_sm": "blocks of the grid / multiprocessors of the device; more than 1 is usual",
        "waves": (
            "blocks of the grid / blocks that fit on the device at one time; 2.5 are two full waves and half"
            " a wave"
        ),
        "register_use": "registers of the blocks that fit / registers of a multiprocessor",
        "shared_use": "shared memory of the blocks that fit / shared memory of a multiprocessor",
        "calls_share": "calls / all kernel executions",
        "calls_running": "sum of calls_share over this row and all rows above it",
        "short_share": "short / calls",
    },
    "count": {
        "sm_count": "multiprocessors of the device (AMD: compute units)",
        "blocks": "blocks of the grid",
        "warps_per_block": "warps (32 threads) of a block",
        "resident_blocks": "blocks that fit on a multiprocessor at one time",
        "configurations": "different launch configurations",
        "short": "executions that are shorter than the given length",
        "length": "kernels of one chain",
    },
    "text": {
        "device_name": "model of the device",
        "cluster": "size of the cluster of blocks: x,y,z; null if none or not recorded",
        "limited_by": (
            "what allows no more blocks on a multiprocessor: block size (its warps), registers, shared"
            " memory, blocks per SM; nothing if all of its warps are occupied"
        ),
        "utilization_reason": "why gpu_utilization is not known; null if it is",
        "occupancy_reason": "why the achieved occupancy is not known, from a closed list",
        "chain": (
            "pointwise: computes elements from elements; short: kernels of less than the given length"
        ),
        "sequence": "the ops of the chain's kernels in order; a kernel's name if it has no op",
    },
    "yes/no": {
        "clustered": (
            "whether blocks start in clusters, which need places for all their blocks at one time: occupancy"
            " and waves are then bounds; null if not recorded"
        ),
    },
}

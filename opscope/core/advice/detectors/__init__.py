"""The detectors. Each module here defines one as ``DETECTOR``; nothing else lists it.

A report's first screen loads only those whose findings may stand in the diagnosis. So what keeps a detector
out of it is said here; a detector that is not named here is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: The causes of the diagnosis that a detector's findings explain: in the ranked list both are one row.
EXPLAINS: Final[Mapping[str, Sequence[str]]] = {
    "communication_share": ("communication-bound",),
    "cpu_decoding": ("input-bound",),
    "data_loader": ("input-bound",),
    "host_bound": ("host-bound",),
    "launch_bound": ("host-bound",),
    "memory_near_limit": ("memory pressure",),
    "mixed_precision": ("compute-bound",),
    "pageable_copies": ("copy-bound",),
    "recompilations": ("compilation",),
    "sync_calls": ("synchronising calls",),
    "tensor_shapes": ("compute-bound",),
    "tf32_off": ("compute-bound",),
    "transfer_bound": ("copy-bound",),
    "underutilized_gpu": ("idle device",),
    "uneven_ranks": ("straggler",),
    "unoverlapped_communication": ("communication-bound",),
    "value_reads": ("host-bound",),
    "warm_up": ("slow start", "compilation"),
}
#: Detectors whose findings are never sure, so that they stand in the diagnosis only with a cause that they
#: explain: of low confidence, or without an estimate and an edit that could give one.
NEVER_SURE: Final = frozenset((
    "batch_size", "cpu_decoding", "cudnn_benchmark", "data_parallel", "ddp_without_nccl",
    "fp32_under_autocast", "graph_breaks", "host_bound", "iteration_range", "no_fusion",
    "no_iterations", "no_ranges", "padding", "slow_gemms", "underutilized_gpu", "uneven_experts",
    "warm_up",
))  # fmt: skip
#: Detectors whose findings may put all other figures in doubt, which the first row of the diagnosis says too.
DOUBTING: Final = frozenset({"starved"})
#: Detectors that look at no kernel's duration, and so can tell where these are not known.
ON_HOST: Final = frozenset((
    "cpu_decoding", "data_loader", "data_parallel", "ddp_without_nccl", "fragmentation", "graph_breaks",
    "host_sampling", "late_scheduler", "memory_growth", "memory_near_limit", "no_iterations", "no_ranges",
    "recompilations", "slow_api_flags", "starved", "warm_up",
))  # fmt: skip

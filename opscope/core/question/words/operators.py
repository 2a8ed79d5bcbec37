"""The words of the frames of operators, modules and the call tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "ns": {
        "device_self": (
            "durations of the kernels, copies and sets that it launched itself; without a GPU, the ops'"
            " self time; null if none of them was captured"
        ),
        "device_total": "device_self of it and of all that is inside it",
        "device_mean": "mean of one call's device time with the ops inside, over the captured calls",
        "host_self": "time on the host without the ops inside; CUDA calls are part of it",
        "host_total": "time on the host with the ops inside",
        "host_mean": "mean of one call's time on the host with the ops inside",
        "call_time": (
            "time on the host from the begin of the module's calls to their end, Python included; null"
            " if the trace has no ranges of it"
        ),
        "forward_part": "part of device_total in forward ops",
        "backward_part": "part of device_total in backward ops",
        "rest_part": "the rest of device_total: other directions, and time without an op",
    },
    "fraction": {
        "tensor_core_self": (
            "part of device_self in kernels that use Tensor Cores; a lower bound if"
            " tensor_core_undetermined_time is not 0; null if nothing shows either"
        ),
        "tensor_core_total": "the same part of device_total",
    },
    "count": {
        "uncaptured": "calls outside the time in which kernels were captured",
        "operators": "number of different operators: an op's layers, directions and nodes",
        "inside": "modules inside it",
        "module_calls": (
            "times that the module was called; null if the trace names it without ranges of it"
        ),
        "merged": "paths that the row stands for: 1, and more for what is left out",
    },
    "number": {
        "module_id": "number of the row",
        "parent_module": "module_id of the module around it; null for the whole",
        "path_id": "number of the row",
        "parent_path": "path_id of the row around it; null for the whole",
    },
    "text": {
        "operator": "full name of the node, if it is one of a prepared graph; else null",
        "module": "the last part of the module's path",
        "module_type": "the module's class; null if the trace does not tell",
        "row_kind": (
            "whole; module; group (holds modules and is never called, such as a list of blocks);"
            " outside any module; or reason why there is no op"
        ),
        "frame": "name of the step, phase, layer, range, function, op or kernel",
        "frame_kind": (
            "step, phase, layer, range (the user's), python, graph, op, kernel, copy; reason why a"
            " kernel has no op; all, outside or other"
        ),
        "stack": "the frames from the outermost to this one, parted by ;",
    },
}

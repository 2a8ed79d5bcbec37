"""The words of the frames of hardware counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BY_UNIT: Final[Mapping[str, Mapping[str, str]]] = {
    "value": {
        "counted": "sum of the values; null if the counter's values do not add up (a rate, a mean, a share)",
        "mean_count": "mean of the values",
        "least_count": "smallest value",
        "most_count": "largest value",
    },
    "ns": {"counted_time": "duration that the tool measured with the counters"},
    "FLOP": {
        "f64_flops": "f64 add, multiply and multiply-add instructions off the Tensor Cores, 2 for the last",
        "f32_flops": "the same of f32",
        "f16_flops": (
            "the same of half precision, times 2 as each works on two values; compilers also move constants"
            " by such instructions, so that f32 kernels have some"
        ),
        "tensor_flops": (
            "operations on the Tensor Cores, where a counter counts operations or all matrix instructions"
            " have a known size; 0 if none ran; else null"
        ),
        "counted_flops": "FLOPs that counters measured, on and off the Tensor Cores",
    },
    "bytes": {
        "dram_read": "bytes read from the device's memory (DRAM), as measured",
        "dram_written": "bytes written to the device's memory (DRAM), as measured",
        "dram_bytes": "dram_read + dram_written",
        "model_bytes": "minimum bytes that the ops must read and write, by the cost model",
        "counted_bytes": "bytes read from and written to the device's memory, as measured",
    },
    "fraction": {
        "flops_difference": "counted_flops / model_flops - 1",
        "bytes_difference": "counted_bytes / model_bytes - 1",
        "model_efficiency": "time at the roof by the model's FLOPs and bytes / duration",
        "counted_efficiency": "time at the roof by the measured FLOPs and bytes / duration",
    },
    "FLOP/byte": {
        "model_intensity": "model_flops / model_bytes",
        "counted_intensity": "counted_flops / counted_bytes",
    },
    "count": {"counted_kernels": "kernel executions of which the counter was measured"},
    "text": {
        "counter": "the counter's name, as its tool writes it",
        "top_op": "the outermost op around the launch",
        "bottom_op": "the innermost op around the launch",
        "op_stack": "names of the ops around the launch, from the outermost to the innermost, parted by |",
        "no_vector": "why FLOPs off the Tensor Cores are null; null if they are known",
        "no_tensor": "why tensor_flops is null; null if it is known",
        "no_dram": "why dram_bytes is null; null if it is known",
        "model_bound": "the unit that takes the longest by the model: tensor, vector, memory; latency",
        "counted_bound": "the unit that takes the longest as measured: tensor, vector, memory; latency",
        "model_reason": "why the model's FLOPs or bytes are null; null if they are known",
        "counted_reason": "why the measured FLOPs or bytes are null; null if they are known",
    },
}

"""The columns whose values may be added up over the rows of a table.

A point in time, a mean, a maximum, or a time that holds that of other rows may not: its sum says nothing.
"""

from __future__ import annotations

from typing import Final

#: Names that add up in every table that is not in ``_ONLY``.
_ADDITIVE: Final = (
    "device_time device_self host_self self_time duration total kernel_time kernel_busy"
    " tensor_core_time tensor_core_undetermined_time ideal_time"
    " idle_time busy_time host_wait kernel_wait other_wait unknown_wait waiting_time transfer_time"
    " wait_time in_calls launching_time shorter_time short_time"
    " flops matrix_flops vector_flops bytes message_bytes counted_flops model_flops counted_bytes"
    " model_bytes f16_flops f32_flops f64_flops tensor_flops dram_bytes dram_read dram_written"
    " self_allocated self_increase self_allocations allocations held_blocks"
    " calls kernels copies launches short_launches collectives"
)
#: Tables of which other names add up, and only these: their rows hold other rows, or are of one another.
_ONLY: Final[dict[str, str]] = {
    "modules": "device_self host_self",
    "call_tree": "device_self host_self",
    "each_op": "self_time",
    "operators": "calls device_self host_self",
    "operators_by_inputs": "calls device_self host_self",
    "operators_by_source": "calls device_self host_self",
    "memory_ops": "self_allocated self_increase self_allocations",
    "memory_by_op": "at_peak allocations",
    "memory_kinds": "at_peak held_blocks",
    "memory_events": "bytes",
    "steps": "time communication_part kernel_part copy_part set_part runtime_part loader_part op_part"
    " other_part overlap_time forward_phase backward_phase optimizer_phase input_phase outside_phases",
    "step_phases": "time device_time kernels",
    "overlap": "time",
    "unattributed": "time kernels copies",
    "gaps": "time kernels copies",
    "critical_totals": "time pieces",
    "critical_ops": "time pieces",
    "critical_layers": "time pieces",
    "critical_kernels": "time pieces",
    "critical_steps": "time pieces",
    "critical_path": "duration",
    "idle_ops": "wait_time in_calls launching_time waits",
    "diff_part": "a b change",
    "diff_cause": "a b change",
    # kernels of a chain are in other chains too
    "sequences": "",
    "op_sequences": "",
    "fusable": "",
    "short_kernels": "calls total short short_time",
    # a row per finding, per statistic, or per device of one run: none is a part of another
    "diagnosis": "",
    "advice": "",
    "advice_combined": "",
    "advice_evidence": "",
    "step_summary": "",
    "summary": "",
    "device_use": "",
    "memory": "",
    "memory_curve": "",
    "memory_steps": "",
    "queue": "",
    "queue_curve": "",
    "energy": "",
    "light": "",
    "light_steps": "",
    "light_cost": "",
    "own_costs": "",
    "clocks": "",
    "groups": "",
    "meshes": "",
    "utilization": "",
    "cpu_samples": "",
    "diff_op": "",
    "diff_kernel": "",
    "diff_run": "",
}


def additive(table: str, column: str) -> bool:
    """Whether the values of ``column`` may be added up over the rows of ``table``."""
    only = _ONLY.get(table)
    return column in (_ADDITIVE if only is None else only).split()

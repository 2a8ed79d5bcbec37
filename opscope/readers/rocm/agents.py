"""Describe a device by the agents in files of AMD's profilers: name, target, compute units, clock. A device's
number here is the agent's (``Agent 2``: the node's number, with CPUs counted), as in the tables of kernels;
rocprofv3's ``--agent-index type-relative`` writes ``GPU 0``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .table import Table

#: rocprofiler_agent_type_t (source/include/rocprofiler-sdk/agent.h): 1 is a CPU, 2 a GPU.
GPU: Final = 2
#: Heaps of a GPU's own memory (HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC and _PRIVATE, in ROCR's hsakmttypes.h).
_OWN_MEMORY: Final = (1, 2)


def facts(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of ``devices`` from an agent's fields, named as in rocprofiler_agent_v0_t.

    Clocks are in MHz there, memory in bytes. A field that is 0 is not known.
    """

    def number(name: str) -> int | None:
        value = agent.get(name)
        is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62
        return value if is_valid else None

    def text(name: str) -> str | None:
        value = agent.get(name)
        return value.strip() or None if isinstance(value, str) else None

    clock, waves, wave = (
        number(name) for name in ("max_engine_clk_fcompute", "max_waves_per_cu", "wave_front_size")
    )
    target = text("name")
    product = text("product_name")
    return {
        "name": product or (None if target and target.startswith("gfx") else target),
        "cc": target if target and target.startswith("gfx") else None,
        "sm_count": number("cu_count"),
        "clock_khz": clock * 1000 if clock else None,
        "max_threads_per_sm": waves * wave if waves and wave else None,
        "memory": _memory(agent.get("mem_banks")) or number("local_mem_size"),
    }


def _memory(banks: Any) -> int | None:
    if not isinstance(banks, list):
        return None
    sizes = [
        bank.get("size_in_bytes")
        for bank in banks
        if isinstance(bank, dict) and bank.get("heap_type") in _OWN_MEMORY
    ]
    return sum(size for size in sizes if isinstance(size, int) and 0 < size < 1 << 50) or None


_COLUMNS: Final = {
    "name": "name",
    "product_name": "productname",
    "cu_count": "cucount",
    "max_engine_clk_fcompute": "maxengineclkfcompute",
    "max_waves_per_cu": "maxwavespercu",
    "wave_front_size": "wavefrontsize",
    "local_mem_size": "localmemsize",
}


def of_table(table: Table) -> dict[int, dict[str, Any]]:
    """Return the facts of each GPU in ``agent_info.csv``, by its number."""
    agents: dict[int, dict[str, Any]] = {}
    kinds, numbers = table.text("agenttype").to_list(), table.whole("nodeid").to_list()
    texts = {name: table.text(column).to_list() for name, column in _COLUMNS.items()}
    wholes = {name: table.whole(column).to_list() for name, column in _COLUMNS.items()}
    for row, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
        if kind != "GPU" or number is None:
            continue
        agent = {
            name: texts[name][row] if name in ("name", "product_name") else wholes[name][row]
            for name in _COLUMNS
        }
        agents[number] = facts(agent)
    return agents


def of_system(table: Table) -> dict[str, Any]:
    """Return the facts of all GPUs of the machine in rocprofiler-compute's ``sysinfo.csv``.

    ``gpu_model`` may be a series (MI200): then the device's exact name is not known.
    """
    if not len(table):
        return {}

    def first(*names: str) -> Any:
        return table.text(*names).to_list()[0]

    def whole(*names: str) -> int | None:
        value = table.whole(*names).to_list()[0]
        return value if value and value > 0 else None

    clock, waves, wave = whole("maxsclk"), whole("maxwavespercu"), whole("wavesize")
    return {
        "name": first("gpumodel", "gpuname"),
        "cc": first("gpuarch", "gpusoc"),
        "sm_count": whole("cupergpu"),
        "clock_khz": clock * 1000 if clock else None,
        "max_threads_per_sm": waves * wave if waves and wave else None,
    }

"""The table of vendors: how to recognise a trace's vendor, and the names of the vendor's own tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.perf.devices.of_trace import trace_device
from opscope.core.tables.trace import Trace

#: Key of a trace's origin: the vendor, if events name it but no device does.
VENDOR: Final = "vendor"


@dataclass(frozen=True, slots=True)
class Tools:
    """A vendor's tools whose files opscope reads; None where it has none. ``recorder`` is how to record
    kernels, with their launches where there are any; ``tracer`` its command alone; ``counters`` what measures
    hardware counters; ``clocks`` what shows that a device slowed itself down; ``api`` what launches work."""

    recorder: str | None = None
    tracer: str | None = None
    counters: str | None = None
    clocks: str | None = None
    api: str = "runtime's calls"


TOOLS: Final[Mapping[str, Tools]] = {
    "nvidia": Tools("nsys profile -t cuda,nvtx", "nsys profile", "ncu", "nvidia-smi", "CUDA API"),
    "amd": Tools(
        "rocprofv3 --hip-trace --kernel-trace",
        "rocprofv3",
        "rocprof-compute",
        "amd-smi",
        "HIP API",
    ),
    "huawei": Tools("msprof", "msprof", None, "npu-smi info", "CANN's calls"),
    "google": Tools("jax.profiler.trace (xprof)", "jax.profiler.trace (xprof)"),
    "meta": Tools(),  # MTIA
    "intel": Tools(),
    "habana": Tools(),
    "ibm": Tools(),  # Spyre
    "cambricon": Tools(),
    "moore threads": Tools(),
}
#: Prefixes of other vendors' device names.
_NAMES: Final = (
    ("ascend", "huawei"), ("tpu", "google"), ("mtia", "meta"), ("intel", "intel"), ("gaudi", "habana"),
    ("hpu", "habana"), ("spyre", "ibm"), ("aiu", "ibm"), ("mlu", "cambricon"), ("mtt ", "moore threads"),
)  # fmt: skip
#: Prefixes of the categories of events and of the names of processes and calls.
_EVENTS: Final = (
    (re.compile(r"mtia", re.IGNORECASE), "meta"),
    (re.compile(r"xpu_|ze[A-Z]|urEnqueue"), "intel"),
    (re.compile(r"(?:async_)?npu\b|Ascend Hardware|CANN\b|aclrt|aclnn|aclop"), "huawei"),
    (re.compile(r"hpu|synLaunch|HPU\b"), "habana"),
    (re.compile(r"aiu[A-Z]|spyre", re.IGNORECASE), "ibm"),
    (re.compile(r"mlu_|cn(?:InvokeKernel|rtMemcpy)"), "cambricon"),
    (re.compile(r"musa"), "moore threads"),
    (re.compile(r"/device:TPU|TPU\b|TpuExecute"), "google"),
    (re.compile(r"hip[A-Z_]|__hip|hsa_"), "amd"),
    (re.compile(r"cuda[A-Z_]|cu[A-Z]"), "nvidia"),
)
_FORMATS: Final = {
    "rocm": "amd", "nsys": "nvidia", "nvprof": "nvidia", "ncu": "nvidia", "dlprof": "nvidia",
    "pyprof": "nvidia", "tensorrt": "nvidia",
}  # fmt: skip


def vendor_of(trace: Trace, calls: Collection[str]) -> str | None:
    """Return the vendor by the devices, else by ``calls`` (the names of runtime calls), else by events, else
    by the trace's format; None if these name no vendor or several.

    If devices of several models are present, the first counts, as everywhere.
    """
    if trace.has("devices") and len(trace["devices"]):
        device, _ = trace_device(trace["devices"])
        if device is not None:
            return device.vendor
        names = [str(name).lower() for name in trace["devices"]["name"].drop_nulls().unique()]
        for word, vendor in _NAMES:
            if names and all(name.startswith(word) for name in names):
                return vendor
    vendors = _name(calls)
    if vendors:
        return vendors.pop() if len(vendors) == 1 else None
    origins = trace.origin.get("parts") or [trace.origin]
    stated = {origin.get(VENDOR) or _FORMATS.get(str(origin.get("format"))) for origin in origins}
    first = stated.pop()
    return None if stated or not isinstance(first, str) else first


def vendor_of_events(texts: Iterable[str]) -> str | None:
    """Return the vendor that categories of events and names of processes show; None for none or several.

    This is never NVIDIA, because profilers of other vendors also use categories such as ``cuda_runtime``.
    """
    vendors = _name(texts) - {"nvidia"}
    return vendors.pop() if len(vendors) == 1 else None


def _name(texts: Iterable[str]) -> set[str]:
    return {vendor for text in texts for words, vendor in _EVENTS if words.match(text)}


def call_names(trace: Trace, most: int = 1000) -> list[str]:
    """The names of the first calls of the runtime, sorted."""
    if not trace.has("calls"):
        return []
    names = trace["calls"]["name"].head(most).drop_nulls().cast(pl.String)
    return sorted(names.unique())


def recorders(vendor: str | None, short: bool = False) -> list[str]:
    """Return the tools that record kernels on this vendor's devices: opscope, and the vendor's own tool if
    opscope reads its files.

    ``short``: only the tool's command.
    """
    tools = TOOLS.get(vendor or "", Tools())
    own = tools.tracer if short else tools.recorder
    return ["opscope run", *([own] if own else [])]

"""Write Kineto's JSON by the rules of its sources, as a stand-in for torch.profiler's export.

The sources are pytorch/kineto, ``libkineto/src``, from autumn 2025 to summer 2026:

* ``output_json.cpp`` at 002d9919: ``sanitizeTid`` (every tid, streams too), ``transToRelativeTime`` and
  ``handleActivity`` (µs after ``baseTimeNanoseconds``, three digits; no ``External id`` without CPU
  activity), ``handleGenericLink`` (the end of an arrow for every call that begins none),
  ``handleTraceStart``, ``handleResourceInfo``, ``finalizeTrace``;
* ``CuptiActivity.h`` at 032aa9ee: ``visitTypedMetadata`` of kernels, copies, sets and calls,
  ``addGraphNodeTypedMetadata`` (``graph id`` and ``graph node id`` on all of them, 0 if no CUDA graph
  launched them), ``addChannelTypedMetadata``, ``streamIdForTrace``, ``memcpyName``;
* ``CuptiCbidRegistry.cpp`` at 54d69b2f: the runtime calls that are left out and those that begin an arrow;
  of the driver calls only launches are written;
* ``CuptiActivityProfiler.cpp``, ``handleRuntimeActivity``: CUPTI's thread id, unless the thread was
  recorded, which does not happen with CUDA activities alone;
* ``ActivityType.cpp``: the categories' names;
* for AMD's GPUs (``rocm``) ``RocprofActivity_inl.h`` at 03ab8cb0 (``metadataJson``) and
  ``RocprofLogger.cpp`` at 00ca10e8: the system's thread ids, no graph ids, the calls that are left out
  (``hipRuntimeGetVersion`` is, ``hipDriverGetVersion`` is not);
* for samples of hardware counters ``CuptiPMSamplingProfiler.cpp`` at d19a3e9a (the time is the sample's start)
  and ``handleCounterEvent`` (``counters_at_once``), else ``_build_chrome_counters`` of pytorch/pytorch,
  ``torch/profiler/_cupti/monitor_trace.py``, of August 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Runtime calls that Kineto never writes.
BLOCKED = frozenset(
    {
        "cudaGetDevice", "cudaSetDevice", "cudaGetLastError", "cudaEventCreate",
        "cudaEventCreateWithFlags", "cudaEventDestroy",
        "hipGetDevice", "hipSetDevice", "hipGetLastError", "hipCtxSetCurrent",
        "hipGetDevicePropertiesR0600", "hipGetDeviceCount", "hipDeviceGetAttribute",
        "hipRuntimeGetVersion", "hipPeekAtLastError", "hipModuleGetFunction",
    }
)  # fmt: skip
#: Calls that begin an arrow; so do ``cudaMemcpy`` to ``cudaMemset2DAsync``.
ARROWS = frozenset(
    {
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaGraphLaunch",
        "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaStreamWaitEvent", "cuLaunchKernel",
        "cuLaunchKernelEx",
        "hipLaunchKernel", "hipExtLaunchKernel", "hipLaunchCooperativeKernel",
        "hipHccModuleLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel",
        "hipMalloc", "hipFree", "hipMemcpy", "hipMemcpyAsync", "hipMemcpyWithStream",
    }
)  # fmt: skip
#: Driver calls that Kineto writes.
DRIVER = frozenset({"cuLaunchKernel", "cuLaunchKernelEx"})
#: CUPTI's numbers of some runtime calls.
CBID = {
    "cudaDriverGetVersion": 1, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51,
    "cudaDeviceSynchronize": 165, "cudaLaunchKernel": 211, "cudaGraphLaunch": 311,
    "cuLaunchKernel": 307,
}  # fmt: skip
INT_MIN = -(1 << 31)


@dataclass(slots=True)
class Call:
    """A runtime or driver call: times in ns of the profiler's clock, and the pthread id of its thread."""

    name: str
    start: int
    end: int
    pthread: int
    correlation: int


@dataclass(slots=True)
class Work:
    """Work of the device: ``kind`` is ``kernel``, ``gpu_memcpy`` or ``gpu_memset``."""

    kind: str
    name: str
    start: int
    end: int
    correlation: int
    stream: int = 7
    device: int = 0
    context: int = 1
    bytes: int = 0
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    shared: int = 0
    graph: int = 0
    graph_node: int = 0


@dataclass(slots=True)
class Sample:
    """A sample of hardware counters of a device, which began at ``start``: each counter's value."""

    start: int
    values: Mapping[str, Any]
    device: int = 0


@dataclass(slots=True)
class KinetoWriter:
    """One export. ``met``: threads that CPU activity recorded, pthread id → the system's id.

    ``counters_at_once``: whether all counters of a sample are one event, as Kineto itself writes them.
    """

    pid: int
    base: int
    properties: list[Mapping[str, Any]] = field(default_factory=list)
    met: Mapping[int, int] = field(default_factory=dict)
    rocm: bool = False
    counters_at_once: bool = False

    def write(
        self,
        path: str | Path,
        calls: Iterable[Call],
        work: Iterable[Work],
        end: int,
        samples: Iterable[Sample] = (),
    ) -> None:
        """Write the recording until ``end`` to the file ``path``."""
        events: list[str] = []
        threads = set()
        for call in calls:
            written = self._call(call)
            if written is not None:
                events += written
                threads.add(self.thread(call.pthread))
        devices = set()
        for each in work:
            events += self._work(each)
            devices.add((each.device, each.stream))
        for sample in samples:
            events += self._sample(sample)
        for thread in sorted(threads):
            events.append(self._name(self.pid, thread, f"thread {thread}"))
        for device, stream in sorted(devices):
            events.append(self._name(device, stream, f"stream {stream} "))
        events.append(
            '\n  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n'
            f'    "pid": "", "tid": "", "ts": {self._micros(end)}\n  }}'
        )
        Path(path).write_text(
            '\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n    '
            + ",".join(json.dumps(each) for each in self.properties)
            + '\n    ],\n      "cuda_runtime_version": 13000,\n      "cuda_driver_version": 13000,'
            f'\n  "displayTimeUnit": "ms",\n  "baseTimeNanoseconds": {self.base},\n  "traceEvents": ['
            + ",".join(events)
            + f'\n  ],\n  "traceName": "{path}"\n}}'
        )

    def thread(self, pthread: int) -> int:
        """Return a thread's id before ``sanitizeTid``: CUPTI's, or the system's if it is in ``met``."""
        return self.met.get(pthread, signed32(pthread))

    def _micros(self, time: int) -> str:
        since = max(0, time - self.base)
        return f"{since // 1000}.{since % 1000:03}"

    def _call(self, call: Call) -> list[str] | None:
        driver = call.name.startswith("cu") and not call.name.startswith("cuda")
        if call.name in BLOCKED or (driver and call.name not in DRIVER):
            return None
        arrow = call.name in ARROWS or call.name.startswith(("cudaMemcpy", "cudaMemset"))
        number = "cid" if self.rocm else "cbid"
        args = {number: CBID.get(call.name, 0), "correlation": call.correlation}
        category = "cuda_driver" if driver else "cuda_runtime"
        place = self.pid, sanitize_tid(self.thread(call.pthread))
        return self._activity(category, call.name, place, call.start, call.end, args, arrow)

    def _work(self, work: Work) -> list[str]:
        place = work.device, sanitize_tid(work.stream)
        if self.rocm:
            told: dict[str, Any] = {
                "device": work.device, "stream": work.stream, "correlation": work.correlation,
                "kind": "Dispatch Kernel" if work.kind == "kernel" else work.name[7:11],
            }  # fmt: skip
            if work.kind == "kernel":
                told |= {"grid": list(work.grid), "block": list(work.block)}
            else:
                told |= {"bytes": work.bytes, "memory bandwidth (GB/s)": 1.5}
            return self._activity(work.kind, work.name, place, work.start, work.end, told, False)
        args: dict[str, Any] = {
            "device": work.device,
            "context": work.context,
            "stream": work.stream,
            "correlation": work.correlation,
        }
        if work.kind == "kernel":
            args = {"queued": 0, **args} | {
                "registers per thread": work.registers,
                "shared memory": work.shared,
                "blocks per SM": work.grid[0] / 132,
                "warps per SM": work.grid[0] * work.block[0] / 32 / 132,
                "grid": list(work.grid),
                "block": list(work.block),
                "est. achieved occupancy %": 50,
                "occupancy": {"activeBlocksPerMultiprocessor": 8, "limitingFactors": "REGS"},
            }
        else:
            args["bytes"] = work.bytes
            if work.end > work.start:
                args["memory bandwidth (GB/s)"] = work.bytes / (work.end - work.start)
        args |= {"graph id": work.graph, "graph node id": work.graph_node}
        if work.kind == "kernel":
            args["priority"] = 0
        args |= {"channel": 12, "channel_type": 1}
        return self._activity(work.kind, work.name, place, work.start, work.end, args, False)

    def _sample(self, sample: Sample) -> list[str]:
        first = '\n  {\n    "ph": "C", "cat": "hardware_counters", '
        time = f'"ts": {self._micros(sample.start)}'
        if self.counters_at_once:
            args = json.dumps(dict(sample.values))
            about = f'"name": "CUPTI PM Sampling", "pid": {sample.device}, "tid": 0'
            return [f'{first}{about}, {time}, "args": {args}\n  }}']
        pid = f'"pid": "GPU {sample.device} Counters"'
        return [
            f'{first}"name": {json.dumps(name)}, {pid}, {time}, "args": {json.dumps({"": value})}\n  }}'
            for name, value in sample.values.items()
        ]

    def _activity(
        self,
        category: str,
        name: str,
        place: tuple[int, int],
        start: int,
        end: int,
        args: Mapping[str, Any],
        arrow: bool,
    ) -> list[str]:
        where = f'"pid": {place[0]}, "tid": {place[1]}'
        length = max(0, end - start)
        told = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in args.items())
        events = [
            f'\n  {{\n    "ph": "X", "cat": "{category}", "name": {json.dumps(name)}, {where},\n'
            f'    "ts": {self._micros(start)}, "dur": {length // 1000}.{length % 1000:03},\n'
            f'    "args": {{\n      {told}\n    }}\n  }}'
        ]
        if args["correlation"] > 0:
            phase, bound = ("s", "") if arrow else ("f", ', "bp": "e"')
            events.append(
                f'\n  {{\n    "ph": "{phase}", "id": {args["correlation"]}, {where}, '
                f'"ts": {self._micros(start)},\n    "cat": "ac2g", "name": "ac2g"{bound}\n  }}'
            )
        return events

    def _name(self, pid: int, tid: int, name: str) -> str:
        return (
            f'\n  {{\n    "name": "thread_name", "ph": "M", "ts": 0.000, "pid": {pid}, '
            f'"tid": {sanitize_tid(tid)},\n    "args": {{\n      "name": "{name}"\n    }}\n  }}'
        )


def signed32(number: int) -> int:
    """Return the low 32 bits as a signed integer: CUPTI's thread id for a pthread id."""
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low


def sanitize_tid(tid: int) -> int:
    """``sanitizeTid``: the absolute value in 32 bits, 0 if it does not exist (for INT_MIN)."""
    tid = signed32(tid)
    return 0 if tid == INT_MIN else abs(tid)


def memcpy_name(kind: str, source: str, target: str) -> str:
    """``memcpyName``."""
    return f"Memcpy {kind} ({source} -> {target})"

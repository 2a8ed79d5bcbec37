"""Write XPlane files of NVIDIA GPUs like XLA's, field by field, without a GPU.

Follows openxla/xla as in TensorFlow 2.19 to 2.21 and JAX 0.6 to 0.10. ``cupti_tracer.cc`` decides what is
recorded of a call (``Set*EventUponApiExit``), ``cupti_buffer_events.cc`` what of an activity
(``Add*ActivityEvent``). ``cupti_collector.cc`` decides the statistics of an event (``CreateXEvent``), its
line (``IsHostEvent``), the name of the line (``GetDeviceXLineName``), and the description of a device
(``GetDeviceCapabilities``). ``post_process_single_host_xplane.cc`` merges the planes of the host. The names
are those of ``xplane_schema.cc``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .protobuf import field as encoded
from .protobuf import message

OVERHEAD_LINE = 0xDEADBEEF + 6  # kThreadIdOverhead
COPIES = {"H2D": "MemcpyH2D", "D2H": "MemcpyD2H", "D2D": "MemcpyD2D", "P2P": "MemcpyP2P"}
H200 = {
    "gpu_device_name": "NVIDIA H200",
    "clock_rate": 1_980_000,
    "core_count": 132,
    "memory_bandwidth": 2 * 3_201_000 * 1000 * 6016 // 8,
    "memory_size": 150_109_880_320,
    "compute_cap_major": 9,
    "compute_cap_minor": 0,
}


class Ref(str):
    """A text that an event refers to by its number among the names of statistics."""


class Unsigned(int):
    """A number that is written to the unsigned field."""


@dataclass
class Plane:
    """XPlaneBuilder: names are numbered in order of their first use."""

    name: str
    names: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    lines: dict[int, tuple[str, list[bytes]]] = field(default_factory=dict)
    stats: list[bytes] = field(default_factory=list)
    event_stats: dict[str, list[bytes]] = field(default_factory=dict)
    first: int = 0
    types: dict[int, dict[str, None]] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names) + 1)

    def stat(self, name: str, value: object) -> bytes:
        """An XStat: double 2, uint64 3, int64 4, str 5, bytes 6, ref 7."""
        if isinstance(value, Ref):
            place, value = 7, self.number(str(value))
        elif isinstance(value, str):
            place = 5
        elif isinstance(value, bytes):
            place = 6
        elif isinstance(value, float):
            place = 2
        else:
            place = 3 if isinstance(value, Unsigned) else 4
        return message((1, self.number(name)), (place, value))

    def add(self, line: int, name: str, start: int, end: int, stats: dict[str, object]) -> None:
        number = self.events.setdefault(name, len(self.events) + 1)
        parts = [(1, number), (2, (start - self.first) * 1000), (3, (end - start) * 1000)]
        parts += [(4, self.stat(key, value)) for key, value in stats.items()]
        self.lines.setdefault(line, ("", []))[1].append(message(*parts))

    def data(self) -> bytes:
        lines = [
            message((1, number), (2, name), (3, self.first), *((4, one) for one in events))
            for number, (name, events) in self.lines.items()
        ]
        events = [
            message((1, n), (2, message((1, n), (2, text), *((5, one) for one in self.event_stats.get(text, [])))))
            for text, n in self.events.items()
        ]  # fmt: skip
        names = [message((1, n), (2, message((1, n), (2, text)))) for text, n in self.names.items()]
        return message(
            (2, self.name),
            *((3, one) for one in lines),
            *((4, one) for one in events),
            *((5, one) for one in names),
            *((6, one) for one in self.stats),
        )


def parsed(value: str) -> object:
    """ParseAndAddStatValue: a number if the text is one, else a reference."""
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return Ref(value)


def annotated(annotation: str) -> dict[str, object]:
    """ParseAnnotationStack: ``XlaModule:#k=v#::Thunk:#k=v#``; the innermost value per key, and ``tf_op``."""
    stack = []
    for one in annotation.split("::") if annotation else []:
        name, pairs = one, ""
        if one.endswith("#"):
            name, _, pairs = one[:-1].partition("#")
        stack.append((name, [p.split("=", 1) for p in pairs.split(",") if "=" in p]))
    if not stack:
        return {}
    found: dict[str, object] = {"tf_op": Ref(stack[0][0])}
    for _, pairs in reversed(stack):
        for key, value in pairs:
            if value:
                found.setdefault(key, parsed(value))
    return found


class Cupti:
    """CuptiTraceCollectorImpl: receives calls and activities, exports a space."""

    def __init__(self, *devices: dict[str, object], first: int = 1_000) -> None:
        self.first = first
        self.host = Plane("/host:CPU", first=first)
        self.planes = []
        self.annotations: dict[int, str] = {}
        self.others: list[Plane] = []
        self.warnings: list[str] = []
        for number, told in enumerate(devices or (H200,)):
            plane = Plane(f"/device:GPU:{number}", first=first)
            plane.stats.append(plane.stat("device_vendor", "Nvidia"))
            for key, value in told.items():
                unsigned = key in ("memory_bandwidth", "memory_size")
                plane.stats.append(plane.stat(key, Unsigned(value) if unsigned else value))
            self.planes.append(plane)

    def call(
        self, kind: str, correlation: int, start: int, end: int, *, name: str = "", thread: int = 77,
        device: int = 0, annotation: str = "", details: tuple[str, str] | None = None, graph: int = 0,
        context: int = 1,
    ) -> None:  # fmt: skip
        """Add a call on a host thread; keep its annotation for the activity with its correlation id."""
        self.annotations[correlation] = annotation
        shown = name or kind
        if graph and kind == "CudaGraph":
            shown += f" (CudaGraph:{graph})"
        stats: dict[str, object] = {
            "device_id": Unsigned(device),
            "correlation_id": Unsigned(correlation),
            "context_id": f"$${context}",
        }
        if graph:
            stats["cuda_graph_id"] = Unsigned(graph)
        if details:
            stats[details[0]] = Ref(details[1])
        self.host.lines.setdefault(thread, (f"Host Threads/{thread}", []))
        self.host.add(thread, shown, start, end, stats)

    def launch(self, kernel: str, correlation: int, start: int, end: int, **more: object) -> None:
        """``cuLaunchKernel``: the event has the kernel's name (SetKernelEventUponApiExit)."""
        self.call("Compute", correlation, start, end, name=kernel, **more)

    def memcpy_call(
        self, kind: str, correlation: int, start: int, end: int, size: int, **more
    ) -> None:
        told = f"kind_src:unknown kind_dst:unknown size:{size} dest:0 async:1"
        self.call(COPIES.get(kind, "MemcpyOther"), correlation, start, end,
                  details=("memcpy_details", told), **more)  # fmt: skip

    def memset_call(self, correlation: int, start: int, end: int, size: int, **more) -> None:
        told = f"kind:unknown num_bytes:{size} async:1"
        self.call("Memset", correlation, start, end, details=("Memset_details", told), **more)

    def activity(
        self, kind: str, name: str, correlation: int | None, start: int, end: int, stream: int, *,
        device: int = 0, annotation: str | None = None, graph: int = 0, node: int = 0,
        context: int | None = 1, own: dict[str, object] | None = None, scope: int = 0,
    ) -> None:  # fmt: skip
        plane = self.planes[device]
        stats: dict[str, object] = {}
        if correlation is not None:
            stats["correlation_id"] = Unsigned(correlation)
        if scope:
            stats["scope_range_id"] = scope
        if context is not None:
            stats["context_id"] = f"$${context}"
        if graph:
            stats["cuda_graph_id"] = Unsigned(graph)
        if node:
            stats["cuda_graph_node_id"] = Unsigned(node)
        stats |= own or {}
        if annotation is None:
            annotation = self.annotations.get(correlation, "")
        stats |= annotated(annotation)
        plane.add(stream, name, start, end, stats)
        plane.types.setdefault(stream, {})[kind] = None

    def kernel(
        self, name: str, correlation: int, start: int, end: int, stream: int = 7, *, regs: int = 32,
        static: int = 0, dynamic: int = 0, grid=(1, 1, 1), block=(128, 1, 1), occupancy: float = 50.0,
        **more,
    ) -> None:  # fmt: skip
        told = (
            f"regs:{regs} static_shared:{static} dynamic_shared:{dynamic} "
            f"grid:{','.join(map(str, grid))} block:{','.join(map(str, block))} occ_pct:{occupancy:g}"
        )
        own = {
            "theoretical_occupancy_pct": occupancy,
            "occupancy_min_grid_size": 264,
            "occupancy_suggested_block_size": 1024,
            "kernel_details": Ref(told),
        }
        self.activity("Compute", name, correlation, start, end, stream, own=own, **more)

    def memcpy(
        self, kind: str, correlation: int, start: int, end: int, size: int, stream: int = 7, *,
        source: str = "pageable", target: str = "device", dest: int = 0, **more,
    ) -> None:  # fmt: skip
        told = f"kind_src:{source} kind_dst:{target} size:{size} dest:{dest} async:1"
        name = COPIES.get(kind, "MemcpyOther")
        own = {"memcpy_details": Ref(told)}
        self.activity(name, name, correlation, start, end, stream, own=own, **more)

    def memset(
        self, correlation: int, start: int, end: int, size: int, stream: int = 7, **more
    ) -> None:
        own = {"Memset_details": Ref(f"kind:device num_bytes:{size} async:1")}
        self.activity("Memset", "Memset 3", correlation, start, end, stream, own=own, **more)

    def residency(self, start: int, end: int, size: int, address: int) -> None:
        own = {
            "MemoryResidency_details": Ref(f"kind:device num_bytes:{size} addr:0x{address:016x}")
        }
        self.activity("MemoryResidency", "Memory device", None, start, end, 0, own=own)

    def unified(self, name: str, start: int, end: int, kind: int = 1) -> None:
        self.activity("UnifiedMemory", name, None, start, end, 0x10000000 + kind, context=None)

    def overhead(self, name: str, start: int, end: int, stream: int | None = None) -> None:
        line = OVERHEAD_LINE if stream is None else stream
        self.activity("Overhead", name, None, start, end, line, context=None)

    def graph(self, number: int, correlation: int, start: int, end: int, stream: int = 7) -> None:
        """Add a CUDA graph that is traced as a whole (AddGraphTraceActivityEvent)."""
        own = {"cuda_graph_exec_id": Unsigned(number)}
        self.activity("CudaGraph", f"CudaGraphExec:{number}", correlation, start, end, stream,
                      graph=number, own=own)  # fmt: skip

    def nvtx(self, domain: str, text: str, start: int, end: int, thread: int = 77) -> None:
        """Add an NVTX range on its own host line, numbered after the threads (ChangeOccupiedLineIds)."""
        name = f"NVTX:{domain}:{text}" if domain else f"NVTX:{text}"
        line = (1 << 32) + thread
        self.host.lines.setdefault(line, (f"Host Threads/{thread}/NVTX", []))
        self.host.add(line, name, start, end, {"correlation_id": Unsigned(0), "context_id": "$$0"})

    def trace_me(self, name: str, start: int, end: int, thread: int = 77, **stats: object) -> None:
        self.host.lines.setdefault(thread, (f"Host Threads/{thread}", []))
        self.host.add(thread, name, start, end, stats)

    def counter(self, name: str, at: int, value: float, device: int = 0) -> None:
        plane = self.planes[device]
        plane.lines.setdefault(1 << 40, ("_counters_", []))
        plane.add(1 << 40, name, at, at, {name: value})

    def program(self, name: str, number: int, proto: bytes) -> None:
        """Add an optimised program in the plane ``/host:metadata``."""
        plane = Plane("/host:metadata")
        plane.events[f"{name}({number})"] = number
        plane.event_stats[f"{name}({number})"] = [plane.stat("Hlo Proto", proto)]
        self.others.append(plane)

    def space(self) -> bytes:
        for plane in self.planes:
            for line, kinds in plane.types.items():
                shown = f"Stream #{line}({','.join(kinds)})"
                name = "CUPTI overhead" if "Overhead" in kinds else shown
                plane.lines[line] = (name, plane.lines[line][1])
        task = Plane("Task Environment")
        task.stats.append(task.stat("profile_start_time", Unsigned(1_700_000_000_000_000_000)))
        planes = [*self.planes, *self.others, self.host, task]
        return b"".join(
            [
                *(encoded(1, plane.data()) for plane in planes),
                *(encoded(3, text) for text in self.warnings),
                encoded(4, "machine"),
            ]
        )

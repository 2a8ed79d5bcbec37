"""A made training on GPUs: what its host and devices did, written as Kineto's JSON or as Nsight Systems' SQLite.

The host is one thread that runs ops and launches, and one that runs the backward pass. A kernel begins when its
launch has returned and its stream is free; a launch waits when the stream is ``AHEAD`` behind, as CUDA's queue
of launches does. Kernels last as long as a good one does on the H100 that the files name.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope.core.schema import CATEGORY_ID
from tests.script import module_at

SCHEMA = module_at("benchmarks/make_nsys.py").SCHEMA
MAIN, BACKWARD = 1, 2
COMPUTE, COMMUNICATION = 7, 20
#: How far the device may be behind the host (ns).
AHEAD = 8_000_000
#: What kernels attain on an H100: FLOP/ns by dtype, and bytes/ns.
FLOPS = {"bf16": 989_000 * 0.75, "f32": 67_000 * 0.75}
BYTES = 3350 * 0.85
SIZES = {"bf16": 2, "f32": 4, "i64": 8}
_CPP = {"bf16": "c10::BFloat16", "f32": "float", "i64": "long int"}
PCIE = {"Pinned": 50.0, "Pageable": 6.0}
COPIES = """
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
 streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,
 dstKind INTEGER, srcDeviceId INTEGER, dstDeviceId INTEGER);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
 (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device');
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'),
 (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host');
"""

Tensor = tuple[str, tuple[int, ...]]


def tensor(dtype: str, *shape: int) -> Tensor:
    """Return a tensor's dtype and shape."""
    return dtype, shape


def size(value: Tensor) -> int:
    """Return how many bytes a tensor has."""
    count = SIZES[value[0]]
    for length in value[1]:
        count *= length
    return count


def moved(*tensors: Tensor) -> int:
    """Return how long a kernel takes that moves these tensors (ns)."""
    return max(2_000, round(sum(map(size, tensors)) / BYTES))


@dataclass(slots=True)
class Span:
    """A range of the host: an op, or what marks a step, phase, loader or compilation."""

    kind: str
    text: str
    start: int
    end: int
    thread: int
    inputs: Sequence[Tensor] = ()
    output: Tensor | None = None
    sequence: int | None = None
    direction: str = "forward"
    line: int = 1
    group: dict[str, Any] | None = None


@dataclass(slots=True)
class Work:
    """A kernel or copy with its launch."""

    name: str
    start: int
    end: int
    stream: int
    correlation: int
    bytes: int = 0
    way: str | None = None
    memory: str = ""
    group: dict[str, Any] | None = None


@dataclass(slots=True)
class Scene:
    """What one rank did; times in ns from the start of the recording."""

    rank: int = 0
    world: int = 1
    now: int = 1_000_000
    spans: list[Span] = field(default_factory=list)
    calls: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    free: dict[int, int] = field(default_factory=dict)
    phases: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    correlation: int = 0
    sequence: int = 0
    thread: int = MAIN
    direction: str = "forward"

    # what the host does

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step; what no phase has of it is ``outside``."""
        begin, inside = self.now, sum(self.phases.values())
        yield
        self.spans.append(Span("step", str(self.steps), begin, self.now, MAIN))
        self.steps += 1
        self.now += 1_000
        spent = self.now - 1_000 - begin - (sum(self.phases.values()) - inside)
        self.phases["outside"] = self.phases.get("outside", 0) + spent

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A phase of a step; the backward pass runs on a thread of its own."""
        before = self.direction, self.thread
        self.direction, self.thread = name, BACKWARD if name == "backward" else MAIN
        begin = self.now
        yield
        self.direction, self.thread = before
        if name == "forward":
            self.spans.append(Span("layer", "Transformer", begin, self.now, MAIN))
        self.spans.append(Span("phase", name, begin, self.now, MAIN))
        self.phases[name] = self.phases.get(name, 0) + self.now - begin

    def evaluate(self, run: Callable[[], object]) -> None:
        """Run a forward pass in no step, which the recorder marks as one."""
        begin = self.now
        run()
        self.spans += [Span(kind, text, begin, self.now, MAIN)
                       for kind, text in (("phase", "forward"), ("layer", "Transformer"))]  # fmt: skip

    def idle(self, time: int) -> None:
        """Let the host run for so long outside any op."""
        self.now += time

    def compile(self, text: str, time: int) -> None:
        """Compile for so long."""
        self.spans.append(Span("compile", text, self.now, self.now + time, self.thread))
        self.now += time

    def op(
        self,
        name: str,
        inputs: Sequence[Tensor],
        output: Tensor,
        kernel: tuple[str, int] | None = None,
        *,
        host: int = 20_000,
        line: int = 1,
        again: int | None = None,
    ) -> int:
        """Run an op with one kernel; return its sequence number. ``again``: that of the forward op."""
        begin = self.now
        if again is None and self.direction == "forward":
            self.sequence += 1
        number = self.sequence if again is None else again
        self.now += host // 4
        if kernel is not None:
            self.launch(*kernel)
        self.now = max(self.now, begin + host)
        has = number if self.direction in ("forward", "backward") else None
        self.spans.append(
            Span(
                "op", name, begin, self.now, self.thread, inputs, output, has, self.direction, line
            )
        )
        return number

    def launch(self, name: str, time: int, stream: int = COMPUTE, **more: Any) -> Work:
        """Launch a kernel; the launch waits while the device is too far behind."""
        self.correlation += 1
        begin = self.now
        self.now += 5_000
        self.now = max(self.now, self.free.get(stream, 0) - AHEAD)
        self.calls.append(("cudaLaunchKernel", begin, self.now, self.thread, self.correlation))
        start = max(self.now + 1_500, self.free.get(stream, 0) + 500)
        work = Work(name, start, start + time, stream, self.correlation, **more)
        self.free[stream] = work.end
        self.works.append(work)
        return work

    def wait(self, stream: int = COMPUTE) -> None:
        """Wait for a stream, as ``cudaStreamSynchronize`` does."""
        begin = self.now
        self.now = max(self.now + 2_000, self.free.get(stream, 0) + 2_000)
        self.calls.append(("cudaStreamSynchronize", begin, self.now, self.thread, 0))

    def copy(self, way: str, count: int, memory: str, *, waits: bool) -> None:
        """Copy so many bytes between the host's memory of this kind and the device."""
        self.correlation += 1
        begin = self.now
        self.now += 6_000
        self.calls.append(("cudaMemcpyAsync", begin, self.now, self.thread, self.correlation))
        start = max(self.now + 1_500, self.free.get(COMPUTE, 0) + 500)
        end = start + max(2_000, round(count / PCIE[memory]))
        self.free[COMPUTE] = end
        self.works.append(Work("copy", start, end, COMPUTE, self.correlation, count, way, memory))
        if waits:
            self.wait()

    def read(self, line: int = 90) -> None:
        """``.item()``: copy one value to the host and wait for it."""
        begin = self.now
        self.now += 4_000
        self.copy("DtoH", 4, "Pageable", waits=True)
        value = tensor("f32")
        for name in ("aten::item", "aten::_local_scalar_dense"):
            begin += 1_000
            self.spans.append(
                Span("op", name, begin, self.now + 2_000 - begin % 2, self.thread, [value], None, None,
                     self.direction, line)
            )  # fmt: skip
        self.now += 3_000

    def load(self, text: str, time: int) -> None:
        """Wait for a loader's batch."""
        self.spans.append(Span("loader", text, self.now, self.now + time, MAIN))
        self.now += time

    def reduce(self, time: int) -> None:
        """All-reduce the gradients after the backward pass, and wait for it."""
        self.wait()
        group = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 1 << 24,
                 "Out msg nelems": 1 << 24, "Process Group Name": "0", "Group size": self.world,
                 "Process Group Ranks": json.dumps(list(range(self.world)))}  # fmt: skip
        self.spans.append(
            Span("op", "record_param_comms", self.now, self.now + 12_000, self.thread, group=group)
        )
        self.launch(_ALL_REDUCE, max(time, 50_000), COMMUNICATION, group=group)
        self.wait(COMMUNICATION)

    def grow(self, count: int) -> None:
        """Allocate what is never freed."""
        total = count + (self.memory[-1][2] if self.memory else 8 << 30)
        self.memory.append((self.now - 1_000, count, total))

    def truth(self) -> dict[str, int]:
        """Return each phase's time over all steps."""
        return {name: self.phases.get(name, 0) for name in (*_PHASES, "outside")}


_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_PHASES = ("input", "forward", "backward", "optimizer")
_PID = 4000


def write_kineto(scene: Scene, path: Path) -> None:
    """Write the scene as ``torch.profiler`` exports it, with shapes."""
    pid, events = _PID + scene.rank, []

    def add(cat: str, name: str, start: int, end: int, where: tuple[int, int], **args: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": where[0], "tid": where[1],
                       "ts": start / 1000, "dur": (end - start) / 1000, "args": args})  # fmt: skip

    for number, span in enumerate(sorted(scene.spans, key=lambda span: (span.start, -span.end)), 1):
        where, marks = (pid, span.thread), "user_annotation"
        if span.kind == "step":
            add(marks, f"ProfilerStep#{span.text}", span.start, span.end, where)
        elif span.kind == "phase" and span.text == "input":
            loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            add(marks, loader, span.start, span.end, where)
        elif span.kind == "phase" and span.text == "optimizer":
            add(marks, "Optimizer.step#AdamW.step", span.start, span.end, where)
        elif span.kind == "op":
            _kineto_op(add, span, where, number)
    for name, start, end, thread, correlation in scene.calls:
        args = {"correlation": correlation} if correlation else {}
        add("cuda_runtime", name, start, end, (pid, thread), **args)
    for work in scene.works:
        at = {"device": 0, "stream": work.stream, "correlation": work.correlation, "context": 1}
        place = 0, work.stream
        if work.way is not None:
            ends = [work.memory, "Device"]
            name = "Memcpy {} ({} -> {})".format(
                work.way, *(ends if work.way == "HtoD" else ends[::-1])
            )
            add("gpu_memcpy", name, work.start, work.end, place, bytes=work.bytes, **at)
        else:
            shape = {"grid": [264, 1, 1], "block": [256, 1, 1], "registers per thread": 64}
            add(
                "kernel",
                work.name,
                work.start,
                work.end,
                place,
                **at,
                **shape,
                **(work.group or {}),
            )
    for start, count, total in scene.memory:
        events.append({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": pid,
                       "tid": MAIN, "ts": start / 1000, "args": {
                           "Device Type": 1, "Device Id": 0, "Addr": 1 << 20, "Bytes": count,
                           "Total Allocated": total, "Total Reserved": total}})  # fmt: skip
    properties = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_029_158_912,
                  "computeMajor": 9, "computeMinor": 0, "numSms": 132}  # fmt: skip
    trace: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [properties]}
    if scene.world > 1:
        trace["distributedInfo"] = {
            "backend": "nccl",
            "rank": scene.rank,
            "world_size": scene.world,
        }
    path.write_text(json.dumps(trace | {"traceEvents": events}))


def _kineto_op(add: Any, span: Span, where: tuple[int, int], number: int) -> None:
    args: dict[str, Any] = {
        "External id": number,
        "Input Dims": [list(value[1]) for value in span.inputs],
        "Input type": [_CPP[value[0]] for value in span.inputs],
    }
    if (
        span.text == "aten::_to_copy"
    ):  # its dtype, layout, device, pinning, blocking and memory format
        args["Input Dims"] += [[]] * 6
        args["Input type"] += ["Scalar", "", "", "", "Scalar", ""]
        args["Concrete Inputs"] = ["", "15", "", "", "", "False", ""]
    if span.sequence is not None:
        args["Sequence number"] = span.sequence
    if span.direction == "backward":
        forward = {"Fwd thread id": MAIN, "Sequence number": span.sequence, "External id": number}
        name = f"autograd::engine::evaluate_function: {span.text.split('::')[-1].title()}Backward0"
        add("cpu_op", name, span.start, span.end, where, **forward)
        args["Fwd thread id"] = MAIN
    args |= span.group or {}
    add("cpu_op", span.text, span.start, span.end, where, **args)


def write_nsys(scene: Scene, path: Path) -> None:
    """Write the scene as Nsight Systems exports what opscope's ranges and CUPTI show."""
    path.unlink(missing_ok=True)
    process = (1 << 56) | ((_PID + scene.rank) << 24)
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts))

    domains = {"opscope.torch": 1, "opscope.step": 2, "opscope.input": 3}
    ranges = []
    for span in sorted(scene.spans, key=lambda span: (span.start, -span.end)):
        domain, category, words = _nvtx(span)
        payload = span.sequence if span.kind == "op" else None
        ranges.append((span.start, span.end, 59, CATEGORY_ID[category], None, process | span.thread,
                       text(words), domains[domain], payload))  # fmt: skip
    named = [
        (0, None, 75, None, name, process | MAIN, None, number, None)
        for name, number in domains.items()
    ]
    named += [(0, None, 33, number, name, process | MAIN, None, domain, None)
              for name, number in CATEGORY_ID.items() for domain in domains.values()]  # fmt: skip
    with sqlite3.connect(path) as db:
        db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;")
        for table, columns in SCHEMA.items():
            db.execute(f"CREATE TABLE {table} ({columns})")
        db.executescript(COPIES)
        db.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, category, text, globalTid, textId, domainId,"
            " int64Value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [*named, *ranges])  # fmt: skip
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)",
            [(start, end, process | thread, number or 1_000_000 + place, text(f"{name}_v7000"))
             for place, (name, start, end, thread, number) in enumerate(scene.calls)])  # fmt: skip
        db.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId,"
            " globalPid, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY,"
            " blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId)"
            " VALUES (?, ?, 0, 1, ?, ?, ?, ?, ?, 64, 264, 1, 1, 256, 1, 1, 0, 0, 0, 0, 0)",
            [(work.start, work.end, work.stream, work.correlation, process, text(work.name), text(work.name))
             for work in scene.works if work.way is None])  # fmt: skip
        db.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, ?, ?, {process}, ?, ?, ?, ?, 0, 0)",
            [(work.start, work.end, work.stream, work.correlation, work.bytes, *_kinds(work))
             for work in scene.works if work.way is not None])  # fmt: skip
        db.execute("INSERT INTO PROCESSES VALUES (?, ?, 'python3')", (process, _PID + scene.rank))
        db.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
                       [("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
                        ("EXPORT_PRODUCT_VERSION", "2026.2.1.210"), ("EXPORT_SCHEMA_VERSION", "3.25.0")])  # fmt: skip
        db.execute(
            "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779782330176752435, '', '')"
        )
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'NVIDIA H100 80GB HBM3', '', 85899345920,"
                   " 3352320000000, 1980000000, 132, '', 0, 32, 64, 9, 0)")  # fmt: skip
        db.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            [(number, value) for value, number in texts.items()],
        )


def _kinds(work: Work) -> tuple[int, int, int]:
    """Return the copy's kind, and those of the memory that it reads and writes."""
    host = 0 if work.memory == "Pageable" else 1
    return (1, host, 2) if work.way == "HtoD" else (2, 2, host)


def _nvtx(span: Span) -> tuple[str, str, str]:
    """Return the domain, category and text of a range."""
    if span.kind == "step":
        return "opscope.step", "step", f"step {span.text}"
    if span.kind in ("phase", "compile"):
        return "opscope.torch", "phase", span.text
    if span.kind == "layer":
        return "opscope.torch", "layer", span.text
    if span.kind == "loader":
        return "opscope.input", "input", span.text
    inputs = ", ".join(map(_spec, span.inputs))
    result = "()" if span.output is None else _spec(span.output)
    category = span.direction if span.direction in CATEGORY_ID else "forward"
    return (
        "opscope.torch",
        category,
        f"{span.text}({inputs}) -> {result} on cuda:0 @train.py:{span.line}",
    )


def _spec(value: Tensor) -> str:
    return f"{value[0]}[{','.join(map(str, value[1]))}]"

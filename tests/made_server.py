"""Made traces of an inference server: steps with names, the ops and kernels that each launches, graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from opscope.core.tables.trace import Trace, table_schema

US = 1_000
THREAD = 11
#: An attention over a cache, a product, and a sampler, with their kernels.
ATTENTION = ("vllm::unified_attention_with_output(bf16[{n},8,64], bf16[{n},2,64], bf16[{n},2,64], "
             "bf16[{n},8,64])", "kernel_unified_attention_2d")  # fmt: skip
PRODUCT = ("aten::mm(bf16[{n},512], bf16[512,512])", "ampere_bf16_s16816gemm_bf16_128x128")
SAMPLER = ("aten::argmax(f32[{n},1000])", "at::native::reduce_kernel<ArgMax>")


@dataclass
class Step:
    """One step of a server: its name (None: unmarked), how long its range is and how long the host does
    something else after it (ns), its tokens, and its work: op, kernel, duration (ns)."""

    name: str | None
    took: int = 1_000 * US
    after: int = 20 * US
    tokens: int = 16
    work: Sequence[tuple[tuple[str, str], int]] = ((PRODUCT, 200 * US), (ATTENTION, 100 * US))
    graph: int | None = None
    outside: Sequence[tuple[tuple[str, str], int]] = field(default_factory=list)
    between: str | None = None


def served(steps: Sequence[Step], process: int = 0, copied: int | None = None) -> Trace:
    """The trace of the steps: an op is open while it launches; kernels run in order, each after its launch.

    ``copied``: bytes that each step copies to the host in the end.
    """
    rows: dict[str, list[dict]] = {"ranges": [], "calls": [], "kernels": []}
    clock, device, correlation = 1_000 * US, 0, 100

    def launch(name: str, at: int, length: int = 2 * US) -> int:
        nonlocal correlation
        correlation += 1
        rows["calls"].append({"process": process, "thread": THREAD, "start": at, "end": at + length,
                              "name": name, "correlation": correlation})  # fmt: skip
        return correlation

    def run(kernel: str, at: int, length: int, by: int, graph: int | None) -> None:
        nonlocal device
        start = max(device, at + 5 * US)
        device = start + length
        rows["kernels"].append({"process": process, "device": 0, "context": 1, "stream": 7, "start": start,
                                "end": device, "name": kernel, "correlation": by, "graph": graph,
                                "graph_node": None if graph is None else len(rows["kernels"])})  # fmt: skip

    def ranged(text: str, start: int, end: int, domain: str) -> None:
        rows["ranges"].append({"process": process, "thread": THREAD, "start": start, "end": end,
                               "domain": domain, "kind": "pushpop", "text": text})  # fmt: skip

    for step in steps:
        at = clock + 10 * US
        if step.name is not None:
            ranged(step.name, clock, clock + step.took, "user")
        if step.graph is not None:
            by = launch("cudaGraphLaunch", at)
            for (_, kernel), length in step.work:
                run(kernel, at, length, by, step.graph)
            at += 10 * US
        for (op, kernel), length in (*(() if step.graph is not None else step.work), *step.outside):
            ranged(op.format(n=step.tokens), at, at + 6 * US, "opscope.torch")
            run(kernel, at, length, launch("cudaLaunchKernel", at + US), None)
            at += 10 * US
        if copied is not None:
            device = max(device, at) + 20 * US
            rows.setdefault("memops", []).append(
                {"process": process, "device": 0, "context": 1, "stream": 7, "start": device - 20 * US,
                 "end": device, "kind": "DtoH", "bytes": copied,
                 "correlation": launch("cudaMemcpyAsync", at)}
            )  # fmt: skip
        if step.between is not None:
            ranged(step.between, clock + step.took, clock + step.took + step.after // 2, "user")
        clock += step.took + step.after
    return _trace(rows, process)


def _trace(rows: dict[str, list[dict]], process: int) -> Trace:
    rows["devices"] = [{"process": process, "device": 0, "name": "NVIDIA H100 80GB HBM3", "cc": "9.0",
                        "sm_count": 132}]  # fmt: skip
    rows["processes"] = [{"process": process, "pid": 1, "rank": 0, "world_size": 1}]
    frames = {}
    for name, held in rows.items():
        schema = table_schema(name)
        kept = {key: schema[key] for row in held for key in row}
        frames[name] = pl.DataFrame(
            [{key: row.get(key) for key in kept} for row in held], schema=kept
        )
    count = len(frames["ranges"])
    frames["ranges"] = frames["ranges"].with_columns(
        pl.int_range(count, dtype=pl.Int64).alias("id")
    )
    return Trace.of(frames)


def serving(prefills: int = 3, decodes: int = 5, requests: int = 16) -> list[Step]:
    """Steps as vLLM names them: of each prefill one, then decodes."""
    steps = []
    for _ in range(prefills):
        steps.append(Step("execute_context_1(800)_generation_0(0)", 5_000 * US, tokens=800,
                          work=((PRODUCT, 2_000 * US), (ATTENTION, 1_000 * US))))  # fmt: skip
        steps += [Step(f"execute_context_0(0)_generation_{requests}({requests})", 1_000 * US,
                       tokens=requests) for _ in range(decodes)]  # fmt: skip
    return steps

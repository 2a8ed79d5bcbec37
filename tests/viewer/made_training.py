"""A made trace of a training on two GPUs: a small GPT, its layers, ops, kernels, collectives, memory and waits.

No GPU is needed to make it, and it is the same each time: times follow from FLOPs and bytes at rates that real kernels
reach, with noise of a fixed seed. Two steps wait for their batch. Tests and ``scripts/make_screenshots.py`` use it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import polars as pl

from opscope.core.tables.trace import Trace, table_schema

BATCH, LENGTH, WIDTH, HEADS, BLOCKS, WORDS = 8, 1024, 768, 12, 6, 50_304
TOKENS = BATCH * LENGTH
STEPS, WAITING = 10, (4, 7)
MATRIX_RATE, MEMORY_RATE = 0.48e15, 2.4e12  # FLOP/s and bytes/s that kernels reach
LOSS_LINE = "train.py:61"


@dataclass
class Rank:
    """What one process writes: rows of the trace's tables, a clock for its thread and one for each stream."""

    rank: int
    noise: random.Random
    now: int = 1_000_000
    streams: dict[int, int] = field(default_factory=dict)
    held: int = 0
    correlation: int = 0
    seq: int = 0
    rows: dict[str, list[dict]] = field(default_factory=dict)

    def add(self, table: str, **row: object) -> None:
        self.rows.setdefault(table, []).append({"process": self.rank, **row})

    def begin(self) -> int:
        self.now += 400
        return self.now

    def end(
        self, start: int, text: str, category: str, domain: str = "opscope.torch", **more: object
    ) -> None:
        self.now += 300
        place = {"thread": 1, "end_thread": 1, "start": start, "end": self.now}
        self.add(
            "ranges", **place, domain=domain, category=category, text=text, kind="pushpop", **more
        )

    def launch(self, name: str, ns: float, stream: int = 7, after: int = 0, grid: int = 432) -> int:
        """Call the launch of a kernel and let it run; return when it ends."""
        self.correlation += 1
        called = self.now + self.noise.randrange(500, 900)
        self.now = called + self.noise.randrange(3_600, 5_200)
        place = {"thread": 1, "start": called, "end": self.now, "correlation": self.correlation}
        self.add("calls", **place, name="cudaLaunchKernel")
        start = max(self.streams.get(stream, 0) + 900, self.now + 1_500, after)
        end = start + int(ns * self.noise.uniform(0.97, 1.06)) + 1_400
        self.streams[stream] = end
        self.add(
            "kernels", device=self.rank, context=1, stream=stream, start=start, end=end, name=name,
            correlation=self.correlation, grid=f"{grid},1,1", block="256,1,1", registers=168 if "gemm" in name else 40,
            shared_static=0, shared_dynamic=98_304 if "gemm" in name else 0, local_memory=0,
        )  # fmt: skip
        return end

    def op(self, text: str, kernel: str, *, flops: float = 0, moved: float = 0, category: str = "forward",
           line: str = "", seq: int | None = None, kept: int = 0, stream: int = 7, after: int = 0) -> int:  # fmt: skip
        start = self.begin()
        ended = self.launch(
            kernel, max(flops / MATRIX_RATE, moved / MEMORY_RATE) * 1e9, stream, after
        )
        source = f" @{line}" if line else ""
        self.end(
            start,
            f"{text} on cuda:{self.rank}{source}",
            category,
            seq=seq,
            fwd_thread=None if seq is None else 1,
        )
        if kept:
            self.held += kept
            self.add("allocations", device=self.rank, thread=1, time=self.now, address=self.correlation << 9,
                     bytes=kept, total=self.held, reserved=40 << 30)  # fmt: skip
        return ended


GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int, T2)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int, T2)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(int, T2)"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, cutlass::bfloat16_t>>(Flash_fwd_params)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _linear(run: Rank, layer: str, wide: int, into: int, line: str) -> None:
    start = run.begin()
    run.seq += 1
    text = f"aten::addmm(bf16[{into}], bf16[{TOKENS},{wide}], bf16[{wide},{into}]{{0,1}}) -> bf16[{TOKENS},{into}]"
    run.op(
        text, GEMM, flops=2 * TOKENS * wide * into, line=line, seq=run.seq, kept=2 * TOKENS * into
    )
    run.end(start, layer, "layer")


def _linear_back(run: Rank, layer: str, wide: int, into: int, line: str, seq: int) -> None:
    start = run.begin()
    for text in (
        f"aten::mm(bf16[{TOKENS},{into}], bf16[{into},{wide}]) -> bf16[{TOKENS},{wide}]",
        f"aten::mm(bf16[{into},{TOKENS}]{{0,1}}, bf16[{TOKENS},{wide}]) -> bf16[{into},{wide}]",
    ):
        run.op(text, GEMM, flops=2 * TOKENS * wide * into, category="backward", line=line, seq=seq)
    run.end(start, layer, "layer")


def _elementwise(
    run: Rank, layer: str, name: str, kernel: str, size: int, line: str, category: str = "forward"
) -> None:
    start = run.begin()
    one = f"bf16[{TOKENS},{size}]"
    second = f", {one}" if name.startswith("aten::add") or category == "backward" else ""
    kept = 2 * TOKENS * size if category == "forward" else 0
    run.op(f"{name}({one}{second}) -> {one}", kernel, moved=(3 if second else 2) * 2 * TOKENS * size,
           category=category, line=line, kept=kept)  # fmt: skip
    run.end(start, layer, "layer")


def _block(run: Rank, name: str) -> dict[str, int]:
    start, numbers = run.begin(), {}
    _elementwise(run, f"{name}.ln_1", "aten::layer_norm", NORM, WIDTH, "model.py:81")
    attn = run.begin()
    _linear(run, f"{name}.attn.c_attn", WIDTH, 3 * WIDTH, "model.py:34")
    numbers["c_attn"] = run.seq
    heads = f"bf16[{BATCH},{HEADS},{LENGTH},{WIDTH // HEADS}]"
    run.op(f"aten::_scaled_dot_product_flash_attention({heads}, {heads}, {heads}) -> {heads} {{is_causal=true}}", FLASH,
           flops=2 * 2 * BATCH * LENGTH * LENGTH * WIDTH * 0.7, line="model.py:41", kept=2 * TOKENS * WIDTH)  # fmt: skip
    _linear(run, f"{name}.attn.c_proj", WIDTH, WIDTH, "model.py:44")
    numbers["c_proj"] = run.seq
    run.end(attn, f"{name}.attn", "layer")
    _elementwise(run, name, "aten::add.Tensor", ADD, WIDTH, "model.py:82")
    _elementwise(run, f"{name}.ln_2", "aten::layer_norm", NORM, WIDTH, "model.py:83")
    mlp = run.begin()
    _linear(run, f"{name}.mlp.c_fc", WIDTH, 4 * WIDTH, "model.py:60")
    numbers["c_fc"] = run.seq
    _elementwise(run, f"{name}.mlp.gelu", "aten::gelu", GELU, 4 * WIDTH, "model.py:61")
    _linear(run, f"{name}.mlp.c_proj", 4 * WIDTH, WIDTH, "model.py:62")
    numbers["mlp.c_proj"] = run.seq
    run.end(mlp, f"{name}.mlp", "layer")
    run.end(start, name, "layer")
    return numbers


def _block_back(run: Rank, name: str, numbers: dict[str, int]) -> None:
    start = run.begin()
    _linear_back(run, f"{name}.mlp.c_proj", 4 * WIDTH, WIDTH, "model.py:62", numbers["mlp.c_proj"])
    _elementwise(
        run, f"{name}.mlp.gelu", "aten::gelu_backward", GELU, 4 * WIDTH, "model.py:61", "backward"
    )
    _linear_back(run, f"{name}.mlp.c_fc", WIDTH, 4 * WIDTH, "model.py:60", numbers["c_fc"])
    _linear_back(run, f"{name}.attn.c_proj", WIDTH, WIDTH, "model.py:44", numbers["c_proj"])
    heads = f"bf16[{BATCH},{HEADS},{LENGTH},{WIDTH // HEADS}]"
    run.op(f"aten::_scaled_dot_product_flash_attention_backward({heads}, {heads}, {heads}, {heads}) -> {heads}",
           FLASH.replace("fwd", "bwd"), flops=5 * BATCH * LENGTH * LENGTH * WIDTH, category="backward", line="model.py:41")  # fmt: skip
    _linear_back(run, f"{name}.attn.c_attn", WIDTH, 3 * WIDTH, "model.py:34", numbers["c_attn"])
    run.end(start, name, "layer")
    parameters = 12 * WIDTH * WIDTH
    begun = run.begin()
    run.launch(REDUCE, 2 * parameters / 3.0e11 * 1e9, 20, run.streams[7], 24)
    run.end(begun, f"nccl:all_reduce(bf16[{parameters}]) -> bf16[{parameters}]", "communication")


def _step(run: Rank, number: int) -> None:
    begun = run.now = max(run.now, run.streams.get(7, 0)) + 20_000
    run.held = 2_900_000_000
    wait = run.begin()
    run.now += 18_000_000 if number in WAITING else run.noise.randrange(40_000, 90_000)
    run.end(
        wait,
        "DataLoader {workers=4} @train.py:55",
        "input",
        "opscope.input",
        payload=0 if number in WAITING else 2,
    )
    phase = run.begin()
    model = run.begin()
    numbers = [_block(run, f"model.h.{block}") for block in range(BLOCKS)]
    head = run.begin()
    text = (
        f"aten::mm(bf16[{TOKENS},{WIDTH}], bf16[{WIDTH},{WORDS}]{{0,1}}) -> bf16[{TOKENS},{WORDS}]"
    )
    run.op(
        text, GEMM, flops=2 * TOKENS * WIDTH * WORDS, line="model.py:120", kept=2 * TOKENS * WORDS
    )
    run.end(head, "model.lm_head", "layer")
    run.end(model, "model", "layer")
    run.op(f"aten::cross_entropy_loss(bf16[{TOKENS},{WORDS}], i64[{TOKENS}]) -> f32[]",
           "void (anonymous namespace)::softmax_warp_forward", moved=4 * TOKENS * WORDS, line="train.py:58")  # fmt: skip
    run.end(phase, "forward", "phase")
    phase = run.begin()
    for text in (f"aten::mm(bf16[{TOKENS},{WORDS}], bf16[{WORDS},{WIDTH}]) -> bf16[{TOKENS},{WIDTH}]",
                 f"aten::mm(bf16[{WORDS},{TOKENS}]{{0,1}}, bf16[{TOKENS},{WIDTH}]) -> bf16[{WORDS},{WIDTH}]"):  # fmt: skip
        run.op(
            text, GEMM, flops=2 * TOKENS * WIDTH * WORDS, category="backward", line="model.py:120"
        )
    for block in reversed(range(BLOCKS)):
        _block_back(run, f"model.h.{block}", numbers[block])
    run.end(phase, "backward", "phase")
    phase = run.begin()
    run.streams[7] = max(run.streams[7], run.streams[20])
    run.launch(
        "void clip_gradients<float>(float*, float, long)", 160_000
    )  # of a library without ranges
    for _ in range(4):
        run.op(f"aten::_fused_adamw_(f32[{WIDTH},{4 * WIDTH}])", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>",
               moved=28 * 3 * WIDTH * WIDTH * BLOCKS, category="optimizer", line="train.py:60")  # fmt: skip
    run.end(phase, "optimizer", "phase")
    item = run.begin()
    run.correlation += 1
    waited = max(run.now, run.streams[7])
    run.add(
        "calls",
        thread=1,
        start=run.now,
        end=waited,
        name="cudaStreamSynchronize",
        correlation=run.correlation,
    )
    run.now = waited
    run.end(item, f"aten::_local_scalar_dense(f32[]) on cuda:{run.rank} @{LOSS_LINE}", "forward")
    run.add(
        "allocations",
        device=run.rank,
        thread=1,
        time=run.now,
        address=1,
        bytes=-1,
        total=2_900_000_000,
        reserved=40 << 30,
    )
    run.add("ranges", thread=1, end_thread=1, start=begun, end=run.now, domain="opscope.torch", category="step",
            text=f"step {number}", kind="pushpop")  # fmt: skip


def made_training(steps: int = STEPS, ranks: int = 2) -> Trace:
    """Return the trace: ``steps`` steps of ``ranks`` processes, a GPU each."""
    tables: dict[str, list[dict]] = {"clocks": [], "devices": [], "processes": [], "threads": []}
    for rank in range(ranks):
        run = Rank(rank, random.Random(rank), now=1_000_000 + 30_000 * rank)
        for number in range(steps):
            _step(run, number)
        for name, rows in run.rows.items():
            tables.setdefault(name, []).extend(rows)
        tables["processes"].append({"process": rank, "host": "node0", "pid": 4_000 + rank, "rank": rank, "world_size": ranks,
                                    "clock_domain": 0, "name": "train.py", "framework": "torch",
                                    "versions": json.dumps({"torch": "2.13.0"})})  # fmt: skip
        tables["threads"].append(
            {"process": rank, "thread": 1, "os_tid": 4_000 + rank, "name": "main"}
        )
        tables["devices"].append({"process": rank, "device": rank, "name": "NVIDIA H100 80GB HBM3", "cc": "9.0", "sm_count": 132,
                                  "memory": 85_520_809_984, "max_threads_per_sm": 2_048})  # fmt: skip
    tables["clocks"].append({"clock_domain": 0, "kind": "made", "to_unix_ns": 1_700_000_000_000_000_000, "error_ns": 0,
                             "machine": "node0"})  # fmt: skip
    frames = {}
    for name, rows in tables.items():
        schema = table_schema(name)
        columns = {key: schema[key] for row in rows for key in row}
        frames[name] = pl.DataFrame(
            [{key: row.get(key) for key in columns} for row in rows], schema=columns
        )
    ranges = frames["ranges"].sort("start", maintain_order=True)
    frames["ranges"] = ranges.with_row_index("id").with_columns(pl.col("id").cast(pl.Int64))
    return Trace.of(
        frames,
        {"format": "made", "tool": "tests/viewer/made_training.py", "paths": ["gpt.opscope"]},
    )

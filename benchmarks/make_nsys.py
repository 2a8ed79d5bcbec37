"""Make a synthetic Nsight Systems file of any size, and a second file with the true range of each kernel.

Usage: python benchmarks/make_nsys.py OUT.sqlite [--kernels N] [--texts registered|torch|library]
       [--seed S]

The file has the tables and columns of Nsight Systems 2026.2 (schema 3.25). Ranges are nested four deep (two
layers, an op, an op inside it), about three for each kernel. They are on several threads of two processes
that use the same correlation ids; the launches of some kernels are not recorded. No call straddles the end of
a range. ``OUT.truth.parquet`` has for each kernel its process, correlation, duration, and its ``range`` (the
place among the file's ranges, null without a launch). The file is written in pieces, so memory does not grow
with its size.
"""

from __future__ import annotations

import argparse
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

PUSH, POP, LAUNCH = 0, 1, 2
TEMPLATES = 64
BLOCKS = 3000  # blocks of one piece: about 80,000 ranges
FIRST_PID = 4000
GAP_NS = (200, 1200)
CALL_NS = (1500, 5000)
KERNEL_NS = (1000, 40_000)
OPS = ("addmm", "mm", "bmm", "add", "mul", "gelu", "layer_norm", "softmax", "copy_", "cat")
KERNELS = (
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::{0}, std::array<char*, 3ul>>",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{0}, float>(int, float)",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_{0}>(typename T1::Params)",
)
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, "
    "totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, "
    "cuDevice INTEGER, threadsPerWarp INTEGER, maxWarpsPerSm INTEGER, computeMajor INTEGER, "
    "computeMinor INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, "
    "rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, "
    "endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, "
    "int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, "
    "floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, "
    "eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER "
    "NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER "
    "NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, "
    "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER "
    "NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread "
    "INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, "
    "blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, "
    "staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, "
    "localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER "
    "NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER, "
    "qmdBulkReleaseDone INTEGER, qmdPreexitDone INTEGER, qmdLastCtaDone INTEGER, graphId INTEGER, "
    "clusterX INTEGER, clusterY INTEGER, clusterZ INTEGER, clusterSchedulingPolicy INTEGER, "
    "maxPotentialClusterSize INTEGER, maxActiveClusters INTEGER, "
    "sharedMemoryRequestedPercentage INTEGER, tensorSizeMinusOneElements TEXT",
}
STYLES = ("registered", "torch", "library")
CATEGORIES = {1: "forward", 2: "backward", 6: "layer"}


@dataclass
class Template:
    """A tree of ranges as events in order of time: the kind, the range, its text."""

    kind: np.ndarray
    range: np.ndarray
    text: np.ndarray
    ranges: int
    launches: int


@dataclass
class Thread:
    """The state of a thread while its events are made."""

    process: int
    tid: int
    stream: int
    clock: int
    free: int
    sequence: int


@dataclass
class Texts:
    """Ids in StringIds of op texts, layer texts, kernels, and the launch call."""

    ops: np.ndarray
    layers: np.ndarray
    kernels: np.ndarray
    launch: int
    op_names: list[str]


def template(random: np.random.Generator, per_kernel: float) -> Template:
    """Return a random tree: a layer, layers in it, ops in these, ops in some of the ops."""
    events: list[tuple[int, int, int]] = []
    parents: list[int] = []

    def opened(text: int) -> int:
        number = len(parents)
        parents.append(text)
        events.append((PUSH, number, text))
        return number

    def launch_here(number: int) -> None:
        events.append((LAUNCH, number, 0))

    root = opened(-1)
    for _ in range(random.integers(2, 5)):
        layer = opened(-2)
        for _ in range(random.integers(2, 7)):
            op = opened(int(random.integers(0, 1 << 20)))
            for _ in range(random.integers(0, 3)):
                inner = opened(int(random.integers(0, 1 << 20)))
                if random.random() < 0.945 / per_kernel:
                    launch_here(inner)
                events.append((POP, inner, 0))
                if random.random() < 0.236 / per_kernel:
                    launch_here(op)
            if random.random() < 1.05 / per_kernel:
                launch_here(op)
            events.append((POP, op, 0))
        events.append((POP, layer, 0))
    events.append((POP, root, 0))
    kind, ranges, text = (np.array(column) for column in zip(*events, strict=True))
    return Template(kind, ranges, text, len(parents), int((kind == LAUNCH).sum()))


def piece(
    templates: list[Template], thread: Thread, blocks: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return the ranges and launches of ``blocks`` random trees, one after the other on a thread.

    ``range_of`` is the place of a launch's range among the piece's ranges. Advances the thread's clock.
    """
    chosen = random.integers(0, len(templates), blocks)
    lengths = np.array([len(t.kind) for t in templates])[chosen]
    counts = np.array([t.ranges for t in templates])[chosen]
    starts = np.concatenate([[0], np.cumsum([len(t.kind) for t in templates])])[chosen]
    before = np.cumsum(lengths) - lengths
    at = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    kind = np.concatenate([t.kind for t in templates])[at]
    local = np.concatenate([t.range for t in templates])[at]
    text = np.concatenate([t.text for t in templates])[at]
    number = local + np.repeat(np.cumsum(counts) - counts, lengths)
    # each block shifts its texts, so that all texts are used
    text = np.where(text >= 0, text + np.repeat(random.integers(0, 1 << 20, blocks), lengths), text)

    gaps = random.integers(*GAP_NS, len(kind))
    lasts = np.where(kind == LAUNCH, random.integers(*CALL_NS, len(kind)), 0)
    time = thread.clock + np.cumsum(gaps) + np.concatenate([[0], np.cumsum(lasts)[:-1]])
    thread.clock = int(time[-1] + lasts[-1])
    push, pop, launch = (kind == PUSH), (kind == POP), (kind == LAUNCH)
    end = np.empty(int(push.sum()), np.int64)
    end[number[pop]] = time[pop]
    return {
        "start": time[push],
        "end": end,
        "text": text[push],
        "depth_layer": text[push] < 0,
        "call_start": time[launch],
        "call_end": time[launch] + lasts[launch],
        "range_of": number[launch],
    }


def on_stream(ready: np.ndarray, lasts: np.ndarray, free: int) -> np.ndarray:
    """Return when each kernel ends, given when it is ready; kernels run one after the other on a stream."""
    total = np.cumsum(lasts)
    return total + np.maximum.accumulate(np.maximum(ready, free) - (total - lasts))


def op_texts(random: np.random.Generator, count: int) -> tuple[list[str], list[str]]:
    """Return texts like opscope's, and texts like those of ``emit_nvtx`` for the same ops."""
    texts, names = [], []
    for number in range(count):
        name = f"aten::{OPS[number % len(OPS)]}"
        rows, inner, columns = (int(2 ** random.integers(4, 13)) + number for _ in range(3))
        texts.append(
            f"{name}(bf16[{rows},{inner}], bf16[{inner},{columns}]) -> bf16[{rows},{columns}] "
            f"on cuda:0 @train.py:{number % 400 + 1} < model.py:{number % 90 + 1}"
        )
        names.append(f"{name}, sizes = [[{rows}, {inner}], [{inner}, {columns}]]")
    return texts, names


def write_small_tables(
    db: sqlite3.Connection,
    threads: list[Thread],
    texts: int,
    domain: str,
    random: np.random.Generator,
) -> Texts:
    """Write every table except ranges, calls and kernels; return the ids of the texts."""
    for table, columns in SCHEMA.items():
        db.execute(f"CREATE TABLE {table} ({columns})")
    full, names = op_texts(random, texts)
    layers = [f"model.blocks.{n // 2}{'.mlp' if n % 2 else ''}" for n in range(192)]
    kernels = [KERNELS[n % len(KERNELS)].format(f"functor_{n}") for n in range(200)]
    strings = ["cudaLaunchKernel_v7000", *full, *layers, *kernels, "python3"]
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(strings))
    processes = sorted({thread.process for thread in threads})
    pids = {process: FIRST_PID + process for process in processes}
    db.executemany(
        "INSERT INTO PROCESSES VALUES (?, ?, 'python3')",
        [(global_pid(process), pids[process]) for process in processes],
    )
    db.executemany(
        "INSERT INTO ThreadNames VALUES (?, 20, ?)",
        [(len(strings) - 1, global_tid(thread)) for thread in threads],
    )
    db.executemany(
        "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
        [
            ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
            ("EXPORT_PRODUCT_VERSION", "2026.2.1.210"),
            ("EXPORT_SCHEMA_VERSION", "3.25.0"),
        ],
    )
    db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779782330176752435, '', '')")
    db.executemany(
        "INSERT INTO TARGET_INFO_GPU VALUES (0, ?, 'NVIDIA H100 80GB HBM3', '', 85899345920, "
        "3352320000000, 1980000000, 132, '', ?, 32, 64, 9, 0)",
        [(process, process) for process in processes],
    )
    # each process has its own names of domains and categories
    columns = "start, eventType, category, text, globalTid, domainId"
    rows = []
    for process in processes:
        main = global_tid(next(thread for thread in threads if thread.process == process))
        rows.append((0, 75, None, domain, main, 1))
        rows += [(0, 33, number, name, main, 1) for number, name in CATEGORIES.items()]
    db.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
    db.commit()
    base = 1 + len(full)
    return Texts(
        np.arange(1, base),
        np.arange(base, base + len(layers)),
        np.arange(base + len(layers), base + len(layers) + len(kernels)),
        0,
        names,
    )


def global_pid(process: int) -> int:
    """Nsight's globalPid: machine in the top byte, pid in bits 24 to 47."""
    return (1 << 56) | ((FIRST_PID + process) << 24)


def global_tid(thread: Thread) -> int:
    """Nsight's globalTid."""
    return global_pid(thread.process) | thread.tid


def make(
    path: Path,
    kernels: int = 1_000_000,
    *,
    ranges_per_kernel: float = 3.0,
    threads: int = 8,
    processes: int = 2,
    texts: int = 3000,
    style: str = "registered",
    lost: float = 0.001,
    seed: int = 1,
) -> dict[str, int]:
    """Write ``path`` and ``path`` with the suffix ``.truth.parquet``; return the numbers of rows.

    ``style``: ``registered`` is like opscope (registered strings, categories, payloads), ``torch`` is like
    ``emit_nvtx`` (a different text for every range, in the default domain), ``library`` is like a library
    that annotates itself (registered strings in its domain; all ranges are user ranges, so all four levels
    count as ops).
    """
    random = np.random.default_rng(seed)
    path.unlink(missing_ok=True)
    crew = [
        Thread(n % processes, FIRST_PID + n % processes + 100 * (n // processes), 7 + n // processes,
               1_000_000 + 997 * n, 0, 0)
        for n in range(threads)
    ]  # fmt: skip
    templates = [template(random, ranges_per_kernel) for _ in range(TEMPLATES)]
    with sqlite3.connect(path) as db:
        db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA page_size=8192;")
        domain = "library" if style == "library" else "opscope.torch"
        ids = write_small_tables(db, crew, texts, domain, random)
        correlations = dict.fromkeys(range(processes), 1)
        done = {"kernels": 0, "ranges": 0, "calls": 0}
        per_block = np.mean([t.launches for t in templates])
        truth: list[pl.DataFrame] = []
        while done["kernels"] < kernels:
            for thread in crew:
                left = kernels - done["kernels"]
                if left <= 0:
                    break
                blocks = min(BLOCKS, max(1, int(left / per_block / 2 + 1)))
                made = piece(templates, thread, blocks, random)
                truth.append(insert(db, made, thread, ids, correlations, done, style, lost, random))
        pl.concat(truth).write_parquet(path.with_suffix(".truth.parquet"))
        db.commit()
    return done


def insert(
    db: sqlite3.Connection,
    made: dict[str, np.ndarray],
    thread: Thread,
    ids: Texts,
    correlations: dict[int, int],
    done: dict[str, int],
    style: str,
    lost: float,
    random: np.random.Generator,
) -> pl.DataFrame:
    """Insert the rows of a piece; return its part of the truth."""
    tid, pid = global_tid(thread), global_pid(thread.process)
    layer, text = made["depth_layer"], made["text"]
    count = len(text)
    sequence = thread.sequence + np.cumsum(~layer)
    thread.sequence = int(sequence[-1])
    op = text % len(ids.ops)
    if style != "torch":
        text_id = np.where(layer, ids.layers[np.arange(count) % len(ids.layers)], ids.ops[op])
        category = np.where(layer, 6, 1 + (sequence // 64) % 2)
        payload = np.where(layer, -1, sequence | (thread.process + 1) << 48)
        rows = zip(
            made["start"].tolist(), made["end"].tolist(), category.tolist(), text_id.tolist(),
            (value if value >= 0 else None for value in payload.tolist()), strict=True,
        )  # fmt: skip
        db.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, category, globalTid, textId, "
            f"domainId, int64Value) VALUES (?, ?, 59, ?, {tid}, ?, 1, ?)",
            rows,
        )
    else:
        names = ids.op_names
        plain = [
            f"nn.Module: Block_{number % 96}" if is_layer else
            names[which].replace(", sizes", f", seq = {seq}, op_id = {done['ranges'] + number}, sizes")
            for number, (is_layer, which, seq) in enumerate(
                zip(layer.tolist(), op.tolist(), sequence.tolist(), strict=True))
        ]  # fmt: skip
        db.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) "
            f"VALUES (?, ?, 59, ?, {tid}, 0)",
            zip(made["start"].tolist(), made["end"].tolist(), plain, strict=True),
        )
    launches = len(made["call_start"])
    first = correlations[thread.process]
    correlations[thread.process] += launches
    correlation = np.arange(first, first + launches)
    lasts = random.integers(*KERNEL_NS, launches)
    end = on_stream(made["call_end"] + 2000, lasts, thread.free) if launches else lasts
    thread.free = int(end[-1]) if launches else thread.free
    known = random.random(launches) >= lost
    db.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES "
        f"(?, ?, 0, {tid}, ?, {ids.launch}, 0, NULL)",
        zip(made["call_start"][known].tolist(), made["call_end"][known].tolist(),
            correlation[known].tolist(), strict=True),
    )  # fmt: skip
    name = ids.kernels[op[made["range_of"]] % len(ids.kernels)].tolist()
    grid = (op[made["range_of"]] % 512 + 1).tolist()
    db.executemany(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "
        f"(?, ?, {thread.process}, 1, 0, {thread.stream}, ?, {pid}, ?, ?, ?, 1, 1, 96, ?, 1, 1, "
        "128, 1, 1, 0, 49152, 0, 250871808, 161656, 65536, NULL, 0, NULL, NULL, NULL, NULL, "
        "0, 0, 0, 1, 0, 0, NULL, '[]')",
        zip((end - lasts).tolist(), end.tolist(), correlation.tolist(), name, name, name, grid,
            strict=True),
    )  # fmt: skip
    where = np.where(known, made["range_of"] + done["ranges"], -1)
    done["ranges"] += count
    done["kernels"] += launches
    done["calls"] += int(known.sum())
    return pl.DataFrame(
        {
            "process": np.full(launches, thread.process, np.int32),
            "correlation": correlation.astype(np.int64),
            "duration": lasts.astype(np.int64),
            "range": where.astype(np.int64),
        }
    ).with_columns(pl.when(pl.col("range") >= 0).then("range"))


def main() -> None:
    """Read the command line, make the file, print its contents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--ranges-per-kernel", type=float, default=3.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--texts", choices=STYLES, default="registered")
    parser.add_argument("--distinct", type=int, default=3000, help="number of distinct op texts")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    done = make(
        given.path,
        given.kernels,
        ranges_per_kernel=given.ranges_per_kernel,
        threads=given.threads,
        processes=given.processes,
        texts=given.distinct,
        style=given.texts,
        seed=given.seed,
    )
    print(f"{given.path}: {', '.join(f'{count:,} {what}' for what, count in done.items())}, "
          f"{given.path.stat().st_size / 1e9:.2f} GB")  # fmt: skip


if __name__ == "__main__":
    main()

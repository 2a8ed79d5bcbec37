"""Partials and their merge: CPU time beside the map's, memory for 1,000 and 100,000 ranks, and size.

    python benchmarks/scale.py [--ranks 1000] [--mapped 24] [--many 100000] [--collectives 500]

One run prints ratios: the merge of 1,000 partials against the reading of 1,000 ranks (of which ``--mapped``
are read, and their mean is taken; the partials of the others are copies under other ranks), the peak of
memory of each merge until its profile is written, and a partial's share of its trace. The ranks of the second merge
are made in memory. Then it asks each of the saved jobs what compares ranks (``stragglers`` …), each answer in a
process of its own. ``--merge FILE:RANKS:COLLECTIVES --save JOB`` and ``--report JOB`` do one of these alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: What compares the ranks of a job, and the diagnosis, which does too.
ANSWERS = (
    "stragglers", "collective_waits", "late_causes", "slowest_ranks", "step_imbalance", "collective_faults",
    "last_collectives", "collective_bandwidth", "collective_ends", "diagnosis",
)  # fmt: skip
#: A made rank: this many steps, each of so many kernels with an op and a call.
STEPS, OPS = 20, 150


def rank_trace(rank: int, ranks: int, steps: int = STEPS, ops: int = OPS) -> dict:
    """A rank's trace as Kineto writes it, times in µs: ops with shapes, kernels, one all-reduce a step."""
    pid, events, link = 1000 + rank, [], 0
    for step in range(steps):
        begin = 10_000 + step * ops * 20
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": pid, "tid": 1,
                       "ts": begin, "dur": ops * 20 - 10, "args": {}})  # fmt: skip
        for number in range(ops):
            link += 1
            at, wide = begin + 5 + number * 18, 64 + number % 40
            events += [
                {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": pid, "tid": 1, "ts": at, "dur": 12,
                 "args": {"Input Dims": [[64, wide], [wide, 64]], "Input type": ["float", "float"], "External id": link}},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": 1, "ts": at + 2,
                 "dur": 4, "args": {"correlation": link}},
                {"ph": "X", "cat": "kernel", "name": f"ampere_sgemm_128x64_nn_{number % 25}", "pid": 0, "tid": 7,
                 "ts": at + 8, "dur": 9 + (rank + number) % 5, "args": {"device": rank % 8, "stream": 7,
                 "correlation": link, "External id": link}},
            ]  # fmt: skip
        told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 4096, "Out msg nelems": 4096,
                "Process Group Name": "0", "Group size": ranks, "Seq": step}  # fmt: skip
        link += 1
        at = begin + 6 + ops * 18
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": pid, "tid": 1, "ts": at, "dur": 6,
             "args": told},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": pid, "tid": 1, "ts": at + 1,
             "dur": 3, "args": {"correlation": link}},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 20,
             "ts": at + 4, "dur": 60 + (rank * 7 + step) % 40, "args": {"device": rank % 8, "stream": 20,
             "correlation": link, **told}},
        ]  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": rank % 8, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108, "computeMajor": 8, "computeMinor": 0}
        ],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "hostname": f"host{rank // 8}",
        "traceEvents": events,
    }  # fmt: skip


def cpu() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def mapped(folder: Path, many: int, ranks: int) -> tuple[float, float, list[str]]:
    """Read ``many`` made ranks; return CPU seconds and share of the trace's bytes, both per rank, and names."""
    from opscope.scale.partial import write_partial

    files = [folder / f"rank{rank}.json" for rank in range(many)]
    for rank, file in enumerate(files):
        file.write_text(json.dumps(rank_trace(rank, ranks)))
    write_partial(files[0], folder / "first")  # imports and caches are no rank's own
    before = cpu()
    names = [write_partial(file, folder / "parts") for file in files]
    spent = (cpu() - before) / many
    share = sum((folder / "parts" / name).stat().st_size for name in names)
    share /= sum(file.stat().st_size for file in files)
    for file in files:
        file.unlink()
    return spent, share, names


def as_rank(
    partial, rank: int, hosts: bool, collectives: int | None = None, size: int | None = None
):
    """The partial as that of another rank; with ``collectives`` as many of them."""
    import polars as pl

    from opscope.scale.packed import Partial

    tables = dict(partial.tables)
    host = f"host{rank // 8}" if hosts else "host0"
    tables["trace.processes"] = tables["trace.processes"].with_columns(
        pl.lit(rank, pl.Int32).alias("rank"), pl.lit(host).alias("host"),
        pl.lit(1000 + rank, pl.Int64).alias("pid"),
    )  # fmt: skip
    tables["trace.clocks"] = tables["trace.clocks"].with_columns(pl.lit(host).alias("machine"))
    tables["trace.devices"] = tables["trace.devices"].with_columns(
        pl.lit(f"GPU-{rank}").alias("uuid")
    )
    late = (rank * 2654435761) % 9_973
    if collectives is not None:
        tables["arrivals"] = tables["arrivals"][[0] + [1] * (collectives - 1)]
    for name in ("exchanges", "calls_made"):
        found = tables[name]
        if collectives is not None:
            each = pl.int_range(collectives, dtype=pl.Int64, eager=True)
            times = [one for one in ("called", "start", "end") if one in found.columns]
            found = found[[0] * collectives].with_columns(
                *((pl.col(one) + each * 1_000_000).alias(one) for one in times),
                each.alias("seq"),
                pl.lit(size, pl.Int64).alias("size"),
            )
        tables[name] = found.with_columns(pl.col("start") - late, pl.col("called") - late)
    about = {
        **partial.about, "content": f"{rank}",
        "source": {**partial.about["source"], "place": f"/made/rank{rank}.json"},
    }  # fmt: skip
    return Partial(f"rank{rank}", about, tables)


def renamed(partial, rank: int):
    """The partial as that of another rank, on another GPU; its collectives stay as they are."""
    import polars as pl

    from opscope.scale.packed import Partial

    tables = dict(partial.tables)
    for name, column, value in (
        ("trace.processes", "rank", pl.Series("rank", [rank], pl.Int32)),
        ("trace.devices", "uuid", pl.Series("uuid", [f"GPU-{rank}"])),
    ):
        frame = tables[name]
        tables[name] = frame.clone().replace_column(frame.get_column_index(column), value)
    source = {**partial.about["source"], "place": f"/made/rank{rank}.json"}
    return Partial(f"rank{rank}", {**partial.about, "content": str(rank), "source": source}, tables)


def thousand(folder: Path, names: list[str], ranks: int) -> None:
    """Make the partials of the other ranks: those that were mapped, under other ranks."""
    from opscope.scale import packed

    parts = folder / "parts"
    held = [packed.read(parts / name, name) for name in names]
    for rank in range(len(names), ranks):
        one = as_rank(held[rank % len(held)], rank, hosts=True)
        about = {
            key: value
            for key, value in one.about.items()
            if key not in ("format", "layout", "analysis", "opscope", "content")
        }
        packed.write(parts / f"rank{rank}-made.partial.parquet", about, one.tables)


def apart(*words: str) -> dict[str, float]:
    """Run this file in a process of its own; return what it printed last."""
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak() -> float:
    """The most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def reported(job: str) -> None:
    """Ask the saved job what compares its ranks, each time in a process of its own; print CPU and peaks."""
    opened = apart("--answer", job)
    print(f"opening {Path(job).name}: {opened['cpu']:.1f} CPU s, peak {opened['peak']:.2f} GB")
    for name in ANSWERS:
        one = apart("--answer", f"{job}:{name}")
        print(
            f"  {name}: {one['cpu'] - opened['cpu']:.1f} CPU s, peak {one['peak']:.2f} GB, {one['rows']:,} rows",
            flush=True,
        )


def answer_one(what: str) -> None:
    """Open a job and ask it for a frame, ``JOB:NAME``; print CPU and peak."""
    import opscope

    job, _, name = what.rpartition(":") if ":" in what else (what, "", "")
    profile = opscope.load(job)
    rows = len(getattr(profile, name)()) if name else 0
    print(json.dumps({"cpu": cpu(), "peak": peak(), "rows": rows}))


def merge_one(what: str, place: str) -> None:
    """Merge a folder, or ``FILE:RANKS:COLLECTIVES`` made in memory of one partial, and save it; print CPU and
    peak."""
    import polars as pl

    from opscope.scale import packed
    from opscope.scale.merge import merge, merged_of

    if ":" not in what:
        before = cpu()
        profile = merge(what)
        spent = cpu() - before
    else:
        file, ranks, collectives = what.split(":")
        one = packed.read(Path(file), file)
        making = 0.0

        def made() -> Iterator[packed.Partial]:
            nonlocal making
            some = [as_rank(one, n, False, int(collectives), int(ranks)) for n in range(256)]
            making = cpu() - before
            for rank in range(int(ranks)):
                begin = cpu()
                partial = renamed(some[rank % 256], rank)
                making += cpu() - begin
                yield partial

        before = cpu()
        profile = merged_of(made())
        spent = cpu() - before - making
    before = cpu()
    profile.save(place)
    saved = cpu() - before
    files = sorted(Path(place).rglob("extra.exchanged*/*.parquet"))
    files += sorted(Path(place).rglob("extra.exchanged.parquet"))
    calls = pl.scan_parquet(files).select(pl.len()).collect().item()
    print(json.dumps({"cpu": spent, "saved": saved, "peak": peak(), "calls": calls}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--mapped", type=int, default=24)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--collectives", type=int, default=500)
    for name in ("merge", "save", "answer", "report"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.merge:
        merge_one(asked.merge, asked.save)
        return
    if asked.answer:
        answer_one(asked.answer)
        return
    if asked.report:
        reported(asked.report)
        return
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="opscope-scale-") as name:
        folder = Path(name)
        each, share, names = mapped(folder, asked.mapped, asked.ranks)
        thousand(folder, names, asked.ranks)
        job = os.fspath(folder / "few.opscope")
        few = apart("--merge", os.fspath(folder / "parts"), "--save", job)
        whole = each * asked.ranks
        print(
            f"map: {each:.3f} CPU s a rank ({STEPS * (OPS + 1):,} kernels); partial: {share:.2%} of its trace"
        )
        print(
            f"merge of {asked.ranks:,} ranks: {few['cpu']:.2f} CPU s = {few['cpu'] / whole:.2%} of the map's"
            f" {whole:.0f}; {few['saved']:.2f} to write the profile; peak {few['peak']:.2f} GB"
        )  # fmt: skip
        reported(job)
        if asked.many:
            made = f"{folder / 'parts' / names[0]}:{asked.many}:{asked.collectives}"
            job = os.fspath(folder / "many.opscope")
            many = apart("--merge", made, "--save", job)
            print(
                f"merge of {asked.many:,} made ranks × {asked.collectives} collectives ({many['calls']:,} rows):"
                f" {many['cpu']:.0f} CPU s, {many['saved']:.0f} to write the profile; peak {many['peak']:.2f} GB"
            )  # fmt: skip
            reported(job)
    print(f"({time.perf_counter() - begin:.0f} s in all)")


if __name__ == "__main__":
    main()

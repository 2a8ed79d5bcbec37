"""Measure engines on the same ranks: processes, Dask, Ray; disk and S3 on loopback; HTA beside them.

Usage: python benchmarks/engines.py TRACE.json[.gz] [--ranks 12] [--rounds 2] [--engines pool,dask,ray,s3]
       [--hta PYTHON]

TRACE is one rank's Kineto trace that takes about a second to read; it is copied with other rank numbers. Workers
are started and have imported what they need before the clock runs; their start is printed by itself. Each figure is
the best of the rounds, which take turns. ``s3`` needs SeaweedFS's ``weed`` on the PATH. ``--hta`` loads eight of the
ranks with Holistic Trace Analysis in a Python that has it, beside opscope with as many processes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from opscope.scale import clusters
from opscope.scale.engines import read_ranks
from opscope.scale.pool import ProcessPool

CORES = len(os.sched_getaffinity(0))
_OURS = """
import opscope
if __name__ == "__main__":
    import glob, sys
    job = opscope.load(sorted(glob.glob(sys.argv[1] + "/*.json.gz")), executor=int(sys.argv[2]))
    job.summary(), job.communication(), job.kernel_totals()
"""
_HTA = """
if __name__ == "__main__":
    import glob, sys
    from hta.trace_analysis import TraceAnalysis
    files = dict(enumerate(sorted(glob.glob(sys.argv[1] + "/*.json.gz"))))
    job = TraceAnalysis(trace_files=files, trace_dir=sys.argv[1])
    job.get_temporal_breakdown(visualize=False)
    job.get_comm_comp_overlap(visualize=False)
    job.get_gpu_kernel_breakdown(visualize=False)
"""


def ranks(source: Path, folder: Path, many: int) -> list[Path]:
    """Write the trace ``many`` times, each as another rank of one job."""
    data = source.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    files = []
    for rank in range(many):
        trace["distributedInfo"] = {
            **trace.get("distributedInfo", {}),
            "rank": rank,
            "world_size": many,
        }
        path = folder / f"rank{rank:03}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 5))
        files.append(path)
    return files


def ready(seconds: float) -> int:
    """In a worker: import what reading needs, with the threads that a batch would have, and wait so that every
    worker gets one of these."""
    from opscope.scale.worker import bounds

    os.environ.update(bounds(1))
    import opscope.scale.partial  # noqa: F401

    time.sleep(seconds)
    return os.getpid()


def started(executor: Executor, workers: int) -> None:
    """Wait until each worker has imported what it needs."""
    seen: set[int] = set()
    while len(seen) < workers:
        seen |= {one.result() for one in [executor.submit(ready, 0.5) for _ in range(workers)]}


@contextmanager
def pool(workers: int) -> Iterator[Executor]:
    with ProcessPool(workers, threads=1) as made:
        yield made


@contextmanager
def dask(workers: int) -> Iterator[Executor]:
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1",
                     silence_logs="ERROR") as cluster,
        clusters.dask(cluster.scheduler_address) as (executor, _),
    ):  # fmt: skip
        yield executor


@contextmanager
def ray(workers: int) -> Iterator[Executor]:
    with clusters.ray("local") as (executor, _):
        yield executor


@contextmanager
def bucket(folder: Path, files: list[Path]) -> Iterator[tuple[list[str], str]]:
    """Put the files into SeaweedFS; give their URLs and that of a folder. The environment leads there."""
    from opscope.remote.stores import store
    from tests.remote.conftest import _weed

    with _weed(folder) as (base, env):
        os.environ.update(env)
        known = store(base)
        known.mkdir("bucket")
        urls = [f"{base}/{one.name}" for one in files]
        for url, file in zip(urls, files, strict=True):
            known.put_file(str(file), url)
        yield urls, f"{base}/parts"


def measured(executor: Executor, sources: list, parts: str, workers: int) -> float:
    """Seconds until all sources have their partials."""
    start = time.perf_counter()
    made = read_ranks(sources, parts, executor, workers=workers)
    seconds = time.perf_counter() - start
    assert made.read == len(sources), made.failed
    return seconds


def child(python: str, code: str, *words: str) -> tuple[float, float, float]:
    """Run the program; return its wall seconds, the CPU seconds of its processes, and the largest one's MiB."""
    measure = (
        "import json, resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=2)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(json.dumps([time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text(code)
        done = subprocess.run([sys.executable, "-c", measure, python, program, *words], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    wall, cpu, peak = json.loads(done.stdout)
    return wall, cpu, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--ranks", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=CORES)
    parser.add_argument("--engines", default="pool,dask,ray,s3")
    parser.add_argument("--hta", metavar="PYTHON")
    asked = parser.parse_args()
    many, engines = asked.workers, asked.engines.split(",")
    with tempfile.TemporaryDirectory() as where, ExitStack() as held:
        folder = Path(where)
        (folder / "run").mkdir()
        files = ranks(asked.trace, folder / "run", asked.ranks)
        print(f"{len(files)} ranks of {files[0].stat().st_size / 1e6:.2f} MB, {CORES} cores")
        makers = {"one process": (pool, 1), f"{many} processes": (pool, many)}
        if "dask" in engines:
            makers[f"Dask, {many} workers"] = (dask, many)
        if "ray" in engines:
            makers["Ray"] = (ray, many)
        running = {}
        for name, (make, workers) in makers.items():
            start = time.perf_counter()
            running[name] = (held.enter_context(make(workers)), workers)
            started(*running[name])
            print(f"{name}: started in {time.perf_counter() - start:.1f} s")
        places = {name: (files, str(folder / name), *running[name]) for name in running}
        if "s3" in engines:
            (folder / "weed").mkdir()
            urls, parts = held.enter_context(bucket(folder / "weed", files))
            # a pool of its own: the environment that leads to the store is given to new processes
            workers = held.enter_context(pool(many))
            started(workers, many)
            places["S3 on loopback"] = (urls, parts, workers, many)
        best: dict[str, float] = {}
        for turn in range(asked.rounds):
            for name, (sources, parts, executor, workers) in places.items():
                seconds = measured(executor, sources, f"{parts}-{turn}", workers)
                best[name] = min(seconds, best.get(name, seconds))
        one, disk = best["one process"], best[f"{many} processes"]
        for name, seconds in best.items():
            print(f"{name}: {seconds:.2f} s, {one / seconds:.2f} × one process, {seconds / disk:.2f} of"
                  f" {many} processes")  # fmt: skip
        held.close()  # what is idle takes memory
        if asked.hta:
            (folder / "eight").mkdir()
            ranks(asked.trace, folder / "eight", 8)
            for name, python, code, *words in (
                ("opscope, eight ranks", sys.executable, _OURS, str(many)),
                ("HTA, eight ranks", asked.hta, _HTA),
            ):
                wall, cpu, peak = child(python, code, str(folder / "eight"), *words)
                print(f"{name}: {wall:.1f} s, {cpu:.1f} CPU s, largest process {peak:.0f} MiB")


if __name__ == "__main__":
    main()

"""Compare all merged tables of one job between serial, a process pool, Dask and Ray.

Usage: python scripts/engines_agree.py [--ranks 200] [--engines pool,dask,ray]

The job has real traces (OPSCOPE_SHARED) and made ranks. Ends with 1 if a digest differs from the serial one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from opscope.scale import clusters
from opscope.scale.one_call import of_ranks
from opscope.scale.pool import ProcessPool
from tests.scale import jobs


@contextmanager
def serial():
    yield None, 1


@contextmanager
def pool():
    with ProcessPool(2) as made:
        yield made, 2


@contextmanager
def dask():
    from distributed import LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", host="127.0.0.1"
        ) as made,
        clusters.dask(made.scheduler_address) as opened,
    ):
        yield opened


@contextmanager
def ray():
    with clusters.ray("local") as opened:
        yield opened


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=200)
    parser.add_argument("--engines", default="pool,dask,ray")
    asked = parser.parse_args()
    real = Path(os.environ.get("OPSCOPE_SHARED", "../shared")) / "data"
    found = [real / "kineto" / name for name in jobs.REAL] if real.is_dir() else []
    digests = {}
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        (folder / "run").mkdir()
        made = jobs.ranks(folder / "run", asked.ranks - len(found))
        for name in ("serial", *asked.engines.split(",")):
            with globals()[name]() as (executor, workers):
                start = time.perf_counter()
                job = of_ranks([*made, *found], executor, folder / name, workers=workers)
                seconds = time.perf_counter() - start
            digests[name] = jobs.digest(job)
            which = job.manifest
            print(
                f"{name}: {which['read']} of {which['expected']} {which['of']}, {len(job.holds)} tables,"
                f" {digests[name][:16]}, {seconds:.1f} s",
                flush=True,
            )
    return int(len(set(digests.values())) > 1)


if __name__ == "__main__":
    sys.exit(main())

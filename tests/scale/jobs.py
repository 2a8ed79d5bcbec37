"""Jobs of unlike ranks, and the digest of all that is merged of one."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

from tests.made_ranks import rank_files

#: Small traces of other programs and machines, below the folder of real ones.
REAL = (
    "alexnet_cuda_sync_a100.json.gz",
    "alexnet_cupti_counters_a100.json.gz",
    "triton_example.json.gz",
    "sampled_rank0.json.gz",
    "vllm_decode_cudagraph.json.gz",
)


def ranks(folder: Path, made: int, real: Path | None = None) -> list[Path]:
    """Write ``made`` ranks of one job, every third packed; beside them real traces, if there are any."""
    files = []
    for number, path in enumerate(rank_files(folder, made, slow=made // 2)):
        if number % 3 == 0:
            packed = path.with_name(path.name + ".gz")
            packed.write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
            path = packed
        files.append(path)
    if real is not None:
        files += [real / "kineto" / name for name in REAL]
    return files


def digest(profile) -> str:
    """A digest of every table that was merged: names, types and all values, in their order."""
    whole = hashlib.sha256()
    for name in profile.holds:
        frame = profile._given_frames.get(name)
        frame = profile.trace[name] if frame is None else frame
        whole.update(repr((name, frame.schema, frame.rows())).encode())
    return whole.hexdigest()

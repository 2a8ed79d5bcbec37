"""Real Kineto files as today's Kineto would write them: ``graph id`` and ``graph node id`` 0 on all of a GPU's work.

``addGraphNodeTypedMetadata`` (pytorch/kineto, ``libkineto/src/CuptiActivity.h``) writes both of kernels,
copies and sets since early 2026, 0 where no graph launched them. Nothing that is said of a file may change.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opscope
from opscope.profile import Profile
from tests import traces

FILES = (
    "alexnet_cuda_sync_a100.json.gz",
    "alexnet_cupti_counters_a100.json.gz",
    "ddp_memory_v100.json.gz",
    "ddp_rank3of8_a100_stacks.json.gz",
    "nccl_meta.json.gz",
    "qwen1.5_0.5b_h100.json.gz",
    "resnet50_nw0_step_span1.pt.trace.json.gz",
    "resnet50_nw4_step_span1.pt.trace.json.gz",
    "sampled_rank0.json.gz",
    "sampled_rank1.json.gz",
    "timesformer_h100.json.gz",
    "triton_example.json.gz",
    "vision_transformer_rank0.json.gz",
    "vllm_decode_cudagraph.json.gz",
    "vllm_decode_cudagraph_capture.json.gz",
)
#: The categories of a GPU's work, of every version, up to where its arguments begin.
_WORK = re.compile(
    rb'("cat": ?"(?:kernel|gpu_memcpy|gpu_memset|Kernel|Memcpy|Memset)"'
    rb'(?:[^{}"]|"(?:[^"\\]|\\.)*")*?"args": ?\{)\s*("?)'
)


def with_todays_fields(file: Path, into: Path) -> int:
    """Write ``file`` with both fields, zero, on every kernel, copy and set; how many those are."""

    def add(event: re.Match[bytes]) -> bytes:
        more = b", " if event[2] else b""
        return event[1] + b' "graph id": 0, "graph node id": 0' + more + event[2]

    text, many = _WORK.subn(add, gzip.decompress(file.read_bytes()))
    into.write_bytes(text)
    return many


def said(profile: Profile) -> dict[str, pl.DataFrame]:
    """What is said of a profile, by kernel, copy and op."""
    return {
        "summary": profile.summary(),
        "unattributed": profile.unattributed(),
        "kernels": profile.kernels(),
        "memops": profile.memops(),
        "ops": profile.ops(),
    }


def test_every_shared_file_is_named(shared: Path) -> None:
    assert {path.name for path in (shared / "kineto").glob("*.json.gz")} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_todays_fields_change_nothing(name: str, shared: Path, tmp_path: Path) -> None:
    file = shared / "kineto" / name
    before = traces.load(file)
    changed = with_todays_fields(file, tmp_path / "today.json")
    assert changed == len(before.trace["kernels"]) + len(before.trace["memops"])
    theirs, ours = said(opscope.load(tmp_path / "today.json")), said(before)
    for frame, found in ours.items():
        strings = pl.col(pl.Categorical).cast(pl.String)
        assert_frame_equal(theirs[frame].with_columns(strings), found.with_columns(strings))

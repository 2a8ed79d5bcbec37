"""A trace read without the columns of which no total is made gives the same totals, ops and ids."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from opscope.core.question import layout
from opscope.core.question import registry as questions
from opscope.core.tables.trace import range_ids
from opscope.reports import console
from tests import traces

FILES = (
    "dlprof/nsys_profile.sqlite",
    "nsys/cudf_2020.sqlite",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nsys/multiprocessing_nogpu_2020.sqlite",
    "nsys_more/fuser_h200_pytest_nvtx.sqlite",
    "nsys_more/jacc_a100_nocuda_2026.1.sqlite",
)
LAUNCH = ("context", "grid", "block", "registers", "shared_memory")
FRAMES = (
    "summary", "kinds", "op_totals", "kernel_totals", "unattributed", "gaps", "range_totals",
    "utilization", "memops", "communication", "ops", "kernels", "efficiency",
)  # fmt: skip


def shown(tables: list[layout.Table]) -> str:
    text = io.StringIO()
    layout.write(tables, text, 200)
    return text.getvalue()


@pytest.mark.parametrize("name", FILES)
def test_what_is_left_out_changes_nothing_but_itself(shared: Path, name: str):
    whole, lean = traces.load(shared / name), traces.load(shared / name, lean=True)
    assert shown(console.first_screen(lean)) == shown(console.first_screen(whole))
    every = [one.name for one in questions.reports().values() if one.lean]
    assert shown(console.tables(lean, every, 20)) == shown(console.tables(whole, every, 20))
    for frame in FRAMES:
        one, other = getattr(lean, frame)(), getattr(whole, frame)()
        assert_frame_equal(one.drop(LAUNCH, strict=False), other.drop(LAUNCH, strict=False))
    by_kernel = [profile.efficiency("kernel") for profile in (lean, whole)]
    assert_frame_equal(*by_kernel)


def test_how_kernels_were_launched_is_left_out_and_null(shared: Path):
    name = "nsys/fsdp_h100x2_2026.sqlite"
    kernels = traces.load(shared / name, lean=True).kernels()
    assert all(kernels[column].null_count() == len(kernels) for column in LAUNCH)
    assert traces.load(shared / name).kernels()["grid"].null_count() == 0


def test_ids_of_a_lean_trace_are_no_other_s_of_the_same_job(shared: Path):
    paths = [shared / "nsys/cudf_2020.sqlite", shared / "dlprof/nsys_profile.sqlite"]
    joined = traces.load(paths, lean=True)
    ids = range_ids(joined.trace["ranges"])
    assert ids.null_count() == 0
    assert ids.n_unique() == len(ids)
    whole = traces.load(paths)
    assert_frame_equal(joined.ops(), whole.ops())
    assert joined.kernels().filter(pl.col("op_id").is_not_null()).height > 0

"""Exports read only some columns of a saved profile; the file is that of the whole trace."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.exports.formats import export
from opscope.exports.timeline import Timeline

TRACES = (
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
)


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("to", ["perfetto", "chrome"])
def test_a_saved_profile_is_written_as_its_trace_is(shared: Path, tmp_path: Path, name, to):
    opscope.load(shared / name).save(tmp_path / "run.opscope")
    export(opscope.load(shared / name), to, tmp_path / "of_trace")
    export(opscope.load(tmp_path / "run.opscope"), to, tmp_path / "of_profile")
    assert (tmp_path / "of_profile").read_bytes() == (tmp_path / "of_trace").read_bytes()


def test_a_column_that_was_not_read_is_an_error_not_null(shared: Path, tmp_path: Path):
    opscope.load(shared / TRACES[1]).save(tmp_path / "run.opscope")
    profile = opscope.load(tmp_path / "run.opscope")
    timeline = Timeline(profile)
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        timeline.trace["kernels"]["grid"]
    assert profile.trace["kernels"]["grid"].null_count() < len(profile.trace["kernels"])

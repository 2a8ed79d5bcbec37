"""MindSpore's own samples of the processors, beside the times of its ops."""

from __future__ import annotations

import json

import polars as pl
import pytest

import opscope
from opscope.core.schema import MACHINE_CPU, PROCESS_CPU
from opscope.readers.mindspore import cpu_samples

ABOUT = {
    "cpu_processor_num": 8,
    "time_stamp": [1000, 1100, 1300],
    "device_info": {"user_utilization": [0, 20, 40], "sys_utilization": [0, 5, 10]},
    "process_info": {"user_utilization": [100, 300], "sys_utilization": [20, 0]},
}


def test_user_and_system_time_are_added_and_hold_from_the_sample_before(tmp_path):
    path = tmp_path / "minddata_cpu_utilization_0.json"
    path.write_text(json.dumps(ABOUT))
    frame, note = cpu_samples.read(path)
    assert note is None
    of = {
        name: frame.filter(pl.col("name").cast(pl.String) == name)
        for name in (MACHINE_CPU, PROCESS_CPU)
    }
    assert of[MACHINE_CPU].select("time", "value").rows() == [
        (1_000_000_000, None), (1_100_000_000, 25.0), (1_300_000_000, 50.0)]  # fmt: skip
    assert of[PROCESS_CPU]["value"].to_list() == [None, 120.0, 300.0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"time_stamp": [1e99]}',
        json.dumps({**ABOUT, "time_stamp": [1, 2]}),
        "[" * 9999,
    ],
)
def test_a_damaged_file_gives_no_samples_and_a_note(tmp_path, text):
    path = tmp_path / "minddata_cpu_utilization_0.json"
    path.write_text(text)
    frame, note = cpu_samples.read(path)
    assert frame.is_empty()
    assert "cannot be read" in note[1]


def test_a_real_folder_has_its_samples(shared):
    profile = opscope.load(shared / "mindspore" / "mindinsight_run2_ascend910")
    row = profile.cpu_utilization().row(0, named=True)
    # the file: user and sys are 10, 20, 30 each, 10 time units apart
    assert (row["samples"], row["machine"], row["cores"]) == (2, 0.5, 0.5)
    assert row["processors"] == 100
    assert "another clock" in " ".join(profile.notes()["what"])

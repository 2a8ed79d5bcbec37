"""Damaged samples of Python stacks cost themselves, and not the recording."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.recording_format import STACK_RECORD, STACK_SAMPLES
from opscope.readers.errors import BadInput
from opscope.readers.recording.stacks import described_sampling, host_samples

LINES = [
    ["code", 0, "/home/me/main.py", "<module>"],
    ["code", 1, "/home/me/odd\tname\n.py", "train"],
    ["node", 0, -1, 0, 3],
    ["node", 1, 0, 1, 20],
    ["call", 1, "time.sleep"],
]


def read(folder, records: bytes, lines=LINES):
    (folder / STACK_SAMPLES).write_bytes(records)
    notes = []
    return host_samples([folder], None, lines, notes), notes


def record(start=10, end=20, cpu=5, thread=7, node=1, samples=2, kind=0) -> bytes:
    return STACK_RECORD.pack(start, end, cpu, thread, node, samples, kind)


def test_a_sample_has_its_stack_innermost_first(tmp_path):
    table, notes = read(tmp_path, record() + record(kind=1, node=-1, cpu=-1))
    sample, collection = table.to_dicts()
    assert sample["stack"] == "/home/me/odd name .py\t20\ttrain\n/home/me/main.py\t3\t<module>"
    assert (sample["call"], sample["cpu"], sample["samples"]) == ("time.sleep", 5, 2)
    assert (collection["kind"], collection["stack"], collection["cpu"]) == (
        "garbage collection",
        None,
        None,
    )
    assert not notes


@pytest.mark.parametrize(
    "records",
    [
        record(start=30, end=20),
        record(kind=9),
        record(start=-5),
        record(end=1 << 62),
    ],
)
def test_a_damaged_sample_is_left_out_and_counted(records, tmp_path):
    table, notes = read(tmp_path, record() + records)
    assert len(table) == 1
    assert notes == [("warning", "samples of Python stacks are damaged, left out", 1)]


def test_a_killed_process_leaves_an_incomplete_record(tmp_path):
    table, notes = read(tmp_path, record() + record()[:17])
    assert (len(table), notes) == (1, [])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [["code", 0], ["node", 1, 0, 0, 1]],
        [["node", 1, 1, 5, 2]],
        ["x", None, {}, ["call", 1, "f"], ["code", "a", "b", "c"]],
    ],
)
def test_a_stack_that_is_not_described_is_null(lines, tmp_path):
    table, notes = read(tmp_path, record(), lines)
    assert table["stack"].to_list() == [None]
    assert notes == [("warning", "Python stacks are not described in the recording", 1)]


def test_a_stack_that_is_its_own_parent_ends(tmp_path):
    table, _ = read(tmp_path, record(), [LINES[0], ["node", 1, 1, 0, 3]])
    assert table["stack"].cast(pl.String)[0].count("\n") < 1000


def test_a_folder_in_place_of_the_samples_is_refused(tmp_path):
    (tmp_path / STACK_SAMPLES).mkdir()
    with pytest.raises(BadInput, match="plain files"):
        host_samples([tmp_path], None, LINES, [])


def test_the_rate_that_was_used_is_told():
    said = {"rate": 96.4, "longest": 25_000_000, "dropped": 3, "how": "natively"}
    assert described_sampling({"stacks": said}) == (
        "Python stacks were sampled 96.4 times a second, at the least 40 (natively), so that it takes 1 % of "
        "the time at most; 3 samples were lost"
    )

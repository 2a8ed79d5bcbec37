"""Changes of memory as they were recorded, read back: sizes, totals, clocks, what is left out."""

from __future__ import annotations

import pytest

from opscope.core import recording_format
from opscope.core.recording_format import (
    ALLOCATED,
    MEMORY_RECORD,
    RELEASED,
    RESERVED,
    UNKNOWN_BYTES,
)
from opscope.readers.errors import BadInput
from opscope.readers.recording.memory import allocations

CPU = [{"memory": -1, "total": None, "reserved": None}]


def released(time: int, address: int, thread: int = 7) -> tuple[int, ...]:
    return (time, address, UNKNOWN_BYTES, thread, -1, RELEASED)


def allocated(time: int, address: int, size: int, thread: int = 7) -> tuple[int, ...]:
    return (time, address, size, thread, -1, ALLOCATED)


def read(folder, rows, devices=CPU, clocks=(), tail=b""):
    data = b"".join(MEMORY_RECORD.pack(*row) for row in rows) + tail
    (folder / recording_format.MEMORY).write_bytes(data)
    notes: list[tuple[str, str, int]] = []
    return allocations(folder, devices, list(clocks), notes), notes


def test_a_release_has_the_size_of_the_block_that_was_there(tmp_path):
    rows = [
        allocated(10, 100, 8),
        released(40, 100, thread=8),  # by another thread, whose records come in another order
        allocated(20, 200, 16),
        allocated(50, 100, 32),
        released(60, 100),
    ]
    frame, notes = read(tmp_path, rows)
    assert frame.select("time", "thread", "bytes", "total").rows() == [
        (10, 7, 8, 8),
        (20, 7, 16, 24),
        (40, 8, -8, 16),
        (50, 7, 32, 48),
        (60, 7, -32, 16),
    ]
    assert set(frame["device"]) == {-1}
    assert frame["reserved"].is_null().all()
    assert notes == []


def test_releases_of_what_was_there_before_are_left_out_and_told(tmp_path):
    frame, notes = read(tmp_path, [released(5, 300), allocated(10, 100, 8), released(11, 100)])
    assert frame["bytes"].to_list() == [8, -8]
    assert notes == [
        ("info", "releases of memory that was allocated before the recording, left out", 1)
    ]


def test_a_block_whose_release_was_lost_is_told(tmp_path):
    frame, notes = read(tmp_path, [allocated(10, 100, 8), allocated(20, 100, 8)])
    assert frame["total"].to_list() == [8, 16]
    assert [(severity, count) for severity, _, count in notes] == [("warning", 1)]


def test_the_record_that_a_kill_cut_is_left_out(tmp_path):
    frame, _ = read(tmp_path, [allocated(10, 100, 8)], tail=b"\0" * 17)
    assert len(frame) == 1


def test_no_file_is_no_row(tmp_path):
    notes: list[tuple[str, str, int]] = []
    assert allocations(tmp_path, CPU, [], notes).is_empty()


def test_another_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="memory"):
        read(tmp_path, [], tail=b"x" * 64)


def test_a_gpus_totals_are_those_of_its_end_and_its_times_are_put_on_our_clock(tmp_path):
    unix = 1_700_000_000_000_000_000
    # between the two readings the Unix clock gained 1,000 ns on ours
    clocks = [(0, unix, 10), (1_000_000, unix + 1_001_000, 10)]
    rows = [
        (unix + 100_500, 1, 512, 0, 0, RESERVED),
        (unix + 100_500, 1, 100, 0, 0, ALLOCATED),
        (unix + 500_500, 9, 40, 0, 0, RELEASED),
        allocated(7, 100, 8),
    ]
    devices = [*CPU, {"memory": 0, "total": 1060, "reserved": 4096}]
    frame, notes = read(tmp_path, rows, devices, clocks)
    assert notes == []
    assert frame.select("device", "thread", "time", "bytes", "total", "reserved").rows() == [
        (-1, 7, 7, 8, 8, None),
        (0, None, 100_400, 100, 1100, 4096),
        (0, None, 500_000, -40, 1060, 4096),
    ]


def test_the_totals_of_a_device_are_its_own_however_their_changes_lie_between(tmp_path):
    unix = 1_700_000_000_000_000_000
    clocks = [(0, unix, 10), (1_000_000, unix + 1_000_000, 10)]
    rows = [
        (unix + 10, 1, 100, 0, 0, ALLOCATED),
        allocated(20, 100, 8),
        (unix + 30, 1, 1000, 0, 1, ALLOCATED),
        (unix + 40, 1, 100, 0, 0, RELEASED),
        allocated(50, 200, 16),
    ]
    devices = [*CPU, *({"memory": n, "total": 5 * n, "reserved": 9} for n in (0, 1))]
    frame, _ = read(tmp_path, rows, devices, clocks)
    assert frame.select("device", "total").rows() == [(0, 100), (-1, 8), (1, 5), (0, 0), (-1, 24)]


def test_a_history_that_paused_has_the_totals_of_each_of_its_pieces(tmp_path):
    unix = 1_700_000_000_000_000_000
    clocks = [(0, unix, 10), (1_000_000, unix + 1_000_000, 10)]
    rows = [
        (unix + 10, 1, 100, 0, 0, ALLOCATED),
        (unix + 20, 2, 50, 0, 0, ALLOCATED),
        # here the program had its own, and allocated 1,000 bytes
        (unix + 90, 3, 7, 0, 0, ALLOCATED),
    ]
    devices = [
        {"memory": 0, "total": 150, "reserved": 512, "changes": 2},
        {"memory": 0, "total": 1157, "reserved": 2048, "changes": 1},
    ]
    frame, _ = read(tmp_path, rows, devices, clocks)
    assert frame["total"].to_list() == [100, 150, 1157]
    assert frame["reserved"].to_list() == [512, 512, 2048]

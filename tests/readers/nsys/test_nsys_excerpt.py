"""The part of a large export of Nsight Systems that gives a first answer."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

import opscope
from opscope.cli import report_tables
from opscope.readers.nsys import excerpt
from tests.command import opscope as command

#: Kernels, ns from launch to launch, and how much later (ns) the work runs.
_COUNT, _EACH, _LATE = 8_000, 10_000, 5_000_000
_THREAD = (1 << 24) * 77 + 5


def _made(path: Path, order: str = "") -> Path:
    """Write an export: an op each, in which one kernel is launched, which runs ``_LATE`` later."""
    launches = [
        (number * _EACH + 2_000, number * _EACH + 4_000, 0, _THREAD, number + 1, 1, 0)
        for number in range(_COUNT)
    ]
    kernels = [
        (
            start + _LATE,
            start + _LATE + 9_000,
            0,
            1,
            7,
            correlation,
            _THREAD & ~0xFFFFFF,
            2,
            2,
            1,
            1,
            1,
            64,
            1,
            1,
        )
        for start, _, _, _, correlation, _, _ in launches
    ]
    ranges = [(start - 1_500, end + 1_000, 59, _THREAD, 3) for start, end, *_ in launches]
    tables = {
        "StringIds (id, value)": [(1, "cudaLaunchKernel_v7000"), (2, "gemm"), (3, "aten::mm")],
        "CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue)": launches,
        "CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName, shortName, gridX, gridY, gridZ, blockX, blockY, blockZ)": kernels,
        "NVTX_EVENTS (start, end, eventType, globalTid, textId)": ranges,
    }  # fmt: skip
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table, rows in tables.items():
            name, columns = table.split(" ", 1)
            database.execute(f"CREATE TABLE {name} {columns}")
            marks = ", ".join("?" * len(rows[0]))
            shown = sorted(rows, key=lambda row: row[0] % 7919) if order else rows
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", shown)
        database.execute("ANALYZE")  # tables of SQLite's own
        database.commit()
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(tmp_path_factory.mktemp("large") / "large.sqlite")


def test_a_part_has_launches_with_the_work_that_runs_later(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "part.sqlite"
    share = excerpt.cut(large, target, 200)
    profile = opscope.load(target)
    kernels = profile.kernels()
    assert share is not None
    assert len(kernels) == pytest.approx(200, abs=4)
    assert share == len(kernels) / _COUNT
    # the ranges around the first and the last launch lie partly outside the stretch
    assert kernels["op"].to_list()[1:-1] == ["aten::mm"] * (len(kernels) - 2)
    assert abs(len(profile.trace["calls"]) - len(kernels)) <= 2
    whole = opscope.load(large).kernels()
    assert set(kernels["start"]) <= set(whole["start"])
    middle = int(whole["start"].median())
    assert abs(int(kernels["start"].median()) - middle) < 10 * _EACH


@pytest.mark.parametrize("kernels", [_COUNT, _COUNT * 9])
def test_few_kernels_give_no_part(large: Path, tmp_path: Path, kernels: int) -> None:
    assert excerpt.cut(large, tmp_path / "part.sqlite", kernels) is None


def test_rows_in_another_order_give_no_part(tmp_path: Path) -> None:
    mixed = _made(tmp_path / "mixed.sqlite", "mixed")
    assert excerpt.cut(mixed, tmp_path / "part.sqlite", 50) is None


def test_a_report_of_a_large_export_answers_before_it_is_read(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = command("report", large)
    monkeypatch.setattr(report_tables, "LARGE", 1)
    monkeypatch.setattr(excerpt.cut, "__defaults__", (200,))
    early = command("report", large)
    assert (early.returncode, early.stdout) == (0, plain.stdout)
    assert "provisional, from 2.5 % of the file (no whole step): " in early.stderr

"""Records that a file holds twice are counted once and told; those that only look alike are told."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.tables.doubled import without_doubles
from opscope.core.tables.trace import Trace
from tests.core.tables.test_impossible import calls_at, kernel, notes, row_of, traced
from tests.readers.ncu import made as ncu
from tests.readers.proton import test_proton as proton
from tests.readers.rocm import made as rocm
from tests.script import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
seeds = pytest.importorskip("fuzz_seeds")


def range_at(start: int, text: str = "aten::add", **more: Any) -> dict[str, Any]:
    return {"id": start, "process": 0, "thread": 1, "start": start, "end": start + 5, "text": text,
            "kind": "pushpop", **more}  # fmt: skip


@given(again=st.lists(st.integers(0, 19), max_size=30))
def test_each_kernel_with_an_id_counts_once(again: list[int]) -> None:
    kernels = row_of(20)
    trace = without_doubles(traced([*kernels, *(kernels[n] for n in again)]))
    assert trace["kernels"].sort("start")["start"].to_list() == [row["start"] for row in kernels]
    assert [count for what, count in notes(trace) if "counted once" in what] == [len(again)] * bool(
        again
    )


@pytest.mark.parametrize("column", ["name", "graph_node", "stream", "end", "correlation"])
def test_kernels_that_differ_in_a_column_are_two(column: str) -> None:
    kernels = [dict(row, graph_node=1) for row in row_of(20)]
    others = [
        dict(row, **{column: "other" if column == "name" else row[column] + 1}) for row in kernels
    ]
    trace = without_doubles(traced([*kernels, *others]))
    assert (len(trace["kernels"]), notes(trace)) == (40, [])


def test_kernels_of_a_stream_that_come_again_under_other_ids_count_once() -> None:
    """Kept is the one whose launch is there, wherever it stands; a few may be equal by rounding."""
    kernels = row_of(20)
    calls = calls_at(*(row["correlation"] for row in kernels))
    again = [dict(row, correlation=row["correlation"] + 1_000) for row in kernels]
    trace = without_doubles(traced([*again, *kernels], calls=calls))
    assert trace["kernels"]["correlation"].to_list() == [row["correlation"] for row in kernels]
    assert [count for what, count in notes(trace) if "under other ids" in what] == [20]
    assert len(without_doubles(traced([*kernels, *again[:9]], calls=calls))["kernels"]) == 29


def test_every_range_twice_is_each_once_and_the_number_of_the_row_does_not_matter() -> None:
    ranges = [range_at(10 * n) for n in range(20)]
    again = [dict(row, id=row["id"] + 1) for row in ranges]
    trace = without_doubles(Trace.of({"ranges": pl.DataFrame([*ranges, *again])}, {}))
    assert len(trace["ranges"]) == 20
    assert notes(trace) == [
        ("ranges that the trace holds again, equal in all columns: counted once", 20)
    ]


def test_a_few_ranges_that_look_alike_are_told_and_counted() -> None:
    ranges = [range_at(10 * n) for n in range(100)]
    trace = without_doubles(Trace.of({"ranges": pl.DataFrame([*ranges, *ranges[:12]])}, {}))
    assert len(trace["ranges"]) == 112
    [(what, count)] = notes(trace)
    assert ("look like another" in what, count) == (True, 12)
    trace = without_doubles(Trace.of({"ranges": pl.DataFrame([*ranges, *ranges[:2]])}, {}))
    assert (len(trace["ranges"]), notes(trace)) == (102, [])


def test_kernels_without_an_id_are_told_unless_all_are_there_again() -> None:
    kernels = [kernel(n * 10, n * 10 + 5, correlation=None) for n in range(100)]
    trace = without_doubles(traced([*kernels, *kernels[:20]], calls=calls_at(1, 2)))
    assert (len(trace["kernels"]), notes(trace)[0][1]) == (120, 20)
    assert len(without_doubles(traced([*kernels, *kernels]))["kernels"]) == 100
    assert len(without_doubles(traced([*kernels, *kernels, *kernels]))["kernels"]) == 100


def short(kernels: int, ranges: int, times: int) -> Trace:
    """A trace of few rows, without ids, written so many times."""
    rows = [kernel(n * 10, n * 10 + 5, correlation=None) for n in range(kernels)]
    marks = [range_at(10 * n, f"step {n}") for n in range(ranges)]
    return traced(times * rows, ranges=pl.DataFrame(times * marks))


def test_a_short_trace_that_was_written_twice_is_counted_once() -> None:
    for kernels, ranges, times in [(2, 2, 2), (1, 1, 2), (3, 1, 3), (2, 4, 3)]:
        trace = without_doubles(short(kernels, ranges, times))
        assert (len(trace["kernels"]), len(trace["ranges"])) == (kernels, ranges)
        assert len(notes(trace)) == 2
    # one table alone may be so by chance, unless it has three rows
    alone = [kernel(n * 10, n * 10 + 5, correlation=None) for n in range(3)]
    assert len(without_doubles(traced(2 * alone))["kernels"]) == 3
    assert len(without_doubles(traced(2 * alone[:2]))["kernels"]) == 4
    assert len(without_doubles(traced([*alone, *alone[:2]]))["kernels"]) == 5


def doubled_kineto(folder: Path) -> tuple[Path, Path]:
    path = seeds.kineto(folder / "once.json")
    document = json.loads(path.read_text())
    again = folder / "twice.json"
    events = document["traceEvents"]
    again.write_text(json.dumps({**document, "traceEvents": [*events, *events]}))
    return path, again


def doubled_database(folder: Path, make: str) -> tuple[Path, Path]:
    path = getattr(seeds, make)(folder / "once.sqlite")
    again = folder / "twice.sqlite"
    again.write_bytes(path.read_bytes())
    with contextlib.closing(sqlite3.connect(again)) as database, database:
        tables = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            if table.startswith(("CUPTI_ACTIVITY_KIND", "NVTX_EVENTS")):
                columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")
                           if not (row[1] in ("_id_", "id") and row[5])]  # fmt: skip
                names = ", ".join(f'"{column}"' for column in columns)
                with contextlib.suppress(sqlite3.IntegrityError):  # it cannot hold a row twice
                    database.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {table}")
    return path, again


def doubled_csv(folder: Path) -> tuple[Path, Path]:
    path = rocm.v3_folder(folder / "v3") / "4242_kernel_trace.csv"
    once, again = folder / "kernel_trace.csv", folder / "again" / "kernel_trace.csv"
    lines = path.read_text().splitlines(keepends=True)
    again.parent.mkdir()
    once.write_text("".join(lines))
    again.write_text("".join([*lines, *lines[1:]]))
    return once, again


def doubled_onnxruntime(folder: Path) -> tuple[Path, Path]:
    path = seeds.onnxruntime(folder / "once.json")
    again = folder / "twice.json"
    again.write_text(json.dumps(2 * json.loads(path.read_text())))
    return path, again


def doubled_ncu(folder: Path) -> tuple[Path, Path]:
    path = next(made for made in ncu.seeds(folder) if made.name == "wide.csv")
    again = folder / "twice.csv"
    text = path.read_text()
    again.write_text(text + text[text.index('"","') :].partition("\n")[2])
    return path, again


def doubled_proton(folder: Path) -> tuple[Path, Path]:
    """Each node of the tree beside itself, on each level."""

    def twice(node: dict[str, Any]) -> dict[str, Any]:
        return {
            **node,
            "children": [made for child in node["children"] for made in 2 * [twice(child)]],
        }

    root, devices = proton.document()
    paths = folder / "once.hatchet", folder / "twice.hatchet"
    paths[0].write_text(json.dumps([root, devices]))
    paths[1].write_text(json.dumps([twice(root), devices]))
    return paths


def doubled_trees(folder: Path) -> tuple[Path, Path]:
    once, again = doubled_proton(folder)
    root, devices = json.loads(once.read_text())
    again.write_bytes(msgspec.msgpack.encode([root, root, devices]))
    return once, again


def doubled_proton_chrome(folder: Path) -> tuple[Path, Path]:
    once, again = proton.seeds(folder)[2], folder / "twice.chrome_trace"
    document = json.loads(once.read_text())
    again.write_text(json.dumps({**document, "traceEvents": 2 * document["traceEvents"]}))
    return once, again


def test_scopes_of_one_name_that_differ_inside_are_counted_each(tmp_path: Path) -> None:
    root, devices = proton.document()
    first, other = (proton.frame("scope", proton.kernel("k", 2, time)) for time in (10, 12))
    path = tmp_path / "a.hatchet"
    path.write_text(json.dumps([{**root, "children": [first, other]}, devices]))
    profile = opscope.load(path)
    assert profile.kernel_totals().select("calls", "total").rows() == [(4, 22)]
    assert not profile.trace["notes"]["what"].str.contains("counted once").any()


@pytest.mark.parametrize(
    "make",
    [
        doubled_proton,
        doubled_trees,
        doubled_proton_chrome,
        doubled_kineto,
        doubled_onnxruntime,
        doubled_ncu,
        lambda folder: doubled_database(folder, "nsys_sqlite"),
        lambda folder: doubled_database(folder, "nvprof"),
        doubled_csv,
    ],
    ids=[
        "Proton",
        "Proton's trees",
        "Proton's events",
        "Kineto",
        "ONNX Runtime",
        "ncu",
        "nsys",
        "nvprof",
        "rocprofv3",
    ],
)
def test_a_file_that_holds_every_event_twice_has_the_totals_of_the_file(
    make, tmp_path: Path
) -> None:
    once, twice = map(opscope.load, make(tmp_path))
    totals = ["wall_time", "kernel_time", "gpu_time", "kernels", "steps"]
    first, second = once.summary(), twice.summary()
    if make is doubled_onnxruntime:  # its runs overlap then, which is told, so they are no steps
        totals.remove("steps")
    same = [name for name in first.columns if name in totals]
    assert first.select(same).rows() == second.select(same).rows()
    assert len(once.kernels()) == len(twice.kernels()) > 0
    assert twice.trace["notes"]["what"].str.contains("counted once").any()
    assert not once.trace["notes"]["what"].str.contains("counted once").any()

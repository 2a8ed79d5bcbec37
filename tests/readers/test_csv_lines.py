"""Lines of CSV with fewer or more fields than the header: their values are never taken for other columns'."""

from __future__ import annotations

from pathlib import Path

import pytest

from opscope import readers
from opscope.readers import BadInput
from opscope.readers.rows import MOST_COLUMNS, csv_rows

HEAD = '"Kind","Agent_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"'


def line(number: int, name: str = '"add(int, int)"') -> str:
    return f'"KERNEL_DISPATCH",1,{name},{number},{1_000 * number},{1_000 * number + 100}'


def read(tmp_path: Path, *lines: str):
    path = tmp_path / "kernel_trace.csv"
    path.write_text("\n".join([HEAD, *lines, ""]))
    trace = readers.open(path)
    told = trace["notes"].filter(severity="warning")
    uneven = told.filter(told["what"].str.contains("fewer or more fields"))["how_many"].to_list()
    return trace["kernels"], uneven


@pytest.mark.parametrize(
    "odd",
    [
        line(4, "add<int, int>"),  # a comma that is not quoted moves the start into the end
        '"KERNEL_DISPATCH",1,"add",4,4000',
        '"KERNEL_DISPATCH",1',
        line(4) + ",7",
    ],
)
def test_an_uneven_line_is_left_out_and_counted(tmp_path, odd):
    kernels, uneven = read(tmp_path, line(1), line(2), odd, line(3))
    assert (kernels["end"] - kernels["start"]).to_list() == [100, 100, 100]
    assert uneven == [1]


def test_empty_fields_at_the_end_and_blank_lines_are_no_fault(tmp_path):
    kernels, uneven = read(tmp_path, line(1) + ",", "", line(2) + ",,", line(3))
    assert len(kernels) == 3
    assert uneven == []


def test_a_tool_that_writes_every_line_so_is_read_as_it_writes():
    frame, uneven = csv_rows(b"a,b,c\n1,2\n3,4\n5,6\n")
    assert (frame["a"].to_list(), frame["c"].to_list(), uneven) == (["1", "3", "5"], [None] * 3, 0)


def test_a_quoted_field_of_two_lines_is_one_field():
    frame, uneven = csv_rows(b'a,b\n"x\ny",1\nz,\n')
    assert (frame["a"].to_list(), uneven) == (["x\ny", "z"], 0)


def test_the_same_holds_for_mindspores_tables(tmp_path):
    head = "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"
    rows = [f"1,Default/MatMul-op{n},MatMul,AI_CORE,{100 * n}.0,5.0,0.0" for n in range(1, 5)]
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join([head, *rows, "1,Default/Add-op9,Add,x,AI_CORE,900.0,1.0,0.0", ""]))
    trace = readers.open(path)
    assert (trace["kernels"]["end"] - trace["kernels"]["start"]).to_list() == [5_000] * 4
    assert trace["notes"]["what"].str.contains("kernel_details.csv with fewer or more").any()


def test_a_header_of_very_many_columns_is_refused(tmp_path):
    path = tmp_path / "kernel_trace.csv"
    path.write_text("\n".join([HEAD + ",x" * MOST_COLUMNS, line(1)]))
    with pytest.raises(BadInput, match=f"more than {MOST_COLUMNS:,} columns"):
        readers.open(path)

"""PyProf's dictionaries (``net.dict``): what a line means, what is bounded, and what is refused in one line."""

from __future__ import annotations

import ast
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.errors import BadInput
from opscope.readers import format_of
from opscope.readers.pyprof import reader

FORMAT = "PyProf's dictionaries"
X = {"name": "", "type": "tensor", "shape": (64, 400), "dtype": "float16"}
W = {"name": "", "type": "tensor", "shape": (120, 400), "dtype": "float16"}
LINEAR = str({"mod": "torch.nn.functional", "op": "linear", "args": [X, W]})


def line(number: int = 0, **changed: object) -> dict[str, object]:
    """The dictionary of a forward kernel, with the keys of PyProf's ``parse`` in their order."""
    return {
        "kShortName": "volta_fp16_s884gemm", "kDuration": 1000 + number, "layer": ["Conv2_x"],
        "trace": ["net.py:31", "net.py:12"], "reprMarkers": [], "marker": [LINEAR],
        "seqMarker": [f"addmm, seq = {number + 1}"], "seqId": [number + 1], "subSeqId": 0, "altSeqId": [],
        "dir": "fprop", "mod": ["torch.nn.functional"], "op": ["linear"], "tid": 3590305536, "device": 0,
        "stream": 7, "grid": (4, 2, 1), "block": (128, 1, 1), "kLongName": "volta_fp16_s884gemm(int)", **changed,
    }  # fmt: skip


def back(number: int, sub: int = 0) -> dict[str, object]:
    """A kernel of the backward of ``line(number)``."""
    seqs = ["mm, seq = 0", f"AddmmBackward, seq = {number + 1}"]
    found = {
        "layer": [],
        "trace": [],
        "marker": [],
        "seqMarker": seqs,
        "subSeqId": sub,
        "dir": "bprop",
    }
    return line(number, **found, tid=77, mod=["na"], op=["Addmm"])


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    return path


def seeds(folder: Path) -> list[Path]:
    """Write a forward and a backward pass."""
    rows = [line(n, kLongName=f"volta_{n}") for n in range(6)] + [back(n) for n in range(6)]
    return [written(folder / "net.dict", *rows)]


def table(path: Path) -> pl.DataFrame:
    return opscope.load(path).pyprof()


def test_a_line_is_a_kernel_with_pyprofs_columns(tmp_path):
    path = written(tmp_path / "net.dict", line(0), line(1), back(1), back(0))
    assert format_of(path) == "pyprof"
    rows = table(path).to_dicts()
    assert [row["dir"] for row in rows] == ["fprop", "fprop", "bprop", "bprop"]
    assert [row["seq"] for row in rows] == [1, 2, 2, 1]
    assert [row["sil"] for row in rows] == [1000, 1001, 1001, 1000]
    # a backward kernel has module, layer and lines of its forward kernel, found by the number
    for row in rows:
        assert (row["mod"], row["op"], row["layer"]) == ("torch.nn.functional", "linear", "Conv2_x")
        assert row["trace"] == "net.py:31,net.py:12"
        assert (row["grid"], row["block"], row["device"], row["stream"]) == (
            "4,2,1",
            "128,1,1",
            0,
            7,
        )
    assert rows[0]["flops"] == 2 * 64 * 400 * 120
    assert (rows[0]["tid"], rows[2]["tid"]) == (3590305536, 77)


def test_kernels_of_one_call_share_its_flops_and_calls_in_a_row_do_not(tmp_path):
    reduce = {"kShortName": "splitKreduce", "kLongName": "splitKreduce(int)"}
    one = [line(0), line(0, **reduce, subSeqId=1)]
    path = written(tmp_path / "net.dict", *one, *[line(5, subSeqId=n) for n in range(3)])
    flops = table(path)["flops"].to_list()
    assert sum(flops[:2]) == 2 * 64 * 400 * 120
    assert flops[2:] == [2 * 64 * 400 * 120] * 3


def test_nothing_is_said_of_times(tmp_path):
    path = written(tmp_path / "net.dict", line(0))
    profile = opscope.load(path)
    assert "laid end to end" in profile.trace.origin["times"]
    assert any("does not say when kernels ran" in note for note in profile.notes()["what"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["{'kShortName': __import__('os').system('touch owned')}"], "line 1 is no dictionary"),
        ([line(0), "{'kShortName': [x for x in (1,)]}"], "line 2 is no dictionary"),
        (["{'kShortName': " + "[" * 100_000], "brackets are too deep, after 30 characters"),
        (["{'kShortName': [" + "1," * 50_000 + "]}"], "there are too many values"),
        (["{'kShortName': '" + "a" * reader.LINE_BYTES + "'}"], "line 1 has more than 1,048,576 bytes"),
        (["{'kShortName': 'k', 'kDuration': 'long'}"], "no line has a kernel's name and duration"),
        (["{'kShortName': 'k', 'kDuration': -5}"], "no line has a kernel's name and duration"),
    ],
)  # fmt: skip
def test_hostile_lines_are_one_clear_error(tmp_path, monkeypatch, lines, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as refused:
        opscope.load(written(tmp_path / "net.dict", *lines))
    assert told in refused.value.what
    assert len(refused.value.what) < 200
    assert not (tmp_path / "owned").exists()


def test_a_wrong_value_costs_its_row_or_itself(tmp_path):
    wrong = [
        line(0, kDuration=None), line(1, kDuration=1 << 70), line(2, grid="4", block=(1, 2), tid="x", device=1 << 80),
        line(3, marker=[5, LINEAR], seqMarker=None, layer="no list", seqId={}),
    ]  # fmt: skip
    path = written(tmp_path / "net.dict", *wrong)
    rows = table(path)
    assert rows["sil"].to_list() == [1002, 1003]
    assert rows.row(0, named=True)["grid"] is None
    assert rows["device"].to_list() == [None, 0]
    notes = {note["what"]: note["how_many"] for note in opscope.load(path).notes().to_dicts()}
    assert notes["lines without a kernel's name or duration are left out"] == 2


def test_a_file_whose_writer_was_killed_is_read_up_to_there(tmp_path):
    path = tmp_path / "net.dict"
    path.write_text(f"{line(0)}\n{line(1)}\n{str(line(2))[:90]}", encoding="utf-8")
    assert len(table(path)) == 2
    assert any("cut off" in note for note in opscope.load(path).notes()["what"])


def test_python_2_wrote_its_keys_in_any_order(tmp_path):
    text = "{u'trace': [], 'seqMarker': [], 'kDuration': 7L, 'kShortName': 'k', 'kLongName': u'k<int>(int)'}\n"
    path = tmp_path / "net.dict"
    path.write_text(text)
    assert table(path).select("kernel", "sil", "tid").rows() == [("k", 7, 0)]


def test_a_layer_that_no_parse_wrote_and_a_users_range_stay(tmp_path):
    bare = line(
        0, marker=[], seqMarker=[], seqId=[], op=["my own range"], mod=["na"], layer=["a", "b"]
    )
    row = table(written(tmp_path / "net.dict", bare)).row(0, named=True)
    assert (row["mod"], row["op"], row["layer"]) == ("na", "my_own_range", "a:b")


def test_what_is_written_is_read_back(tmp_path):
    from opscope.core.pyprof.question import pyprof_dictionaries

    (path,) = seeds(tmp_path)
    profile = opscope.load(path)
    text = "".join(pyprof_dictionaries(profile))
    lines = [ast.literal_eval(one) for one in text.splitlines()]
    assert [list(one) for one in lines] == [list(line())] * 12
    again = tmp_path / "again.dict"
    again.write_text(text, encoding="utf-8")
    assert opscope.load(again).pyprof().equals(profile.pyprof())

"""Reports as files: raw numbers, null for what is not known, all or nothing."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest

from opscope.reports import files

SUMMARY = pl.DataFrame(
    {"wall_time": [1_000_000], "flops_share": [None]},
    schema={"wall_time": pl.Int64, "flops_share": pl.Float64},
)
DETAIL = pl.DataFrame(
    {
        "op": ["aten::mm", 'a"b,c'],
        "flops": [12, None],
        "share": [0.5, math.nan],
        "shape": [[2, 3], None],
    }
)
FRAMES = {"summary": SUMMARY, "detail": DETAIL}


def test_json_has_a_key_a_report_and_null_for_the_unknown():
    text = files.as_json("report", FRAMES)
    back = json.loads(text)
    assert list(back) == ["schema", "summary", "detail"]
    assert back["summary"] == {"wall_time": 1_000_000, "flops_share": None}
    assert back["detail"][1] == {"op": 'a"b,c', "flops": None, "share": None, "shape": None}
    assert "NaN" not in text


def test_every_format_is_written_under_its_report_s_name(tmp_path):
    made = files.write(FRAMES, ["parquet", "csv", "json"], tmp_path / "new", "run")
    assert sorted(path.name for path in made) == sorted(
        f"run_{name}.{kind}" for name in FRAMES for kind in files.FORMATS
    )
    assert pl.read_parquet(tmp_path / "new" / "run_detail.parquet").equals(DETAIL)
    csv = pl.read_csv(tmp_path / "new" / "run_detail.csv")
    assert csv["op"].to_list() == DETAIL["op"].to_list()
    assert csv["flops"].to_list() == [12, None]
    assert json.loads(csv["shape"][0]) == [2, 3]
    assert json.loads((tmp_path / "new" / "run_summary.json").read_text())["wall_time"] == 1_000_000


def test_a_failure_leaves_no_file(tmp_path):
    class Broken:
        def write_parquet(self, path):
            path.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write({"detail": Broken()}, ["parquet"], tmp_path, "run")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(files.UnknownFormat, match="csv, json, parquet"):
        files.write(FRAMES, ["xlsx"], tmp_path / "new", "run")
    assert not (tmp_path / "new").exists()

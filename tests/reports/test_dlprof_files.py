"""DLProf's reports as files: names, formats, domains, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from opscope.profile import Profile
from opscope.reports import dlprof
from tests import traces

NAMES = {
    "summary", "detailed", "iteration", "kernel", "tensor_core", "op_type", "group_op",
    "expert_systems",
}  # fmt: skip


@pytest.fixture
def profile(trace_of):
    pushed = {"process": 0, "thread": 1, "kind": "pushpop"}
    where = {"process": 0, "thread": 1}
    return Profile(
        trace_of(
            processes=[{"process": 0, "versions": '{"torch": "2.9.1", "cuda_driver": "12080"}'}],
            devices=[
                {"process": 0, "device": number, "name": "NVIDIA H100", "uuid": f"u{number}"}
                for number in (0, 1)
            ],
            ranges=[
                {**pushed, "domain": "opscope.torch", "start": 0, "end": 50,
                 "text": 'aten::mm(f16[2,2], f16[2,2]) {note="a,\\"b\\""}'},
                {**pushed, "domain": "my: loader", "start": 60, "end": 90, "text": "batch"},
            ],
            calls=[{**where, "start": 10, "end": 12, "name": "cudaLaunchKernel", "correlation": 1}],
            kernels=[
                {"process": 0, "device": 0, "start": 20, "end": 40, "name": "void k<int>(int)",
                 "correlation": 1, "grid": "4,2,1", "block": "64,1,1"}
            ],
            memops=[],
        )
    )  # fmt: skip


def test_there_is_a_file_for_each_report_format_and_domain(profile, tmp_path):
    made = dlprof.write(profile, ["all"], tmp_path, base_name="run", formats=dlprof.FORMATS)
    assert {path.name for path in made} == {
        f"run_{name}{domain}.{kind}"
        for name in NAMES
        for domain in ("", "_my__loader")
        for kind in ("csv", "json", "parquet")
    }
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in made}


def test_domains_choose_the_files(profile, tmp_path):
    made = dlprof.write(profile, ["kernel"], tmp_path, domains=[])
    assert [path.name for path in made] == ["dlprof_kernel.csv"]
    with pytest.raises(dlprof.ReportError, match="my: loader"):
        dlprof.write(profile, ["kernel"], tmp_path / "other", domains=["my loader"])


def test_an_existing_file_is_replaced_only_by_force_and_nothing_is_half_written(profile, tmp_path):
    (tmp_path / "dlprof_op_type.csv").write_text("mine")
    with pytest.raises(dlprof.ReportError, match="already exists"):
        dlprof.write(profile, ["all"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dlprof_op_type.csv"]
    dlprof.write(profile, ["op_type"], tmp_path, force=True, domains=[])
    assert (tmp_path / "dlprof_op_type.csv").read_text().startswith("Op Type Summary Report\n")


def test_an_error_while_writing_leaves_no_file(profile, tmp_path, monkeypatch):
    from opscope.reports.dlprof import files

    def fail(sections, kind, path):
        if "iteration" in path.name:
            raise OSError(28, "No space left on device")
        written(sections, kind, path)

    written = files.write_section
    monkeypatch.setattr(files, "write_section", fail)
    with pytest.raises(OSError, match="No space"):
        dlprof.write(profile, ["all"], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["kernels", "", "group"])
def test_an_unknown_report_is_refused_with_those_that_there_are(profile, wrong):
    with pytest.raises(dlprof.ReportError, match="group_node"):
        dlprof.resolve([wrong])


def test_an_unknown_format_is_refused(profile, tmp_path):
    with pytest.raises(dlprof.ReportError, match="parquet"):
        dlprof.write(profile, ["kernel"], tmp_path, formats=["xls"])


def test_dlprofs_own_names_of_files_are_accepted_as_reports():
    assert dlprof.resolve(["group_op", "tensor_core", "detailed"]) == [
        "detail", "tensor", "group_node",
    ]  # fmt: skip
    assert dlprof.resolve(["all"]) == list(dlprof.REPORTS)
    assert dlprof.resolve(["node_op"]) == ["detail"]  # of the guide's own example


def test_csv_json_and_parquet_hold_the_same_rows(profile, tmp_path):
    dlprof.write(profile, ["all"], tmp_path, formats=dlprof.FORMATS, domains=[])
    with (tmp_path / "dlprof_detailed.csv").open(newline="") as file:
        _, header, *rows = csv.reader(file)
    frame = pl.read_parquet(tmp_path / "dlprof_detailed.parquet")
    loaded = json.loads((tmp_path / "dlprof_detailed.json").read_text())["All Iterations"]
    assert header == frame.columns == list(loaded[0])
    assert loaded == frame.to_dicts()
    assert [row[0] for row in rows] == frame["Op ID"].to_list()
    (mm,) = (row for row in loaded if row["Op ID"] == "MM_1")
    assert mm["Parameters"] == 'note="a,\\"b\\""'
    (line,) = (row for row in rows if row[0] == "MM_1")
    assert line[header.index("Parameters")] == mm["Parameters"]


def test_json_of_many_rows_is_one_list(profile, tmp_path, monkeypatch):
    from opscope.reports.dlprof import files

    whole = dlprof.as_json(profile, ["all"])
    monkeypatch.setattr(files, "_ROWS", 1)
    assert json.loads(dlprof.as_json(profile, ["all"])) == json.loads(whole)
    assert len(json.loads(whole)["detail"]["All Iterations"]) == 1


def test_csv_of_many_rows_is_one_table(profile, monkeypatch):
    from opscope.reports.dlprof import csv_text

    sections = dlprof.tables(profile, "op_type")
    whole = b"".join(csv_text.csv_pieces(sections))
    monkeypatch.setattr(csv_text, "_ROWS", 1)
    assert b"".join(csv_text.csv_pieces(sections)) == whole
    assert whole.count(b"\n") == 2 + len(sections[0].frame)


def test_the_summary_in_json_has_an_object_for_each_section(profile, tmp_path):
    dlprof.write(profile, ["summary"], tmp_path, formats=["json", "parquet"], domains=[])
    loaded = json.loads((tmp_path / "dlprof_summary.json").read_text())
    assert loaded["System Config"]["Framework"] == "PyTorch 2.9.1"
    assert loaded["System Config"]["CUDA Version"] == "12.8"
    assert loaded["System Config"]["CPU Model"] is None
    assert loaded["All Kernels"][0] == {
        "": "All kernels", "GPU Time (ns)": 20, "CPU Time (ns)": 2, "# Kernels": 1,
    }  # fmt: skip
    frame = pl.read_parquet(tmp_path / "dlprof_summary.parquet")
    assert frame.filter(pl.col("name") == "GPU Count")["value"].to_list() == ["2"]


def test_utilization_is_averaged_over_the_visible_devices_and_each_has_a_row(profile):
    sections = {one.title: one.frame for one in dlprof.tables(profile, "summary")}
    wall = sections["Summary Report"]["Wall Clock Time (ns)"].item()
    whole = sections["Summary Report"]["GPU Utilization %"].item()
    assert whole == pytest.approx(20 / wall * 100 / 2)
    each = sections["Devices"]
    assert each["Device ID"].to_list() == [0, 1]
    assert each["GPU Utilization %"].to_list() == pytest.approx([whole * 2, 0])
    assert sections["All Ops"]["GPU Time (ns)"][0] == each["Kernel Time (ns)"].sum() == 20


def test_the_profiles_name_stands_first_if_it_was_given(profile, tmp_path):
    dlprof.write(profile, ["summary"], tmp_path, domains=[], profile_name="my first run")
    with (tmp_path / "dlprof_summary.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1] == ["Profile Name", "my first run"]
    dlprof.write(profile, ["summary"], tmp_path, domains=[], force=True)
    assert "Profile Name" not in (tmp_path / "dlprof_summary.csv").read_text()


def test_the_detailed_report_may_leave_out_data_types_and_shapes(profile, tmp_path):
    dlprof.write(profile, ["detail", "iteration"], tmp_path, domains=[], shapes=False)
    with (tmp_path / "dlprof_detailed.csv").open(newline="") as file:
        header = list(csv.reader(file))[1]
    assert not {"Data Type", "Input Shapes"} & set(header)
    assert {"Op ID", "Stack Trace", "Output Shapes"} <= set(header)
    with (tmp_path / "dlprof_iteration.csv").open(newline="") as file:
        assert {"Data Types", "Input Shapes"} <= set(list(csv.reader(file))[1])


def test_a_damaged_range_is_refused_with_what_there_is(profile, tmp_path):
    with pytest.raises(dlprof.ReportError, match="iteration"):
        dlprof.write(profile, ["summary"], tmp_path, iter_start=5, iter_stop=9)
    assert list(tmp_path.iterdir()) == []


def test_what_is_unknown_is_empty(profile, trace_of, tmp_path):
    alone = Profile(
        trace_of(
            processes=[{"process": 0}],
            ranges=[
                {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch",
                 "start": 0, "end": 50, "text": "aten::relu(f32[4])"}
            ],
        )
    )  # fmt: skip
    dlprof.write(alone, ["all"], tmp_path)
    with (tmp_path / "dlprof_summary.csv").open(newline="") as file:
        rows = {row[0]: row[1] for row in csv.reader(file) if len(row) > 1}
    assert rows["GPU Utilization %"] == ""
    assert rows["All ops"] == ""
    assert rows["CPU Duration %"] == "100.0"


def test_the_terminal_shows_the_reports_with_units_and_says_why_figures_are_missing(trace_of):
    alone = Profile(
        trace_of(
            processes=[{"process": 0}],
            ranges=[
                {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch",
                 "start": 0, "end": 5_000, "text": "aten::relu(f32[4])"}
            ],
        )
    )  # fmt: skip
    shown = dlprof.show(alone, ["summary", "detail"])
    assert shown[0].title == "System Config"
    assert shown[-1].rows[0]["Op ID"] == "RELU_1"
    assert any("GPU times are empty" in note for note in shown[-1].footnotes)


def test_a_key_op_that_nothing_is_named_is_told(shared: Path, tmp_path: Path) -> None:
    profile = traces.load(shared / "dlprof/nsys_profile.sqlite")
    with pytest.raises(dlprof.ReportError, match="no op, user range or layer is named linaer"):
        dlprof.write(profile, ["summary"], tmp_path, key="linaer")
    assert list(tmp_path.iterdir()) == []


def test_an_op_id_is_a_key_in_our_reports_too(shared: Path) -> None:
    profile = traces.load(shared / "dlprof/nsys_profile.sqlite")
    by_id = profile.iterations(key="LINEAR_2")
    assert len(by_id) == 1
    assert by_id["ops"].item() == 99

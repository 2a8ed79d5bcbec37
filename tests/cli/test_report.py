"""`report`, `ops`, `kernels`, `doctor`: what they print and write, and how they refuse."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3

import polars as pl
import pytest
from typer.testing import CliRunner

from opscope.cli import start as application
from opscope.cli.app import app
from opscope.core.question.registry import reports
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests.readers.mindspore import made

TOTAL = 2 * (3_000 + 3_001 + 3_002) + 1_000


class Result:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def opscope(monkeypatch, capsys):
    """Runs the command line in this process and returns what came of it."""

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", *map(str, args)])
        status = application.run()
        out, err = capsys.readouterr()
        return Result(status, out, err)

    return call


def test_the_summary_s_first_lines_give_attributed_and_unattributed_time(opscope, saved):
    first = opscope("report", saved).out
    assert first.startswith("Diagnosis\n")
    facts = "2 steps; device busy 10.0 % of the wall time; 94.7 % of this time has an op; FLOPs known for"
    assert facts in first
    assert "\nmissing: 1 launch of a kernel is missing in the file\n" in first
    assert "\nwarning: a clock jumped (2)\n" in first
    done = opscope("report", saved, "--reports", "summary")
    assert (done.status, done.err) == (0, "")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0] == "Summary"
    assert lines[1] == "missing 1 launch of a kernel is missing in the file"
    assert lines[2].startswith("wall time 190 µs 2 steps, 1 process, 1 device")
    assert "device time 19.0 µs kernels, copies and sets" in lines
    assert "kernel time 19.0 µs 7 kernels, 94.7 % attributed of what the file has" in lines
    assert "attributed 18.0 µs 94.7 % of what the file has" in lines
    assert "unattributed 1.00 µs 5.3 % of what the file has" in lines
    assert "no launch record 1.00 µs 5.3 %, 1 kernel" in lines
    assert "warning: a clock jumped (2)" in lines
    assert "fine" not in done.out


def test_the_unknown_is_a_dash_and_what_is_known_to_be_none_is_0(opscope, saved):
    lines = opscope("report", saved, "--by", "shape").out.splitlines()
    custom = next(line for line in lines if "mine::op" in line)
    mm = next(line for line in lines if "aten::mm" in line)
    assert " – " in custom
    assert "131 kFLOP" in mm  # two steps
    assert "None" not in "".join(lines)
    assert "nan" not in "".join(lines)


def test_a_gpu_without_kernels_says_so_and_never_shows_cpu_time_in_their_place(
    opscope, trace, tmp_path
):
    tables = {name: trace[name] for name in ("processes", "ranges")}
    Profile(Trace.of(tables, {"gpu": True})).save(tmp_path / "x.opscope")
    lines = [
        " ".join(line.split())
        for line in opscope("report", tmp_path / "x.opscope").out.splitlines()
    ]
    assert any("kernels were not captured" in line for line in lines)
    assert not any("has an op" in line for line in lines)
    shown = opscope("report", tmp_path / "x.opscope", "--reports", "summary").out
    assert "kernel time – kernels were not captured" in " ".join(shown.split())
    report = json.loads(opscope("report", tmp_path / "x.opscope", "--json", "--full").out)
    assert report["summary"]["kernel_time"] is None
    assert {row["device_time"] for row in report["detail"]} == {None}


def test_layers_that_differ_in_a_number_are_one_row(opscope, saved):
    out = opscope("report", saved, "--by", "shape,kernel").out
    assert out.count("aten::relu") == 2  # as an op, and as the op of a kernel
    assert "Net.layers.* (2)" in out
    assert "train.py:42" in out
    assert "/home/me" not in out


def test_json_has_a_key_a_report_summary_first_and_null_for_the_unknown(opscope, saved):
    done = opscope("report", saved, "--json", "--full")
    report = json.loads(done.out)
    assert report.pop("schema") == "opscope.report/1"
    others = [name for name, one in reports().items() if one.written and name != "summary"]
    assert list(report) == ["summary", *others]
    summary = report["summary"]
    assert summary["kernel_time"] == TOTAL
    assert summary["attributed_time"] + summary["unattributed_time"] == TOTAL
    assert report["unattributed"] == [
        {
            "reason": "no launch record",
            "kernels": 1,
            "copies": 0,
            "kernel_time": 1_000,
            "time": 1_000,
            "share": 1_000 / TOTAL,
        }
    ]
    (custom,) = {row["flops"] for row in report["detail"] if row["op"] == "mine::op"}
    assert custom is None
    assert "mine::op" in {row["op"] for row in report["missing"]}
    assert all(row["why"] for row in report["missing"])


def test_every_column_that_is_written_is_documented(opscope, saved):
    written = json.loads(opscope("report", saved, "--json", "--full").out)
    assert written.pop("schema") == "opscope.report/1"
    rows = {
        name: rows if reports()[name].single else rows[0] for name, rows in written.items() if rows
    }
    assert {"summary", "detail", "by_op", "kernel", "missing", "notes"} <= set(rows)
    for name, row in rows.items():
        assert list(row) == [column.name for column in reports()[name].holds.columns], name


def test_files_in_every_format_agree(opscope, saved, tmp_path):
    done = opscope(
        "report",
        saved,
        "--formats",
        "csv,json,parquet",
        "--output_path",
        "out",
        "--reports",
        "detail,summary",
    )
    assert (done.status, done.out) == (0, "")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        f"run_{r}.{f}" for r in ("summary", "detail") for f in ("csv", "json", "parquet")
    }
    rows = json.loads((tmp_path / "out" / "run_detail.json").read_text())
    frame = pl.read_parquet(tmp_path / "out" / "run_detail.parquet")
    table = list(csv.DictReader(io.StringIO((tmp_path / "out" / "run_detail.csv").read_text())))
    assert frame["device_time"].to_list() == [row["device_time"] for row in rows]
    assert [row["flops"] for row in table] == [
        "" if r["flops"] is None else str(r["flops"]) for r in rows
    ]


def test_ops_and_kernels_sorted_chosen_and_cut(opscope, saved):
    done = opscope("ops", saved, "--sort", "flops", "--top", "2", "-c", "op,flops,layer", "--csv")
    assert done.out.splitlines() == [
        "op,flops,layer",
        "aten::mm,65536,Net.layers.0",
        "aten::mm,65536,Net.layers.1",
    ]
    rows = json.loads(opscope("kernels", saved, "--json").out)
    assert [row["name"] for row in rows] == [
        "k2<float>(int)",
        "k1<float>(int)",
        "k0<float>(int)",
        "stray",
    ]
    each = json.loads(
        opscope("kernels", saved, "--each", "--json", "-c", "name,reason,duration").out
    )
    assert len(each) == 7
    assert {row["reason"] for row in each if row["name"] == "stray"} == {"no launch record"}
    assert sum(row["duration"] for row in each) == TOTAL
    assert len(json.loads(opscope("ops", saved, "--each", "--json").out)) == 6


def test_ops_are_searched_in_any_case_and_as_they_are_typed(opscope, saved):
    def found(text: str) -> set[str]:
        rows = json.loads(opscope("ops", saved, "--json", "--search", text).out)
        return {row["op"] for row in rows}

    assert found("MINE::") == {"mine::op"}
    assert found("layers.1") == {"aten::mm", "aten::relu", "mine::op"}
    assert found("aten::.*") == set()  # no pattern
    each = json.loads(opscope("ops", saved, "--json", "--each", "--search", "relu").out)
    assert [row["op"] for row in each] == ["aten::relu"] * 2
    assert (
        "no op, family, layer or node has 'none such'"
        in opscope("ops", saved, "--search", "none such").out
    )


def test_a_width_holds_and_without_limit_all_is_shown(opscope, saved):
    narrow = opscope("ops", saved, "-w", "60").out
    body = [line for line in narrow.splitlines() if "not shown" not in line]
    assert max(map(len, body)) <= 60
    assert "not shown for lack of width" in narrow
    wide = opscope("ops", saved, "-w", "0", "-c", "op,inputs,source").out
    assert "f16[64,32], f16[32,16]" in wide


def test_doctor_explains_a_file_s_gaps(opscope, saved):
    done = opscope("doctor", saved)
    assert done.status == 0
    assert "mine::op" in done.out
    assert "no launch record" in done.out
    assert "graph_nodes" in done.out
    assert "not recorded" in done.out
    gaps = json.loads(opscope("doctor", saved, "--json").out)
    assert {row["table"]: row["rows"] for row in gaps["tables"]}["kernels"] == "7"
    assert len(gaps["notes"]) == 2


def test_doctor_says_how_to_close_each_gap(opscope, saved):
    done = opscope("doctor", saved)
    assert "no launch record: The work was launched before the capture began" in " ".join(
        done.out.split()
    )
    rows = json.loads(opscope("doctor", saved, "--json").out)["advice"]
    assert [(row["reason"], row["kernels"], row["time"]) for row in rows] == [
        ("no launch record", 1, 1000)
    ]
    assert "opscope run --steps" in rows[0]["advice"]


def test_every_reason_has_advice():
    from opscope.cli.gaps import ADVICE
    from opscope.core.analysis.summary.summary import CPU_REASONS
    from opscope.core.attribution.attribute import REASONS

    assert set(ADVICE) == {*REASONS[1:], *CPU_REASONS}


def test_a_gpu_may_be_named_where_the_trace_names_none(opscope, saved):
    for command in ("report", "ops", "kernels", "doctor"):
        assert opscope(command, saved, "--gpu", "H100 SXM").status == 0
        refused = opscope(command, saved, "--gpu", "Voodoo 2")
        assert refused.status == 2
        assert "--gpu 'Voodoo 2'" in refused.err


def test_a_gpu_named_where_nothing_ran_on_one_is_answered_in_a_line(opscope, trace_of, tmp_path):
    on_cpu = str(tmp_path / "cpu.opscope")
    row = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward",
           "text": "aten::mm(f32[8,8], f32[8,8])", "start": 0, "end": 1_000_000}  # fmt: skip
    Profile(trace_of(ranges=[row])).save(on_cpu)
    refused = opscope("report", on_cpu, "--gpu", "H100 SXM")
    assert refused.status == 2
    assert len(refused.err.splitlines()) == 1
    assert "nothing in the trace ran on one" in refused.err
    assert "--gpu gives it a name" not in opscope("report", on_cpu, "--reports", "roofline").out


def test_doctor_lists_the_models_and_this_machine(opscope):
    models = json.loads(opscope("doctor", "--ops", "--json").out)
    assert {"aten::mm", "aten::convolution"} <= {row["name"] for row in models}
    machine = {row["what"]: row for row in json.loads(opscope("doctor", "--json").out)}
    assert {"opscope", "other frameworks", "GPU", "Nsight Systems", "NVTX"} <= set(machine)
    assert machine["opscope"]["state"] == "ok"
    for row in machine.values():
        assert row["found"]
        # what no program here would use is named, and not advised
        assert row["state"] in ("ok", "auto", "--")


# ---------------------------------------------------------------------------------- bad input


def bad_files(folder):
    (folder / "empty.json").write_bytes(b"")
    whole = gzip.compress(
        json.dumps({"traceEvents": [{"ph": "X", "name": "a" * 999, "ts": 1}] * 50}).encode()
    )
    (folder / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "cut.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a"')
    with sqlite3.connect(folder / "other.sqlite") as base:
        base.execute("create table cats (name text)")
    base.close()
    (folder / "cut.sqlite").write_bytes((folder / "other.sqlite").read_bytes()[:3000])
    (folder / "program").write_bytes(b"\x7fELF" + bytes(range(256)) * 20)
    (folder / "folder").mkdir()
    (folder / "half.opscope").mkdir()
    (folder / "half.opscope" / "meta.json").write_text("{}")
    return ["missing", *sorted(path.name for path in folder.iterdir())]


NAMES = [
    "missing",
    "cut.json",
    "cut.json.gz",
    "cut.sqlite",
    "empty.json",
    "folder",
    "half.opscope",
    "other.sqlite",
    "program",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "command", [("report",), ("ops", "--csv"), ("kernels", "--json"), ("doctor",)]
)
def test_bad_input_is_one_line_and_leaves_nothing(command, name, opscope, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sorted(bad_files(tmp_path)) == sorted(NAMES)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = opscope(command[0], name, *command[1:])
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"opscope: {name}")
    assert len(done.err.splitlines()) == 1
    assert "Traceback" not in done.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("report", "--reports", "nonsense"), "no report named 'nonsense'; choose from: diagnosis"),
        (("report", "--reports", "detial"), "no report named 'detial'; did you mean 'detail'?"),
        (("ops", "--sort", "self-tim"), "no column named 'self-tim'; did you mean 'self_time'?"),
        (("report", "--formats", "xlsx"), "no format named 'xlsx'; choose from: csv"),
        (("ops", "--sort", "beauty"), "no column named 'beauty'; choose from: "),
        (("kernels", "-c", "name,beauty"), "no column named 'beauty'"),
    ],
)
def test_what_does_not_exist_is_answered_with_what_does(args, complaint, opscope, saved):
    done = opscope(args[0], saved, *args[1:])
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err
    assert len(done.err.splitlines()) == 1


def test_usage_errors_exit_2():
    result = CliRunner().invoke(app, ["report"])
    assert result.exit_code == 2


ESCAPE = "\x1b[31mred"


def test_no_name_of_a_file_drives_a_terminal(opscope, tmp_path):
    result = opscope("report", tmp_path / ESCAPE)
    assert result.status == 2
    assert "\x1b" not in result.err
    assert "\\x1b[31mred" in result.err


@pytest.mark.parametrize("terminal", [True, False])
def test_csv_drives_no_terminal_and_goes_into_a_file_as_it_is(
    terminal, opscope, trace, tmp_path, monkeypatch
):
    import sys

    monkeypatch.chdir(tmp_path)
    named = trace["kernels"].with_columns(name=pl.lit(f"{ESCAPE}\nk"))
    Profile(trace.replace(kernels=named)).save("red.opscope")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    out = opscope("kernels", "red.opscope", "--csv").out
    assert ("\x1b" in out) != terminal
    assert len(out.splitlines()) > 2


def test_formulas_of_a_csv_are_told(opscope, trace, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = trace["kernels"].with_columns(name=pl.lit('=HYPERLINK("http://x")'))
    Profile(trace.replace(kernels=named)).save("formula.opscope")
    result = opscope("kernels", "formula.opscope", "--csv")
    assert "1 cell of the CSV begins with =, +, - or @" in result.err
    assert '"=HYPERLINK(""http://x"")"' in result.out
    result = opscope("report", "formula.opscope", "--formats", "csv", "--reports", "kernel")
    assert "1 cell of the CSV begins with" in result.err


def test_a_csv_without_a_formula_says_nothing(opscope, saved):
    assert opscope("kernels", saved, "--csv").err == ""


@pytest.mark.parametrize("name", [name for name in reports() if name != "summary"])
def test_top_is_obeyed_by_every_report_and_with_json(opscope, saved, name):
    whole = json.loads(opscope("report", saved, "--reports", name, "--json").out)[name]
    cut = json.loads(opscope("report", saved, "--reports", name, "--json", "--top", 1).out)[name]
    assert cut == (whole if reports()[name].single else whole[:1])
    every = json.loads(opscope("report", saved, "--reports", name, "--json", "--top", 0).out)[name]
    assert every == whole


def test_top_is_obeyed_by_every_table(saved):
    from opscope.profile import load
    from opscope.reports import console

    profile = load(saved)
    for name, report in reports().items():
        if name in ("summary", "diagnosis", "advice"):  # they are lines, and rows of findings alone
            continue
        (table,) = console.tables(profile, [name], 1)
        assert len(table.rows) == min(1, len(report.frame(profile))), name


def test_files_hold_as_many_rows_as_top_says(opscope, saved, tmp_path):
    done = opscope("report", saved, "--reports", "kernel", "--formats", "csv", "--output-path", tmp_path,
                   "--base-name", "x", "--top", 1)  # fmt: skip
    assert done.status == 0
    assert len((tmp_path / "x_kernel.csv").read_text().splitlines()) == 2


@pytest.mark.parametrize("command", ["ops", "kernels"])
def test_two_forms_on_one_stdout_are_an_error(opscope, saved, command):
    done = opscope(command, saved, "--csv", "--json")
    assert (done.status, done.out) == (2, "")
    assert done.err == "opscope: --csv and --json cannot be combined: choose one\n"


def test_an_empty_report_is_a_file_only_where_it_is_asked_for(opscope, saved, tmp_path):
    done = opscope("report", saved, "--formats", "csv", "--output-path", tmp_path / "all")
    assert done.status == 0
    names = {path.name for path in (tmp_path / "all").iterdir()}
    assert {"run_summary.csv", "run_detail.csv", "run_by_kind.csv"} <= names
    assert "run_memory.csv" not in names
    assert "empty, so not written: " in done.err
    assert "memory" in done.err
    asked = opscope(
        "report",
        saved,
        "--formats",
        "csv",
        "--output-path",
        tmp_path / "one",
        "--reports",
        "memory",
    )
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["run_memory.csv"]
    assert "not written" not in asked.err


@pytest.mark.parametrize("command", ["report", "advise"])
def test_a_folder_of_several_runs_lists_them_and_how_to_open_each(opscope, tmp_path, command):
    for name in ("first", "a second"):
        (tmp_path / name).mkdir()
        made.dataset_folder(tmp_path / name)
    done = opscope(command, tmp_path)
    assert done.status == 2
    assert "2 runs of MindSpore" in done.err
    for name in ("first", f"'{tmp_path}/a second'"):
        assert name in done.out
    assert done.out.count(f"opscope {command} ") == 2

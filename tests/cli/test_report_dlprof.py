"""`opscope report --style dlprof`: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json

import pytest

from opscope.cli import start as application


@pytest.fixture
def opscope(monkeypatch, capsys):
    """Runs the command line in this process; returns the status, stdout and stderr."""

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", *map(str, args)])
        status = application.run()
        return (status, *capsys.readouterr())

    return call


@pytest.fixture
def file(shared):
    return shared / "dlprof/nsys_profile.sqlite"


def test_the_summary_is_printed_in_dlprofs_sections(opscope, file):
    status, out, err = opscope("report", file, "--style", "dlprof")
    assert (status, err) == (0, "")
    for title in ("System Config", "Summary Report", "Iterations", "All Ops", "All Kernels"):
        assert title in out
    assert "PyTorch 1.10.1+cu102" in out


def test_files_have_dlprofs_names_and_are_not_replaced_unless_asked(opscope, file, tmp_path):
    asked = ("report", file, "--style", "dlprof", "--reports", "all", "--output_path", tmp_path)
    status, _, err = opscope(*asked, "--base_name", "run")
    assert status == 0
    assert "run_tensor_core.csv" in err
    assert len(list(tmp_path.iterdir())) == 8
    status, _, err = opscope(*asked, "--base_name", "run")
    assert status == 2
    assert "already exists" in err
    assert opscope(*asked, "--base_name", "run", "--force")[0] == 0


def test_json_has_an_object_per_report(opscope, file):
    status, out, _ = opscope(
        "report", file, "--style", "dlprof", "--reports", "op_type,tensor", "--json"
    )
    assert status == 0
    loaded = json.loads(out)
    assert list(loaded) == ["tensor", "op_type"]
    assert loaded["op_type"]["Op Type Summary Report"][0]["Op Type"] == "conv2d"


def test_of_several_domains_json_has_a_key_for_each(opscope, trace_of, tmp_path):
    from opscope.profile import Profile

    pushed = {"process": 0, "thread": 1, "end_thread": 1, "kind": "pushpop", "end": 50}
    ranges = [
        {**pushed, "domain": "opscope.torch", "start": 0, "text": "aten::mm(f32[8,8])"},
        {**pushed, "domain": "one", "start": 60, "end": 70, "text": "batch"},
        {**pushed, "domain": "two", "start": 80, "end": 95, "text": "log"},
    ]
    Profile(trace_of(ranges=ranges)).save(tmp_path / "a.opscope")
    asked = (
        "report",
        tmp_path / "a.opscope",
        "--style",
        "dlprof",
        "--reports",
        "op_type",
        "--json",
    )
    status, out, _ = opscope(*asked, "--domains", "one,two")
    assert status == 0
    found = json.loads(out)
    assert list(found) == ["one", "two"]
    for domain in found:
        alone = json.loads(opscope(*asked, "--domains", domain)[1])
        assert found[domain] == alone, "as it is when asked for alone"
    assert found["one"] != found["two"]


def test_a_key_op_by_id_and_a_range_of_iterations_choose_what_is_aggregated(opscope, file):
    asked = ("report", file, "--style", "dlprof", "--reports", "summary", "--json")
    _, out, _ = opscope(*asked, "--key_node", "CONV2D_2", "--iter_start", 1)
    found = json.loads(out)["summary"]["Iterations"]
    assert found["Total Iterations"] == 2
    assert found["Aggregated Iterations"] == 1
    status, _, err = opscope(*asked, "--key_op", "CONV2D_2", "--iter-start", 7)
    assert status == 2
    assert "no iteration is from 7" in err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--style", "pyprof2"), "style"),
        (("--force",), "--style dlprof"),
        (("--style", "dlprof", "--reports", "nothing"), "report"),
        (("--style", "dlprof", "--formats", "xls"), "format"),
        (("--style", "dlprof", "--by", "op"), "--by"),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_line(opscope, file, options, word):
    status, out, err = opscope("report", file, *options)
    assert (status, out) == (2, "")
    assert word in err
    assert err.count("\n") == 1


def test_a_saved_profile_gives_the_same_reports(opscope, file, tmp_path):
    import opscope as package

    package.load(file).save(tmp_path / "run.opscope")
    made = {}
    for name, source in (("trace", file), ("saved", tmp_path / "run.opscope")):
        folder = tmp_path / name
        opscope("report", source, "--style", "dlprof", "--reports", "all", "--output-path", folder)
        made[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert made["trace"] == made["saved"]
    assert len(made["saved"]) == 8

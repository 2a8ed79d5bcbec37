"""Every field of DLProf's own eight reports, from the export that it read and from the database that it wrote."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from opscope.reports import dlprof
from tests import traces

REPORTS = ("detailed", "group_op", "iteration", "kernel", "op_type", "summary", "tensor_core")
SOURCES = ("nsys_profile.sqlite", "dlprof_dldb.sqlite")


class Field(NamedTuple):
    """Where a field is: the file, the line (0 is the title), and the number or name of the column."""

    report: str
    line: int
    column: int


#: Fields that differ, and why. No figure is among them.
OWN_VERSION = "DLProf's own version and build: the report is opscope's, and says so"
EXCUSED = {
    Field("summary", 8, 1): OWN_VERSION,
    Field("summary", 9, 1): OWN_VERSION,
}
#: DLProf gives all kernels of an op that share a short name the long name of the first. opscope gives each
#: its own, which the export has; the database has lost it.
FIRST_OF_ITS_NAME = "DLProf's database keeps one long name per op and short name"
EXCUSED_OF_EXPORT = {Field("iteration", line, 22): FIRST_OF_ITS_NAME for line in (7, 9, 34)}


def lines(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module", params=SOURCES)
def written(request, shared: Path, tmp_path_factory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    profile = traces.load(shared / "dlprof" / request.param)
    dlprof.write(profile, ["all"], folder)
    return request.param, folder


def differences(ours: Path, theirs: Path, report: str) -> Iterator[tuple[Field, str, str]]:
    mine, golden = (lines(folder / f"dlprof_{report}.csv") for folder in (ours, theirs))
    assert len(mine) == len(golden)
    for number, (made, expected) in enumerate(zip(mine, golden, strict=True)):
        assert len(made) >= len(expected), (number, made, expected)
        for column, (one, other) in enumerate(zip(made, expected, strict=False)):
            if one != other:
                yield Field(report, number, column), one, other


@pytest.mark.parametrize("report", REPORTS)
def test_every_field_is_dlprofs(written, shared: Path, report):
    source, folder = written
    excused = EXCUSED | (EXCUSED_OF_EXPORT if source == SOURCES[0] else {})
    found = {field: pair for field, *pair in differences(folder, shared / "dlprof", report)}
    assert {field: pair for field, pair in found.items() if field not in excused} == {}
    # an excuse that is no longer needed goes
    assert {field for field in excused if field.report == report} == set(found)


def test_each_kernel_has_its_own_long_name(written, shared: Path):
    """The excused long names: those of the export are the kernels' own."""
    source, folder = written
    if source != SOURCES[0]:
        return
    kernels = traces.load(shared / "dlprof" / source).kernels().select("start", "name")
    names = dict(kernels.iter_rows())
    rows = lines(folder / "dlprof_iteration.csv")
    start, name = (rows[1].index(one) for one in ("GPU Start Time (ns)", "Long Kernel Name"))
    assert len(rows) == 61
    assert all(names[int(row[start])] == row[name] for row in rows[2:])


def test_names_are_quoted_where_dlprof_quotes_them(written, shared: Path):
    _, folder = written
    for report in ("detailed", "kernel", "iteration", "group_op", "op_type", "tensor_core"):
        mine, golden = (
            (path / f"dlprof_{report}.csv").read_text(encoding="utf-8").split("\n")
            for path in (folder, shared / "dlprof")
        )
        assert mine[0] == golden[0]
        assert mine[1].startswith(golden[1])
        assert mine[-1] == golden[-1] == ""
        if report not in (
            "detailed",
            "iteration",
        ):  # a stack trace has lines; long names are excused
            assert all(ours.startswith(theirs) for ours, theirs in zip(mine, golden, strict=True))
    mine, golden = (
        (path / "dlprof_summary.csv").read_text(encoding="utf-8").split("\n")
        for path in (folder, shared / "dlprof")
    )
    assert mine[10:] == golden[10:]


def test_the_expert_systems_of_that_run_and_where_ours_differ(written, shared: Path):
    _, folder = written
    golden = (shared / "dlprof/dlprof_expert_systems.csv").read_text(encoding="utf-8").splitlines()
    text = (folder / "dlprof_expert_systems.csv").read_text(encoding="utf-8").splitlines()
    assert text[0] == golden[0]
    assert text[1].startswith(f"{golden[1]},")
    body = [line for line in text[1:] if not line.startswith("# ")]
    found = {row["Detector"]: row for row in csv.DictReader(body)}
    notes = [line[2:] for line in text if line.startswith("# ")]
    # Of DLProf's four findings two are ours too: no product runs in f16, and there are no iterations.
    assert set(found) == {"mixed_precision", "no_iterations"}
    assert golden[2].startswith('"5 ops were eligible to use tensor cores')
    assert found["mixed_precision"]["Problem"].startswith(
        "5 products could use Tensor Cores in f16"
    )
    assert golden[5].startswith('"Unable to split profile into training iterations')
    # DLProf calls the GPU underutilized, at 0.0 % of the profile. Nearly all of it is the start-up of a program
    # that ran for one step, so that its share says nothing of the training: ours gives the share and abstains.
    assert golden[3].startswith('"The GPU is underutilized: Only 0.0%')
    (told,) = [note for note in notes if "(underutilized_gpu) cannot be told" in note]
    assert "ran kernels for 0.0 % of the whole profile" in told
    # DLProf says of every program without DALI that it has none, whether or not it waits for its input. Here
    # nothing shows an input, nor a step that could wait for it: ours abstains.
    assert golden[4].startswith('"No DALI ops detected"')
    assert any("(cpu_decoding) cannot be told" in note for note in notes)
    # what DLProf looked for and did not find; of the API's flags ours cannot be sure after so few steps
    (quiet,) = [note for note in notes if note.startswith("nothing found by: ")]
    for name in ("tensor_shapes", "imbalanced_gpus", "no_fusion", "no_ranges"):
        assert f"({name})" in quiet


def test_each_expert_system_of_dlprof_has_a_detector():
    from opscope.reports.dlprof.sections import rules

    names = {
        "Bad Iteration Range", "No Iteration", "Bad Tensor Shape", "No Fusion", "AMP", "Data Loader",
        "cuDNN Benchmark", "slow API flags", "Imbalanced GPU", "Underutilized GPU", "Batch Size",
        "emit_nvtx missing", "DALI",
    }  # fmt: skip
    assert {rule.partition(" (")[0] for rule in rules()} == names


def test_iterations_by_a_key_op_are_no_missing_iterations(shared: Path):
    profile = traces.load(shared / "dlprof/dlprof_dldb.sqlite")
    (section,) = dlprof.tables(profile, "expert_systems", key="CONV2D_1")
    assert section.frame["Detector"].to_list() == ["mixed_precision"]
    assert not any("No Iteration (no_iterations)" in note for note in section.notes)


def test_an_ops_gpu_time_is_given_flattened_and_accumulated(written):
    _, folder = written
    title, header, *rows = lines(folder / "dlprof_detailed.csv")
    assert title == ["All Iterations"]
    flattened, accumulated = (
        header.index(name) for name in ("Total GPU Time (ns)", "Accumulated GPU Time (ns)")
    )
    found = {row[0]: (int(row[flattened]), int(row[accumulated])) for row in rows}
    assert found["CONV2D_1"] == (309_276, 316_859)
    assert all(one <= other for one, other in found.values())


def test_an_ops_layer_and_cost_stand_beside_dlprofs_columns(written):
    _, folder = written
    _, header, *rows = lines(folder / "dlprof_detailed.csv")
    row = next(dict(zip(header, one, strict=True)) for one in rows if one[0] == "LINEAR_1")
    assert row["Layer"] == "dummy_network.Linear(3)"
    assert row["FLOPs"] == str(2 * 32 * 400 * 120)
    assert row["Output Shapes"] == "<N:32, M:120>"
    assert row["Bound"] in ("latency", "memory", "vector", "tensor")


def test_an_op_id_is_accepted_as_key_op(shared: Path):
    profile = traces.load(shared / "dlprof/nsys_profile.sqlite")
    by_id, by_name = (
        dlprof.tables(profile, "summary", key=key)[2].frame.row(0, named=True)
        for key in (
            "linear_1",
            "/module/dummy_network::_call_impl/dummy_network::forward/"
            "Linear::_call_impl[3]/Linear::forward/linear",
        )
    )
    assert by_id == by_name
    assert by_id["Total Iterations"] == 2

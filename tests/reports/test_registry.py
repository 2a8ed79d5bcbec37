"""A report is one record in one file: whatever shows reports finds it there."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import polars as pl
import pytest
from opscope.frames import UNITS, Column, Frame

import opscope.cli.app as application
from opscope.core.question.layout import lines
from opscope.core.question.record import Report
from opscope.core.question.registry import divisions, reports
from opscope.profile import Profile
from opscope.reports import catalogue, registry
from opscope.reports.console import first_screen, tables

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_reports_doc.py"
REPORT = '''"""The host's time by direction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opscope.frames import Frame, columns
from opscope.core.question.record import Report

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile


def by_direction(profile: Profile) -> pl.DataFrame:
    """The ops' self time added up."""
    import polars as pl

    grouped = profile.ops().group_by("direction", maintain_order=True)
    return grouped.agg(waste=pl.col("self_time").sum(), weight=pl.len() / len(profile.ops()))


REPORT = Report(
    name="waste",
    order=45,
    title="Wasted time",
    holds=Frame(
        "waste",
        "one row per direction of ops",
        columns(
            "direction waste weight",
            waste=("ns", "host time that the ops took for themselves"),
            weight=("fraction", "ops of this direction / all ops"),
        ),
    ),
    frame=by_direction,
    empty="nothing was wasted",
    by="waste",
    aliases=("rubbish",),
)
'''


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Adds a file to the catalogue for the time of a test: ``add("name", "source")``."""
    folder = tmp_path / "catalogue"
    folder.mkdir()
    monkeypatch.setattr(catalogue, "__path__", [*catalogue.__path__, str(folder)])
    added = []

    def write(name: str, source: str) -> None:
        (folder / f"{name}.py").write_text(source)
        added.append(f"{catalogue.__name__}.{name}")
        registry.forget()

    yield write
    for module in added:
        sys.modules.pop(module, None)
        vars(catalogue).pop(module.rpartition(".")[2], None)
    registry.forget()


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the command line in this process; gives status, stdout and stderr."""

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", *map(str, args)])
        status = application.run()
        return (status, *capsys.readouterr())

    return call


@pytest.fixture
def saved(trace_of, tmp_path) -> Path:
    where = {"process": 0, "thread": 1, "domain": "opscope.torch", "kind": "pushpop"}
    rows = [
        {**where, "category": "forward", "text": "aten::mm(f32[2,3], f32[3,4])", "start": 0, "end": 2_000},
        {**where, "category": "backward", "text": "aten::mul(f32[2])", "start": 3_000, "end": 4_000},
    ]  # fmt: skip
    Profile(trace_of(ranges=rows)).save(tmp_path / "run.opscope")
    return tmp_path / "run.opscope"


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_file_in_the_catalogue_is_a_report_on_the_terminal(add, run, saved):
    add("waste", REPORT)
    status, out, _ = run("report", saved, "--reports", "waste")
    assert status == 0
    title, head, first, second, *_ = out.splitlines()
    assert title == "Wasted time"
    assert head.split() == ["direction", "waste", "weight"]
    assert words(first) == "forward 2.00 µs 50.0 %"
    assert words(second) == "backward 1.00 µs 50.0 %"
    assert run("report", saved, "--by", "waste")[1].endswith(out)
    assert run("report", saved, "--reports", "Rubbish")[1] == out
    assert run("report", saved, "--reports", "waste", "--top", 1)[1].count("%") == 1
    assert "--by waste, shape, layer, source, dtype, range: " in words(run("report", saved)[1])


def test_it_is_in_json_and_in_files_at_its_place(add, run, saved, tmp_path):
    add("waste", REPORT)
    made = json.loads(run("report", saved, "--json")[1])
    assert list(made)[4:7] == ["by_kind", "waste", "by_op"]
    assert made["waste"] == [
        {"direction": "forward", "waste": 2_000, "weight": 0.5},
        {"direction": "backward", "waste": 1_000, "weight": 0.5},
    ]
    folder = tmp_path / "files"
    assert run("report", saved, "--formats", "csv,json,parquet", "--output-path", folder)[0] == 0
    text = (folder / "run_waste.csv").read_text()
    assert text == "direction,waste,weight\nforward,2000,0.5\nbackward,1000,0.5\n"
    assert json.loads((folder / "run_waste.json").read_text()) == made["waste"]
    assert pl.read_parquet(folder / "run_waste.parquet").to_dicts() == made["waste"]


def test_it_is_in_the_help_and_meant_by_a_name_like_it(add, run, saved):
    assert "waste" not in run("report", "--help")[1]
    add("waste", REPORT)
    said = words(run("report", "--help")[1])
    assert "gaps, by_kind, waste, by_op" in said
    assert "the time by kind, waste, op, shape" in said
    assert "did you mean 'waste'?" in run("report", saved, "--reports", "wasste")[2]
    assert "did you mean 'waste'?" in run("report", saved, "--by", "wasted")[2]


def test_it_is_in_the_documentation(add):
    if not SCRIPT.is_file():
        pytest.skip("the source distribution has no scripts")
    write = runpy.run_path(str(SCRIPT))
    before = write["PAGE"].read_text("utf-8")
    assert "waste" not in before
    add("waste", REPORT)
    page = write["page"](before)
    assert "| `waste` | one row per direction of ops | `--by waste`, `rubbish` |  |\n" in page
    assert "| `waste` | ns | host time that the ops took for themselves |\n" in page
    assert "| `waste` | direction, waste, weight |\n" in page


def test_a_report_with_no_rows_says_so(add, run, trace_of, tmp_path):
    add("waste", REPORT)
    Profile(trace_of()).save(tmp_path / "empty.opscope")
    out = run("report", tmp_path / "empty.opscope", "--reports", "waste")[1]
    assert out == "Wasted time\nnothing was wasted\n"


def test_a_report_may_stand_on_the_first_screen_or_be_written_on_request_alone(add, run, saved):
    changed = REPORT.replace('by="waste",', "first=True, written=False,")
    add("waste", changed)
    titles = [block.partition("\n")[0] for block in run("report", saved)[1].split("\n\n")]
    assert titles[3:5] == ["Wasted time", "Top ops, all shapes of each together"]
    assert "waste" not in json.loads(run("report", saved, "--json")[1])
    assert "waste" in json.loads(run("report", saved, "--json", "--reports", "waste")[1])


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("empty", "", "catalogue.empty defines no REPORT named 'empty'"),
        ("other", REPORT, "catalogue.other defines no REPORT named 'other'"),
        ("waste", REPORT.replace("rubbish", "gaps"), "'gaps' is a name of two reports: 'gaps' and 'waste'"),
        ("waste", REPORT.replace("rubbish", "mfu"), "'mfu' is a name of two reports:"),
        ("waste", REPORT.replace('by="waste"', 'by="op"'), "'op' is a name of two reports:"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_report_is_refused_by_name(add, name, source, complaint):
    add(name, source)
    with pytest.raises(TypeError, match=complaint):
        reports()


# ---------------------------------------------------------------------------------- all reports


def test_every_report_is_shown_with_and_without_rows(trace_of, saved):
    from opscope.profile import load

    for profile in (load(saved), Profile(trace_of())):
        for name, report in reports().items():
            documented = [column.name for column in report.holds.columns]
            assert report.frame(profile).columns == documented, name
            (table,) = tables(profile, [name])
            assert table.title.startswith(report.title)
            if report.frame(profile).is_empty():
                assert table.footnotes[0] == report.empty, name
            assert len(list(lines(table))) > 1, name


def test_a_module_is_named_as_its_report_and_the_order_is_fixed():
    folder = Path(catalogue.__file__).parent
    assert set(reports()) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    orders = [one.order for one in reports().values()]
    assert len(set(orders)) == len(orders)
    assert list(reports())[:7] == [
        "diagnosis",
        "summary",
        "unattributed",
        "gaps",
        "by_kind",
        "by_op",
        "by_layer",
    ]
    assert list(reports())[-1] == "notes"


def test_what_a_report_shows_are_columns_that_it_has():
    made = {"running", "bar"}  # added for the table
    for name, report in reports().items():
        known = {column.name for column in report.holds.columns}
        assert set(report.keys) <= known | made, name
        assert report.empty, name
        assert report.holds.row, name
        for column in report.holds.columns:
            assert column.unit in UNITS, f"{name}: {column.name}"
            assert len(column.meaning.split()) > 1, f"{name}: {column.name}"


def test_the_words_of_by_divide_the_time(saved):
    from opscope.profile import load

    profile = load(saved)
    shown = [table.title for table in first_screen(profile)]
    assert shown[-1] == "Next"
    for word, report in divisions().items():
        assert "device_time" in {c.name for c in report.holds.columns} or word == "kernel"


def test_a_column_of_its_own_is_shown_by_its_unit(saved):
    from opscope.core.question.record import View
    from opscope.profile import load
    from opscope.reports.tables import table

    units = {
        "a": ("ns", "1.50 µs"), "b": ("bytes", "1.50 kB"), "c": ("FLOP", "1.50 kFLOP"),
        "d": ("FLOP/s", "1.50 kFLOP/s"), "e": ("bytes/s", "1.50 kB/s"), "f": ("count", "1,500"),
        "g": ("number", "1500"), "h": ("FLOP/byte", "1,500"),
    }  # fmt: skip
    one = Report(
        name="own",
        order=1,
        title="Own",
        holds=Frame("own", "one row", tuple(Column(n, u, "it is") for n, (u, _) in units.items())),
        frame=lambda profile: pl.DataFrame({key: [1500] for key in units}),
        empty="none",
    )
    row = list(lines(table(one, load(saved), View())))[2][1]
    assert words(row) == " ".join(text for _, text in units.values())


def test_a_trace_that_marks_no_steps_does_not_say_that_there_were_none(trace_of):
    (table,) = tables(Profile(trace_of()), ["summary"])
    assert "no steps marked" in table.rows[0]["remark"]

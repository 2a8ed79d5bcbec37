"""A report is a record of a question: whatever shows reports finds it by the table of contents."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import polars as pl
import pytest

from opscope.cli import start as application
from opscope.core.question import index, registry
from opscope.core.question.column import UNITS, Column, Frame
from opscope.core.question.layout import lines
from opscope.core.question.record import Question, Report, View
from opscope.core.question.registry import divisions, reports
from opscope.profile import Profile, load
from opscope.reports.console import first_screen, tables
from opscope.reports.tables import table

SCRIPTS = Path(__file__).parents[2] / "scripts"
QUESTION = '''"""The host's time by direction."""

from __future__ import annotations

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns


def answer(profile: Answers) -> pl.DataFrame:
    """The ops' self time added up."""
    ops = profile.ask("ops", categories=True)
    grouped = ops.group_by("direction", maintain_order=True)
    return grouped.agg(waste=pl.col("self_time").sum(), weight=pl.len() / len(ops))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "waste()",
            "one row per direction of ops",
            columns(
                "direction waste weight",
                waste=("ns", "host time that the ops took for themselves"),
                weight=("fraction", "ops of this direction / all ops"),
            ),
        ),
    ),
    reports=(
        Report(
            name="waste",
            title="Wasted time",
            empty="nothing was wasted",
            by="waste",
            aliases=("rubbish",),
        ),
    ),
)
'''


def behind(lines: dict[str, str], other: str, key: str, value: str) -> dict[str, str]:
    """The lines with one more, behind that of ``other``."""
    places = list(lines.items())
    at = list(lines).index(other) + 1
    return dict([*places[:at], (key, value), *places[at:]])


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Adds a question for the time of a test: ``add("source")`` writes its module and its lines in the index."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(source: str, module: str = "made_waste", by: str | None = "waste") -> None:
        (tmp_path / f"{module}.py").write_text(source)
        monkeypatch.setattr(index, "QUESTIONS", {**index.QUESTIONS, "waste": module})
        monkeypatch.setattr(index, "REPORTS", behind(index.REPORTS, "by_kind", "waste", "waste"))
        if by is not None:
            words = behind(index.DIVISIONS, "kind", by, "waste")
            monkeypatch.setattr(index, "DIVISIONS", words)
        registry.forget()

    yield write
    sys.modules.pop("made_waste", None)
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


def script(name: str) -> dict:
    """What a script defines."""
    if not (SCRIPTS / name).is_file():
        pytest.skip("the source distribution has no scripts")
    return runpy.run_path(str(SCRIPTS / name))


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_question_s_report_is_on_the_terminal(add, run, saved):
    add(QUESTION)
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
    assert "--by waste, shape, layer, source, dtype, direction, range: " in words(
        run("report", saved)[1]
    )


def test_it_is_in_json_and_in_files_at_its_place(add, run, saved, tmp_path):
    add(QUESTION)
    made = json.loads(run("report", saved, "--json", "--full")[1])
    assert list(made)[6:9] == ["by_kind", "waste", "by_op"]
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
    assert "waste" not in run("report", "--help-all")[1]
    add(QUESTION)
    said = words(run("report", "--help-all")[1])
    assert "gaps, by_kind, waste, by_op" in said
    assert "the time by one of: kind, waste, op, shape" in said
    assert "did you mean 'waste'?" in run("report", saved, "--reports", "wasste")[2]
    assert "did you mean 'waste'?" in run("report", saved, "--by", "wasted")[2]


def test_it_is_in_the_documentation(add):
    write = script("make_reports_doc.py")
    before = write["PAGE"].read_text("utf-8")
    assert "waste" not in before
    add(QUESTION)
    page = write["page"](before)
    assert "| `waste` | one row per direction of ops | `--by waste`, `rubbish` |  |\n" in page
    assert "| `waste` | ns | host time that the ops took for themselves |\n" in page
    assert "| `waste` | direction, waste, weight |\n" in page


def test_a_report_with_no_rows_says_so(add, run, trace_of, tmp_path):
    add(QUESTION)
    Profile(trace_of()).save(tmp_path / "empty.opscope")
    out = run("report", tmp_path / "empty.opscope", "--reports", "waste")[1]
    assert out == "Wasted time\nnothing was wasted\n"


def test_a_report_may_stand_on_the_first_screen_or_be_written_on_request_alone(
    add, run, saved, monkeypatch
):
    add(QUESTION.replace('by="waste",', "written=False,"), by=None)
    first = [*index.FIRST[:4], "waste", *index.FIRST[4:]]
    monkeypatch.setattr(index, "FIRST", tuple(first))
    titles = [block.partition("\n")[0] for block in run("report", saved)[1].split("\n\n")]
    assert titles[3:5] == ["Wasted time", "Top ops, all shapes of each together"]
    assert "waste" not in json.loads(run("report", saved, "--json", "--full")[1])
    assert "waste" in json.loads(run("report", saved, "--json", "--reports", "waste")[1])


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("", "made_waste defines no QUESTION named 'waste'"),
        (
            QUESTION.replace('"waste()"', '"other()"'),
            "made_waste defines no QUESTION named 'waste'",
        ),
        (QUESTION.replace('name="waste"', 'name="other"'), "'waste' has no report named 'waste'"),
        (
            QUESTION.replace("(profile: Answers)", "(profile: Answers, least: int = 1)"),
            "waste: parameters none, but the answer takes least",
        ),
    ],
)
def test_a_module_that_states_another_question_is_refused_by_name(add, source, complaint):
    add(source)
    with pytest.raises(TypeError, match=complaint):
        reports()["waste"]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (("rubbish", "gaps"), "'gaps' is a name of two reports: 'gaps' and 'waste'"),
        (("rubbish", "mfu"), "'mfu' is a name of two reports: 'utilization' and 'waste'"),
        (('by="waste"', 'by="op"'), "'op' is a word of two reports: 'by_op' and 'waste'"),
    ],
)
def test_a_name_of_two_reports_is_refused_where_the_table_of_contents_is_written(
    add, changed, complaint, monkeypatch
):
    source = QUESTION.replace(*changed)
    add(source)
    make = script("make_questions.py")
    within = make["index"].__globals__
    known = within["modules"]()
    monkeypatch.setitem(within, "modules", lambda: [*known, "made_waste"])
    with pytest.raises(SystemExit, match=complaint):
        make["index"]()


# ---------------------------------------------------------------------------------- all reports


def test_every_report_is_shown_with_and_without_rows(trace_of, saved):
    for profile in (load(saved), Profile(trace_of())):
        for name, report in reports().items():
            documented = [column.name for column in report.holds.columns]
            assert report.frame(profile).columns == documented, name
            (table,) = tables(profile, [name])
            assert table.title.startswith(report.heading)
            if report.frame(profile).is_empty():
                assert table.footnotes[0] == report.no_rows, name
            assert len(list(lines(table))) > 1, name


def test_the_order_is_fixed_and_no_name_is_of_two_reports():
    names = [name for report in reports().values() for name in (report.name, *report.aliases)]
    assert len(set(names)) == len(names)
    assert list(reports())[:8] == [
        "diagnosis",
        "wall_time",
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
    profile = load(saved)
    shown = [table.title for table in first_screen(profile)]
    assert shown[-1] == "Next"
    for word, report in divisions().items():
        columns = {column.name for column in reports()[report].holds.columns}
        assert "device_time" in columns or word == "kernel"


def test_a_column_of_its_own_is_shown_by_its_unit(saved):
    units = {
        "a": ("ns", "1.50 µs"), "b": ("bytes", "1.50 kB"), "c": ("FLOP", "1.50 kFLOP"),
        "d": ("FLOP/s", "1.50 kFLOP/s"), "e": ("bytes/s", "1.50 kB/s"), "f": ("count", "1,500"),
        "g": ("number", "1500"), "h": ("FLOP/byte", "1,500"),
    }  # fmt: skip
    holds = Frame("own()", "one row", tuple(Column(n, u, "it is") for n, (u, _) in units.items()))
    (one,) = Question(
        answer=lambda profile: pl.DataFrame({key: [1500] for key in units}),
        frames=(holds,),
        reports=(Report(name="own", title="Own", empty="none"),),
    ).reports
    row = list(lines(table(one, load(saved), View())))[2][1]
    assert words(row) == " ".join(text for _, text in units.values())


def test_a_trace_that_marks_no_steps_does_not_say_that_there_were_none(trace_of):
    (table,) = tables(Profile(trace_of()), ["summary"])
    assert "no steps marked" in table.rows[0]["remark"]

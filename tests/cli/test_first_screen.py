"""What `opscope report FILE` shows first, and how the same time is divided otherwise."""

from __future__ import annotations

import json
import re

import pytest

from opscope.cli import start as application
from opscope.core.question.registry import divisions, reports
from opscope.core.schema import TABLES
from opscope.profile import load
from opscope.reports.unshown import ON_SCREEN, SHOWN_BY
from tests import traces
from tests.script import module_at

DLRM = "kineto/ddp_rank3of8_a100_stacks.json.gz"
QWEN = "kineto/qwen1.5_0.5b_h100.json.gz"
TRACES = (
    DLRM,
    QWEN,
    "dlprof/nsys_profile.sqlite",
    "kineto/alexnet_cuda_sync_a100.json.gz",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/sampled_rank0.json.gz",
    "kineto/timesformer_h100.json.gz",
    "kineto/vision_transformer_rank0.json.gz",
    "kineto/vllm_decode_cudagraph.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
)


@pytest.fixture
def report(monkeypatch, capsys):
    """Runs `opscope report` in this process, which reads a trace once; gives status, stdout and stderr."""
    monkeypatch.setattr("opscope.profile.load", traces.load)

    def call(*args):
        monkeypatch.setattr("sys.argv", ["opscope", "report", *map(str, args)])
        status = application.run()
        return (status, *capsys.readouterr())

    return call


def table(out: str, title: str) -> list[str]:
    """The lines of the table whose title begins so, the title first."""
    blocks = out.split("\n\n")
    return next(block for block in blocks if block.startswith(title)).splitlines()


def test_kinds_come_before_ops_and_what_to_ask_next_after(report, shared):
    status, out, err = report(shared / DLRM, "-w", 100)
    assert (status, err) == (0, "")
    titles = [block.partition("\n")[0] for block in out.split("\n\n")]
    assert titles[0] == "Diagnosis"
    assert titles[1].startswith("Wall time: ")
    assert titles[2] == "Where the time went: 502 ms of device time, by kind of work"
    assert titles[3] == "Top ops, all shapes of each together"
    assert titles[4] == "Next"
    facts, _, first = table(out, "Where")[1:4]
    assert facts == (
        "6 steps; device busy 83.5 % of the wall time; 100.0 % of this time has an op; FLOPs known for 98.4 %"
    )
    assert re.fullmatch(
        r"32.6 %  █+▉ +164 ms  communication +60  nccl:all_to_all and 1 other", first
    )


def test_an_op_with_many_shapes_is_one_row_with_the_usual_one_and_the_share_so_far(report, shared):
    rows = table(report(shared / DLRM, "-w", 140, "--top", 20)[1], "Top ops")
    assert sum("nccl:all_to_all" in row for row in rows) == 1
    row = rows[2]
    assert "nccl:all_to_all" in row
    assert "f32[8,1024,8816] and 21 others" in row
    shares = [float(row.split()[2].lstrip(">")) for row in rows[2:] if row[:1].isspace() or row[:1].isdigit() if "%" in row]  # fmt: skip
    assert shares == sorted(shares)
    assert shares[-1] > 90  # 60 % when each shape was a row


def test_what_has_no_op_is_a_row_and_a_next_step(report, shared):
    out = report(shared / QWEN, "-w", 100)[1]
    assert "30.1 %  30.1 %  13.7 ms    509  (no launch record)" in out
    said = f"30.1 % of the time has no op: opscope doctor {shared / QWEN} says why"
    assert said in table(out, "Next")[1]
    wide = report(shared / QWEN, "-w", 0)[1]
    assert "11 of 46 rows" in wide  # what 45 lines leave
    assert "20 of 46 rows" in report(shared / QWEN, "--top", 20)[1]


def wide(report, path) -> str:
    """The headings of the table of ops where all columns have room."""
    return table(report(path, "-w", 0)[1], "Top ops")[1]


@pytest.mark.parametrize("name", TRACES)
def test_the_first_screen_takes_45_lines_of_100_characters(report, shared, name, monkeypatch):
    monkeypatch.chdir(shared)
    monkeypatch.setattr("opscope.profile.load", load)
    lines = report(name, "-w", 100)[1].splitlines()
    # a sentence that is longer takes the terminal's next line too
    assert sum(max(1, -(-len(line) // 100)) for line in lines) <= 45


@pytest.mark.parametrize("name", [DLRM, QWEN])
def test_the_last_lines_name_advice_pages_and_all_that_is_not_shown(report, shared, name):
    *_, advise, view, by, also = table(report(shared / name, "-w", 100)[1], "Next")
    assert advise.startswith(f"opscope advise {shared / name}: ")
    assert view.startswith(f"opscope view {shared / name}: ")
    assert by.startswith("--by shape, layer, source, dtype, direction")
    names = also.partition("--reports ")[2].partition(" ")[0]
    assert {"steps", "launches", "bandwidth"} <= set(names.split(","))
    assert report(shared / name, "--reports", names)[0] == 0


def test_every_table_of_a_trace_is_on_the_screen_or_has_a_report():
    assert ON_SCREEN | SHOWN_BY.keys() == TABLES.keys()
    assert not ON_SCREEN & SHOWN_BY.keys()
    assert set(SHOWN_BY.values()) <= set(reports())


def test_columns_sets_the_width_of_a_pipe(report, shared, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = report(shared / QWEN)[1]
    assert told == report(shared / QWEN, "-w", 80)[1]
    monkeypatch.setenv("COLUMNS", "wide")
    assert report(shared / QWEN)[1] == report(shared / QWEN, "-w", 160)[1]


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("name", TRACES)
def test_the_first_screen_fits_and_shows_no_row_twice(report, shared, name, width):
    status, out, _ = report(shared / name, "-w", width)
    assert status == 0
    rows = table(out, "Top ops")
    body = [row for row in rows[2:] if "%" in row[:8]]
    assert body
    assert {"calls", "FLOPs"} <= set(rows[1].split()) or "FLOPs" not in wide(report, shared / name)
    assert max(map(len, body)) <= width
    told = [row.split("  ", 2)[-1] for row in body]
    names = [re.split(r"\s{2,}", row.strip())[4] for row in body if len(row) > 40]
    assert len(set(told)) == len(told)
    assert len(set(names)) == len(names), "two ops look the same"


@pytest.mark.parametrize("by", divisions())
def test_each_division_shows_the_summary_and_itself_and_has_the_same_rows_as_json(
    report, shared, by
):
    status, out, _ = report(shared / QWEN, "--by", by)
    assert status == 0
    assert out.startswith("Summary\n")
    made = json.loads(report(shared / QWEN, "--by", by, "--json")[1])
    assert list(made) == ["schema", "summary", divisions()[by]]
    cut = json.loads(report(shared / QWEN, "--by", by, "--json", "--top", 1)[1])
    assert cut[divisions()[by]] == made[divisions()[by]][:1]


def test_by_kind_of_json_is_the_table_of_the_screen(report, shared):
    rows = json.loads(report(shared / DLRM, "--json")[1])["by_kind"]
    *lines, rest = table(report(shared / DLRM)[1], "Where")[3:]
    for row, line in zip(rows, lines, strict=False):
        assert row["kind"] in line
    assert len(rows) > len(lines) == 4
    assert "the rest" in rest
    for row in rows[4:]:
        assert row["kind"] in rest


def test_a_division_that_does_not_exist_is_answered_with_those_that_do(report, shared):
    status, out, err = report(shared / QWEN, "--by", "layers")
    assert (status, out) == (2, "")
    assert "no division named 'layers'; did you mean 'layer'?" in err
    status, _, err = report(shared / QWEN, "--by", "op", "--reports", "kernel")
    assert status == 2
    assert "--by and --reports" in err


def test_every_division_is_a_report():
    assert set(divisions().values()) <= set(reports())
    assert list(divisions()) == [
        "kind", "op", "shape", "layer", "source", "dtype", "direction", "range", "kernel"
    ]  # fmt: skip


def test_layers_and_lines_keep_what_tells_them_apart(report, shared):
    rows = table(report(shared / QWEN, "--by", "layer", "-w", 100)[1], "Top layers")
    assert any("Qwen2MLP_*/Linear_* (72)" in row for row in rows)
    assert any("Qwen2Attention_*/Linear_* (96)" in row for row in rows)
    rows = table(report(shared / QWEN, "--by", "source", "-w", 100)[1], "Top source")
    assert any(" modeling_qwen2.py:218" in row for row in rows)


def test_the_page_of_first_screens_is_current(shared, monkeypatch):
    page = module_at("scripts/make_first_screens.py")
    assert page.page(shared) == page.PAGE.read_text("utf-8"), "run scripts/make_first_screens.py"

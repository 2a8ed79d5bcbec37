"""What a page shows is what `opscope report --json` prints, to the digit."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from urllib.parse import quote

import pytest

from opscope.core.question.registry import reports
from tests.viewer.browser import figures
from tests.viewer.browser.figures import READ, check, number, units
from tests.viewer.browser.looking import PAGES
from tests.viewer.browser.traces import DATA

FEW = [
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/vision_transformer_rank0.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
]


@pytest.fixture(params=["training", *FEW])
def profile(request, made):
    if request.param == "training":
        return made("training")
    if not DATA.is_dir():
        pytest.skip(f"no real traces at {DATA} (set OPSCOPE_SHARED)")
    return DATA / request.param


def test_tables_are_those_of_the_reports(profile, look, viewing, printed):
    seen = look(viewing(profile))
    grids = []
    for page in ("operators", "kernels", "steps", "notes"):
        grids += seen.go(page).page.evaluate(READ)
    found = [(grid["id"].replace("-", "_"), grid) for grid in grids if not grid["sorted"]]
    # what is asked notes more: a page of the notes has at least those of the report
    found = [(name, grid) for name, grid in found if name in reports() and name != "notes"]
    tables = [name for name, _ in found]
    rows = dict(zip(tables, printed(profile, *tables, "summary"), strict=False))
    compared = sum(check(grid, rows[name], units(name)) for name, grid in found)
    assert len(tables) >= 3, tables
    assert compared > 50
    text = seen.text
    assert all(note["what"][:30] in text for note in printed(profile, "notes"))
    seen.fine()


def test_the_figures_of_the_overview_are_those_of_the_reports(profile, look, viewing, printed):
    seen = look(viewing(profile), "overview")
    compared = figures.cards(seen, lambda name: printed(profile, name))
    assert compared >= 3
    seen.fine()


@pytest.mark.parametrize("name", ["cpu", "empty", "hostile"])
def test_every_table_of_other_profiles_is_that_of_the_report(name, look, viewing, made, printed):
    """Without a GPU, without anything, and with a stranger's texts."""
    profile = made(name)
    seen = look(viewing(profile))
    drawn = [grid for page in PAGES for grid in seen.go(page).page.evaluate(READ)]
    found = {grid["id"].replace("-", "_"): grid for grid in drawn if not grid["sorted"]}
    found = {name: grid for name, grid in found.items() if name in reports() and name != "notes"}
    printed(profile, *found, "summary", "notes")
    compared = sum(check(grid, printed(profile, one), units(one)) for one, grid in found.items())
    assert compared > 20 or name == "empty"
    cards = figures.cards(seen.go("overview"), lambda one: printed(profile, one))
    assert cards >= 1 or name == "empty"
    seen.fine()


def test_the_rows_of_a_selected_op_and_kernel_are_those_of_the_commands(look, viewing, made):
    """The calls of an op and the executions of a kernel, row by row, against ``--each --json``."""
    profile = made("training")
    seen = look(viewing(profile))

    def each(command):
        words = [sys.executable, "-m", "opscope", command, str(profile), "--each", "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    for page, kind, column, rows in (("operators", "op", "op", each("ops")), ("kernels", "kernel", "name", each("kernels"))):  # fmt: skip
        for value in sorted({row[column] for row in rows if row[column]})[:3]:
            seen.go(f"{page}?{kind}={quote(value, safe='')}")
            drawn = {one["id"].replace("-", "_"): one for one in seen.page.evaluate(READ)}
            grid = drawn[f"each_{kind}"]
            wanted = [row for row in rows if row[column] == value]
            assert check(grid, wanted, wanted[0]) >= len(grid["rows"]) > 0
    seen.fine()


def test_the_tree_of_modules_has_the_times_of_the_report(look, viewing, made, printed):
    profile = made("training")
    seen = look(viewing(profile), "layers")
    rows = printed(profile, "modules")
    whole = sum(row["device_time"] for row in printed(profile, "by_op"))
    times = [
        number(title)
        for title in seen.page.evaluate(
            "[...document.querySelectorAll('main [title]')].map((one) => one.title)"
        )
        if title.endswith(" ns") or " ns" in title
    ]
    assert float(whole) in times
    assert rows
    top = max(row["device_total"] for row in rows if row["device_total"] is not None)
    assert float(top) in times
    seen.fine()


def test_the_csv_of_a_table_is_the_report(look, viewing, made, printed, tmp_path):
    profile = made("training")
    seen = look(viewing(profile), "operators")
    with seen.page.expect_download() as started:
        seen.page.get_by_role("button", name="CSV").first.click()
    path = tmp_path / "operators.csv"
    started.value.save_as(path)
    with path.open(newline="", encoding="utf-8") as file:
        got = list(csv.DictReader(file))
    wanted = printed(profile, "operators")
    assert [row["op"] for row in got] == [row["op"] or "" for row in wanted]
    for one, other in zip(got, wanted, strict=True):
        for name, value in other.items():
            if isinstance(value, int) and not isinstance(value, bool):
                assert int(one[name]) == value, name
            elif value is None:
                assert one[name] == "", name
    seen.fine()


def test_sums_are_of_all_rows_and_of_those_that_match(look, viewing, made, printed):
    profile = made("training")
    seen = look(viewing(profile), "operators")
    rows = printed(profile, "operators")

    def sums():
        cells = seen.page.locator(".sums").first.locator("[title]").all()
        return [number(cell.get_attribute("title") or "") for cell in cells]

    assert float(sum(row["calls"] for row in rows)) in sums()
    seen.go("operators?operators_q=mm")
    found = [row for row in rows if "mm" in json.dumps(row)]
    assert 0 < len(found) < len(rows)
    assert float(sum(row["calls"] for row in found)) in sums()
    assert f"{len(found)} of {len(rows)} rows" in seen.text
    seen.fine()

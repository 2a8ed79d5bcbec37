"""What a page shows is what `opscope report --json` prints, to the digit."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys

import pytest

from opscope.reports.registry import reports
from tests.viewer.browser.traces import DATA

NUMBER = re.compile(r"[-−+]?[\d,]+(\.\d+)?(e[-+]?\d+)?")
FEW = [
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/vision_transformer_rank0.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
]
#: Reads every grid of the page: its table, its headings, and of each drawn row the texts and their hover texts.
READ = """() => [...document.querySelectorAll('[role=grid]')].map((grid) => ({
  headings: [...grid.querySelectorAll('[role=columnheader]')].map((one) => one.textContent.replace(/[▲▼]/g, '').trim()),
  id: /^t-(.*)-(?:head|\\d+)-\\d+$/.exec(grid.querySelector('[role=columnheader]').id)[1],
  sorted: [...grid.querySelectorAll('[role=columnheader]')].some((one) => one.getAttribute('aria-sort') !== 'none'),
  count: Number(grid.getAttribute('aria-rowcount')) - 2,
  rows: [...grid.querySelectorAll('.body [role=row]')].map((row) => [Number(row.getAttribute('aria-rowindex')) - 2,
    [...row.querySelectorAll('[role=gridcell]')].map((cell) => [cell.innerText.trim(), (cell.querySelector('[title]') ?? cell).title])]),
}))"""


@pytest.fixture(scope="session")
def printed():
    """A function that returns the rows of reports as ``opscope report FILE --json`` prints them."""
    known = {}

    def run(path, *names):
        held = known.setdefault(path, {})
        if absent := [name for name in names if name not in held]:
            words = ["report", str(path), "--json", "--reports", ",".join(absent)]
            done = subprocess.run(
                [sys.executable, "-m", "opscope", *words],
                capture_output=True,
                text=True,
                check=True,
            )
            held |= json.loads(done.stdout)
        rows = [[held[name]] if isinstance(held[name], dict) else held[name] for name in names]
        return rows[0] if len(rows) == 1 else rows

    return run


def number(text):
    found = NUMBER.match(text)
    return None if found is None else float(found.group().replace(",", "").replace("−", "-"))


def equal(cell, value, reason=None):
    """Whether a cell shows a value of the JSON: exactly by its hover text, or by its own where it has none.

    A row of no op shows its ``reason`` in the op's place.
    """
    text, hover = cell
    if value is None:
        return text in (("–", "unknown") if reason is None else (f"({reason})",))
    if isinstance(value, bool):
        return text == ("yes" if value else "no")
    if isinstance(value, int | float):
        shown = number(hover or text)
        if shown is not None and not hover and text.endswith("%"):
            shown /= 100
        return shown is not None and math.isclose(shown, value, rel_tol=1e-12)
    if isinstance(value, str):
        return value in (text, hover) or "\\" in text or len(value) > 300
    return True  # a list: its own tests are the table's


def check(grid, rows, columns):
    assert grid["count"] == len(rows), grid["id"]
    assert grid["rows"], grid["id"]
    named = {name.replace("_", " "): name for name in columns}
    compared = 0
    for index, cells in grid["rows"]:
        for heading, cell in zip(grid["headings"], cells, strict=True):
            name = named[heading]
            reason = rows[index].get("reason") if name == "op" else None
            assert equal(cell, rows[index][name], reason), (grid["id"], index, name, cell, rows[index][name])  # fmt: skip
            compared += 1
    return compared


def units(name):
    return {column.name: column.unit for column in reports()[name].holds.columns}


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
    titles = [card.get_attribute("title") or "" for card in seen.page.locator("a.card").all()]
    cards = [(*title.partition(" = ")[0].split("."), title.partition(" = ")[2]) for title in titles]
    names = sorted({report for report, _, _ in cards})
    rows = dict(zip(names, printed(profile, *names, "notes"), strict=False))
    compared = 0
    for report, column, exact in cards:
        if len(rows[report]) == 1:  # else a median, or the least, of several rows
            column, share, _ = column.partition(", as a share")
            value = rows[report][0][column]
            if share and value is not None:
                whole = "kernel_time" if column == "tensor_core_time" else "device_time"
                value /= rows[report][0][whole]
            assert equal((exact or "unknown", exact), value), (report, column, exact, value)
            compared += 1
    assert compared >= 3
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
    seen.go("operators?q=mm")
    found = [row for row in rows if "mm" in json.dumps(row)]
    assert 0 < len(found) < len(rows)
    assert float(sum(row["calls"] for row in found)) in sums()
    assert f"{len(found)} of {len(rows)} rows" in seen.text
    seen.fine()

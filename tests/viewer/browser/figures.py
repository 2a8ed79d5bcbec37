"""What the tables of a page show, and whether that is what a report says."""

from __future__ import annotations

import math
import re

from opscope.core.question.registry import reports
from opscope.core.vendors import WORDS
from opscope.reports.vendor_words import said
from opscope.viewer import fitting

#: The units of quantities, of which an unknown value says so.
UNITS = {
    "ns",
    "count",
    "fraction",
    "bytes",
    "FLOP",
    "bytes/s",
    "value",
    "FLOP/s",
    "FLOP/byte",
    "1/s",
    "J",
    "W",
    "ppm",
}
NUMBER = re.compile(r"[-−+]?[\d,]+(\.\d+)?(e[-+]?\d+)?")
#: Reads every grid of the page: its table, its headings, and of each drawn row the texts and their hover texts.
READ = """() => [...document.querySelectorAll('[role=grid]')].map((grid) => ({
  headings: [...grid.querySelectorAll('[role=columnheader]')].map((one) => one.textContent.replace(/[▲▼]/g, '').trim()),
  id: /^t-(.*)-(?:head|\\d+)-\\d+$/.exec(grid.querySelector('[role=columnheader]').id)[1],
  sorted: [...grid.querySelectorAll('[role=columnheader]')].some((one) => one.getAttribute('aria-sort') !== 'none'),
  count: Number(grid.getAttribute('aria-rowcount')) - 2,
  rows: [...grid.querySelectorAll('.body [role=row]')].map((row) => [Number(row.getAttribute('aria-rowindex')) - 2,
    [...row.querySelectorAll('[role=gridcell]')].map((cell) => [cell.innerText.trim(), (cell.querySelector('[title]') ?? cell).title])]),
}))"""


def number(text):
    found = NUMBER.match(text)
    return None if found is None else float(found.group().replace(",", "").replace("−", "-"))


def equal(cell, value, reason=None, blank=False):
    """Whether a cell shows a value of the JSON: exactly by its hover text, or by its own where it has none.

    A row of no op shows its ``reason`` in the op's place. ``blank``: a value that is not there may not apply.
    """
    text, hover = cell
    if value is None and blank and not text:
        return True
    if value is None:
        return text in (("–", "unknown") if reason is None else _by_vendors(f"({reason})"))
    if isinstance(value, bool):
        return text == ("yes" if value else "no")
    if isinstance(value, int | float):
        shown = number(hover or text)
        if shown is not None and not hover and text.endswith("%"):
            shown /= 100
        return shown is not None and math.isclose(shown, value, rel_tol=1e-12)
    if isinstance(value, str):
        return _by_vendors(value) & {text, hover} or "\\" in text or len(value) > 300
    return True  # a list: its own tests are the table's


def _by_vendors(text):
    """A text in the words of each vendor of devices."""
    return {text, *(said(text, vendor) for vendor in WORDS)}


def check(grid, rows, columns):
    """Compare the drawn rows of a grid with the rows of the JSON; return how many cells are compared.

    ``columns``: the names of all columns; a heading has a space where a name has an underline.
    """
    assert grid["count"] == len(rows), grid["id"]
    assert grid["rows"], grid["id"]
    ways = ((True, None), *((False, vendor) for vendor in WORDS))
    named = {
        called: name for name in columns for way in ways if (called := fitting.heading(name, *way))
    }
    named |= {name.replace("_", " "): name for name in columns}
    blank = {name for name in columns if no_quantity(columns[name], [row[name] for row in rows])}
    compared = 0
    for index, cells in grid["rows"]:
        for heading, cell in zip(grid["headings"], cells, strict=True):
            name = named[heading]
            reason = rows[index].get("reason") if name == "op" else None
            of_no_op = rows[index].get("op", "") is None and bool(rows[index].get("reason"))
            bare = of_no_op or name in blank or inapplicable(name, rows[index])
            shown = equal(cell, rows[index][name], reason, bare)
            assert shown, (grid["id"], index, name, cell, rows[index][name])
            compared += 1
    return compared


def inapplicable(name, row):
    """Whether a column means nothing for a row: counts of steps for a part of them, Tensor
    Cores without kernels."""
    if name in ("slow_steps", "left_out", "warm_up_steps"):
        return row.get("part", "step") != "step"
    return name.startswith("tensor_core_") and row.get(name.replace("tensor_core", "device")) == 0


def of_device(grid, rows):
    """The rows of the device that a grid of the page Memory shows, which has one device at a time."""
    if not grid["id"].startswith("memory") or "device" not in grid["headings"] or not grid["rows"]:
        return rows
    shown = number(grid["rows"][0][1][grid["headings"].index("device")][0])
    return [row for row in rows if row["device"] == (-1 if shown is None else shown)]


def no_quantity(unit, values):
    """Whether a column's values are words or numbers of something: one that is not there is blank."""
    kinds = {type(value) for value in values if value is not None}
    return unit in ("text", "number") or (unit not in UNITS and kinds <= {str, list})


def units(name):
    return {column.name: column.unit for column in reports()[name].holds.columns}


def cards(seen, printed):
    """Compare the cards of the overview with the reports' rows, ``printed(name)``; return how many are compared."""
    compared = 0
    for card in seen.page.locator("a.card").all():
        place, _, exact = (card.get_attribute("title") or "").partition(" = ")
        report, _, column = place.partition(".")
        column, share, _ = column.partition(", as a share")
        rows = printed(report)
        if len(rows) != 1:  # a median, or the least, of several rows
            continue
        value = rows[0][column]
        if share and value is not None:
            value /= rows[0]["kernel_time" if column == "tensor_core_time" else "device_time"]
        assert equal((exact or "unknown", exact), value), (report, column, exact, value)
        compared += 1
    return compared

"""``table``: rows of a table after search, conditions and sorting, with the sums of all matching rows.

Parameters: ``name`` (a report, also with parameters: ``short_kernels:below=5us``; ``each_op``,
``each_kernel``, ``each_copy``: a row for each that ran; ``diff_part`` … of Compare), ``from``, ``rows`` (at
most 1,000), ``sort`` (a column; ``-column``: the largest first), ``q`` (text that some text column holds, in
any case), ``in`` (the one column in which ``q`` is looked for), ``where`` (a JSON object: column → value or
null), ``steps``, ``device``, ``rank``. The answer is ``TablePage`` of ``web/src/parts``.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any, Final

import polars as pl

from opscope.core import progress
from opscope.core.analysis.ops.modules import REASON
from opscope.core.not_merged import NotMerged
from opscope.core.question import suggest
from opscope.reports import vendor_words
from opscope.viewer import fitting, rows, tables
from opscope.viewer.order import order
from opscope.viewer.question import Asked, BadParameter, Question

#: Rows of one answer, conditions of one question.
ROWS: Final = 1_000
#: The type of a column by its unit, for tables that a merged job lacks.
_TYPES: Final = {
    "text": pl.String, "yes/no": pl.Boolean,
    **dict.fromkeys(("ns", "count", "number", "bytes", "FLOP"), pl.Int64),
}  # fmt: skip
CONDITIONS: Final = 8


def answer(asked: Asked) -> dict[str, Any]:
    """Return the page of the table. Raises BadParameter, and Unanswered without a second run."""
    kind = tables.kind(asked.text("name", most=80))
    start = asked.number("from", 0, least=0, most=2**31)
    count = asked.number("rows", 100, least=0, most=ROWS)
    search, within = asked.text("q", ""), asked.text("in", "", most=200)
    where = _where(asked.text("where", "{}", most=20_000))
    sort = asked.text("sort", "", most=200)
    key_of_table = _place(kind, asked)
    kept = asked.viewed.tables
    frame = frame_of(kind, asked)
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    for name in (*where, *filter(None, (column, within))):
        if name not in frame.columns:
            raise BadParameter(suggest.unknown("column", name[:80], frame.columns))
    if column and frame.schema[column].is_nested():
        raise BadParameter(f"sort: {column} holds lists, which have no order")
    summed = [name for name in frame.columns if kind.additive(name)]

    def find() -> rows.Found:
        conditions = rows.equal(frame, where)
        contained = rows.containing(frame, search, within)
        if contained is not None:
            conditions.append(contained)
        by = None
        if column:
            by = kept.get(
                ("order", key_of_table, column, descending),
                lambda: order(frame, column, descending),
                lambda array: array.nbytes,
            )
        return rows.find(frame, conditions, by, summed)

    key = ("found", key_of_table, sort, search, within, json.dumps(where, sort_keys=True))
    rows_found: rows.Found = kept.get(key, find, lambda answer_kept: answer_kept.size)
    sums_of_all = kept.get(
        ("sums", key_of_table),
        lambda: rows.sums(frame, summed),
        lambda answer_kept: 64 * len(answer_kept),
    )
    if rows_found.rows is None:
        page = frame.slice(start, count)
    else:
        page = frame[rows_found.rows[start : start + count]]
    cpu_only = asked.profile.cpu_only
    without = kept.get(("unfit", key_of_table), lambda: fitting.unfit(frame, cpu_only))
    of = kept.get("vendor", lambda: vendor_words.vendor(asked.viewed.profile))
    return {
        "name": kind.name,
        "title": vendor_words.said(kind.title, of),
        "row": kind.holds.row,
        "empty": _make(kind, asked)[1] or vendor_words.said(kind.empty, of),
        "columns": [
            {
                "name": column.name,
                "unit": column.unit,
                "meaning": vendor_words.said(column.meaning, of),
                "kind": _kind(frame.schema[column.name]),
                "heading": fitting.heading(column.name, cpu_only, of),
                "fits": column.name not in without,
            }
            for column in kind.columns
        ],
        "shown": list(kind.shown) or frame.columns,
        "total": len(frame),
        "matching": rows_found.matching,
        "sums": dict(rows_found.sums),
        "sums_all": sums_of_all,
        "from": start,
        "values": {name: rows.values(page[name]) for name in page.columns},
        "words": words(page, of),
    }


def words(page: pl.DataFrame, vendor: str | None) -> dict[str, dict[str, str]]:
    """Return by column opscope's own texts in the words of a vendor, if these differ."""
    texts = {
        name: page[name]
        for name in vendor_words.OURS & set(page.columns)
        if page.schema[name] == pl.String
    }
    if "row_kind" in page.columns:  # in the tree of modules, rows of device time without an op
        texts["module"] = page.filter(pl.col("row_kind") == REASON)["module"]
    vendors = {}
    for name, column in texts.items():
        texts_of_vendor = {
            text: vendor_words.said(text, vendor)
            for text in column.drop_nulls().unique(maintain_order=True)
        }
        vendors[name] = {text: said for text, said in texts_of_vendor.items() if said != text}
    return {name: changed for name, changed in vendors.items() if changed}


def frame_of(kind: tables.Kind, asked: Asked) -> pl.DataFrame:
    """Return the whole table; without rows if a merged job lacks it. Raises BadParameter, and Unanswered
    without a second run."""
    return _make(kind, asked)[0]


def _make(kind: tables.Kind, asked: Asked) -> tuple[pl.DataFrame, str | None]:
    """Return the table, and the reason if a merged job lacks it."""

    def make() -> tuple[pl.DataFrame, str | None]:
        with progress.stage(f"making the table “{kind.title}”"):
            try:
                return _plain(kind.frame(asked)), None
            except NotMerged as error:
                types = {
                    column.name: _TYPES.get(column.unit, pl.Float64) for column in kind.columns
                }
                return pl.DataFrame(schema=types), str(error)

    table: tuple[pl.DataFrame, str | None] = asked.viewed.tables.get(
        ("frame", _place(kind, asked)), make, lambda made: int(made[0].estimated_size())
    )
    return table


def _place(kind: tables.Kind, asked: Asked) -> tuple[Hashable, ...]:
    """Return the cache key of the table; an analysis may add notes, which make a new table."""
    notes = len(asked.profile.notes()) if kind.name == "notes" else None
    return (kind.name, kind.asked, asked.selection, notes)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Return text as String, and null for NaN and infinity: a page shows them all as unknown."""
    changed = [pl.col(pl.Categorical, pl.Enum).cast(pl.String)]
    for name, dtype in frame.schema.items():
        if dtype.is_float() and not frame[name].is_finite().all():
            changed.append(pl.when(pl.col(name).is_finite()).then(pl.col(name)))
    return frame.with_columns(changed)


def _kind(dtype: pl.DataType) -> str:
    if dtype == pl.Boolean:
        return "yes/no"
    if dtype.is_nested():
        return "list"
    return "number" if dtype.is_numeric() else "text"


def _where(text: str) -> Mapping[str, Any]:
    try:
        conditions_read = json.loads(text)
        json.dumps(conditions_read, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        raise BadParameter("the parameter where is not JSON") from None
    if not isinstance(conditions_read, dict):
        raise BadParameter(
            "the parameter where is not a JSON object: a column's name with the value it must have"
        )
    if len(conditions_read) > CONDITIONS:
        raise BadParameter(
            f"the parameter where has {len(conditions_read)} conditions; at most {CONDITIONS} are taken"
        )
    if any(isinstance(value, (dict, list)) for value in conditions_read.values()):
        raise BadParameter("where: a value is a text, a number, true, false or null")
    return conditions_read


QUESTION = Question(name="table", answer=answer)

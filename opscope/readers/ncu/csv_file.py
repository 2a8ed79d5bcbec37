"""Read ncu's CSV: the raw page (a column a metric, a row of units), the details page (a row a metric). Lines
that the program and ncu itself printed come before the table, or in it: they are left out. Rows are read by
Polars; Python looks at distinct texts only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core import progress
from opscope.core.counter_permission import REMEDY, denied
from opscope.readers.errors import BadInput
from opscope.readers.rows import csv_rows

from .measured import LAUNCHES, VALUES, Measured, Open
from .nvtx import PUSHED, STARTED, pushed, started

#: Prefixes are decimal: 1,024 bytes print as 1.02 Kbyte.
_PREFIX: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_WORDS: Final = "bytes?|B|insts?|sectors?|cycles?|requests?|warps?|threads?|blocks?|hz|Hz|FLOPs?|op"
_PREFIXED: Final = re.compile(rf"([KMGTP])({_WORDS})\Z")
#: Times as ns.
_NS: Final = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
}  # fmt: skip
#: Characters besides commas and points that separate groups of three digits.
_SPACES: Final = r"[\u0020\u00a0\u2009\u202f'’]"
#: A number whose comma can only be a decimal sign.
_DECIMAL_COMMA: Final = (
    r"^[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),(?:\d{1,2}|\d{4,})$|^[+-]?\d{1,3}(?:\.\d{3})+,\d+$"
)
_DECIMAL_POINT: Final = r"^[+-]?\d{1,3}(?:,\d{3})+\.\d+$|^[+-]?\d+\.(?:\d{1,2}|\d{4,})$"


def factor(unit: str) -> float:
    """Return the factor that converts a value in ``unit`` to base units: bytes, ns, per second."""
    above, slash, below = unit.strip().partition("/")
    return _factor(above, per=False) / (_factor(below, per=True) if slash else 1.0)


def _factor(word: str, per: bool) -> float:
    word = word.strip()
    if word in _NS:
        return _NS[word] * (1e-9 if per else 1.0)
    match = _PREFIXED.match(word)
    return _PREFIX[match.group(1)] if match else 1.0


def decimal_comma(texts: pl.Series) -> bool:
    """Return whether the numbers have a comma before their fraction, as a locale may write them.

    ``1,234`` alone is a thousand; a comma is decimal if a number shows it and none shows the contrary.
    """
    bare = texts.drop_nulls().str.strip_chars()
    return bool(bare.str.contains(_DECIMAL_COMMA).any()) and not bool(
        bare.str.contains(_DECIMAL_POINT).any()
    )


def numbers(texts: pl.Series, comma: bool) -> pl.Series:
    """Return the numbers in ``texts``; null for texts that are not numbers (``n/a``, a word). Text in
    parentheses after a number, such as the values of its instances, is left out."""
    bare = texts.str.strip_chars().str.replace(r"\s*[({].*$", "").str.strip_chars(" %")
    bare = bare.str.replace_all(_SPACES, "")
    if comma:
        bare = bare.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    else:
        bare = bare.str.replace_all(",", "", literal=True)
    floats = bare.cast(pl.Float64, strict=False)
    numbers_read: pl.Series = floats.set(~floats.is_finite().fill_null(True), None)
    return numbers_read


_HEADER: Final = re.compile(
    r'^"?ID"?([,;\t])"?(?:Process ID|Kernel Name|Process Name)', re.MULTILINE
)
#: The header of ``--print-summary``, which has no single launches.
_SUMMARY: Final = re.compile(r'^"?[^\n]*"?Invocations"?[,;\t][^\n]*"?Metric Name"?', re.MULTILINE)
_SAYS: Final = re.compile(r"^==(PROF|ERROR|WARNING)== (.*)$", re.MULTILINE)
#: Columns that describe a launch, under all names that versions of ncu gave them.
_ABOUT: Final = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup",
    "Result Type",
    "Invocations", "API Name", PUSHED, STARTED,
}  # fmt: skip
#: Names of a kernel's duration in the sections of the details page.
_LABELS: Final = {"Duration": "gpu__time_duration.sum"}
_NAME: Final = "device__attribute_display_name"
_NUMBERED: Final = "kernels of ncu with another's number and other values: counted each"
_OTHER: Final = "kernels of ncu with two values of a metric, the first taken: counted once"


def read_csv(path: Path) -> Measured:
    """Return the launches in ncu's CSV. Raises BadInput, with ncu's own message if it measured nothing."""
    try:
        text = _decode(path.read_bytes())
        progress.read_whole(path)
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Measured:
    """Return the launches in the text of ncu's CSV; ``path`` is named in errors. Raises BadInput."""
    said = _SAYS.findall(text)
    header = _HEADER.search(text)
    if header is None and _SUMMARY.search(text):
        raise BadInput(
            path, "a summary of ncu has no single kernels: export it without --print-summary"
        )
    if header is None or (errors := _nothing(said, text, header.start())):
        raise BadInput(path, _why_none(said) if header is None else errors)
    every, left_out = _table(text, header.start(), header.group(1), path)
    # a launch has a number of its own: a repeated row, as in joined tables, is not another launch
    frame = every.unique(maintain_order=True)
    if "Metric Name" not in frame.columns:
        launches, rows, values, lost = _wide(frame)
    else:
        launches, rows, values, lost = _long(frame)
    if launches.is_empty():
        raise BadInput(path, _why_none(said))
    # sections repeat metrics: each counts once
    once = values.unique(["launch", "name"], keep="first", maintain_order=True)
    differing = values.join(once, on=["launch", "name", "value"], how="anti")["launch"].n_unique()
    measured = Measured(launches, once, notes=[])
    measured.stacks, places = _stacks(rows)
    measured.launches = launches.with_columns(pl.Series("stack", places, pl.Int64))
    measured.devices = _devices(rows, launches)
    for message, count, severity in (
        ("lines of other programs in ncu's table were left out", left_out, "info"),
        ("values of ncu that are no numbers were left out", lost, "info"),
        (_NUMBERED, len(launches) - launches.n_unique(["host", "pid", "id"]), "warning"),
        (_OTHER, differing, "warning"),
        (
            "rows that ncu's table holds again, equal in all columns: counted once",
            len(every) - len(frame),
            "warning",
        ),
    ):
        if count:
            measured.notes.append((severity, message, count))
    for kind, message in said:
        if kind != "PROF":
            message = REMEDY if denied(message) else message
            measured.notes.append(("warning", f"ncu: {message.strip()[:200]}", 1))
    return measured


def _decode(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _nothing(said: list[tuple[str, str]], text: str, start: int) -> str:
    """Return an error if nothing follows the header's line; else an empty text."""
    _, _, rest = text[start:].partition("\n")
    return "" if rest.strip() else _why_none(said)


def _why_none(said: list[tuple[str, str]]) -> str:
    if any(denied(message) for _, message in said):
        return f"ncu measured nothing: {REMEDY}"
    errors = [message.strip() for kind, message in said if kind != "PROF"]
    if errors:
        return f"ncu measured nothing: {errors[0][:300]}"
    return "ncu's CSV has no kernels (was ncu given --csv, and is a kernel launched?)"


def _table(text: str, start: int, separator: str, path: Path) -> tuple[pl.DataFrame, int]:
    """Return the table from its header on, all as text, and the number of lines that are not rows."""
    lines = text[start:].splitlines()
    quoted = lines[0].startswith('"')
    # a row begins with its number, or with an empty cell in the row of units
    begins = re.compile(
        r'"\d*"' + re.escape(separator) if quoted else rf"\d*{re.escape(separator)}"
    )
    rows = [line for line in lines[1:] if begins.match(line)]
    blank = sum(not line.strip() for line in lines[1:])
    source = "\n".join([lines[0], *rows]).encode("utf-8", "replace")
    try:
        frame, uneven = csv_rows(source, separator)
    except pl.exceptions.PolarsError as error:
        raise BadInput(
            path, f"ncu's table is damaged: {str(error).splitlines()[0][:200]}"
        ) from error
    return frame, len(lines) - 1 - len(rows) - blank + uneven


def _integer(name: str, frame: pl.DataFrame, otherwise: str | None = None) -> pl.Series:
    if name not in frame.columns:
        name = otherwise or name
    integers: pl.Series = (
        _text(name, frame).str.replace_all(r"[,.\s]", "").cast(pl.Int64, strict=False)
    )
    return integers


def _text(name: str, frame: pl.DataFrame) -> pl.Series:
    text_column: pl.Series = pl.Series(name, [None], pl.String)
    return frame[name] if name in frame.columns else text_column.new_from_index(0, len(frame))


def _size(name: str, frame: pl.DataFrame) -> pl.Series:
    """Return sizes as ``x,y,z`` for ``(64, 64, 1)``; null for other texts."""
    sizes = _text(name, frame).str.extract_groups(
        r"\(?\s*(\d+)\s*[,x]\s*(\d+)\s*[,x]\s*(\d+)\s*\)?"
    )
    parts = sizes.struct.unnest()
    return pl.select(pl.concat_str(parts.get_columns(), separator=",")).to_series()


def _launches(rows: pl.DataFrame) -> pl.DataFrame:
    name = _text("Kernel Name", rows).fill_null(_text("API Name", rows))
    columns = {
        "launch": pl.int_range(len(rows), eager=True, dtype=pl.Int64),
        "pid": _integer("Process ID", rows),
        "program": _text("Process Name", rows),
        "host": _text("Host Name", rows),
        "id": _integer("ID", rows),
        "name": name,
        "context": _integer("Context", rows),
        "stream": _integer("Stream", rows),
        "device": _integer("Device", rows, "launch__device_id"),
        "cc": _text("CC", rows),
        "grid": _size("Grid Size", rows),
        "block": _size("Block Size", rows),
        "stack": pl.Series([None], dtype=pl.Int64).new_from_index(0, len(rows)),
    }
    return pl.DataFrame([column.alias(key) for key, column in columns.items()], schema=LAUNCHES)


def _wide(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, int]:
    """Return the launches, their rows, their values, and how many cells are not numbers."""
    ids = _integer("ID", frame)
    metrics = [name for name in frame.columns if name not in _ABOUT]
    units = frame.filter(ids.is_null())
    unit = units.row(0, named=True) if len(units) else {}
    rows = frame.filter(ids.is_not_null())
    launches = _launches(rows)
    comma = any(decimal_comma(rows[name]) for name in metrics)
    parts, lost = [], 0
    for name in metrics:
        texts = rows[name]
        values_read = numbers(texts, comma) * factor(unit.get(name) or "")
        filled = texts.fill_null("").str.strip_chars() != ""
        lost += int((filled & values_read.is_null()).sum())
        is_read = values_read.is_not_null()
        parts.append(
            pl.DataFrame(
                {"launch": launches["launch"].filter(is_read), "value": values_read.filter(is_read)}
            ).select("launch", pl.lit(name.strip()).alias("name"), "value")
        )
    values = pl.concat(parts) if parts else pl.DataFrame(schema=VALUES)
    return launches, rows, values.sort("launch", maintain_order=True), lost


def _long(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, int]:
    rows = frame.with_columns(
        _integer("ID", frame).alias("ID"), _integer("Process ID", frame).alias("Process ID")
    )
    rows = rows.filter(pl.col("ID").is_not_null())
    key = ["Process ID", "ID"]
    first = rows.unique(key, keep="first", maintain_order=True)
    first = first.with_columns(pl.col("ID", "Process ID").cast(pl.String))
    launches = _launches(first)
    numbered = launches.select(
        "launch", pl.col("pid").alias("Process ID"), pl.col("id").alias("ID")
    )
    named = rows.filter(pl.col("Metric Name").fill_null("").str.strip_chars() != "")
    named = named.join(numbered, on=key, how="left", nulls_equal=True, maintain_order="left")
    texts = (
        named["Metric Value"] if "Metric Value" in named.columns else _text("Metric Value", named)
    )
    unit = _text("Metric Unit", named).fill_null("")
    factors = {unit_name: factor(unit_name) for unit_name in unit.unique().to_list()} or {"": 1.0}
    scale = unit.replace_strict(list(factors), list(factors.values()), return_dtype=pl.Float64)
    values_read = numbers(texts, decimal_comma(texts)) * scale
    named = named.with_columns(_distinct(named).alias("Metric Name"))
    labels = {
        metric_name: _LABELS.get(metric_name, metric_name).strip()
        for metric_name in named["Metric Name"].unique().to_list()
    }
    values = pl.DataFrame(
        {
            "launch": named["launch"],
            "name": named["Metric Name"].replace_strict(list(labels), list(labels.values())),
            "value": values_read,
        }
    ) if len(named) else pl.DataFrame(schema=VALUES)  # fmt: skip
    filled = texts.fill_null("").str.strip_chars() != ""
    lost = int((filled & values_read.is_null()).sum())
    return launches, first, values.filter(pl.col("value").is_not_null()), lost


def _distinct(named: pl.DataFrame) -> pl.Series:
    """Return the names of metrics, with the section's name before ambiguous ones. The details page has
    labels, and "Memory Throughput" is a share in one section and a rate in another."""
    if "Section Name" not in named.columns:
        return named["Metric Name"]
    pairs = named.select("Section Name", "Metric Name", _text("Metric Unit", named).alias("unit"))
    several = (
        pairs.unique()
        .filter(~pl.col("Metric Name").str.contains("__", literal=True))
        .group_by("Metric Name")
        .agg(pl.len().alias("meanings"))
        .filter(pl.col("meanings") > 1)["Metric Name"]
    )
    own = pl.col("Metric Name").is_in(several.implode())
    full = pl.format("{}: {}", pl.col("Section Name").fill_null("?"), "Metric Name")
    return named.select(pl.when(own).then(full).otherwise("Metric Name")).to_series()


def _stacks(rows: pl.DataFrame) -> tuple[list[tuple[Open, ...]], list[int | None]]:
    """Return the distinct lists of open ranges, and the index of each launch's list."""
    cells = [_text(name, rows).fill_null("") for name in (PUSHED, STARTED)]
    stack_numbers: dict[tuple[str, str], int] = {}
    stacks: list[tuple[Open, ...]] = []
    places: list[int | None] = []
    for pair in zip(*(cell.to_list() for cell in cells), strict=True):
        if not any(pair):
            places.append(None)
            continue
        if pair not in stack_numbers:
            stack_numbers[pair] = len(stacks)
            stacks.append((*started(pair[1]), *pushed(pair[0])))
        places.append(stack_numbers[pair])
    return stacks, places


def _devices(rows: pl.DataFrame, launches: pl.DataFrame) -> dict[int, dict[str, object]]:
    """Return the name of each device, if the attributes of devices were written."""
    names = _text(_NAME, rows)
    if "Metric Name" in rows.columns or not names.count():
        return {}
    both = zip(launches["device"].to_list(), names.to_list(), strict=True)
    return {0 if number is None else number: {"name": name} for number, name in both if name}

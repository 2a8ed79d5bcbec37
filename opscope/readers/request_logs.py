"""Read a server's log of its requests: a CSV, spans of OpenTelemetry, or the lines that vLLM prints.

A CSV has a line for each request: ``id``, ``arrival``, ``first_token``, ``end`` and, if known,
``prompt_tokens``, ``output_tokens``; times as ``time_columns`` reads them. vLLM's lines have times to the
second, without year and zone: they are taken as UTC in the year of the trace.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.tables.trace import Trace, conform
from opscope.readers.errors import BadInput
from opscope.readers.time_columns import base_name, read_times

#: Larger files are refused: a line of a CSV has some 100 bytes, a span 2 kB.
_LARGEST: Final = 1 << 30
#: More tokens than any request has: such a number is wrong.
_MOST_TOKENS: Final = 1 << 32
#: The columns of a CSV, with the names that tools use.
_NAMES: Final = {
    "id": ("id", "request_id", "request", "rid"),
    "arrival": ("arrival", "arrival_time", "start", "start_time"),
    "first_token": ("first_token", "first_token_time"),
    "finished": ("end", "end_time", "finished", "finish_time"),
    "queue": ("queue", "queue_time"),
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
}
_TIMES: Final = ("arrival", "first_token", "finished")
_TOKENS: Final = ("prompt_tokens", "output_tokens")
#: A line of vLLM's log about one request: month, day, time, event, request, the rest.
_VLLM: Final = (
    r"(?:INFO|DEBUG) (\d\d)-(\d\d) (\d\d:\d\d:\d\d) \[?[\w./]+:\d+\] "
    r"(Received request|Added request|Generated response|Finished request|Aborted request)s?:? ([^\s:]+?)\.?"
    r"((?: \(streaming (?:delta|complete)\))?)(?:[:\s].*)?$"
)
#: The most names of fields that a note lists.
_NAMED: Final = 8
Notes = list[tuple[str, str, int]]


def with_requests(trace: Trace, path: str | os.PathLike[str]) -> Trace:
    """Return ``trace`` with the requests in ``path`` on its clock. Raises BadInput."""
    file = Path(path)
    text = text_of(file)
    notes: Notes = []
    offset, span = unix_offset(trace), span_of(trace)
    year = None if offset is None or span is None else _moment(span[0] + offset).year
    if text.lstrip()[:1] in ("{", "["):
        from opscope.readers import request_spans  # lazy: few have spans

        table, unread, others = request_spans.read(file, text)
        _tell_unread(file, unread, notes)
        if others:
            notes.append(("info", f"{file.name}: spans that are no requests were left out", others))
    elif _is_vllm(text):
        table = _vllm(file, text, year, notes)
    else:
        table = _csv(file, text, notes)
    table = _sound(file, conform("requests", table), notes)
    made = trace.replace(requests=_on_clock(file, table, offset, span, notes))
    for severity, what, how_many in notes:
        made.note(severity, what, how_many)
    return made


def text_of(file: Path) -> str:
    try:
        if file.is_dir():
            raise BadInput(file, "is a folder: a file of requests is needed")
        if file.stat().st_size > _LARGEST:
            raise BadInput(
                file, f"is larger than {_LARGEST >> 30} GiB: select the requests of the trace"
            )
        return file.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise BadInput(file, error.strerror or str(error)) from None


# ------------------------------------------------------------------------------------------------- formats


def _csv(file: Path, text: str, notes: Notes) -> pl.DataFrame:
    header = text[: text.find("\n")] if "\n" in text else text
    separator = max(",;\t", key=header.count)
    try:
        rows = pl.read_csv(
            text.encode(), separator=separator, infer_schema=False, truncate_ragged_lines=True
        )
        rows = rows.rename({name: name.strip().strip("#").strip().lower() for name in rows.columns})
    except pl.exceptions.PolarsError as error:
        raise BadInput(file, f"is no CSV of requests: {error}") from None
    columns = {}
    for column, names in _NAMES.items():
        given = [name for name in rows.columns if name in names or base_name(name) in names]
        if given:
            columns[column] = rows[given[0]]
    if "arrival" not in columns or not {"first_token", "finished"} & columns.keys():
        raise BadInput(
            file,
            "has no requests: a CSV with id, arrival, first_token and end, spans of OpenTelemetry, or"
            " vLLM's log is needed",
        )
    used = {column.name for column in columns.values()}
    _tell_unread(file, [name for name in rows.columns if name not in used], notes)
    number = pl.Series([str(line) for line in range(1, len(rows) + 1)], dtype=pl.String)
    columns["id"] = columns.get("id", number).fill_null("line " + number)
    times = [columns[name] for name in _TIMES if name in columns]
    read = {
        name: column
        if name == "id"
        else read_times(column, times if name in _TIMES else ())
        if name in (*_TIMES, "queue")
        else _whole_numbers(column)
        for name, column in columns.items()
    }
    wrong = sum(
        int((read[name].is_null() & (columns[name].str.strip_chars().str.len_chars() > 0)).sum())
        for name in columns
    )
    if wrong:
        notes.append(
            (
                "warning",
                f"{file.name}: values that are no time or number: they are not known",
                wrong,
            )
        )
    return pl.DataFrame({name: column.alias(name) for name, column in read.items()})


def _whole_numbers(texts: pl.Series) -> pl.Series:
    """Return the integers in texts; tools that lack one value of a column write all as ``12.0``."""
    digits = texts.str.strip_chars().str.replace(r"\.0*$", "")
    numbers: pl.Series = digits.cast(pl.Int64, strict=False)
    return numbers


def _is_vllm(text: str) -> bool:
    begin = pl.Series(text[: 1 << 16].splitlines(), dtype=pl.String)
    return bool(begin.str.contains(_VLLM).any()) or "Received request " in text[: 1 << 20]


def _vllm(file: Path, text: str, year: int | None, notes: Notes) -> pl.DataFrame:
    """Return the requests of vLLM's log (``--enable-log-requests``); it has their ends only with
    ``--enable-log-outputs``."""
    lines = pl.DataFrame({"line": text.splitlines()}, schema={"line": pl.String})
    names = ("month", "day", "clock", "what", "id", "stream")
    group = pl.col("line").str.extract_groups(_VLLM).struct
    rows = lines.filter(pl.col("line").str.contains(_VLLM)).select(
        group.field(str(number)).alias(name) for number, name in enumerate(names, 1)
    )
    if year is None or rows.is_empty():
        raise BadInput(
            file,
            "is vLLM's log, whose times have no year, and the trace has no Unix time: use a CSV or spans"
            if year is None
            else "has no lines of vLLM that tell requests (--enable-log-requests)",
        )
    date = pl.concat_str([pl.lit(f"{year}"), "month", "day"], separator="-")
    at = read_times(rows.select((date + " " + pl.col("clock")).alias("at")).to_series())
    is_delta = pl.col("stream").str.contains("delta")
    ended = pl.col("what").is_in(["Generated response", "Finished request"]) & ~is_delta
    table = (
        rows.with_columns(at)
        .group_by("id", maintain_order=True)
        .agg(
            pl.col("at")
            .filter(pl.col("what").is_in(["Received request", "Added request"]))
            .min()
            .alias("arrival"),
            pl.col("at").filter(is_delta).min().alias("first_token"),
            pl.col("at").filter(ended).max().alias("finished"),
        )
    )
    notes.append(
        (
            "warning",
            f"{file.name}: vLLM's log has times to the second, without year and zone: taken as {year}, UTC",
            len(table),
        )
    )
    return table


def _tell_unread(file: Path, names: list[str], notes: Notes) -> None:
    """Note which fields of the file are not read."""
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        shown = ", ".join(name[:60] for name in sorted(names)[:_NAMED])
        notes.append(("info", f"{file.name}: fields that are not read: {shown}{more}", len(names)))


# --------------------------------------------------------------------------------------------------- checks


def _sound(file: Path, table: pl.DataFrame, notes: Notes) -> pl.DataFrame:
    """Return the valid requests in order of arrival, each with times in sequence."""
    tokens = [
        pl.when(pl.col(name).is_between(0, _MOST_TOKENS)).then(pl.col(name)).alias(name)
        for name in _TOKENS
    ]
    table = table.with_columns(*tokens, pl.when(pl.col("queue") >= 0).then("queue"))
    first = pl.coalesce("first_token", "arrival")
    last = pl.coalesce("finished", first)
    ordered = pl.col("arrival").is_not_null() & (pl.col("arrival") <= first) & (first <= last)
    kept = table.filter(ordered.fill_null(False))
    if len(kept) < len(table):
        notes.append(
            (
                "warning",
                f"{file.name}: requests without an arrival, or with times out of order, were left out",
                len(table) - len(kept),
            )
        )
    once = kept.unique("id", keep="first", maintain_order=True)
    if len(once) < len(kept):
        notes.append(
            (
                "warning",
                f"{file.name}: requests that are there twice count once",
                len(kept) - len(once),
            )
        )
    if once.is_empty():
        raise BadInput(file, "has no request with an arrival and times that follow it")
    return once.sort("arrival", "id")


def _on_clock(
    file: Path, table: pl.DataFrame, offset: int | None, span: tuple[int, int] | None, notes: Notes
) -> pl.DataFrame:
    """Return the requests with times on the trace's clock, and note if that is impossible. They are Unix
    times if the trace has these, else the trace's own. No other offset is tried: batches look alike."""
    moved = table.with_columns(pl.col(*_TIMES) - (offset or 0))
    if span is None or _overlaps(moved, span):
        if offset is None:
            what = "the trace has no Unix time: the times are taken as its own"
            notes.append(("info", f"{file.name}: {what}", len(table)))
        return moved
    if offset and _overlaps(table, span):
        what = "the times are not those of the trace in Unix time, and taken as its own"
        notes.append(("warning", f"{file.name}: {what}", len(table)))
        return table
    last = pl.coalesce("finished", "first_token", "arrival").max()
    if offset is None:
        what = "the trace has no Unix time, and none lies within it by its own clock"
    else:
        low, high = table.select(pl.col("arrival").min(), last.alias("last")).row(0)
        times = (low, high, span[0] + offset, span[1] + offset)
        what = "they are of {} to {}, the trace of {} to {} (UTC)".format(*map(_shown, times))
    notes.append(("warning", f"{file.name}: no request overlaps the trace: {what}", len(table)))
    return moved


def _overlaps(table: pl.DataFrame, span: tuple[int, int]) -> bool:
    last = pl.coalesce("finished", "first_token", "arrival")
    return not table.filter((pl.col("arrival") <= span[1]) & (last >= span[0])).is_empty()


def unix_offset(trace: Trace) -> int | None:
    """Return the offset from the trace's times to Unix times (ns); None if there is none, or several."""
    offsets = trace["clocks"]["to_unix_ns"].drop_nulls().unique().to_list()
    return int(offsets[0]) if len(offsets) == 1 else None


def span_of(trace: Trace) -> tuple[int, int] | None:
    """Return the first and the last time (ns) of ranges and kernels; None without any."""
    tables = [trace[name].select("start", "end") for name in ("ranges", "kernels", "memops")]
    row = pl.concat(tables).select(pl.col("start").min(), pl.col("end").max()).row(0)
    return None if None in row else row


def _shown(time: int | None) -> str:
    return "?" if time is None else f"{_moment(time):%Y-%m-%d %H:%M:%S}"


def _moment(time: int) -> datetime:
    within = min(max(time // 1_000_000_000, 0), 253_402_300_799)
    return datetime.fromtimestamp(within, timezone.utc)

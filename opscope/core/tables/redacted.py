"""Make a trace safe to send: remove secrets from its texts and, on request, the facts on who recorded it
and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import polars as pl

from opscope.core import progress, redaction

from .trace import Trace

#: Columns of texts that do not come from a framework: a private copy has no folders in them.
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "processes": ("name", "framework"),
    "threads": ("name",),
    "ranges": ("attrs",),
    "kernels": ("attrs",),
    "host_samples": ("stack", "call"),
    "allocations": ("stack",),
    "memory_blocks": ("stack",),
    "notes": ("what",),
}
#: The folders of an absolute path in the source line of a range text: `` @/home/me/train.py:42``.
_SOURCE_FOLDER: Final = r'( @| < )("?)(?:[A-Za-z]:[\\/]|/|~/|\\\\)(?:[^:"<]*[\\/])'


def redacted(trace: Trace, private: bool = False) -> Trace:
    """Return ``trace`` with the secrets that ``redaction`` recognises hidden, in its tables and its origin.

    ``private`` also removes arguments, the names of hosts and machines, devices' serial numbers and the
    folders of absolute paths. Names of ops, layers and kernels stay.
    """
    text = redaction.private_text if private else redaction.redact_text
    rows = {table: len(trace[table]) for table in trace.present}
    tables: dict[str, pl.DataFrame] = {}
    with progress.stage("redacting texts", sum(rows.values()), progress.ROWS) as stage:
        for table in rows:
            own = _TEXTS.get(table, ())
            columns = trace[table].select(pl.col(pl.String, pl.Categorical)).columns
            others = [column for column in columns if column not in own]
            tables[table] = _change(_change(trace[table], own, text), others, redaction.redact_text)
            if table == "ranges" and private:
                tables["ranges"] = _ranges(tables["ranges"], text)
            stage.add(rows[table])
    if trace.has("specs") and private:
        tables["specs"] = tables["specs"].with_columns(_without_folders("text"))
    if private:
        tables |= _nameless(trace, tables)
    changed = trace.replace(**tables)
    changed.origin = _origin(trace.origin, text, private)
    return changed


def hide_in_origin(origin: dict[str, Any]) -> dict[str, Any]:
    """Return a trace's origin with the secrets in its texts and commands hidden."""
    hidden: dict[str, Any] = _origin(origin, redaction.redact_text, False)
    return hidden


def _change(
    frame: pl.DataFrame, columns: Sequence[str], text: Callable[[str], str]
) -> pl.DataFrame:
    """Return ``frame`` with ``text`` applied to each distinct value of the columns."""
    for column in columns:
        values = frame[column].cast(pl.String).drop_nulls().unique()
        new = {old: text(old) for old in values.to_list()}
        new = {old: value for old, value in new.items() if old != value}
        if any(value.endswith(redaction.CUT_END) for value in new.values()):
            new = _number_equals(new)
        if new:
            dtype = frame.schema[column]
            frame = frame.with_columns(pl.col(column).cast(pl.String).replace(new).cast(dtype))
    return frame


def _number_equals(new: Mapping[str, str]) -> dict[str, str]:
    """Return the new texts; texts that became equal because their ends were cut are numbered."""
    times: Counter[str] = Counter()
    apart = {}
    for old, value in new.items():
        times[value] += 1
        first = not value.endswith(redaction.CUT_END) or times[value] == 1
        apart[old] = value if first else f"{value} #{times[value]}"
    return apart


def _ranges(frame: pl.DataFrame, text: Callable[[str], str]) -> pl.DataFrame:
    """Remove folders from range texts: in a framework's ops only from source lines, in other texts
    everywhere."""
    domain = pl.col("domain").cast(pl.String)
    call = (domain.str.starts_with("opscope.") & (domain != "opscope.user")).fill_null(False)
    shown = pl.when(call).then(_without_folders("text")).otherwise(pl.col("text"))
    frame = frame.with_columns(shown.alias("text"))
    rows = frame.select(call.alias("call"))["call"]
    others = _change(frame.filter(~rows).select("text"), ("text",), text)["text"].cast(pl.String)
    texts = frame["text"].cast(pl.String).scatter((~rows).arg_true(), others)
    return frame.with_columns(texts.cast(frame.schema["text"]).alias("text"))


def _without_folders(column: str) -> pl.Expr:
    return (
        pl.col(column).cast(pl.String).str.replace_all(_SOURCE_FOLDER, "$1$2").cast(pl.Categorical)
    )


def _nameless(trace: Trace, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return tables with hosts and machines numbered by process order, and devices without serial numbers."""
    out: dict[str, pl.DataFrame] = {}
    processes = tables.get("processes", trace["processes"])
    out["processes"] = _number(processes, "host", "host")
    if trace.has("clocks"):
        out["clocks"] = _number(trace["clocks"], "machine", "machine")
    if trace.has("devices"):
        out["devices"] = trace["devices"].with_columns(pl.lit(None, pl.String).alias("uuid"))
    return {name: frame for name, frame in out.items() if trace.has(name)}


def _number(frame: pl.DataFrame, column: str, word: str) -> pl.DataFrame:
    names = frame[column].drop_nulls().unique(maintain_order=True).to_list()
    new = {name: f"{word}-{number}" for number, name in enumerate(names, 1)}
    return frame.with_columns(pl.col(column).replace(new)) if new else frame


def _origin(value: Any, text: Callable[[str], str], private: bool) -> Any:
    """Return a value of the origin redacted, to any depth."""
    if isinstance(value, dict):
        return {
            key: _entry(key, item, text, private)
            for key, item in value.items()
            if not (private and key == "source_files")  # paths, and lists and mappings of them
        }
    if isinstance(value, (list, tuple)):
        return [_origin(item, text, private) for item in value]
    return text(value) if isinstance(value, str) else value


def _entry(key: Any, value: Any, text: Callable[[str], str], private: bool) -> Any:
    if key == "command" and isinstance(value, (list, tuple)):
        words = [str(word) for word in value]
        return list(redaction.private(words) if private else redaction.redact(words))
    if private and key in ("host", "hostname", "user", "boot", "cwd", "uuid"):
        return None
    if isinstance(value, str) and isinstance(key, str) and redaction.is_secret(key):
        return redaction.redact([f"{key}={value}"])[0].removeprefix(f"{key}=")
    return _origin(value, text, private)

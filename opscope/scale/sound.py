"""Refuse a partial that this version would not have written: like a trace, it may come from a stranger."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import polars as pl

from opscope.core.analysis.device.short_kernels import BOUNDS
from opscope.core.analysis.summary.summary import OF_RANK
from opscope.core.question import units
from opscope.core.schema import TABLES
from opscope.core.tables.columns import as_text
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile
from opscope.readers.errors import BadInput

#: The integers in the summary of a CPU run.
_OF_CPU: Final = frozenset(("self_time", "outside", "cpu_busy", "known", "sized"))
#: Columns that may not be null, because they are added, compared or sorted.
_NEVER_NULL: Final[Mapping[str, tuple[str, ...]]] = {
    "devices": ("busy", "kept"),
    "device_spans": ("since", "length"),
    "bounds": ("start", "end"),
    "op_totals": ("op", "calls"),
    "kernel_sums": ("calls", "total"),
    "kernel_lengths": ("place", "calls", "total"),
    "unattributed": ("kernels", "copies", "time"),
    "gaps": ("time",),
    "trace.notes": ("severity", "what", "how_many"),
}
#: Columns whose values may not be negative, or so large that a sum of many does not fit into 64 bits.
_SUMMED: Final = ("busy", "length", "calls", "total", "time", "kernels", "copies", "how_many")
_MOST: Final = 1 << 56
#: Limit for the distance of times (ns) from 0.
_LATEST: Final = 1 << 62
#: Highest process or clock number, as a multiple of the number of processes or clocks.
_SPARSE: Final = 16
_TRACE: Final = "trace."
_NUMBERED: Final = {"process": f"{_TRACE}processes", "clock_domain": f"{_TRACE}clocks"}


class _Lost(msgspec.Struct):
    path: str
    what: str


class _Origin(msgspec.Struct):
    files: int = 1
    failed: list[_Lost] = []
    paths: list[str] = []


class _Source(msgspec.Struct):
    place: str
    version: str | None
    size: int | None
    gpu: str | None


class _Identity(msgspec.Struct):
    events: tuple[int, str]
    steps: tuple[int, int] | None = None
    graphs: str | None = None


class _Costs(msgspec.Struct):
    launched: int
    all: int


class _About(msgspec.Struct):
    """The fields of a partial's first row that are read, beside its version."""

    origin: _Origin
    present: list[str]
    cpu_only: bool
    on_gpu: bool
    ranges: int
    domains: list[str]
    calls: list[str]
    summary: dict[str, int | None]
    missing_of: _Costs
    compiling: int
    source: _Source
    content: str
    identity: _Identity | None = None  # older versions did not write it


def check(shown: str, about: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]) -> None:
    """Raise BadInput for a partial with facts, tables, columns or numbers that this version does not
    write."""
    try:
        msgspec.convert(about, _About)
    except (msgspec.ValidationError, UnicodeError) as error:  # also half a character
        raise BadInput(shown, f"damaged: {error}") from error
    schemas = _schemas()
    common, *kinds = _figures()
    if set(about["summary"]) - common not in kinds or common - set(about["summary"]):
        raise BadInput(shown, "damaged: its summary lacks figures or has unknown ones")
    if any(value is not None and not 0 <= value <= _LATEST for value in about["summary"].values()):
        raise BadInput(shown, "damaged: its summary has an impossible figure")
    for name, frame in tables.items():
        if name not in schemas:
            raise BadInput(shown, f"damaged: it has no table {name!r:.80}")
        if frame.width and frame.schema != schemas[name]:
            raise BadInput(shown, f"damaged: table {name} has other columns")
    lacking = schemas.keys() - tables.keys() - {"rank_advice"}
    lacking = {column_name for column_name in lacking if not column_name.startswith(_TRACE)}
    if lacking:
        raise BadInput(shown, f"damaged: it lacks the table {min(lacking)}")
    for column, table in _NUMBERED.items():
        _number(shown, column, table, tables)
    for name, columns in _NEVER_NULL.items():
        if name in tables and tables[name].width:
            _value(shown, name, tables[name].select(columns))


def _value(shown: str, name: str, frame: pl.DataFrame) -> None:
    """Refuse nulls, negative lengths and numbers that no trace can have."""
    table = name.removeprefix(_TRACE)
    for column in frame:
        if column.null_count():
            raise BadInput(shown, f"damaged: table {table} lacks values of {column.name}")
        low, high = column.min(), column.max()
        if column.name in _SUMMED and len(column) and (low < 0 or high > _MOST):  # type: ignore[operator]
            raise BadInput(
                shown,
                f"damaged: table {table} has impossible values of {column.name}",
            )
    if name == "kernel_lengths" and not frame["place"].is_between(0, len(BOUNDS)).all():
        raise BadInput(shown, "damaged: table kernel_lengths has impossible lengths")
    if name == "bounds" and len(frame):
        start, end = frame["start"], frame["end"]
        if (start > end).any() or start.min() < -_LATEST or end.max() > _LATEST:  # type: ignore[operator]
            raise BadInput(shown, "damaged: table bounds has impossible times")


def _number(shown: str, column: str, table: str, tables: Mapping[str, pl.DataFrame]) -> None:
    """Refuse numbers that are not in ``table``, and wide gaps between its numbers: the merge allocates
    room for all."""
    own = tables.get(table)
    numbers = [] if own is None else own[column].drop_nulls().to_list()
    most = max(numbers, default=-1)
    if most >= _SPARSE * (len(numbers) + 1):
        raise BadInput(shown, f"damaged: table {table} has gaps in its {column}")
    for name, frame in tables.items():
        if column not in frame.columns or not len(frame):
            continue
        low, high = frame[column].min(), frame[column].max()
        if low is not None and not 0 <= low <= high <= most:  # type: ignore[operator]
            wrong = units.with_article(column)
            of = table.removeprefix(_TRACE)
            raise BadInput(shown, f"damaged: table {name} has {wrong} that is not in {of}")


@lru_cache(maxsize=1)
def _empty() -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """The facts and tables of a trace that could record kernels but has none."""
    from .statistics import statistics  # lazy: reading partials needs the analysis only here

    nothing = Trace.of({"kernels": pl.DataFrame(schema={"name": pl.Categorical})})
    return statistics(Profile(nothing), advice=True)


@lru_cache(maxsize=1)
def _figures() -> tuple[frozenset[str], ...]:
    """The names of the integers in a summary and beside it: for GPUs, for CPUs, for neither."""
    every = frozenset(_empty()[0]["summary"])
    common = frozenset(
        (
            "steps",
            "captured_steps",
            "processes",
            "kernels",
            "copies",
            "waits",
            "queues_waited",
            *OF_RANK,
        )
    )
    return common, every - common, _OF_CPU, frozenset()


@lru_cache(maxsize=1)
def _schemas() -> dict[str, pl.Schema]:
    schemas = {name: as_text(frame).schema for name, frame in _empty()[1].items()}
    own = {f"{_TRACE}{name}": _text(table_schema(name)) for name in TABLES}
    return {**schemas, **own}


def _text(schema: Mapping[str, Any]) -> pl.Schema:
    return as_text(pl.DataFrame(schema=dict(schema))).schema

"""A run of a baseline as one small file: the data of a profile that a difference needs. The file is a line
that says what it is, and compressed JSON: numbers and texts by column, nothing else. Like a trace it may come
from a stranger, so its size, shapes and numbers are checked before anything uses them."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from opscope.core.analysis.diff.about import ABOUT
from opscope.core.analysis.diff.keys import COLUMNS, COSTS
from opscope.core.analysis.diff.rankwise import RANKED
from opscope.core.analysis.diff.reduced import (
    ITERATION,
    KERNELS,
    RUN,
    SPENT,
    STEP,
    UNITS,
    WAITING,
    WORK,
    Reduced,
)
from opscope.core.analysis.diff.samples import SAMPLED
from opscope.core.analysis.diff.whole_job import Totals
from opscope.readers.errors import BadInput

MAGIC: Final = b"opscope run of a baseline, 1\n"
#: The most bytes of a file, and of its unpacked content.
LARGEST: Final = 8 << 20, 128 << 20
#: The largest time or count that is accepted, so that sums of many fit into 64 bits.
_MOST: Final = 1 << 56
_KEYS: Final = {
    "key": pl.Int64,
    **dict.fromkeys(COLUMNS, pl.String),
    "named": pl.Boolean,
    **dict.fromkeys(COSTS, pl.Int64),
}
_TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "units": {**UNITS, **SAMPLED},
    "keys": _KEYS,
    "spent": SPENT,
    "work": WORK,
    "kernels": {**KERNELS, "name": pl.String},
    "waiting": WAITING,
    "about": ABOUT,
    "ranked": RANKED,
}
_TOTALS: Final[Mapping[str, Mapping[str, Any]]] = {
    "ops": {"op": pl.String, "direction": pl.String, "time": pl.Int64, "calls": pl.Int64},
    "kernels": {"name": pl.String, "time": pl.Int64, "calls": pl.Int64},
}
_Columns = dict[str, list[str | int | bool | None]]


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a ``Reduced`` that are not tables."""

    unit: str
    left_out: int
    reason: str | None
    known: tuple[bool, ...]
    frameworks: tuple[str, ...]
    parts: tuple[str, ...]
    has_ops: bool
    merged: bool
    lacks: str | None
    lost: bool
    window: str | None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    head: dict[str, str | None]
    plain: _Plain
    tables: dict[str, _Columns]
    totals: dict[str, _Columns] | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored run: ``head`` (``saved``, ``commit``, ``source`` …), and the data that a difference needs."""

    head: Mapping[str, str | None]
    reduced: Reduced


def pack(stored: Stored) -> bytes:
    """Return the file's bytes."""
    reduced = stored.reduced
    plain = {name: getattr(reduced, name) for name in _Plain.__struct_fields__}
    tables = {name: _columns(getattr(reduced, name), schema) for name, schema in _TABLES.items()}
    totals = None
    if reduced.totals is not None:
        totals = {
            name: _columns(getattr(reduced.totals, name), schema)
            for name, schema in _TOTALS.items()
        }
    document = _File(dict(stored.head), _Plain(**plain), tables, totals)
    return MAGIC + lzma.compress(msgspec.json.encode(document), preset=6)


def _columns(table: pl.DataFrame, schema: Mapping[str, Any]) -> _Columns:
    """Return the columns as lists. Rows keep their order: equal times of a key lie side by side and compress
    well."""
    return table.select(pl.col(name).cast(kind) for name, kind in schema.items()).to_dict(
        as_series=False
    )


def unpack(data: bytes, name: str) -> Stored:
    """Return the run in a file's bytes; ``name`` is the file's. Raises BadInput if they are damaged or no
    run."""
    if not data.startswith(MAGIC):
        raise BadInput(name, "not a run of a baseline (opscope baseline save)")
    if len(data) > LARGEST[0]:
        raise BadInput(name, f"a run of a baseline has {LARGEST[0]:,} bytes at the most")
    try:
        text = lzma.LZMADecompressor(memlimit=LARGEST[1]).decompress(
            data[len(MAGIC) :], LARGEST[1] + 1
        )
        if len(text) > LARGEST[1]:
            raise ValueError(f"more than {LARGEST[1]:,} bytes are in it")
        document = msgspec.json.decode(text, type=_File)
        tables = _frames(document.tables, _TABLES)
        totals = None if document.totals is None else _frames(document.totals, _TOTALS)
        _check(document.plain, tables)
    except (lzma.LZMAError, EOFError, ValueError, KeyError, TypeError, OverflowError,
            RecursionError, msgspec.MsgspecError, pl.exceptions.PolarsError) as error:  # fmt: skip
        line = " ".join(str(error).split())[:200]
        raise BadInput(name, f"a damaged run of a baseline: {line}") from error
    return Stored(document.head, _reduced(document.plain, tables, totals))


def _frames(
    tables: Mapping[str, _Columns], schemas: Mapping[str, Mapping[str, Any]]
) -> dict[str, pl.DataFrame]:
    return {
        name: pl.DataFrame(tables[name], schema=dict(schema), strict=True)
        for name, schema in schemas.items()
    }


def _check(plain: _Plain, tables: Mapping[str, pl.DataFrame]) -> None:
    """Raise ValueError for numbers that no reduced profile has."""
    units, keys, parts = len(tables["units"]), tables["keys"]["key"], len(plain.parts)
    if plain.unit not in (STEP, ITERATION, RUN) or len(plain.known) != parts:
        raise ValueError("its steps or parts are not as opscope writes them")
    if not np.array_equal(keys.to_numpy(), np.arange(len(keys))):
        raise ValueError("its ops are not numbered in order")
    for table, column, low, high in (
        ("spent", "unit", 0, units),
        ("work", "unit", 0, units),
        ("spent", "part", 0, parts),
        ("spent", "key", -1, len(keys)),
        ("work", "key", 0, len(keys)),
        ("kernels", "key", 0, len(keys)),
        ("units", "sample", 0, units),
        ("units", "steps", 1, _MOST),
        ("units", "start", 0, _MOST),
        *((name, "time", 0, _MOST) for name in ("spent", "work", "kernels")),
        *((name, "calls", 0, _MOST) for name in ("work", "kernels")),
    ):
        values = tables[table][column]
        if values.null_count() or not values.is_between(low, high - 1).all():
            raise ValueError(f"{table} has a wrong {column}")
    ranked = tables["ranked"].select(pl.exclude("step", "rank").is_between(0, _MOST).all())
    if not all(ranked.row(0)) or tables["ranked"]["time"].null_count():
        raise ValueError("a step of a rank has a wrong time")
    if not (tables["units"]["end"].is_between(tables["units"]["start"], pl.lit(_MOST))).all():
        raise ValueError("a step ends before it begins")
    if tables["keys"].select("named", "op").null_count().sum_horizontal().item():
        raise ValueError("an op has no name")


def _reduced(
    plain: _Plain, tables: Mapping[str, pl.DataFrame], totals: Mapping[str, pl.DataFrame] | None
) -> Reduced:
    words = [name for name, kind in _KEYS.items() if kind == pl.String]
    keys = tables["keys"].with_columns(pl.col(words).cast(pl.Categorical))
    return Reduced(
        **{name: getattr(plain, name) for name in _Plain.__struct_fields__},
        units=tables["units"],
        keys=keys,
        spent=tables["spent"],
        work=tables["work"],
        waiting=tables["waiting"],
        about=tables["about"],
        ranked=tables["ranked"],
        kernels=tables["kernels"].with_columns(pl.col("name").cast(pl.Categorical)),
        totals=None if totals is None else Totals(totals["ops"], totals["kernels"]),
    )

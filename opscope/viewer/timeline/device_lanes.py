"""The lanes of devices: kernels and copies together, by stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import DTypeLike, NDArray

from opscope.core.perf import kinds
from opscope.core.tables.columns import distinct_values, known, numbers_of
from opscope.core.tables.intervals import NONE
from opscope.core.tables.pool import Pool

from .lane import CATEGORY, STREAM, UNTOLD, About, Lane, Names, Slices
from .op_kinds import Kinds, Told, own_columns, soon_known
from .parted import numbered, parted

if TYPE_CHECKING:
    from opscope.profile import Profile

_PLACE: Final = ("process", "device", "context", "stream")
_THREADS: Final = 2


def device_lanes(profile: Profile, names: Names, titles: Callable[[int], str]) -> list[Lane]:
    """Return a lane per process, device, context and stream; times are ns as in the trace. Lanes are made by
    two threads. ``titles`` gives the heading of a process. If finding the kernels' ops would take seconds,
    the lanes are provisional."""
    with Pool(_THREADS) as pool:
        named_kernels = pool.submit(_kernel_names, profile)
        categories = pool.submit(soon_known, profile)
        numbering = pool.submit(_number, profile)
        tables = _rows(profile, names, named_kernels, categories)
        copy_count, provisional = tables[0].many, not categories.result().known
        by_place: dict[tuple[int, ...], list[Slices]] = {}
        for code, keys in numbering.result():
            row_table = tables.pop(0)
            for key, part in zip(
                keys, parted(code, len(keys), row_table.types, row_table.read, pool), strict=True
            ):
                row, start, end, name, kind = part
                row += row_table.first
                by_place.setdefault(key, []).append(Slices(start, end, row, name, kind))
            del row_table
        named = _device_names(profile)
        contexts: dict[tuple[int, ...], set[int]] = {}
        for key in by_place:
            contexts.setdefault(key[:2], set()).add(key[2])

        def made(key: tuple[int, ...], parts: list[Slices]) -> Lane:
            process, device, context, stream = key
            title = "stream" if stream == NONE else f"stream {stream}"
            if len(contexts[key[:2]]) > 1 and context != NONE:
                title += f", context {context}"
            heading = _heading(titles(process), device, named.get((process, device)))
            about = About(
                *(STREAM, process, heading, title, "kernels"),
                device=device,
                stream=None if stream == NONE else stream,
                copies=copy_count,
            )
            return Lane.of(about, parts[0] if len(parts) == 1 else _join(parts), provisional)

        jobs = [pool.submit(made, key, by_place.pop(key)) for key in sorted(by_place)]
        return [job.result() for job in jobs]


def _number(profile: Profile) -> list[tuple[NDArray[Any], list[tuple[int, ...]]]]:
    """Return for kernels, and for copies and sets, the number of each row's lane, and each lane's keys."""
    numbered_columns = []
    for name in ("kernels", "memops"):
        frame = own_columns(profile, name, list(_PLACE))
        count = len(frame)
        numbered_columns.append(
            numbered((_key(frame.drop_in_place(column_name)) for column_name in _PLACE), count)
        )
    return numbered_columns


def _key(column: pl.Series) -> pl.Series | int:
    """Return the column as a key without nulls; a constant if all its values are null."""
    if column.null_count() == len(column):
        return NONE
    return known(column, NONE)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Slices in the order of their rows: the first row's number, the number of rows, and ``read``, which
    returns columns of the rows ``[low, high)``: start, end, number of the name, category."""

    first: int
    many: int
    types: tuple[DTypeLike, ...]
    read: Callable[[int, int], tuple[NDArray[Any], ...]]


def _rows(
    profile: Profile,
    names: Names,
    named_kernels: Future[tuple[pl.Series, pl.Series]],
    kind_of_kernels: Future[Told],
) -> list[_Rows]:
    """Return the kernels, and the copies and sets."""
    kernels = own_columns(profile, "kernels", ["start", "end"])
    copies = own_columns(profile, "memops", ["start", "end", "kind"])
    column, distinct = named_kernels.result()
    texts = distinct.cast(pl.String).to_list()
    kernel_names = names.add(texts, "(kernel)")
    said = kinds.of_kernels([text or "" for text in texts])
    by_name = np.array([CATEGORY[text] for text in said], np.uint8)
    talking = CATEGORY[kinds.COMMUNICATION]  # by the name alone, whatever launched it
    copied = copies["kind"].cast(pl.Categorical)
    kinds_of_copies = distinct_values(copied)
    copy_names = names.add(kinds_of_copies.cast(pl.String).to_list(), "(copy)")
    as_copies = np.full(len(kinds_of_copies), CATEGORY[kinds.COPIES], np.uint8)
    small = np.min_scalar_type(len(names))
    types = (np.int64, np.int64, small, np.uint8)
    by_op = kind_of_kernels.result().kinds

    def rows(
        frame: pl.DataFrame,
        first_row: int,
        named: tuple[pl.Series, pl.Series, int, NDArray[np.uint8]],
        kinds: Kinds | None,
    ) -> _Rows:
        column, distinct, first, kind_of_name = named
        numbers = numbers_of(distinct)
        number_of_name = np.arange(first, first + len(distinct)).astype(small)
        start, end = known(frame["start"], 0), known(frame["end"], 0)

        def read(low: int, high: int) -> tuple[NDArray[Any], ...]:
            number = numbers(column[low:high])
            kind = kind_of_name.take(number)
            if kinds is not None:
                of_op = kinds(low, high)
                np.copyto(kind, of_op, where=(of_op != UNTOLD) & (kind != talking))
            return (
                np.asarray(start[low:high]),
                np.asarray(end[low:high]),
                number_of_name.take(number),
                kind,
            )

        return _Rows(first_row, len(frame), types, read)

    count = len(kernels)
    return [
        rows(kernels, 0, (column, distinct, kernel_names, by_name), by_op),
        rows(copies, count, (copied, kinds_of_copies, copy_names, as_copies), None),
    ]


def _kernel_names(profile: Profile) -> tuple[pl.Series, pl.Series]:
    """Return the names of the kernels, and the distinct ones."""
    column = own_columns(profile, "kernels", ["name"])["name"].cast(pl.Categorical)
    return column, distinct_values(column)


def _join(parts: list[Slices]) -> Slices:
    return Slices(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("start", "end", "row", "name", "kind")
        )
    )


def _heading(process: str, device: int, name: str | None) -> str:
    said = "device" if device == NONE else f"device {device}"
    return f"{process}: {said}" + (f" ({name})" if name else "")


def _device_names(profile: Profile) -> dict[tuple[int, int], str]:
    devices = profile.trace["devices"].select("process", "device", pl.col("name").cast(pl.String))
    return {(process, device): name for process, device, name in devices.rows() if name}

"""The lanes of devices: what ran on each stream, kernels and copies together."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.perf import kinds
from opscope.core.tables.columns import compact
from opscope.core.tables.intervals import NONE
from opscope.core.tables.pool import Pool

from .lane import CATEGORY, STREAM, About, Lane, Names, Slices
from .parted import numbered, parted

if TYPE_CHECKING:
    from opscope.profile import Profile

_PLACE: Final = ("process", "device", "context", "stream")
_WORK: Final = ("op", "op_type", "direction", "params")
_THREADS: Final = 2
#: Families of which the op's name or parameters tell the kind.
_TOLD_BY_CALL: Final = ("fused", "fusion")


def own_columns(profile: Profile, table: str, wanted: list[str]) -> pl.DataFrame:
    """Return columns of a trace table; if a saved profile's table was not read yet, only these are read."""
    return profile._own_columns(table, wanted)[0]


def device_lanes(profile: Profile, names: Names, titles: Callable[[int], str]) -> list[Lane]:
    """Return a lane per process, device, context and stream; times are ns as in the trace.

    Lanes are made by two threads. ``titles`` gives the heading of a process.
    """
    with Pool(_THREADS) as pool:
        numbering = pool.submit(_numbered, profile)
        whole = _slices(profile, names, pool.submit(_kind_of_ops, profile))
        many = len(whole[0].start)
        by_place: dict[tuple[int, ...], list[Slices]] = {}
        for code, keys in numbering.result():
            one = whole.pop(0)
            columns = (one.start, one.end, one.row, one.name, one.kind)
            for key, part in zip(keys, parted(code, len(keys), columns, pool), strict=True):
                by_place.setdefault(key, []).append(Slices(*part))
            del one, columns
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
                copies=many,
            )
            return Lane.of(about, parts[0] if len(parts) == 1 else _joined(parts))

        jobs = [pool.submit(made, key, by_place.pop(key)) for key in sorted(by_place)]
        return [job.result() for job in jobs]


def _numbered(profile: Profile) -> list[tuple[NDArray[Any], list[tuple[int, ...]]]]:
    """Return for kernels, and for copies and sets, the number of each row's lane, and each lane's keys."""
    found = []
    for name in ("kernels", "memops"):
        frame = own_columns(profile, name, list(_PLACE))
        many = len(frame)
        found.append(numbered((_key(frame.drop_in_place(one)) for one in _PLACE), many))
    return found


def _key(column: pl.Series) -> NDArray[Any] | int:
    """Return a key of each row; the number itself if all have the same."""
    if column.null_count() == len(column):
        return NONE
    if not column.null_count() and column.min() == column.max():
        return int(column[0])
    return _known(column, NONE)


def _known(column: pl.Series, otherwise: int) -> NDArray[Any]:
    return (column.fill_null(otherwise) if column.null_count() else column).to_numpy()


def _slices(
    profile: Profile, names: Names, kind_of_ops: Future[NDArray[np.int16] | None]
) -> list[Slices]:
    """Return the kernels, and the copies and sets, by the order of their rows."""
    kernels = own_columns(profile, "kernels", ["start", "end", "name"])
    kernel_name, kernel_kind = _of_kernels(kernels["name"], names, kind_of_ops)
    copies = own_columns(profile, "memops", ["start", "end", "kind"])
    codes, texts = compact(copies["kind"].cast(pl.Categorical))
    copy_name = codes + np.int32(names.add(texts, "(copy)"))
    copy_kind = np.full(len(copies), CATEGORY[kinds.COPIES], np.uint8)
    small = np.min_scalar_type(len(names))
    return [
        Slices(
            _known(frame["start"], 0),
            _known(frame["end"], 0),
            np.arange(offset, offset + len(frame), dtype=np.int32),
            name.astype(small),
            kind,
        )
        for frame, offset, name, kind in (
            (kernels, 0, kernel_name, kernel_kind),
            (copies, len(kernels), copy_name, copy_kind),
        )
    ]


def _joined(parts: list[Slices]) -> Slices:
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
    told = profile.trace["devices"].select("process", "device", pl.col("name").cast(pl.String))
    return {(process, device): name for process, device, name in told.rows() if name}


def _of_kernels(
    column: pl.Series, names: Names, kind_of_ops: Future[NDArray[np.int16] | None]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the number of each kernel's name, and its category: its op's kind of work, else the kind that
    its name shows."""
    codes, texts = compact(column.cast(pl.Categorical))
    first = names.add(texts, "(kernel)")
    said = kinds.of_kernels([text or "" for text in texts])
    by_name = np.array([CATEGORY[one] for one in said], np.uint8)
    found = by_name[codes] if len(codes) else np.zeros(0, np.uint8)
    by_op = kind_of_ops.result()
    if by_op is not None and len(by_op) == len(found):
        np.copyto(found, by_op.astype(np.uint8), where=by_op >= 0)
    codes += np.int32(first)
    return codes, found


def _kind_of_ops(profile: Profile) -> NDArray[np.int16] | None:
    """Return each kernel's category by its op, -1 where only its name may show one; None if it has no ops."""
    frame = profile._passing("kernels", ("op_type", "direction"))
    if frame["op_type"].null_count() == len(frame):
        return None
    families, family = compact(frame["op_type"].cast(pl.Categorical))
    directions, direction = compact(frame["direction"].cast(pl.Categorical))
    table = np.array(
        [[_category(kinds.of_op(None, one, other, None)) for other in direction] for one in family],
        np.int16,
    )
    found: NDArray[np.int16] = table[families, directions]
    special = [place for place, one in enumerate(family) if one in _TOLD_BY_CALL]
    if special:
        rows = np.flatnonzero(np.isin(families, special))
        calls = profile._passing("kernels", _WORK).select(_WORK)[rows]
        distinct = calls.cast(pl.String).unique()
        kind = [_category(kinds.of_op(*row)) for row in distinct.select(_WORK).rows()]
        joined = calls.cast(pl.String).join(
            distinct.with_columns(pl.Series("kind", kind, pl.Int16)),
            on=_WORK,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        found[rows] = joined["kind"].to_numpy()
    return found


def _category(kind: str | None) -> int:
    return NONE if kind is None else CATEGORY[kind]

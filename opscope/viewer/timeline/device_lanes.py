"""The lanes of devices: what ran on each stream, kernels and copies together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.perf import kinds
from opscope.core.tables.columns import compact, hand_back
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.pool import Pool

from .lane import CATEGORY, STREAM, About, Lane, Names, Slices
from .strip import groups_of

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
    kernels = own_columns(profile, "kernels", [*_PLACE, "start", "end", "name"])
    copies = own_columns(profile, "memops", [*_PLACE, "start", "end", "kind"])
    kernel_name, kernel_kind = _of_kernels(profile, kernels["name"], names)
    codes, texts = compact(copies["kind"].cast(pl.Categorical))
    copy_name = (codes + names.add(texts, "(copy)")).astype(np.int32)
    copy_kind = np.full(len(copies), CATEGORY[kinds.COPIES], np.uint8)
    named = _device_names(profile)
    by_place: dict[tuple[int, ...], list[tuple[int, Ints]]] = {}
    for table, frame in enumerate((kernels, copies)):
        keys = [frame[name].fill_null(NONE).to_numpy() for name in _PLACE]
        for key, rows in groups_of(keys):
            by_place.setdefault(key, []).append((table, rows))
    whole = [
        Slices(
            frame["start"].fill_null(0).to_numpy(),
            frame["end"].fill_null(0).to_numpy(),
            np.arange(offset, offset + len(frame), dtype=np.int32),
            name,
            kind,
        )
        for frame, offset, name, kind in (
            (kernels, 0, kernel_name, kernel_kind),
            (copies, len(kernels), copy_name, copy_kind),
        )
    ]
    contexts = {key[:2]: set[int]() for key in by_place}
    for key in by_place:
        contexts[key[:2]].add(key[2])

    def made(key: tuple[int, ...], parts: list[tuple[int, Ints]]) -> Lane:
        process, device, context, stream = key
        title = "stream" if stream == NONE else f"stream {stream}"
        if len(contexts[key[:2]]) > 1 and context != NONE:
            title += f", context {context}"
        about = About(
            STREAM,
            process,
            _heading(titles(process), device, named.get((process, device))),
            title,
            "kernels",
            device=device,
            stream=None if stream == NONE else stream,
            copies=len(kernels),
        )
        taken = [
            whole[table] if len(rows) == len(whole[table].start) else whole[table].at(rows)
            for table, rows in parts
        ]
        return Lane.of(about, taken[0] if len(taken) == 1 else _joined(taken))

    with Pool(_THREADS) as pool:
        jobs = [pool.submit(made, key, parts) for key, parts in sorted(by_place.items())]
        found = [job.result() for job in jobs]
    hand_back()
    return found


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
    profile: Profile, column: pl.Series, names: Names
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the number of each kernel's name, and its category: its op's kind of work, else the kind that
    its name shows."""
    codes, texts = compact(column.cast(pl.Categorical))
    first = names.add(texts, "(kernel)")
    said = kinds.of_kernels([text or "" for text in texts])
    by_name = np.array([CATEGORY[one] for one in said], np.uint8)
    found = by_name[codes] if len(codes) else np.zeros(0, np.uint8)
    by_op = _kind_of_ops(profile)
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

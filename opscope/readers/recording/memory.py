"""Turn a recording's memory events into the ``allocations`` table: sizes, releases, running totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import recording_format
from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import records

_DTYPE: Final = np.dtype(
    [
        ("time", "<i8"),
        ("address", "<u8"),
        ("bytes", "<i8"),
        ("thread", "<i4"),
        ("device", "<i2"),
        ("kind", "<i2"),
    ]
)
assert _DTYPE.itemsize == recording_format.MEMORY_RECORD.size
_SAME_BLOCK: Final = ("device", "address")


def allocations(
    part: Path,
    devices: Sequence[Mapping[str, Any]],
    clocks: Sequence[tuple[int, int, int]],
    notes: list[tuple[str, str, int]],
    segments: Sequence[Path] = (),
    begin: int | None = None,
) -> pl.DataFrame:
    """Return the ``allocations`` table of one process, by time; releases have negative bytes.

    ``segments``: the folders of a ring's stretches in order. Changes before ``begin`` (ns) are left out,
    but totals count them.

    ``devices`` are the facts of the observed devices: ``memory`` (the device number), and for a GPU
    ``total`` and ``reserved``: the bytes in use when the recording ended, or paused, after ``changes``
    changes. The column ``total`` is cumulative: on the CPU it counts what was allocated since the recording
    began, on a GPU everything in use. ``clocks`` are readings of (recorder's time, Unix time, error), which
    put a GPU's Unix times on the recorder's clock. Appends what was left out to ``notes``. Raises BadInput
    if the file does not have this format.
    """
    pieces = [_check(folder / recording_format.MEMORY) for folder in (part, *segments)]
    data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    frame = pl.DataFrame({name: data[name] for name in _DTYPE.names or ()})
    frame = frame.with_row_index("order").with_columns(
        pl.Series("time", _times(data, clocks)),
        pl.Series("piece", _pieces(data["device"], devices)),
        pl.col("address").cast(pl.Int64, strict=False),
        pl.when(pl.col("thread") != 0).then(pl.col("thread").cast(pl.Int64)).alias("thread"),
    )
    blocks = _size(frame.filter(pl.col("kind") <= recording_format.RELEASED), notes)
    both = pl.concat(
        [
            blocks.with_columns(pl.lit(0, pl.Int64).alias("grown")),
            _reservations(frame),
        ]
    ).sort("time", "order")
    ends = pl.DataFrame(
        [
            (device, piece, fact.get("total"), fact.get("reserved"))
            for device, facts in _by_device(devices).items()
            for piece, fact in enumerate(facts)
        ],
        schema={"device": pl.Int16, "piece": pl.Int32, "end": pl.Int64, "end_reserved": pl.Int64},
        orient="row",
    )
    of = ("device", "piece")
    changes, grown = pl.col("bytes"), pl.col("grown")
    rows = both.join(ends, on=of, how="left", maintain_order="left").with_columns(
        # if the total at the end is known, count back from it, so that events lost at the begin do no harm
        (changes.cum_sum().over(of) + (pl.col("end") - changes.sum().over(of)).fill_null(0)).alias(
            "total"
        ),
        (grown.cum_sum().over(of) + pl.col("end_reserved") - grown.sum().over(of)).alias(
            "reserved"
        ),
    )
    rows = rows.filter(pl.col("address").is_not_null())
    if begin is not None:
        rows = rows.filter(pl.col("time") >= begin)
    return rows.select(
        pl.lit(0, pl.Int32).alias("process"),
        pl.col("device").cast(pl.Int32),
        "thread",
        "time",
        "address",
        "bytes",
        "total",
        "reserved",
    )


def _by_device(devices: Sequence[Mapping[str, Any]]) -> dict[int, list[Mapping[str, Any]]]:
    """The facts of each device, in order: one for each piece of its history (see ``_pieces``)."""
    facts_by_device: dict[int, list[Mapping[str, Any]]] = {}
    for fact in devices:
        of = facts_by_device.setdefault(int(fact["memory"]), [])
        if of and of[-1].get("changes") is None:  # without ``changes`` there is only one piece
            of.clear()
        of.append(fact)
    return facts_by_device


def _pieces(
    device: np.ndarray[Any, Any], devices: Sequence[Mapping[str, Any]]
) -> np.ndarray[Any, Any]:
    """For each record, its piece of the device's history; between two pieces, changes were not recorded."""
    piece = np.zeros(len(device), np.int32)
    for number, facts in _by_device(devices).items():
        ends = np.cumsum([int(fact.get("changes") or 0) for fact in facts[:-1]])
        if len(ends):
            here = np.flatnonzero(device == number)
            piece[here] = np.searchsorted(ends, np.arange(len(here)), side="right")
    return piece


def _check(path: Path) -> np.ndarray[Any, Any]:
    data = records(path, _DTYPE)
    if len(data) and not np.isin(data["kind"], range(4)).all():
        raise BadInput(path, "not the memory events of a recording")
    return data


def _times(
    data: np.ndarray[Any, Any], clocks: Sequence[tuple[int, int, int]]
) -> np.ndarray[Any, Any]:
    """Times on the recorder's clock: the CPU's already are, a GPU's are Unix time."""
    time = np.array(data["time"], np.int64)
    gpu = data["device"] != recording_format.CPU_DEVICE
    if gpu.any() and clocks:
        readings = np.array([reading[:2] for reading in clocks], np.int64)
        ours, unix = readings[np.argsort(readings[:, 1], kind="stable")].T
        # the two clocks run in parallel, so the variation is small enough for a double
        offset = np.interp(time[gpu] - unix[0], unix - unix[0], (unix - ours) - (unix[0] - ours[0]))
        time[gpu] -= np.rint(offset).astype(np.int64) + (unix[0] - ours[0])
    return time


def _size(blocks: pl.DataFrame, notes: list[tuple[str, str, int]]) -> pl.DataFrame:
    """Return allocations and releases with their bytes, negative for releases.

    A release without a size gets that of the last block allocated at its address. If there is none, the
    block was allocated before the recording, and the release is left out.
    """
    released = pl.col("kind") == recording_format.RELEASED
    unsized = released & (pl.col("bytes") == recording_format.UNKNOWN_BYTES)
    before = pl.col("kind").shift(1).over(_SAME_BLOCK)
    sized = (
        blocks.sort("time", "order")
        .with_columns(
            (before == recording_format.ALLOCATED).fill_null(False).alias("follows"),
            pl.col("bytes").shift(1).over(_SAME_BLOCK).alias("earlier"),
        )
        .with_columns(unsized.alias("unsized"))
    )
    foreign = int((sized["unsized"] & ~sized["follows"]).sum())
    if foreign:
        message = "releases of memory that was allocated before the recording, left out"
        notes.append(("info", message, foreign))
    twice = int(((sized["kind"] == recording_format.ALLOCATED) & sized["follows"]).sum())
    if twice:
        message = (
            "blocks of memory whose release was not recorded: totals include them and are too high"
        )
        notes.append(("warning", message, twice))
    return sized.filter(~pl.col("unsized") | pl.col("follows")).select(
        "order",
        "device",
        "thread",
        "time",
        "piece",
        "address",
        pl.when("unsized")
        .then(-pl.col("earlier"))
        .when(released)
        .then(-pl.col("bytes"))
        .otherwise("bytes")
        .alias("bytes"),
    )


def _reservations(frame: pl.DataFrame) -> pl.DataFrame:
    """Memory that the allocator took from the driver or gave back, as rows without an address or bytes."""
    grown = (
        pl.when(pl.col("kind") == recording_format.RESERVED)
        .then("bytes")
        .otherwise(-pl.col("bytes"))
    )
    return frame.filter(pl.col("kind") > recording_format.RELEASED).select(
        "order",
        "device",
        "thread",
        "time",
        "piece",
        pl.lit(None, pl.Int64).alias("address"),
        pl.lit(0, pl.Int64).alias("bytes"),
        grown.alias("grown"),
    )

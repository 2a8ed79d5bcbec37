"""Read the hardware counters that PyTorch and Kineto sample of whole devices.

Since June 2026 Kineto has no range profiler; samples took its place. Their writers, in ``pytorch/pytorch``
``torch/profiler/_cupti/monitor_trace.py`` (``_build_chrome_counters``) and in ``pytorch/kineto``
``CuptiPMSamplingProfiler.cpp`` with ``output_json.cpp`` (``handleCounterEvent``), differ:

* PyTorch writes an event a counter, with the value under an empty key, in a process whose id is the text
  ``GPU 0 Counters``, and labels of its own for some counters (``SM Active (%)``);
* Kineto writes one event for all counters of a sample, in the process with the device's number.

Both write when a sample **began**, and not when it ended. In the table ``samples`` a sample has the time of
its end, as the samples that opscope takes itself.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.perf.counters import divides
from opscope.core.tables.columns import spread
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import conform

from .columns import Codes, Columns
from .events import NO_TIME, decode_sampled

CATEGORY: Final = "hardware_counters"
_PROCESS: Final = re.compile(r"GPU ([0-9]{1,5}) Counters")
#: Text that a block of a file contains if it has such samples.
_SIGNS: Final = (b"hardware_counters", b' Counters"')
#: The most counters, and the longest name.
_MOST, _LONGEST = 4096, 512
Note = tuple[str, str, int]
_decode_args = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(slots=True)
class Sampled:
    """The samples of a file. ``wrong``: how many values are not numbers; ``left_out``: number of values of
    counters beyond the first 4,096."""

    names: Codes = field(default_factory=Codes)
    pids: Codes = field(default_factory=Codes)
    blocks: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    wrong: int = 0
    untimed: int = 0
    left_out: int = 0

    def __len__(self) -> int:
        return sum(len(block[0]) for block in self.blocks)

    def add(self, body: bytes, columns: Columns) -> None:
        """Add the samples of a block of the file, so that they do not count as events of unknown kinds."""
        if not columns.has_phase("C") or not any(sign in body for sign in _SIGNS):
            return
        events, time = decode_sampled(body)
        names, pids, times, values = [], [], [], []
        for event, at in zip(events, time.tolist(), strict=True):
            if event.cat.lower() != CATEGORY and not (
                isinstance(event.pid, str) and _PROCESS.fullmatch(event.pid)
            ):
                continue
            kind = f"C {event.cat}".rstrip()
            columns.unknown[kind] = columns.unknown.get(kind, 0) - 1
            if not columns.unknown[kind]:
                del columns.unknown[kind]
            if at == NO_TIME:
                self.untimed += 1
                continue
            for name, value in self._values(event.name, event.args):
                names.append(name)
                pids.append(self.pids[event.pid])
                times.append(at)
                values.append(value)
        if names:
            codes = (np.array(column, np.int64) for column in (names, pids, times))
            self.blocks.append((*codes, np.array(values, np.float64)))

    def _values(self, name: str, args: msgspec.Raw) -> list[tuple[int, float]]:
        """Return the number of each counter of an event, and its value: NaN if it is not a number."""
        try:
            items = _decode_args(args) if len(bytes(args)) else {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            items = {"": None}
        numbered = []
        for key, value in items.items():
            counter = (key or name)[:_LONGEST]
            if counter not in self.names and len(self.names) >= _MOST:
                self.left_out += 1
                continue
            sound = type(value) in (int, float) and abs(value) <= sys.float_info.max
            self.wrong += not sound
            numbered.append((self.names[counter], float(value) if sound else float("nan")))
        return numbered


def samples(
    sampled: Sampled, columns: Columns, process: int, base: int
) -> tuple[pl.DataFrame, list[Note]]:
    """Return the table ``samples``, and notes. A row without a value begins each run of samples."""
    rows, notes = _rows(sampled, columns, base)
    texts: list[str] = list(sampled.names)
    used = [texts[code] for code in rows["name"].unique(maintain_order=True).to_list()]
    unclear = [text for text in used if divides(text) is None]
    if unclear:
        shown = ", ".join(text[:80] for text in unclear[:5]) + (", …" if len(unclear) > 5 else "")
        message = (
            "sampled counters whose names do not tell whether they are counts or rates were given to no"
            f" kernel: {shown}"
        )
        notes.append(("warning", message, len(unclear)))
    lost = rows.filter(pl.col("device").is_null())["name"].n_unique()
    if lost:
        message = (
            "hardware counters of a device that the file does not name were given to no kernel"
        )
        notes.append(("warning", message, lost))
    parts = [
        part.with_columns(pl.lit(device, pl.Int64).alias("device"), pl.lit(code).alias("name"))
        for (device, code), own in rows.group_by("device", "name", maintain_order=True)
        for part in [_by_end(own["start"].to_numpy(), own["value"].to_numpy())]
    ]
    ended = pl.concat(parts).sort("time", maintain_order=True)
    table = ended.with_columns(
        pl.lit(process).alias("process"), spread("name", texts, ended["name"].to_numpy())
    )
    return conform("samples", table), notes


def _by_end(start: Ints, value: NDArray[np.float64]) -> pl.DataFrame:
    """Return ``time``, when each sample ended, and ``value``, with a row without a value where a run begins.
    A sample ended when the next began; before a gap and at the end, after the usual interval."""
    steps = np.diff(start)
    usual = int(np.median(steps[steps > 0])) if (steps > 0).any() else 0
    lasted = np.append(np.where(steps > 2 * usual, usual, steps), usual)
    alone = np.append(True, steps > 2 * usual)
    time = np.concatenate([start[alone], start + lasted])
    values = np.concatenate([np.full(int(alone.sum()), np.nan), value])
    if not usual:  # how long a single sample lasted is not known
        time, values = start, value
    order = np.argsort(time, kind="stable")
    return pl.DataFrame({"time": time[order], "value": values[order]}).with_columns(
        pl.col("value").fill_nan(None)
    )


def _rows(sampled: Sampled, columns: Columns, base: int) -> tuple[pl.DataFrame, list[Note]]:
    """Return the samples in order: ``device`` (null: not known), the name's number, ``start``, ``value``."""
    if sampled.blocks:
        name, pid, start, value = (
            np.concatenate(part) for part in zip(*sampled.blocks, strict=True)
        )
    else:
        name = pid = start = np.zeros(0, np.int64)
        value = np.zeros(0)
    labels = {pid: label for event, pid, _, label in columns.meta if event == "process_name"}
    devices = [_device(pid, labels.get(pid)) for pid in sampled.pids]
    rows = pl.DataFrame(
        {
            "device": pl.Series(devices, dtype=pl.Int64).gather(pid),
            "name": name,
            "start": start + base,
            "value": value,
        }
    )
    distinct = rows.unique(maintain_order=True)
    notes: list[Note] = []
    for message, count in (
        (
            "samples of hardware counters that are in the file twice were counted once",
            len(rows) - len(distinct),
        ),
        (
            "samples of hardware counters have no number as their value: it is not known",
            sampled.wrong,
        ),
        ("samples of hardware counters without a time were left out", sampled.untimed),
        (
            f"samples of hardware counters beyond the first {_MOST:,} were left out",
            sampled.left_out,
        ),
    ):
        if count:
            notes.append(("warning", message, count))
    return distinct.sort("device", "name", "start", maintain_order=True), notes


def _device(pid: int | str, label: str | None) -> int | None:
    """Return the device of a process with counters; None if neither its name nor its id gives a device."""
    text = _PROCESS.fullmatch(pid if isinstance(pid, str) else label or "")
    if text:
        return int(text[1])
    return pid if isinstance(pid, int) and 0 <= pid < 1 << 31 else None

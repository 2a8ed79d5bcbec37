"""OpenTelemetry's spans, as the JSON lines that its collector reads: steps, layers, ops, ranges and kernels.

The form is that of the protocol's file exporter: a line is one request. Ids are made from row numbers, so
exporting a profile again gives the same ids. CUDA calls are left out: they are too detailed for the trace of
a service.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.tables.columns import at, pieces
from opscope.core.tables.intervals import Ints
from opscope.exports.chrome import texts
from opscope.exports.timeline import CALLS, LINES, Codes, Slices, Timeline, Track

if TYPE_CHECKING:
    from opscope.profile import Profile

#: A span's id has this number in its highest byte, then the row.
_TABLES: Final = {"ranges": 1, "kernels": 2, "memops": 3}
#: Spans per line: about 2 MB.
_AT_ONCE: Final = 4_000
_INTERNAL: Final = 1


def write(profile: Profile, out: BinaryIO, scratch: Path | None = None) -> dict[str, int]:
    """Write the spans; return how many. Times are Unix ns if the trace has the offset of its clock to Unix
    time.

    The parent of a kernel is the op that launched it; the parent of an op is the range that contains it.
    Ranges of length 0 are left out.
    """
    timeline = Timeline(profile, scratch)
    with progress.stage("writing spans", len(timeline), progress.SLICES) as stage:
        return _write(timeline, out, stage)


def _write(timeline: Timeline, out: BinaryIO, stage: progress.Stage) -> dict[str, int]:
    unix = _unix(timeline)
    paths = repr(sorted(timeline.trace.origin.get("paths") or ())).encode("utf-8", "surrogatepass")
    count = 0
    for track, table in timeline.slices():
        if track.kind in (CALLS, LINES):
            stage.add(len(table.row))
            continue
        head = _head(timeline, track)
        trace = hashlib.blake2b(paths + f" {track.process}".encode(), digest_size=16).hexdigest()
        for spans in _spans(track, table, trace, unix.get(track.process, 0)):
            out.write(head + spans + b"]}]}]}\n")
            stage.add(_AT_ONCE)
        count += len(table.stack.rows)
    return {"spans": count}


def _unix(timeline: Timeline) -> dict[int, int]:
    """Return for each process the amount to add to its times to make them Unix ns."""
    offsets = timeline.trace["processes"].join(
        timeline.trace["clocks"].unique("clock_domain"), on="clock_domain", how="left"
    )
    columns = offsets.select("process", pl.col("to_unix_ns").fill_null(0)).rows()
    return {process: to_unix - timeline.shift for process, to_unix in columns if to_unix}


def _head(timeline: Timeline, track: Track) -> bytes:
    resource = {
        "service.name": "opscope",
        "process.pid": track.pid,
        "opscope.process": timeline.processes.get(track.process, ""),
        "opscope.track": track.name,
    }
    resource_text = json.dumps(
        {"attributes": [_attribute(*attribute_pair) for attribute_pair in resource.items()]},
        ensure_ascii=False,
    )
    scope = '"scopeSpans":[{"scope":{"name":"opscope"},"spans":['
    return f'{{"resourceSpans":[{{"resource":{resource_text},{scope}'.encode()


def _attribute(name: str, value: Any) -> dict[str, Any]:
    of = {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
    return {"key": name, "value": of}


def _id(table: str, rows: Ints | Codes) -> pl.Series:
    """Return the ids of rows as 16 hexadecimal digits; null for row -1."""
    number = rows.astype(np.int64) + (_TABLES[table] << 56)
    digits = number.astype(">u8").view("S8").tolist() if len(rows) else []
    hex_texts = [digit.ljust(8, b"\0").hex() for digit in digits]
    return pl.select(
        pl.when(pl.Series(rows >= 0)).then(pl.Series(hex_texts, dtype=pl.String))
    ).to_series()


def _spans(track: Track, slices: Slices, trace: str, unix: int) -> Iterator[bytes]:
    stack = slices.stack
    around = at(slices.row, stack.around)
    for some in pieces(len(stack.rows), _AT_ONCE):
        rows = stack.rows[some]
        if not len(rows):
            continue
        if slices.table == "ranges":
            parent = _id("ranges", around[some])
        else:
            parent = _id("ranges", slices.op[rows])
        attributes: list[Any] = []
        about = slices.details(rows)
        kind = slices.kind.part(rows)
        for name, words in {"kind": kind, **about.words}.items():
            attributes.append(_tell(name, "stringValue", pl.lit(texts(words))))
        for name, (value, is_known) in about.numbers.items():
            number = pl.when(pl.Series(is_known)).then(pl.Series(value).cast(pl.String))
            attributes.append(
                _tell(name, "intValue", pl.concat_str(pl.lit('"'), number, pl.lit('"')))
            )
        parents = pl.concat_str(pl.lit(',"parentSpanId":"'), pl.lit(parent), pl.lit('"'))
        lines = pl.DataFrame(
            {"start": slices.start[rows] + unix, "end": slices.end[rows] + unix}
        ).select(
            pl.concat_str(
                pl.lit(f'{{"traceId":"{trace}","spanId":"'),
                pl.lit(_id(slices.table, slices.row[rows])),
                pl.lit('"'),
                parents.fill_null(""),
                pl.lit(f',"kind":{_INTERNAL},"name":'),
                pl.lit(texts(slices.name.part(rows))),
                pl.lit(',"startTimeUnixNano":"'),
                pl.col("start").cast(pl.String),
                pl.lit('","endTimeUnixNano":"'),
                pl.col("end").cast(pl.String),
                pl.lit('","attributes":['),
                pl.concat_str(attributes, separator=",", ignore_nulls=True),
                pl.lit("]}"),
            )
        )
        yield str(lines.to_series().str.join(",").item()).encode()


def _tell(name: str, kind: str, value: pl.Expr) -> pl.Expr:
    return pl.concat_str(
        pl.lit(f'{{"key":"opscope.{name}","value":{{"{kind}":'), value, pl.lit("}}")
    )

"""The JSON of Chrome's tracing: complete events, instants, counters, and arrows from call to kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.tables.columns import pieces
from opscope.exports.timeline import STREAM, Curve, Slices, Timeline, Track, Words

if TYPE_CHECKING:
    from opscope.profile import Profile

#: From this many ns on (2.4 hours), a double no longer holds microseconds exactly to a millionth; for Unix
#: times the error is 125 ns. Slices would then move out of the slices that surround them.
_LARGEST: Final = 1 << 43
#: Events that are written at a time: about 100 MB of text.
_AT_ONCE: Final = 200_000


def write(profile: Profile, out: BinaryIO, scratch: Path | None = None) -> dict[str, int]:
    """Write the profile's timeline; return how many slices, instants, flows and counter values it has.

    Times are microseconds with three decimals, as the format has them, so no nanosecond is lost. Large times,
    such as Unix times, are shifted to begin at 0; ``baseTimeNanoseconds`` holds the amount subtracted, as in
    Kineto's files.
    """
    timeline = Timeline(profile, scratch, _LARGEST)
    with progress.stage("writing the timeline", len(timeline), progress.SLICES) as stage:
        return _write(timeline, out, stage)


def _write(timeline: Timeline, out: BinaryIO, stage: progress.Stage) -> dict[str, int]:
    counts = dict.fromkeys(("slices", "instants", "flows", "counter values"), 0)
    base = f'"baseTimeNanoseconds":{-timeline.shift},' if timeline.shift < 0 else ""
    head = f'{{"displayTimeUnit":"ns",{base}"otherData":{{"producer":"opscope"}},"traceEvents":[\n'
    out.write(head.encode())
    first = [
        _meta("process_name", timeline.pids[number], 0, {"name": name})
        for number, name in timeline.processes.items()
    ]
    out.write(",\n".join(first).encode())
    separator = b",\n" if first else b""
    named: set[int] = set()
    for track, slices in timeline.slices():
        if track.number not in named:
            named.add(track.number)
            out.write(separator + _name(track).encode())
            separator = b",\n"
        for lines, count in _slices(track, slices, counts):
            out.write(separator + lines)
            stage.add(count)
    for track, curve in timeline.curves():
        for lines in _curve(track, curve):
            out.write(separator + lines)
            separator = b",\n"
        counts["counter values"] += len(curve.time)
    out.write(b"\n]}\n")
    return counts


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> str:
    return _dump({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})


def _name(track: Track) -> str:
    metadata_line = _meta("thread_name", track.pid, track.number, {"name": track.name})
    order = _meta("thread_sort_index", track.pid, track.number, {"sort_index": track.number})
    return f"{metadata_line},\n{order}"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _time(ns: str) -> pl.Expr:
    """Return a column of ns as microseconds with three decimals."""
    microseconds, rest = pl.col(ns) // 1000, (pl.col(ns) % 1000).cast(pl.String).str.zfill(3)
    return pl.concat_str(microseconds.cast(pl.String), pl.lit("."), rest)


def texts(words: Words) -> pl.Series:
    """Return the text of each row as JSON; null for a row without one."""
    used, index = words.used()
    texts_used = [None if code < 0 else _dump(words.texts[code]) for code in used]
    return pl.Series(texts_used, dtype=pl.String).gather(index)


def _slices(track: Track, slices: Slices, counts: dict[str, int]) -> Any:
    location = f'"pid":{track.pid},"tid":{track.number}'
    for chosen, instant in ((slices.stack.rows, False), (slices.marks, True)):
        for some in pieces(len(chosen), _AT_ONCE):
            rows = chosen[some]
            if not len(rows):
                continue
            frame = pl.DataFrame(
                {"start": slices.start[rows], "took": slices.end[rows] - slices.start[rows]}
            )
            about = slices.details(rows)
            args = [
                pl.concat_str(pl.lit(f"{_dump(name)}:"), texts(words))
                for name, words in about.words.items()
            ]
            args += [
                pl.when(pl.Series(is_known)).then(
                    pl.concat_str(pl.lit(f"{_dump(name)}:"), pl.Series(value).cast(pl.String))
                )
                for name, (value, is_known) in about.numbers.items()
            ]
            args_text = (
                pl.concat_str(args, separator=",", ignore_nulls=True) if args else pl.lit("")
            )
            begin = '{"ph":"i","s":"t",' if instant else '{"ph":"X",'
            line = [
                pl.lit(begin + location + ',"ts":'),
                _time("start"),
                *([] if instant else [pl.lit(',"dur":'), _time("took")]),
                pl.lit(',"name":'),
                texts(slices.name.part(rows)),
                pl.lit(',"cat":'),
                texts(slices.kind.part(rows)),
                pl.lit(',"args":{'),
                args_text,
                pl.lit("}}"),
            ]
            yield _join(frame.select(pl.concat_str(line)).to_series()), len(rows)
            counts["instants" if instant else "slices"] += len(rows)
            joined = np.flatnonzero(slices.flow[rows] > 0)
            if len(joined):
                yield _join(_arrows(track, slices, rows[joined])), 0
                counts["flows"] += len(joined) if track.kind == STREAM else 0


def _arrows(track: Track, slices: Slices, rows: Any) -> pl.Series:
    """Return the two ends of each arrow, which goes from a call to the work that it launched."""
    ends = track.kind == STREAM
    head = '{"ph":"f","bp":"e",' if ends else '{"ph":"s",'
    frame = pl.DataFrame({"start": slices.start[rows], "flow": slices.flow[rows]})
    return frame.select(
        pl.concat_str(
            pl.lit(
                f'{head}"name":"launch","cat":"launch","pid":{track.pid},"tid":{track.number},"id":'
            ),
            pl.col("flow").cast(pl.String),
            pl.lit(',"ts":'),
            _time("start"),
            pl.lit("}"),
        )
    ).to_series()


def _curve(track: Track, curve: Curve) -> Any:
    name, unit = _dump(track.name), _dump(track.unit or "value")
    for some in pieces(len(curve.time), _AT_ONCE):
        frame = pl.DataFrame({"start": curve.time[some], "value": curve.value[some]})
        finite = frame.filter(pl.col("value").is_finite())  # JSON has no NaN and no infinity
        if len(finite):
            yield _join(
                finite.select(
                    pl.concat_str(
                        pl.lit(f'{{"ph":"C","pid":{track.pid},"name":{name},"ts":'),
                        _time("start"),
                        pl.lit(f',"args":{{{unit}:'),
                        pl.col("value").cast(pl.String),
                        pl.lit("}}"),
                    )
                ).to_series()
            )


def _join(lines: pl.Series) -> bytes:
    text: str = lines.str.join(",\n").item()
    return text.encode()

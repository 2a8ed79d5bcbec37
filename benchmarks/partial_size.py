"""A partial's share of its trace, for long traces: the steps of a real one, repeated.

    python benchmarks/partial_size.py TRACE.json[.gz] [--megabytes 50] [--unlike 0.1]

TRACE is a Kineto trace. Its events are repeated, each time later and under other ids, until the trace has
``--megabytes`` when it is compressed; then it is read plain and compressed. ``--unlike``: of the ops and kernels of
each repeat that share gets names of its own. Prints the sizes, the partial's share of
each, and its largest tables.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import polars as pl

from opscope.scale.partial import write_partial

#: Keys of ids that are of one event, or of one call and what it launched.
_IDS = ("External id", "correlation", "Ev Idx", "Sequence number", "Python id", "Python parent id")
#: What ops and kernels are called, of old and new versions of PyTorch.
_NAMED = ("cpu_op", "operator", "kernel")


def repeats(trace: dict, unlike: float) -> Iterator[bytes]:
    """Yield the events of each repeat as JSON, joined by commas."""
    events = trace["traceEvents"]
    timed = [one for one in events if one.get("ph") != "M" and "ts" in one]
    first = min(float(one["ts"]) for one in timed)
    last = max(float(one["ts"]) + float(one.get("dur", 0)) for one in timed)
    most = 1 + max(
        (int(value) for one in timed for key, value in one.get("args", {}).items()
         if key in _IDS and str(value).isdigit()), default=0,
    )  # fmt: skip
    most = max(
        most, 1 + max((int(one["id"]) for one in timed if str(one.get("id")).isdigit()), default=0)
    )
    number = 0
    while True:
        made = [one for one in events if one.get("ph") == "M"] if not number else []
        for place, one in enumerate(timed):
            more = {**one, "ts": float(one["ts"]) + number * (last - first + 100)}
            if "id" in one and str(one["id"]).isdigit():
                more["id"] = int(one["id"]) + number * most
            if "args" in one:
                more["args"] = {
                    key: int(value) + number * most
                    if key in _IDS and str(value).isdigit()
                    else value
                    for key, value in one["args"].items()
                }
            name = str(one.get("name", ""))
            if name.startswith("ProfilerStep#"):
                more["name"] = f"ProfilerStep#{int(name[13:]) + number * 1000}"
            elif (
                number
                and one.get("cat", "").lower() in _NAMED
                and place * 761 % 1000 < unlike * 1000
            ):
                more["name"] = f"{name}_{number}"
            made.append(more)
        yield json.dumps(made, separators=(",", ":")).encode()[1:-1]
        number += 1


def write(trace: dict, plain: Path, packed: Path, least: float, unlike: float) -> int:
    """Write the trace both ways; return how often its events are in it."""
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    many = 0
    with plain.open("wb") as out, gzip.open(packed, "wb", 6) as small:
        for text in (json.dumps(head).encode()[:-1] + b', "traceEvents": [',):
            out.write(text)
            small.write(text)
        for text in repeats(trace, unlike):
            for file in (out, small):
                file.write(b"," * bool(many) + text)
            many += 1
            small.flush(zlib.Z_SYNC_FLUSH)
            if packed.stat().st_size >= least:
                break
        for file in (out, small):
            file.write(b"]}")
    return many


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--unlike", type=float, default=0.1)
    asked = parser.parse_args()
    data = asked.trace.read_bytes()
    trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, packed = folder / "long.json", folder / "long.json.gz"
        many = write(trace, plain, packed, asked.megabytes * 1e6, asked.unlike)
        for file in (plain, packed):
            part = folder / write_partial(file, folder)
            size, of = part.stat().st_size, file.stat().st_size
            print(f"{file.suffix}: {many} × the events, {of / 1e6:.0f} MB; partial {size / 1e3:.0f} kB,"
                  f" {size / of:.2%}")  # fmt: skip
        rows = pl.read_parquet(part)
        sizes = []
        for table, count, data in rows.rows():
            held = io.BytesIO()
            pl.DataFrame({"data": [data]}).write_parquet(
                held, compression="zstd", compression_level=6
            )
            sizes.append((len(held.getvalue()), table, count))
        for size, table, count in sorted(sizes, reverse=True)[:10]:
            print(f"  {table}: {size / 1e3:.1f} kB alone, {count:,} rows")


if __name__ == "__main__":
    main()

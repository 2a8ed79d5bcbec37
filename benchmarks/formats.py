"""Print the table of docs/trace-files.md: what each format's reader reads, what that equals, and its CPU time beside
that of decoding the same file with the plain library for it.

Usage: python benchmarks/formats.py [NAME …]

Each side is a process of its own, which reads the file twice; the second time counts, so that no import does. A file
that a format's producer wrote comes from OPSCOPE_SHARED; the others are made here, by the writers of the tests.
Libraries beside opscope's own: ``pip install perfetto flatbuffers``; without one its column is empty.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the writers of files in tests/
import perfetto_read

from tests.readers.ascend_db import test_ascend_db as ascend
from tests.readers.etdump import test_etdump as etdump
from tests.readers.flight_recorder import test_flight_recorder as recorder
from tests.readers.memory_snapshot import test_memory_snapshot as snapshots
from tests.readers.proton import test_proton as proton
from tests.readers.rocm import made as rocm
from tests.readers.torch_trace import test_torch_trace as torch_trace

ROOT = Path(__file__).resolve().parents[1]
#: A file, and the number that a few lines apart from opscope say it holds.
Made = tuple[Path, int]
SHARED = Path(os.environ.get("OPSCOPE_SHARED", ROOT.parent / "shared")) / "data"


#: Code that makes the number of the trace ``t``.
TIME = "int((t['kernels']['end'] - t['kernels']['start']).sum())"
OPS = "int(t['ranges'].filter(category='forward').select(pl.col('end') - pl.col('start')).sum().item())"
PEAK = "int(t['allocations']['total'].max())"
CALLS = "len(t['ranges'])"
COMPILATIONS = "len(t['ranges'].filter(category='phase'))"
#: Code that decodes the file ``p``.
PERFETTO = """
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
trace = Trace()
trace.ParseFromString(open(p, "rb").read())
[(x.timestamp, x.track_event.type, x.track_event.track_uuid) for x in trace.packet if x.HasField("track_event")]
"""
JSON = """
import gzip, msgspec
data = open(p, "rb").read()
msgspec.json.decode(gzip.decompress(data) if data[:2] == b"\\x1f\\x8b" else data)
"""
PACKED = "import msgspec\nmsgspec.msgpack.decode(open(p, 'rb').read())"
PICKLE = "import pickletools\nfor _ in pickletools.genops(open(p, 'rb').read()):\n    pass"
SQLITE = """
import sqlite3
db = sqlite3.connect(p)
for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
    db.execute(f'SELECT * FROM "{name}"').fetchall()
"""
COLUMNS = "import glob, polars\n[polars.read_{}(open(each, 'rb')) for each in glob.glob(p + '/*')]"
LINES = """
import msgspec
for record in open(p, "rb").read().split(b"\\nV"):
    line, _, payload = record[record.index(b"{"):].partition(b"\\n")
    msgspec.json.decode(line)
    if b'"chromium_event"' in line:
        msgspec.json.decode(payload)
"""
FLATBUFFERS = """
from flatbuffers import encode, number_types, packer, table
b = open(p, "rb").read()[4:]
def inner(t, place):
    return table.Table(b, place + encode.Get(packer.uoffset, b, place))
def members(t, number):
    at = t.Offset(4 + 2 * number)
    return [inner(t, t.Vector(at) + 4 * n) for n in range(t.VectorLen(at))] if at else []
def value(t, number):
    return t.Get(number_types.Uint64Flags, t.Pos + t.Offset(4 + 2 * number))
for run in members(table.Table(b, encode.Get(packer.uoffset, b, 0)), 1):
    for event in members(run, 3):
        e = inner(event, event.Pos + event.Offset(4))
        name, _, _ = e.String(e.Pos + e.Offset(4)) if e.Offset(4) else None, value(e, 6), value(e, 7)
"""


def of_rocprof(folder: Path) -> Made:
    path = folder / "a.pftrace"
    perfetto_read.make(path, 1_000_000)
    return path, 700 * 1_000_000


def of_our_export(folder: Path) -> Made:
    source = SHARED / "kineto/ddp_memory_v100.json.gz"
    path = folder / "a.pftrace"
    command = ["export", source, "--to", "perfetto", "-o", path]
    subprocess.run(
        [sys.executable, "-m", "opscope", *map(str, command)], check=True, capture_output=True
    )
    events = json.loads(gzip.decompress(source.read_bytes()))["traceEvents"]
    kernels = (event["dur"] for event in events if event.get("cat") == "kernel")
    return path, sum(round(1000 * took) for took in kernels)


def of_snapshot(folder: Path) -> Made:
    value, trace = snapshots.snapshot(), []
    stacks = [
        [{"filename": f"/m/{n}.py", "line": k, "name": "f"} for k in range(40)] for n in range(50)
    ]
    for n in range(100_000):
        kind, at = ("free_completed", n - 8) if n % 16 > 7 else ("alloc", n)
        trace.append(snapshots.entry(kind, 512 * at, 512, 10 * n, stacks[n % 50]))
    value |= {"segments": [], "device_traces": [trace], "external_annotations": []}
    return snapshots.written(folder / "a.pickle", value), 8 * 512


def of_timeline(folder: Path) -> Made:
    first = snapshots.FIRST * 1000
    rows = [(first + 1000 * n, 4 if n % 2 else 2, -64 if n % 2 else 64, 3) for n in range(200_000)]
    path = folder / "a.raw.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows).encode(), 1))
    return path, 64


def of_recorder(folder: Path, as_json: bool = False) -> Made:
    entries = [recorder.entry(n) for n in range(1, 20_001)]
    return recorder.written(folder, [recorder.dump(*entries)], as_json)[0], 20_000


def of_torch_npu(folder: Path) -> Made:
    made, count = ascend.made(), 50_000
    for n in range(2, count):
        t, own = 10_000 * n + 200_000, 100 + 10 * n
        made.api(ascend.OP, "aten::mm", t, t + 900, connection=own, seq=n)
        made.launch(t + 100, t + 200, own, ascend.MAIN)
        made.kernel("aclnnMm_MatMulV2", t + 300, t + 800, own)
    path = made.write(folder / "ascend_pytorch_profiler_3.db")
    with closing(sqlite3.connect(path)) as db:
        sums = (
            "SELECT sum(endNs - startNs) FROM TASK JOIN COMPUTE_TASK_INFO USING (globalTaskId)",
            "SELECT sum(endNs - startNs) FROM COMMUNICATION_OP",
        )
        return path, sum(db.execute(one).fetchone()[0] for one in sums)


def of_proton(folder: Path, form: str) -> Made:
    kernels = [proton.kernel(f"gemm_{n % 100}", 10, 1000 + n) for n in range(20_000)]
    total = sum(1000 + n for n in range(20_000))
    path = folder / f"a.{form}"
    if form == "chrome_trace":
        whole = proton.chrome()
        lanes, body = whole["traceEvents"][:2], whole["traceEvents"][3:]
        for n in range(10_000):
            lanes += [{**one, "ts": one["ts"] + 100 * n, **({"id": f"{n} {one['id']}"} if "id" in one else {})}
                      for one in body]  # fmt: skip
        path.write_text(json.dumps({**whole, "traceEvents": lanes}))
        return path, 10_000 * 5 * 4250
    tree = [
        proton.frame("ROOT", proton.frame("forward", *kernels)),
        {"CUDA": {"0": proton.DEVICE}},
    ]
    path.write_bytes(
        json.dumps(tree).encode() if form == "hatchet" else msgspec.msgpack.encode(tree)
    )
    return path, total


def of_nsys(folder: Path, form: str) -> Made:
    source = SHARED / "nsys/fsdp_h100x2_2026.sqlite"
    with closing(sqlite3.connect(source)) as db:
        total = db.execute("SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL")
        total = total.fetchone()[0]
        if form == "sqlite":
            return source, total
        path = folder / f"{form}dir"
        path.mkdir()
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = db.execute(f'SELECT * FROM "{name}"')
            names = [column[0] for column in rows.description]
            frame = pl.DataFrame(
                rows.fetchall(), schema=names, orient="row", infer_schema_length=None
            )
            if form == "parquet":
                frame.write_parquet(path / f"{name}.parquet")
            else:
                frame.write_ipc(path / f"{name}.arrow")
    return path, total


def of_rocpd(folder: Path) -> Made:
    path = rocm.rocpd(folder / "a.db", version="4.1")
    with closing(sqlite3.connect(path)) as db:
        (name,) = db.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'rocpd_kernel_dispatch%' AND type = 'table'"
        ).fetchone()
        names = [row[1] for row in db.execute(f'PRAGMA table_info("{name}")')]
        shifted = ", ".join(
            f'"{one}" + 10000 * n' if one in ("start", "end") else f'"{one}"' for one in names
        )
        numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 50000)"
        db.execute(f'{numbers} INSERT INTO "{name}" SELECT {shifted} FROM "{name}", r')
        total = db.execute(f'SELECT sum("end" - start) FROM "{name}"').fetchone()[0]
        db.commit()
    return path, total


def of_xprof(folder: Path) -> Made:
    source = SHARED.parent / "cases/tpu_trace_json_gz/host.trace.json.gz"
    whole = json.loads(gzip.decompress(source.read_bytes()))
    events = whole["traceEvents"]
    body, rest = [[e for e in events if (e["ph"] == "X") is kind] for kind in (True, False)]
    rest += [{**event, "ts": event["ts"] + 10_000 * n} for n in range(5_000) for event in body]
    path = folder / "a.trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({**whole, "traceEvents": rest}).encode(), 1))
    ops = (event for event in body if event["tid"] == 3 and event["pid"] == 3)
    return path, 5_000 * 1000 * sum(event["dur"] for event in ops)


def of_torch_trace(folder: Path) -> Made:
    path, parts = folder / "dedicated_log_torch_trace_rank_0_a.log", []
    for n in range(10_000):
        at, number = 1000 * n, f"{n}/0"
        parts += [
            torch_trace.phase("dynamo", stage, at + 400 * (stage == "E"), number) for stage in "BE"
        ]
        parts.append(torch_trace.compiled(number, "f", at, at + 900))
    path.write_text("".join(parts))
    return path, 10_000


def of_etdump(folder: Path) -> Made:
    path = folder / "a.etdp"
    path.write_bytes(etdump.dump(*etdump.portable(*range(1000, 10_001_000, 1000))))
    return path, 10_000 * (100 + 30 + 20)


@dataclass(frozen=True)
class Format:
    """A row: ``ours`` is the number that the trace ``t`` has, ``equal`` what that is; ``theirs`` decodes the file ``p``
    with ``library``."""

    name: str
    producer: str
    make: Callable[[Path], Made]
    equal: str
    theirs: str
    library: str
    table: str = "kernels"
    ours: str = TIME


MADE = "made in the layout of "
FORMATS = (
    Format("`.pftrace`", MADE + "rocprofv3", of_rocprof, "time of kernels, as written", PERFETTO, "perfetto"),
    Format("`.pftrace`", "opscope's export of PyTorch on a V100", of_our_export, "time of kernels in the JSON", PERFETTO,
           "perfetto"),
    Format("memory snapshot", MADE + "PyTorch 2.13, 40 frames a change", of_snapshot, "bytes at the peak, as written",
           PICKLE, "pickletools", "allocations", PEAK),
    Format("memory timeline", MADE + "PyTorch 2.13", of_timeline, "bytes at the peak, as written", JSON, "msgspec",
           "allocations", PEAK),
    Format("flight recorder, pickle", MADE + "PyTorch 2.13", of_recorder, "calls written", PICKLE, "pickletools", "ranges",
           CALLS),
    Format("flight recorder, JSON", MADE + "PyTorch 2.13", lambda folder: of_recorder(folder, True), "calls written", JSON,
           "msgspec", "ranges", CALLS),
    Format("torch_npu's database", MADE + "torch_npu 2.14", of_torch_npu, "sums of `TASK` and `COMMUNICATION_OP`", SQLITE,
           "sqlite3"),
    *(Format(f"Proton, {form}", MADE + "Triton 3.9", lambda folder, form=form: of_proton(folder, form),
             "time of kernels, as written", PACKED if form == "hatchet_msgpack" else JSON, "msgspec")
      for form in ("hatchet", "hatchet_msgpack", "chrome_trace")),
    *(Format(f"Nsight Systems, {form}", "2026.2 on 2 H100" + made, lambda folder, form=form: of_nsys(folder, form),
             "`sum(end - start)` of kernels", decode, library)
      for form, made, decode, library in (
          ("sqlite", "", SQLITE, "sqlite3"),
          ("parquet", ", its SQLite rewritten", COLUMNS.format("parquet"), "polars"),
          ("arrow", ", its SQLite rewritten", COLUMNS.format("ipc"), "polars"))),
    Format("rocpd", MADE + "rocprofv3 (4.1)", of_rocpd, "`sum(end - start)` of dispatches", SQLITE, "sqlite3"),
    Format("xprof's `trace.json.gz`", MADE + "xprof", of_xprof, "time of XLA's operations in the JSON", JSON, "msgspec"),
    Format("TORCH_TRACE", MADE + "PyTorch 2.13", of_torch_trace, "compilations written", LINES, "msgspec", "ranges",
           COMPILATIONS),
    Format("ETDump", MADE + "ExecuTorch 1.5", of_etdump, "time of kernels, as written", FLATBUFFERS, "flatbuffers", "ranges",
           OPS),
)  # fmt: skip
OURS = (
    "import polars as pl\nfrom opscope import readers\nt = readers.open(p)\nsaid = {}, len(t['{}'])"
)
TWICE = """
import re, resource, sys
def run(p):
    {}
    return locals().get("said", (0, 0))
run(sys.argv[1])
began = resource.getrusage(resource.RUSAGE_SELF)
number, rows = run(sys.argv[1])
ended = resource.getrusage(resource.RUSAGE_SELF)
peak = re.search("VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1]
print(number, rows, ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime, int(peak) / 1024)
"""


def measured(code: str, path: Path) -> tuple[int, int, float, float] | None:
    """Return the number, the rows, CPU seconds and MiB of a process; None if it lacks its library."""
    whole = TWICE.format(code.strip().replace("\n", "\n    "))
    done = subprocess.run(
        [sys.executable, "-c", whole, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(done.stderr)
    number, rows, cpu, peak = done.stdout.split()
    return int(number), int(rows), float(cpu), float(peak)


def main() -> None:
    """Print a row for each format."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="formats whose name has one of these")
    given = parser.parse_args()
    print("| format | producer and version | rows | equal to | time against decoding |")
    print("|---|---|---|---|---|")
    for one in FORMATS:
        if given.names and not any(name in one.name for name in given.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path, expected = one.make(Path(folder))
            ours = measured(OURS.format(one.ours, one.table), path)
            theirs = measured(one.theirs, path)
            assert ours is not None
            assert ours[0] == expected, (one.name, ours[0], expected)
        text = f"{ours[2]:.2f} CPU s, {ours[3]:.0f} MiB"
        if theirs is not None:
            text = f"{ours[2] / theirs[2]:.1f} × {one.library} ({ours[2]:.2f} and {theirs[2]:.2f} CPU s; {ours[3]:.0f} and {theirs[3]:.0f} MiB)"
        print(
            f"| {one.name} | {one.producer} | {ours[1]:,} {one.table} | {one.equal} | {text} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

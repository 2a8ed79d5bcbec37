"""Small profiles and traces that viewers are shown: a training, an empty one, one of the CPU alone, hostile ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl

from opscope.core.schema import TABLES
from opscope.core.tables.trace import Trace, table_schema
from opscope.profile import Profile
from tests.viewer.made_training import made_training

#: What a page must show as text and nothing else. ``owned()`` is watched for by the tests.
HOSTILE = (
    "<script>owned()</script>",
    "<img src=x onerror=owned()>",
    "\"><svg onload='owned()'>",
    "</script><script>owned()</script>",
    "javascript:owned()",
    "{{constructor.constructor('owned()')()}}",
    "__proto__",
    "constructor",
    '=HYPERLINK("http://evil.example/","x")',
    "@SUM(1+9)*cmd|' /C calc'!A0",
    "\u202eright to left\u202c\u2066",
    "nul\x00 bell\x07 escape\x1b[31m",
    "new\nline\ttab\r",
    "quotes ' \" ` & amp; %00 %2f # ? /",
    "🙂 \u0301\u0301\u0301 \ufffd \uffff",
    " ",
    "",
    "x" * 10_000,
)
#: A file's name with most of what a name may hold.
HOSTILE_NAME = "<img src=x onerror=owned()> \u202e'\"&#?%2f`$(x)\n.json"

_CPU = """
import time
import opscope

with opscope.capture("cpu.opscope"):
    for number in range(6):
        with opscope.annotate("load a batch"):
            time.sleep(0.002)
        with opscope.annotate("work"):
            sum(range(20_000 + 5_000 * number))
        opscope.step()
"""


class Made:
    """Profiles by name, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> Path:
        path = self._folder / f"{name}.opscope"
        if not path.exists():
            making = getattr(self, f"_{name}")
            making(path)
        return path

    def hostile_file(self) -> Path:
        """A trace of PyTorch's profiler whose texts and whose own name are hostile."""
        path = self._folder / HOSTILE_NAME
        if not path.exists():
            path.write_text(json.dumps({"traceEvents": _events()}))
        return path

    def _training(self, path: Path) -> None:
        Profile(made_training(steps=5)).save(path)

    def _slower(self, path: Path) -> None:
        Profile(made_training(steps=4, ranks=1)).save(path)

    def _empty(self, path: Path) -> None:
        Profile(Trace.of({}, {})).save(path)

    def _hostile(self, path: Path) -> None:
        Profile(hostile()).save(path)

    def _cpu(self, path: Path) -> None:
        """Record a live program that needs no framework."""
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-c", _CPU]
        subprocess.run(command, cwd=path.parent, env=environment, check=True, timeout=300)


def hostile() -> Trace:
    """A profile with each hostile text in each text column of each table."""
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for number, text in enumerate(HOSTILE):
        begin = number * 100_000
        place = {"process": number % 2, "thread": 1}
        span = {**place, "end_thread": 1, "kind": "pushpop"}
        quoted = json.dumps(text)
        rows = {
            "step": (begin, begin + 90_000, f"step {number}", "opscope.torch"),
            "layer": (begin + 10, begin + 80_000, text or "layer", "opscope.torch"),
            "phase": (begin + 20, begin + 70_000, text or "phase", "opscope.torch"),
            "input": (begin + 30, begin + 40, f"{quoted}() {{workers=1}} @{quoted}:3", "opscope.input"),
            "forward": (begin + 50, begin + 50_000, f"{quoted}(f32[4,4], f32[4,4]) -> f32[4,4] {{a={quoted}}} @{quoted}:7", "opscope.torch"),
            "x": (begin + 60, begin + 40_000, text, text or "user"),
        }  # fmt: skip
        for category, (start, end, words, domain) in rows.items():
            tables["ranges"].append(
                {**span, "start": start, "end": end, "text": words, "category": category, "domain": domain, "attrs": text}
            )  # fmt: skip
        call = {**place, "start": begin + 100, "end": begin + 200, "correlation": number}
        tables["calls"].append({**call, "name": text})
        kernel = {
            "process": number % 2,
            "device": 0,
            "context": 1,
            "stream": 7,
            "correlation": number,
        }
        filled = {name: text for name, kind in TABLES["kernels"].items() if kind in ("str", "cat")}
        tables["kernels"].append({**kernel, **filled, "start": begin + 300, "end": begin + 9_000})
        for table in ("memops", "samples", "notes", "specs", "syncs", "own_costs", "counters"):
            schema = TABLES[table]
            row: dict[str, Any] = {
                name: text for name, kind in schema.items() if kind in ("str", "cat")
            }
            row |= {name: 1 for name, kind in schema.items() if kind in ("i32", "i64", "f64")}
            row |= {"process": number % 2} if "process" in schema else {}
            row |= {"start": begin + 20_000, "end": begin + 21_000} if "start" in schema else {}
            tables[table].append(row)
    for number, text in ((0, HOSTILE[0]), (1, HOSTILE[1])):
        names = {
            "host": text,
            "name": text,
            "framework": text,
            "versions": json.dumps({text: text}),
        }
        tables["processes"].append({"process": number, "pid": number + 1, "rank": number, **names})
        tables["threads"].append({"process": number, "thread": 1, "name": text})
        tables["devices"].append(
            {"process": number, "device": 0, "name": text, "uuid": text, "cc": text}
        )
    frames = {}
    for name, rows in tables.items():
        if rows:
            schema = table_schema(name)
            columns = {key: schema[key] for row in rows for key in row}
            filled = [{key: row.get(key) for key in columns} for row in rows]
            frames[name] = pl.DataFrame(filled, schema=columns)
    ids = pl.Series("id", range(len(frames["ranges"])), dtype=pl.Int64)
    frames["ranges"] = frames["ranges"].with_columns(ids)
    return Trace.of(frames, {"format": HOSTILE[0], "tool": HOSTILE[1], "paths": [HOSTILE[2]]})


def _events() -> list[dict[str, Any]]:
    """Events as torch.profiler writes them, half a surrogate pair among the names."""
    events: list[dict[str, Any]] = []
    for number, text in enumerate((*HOSTILE, "half \ud800 a pair")):
        at = {"ph": "X", "pid": 1, "tid": 1}
        begin = 1_000 * number
        named = {
            "Call stack": text,
            "Module": text,
            "External id": number,
            "Input Dims": [[2, 2]],
            "Input type": [text],
        }
        events += [
            {**at, "cat": "cpu_op", "name": text or "op", "ts": begin, "dur": 500, "args": named},
            {**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + 10, "dur": 5, "args": {"correlation": number, "External id": number}},
            {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": text or "kernel", "ts": begin + 50, "dur": 100, "args": {"correlation": number, "device": 0, "stream": 7, "External id": number}},
            {"ph": "X", "pid": 1, "tid": 1, "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": begin, "dur": 900},
        ]  # fmt: skip
    return events

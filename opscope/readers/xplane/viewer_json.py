"""Read the trace viewer's JSON (``.trace.json.gz``, beside an XPlane file) as planes of event columns.

It has only the viewer's data: at most a million events, and no programs, so operations have names but no
shapes, and of XLA's figures at most the sums. The XPlane file beside it has more.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import polars as pl

from opscope.readers.errors import BadInput
from opscope.readers.rows import decode

from .programs import Written
from .space import FAR, Event, Events, Line, Plane

_NUMBERS: Final = frozenset(
    {"program_id", "run_id", "correlation_id", "step_num", "cuda_graph_id", "cuda_graph_node_id"}
)


#: Process names of XLA's profiler; torch.profiler's are commands, those of TensorFlow's old timeline jobs.
_PLANE: Final = re.compile(rb'"name":\s*"/(?:host:CPU|device:[A-Z]+:\d+)[" ]')
#: A module's name and the number of its program.
_MODULE: Final = re.compile(r"(.+)\((\d{1,18})\)")
#: Largest number of objects and lists in one file; the writers stop at a million events.
MOST: Final = 1 << 23


_Id: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Row(msgspec.Struct):
    ph: str = ""
    pid: _Id = 0
    tid: _Id = 0
    ts: float | None = 0.0
    dur: float | None = 0.0
    name: str = ""
    args: dict[str, Any] = {}


class _File(msgspec.Struct):
    traceEvents: list[_Row]


def recognise(head: bytes) -> bool:
    """Whether JSON that begins with ``head`` is the trace viewer's, or JAX's version of it for Perfetto."""
    return b'"highres-ticks"' in head or _PLANE.search(head) is not None


def _name_operations(
    threads: Mapping[tuple[int, int], list[_Row]], names: Mapping[tuple[int, int], str]
) -> dict[tuple[str, str], Written]:
    """Give each event of a line of operations its operation and its program, as statistics; return XLA's
    facts about them by program and operation.

    The program is that of the event around it on the line of modules.
    """
    written: dict[tuple[str, str], Written] = {}
    modules = {
        pid: rows for (pid, tid), rows in threads.items() if names.get((pid, tid)) == "XLA Modules"
    }
    for (pid, tid), rows in threads.items():
        if names.get((pid, tid)) != "XLA Ops":
            continue
        around = sorted(modules.get(pid, []), key=lambda row: row.ts or 0.0)
        starts = [row.ts or 0.0 for row in around]
        for row in rows:
            if "hlo_op" in row.args:
                continue
            place = bisect_right(starts, row.ts or 0.0) - 1
            inside = place >= 0 and (row.ts or 0.0) < starts[place] + (around[place].dur or 0.0)
            graph = around[place].name if inside else ""
            module = _MODULE.fullmatch(graph)
            row.args["hlo_op"] = row.name
            row.args["hlo_module"] = module[1] if module else graph
            if module:
                row.args["program_id"] = module[2]
            written[graph, row.name] = Written(
                str(row.args.get("hlo_category", "")),
                *(_number(row.args.get(key)) for key in ("model_flops", "bytes_accessed")),
            )
    return written


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


class JsonSpace:
    """The trace viewer's JSON with the interface of ``Space``, which reads the profiler's own file."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.data = b""
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.hosts: list[str] = []
        if data.count(b"{") + data.count(b"[") > MOST:
            raise BadInput(path, f"over {MOST} values, more than any trace viewer shows")
        try:
            rows = decode(data, _File).traceEvents
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadInput(path, f"not the trace viewer's JSON: {error}") from None
        self._planes: dict[int, Plane] = {}
        self._numbers: dict[str, int] = {}
        threads: dict[tuple[int, int], list[_Row]] = {}
        names: dict[tuple[int, int], str] = {}
        # metadata may follow the events that it names
        for row in sorted(rows, key=lambda row: row.ph != "M"):
            if row.ph == "M" and row.name == "process_name":
                name = str(row.args.get("name", "")).split(" ", 1)[0]
                self._planes[row.pid] = Plane(name, {}, {}, {}, [])
            elif row.ph == "M" and row.name == "thread_name":
                names[row.pid, row.tid] = str(row.args.get("name", ""))
            elif row.ph == "X":
                threads.setdefault((row.pid, row.tid), []).append(row)
        self.written = _name_operations(threads, names)
        self._rows: dict[int, list[_Row]] = {}
        for (pid, tid), events in threads.items():
            plane = self._planes.setdefault(pid, Plane("/host:CPU", {}, {}, {}, []))
            line = Line(
                tid,
                names.get((pid, tid), ""),
                0,
                np.zeros(len(events), np.int64),
                np.empty(0, np.int64),
            )
            self._rows[id(line)] = events
            plane.lines.append(line)
            for event in events:
                number = self._numbers.setdefault(event.name, len(self._numbers))
                if number not in plane.events:
                    plane.events[number] = Event(event.name)

    def planes(self) -> Iterator[Plane]:
        """Yield the planes."""
        yield from self._planes.values()

    def batches(self, plane: Plane, line: Line, wanted: frozenset[str]) -> Iterator[Events]:
        """Yield the line's events as one batch, with the ``wanted`` statistics."""
        rows = self._rows[id(line)]
        start = np.rint(np.array([row.ts for row in rows], float) * 1000)
        end = start + np.rint(np.array([row.dur for row in rows], float) * 1000)
        far = ~(np.isfinite(end) & (np.abs(end) < FAR) & (np.abs(start) < FAR))
        start[far] = end[far] = FAR  # ``sound`` drops and counts these
        stats: dict[str, pl.Series] = {}
        present = {key for row in rows for key in row.args}
        for title in wanted & present:
            values = [row.args.get(title) for row in rows]
            texts = pl.Series(
                [None if value is None else str(value) for value in values], dtype=pl.String
            )
            stats[title] = texts.cast(pl.Int64, strict=False) if title in _NUMBERS else texts
        number = np.array([self._numbers[row.name] for row in rows], np.int64)
        yield Events(number, start.astype(np.int64), end.astype(np.int64), stats)

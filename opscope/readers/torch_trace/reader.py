"""Make the tables of a ``TORCH_TRACE`` log: each compilation and its phases as ranges, and counts as notes.

The layout is that of PyTorch's ``torch/_logging/_internal.py`` and ``torch/_dynamo/utils.py``, 2.5 to 2.14.
A record is a line, then its payload on lines that begin with a tab. Generated code and graphs are not kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.core.schema import COMPILE, INDUCTOR
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.kineto.json_events import read_blocks
from opscope.readers.rows import TWICE, decode, frame_of
from opscope.readers.sound import sound_trace

Note = tuple[str, str, int]
#: Bytes of one record that are kept: the end of a longer record is generated code.
_LONGEST: Final = 4 << 20
_MOST_RECORDS: Final = 1 << 20
_TEXT: Final = 300
#: The log does not name threads; no process has this one.
_THREAD: Final = -(1 << 41)
#: Reasons of one kind that are noted.
_REASONS: Final = 20
_METRICS: Final = re.compile(r"(bwd_)?compilation_metrics(?:_runtime)?")
_ENDED: Final = "compilation_metrics"
_UNENDED: Final = (
    "compilations of which the log lacks the end, because it was cut or its process was killed: all counts "
    "of torch.compile are at least"
)
_READ: Final = frozenset(
    ("chromium_event", "artifact", "dynamo_output_graph", "compilation_metrics", "bwd_compilation_metrics",
     "compilation_metrics_runtime", "bwd_compilation_metrics_runtime")
)  # fmt: skip
_BREAK: Final = "dynamo_graph_break_reason"
_KERNELS: Final = "inductor_provenance_tracking_kernel_stack_traces"
_NO_LINES: Final = (
    "graphs without the lines of their kernels, which INDUCTOR_PROVENANCE=1 would write"
)
_BROKEN_AT: Final = re.compile(r"user code at ([^\n]{1,512}:[0-9]{1,9})")
#: The reason, which newer versions put on the line below the traced function.
_BECAUSE: Final = re.compile(r"Reason: (?:Encountered [^\n]{1,512}:\s*\n\s*)?([^\n]{1,512})")
_LINE: Final = re.compile(r'File "([^"\n]{1,512})", line ([0-9]{1,9})')
_CACHE: Final = re.compile(r"(fx_graph|aotautograd)_cache_(hit|miss|bypass)")
_CACHES: Final = {"fx_graph": "FX graphs", "aotautograd": "AOTAutograd"}
#: The metrics of a compilation that are kept with its range.
_KEPT: Final = (
    "recompile_reason", "restart_reasons", "fail_type", "fail_reason", "graph_op_count", "guard_count",
    "dynamo_cumulative_compile_time_us", "aot_autograd_cumulative_compile_time_us",
    "inductor_cumulative_compile_time_us", "inductor_code_gen_cumulative_compile_time_us",
    "triton_compile_time_us", "inductor_fx_local_cache_hit_count", "inductor_fx_local_cache_miss_count",
    "aotautograd_local_cache_hit_count", "aotautograd_local_cache_miss_count",
)  # fmt: skip
_SPEC: Final = {"graph": pl.String, "key": pl.String, "text": pl.String}
_RANGE: Final = {
    "start": pl.Int64, "end": pl.Int64, "domain": pl.String, "category": pl.String, "text": pl.String,
    "attrs": pl.String, "kind": pl.String,
}  # fmt: skip


@dataclass(slots=True)
class Log:
    """What a log holds: ``ranges``, and the numbers of counted things."""

    ranges: list[dict[str, object]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    #: Begin (ns) of open phases, by name and compilation.
    opened: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    #: The lines of the kernels of the graph whose key comes next; and those of all graphs, as specs.
    kernels: dict[str, list[str]] = field(default_factory=dict)
    specs: list[dict[str, object]] = field(default_factory=list)
    lost: int = 0
    #: The records so far, as numbers; one that comes again, with its time in µs, is the same.
    seen: set[int] = field(default_factory=set)
    again: int = 0
    #: The last compilation of each frame that a record names, and the compilations whose end is recorded.
    last: dict[int, int] = field(default_factory=dict)
    ended: set[tuple[int, int]] = field(default_factory=set)

    def take(self, kind: str, record: bytes, begin: int) -> None:
        """Take a record, whose JSON begins at ``begin``."""
        key = hash(record.rstrip())
        if key in self.seen:
            self.again += 1
            return
        self.seen.add(key)
        line, _, payload = record[begin:].partition(b"\n")
        about = decode(line, dict[str, Any])
        if numbers := _compilation_of(about):
            self.last[numbers[0]] = max(numbers[1], self.last.get(numbers[0], 0))
            if kind == _ENDED:
                self.ended.add(numbers)
        rank = about.get("rank")
        if type(rank) is int:
            self.ranks.add(rank)
        if kind == "chromium_event":
            self._phase(decode(payload, dict[str, Any]))
        elif kind == "dynamo_output_graph":
            self.counted["graphs made since the log began"] += 1
        elif _METRICS.fullmatch(kind):
            self._compilation(kind, about)
        elif isinstance(about.get("artifact"), dict):
            self._artifact(str(about["artifact"].get("name")), payload)

    def _artifact(self, name: str, payload: bytes) -> None:
        cached = _CACHE.fullmatch(name)
        if cached is not None:
            self.counted[f"cache of {_CACHES[cached[1]]}, {cached[2]}"] += 1
            if cached[1] == "fx_graph":
                self.counted[_NO_LINES] += not self.kernels
                self.graph(decode(payload, dict[str, Any]).get("key"))
        elif name == _KERNELS:
            self.graph(None)
            self.kernels = decode(payload, dict[str, list[str]])
        elif name == _BREAK:
            text = payload.decode("utf-8", "replace")
            at, because = _BROKEN_AT.search(text), _BECAUSE.search(text)
            said = because[1] if because else next(filter(str.strip, text.split("\n")), "")
            where = f" (at {at[1]})" if at else ""
            self.counted[f"graph breaks: {said.strip()[:_TEXT]}{where}"] += 1

    def unended(self) -> int:
        """Return how many compilations are known by their numbers, which have no gaps, and lack their end."""
        frames = max(self.last, default=-1) + 1 - len(self.last)
        return frames + sum(last + 1 for last in self.last.values()) - len(self.ended)

    def graph(self, key: object) -> None:
        """Keep the lines of a graph's kernels, which are there with ``INDUCTOR_PROVENANCE=1``.

        ``key`` names the graph in a trace: None for one that is not in the cache.
        """
        for kernel, stacks in self.kernels.items():
            lines = {(file, int(n)) for text in stacks for file, n in _LINE.findall(text)[-1:]}
            places = [f"{file}:{line}" for file, line in sorted(lines)]
            named = kernel.partition(":")[0]
            if places:
                self.counted[f"lines of kernels: {named} of {', '.join(places)}"[:_TEXT]] = 1
            self.specs.append({"graph": str(key), "key": named, "text": "\n".join(places)})
        self.kernels = {}

    def _compilation(self, kind: str, about: Mapping[str, Any]) -> None:
        """Take the metrics of a compilation: a frame's, or that of its backward pass."""
        metrics = about.get(kind)
        metrics = metrics if isinstance(metrics, dict) else {}
        start: Any = metrics.get("start_time_us")
        end: Any = metrics.get("end_time_us")
        if type(start) is not int or type(end) is not int:  # before PyTorch 2.6
            start = metrics.get("start_time")
            took: Any = metrics.get("entire_frame_compile_time_s")
            if not (_is_time(start) and _is_time(took)):
                self.lost += 1
                return
            start, end = int(start * 1e6), int((start + took) * 1e6)
        number = metrics.get("compile_id") or "/".join(map(str, _compilation_of(about) or "?"))
        words = [COMPILE, str(number)[:_TEXT]]
        if kind.startswith("bwd_"):
            words.append("backward")
        elif isinstance(metrics.get("co_name"), str):
            words.append(metrics["co_name"][:_TEXT])
            if isinstance(metrics.get("co_filename"), str):
                words.append(f"@{metrics['co_filename'][:_TEXT]}:{metrics.get('co_firstlineno')}")
        reason = metrics.get("recompile_reason")
        if isinstance(reason, str) and reason:
            self.counted[f"recompilations: {reason[:_TEXT]}"] += 1
        kept = {key: metrics[key] for key in _KEPT if metrics.get(key)}
        self._add(
            " ".join(words), start * 1000, end * 1000, "phase", json.dumps(kept) if kept else None
        )

    def _phase(self, event: Mapping[str, Any]) -> None:
        """Take the begin or the end of a phase of the compiler, inside the compilation's own range."""
        name, stage, args = (event.get(key) for key in ("name", "ph", "args"))
        time: Any = event.get("ts")
        if not isinstance(name, str) or not _is_time(time) or stage not in ("B", "E"):
            self.lost += stage in ("B", "E")
            return
        key = name, str(args.get("compile_id")) if isinstance(args, dict) else ""
        opened = self.opened.setdefault(key, [])
        if stage == "B":
            opened.append(_ns(time))
        elif opened:
            begin, end = opened.pop(), _ns(time)
            self.counted[f"us in phase: {name[:_TEXT]}"] += (end - begin) // 1000
            self._add(name[:_TEXT], begin, end, None, None)
        else:
            self.lost += 1

    def _add(
        self, text: str, start: int, end: int, category: str | None, attrs: str | None
    ) -> None:
        self.ranges.append(
            {"start": start, "end": end, "domain": "opscope.torch" if category else "user",
             "category": category, "text": text, "attrs": attrs, "kind": "pushpop"}
        )  # fmt: skip


def read(path: Path, begins: re.Pattern[bytes]) -> Trace:
    """Return the trace of a log; ``begins`` matches the begin of each record. Raises BadInput."""
    log = Log()
    for number, record in enumerate(_records(path, begins)):
        head = begins.match(record)
        if head is None or head[2].decode() not in _READ:
            continue
        if number >= _MOST_RECORDS:
            raise BadInput(path, f"more than {_MOST_RECORDS:,} records")
        if int(head[1]) < 1 << 22:  # before PyTorch 2.7 the number is a thread's
            log.pids.add(int(head[1]))
        try:
            log.take(head[2].decode(), record, head.end())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            log.lost += 1
    log.graph(None)
    return _trace(path, log)


def _records(path: Path, begins: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield each record with its payload, cut to ``_LONGEST``."""
    rest = b""
    for block in read_blocks(path):
        rest += block
        starts = [match.start() for match in begins.finditer(rest)]
        for begin, end in pairwise(starts):
            yield rest[begin:end]
        rest = rest[starts[-1] if starts else 0 :]
        if len(rest) > _LONGEST:  # keep the end too: the next record may begin there
            rest = rest[:_LONGEST] + b"\n" + rest[-4096:]
    yield rest


def _trace(path: Path, log: Log) -> Trace:
    notes: list[Note] = []
    lost = log.lost + sum(map(len, log.opened.values()))
    if lost:
        notes.append(
            (
                "warning",
                "records of the log that cannot be read, or phases without an end, left out",
                lost,
            )
        )
    for what, count in ((_UNENDED, log.unended()), (f"records of the log: {TWICE}", log.again)):
        if count:
            notes.append(("warning", what, count))
    reasons: Counter[str] = Counter()
    for counted, count in (+log.counted).most_common():
        kind = counted.partition(":")[0]
        reasons[kind] += 1
        if reasons[kind] <= _REASONS:
            notes.append(("info", f"torch.compile: {counted}", count))
    ranges = frame_of(log.ranges, _RANGE, notes, "ranges").sort("start", maintain_order=True)
    process = {"process": pl.lit(0, pl.Int32), "thread": pl.lit(_THREAD, pl.Int64)}
    pid = next(iter(log.pids)) if len(log.pids) == 1 else None
    rank = next(iter(log.ranks)) if len(log.ranks) == 1 else None
    tables = {
        "processes": pl.DataFrame(
            {
                "process": [0],
                "pid": [pid],
                "rank": [rank],
                "framework": ["torch"],
                "clock_domain": [0],
            },
            schema_overrides={"pid": pl.Int64, "rank": pl.Int32},
        ),
        "clocks": pl.DataFrame({"clock_domain": [0], "kind": ["unix"], "to_unix_ns": [0]}),
        "threads": pl.DataFrame(
            {"thread": [_THREAD], "name": ["compilations (TORCH_TRACE)"]}
        ).with_columns(process=pl.lit(0, pl.Int32)),
        "ranges": ranges.with_row_index("id").with_columns(**process),
    }
    if log.specs:
        specs = frame_of(log.specs, _SPEC, notes, "specs")
        tables["specs"] = specs.with_columns(process=process["process"], framework=pl.lit(INDUCTOR))
    origin = {"format": "torch_trace", "tool": "PyTorch's log of torch.compile (TORCH_TRACE)",
              "version": None, "paths": [str(path)]}  # fmt: skip
    trace = sound_trace(tables, origin)
    for note in notes:
        trace.note(*note)
    return trace


def _ns(time: float) -> int:
    """Return µs as ns; a double holds no Unix time in ns."""
    microseconds = int(time)
    return microseconds * 1000 + round((time - microseconds) * 1000)


def _compilation_of(about: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return Dynamo's numbers of a frame and of its compilation; None if a record has none."""
    frame, again = about.get("frame_id"), about.get("frame_compile_id")
    if type(frame) is not int or type(again) is not int or not min(frame, again) >= 0:
        return None
    return (frame, again) if max(frame, again) < _MOST_RECORDS else None


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1 << 52  # type: ignore[operator]

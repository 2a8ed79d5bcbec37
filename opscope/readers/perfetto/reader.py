"""Make the tables of a Perfetto trace: slices are kernels, copies, calls or ranges by their categories."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.hlo.wire import WireError
from opscope.core.tables.columns import spread
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace
from opscope.readers.errors import TRUNCATED, BadInput, cut_off
from opscope.readers.heads import PACKED
from opscope.readers.sound import sound_trace

from .descriptors import Track
from .packets import BEGIN, COUNTER, END, INSTANT, Decoder, Events, pieces
from .slices import paired

#: The most bytes that a packed file may hold.
_MOST_UNPACKED: Final = 4 << 30
KERNEL, COPY, CALL, RANGE, LINE = range(5)
#: The kinds of slices by category: those of opscope's export, of Kineto, of rocprofv3. Others are ranges.
_KINDS: Final = {
    **dict.fromkeys(("kernel", "kernel_dispatch", "gpu_kernel"), KERNEL),
    **dict.fromkeys(("copy", "gpu_memcpy", "gpu_memset", "memory_copy"), COPY),
    **dict.fromkeys(
        ("call", "cuda_runtime", "cuda_driver", "hip_api", "hsa_api", "hip_runtime_api", "rccl_api",
         "rocdecode_api", "rocjpeg_api", "xpu_runtime", "privateuse1_runtime"),
        CALL,
    ),
    "line": LINE,
}  # fmt: skip
#: Domain and category of ranges by the category of the slice.
_RANGES: Final = {
    "op": ("kineto", None),
    "cpu_op": ("kineto", None),
    "step": ("kineto", "step"),
    "layer": ("kineto", "layer"),
    "phase": ("kineto", "phase"),
    "graph": ("kineto", "graph"),
    "python": ("python", None),
    "python_function": ("python", None),
}
_OPS: Final = ("op", "cpu_op")
_STEP: Final = re.compile(r"ProfilerStep#([0-9]{1,18})\Z")
#: Names in the form of PyTorch's and NCCL's ops, which become calls by adding parentheses.
_NAME: Final = re.compile(r"[^\s()]{1,512}\Z")
#: Tracks of devices: opscope's, Proton's, rocprofv3's. Device, then stream, queue or thread, then context.
_DEVICES: Final = (
    re.compile(
        r"device (-?[0-9]{1,9})(?: stream ([0-9]{1,18}))?(?: context ([0-9]{1,18}))?(?=:| \(|\Z)"
    ),
    re.compile(r"()GPU Stream ([0-9]{1,18})()\Z"),
    re.compile(
        r"(?:COMPUTE|COPY to) \S+ \[([0-9]{1,9})\] (?:STREAM|QUEUE|THREAD) \[([0-9]{1,18})\]()"
    ),
)
_THREADS: Final = re.compile(r"(?:THREAD [0-9]+ \(|CPU Thread )([0-9]{1,18})\)?")
#: Suffixes that opscope adds to a thread's name for its tracks of calls and of crossing ranges.
_BESIDE: Final = re.compile(r"(: calls)?( \([0-9]+\))?\Z")
_COPIES: Final = (
    (re.compile(r"(?i)memset"), "memset"),
    (re.compile(r"(?i)h(?:ost)?(?:_)?to(?:_)?d(?:ev)?|host_to_device"), "HtoD"),
    (re.compile(r"(?i)dtoh|device_to_host"), "DtoH"),
    (re.compile(r"(?i)ptop"), "PtoP"),
    (re.compile(r"(?i)dtod|device_to_device"), "DtoD"),
    (re.compile(r"(?i)htoh|host_to_host"), "HtoH"),
)  # fmt: skip
_PROCESS: Final = {
    "process": pl.Int32, "pid": pl.Int64, "name": pl.String, "clock_domain": pl.Int32,
}  # fmt: skip
_CLOCK: Final = {"clock_domain": pl.Int32, "kind": pl.String, "to_unix_ns": pl.Int64}
_AGENT: Final = re.compile(r"([0-9]{1,9})\D*\Z")


def read(path: Path) -> Trace:
    """Return the trace in ``path``. Raises BadInput.

    A slice is a kernel, a copy, a call of a GPU's runtime or a range, by its category. The launch of a kernel
    is the call with the same correlation id, else with the same flow. Counters are samples.
    """
    decoder = Decoder()
    parts: list[Events] = []
    at, size_of_file = 0, 0
    try:
        with _content(path) as (data, plain):
            size_of_file = len(data)
            for packets, starts, ends, at in pieces(data, len(data)):
                if len(starts):
                    parts.append(decoder.events(packets, starts, ends))
                if plain:
                    progress.read_to(path, at)
    except WireError as error:
        raise BadInput(path, f"not a trace of Perfetto that can be read: {error}") from error
    if not any(len(part.track) for part in parts):
        raise BadInput(
            path,
            "a trace of Perfetto without track events, as those of a whole system (Android, ftrace): opscope "
            "reads what programs and profilers write (rocprofv3, Triton's Proton, opscope export)",
        )
    trace = _Tables(decoder, parts, path).trace()
    if at < size_of_file:
        reason = f"truncated: it ends inside a packet, at byte {at:,} of {size_of_file:,}"
        trace.origin[TRUNCATED] = reason
        others = trace["notes"]
        trace = trace.replace(notes=others.clear())
        # the first note, because it explains the others
        trace.note("warning", cut_off(path, reason), 1)
        trace = trace.replace(notes=pl.concat([trace["notes"], others]))
    return trace


@contextmanager
def _content(path: Path) -> Iterator[tuple[Any, bool]]:
    """Yield the file's bytes, mapped if it is not packed, and whether they are mapped."""
    try:
        with path.open("rb") as file:
            packed = file.read(4).startswith(PACKED)
            # arrays are views of the map, so it is closed when the last array is freed
            data = None if packed else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise BadInput(path, str(error)) from error
    if data is not None:
        yield data, True
        return
    from opscope.readers.kineto.json_events import whole_file  # lazy: it loads decoders

    message = f"it unpacks to more than {_MOST_UNPACKED >> 30} GiB: unpack it first"
    yield whole_file(path, _MOST_UNPACKED, message), False


class _Tables:
    """The tables of a file's events."""

    def __init__(self, decoder: Decoder, parts: Sequence[Events], path: Path) -> None:
        self._decoder, self._path = decoder, path
        self._words = decoder.words
        names = ("track", "time", "kind", "name", "category", "flow", "value")
        self._all = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in names
        }
        self._offsets = np.cumsum([0, *(len(part.track) for part in parts)])
        self._parts = parts
        uuids, self._on = np.unique(self._all["track"], return_inverse=True)
        self._on = self._on.reshape(-1).astype(np.int64)
        self._tracks = [decoder.tracks.whole(uuid) for uuid in uuids.tolist()]
        self._notes: list[tuple[str, str, int]] = []
        self._number()

    def trace(self) -> Trace:
        """Return the trace, with notes on what was left out."""
        rows, end = self._slices()
        kind = self._kinds(rows)
        tables = self._processes()
        tables["ranges"] = self._ranges(rows[kind == RANGE], end[kind == RANGE])
        for name, wanted, make in (
            ("kernels", KERNEL, self._kernels),
            ("memops", COPY, self._copies),
            ("calls", CALL, self._calls),
        ):
            chosen = kind == wanted
            if chosen.any():
                tables[name] = make(rows[chosen], end[chosen])
        self._launch_from_scopes(tables, rows[kind == RANGE])
        samples = self._samples()
        if len(samples):
            tables["samples"] = samples
        lines = int((kind == LINE).sum())
        if lines:
            self._notes.append(
                ("info", "sampled lines of opscope's export, which are not read back", lines)
            )
        origin = {
            "format": "perfetto",
            "tool": "Perfetto",
            "version": None,
            "paths": [str(self._path)],
        }
        trace = sound_trace(tables, origin)
        for note in self._notes:
            trace.note(*note)
        self._note_lost(trace)
        return trace

    def _note_lost(self, trace: Trace) -> None:
        decoder = self._decoder
        if decoder.lost:
            trace.note(
                "warning",
                "packets were lost before these: the buffer of the trace was too small",
                decoder.lost,
            )
        if decoder.clocks.untold:
            clocks = ", ".join(map(str, sorted(decoder.clocks.untold)[:8]))
            trace.note(
                "warning",
                f"times of clocks that the trace does not describe ({clocks}), not converted",
                1,
            )
        if decoder.others > 0:
            trace.note("info", "packets of other kinds than track events, left out", decoder.others)

    # ------------------------------------------------------------------------------ slices

    def _slices(self) -> tuple[Ints, Ints]:
        """Return the row of each slice's beginning, and its end (ns); an instant ends when it begins."""
        kind = self._all["kind"]
        edges = np.flatnonzero((kind == BEGIN) | (kind == END))
        opens = np.where(kind[edges] == BEGIN, 1, -1)
        starts, ends, stray, unended = paired(self._on[edges], self._all["time"][edges], opens)
        if stray:
            self._notes.append(("warning", "ends of slices without a beginning, left out", stray))
        if unended:
            message = "slices that had not ended when the recording did, left out"
            self._notes.append(("warning", message, unended))
        marks = np.flatnonzero(kind == INSTANT)
        odd = int((~np.isin(kind, (BEGIN, END, INSTANT, COUNTER))).sum())
        if odd:
            self._notes.append(("info", "events of an older form (legacy_event), left out", odd))
        rows = np.concatenate((edges[starts], marks))
        end = np.concatenate((self._all["time"][edges[ends]], self._all["time"][marks]))
        order = np.argsort(self._all["time"][rows], kind="stable")
        return rows[order], end[order]

    def _kinds(self, rows: Ints) -> Ints:
        """Return the kind of each slice."""
        table = np.array(
            [_KINDS.get(word.lower(), RANGE) for word in self._words] + [RANGE], np.int64
        )
        kinds: Ints = table[self._all["category"][rows]]
        return kinds

    def _text(self, codes: Ints) -> pl.Series:
        return spread("text", self._words, codes.astype(np.int32))

    def _detail(self, name: str, rows: Ints, of_text: bool = False) -> pl.Series:
        """Return a detail of some events: its number, or its text's code; null for events without this
        detail."""
        values = np.full(len(self._on), -1 if of_text else np.iinfo(np.int64).min, np.int64)
        for offset, part in zip(self._offsets[:-1].tolist(), self._parts, strict=True):
            if name in part.details:
                at, numbers, codes = part.details[name]
                values[at + offset] = codes if of_text else numbers
        column = pl.Series(name, values[rows])
        return column.set(column == (-1 if of_text else np.iinfo(np.int64).min), None)

    # ------------------------------------------------------------------------------ processes

    def _number(self) -> None:
        """Number processes and threads, and find the devices of tracks."""
        pids = {track.pid for track in self._tracks}
        self._pids = sorted(pids - {None}, key=str) + ([None] if None in pids else [])
        self._process = np.array([self._pids.index(track.pid) for track in self._tracks], np.int32)
        self._thread = np.array(
            [self._thread_of(track, at) for at, track in enumerate(self._tracks)], np.int64
        )
        self._device = [_device_of(track.name) for track in self._tracks]

    def _thread_of(self, track: Track, at: int) -> int:
        """Return the number of a track's thread: the system's, else a new number above all of those."""
        if track.tid is not None and not _BESIDE.sub("", track.name).strip():
            return track.tid
        plain = _BESIDE.sub("", track.name)
        if track.tid is not None and plain == track.thread:
            return track.tid
        numbered = _THREADS.match(plain)
        if numbered is not None:
            return int(numbered[1])
        for other in self._tracks:
            if other.thread == plain and other.pid == track.pid and other.tid is not None:
                return other.tid
        first = next(
            (
                n
                for n, other in enumerate(self._tracks[:at])
                if other.pid == track.pid and _BESIDE.sub("", other.name) == plain and plain
            ),
            at,
        )
        return track.tid if track.tid is not None else (1 << 32) + first

    def _processes(self) -> dict[str, pl.DataFrame]:
        names = self._decoder.tracks.processes()
        threads: dict[tuple[int, int], str | None] = {}
        for process, thread, track in zip(
            self._process.tolist(), self._thread.tolist(), self._tracks, strict=True
        ):
            threads.setdefault(
                (process, thread), track.thread or _BESIDE.sub("", track.name) or None
            )
        to_unix = self._decoder.clocks.to_unix
        return {
            "processes": pl.DataFrame(
                {
                    "process": range(len(self._pids)),
                    "pid": self._pids,
                    "name": [None if pid is None else names.get(pid) for pid in self._pids],
                    "clock_domain": [0] * len(self._pids),
                },
                schema=_PROCESS,
            ),
            "clocks": pl.DataFrame(
                {
                    "clock_domain": [0],
                    "kind": ["boot" if to_unix is not None else "unknown"],
                    "to_unix_ns": [to_unix],
                },
                schema=_CLOCK,
            ),
            "threads": pl.DataFrame(
                [(*key, name) for key, name in threads.items()],
                schema={"process": pl.Int32, "thread": pl.Int64, "name": pl.String},
                orient="row",
            ),
        }

    # ------------------------------------------------------------------------------ tables

    def _ranges(self, rows: Ints, end: Ints) -> pl.DataFrame:
        on, category = self._on[rows], self._all["category"][rows]
        meanings = [_RANGES.get(word.lower(), ("user", None)) for word in self._words] + [
            ("user", None)
        ]
        given_text = self._detail("text", rows, of_text=True)
        ops = np.array([word.lower() in _OPS for word in self._words] + [False], bool)[category]
        codes = np.where(
            given_text.is_null().to_numpy(),
            self._all["name"][rows],
            given_text.fill_null(0).to_numpy(),
        )
        bare = ops & given_text.is_null().to_numpy()
        texts = [*self._words, *(_call_text(word) for word in self._words)]
        codes = np.where(bare & (codes >= 0), codes + len(self._words), codes)
        text = spread("text", texts, codes.astype(np.int32))
        steps = text.cast(pl.String).str.extract(_STEP.pattern.replace(r"\Z", r"\z"))
        start = self._all["time"][rows]
        direction = self._text(
            self._detail("direction", rows, of_text=True).fill_null(-1).to_numpy()
        ).cast(pl.String)
        code = category.astype(np.int32) % len(meanings)
        by_category = spread("domain", [meaning[0] for meaning in meanings], code)
        domain = self._text(self._detail("domain", rows, of_text=True).fill_null(-1).to_numpy())
        # opscope's export writes a text for each range, and its domain if it has any
        given = pl.Series(given_text.is_not_null())
        named = spread(
            "category",
            [meaning[1] for meaning in meanings],
            category.astype(np.int32) % len(meanings),
        )
        return pl.DataFrame(
            {
                "id": np.arange(len(rows), dtype=np.int64),
                "process": self._process[on],
                "thread": self._thread[on],
                "start": start,
                "end": end,
                "domain": by_category.cast(pl.String).zip_with(~given, domain.cast(pl.String)),
                "text": text.cast(pl.String),
                "kind": pl.Series(np.where(end > start, "pushpop", "mark")),
                "category": named.cast(pl.String),
            }
        ).with_columns(
            pl.when(pl.Series(steps.is_not_null())).then(pl.lit("step"))
            .otherwise(pl.coalesce("category", direction))
            .alias("category"),
            pl.coalesce(pl.format("step {}", steps), "text").alias("text"),
        )  # fmt: skip

    def _place(self, rows: Ints, end: Ints) -> dict[str, Any]:
        on = self._on[rows]
        return {
            "process": self._process[on],
            "start": self._all["time"][rows],
            "end": end,
            "correlation": self._correlation(rows),
        }

    def _correlation(self, rows: Ints) -> pl.Series:
        flow = pl.Series(self._all["flow"][rows])
        ids = [self._detail(name, rows) for name in ("correlation", "corr_id")]
        return pl.select(
            pl.coalesce(*ids, pl.when(flow != 0).then(flow)).alias("correlation")
        ).to_series()

    def _on_device(self, rows: Ints, end: Ints) -> pl.DataFrame:
        on = self._on[rows]
        frame = pl.DataFrame(self._place(rows, end))
        agent = self._text(self._detail("agent", rows, of_text=True).fill_null(-1).to_numpy()).cast(
            pl.String
        )
        for at, name in enumerate(("device", "stream", "context")):
            of_track = pl.Series(name, [numbers[at] for numbers in self._device], pl.Int64).gather(
                on
            )
            others = [self._detail(name, rows)]
            if name == "device":
                others.append(
                    agent.str.extract(_AGENT.pattern.replace(r"\Z", r"\z")).cast(
                        pl.Int64, strict=False
                    )
                )
            if name == "stream":
                others.append(self._detail("queue", rows))
            frame = frame.with_columns(pl.coalesce(of_track, *others).alias(name))
        return frame

    def _kernels(self, rows: Ints, end: Ints) -> pl.DataFrame:
        return self._on_device(rows, end).with_columns(
            self._text(self._all["name"][rows]).alias("name")
        )

    def _copies(self, rows: Ints, end: Ints) -> pl.DataFrame:
        kinds = [_copy_kind(word) for word in self._words]
        name = self._all["name"][rows].astype(np.int32)
        size = self._detail("bytes", rows)
        # in opscope's export, the bytes come from the op's cost model
        ours = self._all["category"][rows] == self._decoder.code("copy")
        return self._on_device(rows, end).with_columns(
            spread("kind", kinds, name).alias("kind"),
            size.set(pl.Series(ours), None).alias("bytes"),
        )

    def _calls(self, rows: Ints, end: Ints) -> pl.DataFrame:
        on = self._on[rows]
        tid = self._detail("tid", rows)
        return pl.DataFrame(self._place(rows, end)).with_columns(
            pl.coalesce(tid, pl.Series(self._thread[on])).alias("thread"),
            self._text(self._all["name"][rows]).alias("name"),
        )

    def _launch_from_scopes(self, tables: dict[str, pl.DataFrame], rows: Ints) -> None:
        """Add a call for each arrow from a range to a kernel: Proton's scopes launch, and it has no calls."""
        rows = rows[self._all["flow"][rows] != 0]
        if "kernels" not in tables or "calls" in tables or not len(rows):
            return
        launches = self._calls(rows, self._all["time"][rows] + 1)
        launches = launches.with_columns(pl.lit("launch", pl.Categorical).alias("name"))
        tables["calls"] = launches.filter(
            pl.col("correlation").is_in(tables["kernels"]["correlation"].implode())
        )

    def _samples(self) -> pl.DataFrame:
        """Return the values of counters; increments are added up."""
        rows = np.flatnonzero((self._all["kind"] == COUNTER) & np.isfinite(self._all["value"]))
        on = self._on[rows]
        names = [
            f"{track.name or track.thread or 'counter'} [{track.unit}]"
            if track.unit
            else track.name
            for track in self._tracks
        ]
        factors = np.array([track.factor for track in self._tracks], np.float64)
        adds = pl.Series([track.adds for track in self._tracks], dtype=pl.Boolean).gather(on)
        frame = pl.DataFrame(
            {
                "process": self._process[on],
                "time": self._all["time"][rows],
                "name": spread("name", names, on.astype(np.int32)),
                "value": self._all["value"][rows] * factors[on],
                "on": on,
                "adds": adds,
            }
        )
        summed = frame.sort("on", "time", maintain_order=True).with_columns(
            pl.when("adds")
            .then(pl.col("value").cum_sum().over("on"))
            .otherwise("value")
            .alias("value")
        )
        return summed.drop("on", "adds")


def _call_text(name: str) -> str:
    """Return the text of an op of which only the name is known."""
    return f"{name}()" if _NAME.match(name) else name


def _copy_kind(name: str) -> str:
    return next((kind for pattern, kind in _COPIES if pattern.search(name)), name)


def _device_of(name: str) -> tuple[int | None, int | None, int | None]:
    """Return device, stream and context of a track, from its name."""
    for pattern in _DEVICES:
        match = pattern.match(name)
        if match is not None:
            device, stream, context = (int(part) if part else None for part in match.groups())
            return device, stream, context
    return None, None, None

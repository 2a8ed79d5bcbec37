"""Read timelines of MindSpore and CANN: arrays of Chrome trace events.

``trace_view.json`` (2.5 to 2.10), ``msprof_*.json`` and its parts ``task_time``, ``hccl`` and
``step_trace`` (CANN's
own) name their lanes by events ``process_name``. ``ascend_timeline_display_N.json`` and
``gpu_timeline_display_N.json`` (1.x to 2.2) have numbers instead, which
``mindspore/python/mindspore/profiler/parser/base_timeline_generator.py`` defines, and the op's full name
and tensors
in ``args``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from opscope.core import progress
from opscope.core.tables.columns import at
from opscope.core.tables.impossible import NO_TIME
from opscope.core.tables.intervals import merge
from opscope.readers.errors import BadInput
from opscope.readers.kineto.json_events import whole_file
from opscope.readers.owners import owner
from opscope.readers.rows import decode, frame_of

from . import nodes

#: The largest file that is read, in bytes: all events are in memory at once.
LARGEST: Final = 1 << 30
_TOO_LARGE: Final = f"a timeline over {LARGEST >> 30} GiB: point to kernel_details.csv instead"
#: Latest time and longest duration, ns: sums of two fit in 64 bits.
LATEST: Final = 1 << 61
_AI_CPU, _COMMUNICATION, _HOST_CPU, _OVERLAP = 9000, 10000, 11000, 12000
_STEPS_TID, _SCOPE_TID, _GPU_OPS_TID = 100000, 100001, 100002
_NODE: Final = re.compile(r"-op[0-9]+(?:_[0-9]+)?\Z")
_STREAM: Final = re.compile(r"(?:Stream\s*#?\s*)?([0-9]{1,9})(?:\s.*)?\Z")
_STEP: Final = re.compile(
    r"(?:ProfilerStep#|Iteration |(?:Model ID: ?\d+ )?Iteration ID: ?)([0-9]{1,18})\Z"
)
#: Names of lanes of those timelines that have only one part in a file.
_LANE: Final = re.compile(
    r"HCCL|Communication|Step Trace|Model ID:|Scope Layer|MindSpore|MSTX|msproftx|GPU Op"
)
_STEP_LANE: Final = re.compile(r"Step Trace\b|Model ID:")
#: The label of a device's lane, if a file has several.
_LABEL: Final = re.compile(r"NPU[ _]?([0-9]{1,6})")
_PLANE: Final = re.compile(r"Plane [0-9]+")
_TENSOR: Final = re.compile(r"(input|output)_([0-9]{1,3})\Z")
_HARDWARE: Final = "Ascend Hardware"
#: Evidence in the file of tasks that are not in it, for example because a whole stream was lost.
LOST: Final = "records of the device dropped: "
_IDLE_COMPUTING: Final = (
    f"{LOST}times at which it computed, by the file's own analysis, and no task ran"
)
_BARE_FLOWS: Final = f"{LOST}arrows from launches that end where no task ran"
_BARE_STREAMS: Final = f"{LOST}streams that the file names, and of which it has no task"
_BARE_PLANES: Final = f"{LOST}tasks of collectives, on streams of which there is no other task"
#: Times in two lanes of one file may differ by this much, ns.
_ROUNDED: Final = 1000
#: Sizes that are not a rank: the collective has no peer there.
_NOTIFY: Final = re.compile(r"(?i)notify")


class _Args(msgspec.Struct):
    """The arguments that are read from events in named lanes. Reading 300,000 events took 351 MiB with these,
    and 494 MiB with a dictionary of all."""

    name: Any = None
    labels: Any = None
    task_type: Any = msgspec.field(default=None, name="Task Type")
    stream: Any = msgspec.field(default=None, name="Stream Id")
    physical: Any = msgspec.field(default=None, name="Physic Stream Id")
    task: Any = msgspec.field(default=None, name="Task Id")
    launch: Any = msgspec.field(default=None, name="mindspore_op")
    of_plane: Any = msgspec.field(default=None, name="task type")
    plane_stream: Any = msgspec.field(default=None, name="stream id")
    plane_task: Any = msgspec.field(default=None, name="task id")
    forward: Any = msgspec.field(default=None, name="FP Start")
    backward: Any = msgspec.field(default=None, name="BP End")


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = 0
    ts: str | float | None = None
    dur: str | float | None = None
    cat: str | None = None
    args: _Args | None = None


class _Full(_Event):
    args: dict[str, Any] | None = None  # type: ignore[assignment] # decoded alone, never as the other


class _File(msgspec.Struct):
    traceEvents: msgspec.Raw


_NONE: Final = _Args()
#: Columns of tasks besides those of device work, and how many tasks are put into a frame at a time.
_MORE: Final = {**nodes.RAN, "task": pl.Int64, "waits": pl.Boolean}
_PIECE: Final = 65_536


@dataclass(slots=True)
class Timeline:
    """The content of a timeline.

    ``ran``: columns of ``nodes.RAN``. ``steps``: number, start, end (ns); ``points``: when a step's forward
    begins and its backward ends (ns). ``users``: text, thread, start, end of the program's own ranges (mstx).
    ``cpu``: the same for operators on the CPU. ``relative``: times begin at 0 with the timeline. ``notes``:
    the things left out, and how often.
    """

    ran: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=nodes.RAN))
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    points: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    users: list[tuple[str, int, int, int]] = field(default_factory=list)
    cpu: list[tuple[str, int, int, int]] = field(default_factory=list)
    relative: bool = False
    notes: Counter[str] = field(default_factory=Counter)


class OtherTimelineError(Exception):
    """The timeline names its processes, and none is of CANN or MindSpore."""


def read(path: Path, device: int) -> Timeline:
    """Return the content of the timeline ``path`` for ``device``. Raises BadInput, and OtherTimelineError."""
    events = _events(path, _Event)
    names = [
        str(event.args.name)
        for event in events
        if event.ph == "M" and event.name == "process_name" and event.args
    ]
    if names:
        if owner(names) != "mindspore" and not any(map(_LANE.match, names)):
            raise OtherTimelineError
        progress.read_whole(path)
        return _of(path, events, device)
    del events  # MindSpore writes no more than 20 MB of the other kind
    return _of(path, _events(path, _Full), device)


def _events(path: Path, kind: type[_Event]) -> list[Any]:
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(path, _TOO_LARGE)
        data = _array(path)
        try:
            events: list[Any] = decode(data, list[kind])  # type: ignore[valid-type]
            return events
        except msgspec.ValidationError:
            # an event with a value of an unexpected type: only that event is left out
            values = decode(data, list[Any])
            return [event for value in values if (event := _sound(value, kind)) is not None]
    except msgspec.DecodeError as error:
        cut = "truncated" in str(error)
        message = (
            "truncated: the JSON ends inside the timeline" if cut else f"not a timeline: {error}"
        )
        raise BadInput(path, message) from None
    except UnicodeDecodeError:
        raise BadInput(path, "not a timeline: a text in it is not UTF-8") from None
    except RecursionError:
        raise BadInput(path, "not a timeline: its JSON is nested too deeply") from None
    except OSError as error:
        raise BadInput(path, error.strerror or str(error)) from error


def _array(path: Path) -> bytes | msgspec.Raw:
    """Return the JSON array of the events, which other tools put into an object, or compress."""
    data = whole_file(path, LARGEST, _TOO_LARGE)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] != b"{":
        return data
    events: msgspec.Raw = decode(data, _File).traceEvents
    return events


def _sound(value: Any, kind: type[_Event]) -> _Event | None:
    """Return the event in a value of any type; None if it is not an event."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        # values that cannot be events are counted with events without a time
        return kind(ph="X") if isinstance(value, dict) and value.get("ph") == "X" else None


def _of(path: Path, events: Sequence[Any], device: int) -> Timeline:
    lanes: dict[int | str, str] = {}
    threads: dict[tuple[int | str, int | str], str] = {}
    devices: dict[int | str, int] = {}
    for event in events:
        if event.ph == "M" and event.args:
            args = event.args
            name = str(_value(args, "name") or "")
            if event.name == "process_name":
                lanes[event.pid] = name
            elif event.name == "thread_name":
                threads[event.pid, event.tid] = name
            elif event.name == "process_labels":
                of = _LABEL.fullmatch(str(_value(args, "labels") or "").strip())
                if of:
                    devices[event.pid] = int(of.group(1))
    done = [event for event in events if event.ph == "X"]
    timeline = Timeline()
    if not done:
        return timeline
    start, end = _ns([event.ts for event in done]), _ns([event.dur for event in done])
    times = pl.DataFrame({"start": start, "end": start + end})
    odd = times["end"].is_null()
    if odd.all():
        raise BadInput(path, "not a timeline: no event has a time and a duration")
    if odd.any():
        timeline.notes[f"events whose time or duration is not a number, {NO_TIME}"] = int(odd.sum())
    if lanes:
        ends = [e for e in events if e.ph == "f" and lanes.get(e.pid, "").startswith(_HARDWARE)]
        arrows = nodes.frame([{"device": devices.get(e.pid, device)} for e in ends])
        arrows = arrows.with_columns(
            _ns([e.ts for e in ends]).alias(name) for name in ("start", "end")
        )
        _name(timeline, done, times, lanes, threads, device, devices, arrows)
    else:
        _number(timeline, done, times, threads, device)
    return timeline


def _ns(values: Sequence[str | float | None]) -> pl.Series:
    """Return µs as ns: exactly if they are texts, because a double cannot hold a Unix time in ns."""
    text = pl.Series(
        [value if isinstance(value, str) else None for value in values], dtype=pl.String
    )
    number = pl.Series(
        [value if isinstance(value, (int, float)) else None for value in values], dtype=pl.Float64
    )
    parts = (
        text.str.strip_chars()
        .str.extract_groups(r"^([0-9]{1,16})(?:\.([0-9]{1,12}))?$")
        .struct.unnest()
    )
    microseconds, rest = parts.get_columns()
    exact = microseconds.cast(pl.Int64, strict=False) * 1000 + (
        rest.fill_null("").str.pad_end(3, "0").str.slice(0, 3).cast(pl.Int64, strict=False)
    )
    exact = pl.select(pl.when(exact.is_between(0, LATEST)).then(exact)).to_series()
    fits = number.is_finite() & (number.abs() < LATEST / 1000)
    rounded = pl.select(pl.when(fits).then((number * 1000).round()).cast(pl.Int64)).to_series()
    return pl.select(pl.coalesce(exact, rounded)).to_series()


# ------------------------------------------------------------------- timelines with named lanes


def _name(
    timeline: Timeline,
    events: Sequence[Any],
    times: pl.DataFrame,
    lanes: dict[int | str, str],
    threads: dict[tuple[int | str, int | str], str],
    device: int,
    devices: dict[int | str, int],
    arrows: pl.DataFrame,
) -> None:
    tasks: list[dict[str, object]] = []
    done: list[pl.DataFrame] = []
    planes: list[dict[str, object]] = []
    wholes: list[dict[str, object]] = []
    computing: list[dict[str, object]] = []
    other: Counter[str] = Counter()
    for event, start, end in zip(events, times["start"], times["end"], strict=True):
        if start is None or end is None:
            continue
        lane = lanes.get(event.pid, "")
        args = event.args or _NONE
        location = {"device": devices.get(event.pid, device), "start": start, "end": end}
        if _step(timeline, event, threads, start, end):
            continue
        if lane.startswith(_HARDWARE):
            if event.cat or _STEP_LANE.match(threads.get((event.pid, event.tid), "")):
                continue  # parts of a step
            tasks.append(location | _task(event, args, threads))
            if len(tasks) >= _PIECE:
                done.append(_frame(tasks))
                tasks.clear()
        elif _is_hccl(lane):
            thread = threads.get((event.pid, event.tid), "")
            if args.of_plane is not None or _PLANE.match(thread):
                planes.append(location | _plane(event, args))
            else:
                wholes.append(location | {"name": event.name})
        elif lane.startswith("CPU OP"):
            timeline.cpu.append((event.name, _int(event.tid), start, end))
        elif lane in ("python", "python3") or lane.startswith(("MSTX", "msproftx")):
            timeline.users.append((event.name, _int(event.tid), start, end))
        elif lane.startswith("Overlap Analysis"):
            if event.name == "Computing":
                computing.append(location)
        elif not lane.startswith("Scope Layer"):
            other[lane or "a lane without a name"] += 1
    for lane, count in other.items():
        timeline.notes[
            f"events of the lane {lane[:40]}, which are no work of the device, left out"
        ] = count
    on_device = pl.concat([*done, _frame(tasks)])
    used = {(event.pid, event.tid) for event in events}
    bare = sum(
        lanes.get(lane[0], "").startswith(_HARDWARE) and _stream(name) is not None
        for lane, name in threads.items()
        if lane not in used
    )
    timeline.notes.update(_lost(on_device, bare, _frame(planes), nodes.frame(computing), arrows))
    timeline.ran = _with_collectives(on_device, planes, wholes)


def _lost(
    tasks: pl.DataFrame,
    bare_streams: int,
    planes: pl.DataFrame,
    computing: pl.DataFrame,
    arrows: pl.DataFrame,
) -> dict[str, int]:
    """Return the evidence of missing tasks in the file (``LOST``), with counts. A file without any task is
    one of another part, or empty."""
    if tasks.is_empty():
        return {}
    of_planes = planes.drop_nulls("stream")
    bare = of_planes.join(tasks, on=["device", "stream"], how="anti")
    if len(bare) == len(of_planes):  # for example if the planes' streams have numbers of their own
        bare = bare.clear()
    works = tasks.join(of_planes, on=["device", "stream"], how="anti")
    found = {
        _BARE_FLOWS: _without_task(arrows, tasks),
        _IDLE_COMPUTING: _without_task(computing, works),
        _BARE_PLANES: len(bare),
        _BARE_STREAMS: bare_streams,
    }
    return {message: count for message, count in found.items() if count}


def _without_task(spans: pl.DataFrame, tasks: pl.DataFrame) -> int:
    """Return in how many of the spans none of the tasks ran."""
    number = 0
    for (device,), mine in spans.drop_nulls("start").group_by("device"):
        of_device = tasks.filter(pl.col("device") == device)
        low, high = merge(*(of_device[name].to_numpy() for name in ("start", "end")))
        start, end = (mine[name].to_numpy() for name in ("start", "end"))
        last = np.searchsorted(low, end + _ROUNDED) - 1  # the event begins before the span ends
        number += int(((last < 0) | (at(high, last, 0) <= start - _ROUNDED)).sum())
    return number


def _frame(tasks: list[dict[str, object]]) -> pl.DataFrame:
    return frame_of(tasks, _MORE)


def _is_hccl(lane: str) -> bool:
    return lane == "HCCL" or lane.startswith(("Communication", "HCCL "))


def _step(
    timeline: Timeline,
    event: _Event,
    threads: dict[tuple[int | str, int | str], str],
    start: int,
    end: int,
) -> bool:
    """Note a step, and return whether the event is one."""
    number = _STEP.match(event.name)
    if number is None:
        return False
    profiled = event.name.startswith("ProfilerStep#")
    if not profiled and event.cat != "Iteration Time":
        thread = threads.get((event.pid, event.tid), "")
        if not (_STEP_LANE.match(thread) or thread == "Steps"):
            return False
    step = int(number.group(1)), start, end
    timeline.steps.append(step)
    if event.args is not None and event.cat == "Iteration Time":
        points = _ns([_time(event.args.forward), _time(event.args.backward)]).to_list()
        if None not in points:
            timeline.points[step] = points[0], points[1]
    return True


def _time(value: Any) -> str | float | None:
    return value if isinstance(value, (str, int, float)) else None


def _task(
    event: _Event, args: _Args, threads: dict[tuple[int | str, int | str], str]
) -> dict[str, object]:
    """Return a task of the device: an op if its name is an op's, else work of CANN itself."""
    core = _word(args.task_type)
    stream = _stream(args.stream if args.stream is not None else args.physical)
    if stream is None:
        stream = _stream(threads.get((event.pid, event.tid), event.tid))
    own = core is not None and event.name.upper() == core.upper()
    launched = _word(args.launch)  # MindSpore's launch, joined as its parser does
    return {
        "stream": stream,
        "name": event.name.rpartition("/")[2] or event.name,
        "node": None if own else event.name,
        "core": core,
        "kind": None if _NODE.search(event.name) else _launch(launched),
        "task": _stream(args.task),
    }


def _launch(text: str | None) -> str | None:
    match = re.search(r"([A-Za-z_]\w*)-op[0-9]+\Z", text or "")
    return match.group(1) if match else None


def _plane(event: _Event, args: _Args) -> dict[str, object]:
    return {
        "stream": _stream(args.plane_stream),
        "task": _stream(args.plane_task),
        "name": event.name,
        "core": _word(args.of_plane) or event.name,
        "waits": bool(_NOTIFY.match(event.name)),
    }


def _with_collectives(
    ran: pl.DataFrame, planes: list[dict[str, object]], wholes: list[dict[str, object]]
) -> pl.DataFrame:
    """Return the device's tasks, with a collective's tasks named after the collective.

    A collective (``Default/AllReduce-op534_0``, a row of ``Communication``) consists of tasks on several
    streams, which its planes repeat. Those that move data are its kernels; those that wait for other ranks
    are synchronisations. A collective without tasks is one kernel.
    """
    inner = _frame(planes).sort("start", maintain_order=True)
    outer = nodes.frame(wholes).sort("start", maintain_order=True)
    if len(outer):
        around = outer.select("start", from_start="start", whole="name", until="end")
        inner = inner.join_asof(around, on="start", strategy="backward")
        within = pl.col("start") < pl.col("until")
        inner = inner.with_columns(pl.when(within).then("whole").alias("whole"))
    else:
        inner = inner.with_columns(
            pl.lit(None, pl.String).alias("whole"), pl.lit(None, pl.Int64).alias("from_start")
        )
    used = inner.filter(pl.col("whole").is_not_null() & ~pl.col("waits"))
    collective = inner.filter(pl.col("whole").is_not_null()).select(
        "stream", "task", "start", "whole", "waits"
    )
    if len(ran) and len(collective):
        joined = ran.drop("waits").join(
            collective.unique(["stream", "task", "start"], keep="first"),
            on=["stream", "task", "start"], how="left", maintain_order="left",
        )  # fmt: skip
        works = pl.col("whole").is_not_null() & ~pl.col("waits").fill_null(False)
        ran = joined.with_columns(
            pl.when(works).then("whole").otherwise("node").alias("node"),
            pl.when(works).then(pl.lit("HCCL")).otherwise("core").alias("core"),
        )
    elif not len(ran) and len(inner):
        works = pl.col("whole").is_not_null() & ~pl.col("waits")
        ran = inner.with_columns(
            pl.when(works).then("whole").alias("node"),
            pl.when(works).then(pl.lit("HCCL")).otherwise("core").alias("core"),
        )
    lone = outer
    if len(used) and len(outer):
        has = used.select(start="from_start", name="whole").unique()
        lone = outer.join(has, on=["start", "name"], how="anti")
    lone = lone.with_columns(
        pl.col("name").alias("node"),
        pl.col("name").str.extract(r"([^/]*)\z", 1).alias("name"),
        pl.lit("HCCL").alias("core"),
    )
    return pl.concat([nodes.conform(ran), nodes.conform(lone)])


# ----------------------------------------------------------------- timelines with numbered lanes


def _number(
    timeline: Timeline,
    events: Sequence[Any],
    times: pl.DataFrame,
    threads: dict[tuple[int | str, int | str], str],
    device: int,
) -> None:
    rows: list[dict[str, object]] = []
    kernels: list[dict[str, object]] = []
    other: Counter[str] = Counter()
    for event, start, end in zip(events, times["start"], times["end"], strict=True):
        if start is None or end is None:
            continue
        args = event.args or {}
        lane = threads.get((event.pid, event.tid), str(event.tid))
        location = {"device": device, "start": start, "end": end}
        if event.tid == _STEPS_TID or lane == "Steps":
            number = _STEP.match(event.name)
            if event.name.isdigit() and len(event.name) < 19:
                timeline.steps.append((int(event.name), start, end))
            elif number:
                timeline.steps.append((int(number.group(1)), start, end))
        elif event.pid == _OVERLAP or event.tid == _SCOPE_TID or lane == "Scope Name":
            continue  # derived from other events
        elif event.pid == _HOST_CPU or lane.startswith(("HostCpuOps", "Host CPU")):
            timeline.cpu.append(
                (event.name, _int(event.tid) if lane[:4] != "Host" else 0, start, end)
            )
        elif "op_full_name" in args:
            # CUPTI's records of a GPU: a kernel, and the op that launched it
            node = _text(args, "op_full_name") or None
            kernels.append(
                location
                | {
                    "stream": _stream(lane),
                    "name": event.name,
                    "node": node,
                    "core": "GPU",
                    "grid": _text(args, "grid_dim"),
                    "block": _text(args, "block_dim"),
                }
            )
        elif lane in ("Ops", "GpuOps") or event.tid == _GPU_OPS_TID or event.tid == "Ops":
            other["operators on the host of a GPU (their kernels are read instead)"] += 1
        elif event.pid == _COMMUNICATION:
            rows.append(location | {"stream": _stream(lane), "name": event.name, "node": _reduce(event.name),
                                 "core": "HCCL"})  # fmt: skip
        else:
            inputs, outputs = _tensors(args)
            core = "AI_CPU" if event.pid == _AI_CPU else "AI_CORE"
            rows.append(
                location
                | {
                    "stream": _stream(lane),
                    "name": event.name,
                    "node": _text(args, "fullname") or event.name,
                    "kind": _text(args, "type"),
                    "core": core,
                    "inputs": inputs,
                    "outputs": outputs,
                }
            )
    for message, count in other.items():
        timeline.notes[f"{message}: left out"] = count
    timeline.ran = nodes.frame([*rows, *kernels])
    first = timeline.ran["start"].min()
    timeline.relative = isinstance(first, int) and 0 <= first < 1_000_000_000


def _reduce(name: str) -> str:
    """Return the op in ``stream_48_0_Receive-op663``."""
    return re.sub(r"\Astream_(?:ops_)?[0-9]+_[0-9]+_", "", name)


def _tensors(args: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the tensors in ``input_0: {format, data_type, shape}`` … in the form of
    ``nodes.shapes_text``."""
    tensors_of_sides: dict[str, dict[int, tuple[str, str, str]]] = {"input": {}, "output": {}}
    for key, value in args.items():
        match = _TENSOR.match(key)
        if match and isinstance(value, dict):
            tensors_of_sides[match.group(1)][int(match.group(2))] = tensor_of(value)
    sides = ([side[number] for number in sorted(side)] for side in tensors_of_sides.values())
    inputs, outputs = (nodes.shapes_text(side) for side in sides)
    return inputs, outputs


def tensor_of(value: dict[str, Any]) -> tuple[str, str, str]:
    """Return (sizes, dtype, format) of MindSpore's description of a tensor."""
    return (
        str(value.get("shape", ""))[:256],
        str(value.get("data_type", ""))[:64],
        str(value.get("format", ""))[:64],
    )


# ------------------------------------------------------------------------------------- values


def _value(args: Any, key: str) -> Any:
    return args.get(key) if isinstance(args, dict) else getattr(args, key)


def _text(args: dict[str, Any], key: str) -> str | None:
    return _word(args.get(key))


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value != "N/A" else None


def _int(value: int | str) -> int:
    match = re.search(r"[0-9]{1,9}", str(value))
    return int(match.group()) if match else 0


def _stream(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    match = _STREAM.match(str(value))
    return int(match.group(1)) if match else None

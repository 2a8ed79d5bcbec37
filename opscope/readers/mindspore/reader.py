"""Read one file or one folder of MindSpore's profiler: choose the files that contain most, and join them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from opscope.core.dialects.mindspore import DOMAIN
from opscope.core.schema import STEP
from opscope.core.tables.impossible import NO_TIME
from opscope.core.tables.trace import Trace, concat
from opscope.readers.errors import BadInput, SeveralRuns
from opscope.readers.heads import is_json
from opscope.readers.kineto.json_events import read_blocks
from opscope.readers.sound import sound_trace

from . import cpu_files, minddata, nodes, tables, timeline, totals
from .files import (
    TOTALS,
    File,
    databases_in,
    files_in,
    kind_of,
    processes_in,
    rank_of,
    rank_twice,
    what_without,
)
from .timeline import LOST, Timeline

#: Most timelines of one device; CANN writes one for each iteration.
_MOST_FILES: Final = 1000
_VERSIONS: Final = "opscope knows those of MindSpore 1.2 to 2.10 (docs/mindspore-files.md)"
_ONE_OP: Final = (
    "kernels whose op is the first that ran a kernel of that name: MindSpore's profiler of GPUs keeps one op "
    "for each kernel name, so a kernel that several ops share is shown in one of them"
)
_OTHER_CLOCK: Final = (
    "steps left out: the times of ascend_timeline_display begin at 0, and no file tells "
    "when that was"
)
_NO_TIMES_BUT_STEPS: Final = "steps left out: no file here has the times of ops, only their totals"
_TOTALS_TOO: Final = (
    "ranks left out, whose files have totals and no times, as those of others here have times"
)
_OTHER_RANKS: Final = (
    "files of the dataset left out: they are not of as many ranks as the files of ops here"
)
_WITHOUT_TASK: Final = f"{LOST}ops in the table of totals beside, which no task ran"
#: From this share on, ops of the table of totals have the names of tasks.
_SAME_NAMES: Final = 0.1
_TWO_CLOCKS: Final = (
    "tasks left out: the times of their timeline begin at 0, and those of another one here do not"
)
#: Lanes of work that did not run on the CPU.
_NOT_CPU: Final = re.compile(rb'"(?:Ascend Hardware|CANN|MindSpore)"')
_LONGEST_LANE: Final = 32
_OTHER_TOOL: Final = "timelines whose lanes are neither the device's nor those of ops, left out"
_TASKS: Final = re.compile(r"(task_time|hccl|step_trace)_([0-9_]+\.json)\Z")
_WHOLE: Final = re.compile(r"msprof_(?:slice_[0-9]+_)?[0-9]{14,20}\.json\Z")
_WRITTEN: Final = re.compile(r"[0-9]{14,20}\.json\Z")


@dataclass(slots=True)
class _Rank:
    """The content of one rank's files."""

    number: int | None
    ran: list[pl.DataFrame] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    points: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    users: list[tuple[str, int, int, int]] = field(default_factory=list)
    cpu: list[tuple[str, int, int, int]] = field(default_factory=list)
    host_ops: list[pl.DataFrame] = field(default_factory=list)
    dataset: list[Path] = field(default_factory=list)
    notes: list[tuple[str, str, int]] = field(default_factory=list)
    made_up: bool = False
    device_name: str | None = None
    host: str | None = None
    pid: int | None = None
    #: Whether it comes from a single file outside any folder of this profiler.
    of_file: bool = False

    @property
    def executed(self) -> bool:
        """Whether its files have an execution or a step, not only its dataset."""
        return bool(self.ran or self.steps or self.cpu or self.host_ops)


def read(path: Path) -> Trace:
    """Return the trace in a file or a folder of MindSpore's profiler. Raises BadInput."""
    return _folder(path) if path.is_dir() else _file(path)


# -------------------------------------------------------------------------------------- files


def _file(path: Path) -> Trace:
    head = next(read_blocks(path), b"")[:4096]
    kind = kind_of(head, path.name)
    if kind is None and is_json(head):
        kind = "timeline"  # if the first bytes do not show the kind, another part does
    if kind in (None, "without", "dataset"):
        problem = what_without(path.name) or "nothing that opscope knows"
        raise BadInput(
            path,
            f"a file of MindSpore's profiler with {problem}, and no times of ops: open the folder it is in",
        )
    if kind in ("shapes", "aicpu", "gpu_ops", "cpu_totals", "points", "gpu_shapes"):
        raise BadInput(
            path,
            "a file of MindSpore's profiler that only explains others: open the folder that it is in",
        )
    rank = rank_of(path)
    if kind == "cpu":
        return _cpu_trace([cpu_files.executions(path)], path)
    rank_files = _Rank(rank, of_file=True)
    try:
        _take(rank_files, [File(path, str(kind), rank)])
    except timeline.OtherTimelineError:
        from opscope.readers import kineto  # lazy: only a timeline of another tool needs it

        return kineto.read(path)
    return _trace(path, [rank_files], [path])


def _folder(path: Path) -> Trace:
    files = files_in(path)
    of_dataset = [file for file in files if file.kind == "dataset"]
    single = [file for file in files if file.kind in _USED] or of_dataset
    databases = databases_in(path)
    # the database of torch_npu says which op launched which kernel; its timeline does not
    if databases and (not single or databases[0].name.startswith("ascend_pytorch")):
        from opscope.readers import ascend_db  # lazy: few folders have a database

        return concat([ascend_db.read(database) for database in databases])
    if not single:
        inner = processes_in(path)
        if inner:
            rank = rank_twice(inner)
            if rank is not None:
                raise SeveralRuns(path, rank, inner)
            return concat([_folder(folder) for folder in inner])
        raise BadInput(
            path,
            f"output of MindSpore's profiler without a file of ops that opscope knows: {_VERSIONS}; "
            "output that was not analysed yet needs mindspore.profiler.profiler.analyse(path)",
        )
    if all(file.kind in ("cpu", "shapes", "cpu_totals") or _only_cpu(file) for file in single):
        return _with_dataset(cpu_files.tables_of(path), of_dataset)
    by_rank: dict[int | None, list[File]] = defaultdict(list)
    for one in files:
        by_rank[one.rank].append(one)
    if None in by_rank and len(by_rank) == 2:  # files without a number belong to the only rank
        only = next(rank for rank in by_rank if rank is not None)
        by_rank[only] += by_rank.pop(None)
    ranks = []
    for number in sorted(by_rank, key=lambda rank: -1 if rank is None else rank):
        rank_files = _Rank(number)
        _take(rank_files, by_rank[number])
        _describe(rank_files, path, number)
        if rank_files.executed or rank_files.dataset:
            ranks.append(rank_files)
    real = [rank for rank in ranks if not rank.made_up]
    if any(rank.executed for rank in real) and len(real) < len(ranks):
        real[0].notes.append(("warning", _TOTALS_TOO, len(ranks) - len(real)))
        ranks = real
    if not ranks:
        raise BadInput(path, "files of MindSpore's profiler without any op or step")
    return _trace(path, ranks, [file.path for file in single])


_USED: Final = frozenset(
    ("kernels", "timeline", "timestamps", "activities", "cpu", "ticks", "points", *TOTALS)
)


def _only_cpu(file: File) -> bool:
    """Whether a timeline is a ``trace_view.json`` with only operators on the CPU in all its lanes."""
    if file.path.name != cpu_files.VIEW:
        return False
    ops, end = False, b""
    for block in read_blocks(file.path):
        text = end + block
        if _NOT_CPU.search(text):
            return False
        ops = ops or b'"CPU OP"' in text
        end = text[-_LONGEST_LANE:]
    return ops


# ---------------------------------------------------------------------------------- one rank


def _take(rank: _Rank, files: Sequence[File]) -> None:
    """Add the content of its files to ``rank``, each item from the file that has most of it."""
    device = rank.number or 0
    of: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        of[file.kind].append(file.path)
    rank.dataset = of["dataset"]
    lines = _timelines(rank, _chosen(of["timeline"]), device)
    details = of["kernels"]
    for path in _details(details):
        ran, steps = tables.kernel_details(path, device, rank.notes)
        rank.ran.append(ran)
        if not any(line.steps for line in lines):
            rank.steps += steps
    offset: int | None = None
    if not sum(len(ran) for ran in rank.ran):
        relative = [line for line in lines if line.relative]
        offset = _offset(of, relative, device) if relative else None
        for line in lines:
            shift = offset if line.relative else 0
            if shift is None and len(relative) < len(lines):
                rank.notes.append(("warning", _TWO_CLOCKS, len(line.ran)))
            else:
                rank.ran.append(line.ran.with_columns(pl.col("start", "end") + (shift or 0)))
    timed = sum(len(ran) for ran in rank.ran)
    if not timed:
        for path in of["timestamps"]:
            rank.ran.append(tables.timestamps(path, device, rank.notes))
        for path in of["activities"]:
            about = next(iter(of["activity"]), None)
            rank.ran.append(tables.activities(path, about, device))
        timed = sum(len(ran) for ran in rank.ran)
    one_op = sum(
        int(((ran["core"] == "GPU") & ran["node"].is_not_null()).sum()) for ran in rank.ran
    )
    if one_op:
        rank.notes.append(("info", _ONE_OP, one_op))
    if not rank.steps:
        _steps(
            rank, of, device, any(line.relative for line in lines) and offset is None, bool(timed)
        )
    timed = sum(len(ran) for ran in rank.ran)
    if timed and of["aicore"]:
        _compare(rank, of["aicore"][0], device)
    if not timed and not (of["cpu"] or rank.cpu):
        _totals(rank, of, device)
    for path in of["shapes"]:
        info_of_nodes = tables.framework_raw(path)
        rank.ran = [tables.with_shapes(ran, info_of_nodes) for ran in rank.ran]
    for path in of["cpu"]:
        part = cpu_files.executions(path)
        rank.notes += part.notes
        rank.cpu = []  # a timeline has the tasks, but without shapes
        rank.host_ops.append(cpu_files.ranges(part.table, 0).drop("id", strict=False))


def _chosen(paths: Sequence[Path]) -> list[Path]:
    """Leave out files that are parts of a complete timeline: ``msprof_0_2_1.json`` contains
    ``task_time_0_2_1.json``."""
    names = {path.name for path in paths}
    views = [path for path in paths if path.name == cpu_files.VIEW]
    if views:
        return views
    # names of newer files end in the time of writing
    timed = {path.parent for path in paths if _WHOLE.match(path.name)}
    kept = []
    for path in paths:
        part = _TASKS.match(path.name)
        if part and part.group(1) != "step_trace" and f"msprof_{part.group(2)}" in names:
            continue
        if part and path.parent in timed and _WRITTEN.match(part.group(2)):
            continue
        kept.append(path)
    return kept


def _details(paths: Sequence[Path]) -> list[Path]:
    """Prefer MindSpore's ``kernel_details.csv`` to CANN's ``op_summary``, from which it is made."""
    details = [path for path in paths if path.name.startswith("kernel_details")]
    return details or list(paths)


def _timelines(rank: _Rank, paths: Sequence[Path], device: int) -> list[Timeline]:
    if len(paths) > _MOST_FILES:
        raise BadInput(paths[0].parent, f"more than {_MOST_FILES} timelines: point to one of them")
    timelines = []
    for path in paths:
        try:
            timelines.append(timeline.read(path, device))
        except timeline.OtherTimelineError:
            if rank.of_file:
                raise
            rank.notes.append(("warning", _OTHER_TOOL, 1))
    seen: set[tuple[int, int, int]] = set()
    for line in timelines:
        # a step may be in its own file and in the file of its iteration
        rank.steps += [step for step in line.steps if step not in seen]
        seen.update(line.steps)
        rank.points |= line.points
        rank.users += line.users
        rank.cpu += line.cpu
        rank.notes += [
            (
                "warning" if NO_TIME in message or message.startswith(LOST) else "info",
                message,
                count,
            )
            for message, count in line.notes.items()
        ]
    return timelines


def _offset(of: dict[str, list[Path]], lines: Sequence[Timeline], device: int) -> int | None:
    """Return the time (ns) at which the times of ``ascend_timeline_display`` are 0, when the first op
    began; None if no file has it. ``output_timeline_data`` has the time of each op, and
    ``aicpu_intermediate`` those of ops on the AI CPU (``run_start``, us), which are also in the timeline."""
    ran = pl.concat([line.ran for line in lines]).drop_nulls(["node", "start"])
    for path in of["timestamps"]:
        timestamps = tables.timestamps(path, device).drop_nulls(["node", "start"])
        both = ran.sort("start").unique("node", keep="first").join(
            timestamps.sort("start").unique("node", keep="first"), on="node"
        )  # fmt: skip
        if len(both):
            apart = (both["start_right"] - both["start"]).sort()
            return int(apart[len(apart) // 2])
    for path in of["aicpu"]:
        frame = tables.csv_frame(path)
        if "run_start" in frame.columns and ran["start"].min() == 0:
            first = frame["run_start"].str.strip_chars().cast(pl.Int64, strict=False).min()
            if isinstance(first, int) and 0 < first < 1 << 50:
                return first * 1000
    return None


def _steps(
    rank: _Rank, of: dict[str, list[Path]], device: int, other_clock: bool, timed: bool
) -> None:
    for path in of["ticks"]:
        step_rows, collectives = tables.steps(path, device, rank.notes)
        if other_clock:
            rank.notes.append(("warning", _OTHER_CLOCK, len(step_rows)))
            continue
        rank.steps += step_rows
        rank.points |= tables.step_points(path)
        if not timed:  # a timeline has the steps too
            rank.ran.append(collectives)
    if not of["ticks"]:
        for path in of["points"]:
            rank.steps += tables.gpu_steps(path, rank.notes)
            rank.points |= tables.gpu_points(path)


def _compare(rank: _Rank, path: Path, device: int) -> None:
    """Note the ops in the table of totals that no task ran, unless it has other names or is damaged."""
    try:
        listed = totals.read(path, "aicore", device).ran["node"]
    except BadInput as error:  # the tasks are complete
        rank.notes.append(("warning", f"{path.name} cannot be read: {error.what}", 1))
        return
    nodes_ran = pl.concat([ran["node"] for ran in rank.ran])
    there = listed.is_in(nodes_ran.implode())
    if _SAME_NAMES * len(listed) <= there.sum() < len(listed):
        rank.notes.append(("warning", _WITHOUT_TASK, len(listed) - int(there.sum())))


def _totals(rank: _Rank, of: dict[str, list[Path]], device: int) -> None:
    """Add totals without times: the first kind that exists."""
    for kind in TOTALS:
        if not of[kind]:
            continue
        totals_read = totals.read(of[kind][0], kind, device)
        rank.ran.append(totals_read.ran)
        if rank.steps and not totals_read.steps:
            rank.notes.append(("warning", _NO_TIMES_BUT_STEPS, len(rank.steps)))
        rank.steps = totals_read.steps
        rank.made_up = True
        rank.notes.append(("warning", totals.MADE_UP, len(totals_read.ran)))
        rank.notes += [("warning", message, count) for message, count in totals_read.notes]
        return


def _describe(rank: _Rank, folder: Path, number: int | None) -> None:
    """Add the device, the host and the process that CANN describes in ``info.json.N``."""
    name = f"info.json.{number or 0}"
    for path in sorted(
        (*folder.glob(name), *folder.glob(f"*/{name}"), *folder.glob(f"*/*/{name}"))
    )[:1]:
        try:
            if path.stat().st_size > 1 << 20:
                return
            about = json.loads(path.read_bytes())
            cores = about["DeviceInfo"][0]["ai_core_num"]
            host, pid = about.get("hostname"), str(about.get("pid"))
        except (OSError, ValueError, LookupError, TypeError, RecursionError, AttributeError):
            rank.notes.append(
                ("info", f"{name} cannot be read: the device's cores are not known", 1)
            )
            return
        if isinstance(cores, int) and 0 < cores < 1000:
            rank.device_name = f"Ascend NPU ({cores} AI cores)"
        rank.host = host if isinstance(host, str) else None
        rank.pid = int(pid) if pid.isdigit() and len(pid) < 10 else None


# --------------------------------------------------------------------------------- the trace


def _cpu_trace(parts: Sequence[cpu_files.Executions], path: Path) -> Trace:
    rank = _Rank(parts[0].rank)
    tables_made = {
        "processes": _process(rank, len(parts) > 1, "mindspore"),
        "ranges": cpu_files.ranges(parts[0].table, 0),
    }
    tables_made["ranges"] = tables_made["ranges"].with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("id")
    )
    tables_made["clocks"] = _clock(parts[0].unix)
    trace = sound_trace(tables_made, _origin([path]))
    for note in parts[0].notes:
        trace.note(*note)
    return trace


def _origin(paths: Sequence[Path], made_up: bool = False) -> dict[str, object]:
    origin: dict[str, object] = {
        "format": "mindspore",
        "tool": "mindspore.profiler",
        "paths": [str(path) for path in paths],
    }
    if made_up:
        origin["times"] = "made up"
    return origin


def _trace(path: Path, ranks: Sequence[_Rank], paths: Sequence[Path]) -> Trace:
    several = len(ranks) > 1
    return concat([_one(path, rank, several, paths) for rank in ranks])


def _one(path: Path, rank: _Rank, several: bool, paths: Sequence[Path]) -> Trace:
    ran = (
        pl.concat([nodes.conform(executions) for executions in rank.ran])
        if rank.ran
        else nodes.frame([])
    )
    # timelines of several iterations may contain the same task twice
    ran = ran.unique(maintain_order=True) if len(rank.ran) > 1 else ran
    # CANN's files may come from other frameworks too, whose ops have other names
    ours = rank.cpu or rank.host_ops or ran["node"].str.contains(r"-op[0-9]+").any() or not len(ran)
    framework = "mindspore" if ours and "_ascend_pt" not in str(path) else None
    tables_made = {
        "processes": _process(rank, several, framework),
        "clocks": _clock(_is_unix(ran, rank.cpu)),
    }
    if len(ran):
        tables_made |= nodes.tables_of(ran)
        gpu = (ran["core"] == "GPU").any()
        devices = ran["device"].drop_nulls().unique().sort()
        name = rank.device_name or (None if gpu else "Ascend NPU")
        tables_made["devices"] = pl.DataFrame(
            {
                "process": pl.Series([0] * len(devices), dtype=pl.Int32),
                "device": devices,
                "name": pl.Series([name] * len(devices), dtype=pl.String),
            }
        )
    ranges = [_steps_table(rank.steps, rank.points)] if rank.steps else []
    if rank.cpu:
        ranges.append(_cpu_ranges(rank.cpu))
    ranges += rank.host_ops
    waits = _waits(rank, ran)
    if len(waits):
        ranges.append(waits)
    if rank.users:
        ranges.append(_ranges([(*user, "user", None) for user in rank.users]))
    if ranges:
        tables_made["ranges"] = pl.concat(ranges, how="diagonal").with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).alias("id")
        )
    sampled = minddata.samples(rank.dataset, rank.notes)
    if len(sampled):
        tables_made["samples"] = sampled
    if not ranges and not len(ran) and not len(sampled):
        raise BadInput(path, "no op, no step and no task of a device in it")
    origin = _origin(paths, rank.made_up)
    if not (rank.cpu or rank.host_ops) and (ranges or len(ran)):
        origin["gpu"] = True  # a device's steps may exist without its tasks
    trace = sound_trace(tables_made, origin)
    for note in rank.notes:
        trace.note(*note)
    return trace


def _waits(rank: _Rank, ran: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges of the device's waits for a batch, on the thread of its steps."""
    times = [step[1:] for step in rank.steps] if not rank.made_up else []
    timed = ran.select("start", "end").drop_nulls()
    if len(timed) and not rank.made_up:
        times.append((timed["start"].min(), timed["end"].max()))  # type: ignore[arg-type]
    span = (min(time[0] for time in times), max(time[1] for time in times)) if times else None
    waits = minddata.waits(rank.dataset, span, rank.notes)
    columns = waits.select("text", pl.lit(0), "start", "end", "domain", "category")
    return _ranges(columns.rows()).with_columns(waits["payload"])


def _with_dataset(trace: Trace, files: Sequence[File]) -> Trace:
    """Return a trace of CPU ops with the dataset files of its processes, if each process has them."""
    notes: list[tuple[str, str, int]] = []
    ranks = sorted({file.rank or 0 for file in files})
    sampled = [
        minddata.samples(
            [file.path for file in files if (file.rank or 0) == rank], notes
        ).with_columns(pl.lit(number, pl.Int32).alias("process"))
        for number, rank in enumerate(ranks)
    ]
    if len(ranks) == len(trace["processes"]):
        trace = trace.replace(samples=pl.concat(sampled))
    elif ranks:
        notes = [("warning", _OTHER_RANKS, len(files))]
    for note in notes:
        trace.note(*note)
    return trace


def _is_unix(ran: pl.DataFrame, cpu: Sequence[tuple[str, int, int, int]]) -> bool:
    first = ran["start"].min() if len(ran) else min((op[2] for op in cpu), default=0)
    return isinstance(first, int) and first >= cpu_files.UNIX


def _process(rank: _Rank, several: bool, framework: str | None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "process": pl.Series([0], dtype=pl.Int32),
            "host": pl.Series([rank.host], dtype=pl.String),
            "pid": pl.Series([rank.pid], dtype=pl.Int64),
            "rank": pl.Series([rank.number if several else None], dtype=pl.Int32),
            "clock_domain": pl.Series([0], dtype=pl.Int32),
            "framework": pl.Series([framework], dtype=pl.String),
        }
    )


def _clock(unix: bool) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "clock_domain": [0],
            "kind": ["unix" if unix else "device"],
            "to_unix_ns": pl.Series([0 if unix else None], dtype=pl.Int64),
        }
    )


def _steps_table(
    steps: Sequence[tuple[int, int, int]], points: Mapping[tuple[int, int, int], tuple[int, int]]
) -> pl.DataFrame:
    """Return the steps' ranges; where forward begins and backward ends is in ``attrs`` (ns)."""
    step_points = [points.get(step) for step in steps]
    attrs = [
        None if point is None else f'{{"forward_start":{point[0]},"backward_end":{point[1]}}}'
        for point in step_points
    ]
    rows = [
        (f"{STEP} {number}", 0, start, end, "opscope.step", "step") for number, start, end in steps
    ]
    return _ranges(rows).with_columns(pl.Series("attrs", attrs, pl.String))


def _cpu_ranges(cpu: Sequence[tuple[str, int, int, int]]) -> pl.DataFrame:
    return _ranges([(*op, DOMAIN, None) for op in cpu])


def _ranges(rows: Sequence[tuple[str, int, int, int, str, str | None]]) -> pl.DataFrame:
    schema = {
        "text": pl.String, "thread": pl.Int64, "start": pl.Int64, "end": pl.Int64, "domain": pl.String,
        "category": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.select(
        pl.lit(0, pl.Int32).alias("process"),
        "thread",
        pl.col("thread").alias("end_thread"),
        "start",
        "end",
        pl.col("domain").cast(pl.Categorical),
        pl.col("category").cast(pl.Categorical),
        pl.col("text").cast(pl.Categorical),
        pl.lit("pushpop").cast(pl.Categorical).alias("kind"),
    )

"""The call tree: steps, layers, ranges, ops and kernels merged by their path, as a flame graph shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.grouped_table import EMPTY
from opscope.core.analysis.ops.op_times import self_time
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.trees import Shape, folded
from opscope.core.attribution.attribute import REASONS, RUNTIME, Launched
from opscope.core.dialects import Reading
from opscope.core.dialects.own import CALLED_FROM
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.words import columns
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import at, compact
from opscope.core.tables.forest import Forest
from opscope.core.tables.intervals import NONE, Ints, Nest, nest
from opscope.core.tables.lanes import lanes
from opscope.core.tables.row_numbers import Numbering

#: Limits of a tree: nested frames, and rows (without the rows for what was left out).
DEPTH: Final = 64
NODES: Final = 5_000
#: The names of the rows for parts beyond a limit, for the root, and for device time on the CPU outside ops.
OTHER, ALL, IDLE = "(other)", "(all)", "(inside steps, outside any op)"
#: Name of the time from the last step until the recording ends: nothing ended that step.
AFTER: Final = "(after the last step)"
#: Kinds of frames, ordered as in a flame graph from its root.
KINDS: Final = {
    "op": "op",
    "layer": "layer",
    "step": "step",
    "phase": "phase",
    "user": "range",
    "source": "python",
    "graph": "graph",
}
COLUMNS: Final = {
    "path_id": pl.Int64,
    "parent_path": pl.Int64,
    "depth": pl.Int64,
    "frame": pl.String,
    "frame_kind": pl.String,
    "calls": pl.Int64,
    "merged": pl.Int64,
    "host_self": pl.Int64,
    "host_total": pl.Int64,
    "device_self": pl.Int64,
    "device_total": pl.Int64,
    "stack": pl.String,
}
#: A longer name is cut: a stack contains up to ``DEPTH`` names.
_LONGEST: Final = 256


class _Names:
    """The frames' names and kinds by number."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], int] = {}

    def number(self, name: str, kind: str) -> int:
        return self.of.setdefault((name, kind), len(self.of))


class _Paths:
    """The distinct paths: the number, parent and name of each, and its sums."""

    def __init__(self) -> None:
        self._numbering = Numbering(2)
        self.parent = np.empty(0, np.int64)
        self.name = np.empty(0, np.int64)

    def of(
        self, parent: NDArray[np.signedinteger[Any]], name: NDArray[np.signedinteger[Any]]
    ) -> Ints:
        """Return the number of each pair of an enclosing path (-1: none) and a name in it."""
        if not len(parent):
            return np.empty(0, np.int64)
        numbers = self._numbering.of(parent, name).astype(np.int64)
        new = self._numbering.many - len(self.parent)
        if new:
            self.parent = np.append(self.parent, np.zeros(new, np.int64))
            self.name = np.append(self.name, np.zeros(new, np.int64))
            self.parent[numbers], self.name[numbers] = parent, name
        return numbers


@dataclass(slots=True)
class _Hosted:
    """Per range row its path (-1: it is not a frame); the nest of each thread with frames, and the nest's
    rows."""

    path: NDArray[np.int32]
    trees: dict[tuple[int, int], tuple[Nest, Ints]]


def call_tree(
    ops: Ops,
    idle: int,
    depth: int = DEPTH,
    nodes: int = NODES,
    lines: Sequence[tuple[str, int]] = (),
) -> pl.DataFrame:
    """Return one row per path, after the row of the path around it, the most time first. || Frames are the
    ranges open on a thread: steps, phases, layers, user ranges, Python functions, ops; kernels and copies are
    the leaves below the op that launched them, else below what was open around their launch. Threads,
    processes and steps are merged. ``_self`` times (ns) add up to the first row's totals. Without a GPU the
    device time is the ops' self time, and ``idle``, the rest, is a row of its own; ``lines`` are parts of it
    by name, most time first.

    At most ``depth`` nested frames and ``nodes`` rows are given, those with the most time; rows ``(other)``
    sum up the rest, and ``merged`` is the number of paths in each.
    """
    names, paths = _Names(), _Paths()
    root = int(paths.of(np.array([NONE]), np.array([names.number(ALL, "all")]))[0])
    hosted, calls, host = _on_host(ops, names, paths, root, depth)
    device = np.zeros(0, np.int64)
    is_timed = ops.on_device or not ops.attribution.trace.used_gpu
    if ops.on_device:
        launched, device = _on_device(ops, hosted, names, paths, root)
        calls = _pad(calls, len(launched)) + launched
    elif is_timed:
        rows = ops.times.rows
        np.add.at(
            device := np.zeros(len(paths.parent), np.int64), hosted.path[rows], ops.times.self_time
        )
        if idle:
            idle_path = int(
                paths.of(np.array([root]), np.array([names.number(IDLE, "outside")]))[0]
            )
            for name, time in lines:
                if time <= idle:
                    line = int(
                        paths.of(np.array([idle_path]), np.array([names.number(name, "outside")]))[
                            0
                        ]
                    )
                    device = _pad(device, len(paths.parent))
                    device[line] += time
                    idle -= time
            device = _pad(device, len(paths.parent))
            device[idle_path] += idle
    count = len(paths.parent)
    sums = [_pad(column, count) for column in (calls, host, device)]
    tree = _prune(paths, list(names.of), sums, is_timed, nodes)
    return tree if len(tree) > 1 else tree.clear()  # nothing was open, and nothing ran


def _pad(values: Ints, count: int) -> Ints:
    return np.append(values, np.zeros(count - len(values), np.int64))


def named_frame(reading: Reading, text: str) -> tuple[str, str] | None:
    """Return the name and kind of a range's frame; None if the range is not a frame."""
    kind = KINDS.get(reading.role)
    if kind is None:
        return None
    if reading.call is not None and kind == "op":
        return reading.call.name, kind
    if kind == "step":
        return "step", kind
    if kind == "python":
        return text.partition(CALLED_FROM)[0], kind
    if kind == "layer":
        return (reading.layer or text).removeprefix("nn.Module: ").removeprefix("layer:"), kind
    return text, kind


def _on_host(
    ops: Ops, names: _Names, paths: _Paths, root: int, deepest: int
) -> tuple[_Hosted, Ints, Ints]:
    """Return the path of each range, and per path the number of its ranges and their self time."""
    attribution = ops.attribution
    ranges, meaning = attribution.trace["ranges"], attribution.meaning
    frames = [named_frame(*pair) for pair in zip(meaning.readings, meaning.texts, strict=True)]
    number = np.array(
        [NONE if frame is None else names.number(*frame) for frame in frames], np.int64
    )
    name = number.astype(np.int32)[meaning.reading]
    lasted = (ranges["end"] - ranges["start"]).fill_null(0).to_numpy()
    if (is_step := np.array([frame == ("step", "step") for frame in frames], bool)).any():
        rows = np.flatnonzero(is_step[meaning.reading])
        unended = ranges["attrs"].gather(rows).str.contains(UNCLOSED_MARK, literal=True)
        name[rows[unended.fill_null(False).to_numpy()]] = names.number(AFTER, "step")
    chosen = (name >= 0) & ((lasted > 0) | attribution.is_op)
    if (
        user := np.array([frame is not None and frame[1] == "range" for frame in frames], bool)
    ).any():
        internal = (ranges["domain"] == RUNTIME).fill_null(False).to_numpy()
        chosen &= ~(user[meaning.reading] & internal & ~attribution.is_op)
    parent = np.full(len(ranges), NONE, np.int32)
    asked = _threads_of_bare(ops, chosen)
    trees: dict[tuple[int, int], tuple[Nest, Ints]] = {}
    start, end = (ranges[column].to_numpy() for column in ("start", "end"))
    for key, rows in lanes(ranges).rows(chosen):
        tree = nest(start[rows], end[rows])
        placed = rows[tree.order]
        parent[placed] = at(placed, tree.parent)
        empty = rows[end[rows] <= start[rows]]
        parent[empty] = at(rows, tree.innermost(start[empty]))
        if key in asked:
            trees[key] = tree, rows
        del tree, placed, empty
    rows = np.flatnonzero(chosen)
    index = np.full(len(ranges), NONE, np.int32)
    index[rows] = np.arange(len(rows), dtype=np.int32)
    forest = Forest(at(index, parent[rows]))
    del index, parent, chosen
    lasted = lasted[rows]
    own = self_time(lambda part: lasted[part], forest.parent)
    found = np.full(len(rows), root, np.int32)
    other = names.number(OTHER, "other")
    for level, nodes in enumerate(forest.levels):
        above = at(found, forest.parent[nodes], root)
        if level < deepest - 1:
            found[nodes] = paths.of(above, name[rows[nodes]])
        else:  # all deeper frames are merged into one row of their enclosing frame
            found[nodes] = (
                paths.of(above, np.full(len(nodes), other)) if level == deepest - 1 else above
            )
    path = np.full(len(ranges), NONE, np.int32)
    path[rows] = found
    calls, host = (np.zeros(len(paths.parent), np.int64) for _ in range(2))
    np.add.at(calls, found, 1)
    np.add.at(host, found, own)
    return _Hosted(path, trees), calls, host


def _threads_of_bare(ops: Ops, chosen: NDArray[np.bool_]) -> set[tuple[int, int]]:
    """Return the (process, thread) of launches without an op that is a frame: only the nests of these
    threads are searched; a nest takes 40 bytes a range."""
    calls = ops.attribution.trace["calls"]
    threads: set[tuple[int, int]] = set()
    for launched in (ops.attribution.kernels, ops.attribution.memops):
        bare = (launched.call >= 0) & ~at(chosen, launched.op, 0)
        of = calls.select("process", "thread")[pl.Series(launched.call[bare], dtype=pl.UInt32)]
        threads |= set(of.fill_null(NONE).unique().rows())
    return threads


def _on_device(
    ops: Ops, hosted: _Hosted, names: _Names, paths: _Paths, root: int
) -> tuple[Ints, Ints]:
    """Return per path the number of its kernels, copies and sets, and their time."""
    trace = ops.attribution.trace
    parts: list[tuple[Ints, Ints]] = []
    for table, launched, kind, column in (
        ("kernels", ops.attribution.kernels, "kernel", "name"),
        ("memops", ops.attribution.memops, "copy", "kind"),
    ):
        frame = trace[table]
        if frame.is_empty():
            continue
        codes, texts = compact(frame[column].cast(pl.Categorical))
        number = np.array([names.number(text or f"({kind})", kind) for text in texts], np.int64)
        above = _around(ops, hosted, launched, names, paths, root)
        duration = (frame["end"] - frame["start"]).fill_null(0).to_numpy()
        parts.append((paths.of(above, number[codes]), duration))
    calls, device = (np.zeros(len(paths.parent), np.int64) for _ in range(2))
    for path, duration in parts:
        np.add.at(calls, path, 1)
        np.add.at(device, path, duration)
    return calls, device


def _around(
    ops: Ops, hosted: _Hosted, launched: Launched, names: _Names, paths: _Paths, root: int
) -> Ints:
    """Return the path above each kernel: its op's, else the path open around its launch, else the path of the
    reason why neither is known."""
    path = at(hosted.path, launched.op.astype(np.int64))
    calls = ops.attribution.trace["calls"]
    bare = np.flatnonzero((path < 0) & (launched.call >= 0))
    if len(bare):
        of = launched.call[bare].astype(np.int64)
        process, thread = (
            calls[name].fill_null(NONE).to_numpy()[of] for name in ("process", "thread")
        )
        time = calls["start"].to_numpy()[of]
        for (number, on), (tree, rows) in hosted.trees.items():
            here = np.flatnonzero((process == number) & (thread == on))
            if len(here):
                inner = at(rows, tree.innermost(time[here]))
                path[bare[here]] = at(hosted.path, inner)
    reasons = [names.number(f"({reason})", "reason") for reason in REASONS]
    lost = np.flatnonzero(path < 0)
    if len(lost):
        why = np.asarray(reasons)[launched.reason[lost]]
        path[lost] = paths.of(np.full(len(lost), root), why)
    return path


def _prune(
    paths: _Paths, names: list[tuple[str, str]], sums: list[Ints], is_timed: bool, nodes: int
) -> pl.DataFrame:
    """Return the paths with the most time as rows, with sums of the others."""
    forest = Forest(paths.parent)
    calls, host, device = sums
    totals = [forest.with_inside(column) for column in (host, device)]
    weight = sum(total / max(int(total[0]), 1) for total in totals)
    order = np.lexsort((forest.level, -np.asarray(weight)))
    kept = np.zeros(len(forest), bool)
    kept[order[: max(nodes, 1)]] = True
    kept[0] = True
    # a path has at least as much time as a path inside it, and comes first if the times are equal, so it is
    # kept if the inner one is
    above = forest.parent
    cut = np.flatnonzero(~kept & (above >= 0) & at(kept, above, 0).astype(bool))
    rest, of = np.unique(above[cut], return_inverse=True)
    count = len(rest)
    left = [np.zeros(count, np.int64) for _ in range(4)]
    for values, amounts in zip(
        left, (forest.size.astype(np.int64), forest.with_inside(calls), *totals), strict=True
    ):
        np.add.at(values, of, amounts[cut])
    rows = np.flatnonzero(kept)
    index = np.full(len(forest), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    parent = np.concatenate((at(index, above[rows]), index[rest]))
    text = [names[number] for number in paths.name[rows].tolist()] + [(OTHER, "other")] * count
    columns = {
        "calls": np.concatenate((calls[rows], left[1])),
        "merged": np.concatenate((np.ones(len(rows), np.int64), left[0])),
        "host_self": np.concatenate((host[rows], left[2])),
        "host_total": np.concatenate((totals[0][rows], left[2])),
        "device_self": np.concatenate((device[rows], left[3])),
        "device_total": np.concatenate((totals[1][rows], left[3])),
    }
    return _rows(parent, text, columns, is_timed)


def _rows(
    parent: Ints, text: list[tuple[str, str]], columns: dict[str, NDArray[Any]], is_timed: bool
) -> pl.DataFrame:
    """Return the rows in the order of a tree, siblings by their time, each with its whole stack."""
    weight = (
        columns["device_total"]
        if is_timed and columns["device_total"].any()
        else columns["host_total"]
    )
    names = np.array([_short(name) for name, _ in text], dtype=np.str_)
    by_time = np.lexsort((names, -columns["host_total"], -weight))
    moved = np.empty(len(parent), np.int64)
    moved[by_time] = np.arange(len(parent))
    order = by_time[np.argsort(Forest(at(moved, parent[by_time])).place, kind="stable")]
    number = np.empty(len(parent), np.int64)
    number[order] = np.arange(len(parent))
    above = at(number, parent[order])
    frames = [_short(text[index][0]) for index in order.tolist()]
    stacks: list[str] = []
    for name, around in zip(frames, above.tolist(), strict=True):
        # the root is in no stack: a flame graph draws it below all of them
        stacks.append(f"{stacks[around]};{name}" if around > 0 else name if around == 0 else "")
    frame = pl.DataFrame(
        {
            "path_id": np.arange(len(order)),
            "parent_path": pl.Series(above).replace(NONE, None),
            "depth": Forest(above).level,
            "frame": frames,
            "frame_kind": [text[index][1] for index in order.tolist()],
            **{name: values[order] for name, values in columns.items()},
            "stack": stacks,
        },
        schema=COLUMNS,
    )
    if is_timed:
        return frame
    return frame.with_columns(
        pl.lit(None, pl.Int64).alias(name) for name in ("device_self", "device_total")
    )


def _short(name: str) -> str:
    """Return a name as a frame of a stack: without ``;``, which separates frames, and not too long."""
    plain = name.replace(";", ",").replace("\n", " ")
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def answer(profile: Answers, *, depth: int = DEPTH, nodes: int = NODES) -> pl.DataFrame:
    """The data of a flame graph: steps, layers, ranges, ops and kernels, merged by their path.

    Each row follows the row around it (``parent_path``), siblings by time. Steps, threads and processes
    are merged. ``device_self`` is the time of kernels and copies, which are the leaves; without a GPU
    that of ops. ``device_self`` and ``host_self`` add up to the first row's totals. At most ``depth``
    frames are above one another, and at most ``nodes`` rows are given, the ones with most time; what is
    left out is summed in rows ``(other)`` beside them. Raises ValueError if a bound is below 1.

    Folded stacks are the columns ``stack`` and ``device_self`` of the rows with a ``device_self``.
    """
    without = profile.ask("unattributed", categories=True) if profile.cpu_only else None
    outside = 0 if without is None else int(without["time"].sum())
    lines = profile.ask("host_lines", categories=True) if outside else pl.DataFrame()
    return call_tree(profile.of(op_index), outside, depth, nodes, _named(lines))


def _named(lines: pl.DataFrame) -> list[tuple[str, int]]:
    """Return a frame's name, and the time in steps (ns), for each line of ``host_lines()`` that is known."""
    if lines.is_empty():
        return []
    name = pl.concat_str("line", pl.lit(" "), "function", pl.lit(" ("), "kind", pl.lit(")"))
    return (
        lines.filter(pl.col("line").is_not_null() & (pl.col("step_time") > 0))
        .group_by(name.alias("name"), maintain_order=True)
        .agg(pl.col("step_time").sum())
        .sort("step_time", descending=True, maintain_order=True)
        .rows()
    )


def call_tree_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the paths with the most time, as a tree."""
    return folded(report, report.frame(profile), view, Shape("path_id", "parent_path", "frame"))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "call_tree()",
            "one row per path of frames, after the path around it, by time",
            columns(
                "path_id parent_path depth frame frame_kind calls merged host_self "
                "host_total device_self device_total stack",
                """
                path_id: number: number of the row
                parent_path: number: path_id of the row around it; null for the whole
                depth: count: number of rows around it
                frame: text: name of the step, phase, layer, range, function, op or kernel
                frame_kind: text: step, phase, layer, range (the user's), python, graph, op, kernel, copy;
                    outside: time outside ops, and its source lines where stacks were sampled; reason
                    why a kernel has no op; all or other
                calls: count: ranges or kernels of this path
                merged: count: paths that the row stands for: 1, and more for what is left out
                host_self: ns: time on the host without the frames inside
                host_total: ns: host_self of it and of the frames inside it
                device_self: ns: durations of the kernels or copies of this path; without a GPU, the ops'
                    self time; null if they were not captured
                stack: text: the frames from the outermost to this one, parted by ;
                """,
            ),
        ),
    ),
    parameters={
        "depth": parameters.count("the most frames above one another", least=1),
        "nodes": parameters.count("the most rows", least=1),
    },
    merged=lacking.THRESHOLDS,
    reports=(
        Report(
            name="call_tree",
            title="Call tree: what was open, merged by path",
            empty=EMPTY,
            shown="frame frame_kind calls device_total device_self host_total host_self",
            table=call_tree_table,
            sums="device_self host_self",
            written=False,
            aliases=("flame_graph",),
        ),
    ),
)

"""Details of a slice: its op, layer, step, shapes and cost, and the slices that are linked to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.op_frame import ops_frame
from opscope.core.analysis.ops.ops import op_index
from opscope.core.tables.trace import range_ids
from opscope.reports import vendor_words
from opscope.viewer.question import BadParameter

from .index import Timeline
from .inside import inside, waiting
from .lane import CALLS, CATEGORIES, LINES, STREAM, THREAD, Lane
from .op_kinds import own_columns

if TYPE_CHECKING:
    from opscope.profile import Profile

#: At most this many flows of a slice are drawn.
FLOWS: Final = 200
#: This text is appended to the category of a kernel whose op is not yet known.
BY_NAME: Final = " by its name"
#: Longer texts of a slice are cut.
_LONGEST: Final = 4_000
_OF_KERNELS: Final = (
    *("op", "op_type", "direction", "layer", "step", "range", "source", "inputs", "outputs"),
    *("dtypes", "params", "flops", "bytes", "tensor_core", "tc_reason", "reason"),
    *("grid", "block", "registers", "shared_memory", "correlation", "graph"),
)
_OF_COPIES: Final = (
    *("op", "direction", "layer", "step", "range", "source", "src_kind", "dst_kind", "peer"),
    *("bytes", "reason", "correlation"),
)
_OF_OPS: Final = (
    *("op", "op_type", "direction", "layer", "step", "range", "source", "inputs", "outputs"),
    *("dtypes", "params", "flops", "bytes", "self_time", "device_time", "kernels", "reason"),
)


def detail(
    timeline: Timeline, lane_id: str, level: int, index: int, brief: bool = False
) -> dict[str, Any]:
    """Return the facts about a slice: ``name``, ``start`` and ``end`` (ns, as text), ``time`` (ns), ``kind``,
    ``told`` (the values of its row that are not null), ``flows``: slices that launched it or that it
    launched, at most 200, and ``more``: how many flows there are beyond; ``inside``: the slices directly
    inside it (``inside.py``); ``waited``: for a kernel, what it waited for. ``brief``: only what its lane
    has, without reading tables. Raises BadParameter."""
    lane = timeline.lane(lane_id)
    if lane.provisional and not brief:
        timeline.settle()
        lane = timeline.lane(lane_id)
    if level >= len(lane.strips) or index >= len(lane.strips[level]):
        raise BadParameter(f"lane {lane_id} has no slice {index} at depth {level}")
    strip = lane.strips[level]
    start, lasted = int(strip.start[index]), int(strip.lasted(index))
    row = int(strip.row[index])
    about = lane.about
    answer: dict[str, Any] = {
        "lane": lane_id,
        "level": level,
        "index": index,
        "name": timeline.names[int(strip.name[index])],
        "kind": CATEGORIES[int(strip.kind[index])] + (BY_NAME if lane.provisional else ""),
        "where": f"{about.group}: {about.title}",
        "start": str(start),
        "end": str(start + lasted),
        "time": lasted,
    }
    details: dict[str, Any] = {}
    ties: list[_Tie] = []
    waited = None
    if brief:
        pass
    elif about.kind == STREAM:
        details, ties = _of_device(timeline, lane, row)
        waited = waiting(timeline, lane, level, index, details.get("launched_before"))
    elif about.kind == CALLS:
        details, ties = _of_call(timeline, lane, row)
    elif about.kind == LINES:
        sample = timeline.profile.attribution.trace["host_samples"][row].to_dicts()[0]
        details = _tell(sample, ("call", "stack"))
    else:
        details, ties = _of_range(timeline, lane, level, index)
    flows = [flow for flow in (_locate(timeline, *tie) for tie in ties[:FLOWS]) if flow is not None]
    of = vendor_words.vendor(timeline.profile)
    for name in vendor_words.OURS & details.keys():
        details[name] = vendor_words.said(str(details[name]), of)
    answer |= {"told": details, "flows": flows, "more": max(0, len(ties) - FLOWS)}
    return (
        answer
        if brief
        else {**answer, "inside": inside(timeline, lane, level, index), "waited": waited}
    )


#: A linked slice: its kind, its process, its start (ns) and its row in its table.
_Tie = tuple[str, int, int, int]


def _of_device(timeline: Timeline, lane: Lane, row: int) -> tuple[dict[str, Any], list[_Tie]]:
    profile, copy = timeline.profile, row >= lane.about.copies
    table, table_row = ("memops", row - lane.about.copies) if copy else ("kernels", row)
    wanted = _OF_COPIES if copy else _OF_KERNELS
    frame = _row(profile, table, table_row, (*wanted, "op_id", "call_start", "call_end"))
    row_facts = frame.to_dicts()[0]
    details = _tell(row_facts, wanted)
    process = lane.about.process
    ties: list[_Tie] = []
    if row_facts["call_start"] is not None:
        began = profile._own_columns(table, ["start"], table_row)[0]["start"][0]
        details["launched_before"] = int(began) - int(row_facts["call_start"])
        calls = profile.attribution.trace["calls"]
        rows = np.flatnonzero(
            ((calls["start"] == row_facts["call_start"]) & (calls["process"] == process)).fill_null(
                False
            )
        )
        ties += [("call", process, int(row_facts["call_start"]), int(call)) for call in rows[:1]]
    if row_facts["op_id"] is not None:
        ties += _ops_with(profile, process, row_facts["op_id"])
    return details, ties


def _ops_with(profile: Profile, process: int, op_id: int) -> list[_Tie]:
    ranges = profile.attribution.trace["ranges"]
    rows = np.flatnonzero((range_ids(ranges) == op_id).fill_null(False))
    return [("op", process, int(ranges["start"][int(row)]), int(row)) for row in rows[:1]]


def _of_call(timeline: Timeline, lane: Lane, row: int) -> tuple[dict[str, Any], list[_Tie]]:
    profile = timeline.profile
    call = profile.attribution.trace["calls"][row].to_dicts()[0]
    ties: list[_Tie] = []
    for table, launched in (
        ("kernels", profile.attribution.kernels),
        ("memops", profile.attribution.memops),
    ):
        rows = np.flatnonzero(launched.call == row)
        start = own_columns(profile, table, ["start"])["start"]
        ties += [(table, lane.about.process, int(start[int(row)]), int(row)) for row in rows]
    return _tell(call, ("correlation",)), ties


def _of_range(
    timeline: Timeline, lane: Lane, level: int, index: int
) -> tuple[dict[str, Any], list[_Tie]]:
    profile, strip = timeline.profile, lane.strips[level]
    attribution = profile.attribution
    row = int(strip.row[index])
    if not attribution.is_op[row]:
        text = attribution.trace["ranges"]["text"][row]
        return ({} if text is None else {"text": _cut(text)}), []
    details: dict[str, Any] = {}
    here = np.flatnonzero(profile.of(op_index).rows == row)
    if len(here):
        op_facts = (
            ops_frame(profile.of(op_index), here).cast({pl.Categorical: pl.String}).to_dicts()[0]
        )
        details = _tell(op_facts, _OF_OPS)
    # everything launched by the op and the ops inside it
    rows_inside = [np.array([row])]
    low, high = int(strip.start[index]), int(strip.start[index] + strip.lasted(index))
    for deeper in lane.strips[level + 1 :]:
        first, after = deeper.part(low, high)
        rows_inside.append(deeper.row[first:after])
    # the last element is for kernels without an op, -1
    launches = np.zeros(len(attribution.is_op) + 1, bool)
    launches[np.concatenate(rows_inside)] = True
    ties: list[_Tie] = []
    for table, launched in (("kernels", attribution.kernels), ("memops", attribution.memops)):
        mine = np.flatnonzero(launches[launched.op])
        start = own_columns(profile, table, ["start"])["start"]
        ties += [
            (table, lane.about.process, int(start[int(call_row)]), int(call_row))
            for call_row in mine
        ]
    return details, ties


def _row(profile: Profile, table: str, table_row: int, wanted: tuple[str, ...]) -> pl.DataFrame:
    """Return columns of one row of the frame ``kernels`` or ``memops``; of a saved one only they are read."""
    frame = profile._columns_of(table, wanted, table_row)
    return frame.select(column_name for column_name in wanted if column_name in frame.columns).cast(
        {pl.Categorical: pl.String}
    )


def _tell(row: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    return {name: _cut(row[name]) for name in wanted if row.get(name) is not None}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:_LONGEST]} … ({len(value):,} characters)"
    return value


def _locate(
    timeline: Timeline, table: str, process: int, start: int, row: int
) -> dict[str, Any] | None:
    """Return where the slice of a table's row is; None if it is on no lane."""
    on_device = table in ("kernels", "memops")
    wanted = {"op": THREAD, "call": CALLS}.get(table, STREAM)
    for lane_id, lane in timeline.part("device" if on_device else "host"):
        about = lane.about
        if about.kind != wanted or about.process != process:
            continue
        sought = row + about.copies if table == "memops" else row
        for level, strip in enumerate(lane.strips):
            first, after = np.searchsorted(strip.start, [start, start + 1]).tolist()
            for index in range(first, min(after, first + FLOWS)):
                if strip.row[index] == sought:
                    return {
                        "what": {"kernels": "kernel", "memops": "copy"}.get(table, table),
                        "lane": lane_id,
                        "level": level,
                        "index": index,
                        "name": timeline.names[int(strip.name[index])],
                        "start": str(int(strip.start[index])),
                        "end": str(int(strip.start[index] + strip.lasted(index))),
                    }
    return None

"""The user's NVTX domains: in a domain's report its ranges take the place of ops."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.ops import Ops
from opscope.core.attribution.attribute import RUNTIME, Attribution
from opscope.core.dialects import own
from opscope.core.dlprof.instances import Collected, Instances, add_rest, placed
from opscope.core.tables.columns import at, compact
from opscope.core.tables.interpret import ROLE
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.lanes import lanes, open_ranges

#: Domains that do not belong to a user: of a framework's runtime, and of steps that opscope infers.
_OURS: Final = frozenset({RUNTIME, "inferred"})


def ranges_by_domain(attribution: Attribution) -> dict[str, Ints]:
    """Return the rows of the pushed ranges of each named domain that belongs to no framework. The default
    domain has the ops of DLProf's own markers, so its user ranges get no report of their own."""
    ranges = attribution.trace["ranges"]
    code, texts = compact(ranges["domain"])
    named = np.array(
        [bool(text) and not own.is_own(text) and text not in _OURS for text in texts], bool
    )
    if not len(texts) or not named.any():
        return {}
    pushed = (ranges["kind"].cast(pl.String) == "pushpop").fill_null(False).to_numpy()
    role = attribution.meaning.role
    wanted = named[code] & pushed & (role == ROLE["user"])
    return {
        str(texts[number]): np.flatnonzero(wanted & (code == number))
        for number in np.unique(code[wanted]).tolist()
    }


def range_instances(ops: Ops, rows: Ints) -> Instances:
    """Return the instances of a domain: each range is an instance of the op named by the ranges around it.
    Its time on the CPU excludes the ranges inside it, so that times can be added up."""
    trace = ops.attribution.trace
    ranges = trace["ranges"]
    starts, ends = (ranges[name].gather(rows).fill_null(0).to_numpy() for name in ("start", "end"))
    # of ranges that start together the longest is the outer one, whichever was recorded first
    rows = rows[np.lexsort((-ends, starts))]
    index = np.full(len(ranges), NONE, np.int64)
    index[rows] = np.arange(len(rows))
    parent = np.full(len(rows), NONE, np.int64)
    for _, part in lanes(ranges).rows(index >= 0):
        tree = nest(*(ranges[name].gather(part).to_numpy() for name in ("start", "end")))
        parent[index[part[tree.order]]] = at(index[part[tree.order]], tree.parent)
    code, texts = compact(ranges["text"].gather(rows))
    number, paths = _paths(code, [text or "" for text in texts], parent)
    instances_found = Collected()
    described = pl.DataFrame(
        {
            "name": ["".join(f"/{part}" for part in path) for path in paths],
            "type": [path[-1] for path in paths],
            "stack": [""] * len(paths),
            "eligible": [False] * len(paths),
            "associated": [True] * len(paths),
        }
    )
    length = (ranges["end"] - ranges["start"]).gather(rows).fill_null(0).to_numpy()
    inner = np.zeros(len(rows), np.int64)
    inside = np.flatnonzero(parent >= 0)
    np.add.at(inner, parent[inside], length[inside])
    table = placed(trace, "ranges", rows, rows).with_columns(pl.Series("inner", inner))
    instances_found.add(described, number, table)
    return add_rest(instances_found, ops, open_ranges(trace["calls"], ranges, rows), None)


def _paths(
    code: NDArray[np.int32], texts: list[str], parent: Ints
) -> tuple[Ints, list[tuple[str, ...]]]:
    """Return for each range the number of its path of texts, outermost first, and the paths."""
    path_numbers: dict[tuple[int, int], int] = {}
    paths: list[tuple[str, ...]] = []
    number = np.empty(len(code), np.int64)
    # a loop over ranges: a range's path needs its parent's path, and a parent comes before its children
    for row, (text, above) in enumerate(zip(code.tolist(), parent.tolist(), strict=True)):
        over = int(number[above]) if above >= 0 else NONE
        key = (over, text)
        if key not in path_numbers:
            path_numbers[key] = len(paths)
            paths.append((*(paths[over] if over >= 0 else ()), texts[text]))
        number[row] = path_numbers[key]
    return number, paths

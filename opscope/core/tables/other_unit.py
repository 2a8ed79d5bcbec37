"""Note tables whose times are in another unit, or were never measured: all of the table is wrong, so
nothing is clipped or left out.

A kernel without a duration took an unknown time. If most kernels take less than 100 ns, or last until four
others of their stream have begun, durations are in another unit. The same is so if ranges or calls of a
thread cross, because a thread's ranges nest.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.dialects.launches import LAUNCH

from .columns import matching
from .lanes import lanes
from .trace import Trace

#: Each of two times may have been rounded to microseconds separately (ns).
_ROUNDED: Final = 2_000
#: From this share of kernels without a duration on, it is not chance; with rounded times, not rounding.
_BARE, _ROUNDED_OFF = 0.01, 0.5
#: From this many kernels of one stream with equal begin on, it is not chance.
_FEWEST: Final = 3
#: Most kernels, and most launches (1,430 in 40 real traces), take at least this long (ns); and so many are
#: enough to judge.
_SHORTEST, _MANY = 100, 20
#: In 100 real traces at most one in 400 ranges, and no call, ends within the next one of its thread; if
#: durations are a thousand times too long, 7 to 59 % do.
_CROSSING: Final = 0.05
#: No kernel of 30 real traces of three vendors lasts until so many others of its stream have begun; if
#: durations are a thousand times too long, at least 73 % do.
_OTHERS_BEGUN: Final = 4
_NAME: Final = 60
#: How the notes on impossible times begin, including those of readers and of linking (``early_kernels``).
NOT_KNOWN: Final = "how long they took is not known"
BARE_SAID: Final = "have no duration"
AT_ZERO_SAID: Final = "begin at time 0"
AT_ONCE_SAID: Final = "begin at one and the same time"
#: Of durations in another unit than the starts.
TOO_SHORT_SAID: Final = "take less than 100 ns, most of them"
TOO_LONG_SAID: Final = "last until four others of their stream have begun, most of them"
CROSSING_SAID: Final = "end within the next of their thread"
#: What notes say of ranges, if identifiers tell what ran in these.
APART_SAID: Final = (
    "lie at other times than what ran in them: times are in two units or of two clocks, so"
)
#: What notes say of a whole table.
SAID: Final = "|".join(
    (
        BARE_SAID,
        AT_ZERO_SAID,
        AT_ONCE_SAID,
        TOO_SHORT_SAID,
        TOO_LONG_SAID,
        CROSSING_SAID,
        APART_SAID,
    )
)
APART: Final = f"ranges {APART_SAID} {NOT_KNOWN}"


def note_units(trace: Trace, nests: bool) -> None:
    """Note tables in doubt. ``nests``: the kernels nest, as on a TPU."""
    if len(trace["kernels"]) and not nests:
        _note_untimed(trace)
        _note_kernels(trace)
    _note_host(trace)


def _note_kernels(trace: Trace) -> None:
    """Note kernels most of which are shorter than a launch takes on a GPU, or longer than a stream allows."""
    kernels = trace["kernels"]
    if len(kernels) < _MANY:
        return
    why = TOO_SHORT_SAID if _is_short(kernels) else None
    lane = ["process", "device", "context", "stream"]
    own = pl.col("graph_node").is_null() & pl.col("stream").is_not_null()
    begun = pl.col("start").shift(-_OTHERS_BEGUN).over(lane)
    later = kernels.filter(own).sort("start").select(pl.col("end") > begun + _ROUNDED)
    if 2 * int(later["end"].sum()) > len(kernels):
        why = TOO_LONG_SAID
    if why is not None:
        text = f"kernels {why}: durations may be in another unit, so {NOT_KNOWN}"
        trace.note("warning", text, len(kernels))


def _is_short(table: pl.DataFrame) -> bool:
    lasted = table["end"] - table["start"]
    usual: Any = lasted.filter(lasted > 0).median()
    return len(table) >= _MANY and usual is not None and usual < _SHORTEST


def _note_host(trace: Trace) -> None:
    """Note ranges and calls that end within the next one of their thread, although a thread's ranges nest;
    and launches that are shorter than any real launch."""
    calls = trace["calls"]
    if _is_short(calls.select("start", "end").filter(pl.Series(matching(calls["name"], LAUNCH)))):
        text = f"calls {TOO_SHORT_SAID}: durations may be in another unit, so {NOT_KNOWN}"
        trace.note("warning", text, len(calls))
    for name in ("ranges", "calls"):
        table = trace[name]
        of_thread = table["thread"].is_not_null()  # calls of several threads may cross
        if name == "ranges":  # the user's ranges may overlap
            of_thread &= table["domain"].ne_missing("user") & (table["kind"] == "pushpop")
        chosen = of_thread.fill_null(False).to_numpy()
        count = _crossing(table, chosen)
        if count >= max(_MANY, _CROSSING * int(chosen.sum())):
            text = f"{name} {CROSSING_SAID}: durations may be in another unit, so {NOT_KNOWN}"
            trace.note("warning", text, count)


def _crossing(table: pl.DataFrame, chosen: NDArray[np.bool_]) -> int:
    """Return how many of the ``chosen`` rows end within the next row of their thread."""
    start, end = (table[name].to_numpy() for name in ("start", "end"))
    count = 0
    for _, rows in lanes(table).rows(chosen):
        begun, ended = start[rows], end[rows]
        step = np.diff(begun)
        if ((step < 0) | ((step == 0) & (ended[1:] > ended[:-1]))).any():
            order = np.lexsort((-ended, begun))
            begun, ended = begun[order], ended[order]
        within = begun[1:] < ended[:-1] - _ROUNDED
        count += int((within & (ended[1:] > ended[:-1] + _ROUNDED)).sum())
    return count


def _note_untimed(trace: Trace) -> None:
    """Note kernels without a duration (no kernel takes less than a clock's tick, but times may be
    rounded), and tables in which most kernels began at time 0 although the host did not."""
    kernels = trace["kernels"]
    bare = (kernels["end"] == kernels["start"]).fill_null(False)
    rounded = int(trace.origin.get("resolution_ns") or 1) > 1
    count = int(bare.sum())
    if count and count >= (_ROUNDED_OFF if rounded else _BARE) * len(kernels):
        name = short(kernels["name"].filter(bare)[0])
        trace.note("warning", f"kernels {BARE_SAID}: {NOT_KNOWN} ({name})", count)
    usual: Any = kernels["start"].median()
    host: Any = trace["calls"]["start"].min()
    at_once = kernels.filter(pl.col("start") == int(usual or 0))
    if 2 * len(at_once) <= len(kernels) or len(at_once) < 2:
        return
    streams = at_once.select("process", "device", "context", "stream").n_unique()
    if usual == 0 and (host or 0) > 0:
        trace.note("warning", f"kernels {AT_ZERO_SAID}: when they ran is not known", len(at_once))
    elif len(at_once) >= _FEWEST and 2 * streams <= len(at_once):
        trace.note("warning", f"kernels {AT_ONCE_SAID}: when they ran is not known", len(at_once))


def short(name: object) -> str:
    text = str(name)
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"

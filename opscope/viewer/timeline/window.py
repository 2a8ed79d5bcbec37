"""The picture of a window of some lanes, as typed arrays of at most 150 kB.

The answer is: the length of the header (u32), the header (JSON), zeros up to a multiple of 8 bytes, then the
arrays in the order of the header's lanes and strips, little-endian, each with zeros up to a multiple of 8.

The header: ``start`` (ns, as text: a browser's numbers are exact to 2^53), ``span`` (ns), ``columns``: how
many equal parts the window was divided into, ``lanes``: ``id``, ``strips``; ``provisional``: true if a lane
is, else absent. A strip says ``mode``, ``busy`` (ns of slices in the window), ``wide`` and, by mode:

- ``rows``: every slice in the window: ``first``, the place of the first in the strip, and ``many``. Arrays:
  start (ns from the window's), duration (ns), name (u32), category (u8). Times are f64 if ``wide``, else i32.
- ``columns``: there are more slices than fit. ``kinds``: the categories in the window, ``slices``: how many
  there are, ``many``: how many of them are drawn by themselves. Arrays: per category and column its share of
  the column (u8: 255ths, rounded up, so that 0 is nothing), the place in the strip of each column's longest
  slice (i32, -1 for none), then of those that are at least three columns long: place (i32), start, duration,
  name, category as above.

If all lanes would take more than 150 kB, they get half as many columns, until they fit; below a
64th of the columns the last lanes are left out, and ``unseen`` says how many were left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

from .lane import Lane
from .strip import Strip, edges_of

#: Bytes of a picture, and how often the number of columns is halved to stay below them.
MOST: Final = 150_000
_HALVINGS: Final = 6
#: A slice at least this many columns wide is drawn by itself.
_DRAWN: Final = 3
_NEAR: Final = 1 << 31
#: In a wider column 255 times the ns of slices may exceed 63 bits.
_EXACT: Final = (1 << 63) // 256


@dataclass(slots=True)
class Buffers:
    """Arrays of the answer, each starting at a multiple of 8 bytes."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, values: NDArray[Any], kind: str) -> None:
        """Add an array as little-endian numbers of this type (``<i4``)."""
        data = np.ascontiguousarray(values, kind).tobytes()
        self.parts += [data, bytes(-len(data) % 8)]
        self.size += len(data) + -len(data) % 8

    def under(self, header: dict[str, Any]) -> bytes:
        """Return the header and the arrays as bytes."""
        text = json.dumps(header, separators=(",", ":")).encode()
        padding = bytes(-(len(text) + 4) % 8)
        return b"".join([len(text).to_bytes(4, "little"), text, padding, *self.parts])


def picture(lanes: list[tuple[str, Lane]], low: int, high: int, columns: int) -> bytes:
    """Return the picture of the window ``[low, high)`` ns in at most ``columns`` columns."""
    columns = min(columns, high - low)
    for halved in range(_HALVINGS):
        picture_made = _picture(lanes, edges_of(low, high, max(1, columns >> halved)), whole=True)
        if picture_made is not None:
            return picture_made
    picture_made = _picture(lanes, edges_of(low, high, max(1, columns >> _HALVINGS)), whole=False)
    assert picture_made is not None
    return picture_made


def _picture(lanes: list[tuple[str, Lane]], edges: NDArray[np.int64], whole: bool) -> bytes | None:
    """Return the picture; if it is too large, None, or without ``whole`` a picture of the first lanes."""
    low, high, columns = int(edges[0]), int(edges[-1]), len(edges) - 1
    buffers = Buffers()
    header: dict[str, Any] = {"start": str(low), "span": high - low, "columns": columns}
    if any(lane.provisional for _, lane in lanes):
        header["provisional"] = True
    said: list[dict[str, Any]] = []
    size = 100
    for lane_id, lane in lanes:
        kept = len(buffers.parts), buffers.size
        strips = [_strip(strip, edges, buffers) for strip in lane.strips]
        said.append({"id": lane_id, "strips": strips})
        size += len(json.dumps(said[-1], separators=(",", ":"))) + 1
        if size + buffers.size > MOST:
            if whole:
                return None
            del buffers.parts[kept[0] :], said[-1]
            break
    return buffers.under({**header, "lanes": said, "unseen": len(lanes) - len(said)})


def _strip(strip: Strip, edges: NDArray[np.int64], buffers: Buffers) -> dict[str, Any]:
    low, high, columns = int(edges[0]), int(edges[-1]), len(edges) - 1
    first, after = strip.part(low, high)
    busy = int(np.diff(strip.busy(edges[[0, -1]]))[0])
    if after - first <= columns:
        wide = _times(strip, np.arange(first, after), low, buffers)
        return {"mode": "rows", "first": first, "many": after - first, "busy": busy, "wide": wide}
    parts = np.diff(strip.busy_by_kind(edges), axis=1)
    width = np.diff(edges)
    shown = np.flatnonzero(parts.any(axis=1))
    buffers.add(_shares(parts[shown], width), "u1")
    longest = strip.longest(edges)
    buffers.add(longest, "<i4")
    drawn_rows = longest[longest >= 0].astype(np.int64)  # ascending, like the columns
    drawn = drawn_rows[np.diff(drawn_rows, prepend=-1) > 0]
    drawn = drawn[strip.lasted(drawn) * columns >= _DRAWN * (high - low)]
    buffers.add(drawn, "<i4")
    wide = _times(strip, drawn, low, buffers)
    return {
        "mode": "columns",
        "kinds": strip.kinds[shown].tolist(),
        "slices": after - first,
        "many": len(drawn),
        "busy": busy,
        "wide": wide,
    }


def _shares(parts: Ints, width: Ints) -> NDArray[Any]:
    """Return parts of columns as 255ths, rounded up."""
    # longer than a year: compute with Python's integers
    if len(width) and int(width.max()) > _EXACT:
        parts, width = parts.astype(object), width.astype(object)
    return -(-255 * parts // np.maximum(width, 1))


def _times(strip: Strip, rows: NDArray[np.int64], low: int, buffers: Buffers) -> bool:
    """Add the times, names and categories of slices; return whether the times are f64."""
    start, lasted = strip.start[rows] - low, strip.lasted(rows)
    ends = (int(np.abs(start).max()), int(lasted.max())) if len(rows) else (0, 0)
    wide = max(ends) >= _NEAR
    for times in (start, lasted):
        buffers.add(times, "<f8" if wide else "<i4")
    buffers.add(strip.name[rows], "<u4")
    buffers.add(strip.kind[rows], "u1")
    return wide

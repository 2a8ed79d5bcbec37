"""Say things in the words of the device's vendor: opscope's own words are those of NVIDIA's GPUs.

Frames and files keep one word for one meaning whatever the device (``reason``, ``tensor_core``); only what a
person reads on a terminal is put into other words. What the program or its profiler wrote stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question.layout import Table
from opscope.core.vendors import WORDS

if TYPE_CHECKING:
    from opscope.profile import Profile

_WORDS: Final = WORDS
#: Columns whose text is opscope's own. ``what`` is a line of the summary or a note.
_OURS: Final = frozenset(
    (
        *(
            "what",
            "kind",
            "reason",
            "why",
            "over_reason",
            "tc_reason",
            "unknown",
            "remark",
            "means",
        ),
        *("no_vector", "no_tensor", "model_reason", "counted_reason"),
    )
)
#: How the names of other vendors' devices begin.
_NAMES: Final = (("ascend", "huawei"), ("tpu", "google"))


def vendor(profile: Profile) -> str | None:
    """Return ``nvidia``, ``amd``, ``huawei`` or ``google`` by the devices, else by the runtime; else None.

    Devices of several models count as the first, as everywhere.
    """
    from opscope.core.perf.devices.of_trace import trace_device  # loads Polars

    trace = profile.trace
    if trace.has("devices") and len(trace["devices"]):
        device, _ = trace_device(trace["devices"])
        if device is not None:
            return device.vendor
        names = [str(name).lower() for name in trace["devices"]["name"].drop_nulls().unique()]
        for word, found in _NAMES:
            if names and all(name.startswith(word) for name in names):
                return found
    calls = profile.call_names
    if any(name.startswith("hip") for name in calls):
        return None if any(name.startswith("cu") for name in calls) else "amd"
    return "amd" if trace.origin.get("format") == "rocm" else None


def said(text: str, of: str | None) -> str:
    """Return our own ``text`` in the words of the vendor ``of``."""
    for ours, theirs in _WORDS.get(of or "", ()):
        text = re.sub(ours, theirs, text)
    return text


def told(table: Table, of: str | None) -> Table:
    """Return the table with its title, headings, notes and what is ours in its rows in the vendor's words."""
    if of not in _WORDS:
        return table
    return replace(
        table,
        title=said(table.title, of),
        columns=[replace(column, title=said(column.title, of)) for column in table.columns],
        rows=[_row(row, of) for row in table.rows],
        footnotes=[said(note, of) for note in table.footnotes],
        sentences=[said(one, of) for one in table.sentences],
    )


def _row(row: Mapping[str, Any], of: str | None) -> Mapping[str, Any]:
    from opscope.core.attribution.reasons import REASONS  # loads Polars

    mine = {}
    for key, value in row.items():
        if not isinstance(value, str):
            continue
        if key in _OURS:
            mine[key] = said(value, of)
        elif "CUDA" in value:  # where there is no op, its reason stands in its place
            for reason in filter(None, REASONS):
                value = value.replace(reason, said(reason, of))
            mine[key] = value
    return {**row, **mine}

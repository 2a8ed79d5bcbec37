"""Rewrite opscope's texts in the words of the device's vendor; opscope's own words are those of NVIDIA's
GPUs.

Frames and files use the same words for every device (``reason``, ``tensor_core``); only text for people on a
terminal is rewritten. Texts from the program or its profiler stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from opscope.core.question.layout import Table
from opscope.core.vendors import WORDS

if TYPE_CHECKING:
    from opscope.profile import Profile

_WORDS: Final = WORDS
#: Columns whose text is written by opscope. ``what`` is a line of the summary or a note.
OURS: Final = frozenset(
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


def vendor(profile: Profile) -> str | None:
    """Return the vendor of the profile's devices (``core.perf.devices.vendors.TOOLS``), or None."""
    from opscope.core.perf.devices.vendors import vendor_of  # lazy: it loads Polars

    return vendor_of(profile.trace, profile.call_names)


def said(text: str, of: str | None) -> str:
    """Return opscope's own ``text`` in the words of the vendor ``of``, with its tools in place of
    NVIDIA's."""
    for ours, theirs in (*_WORDS.get(of or "", ()), *_tools(of)):
        text = re.sub(ours, theirs, text)
    return text


@lru_cache
def _tools(of: str | None) -> tuple[tuple[str, str], ...]:
    """Patterns of phrases about NVIDIA's tools in our texts, and the phrases for the vendor's tools."""
    from opscope.core.perf.devices.vendors import TOOLS  # lazy: it loads Polars

    tools = TOOLS.get(of or "")
    if tools is None or of == "nvidia":
        return ()
    measured = (
        "measure them with " + tools.counters if tools.counters else "none are read of its devices"
    )
    return (
        (r"measure them with ncu, or with opscope run --counters", measured),
        (r"\bCUDA API\b", tools.api),
        (r"nvidia-smi -q -d PERFORMANCE", tools.clocks or "its vendor's monitor"),
        (r", under Nsight Systems as well", ""),
        (r"; with nsys[^;]*|, or (?:with )?nsys(?: with)? --cuda-graph-trace=node", ""),
        (r"; a C\+\+ thread must push NVTX ranges itself", ""),
    )


def told(table: Table, of: str | None) -> Table:
    """Return the table with its title, headings, notes and opscope's own texts in the vendor's words."""
    if of not in _WORDS and not _tools(of):
        return table
    return replace(
        table,
        title=said(table.title, of),
        columns=[replace(column, title=said(column.title, of)) for column in table.columns],
        rows=[_row(row, of) for row in table.rows],
        footnotes=[said(note, of) for note in table.footnotes],
        sentences=[said(sentence, of) for sentence in table.sentences],
    )


def _row(row: Mapping[str, Any], of: str | None) -> Mapping[str, Any]:
    from opscope.core.attribution.reasons import REASONS  # loads Polars

    mine = {}
    for key, value in row.items():
        if not isinstance(value, str):
            continue
        if key in OURS:
            mine[key] = said(value, of)
        elif "CUDA" in value:  # the column shows the reason where there is no op
            for reason in filter(None, REASONS):
                value = value.replace(reason, said(reason, of))
            mine[key] = value
    return {**row, **mine}

"""The file of hardware counters that CUPTI measured in a process, in its part of a recording.

``COUNTERS`` has a JSON object a line; times are on the recorder's clock, in ns. The first has ``version``
(cuptiGetVersion's number) and ``counters`` (their names); then, in any order,

* ``{"measured": {"context": c, "device": n, "began": t, "ended": t, "passes": n, "dropped": n}}``: a context
  of CUDA whose kernels were measured in that time, each run ``passes`` times; ``dropped`` have no values;
* ``{"values": {"context": c, "rows": [[value, ...], ...]}}``: its next kernels, in the order of their
  launches; null for a value that is no number;
* ``{"launches": [[start, end, context, thread, correlation, call, name], ...]}``: the launches;
  ``call`` is CUPTI's domain of callbacks << 24 | the call's number, ``name`` one of ``names``, 0: unknown;
* ``{"names": {"<number>": text}}``: names of kernels, as the compiler wrote them;
* ``{"samples": {"device": n, "rows": [[time, value, ...], ...]}}``: counters of a whole device by time;
* ``{"devices": [{"device": n, ...}]}``, with columns of the table ``devices``;
* ``{"note": text}``.

It is written when measuring ends, under another name until it is complete.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

COUNTERS: Final = "counters.jsonl"
#: CUPTI's domains of callbacks (CUpti_CallbackDomain), and the number of bits by which ``call`` shifts them.
DRIVER, RUNTIME, SHIFT = 1, 2, 24
#: The most rows in a line.
ROWS: Final = 500


def write(folder: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write the file into a part. Raises OSError."""
    temporary = folder / f"{COUNTERS}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, allow_nan=False) + "\n")
    temporary.replace(folder / COUNTERS)


def pieces(rows: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Yield the rows in pieces, so that lines stay short."""
    for at in range(0, len(rows), ROWS):
        yield rows[at : at + ROWS]


def finite(values: Iterable[float]) -> list[float | None]:
    """Return the values, with None for those that are not numbers."""
    return [value if math.isfinite(value) else None for value in values]

"""Add to a recording the facts that its processes' starters know: start, end, and exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.recording_format import EXITS, LAUNCHED
from opscope.core.tables.trace import Trace, conform, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import refuse_odd

#: The largest size of ``LAUNCHED``, and of the part of ``EXITS`` that is read, in bytes.
_MOST: Final = 4096
_MOST_EXITS: Final = 1 << 22
_LIMIT: Final = 1 << 62


def with_launcher(traces: Sequence[Trace], folder: Path) -> list[Trace]:
    """Return the traces of a recording's parts, with begin and end of the process that ``opscope run``
    started, and the exit status of processes whose recorded parent saw it. A recording without these
    files, or of an unfinished run, has neither the times nor the status. Raises BadInput."""
    launched = _launched(folder / LAUNCHED)
    exits = _exits(folder / EXITS)
    if launched is None and not exits:
        return list(traces)
    return [_told(trace, launched, exits) for trace in traces]


def _launched(path: Path) -> dict[str, Any] | None:
    """Return the content that ``opscope run`` wrote; None if it wrote nothing."""
    try:
        refuse_odd(path)
        launched = json.loads(path.read_bytes()[:_MOST])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    if not isinstance(launched, dict) or not _numbers(launched, "pid", "began", "ended"):
        raise BadInput(path, "it does not say when the command began and ended")
    return launched


def _exits(path: Path) -> list[dict[str, Any]]:
    """Return the exit statuses that were seen; an incomplete last line, as after a kill, is left out."""
    try:
        refuse_odd(path)
        with path.open("rb") as file:
            lines = file.read(_MOST_EXITS).split(b"\n")[:-1]
        exits = [json.loads(line) for line in lines]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(path, f"cannot be read: {error}") from None
    for line in exits:
        if not isinstance(line, dict) or not _numbers(line, "pid", "seen", "status"):
            raise BadInput(path, "a line does not say the exit status of a process")
    return exits


def _numbers(values: dict[str, Any], *names: str) -> bool:
    return all(type(values.get(name)) is int and 0 <= values[name] < _LIMIT for name in names)


def _told(trace: Trace, launched: dict[str, Any] | None, exits: Sequence[dict[str, Any]]) -> Trace:
    """Return the trace of a part with the known facts about its process."""
    rows: list[tuple[int, int, int, str, str | None]] = []
    times = trace["process_times"]
    if launched is not None and _is_of(trace, launched):
        times = times.filter(pl.col("kind").cast(pl.String) != "began")
        began, ended = launched["began"], launched["ended"]
        rows += [(0, began, began, "began", None), (0, ended, ended, "ended", None)]
        if _numbers(launched, "status"):
            rows.append((0, ended, ended, "exit", str(launched["status"])))
    # a process id may be used by several processes, one after the other
    last = max((line["seen"] for line in exits if _is_of(trace, line)), default=None)
    rows += [
        (0, line["seen"], line["seen"], "exit", str(line["status"]))
        for line in exits
        if line["seen"] == last and _is_of(trace, line)
    ]
    if not rows:
        return trace
    told = pl.DataFrame(rows, schema=table_schema("process_times"), orient="row")
    return trace.replace(process_times=pl.concat([times, conform("process_times", told)]))


def _is_of(trace: Trace, said: dict[str, Any]) -> bool:
    """Return whether an exit status is that of the part's process."""
    boots = trace["clocks"]["machine"].to_list()
    return trace["processes"]["pid"].to_list() == [said["pid"]] and said.get("boot") in boots

"""Simple mode: the command's own time as a part of the recording, and lines on what was recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from opscope import backends
from opscope.core.capture import process as processes
from opscope.core.capture.recorder_sink import pop_code, read_clock
from opscope.core.question import units
from opscope.core.recording_format import (
    CHUNK,
    EVENTS,
    FACTS,
    FORMAT,
    META,
    RECORD,
    STRINGS,
    VERSION,
)
from opscope.core.schema import CAPTURE_DOMAIN

from . import launch

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: The domain of the range that represents the command; no range of a program is in it.
DOMAIN: Final = "opscope.command"
#: The thread of that range. The system has no such thread, so no event of the program is inside the range.
_THREAD: Final = 0


class CommandTime:
    """Measures the command from its start to its end, whatever program it is."""

    def __init__(self, command: Sequence[str], private: bool) -> None:
        self._name = launch.name_of(command)
        self._command = tuple(command)
        self._private = private
        self._who: processes.Process | None = None
        self._begin = perf_counter_ns()

    def started(self, pid: int) -> None:
        """Begin to measure: the command runs as process ``pid``."""
        self._begin = perf_counter_ns()
        self._who = processes.child(pid, self._name, self._command, self._private)

    def write(self, parts: Path) -> None:
        """Write the part. Does nothing if the command never started. Raises OSError."""
        if self._who is None or not parts.is_dir():
            return
        end, who = perf_counter_ns(), self._who
        folder = parts / f"{who.folder}-command"
        folder.mkdir()
        records = ((0, self._begin), (pop_code(0), end))
        (folder / EVENTS).write_bytes(
            RECORD.pack(CHUNK, len(records)) + b"".join(RECORD.pack(*record) for record in records)
        )
        texts = [[0, DOMAIN, "phase", self._name]]  # a range without a category may be an op
        facts = [
            {"domain": DOMAIN, "number": 0},
            {"thread": 0, "os_tid": _THREAD, "pthread_id": _THREAD, "name": "whole command"},
            {"clock": read_clock()},
            # the part captured nothing else, so its own span is empty
            {"start": end},
            {"stop": end},
        ]
        for name, lines in ((STRINGS, texts), (FACTS, facts)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / name).write_text(text, encoding="utf-8")
        meta = {"format": FORMAT, "version": VERSION, "clock": "perf_counter_ns"}
        meta |= {**asdict(who), "versions": {}, "private": self._private}
        (folder / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def tell(trace: Trace, gpu: str | None) -> list[str]:
    """Return two lines, on what was recorded and what was not, and note both in the trace. ``gpu``: the
    vendor of the GPU that the command could see, or None."""
    import polars as pl

    from opscope.core.analysis.summary.summary import ended_steps

    every = trace["ranges"]
    ranges = every.filter(pl.col("domain").cast(pl.String).is_in([DOMAIN, CAPTURE_DOMAIN]).not_())
    steps = len(ended_steps(ranges))
    if "kind" in ranges.columns:
        ranges = ranges.filter((pl.col("kind").cast(pl.String) == "mark").fill_null(False).not_())
    others = int(ranges["category"].is_null().sum())
    timed = (every["domain"].cast(pl.String) == DOMAIN).any()
    recorded, missing = [], ["ops: simple mode observes no framework"]
    if timed:
        recorded.append("the time of the command")
    (recorded if steps else missing).append(
        units.counted(steps, "step") if steps else "steps: the program marks none (opscope.step())"
    )
    if others:
        recorded.append(units.counted(others, "range"))
    if trace.has("kernels"):
        recorded.append(units.counted(len(trace["kernels"]), "kernel"))
    else:
        missing.append(f"GPU kernels: {_why_no_kernels(gpu)}")
        if gpu is not None:  # the CPU's time never replaces the device's
            trace.origin["gpu"] = True
    done, lacking = "; ".join(recorded) or "nothing", "; ".join(missing)
    lines = [f"simple mode recorded: {done}", f"not recorded: {lacking}"]
    trace.origin["mode"] = "simple"
    for line in lines:
        trace.note("info", line)
    return lines


def _why_no_kernels(gpu: str | None) -> str:
    if gpu is None:
        return "no GPU is visible here"
    if gpu != "nvidia":
        return "the program ran none by PyTorch or JAX, whose profilers record them"
    machine = backends.here(in_process=False, simple=True)
    backends_here = {
        name: availability
        for name, _, availability in backends.ranked(machine)
        if name in ("nsys", "cupti")
    }
    if any(availability.works for availability in backends_here.values()):
        return "the program ran none that was seen; opscope doctor says what records those of any program"
    why = "; ".join(f"{name}: {availability.why}" for name, availability in backends_here.items())
    return f"nothing that records those of any program is here ({why})"

"""HTA's side: load one trace and answer the questions; runs under a Python that has HTA, not opscope.

Arguments: the trace, the file for the answers (JSON), ``whole`` or ``as-is``, the questions.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

from found import questions


def main(trace, out, mode, *names):
    """Write the answers."""
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    if mode == "whole":  # else it drops the last step, and kernels whose launch is not in the trace
        Trace._filter_irrelevant_gpu_kernels = lambda *_: None
    begin = time.perf_counter()
    analysis = TraceAnalysis(trace_files={0: trace}, trace_dir="/")
    answers = {"load": time.perf_counter() - begin, "answers": {}}
    for name, question in questions(names).items():
        begin = time.perf_counter()
        figures, error = {}, None
        try:
            figures = question.theirs(analysis)
        except Exception as failed:  # noqa: BLE001 HTA fails on some traces: the table says so
            error = f"{type(failed).__name__}: {failed}".splitlines()[0][:120]
        seconds = time.perf_counter() - begin
        answers["answers"][name] = {"figures": _plain(figures), "seconds": seconds, "error": error}
    Path(out).write_text(json.dumps(answers), encoding="utf-8")


def _plain(figures):
    """Return the figures as Python's own numbers; null for NaN."""
    made = {}
    for name, value in figures.items():
        if not isinstance(value, str) and value is not None:
            value = float(value)
            value = None if math.isnan(value) else value
        made[name] = value
    return made


if __name__ == "__main__":
    main(*sys.argv[1:])

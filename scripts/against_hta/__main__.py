"""Compare opscope's figures with those of Holistic Trace Analysis (HTA) on the same Kineto traces.

    python scripts/against_hta --hta-python PATH [--questions idle_time,overlap] [--as-is] TRACE...

PATH is a Python with HolisticTraceAnalysis 0.5.0 and pandas 2.1 (later pandas breaks HTA):
`pip install "HolisticTraceAnalysis==0.5.0" "pandas<2.2"`. HTA runs there, in a process of its own. Each file of
``questions`` is one question; README.md beside this file says how to add one. The output is one table a trace:
figure beside figure, whether they are equal, and if not why; then the times of both.

HTA drops the last step and kernels whose launch is not in the trace, and rounds times to µs. Both are switched off,
so that the two read the same events; ``--as-is`` leaves them on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compared import compare
from found import questions

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parents[1]))  # opscope, if it is not installed


def main() -> int:
    """Print the tables; return 1 if a figure differs and no question says why."""
    options = _options()
    wanted = questions(options.questions.split(",") if options.questions else None)
    unexplained = 0
    results: dict[str, Any] = {}
    for trace in options.traces:
        theirs = _theirs(options, trace, list(wanted))
        ours = _ours(trace, wanted)
        print(f"\n## {Path(trace).name}\n")
        rows = [
            row
            for name, question in wanted.items()
            for row in compare(name, question, ours["answers"][name], theirs["answers"][name])
        ]
        _table([("question", "figure", "opscope", "HTA", "result")] + [row.cells() for row in rows])
        print()
        _table(_times(wanted, ours, theirs))
        unexplained += sum(row.unexplained for row in rows)
        results[Path(trace).name] = {"opscope": ours, "HTA": theirs}
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"\n{unexplained} figures differ without an explanation")
    return 1 if unexplained else 0


def _options() -> argparse.Namespace:
    text = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="against_hta", description=text)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--hta-python", required=True, help="a Python that has HTA 0.5.0")
    parser.add_argument("--questions", help="names of files in questions/, separated by commas")
    parser.add_argument("--as-is", action="store_true", help="leave HTA's trimming and rounding on")
    parser.add_argument("--json", help="also write all figures and times to this file")
    return parser.parse_args()


def _theirs(options: argparse.Namespace, trace: str, names: list[str]) -> dict[str, Any]:
    """Return HTA's answers: ``load`` (s), ``answers``: by question ``figures``, ``seconds``, ``error``."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)  # our packages are not for its interpreter
    if not options.as_is:
        environment["HTA_DISABLE_NS_ROUNDING"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answers.json"
        command = [options.hta_python, str(HERE / "peer.py"), str(Path(trace).resolve()), str(out)]
        command += ["as-is" if options.as_is else "whole", *names]
        ran = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False
        )
        if ran.returncode or not out.exists():
            sys.exit(f"HTA failed on {trace}:\n{ran.stderr[-2000:]}")
        answers: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return answers


def _ours(trace: str, wanted: dict[str, Any]) -> dict[str, Any]:
    import opscope

    begin = time.perf_counter()
    profile = opscope.load(trace)
    load = time.perf_counter() - begin
    answers = {}
    for name, question in wanted.items():
        begin = time.perf_counter()
        figures = question.ours(profile)
        answers[name] = {"figures": figures, "seconds": time.perf_counter() - begin, "error": None}
    return {"load": load, "answers": answers}


def _times(wanted: dict[str, Any], ours: Any, theirs: Any) -> list[tuple[str, ...]]:
    rows = [
        ("time (s)", "opscope", "HTA"),
        ("load", f"{ours['load']:.2f}", f"{theirs['load']:.2f}"),
    ]
    for name in wanted:
        one, other = ours["answers"][name]["seconds"], theirs["answers"][name]["seconds"]
        rows.append((name, f"{one:.3f}", f"{other:.3f}"))
    return rows


def _table(rows: list[tuple[str, ...]]) -> None:
    """Print rows as a Markdown table; the first is the head."""
    wide = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, wide, strict=True))
        print("| " + " | ".join(cells) + " |")
        if not number:
            print("|" + "|".join("-" * (width + 2) for width in wide) + "|")


if __name__ == "__main__":
    sys.exit(main())

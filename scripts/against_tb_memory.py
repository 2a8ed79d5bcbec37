"""Compare memory by op, peaks and blocks with PyTorch's plug-in for TensorBoard on the same Kineto traces.

    python scripts/against_tb_memory.py --peer-python PATH TRACE...

PATH is a Python with torch-tb-profiler 0.4.3 (`pip install "torch-tb-profiler==0.4.3" "pandas<2.2" "numpy<2"`). The
plug-in parses the trace there, in a process of its own. For each trace one line says how many figures are equal,
and one line follows for each that is not, with the reason. The exit code is 1 if a figure differs without a reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # opscope, if it is not installed

#: The plug-in's figures of an op, in its order (``MemoryMetrics``).
FIGURES = (
    "self_increase", "self_allocated", "self_allocations", "increase", "allocated", "allocations",
)  # fmt: skip
NO_DEVICE = "the plug-in knows no memory of this kind of device (AMD's), and lists none"
NO_OPERATOR = "the plug-in takes this range for no operator, and gives its memory to none"
TWICE = "an op inside one of its own name: the plug-in adds the inner one's memory twice"


def theirs(trace: str, out: str) -> None:
    """Write the plug-in's figures; runs in its own Python."""
    import logging

    logging.disable(logging.CRITICAL)
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse("worker", 1, trace, cache)
    run = RunGenerator("worker", 1, data).generate_run_profile()
    memory = data.memory_snapshot
    try:
        blocks = run.get_memory_events(memory_metric="B")["rows"]
    except (
        AttributeError
    ):  # its name of a device that it does not know is None, and it sorts by name
        blocks = {}
    answer = {
        "ops": memory.get_memory_statistics(data.tid2tree),
        "peaks": {str(device): peak for (_, device), peak in memory.get_peak_memory().items()},
        "blocks": {
            device: [
                sum(row[2] is not None and row[3] is not None for row in rows),
                sum(row[2] is None or row[3] is None for row in rows),
            ]
            for device, rows in blocks.items()
        },
    }
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


def compare(trace: str, answer: dict[str, Any]) -> tuple[int, list[str], int]:
    """Return how many figures are equal, a line for each other, and how many of these have no reason."""
    import polars as pl

    import opscope

    profile = opscope.load(trace)
    equal, lines, unexplained = 0, [], 0
    nested = _nested(profile)

    def check(what: str, mine: object, other: object, why: str | None) -> None:
        nonlocal equal, unexplained
        if mine == other:
            equal += 1
            return
        unexplained += why is None
        lines.append(f"{what}: opscope {mine}, plug-in {other}: {why or 'not explained'}")

    for row in profile.memory_ops().filter(pl.col("op").is_not_null()).to_dicts():
        device = _device(row["device"])
        mine = [row[name] for name in FIGURES]
        if not any(mine):
            continue
        found = answer["ops"].get(device, {}).get(row["op"])
        why = None
        if device not in answer["ops"]:
            why = NO_DEVICE
        elif found is None and "#" in row["op"]:
            why = NO_OPERATOR
        elif found and row["op"] in nested and found[:3] == mine[:3]:
            why = TWICE
        check(f"{device} {row['op']}", mine, found and found[: len(FIGURES)], why)
    has_totals = profile.trace["allocations"]["total"].null_count() == 0
    for row in profile.memory().to_dicts():
        if has_totals:  # an old file has none: opscope adds up, the plug-in does not say
            peak = answer["peaks"].get(str(row["device"]))
            check(f"peak of {_device(row['device'])}", row["peak_memory"], peak, None)
    blocks = profile.memory_events()
    for (number,), mine in blocks.group_by("device", maintain_order=True):
        if number is None or mine["address"].has_nulls():
            continue  # nothing is paired, here and there
        paired = mine["reason"].null_count()
        device = _device(number)
        why = NO_DEVICE if device not in answer["blocks"] else None
        check(
            f"blocks of {device}, paired and not",
            [paired, len(mine) - paired],
            answer["blocks"].get(device),
            why,
        )
    return equal, lines, unexplained


def _nested(profile: Any) -> set[str]:
    """Return the names of ops that ran inside one of their own name."""
    ops = profile.ops().select("process", "thread", "op", "start", "end").sort("start")
    found = set()
    for name, one in ops.group_by("process", "thread", "op"):
        if (one["start"] < one["end"].cum_max().shift(1)).any():
            found.add(name[2])
    return found


def _device(number: int) -> str:
    return "CPU" if number == -1 else f"GPU{number}"


def main() -> int:
    """Print what is equal and what is not; return 1 if a figure differs without a reason."""
    if sys.argv[1:2] == ["--theirs"]:
        theirs(*sys.argv[2:4])
        return 0
    parser = argparse.ArgumentParser(
        prog="against_tb_memory", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--peer-python", required=True, help="a Python that has torch-tb-profiler 0.4.3"
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    given = parser.parse_args()
    unexplained = 0
    for trace in given.traces:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "memory.json"
            command = [
                given.peer_python,
                __file__,
                "--theirs",
                str(Path(trace).resolve()),
                str(out),
            ]
            ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if ran.returncode or not out.exists():
                print(f"{Path(trace).name}: the plug-in fails: {ran.stderr.strip()[-300:]}")
                unexplained += 1
                continue
            answer = json.loads(out.read_text(encoding="utf-8"))
        equal, lines, without = compare(trace, answer)
        unexplained += without
        print(f"{Path(trace).name}: {equal} equal, {len(lines)} not")
        for line in lines:
            print(f"  {line}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())

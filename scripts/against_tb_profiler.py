"""Compare the step breakdown with that of PyTorch's plug-in for TensorBoard on the same Kineto traces.

    python scripts/against_tb_profiler.py --peer-python PATH TRACE...

PATH is a Python with torch-tb-profiler 0.4.3 (`pip install "torch-tb-profiler==0.4.3" "pandas<2.2" "numpy<2"`). The
plug-in parses the trace there, in a process of its own. For each trace one table shows each part, all steps
added up, in µs: opscope's steps; the plug-in's; and opscope's parts of the time that the plug-in takes for
steps. The last two are equal, or a line says why not.

The plug-in moves steps: one ends with the last kernel that it launched, and the next begins there. It removes the
last step if that launched much less than the one before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.ops import op_index

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # opscope, if it is not installed

#: The plug-in's names of the parts, in the order of its ``ProfileRole``.
ROLES = ("Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CpuOp", "Other")
OURS = {
    "Kernel": "kernel_part", "Memcpy": "copy_part", "Memset": "set_part",
    "Communication": "communication_part", "Runtime": "runtime_part", "DataLoader": "loader_part",
    "CpuOp": "op_part", "Other": "other_part",
}  # fmt: skip
#: Why the parts of the same time differ, in two groups; each reason is given only where its sum holds.
WHY_KERNEL = (
    "the plug-in takes kernels of collectives for others: it knows them by the External id of their op,"
    " which since 2022 is the kernel's own correlation (its figure is the sum of opscope's kernels and"
    " communication)"
)
WHY_HOST = (
    "the plug-in knows the category runtime, not cuda_runtime, nor the loader's as user_annotation: their"
    " time is in its CpuOp and Other; its Communication is the ops on the host (the sums of all but kernels,"
    " copies and sets are equal)"
)
ON_HOST = ("Communication", "Runtime", "DataLoader", "CpuOp", "Other")


def theirs(trace: str, out: str) -> None:
    """Write the plug-in's steps; runs in its own Python."""
    import logging

    logging.disable(logging.CRITICAL)
    from torch_tb_profiler.profiler import event_parser
    from torch_tb_profiler.profiler.data import RunProfileData

    seen: dict[str, Any] = {}
    update = event_parser.StepParser._update_steps_duration

    def noted(self: Any, *args: Any) -> None:
        seen["first"] = self.steps[0][0]  # as the file has it
        update(self, *args)
        seen["steps"] = list(self.steps)

    event_parser.StepParser._update_steps_duration = noted
    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse("worker", 1, trace, cache)
    costs = [one.costs for one in data.steps_costs]
    answer = {**seen, "costs": costs}
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


def ours(trace: str, windows: list[list[float]], first: float) -> tuple[dict[str, float], ...]:
    """Return µs per role, of opscope's steps and of the plug-in's ``windows`` (µs).

    ``first``: when the first step begins on the plug-in's clock.
    """
    import numpy as np

    import opscope
    from opscope.core.analysis.steps.step_times import PARTS, happened, split

    profile = opscope.load(trace)
    table = profile.steps()
    own = {role: float(table[name].sum()) / 1e3 for role, name in OURS.items()}
    process = table["process"][0]
    did = happened(profile.of(op_index), lambda: profile.of(exchanges))[process]
    base = table["start"][0]
    bounds = np.array(
        [[base + round((edge - first) * 1e3) for edge in one] for one in windows], np.int64
    )
    made = split(did.parts, bounds[:, 0], bounds[:, 1])
    sums = {
        name: 0 if part is None else int(part.sum()) for name, part in zip(PARTS, made, strict=True)
    }
    rest = int((bounds[:, 1] - bounds[:, 0]).sum()) - sum(sums.values())
    sums["other_part"] = rest
    return own, {role: sums[name] / 1e3 for role, name in OURS.items()}


def compare(trace: str, python: str) -> int:
    """Print one table; return how many parts differ and have no reason."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "steps.json"
        command = [python, __file__, "--theirs", str(Path(trace).resolve()), str(out)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if ran.returncode or not out.exists():
            print(f"\n## {Path(trace).name}\n\nthe plug-in fails: {ran.stderr.strip()[-300:]}")
            return 0
        answer = json.loads(out.read_text(encoding="utf-8"))
    own, same = ours(trace, answer["steps"], answer["first"])
    plugin = {role: sum(one[n] for one in answer["costs"]) for n, role in enumerate(ROLES)}
    print(f"\n## {Path(trace).name}: {len(answer['steps'])} of the plug-in's steps\n")
    print("| part (µs) | opscope's steps | plug-in | opscope, plug-in's steps | result |")
    print("|---|---|---|---|---|")
    unexplained = 0
    for role in (*ROLES, "sum"):
        mine, other, here = (
            sum(one.values()) if role == "sum" else one[role] for one in (own, plugin, same)
        )
        equal = abs(other - here) <= 1e-6 * max(abs(other), 1) + 0.001 * len(answer["steps"])
        why = "equal" if equal else _why(role, plugin, same)
        unexplained += why == "not explained"
        print(f"| {role} | {mine:,.0f} | {other:,.0f} | {here:,.0f} | {why} |")
    return unexplained


def _why(role: str, plugin: dict[str, float], same: dict[str, float]) -> str:
    """Return the reason why a part differs, if what it says of the sums holds."""
    collectives = same["Kernel"] + same["Communication"]
    on_host = sum(plugin[one] for one in ON_HOST)
    ours = sum(same[one] for one in ON_HOST) - same["Communication"]
    near = 1e-3 * sum(same.values())
    if role == "Kernel" and abs(plugin["Kernel"] - collectives) < near:
        return WHY_KERNEL
    if (
        role in ON_HOST
        and abs(plugin["Kernel"] - collectives) < near
        and abs(on_host - ours) < near
    ):
        return WHY_HOST
    rounded = role in ("Memcpy", "Memset") and abs(plugin[role] - same[role]) < 1e-3 * same[role]
    return "the plug-in rounds to µs" if rounded else "not explained"


def main() -> int:
    """Print the tables; return 1 if a part differs without a reason."""
    if sys.argv[1:2] == ["--theirs"]:
        theirs(*sys.argv[2:4])
        return 0
    parser = argparse.ArgumentParser(
        prog="against_tb_profiler", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--peer-python", required=True, help="a Python that has torch-tb-profiler")
    options = parser.parse_args()
    return int(sum([compare(trace, options.peer_python) for trace in options.traces]) > 0)


if __name__ == "__main__":
    sys.exit(main())

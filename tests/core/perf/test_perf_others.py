"""Cost models of other packages are found by their entry point, and a broken one costs only its own ops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COSTS = """
from opscope.core.perf import Cost, op

@op("abacus::add", family="elementwise", source="one FLOP an element")
def add(call):
    return Cost(vector_flops=7)
"""
ASK = """
from opscope.core import perf
from opscope.core.schema import OpCall
print(perf.cost(OpCall("abacus::add")))
print(perf.cost(OpCall("aten::view"))[1])
"""


def asked(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    """Ask for costs where the package is installed with these modules as its entry points."""
    information = folder / "opscope_abacus-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: opscope-abacus\nVersion: 1.0\n"
    )
    points = "\n".join(f"{name} = {name}" for name in modules)
    (information / "entry_points.txt").write_text(f"[opscope.costs]\n{points}\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder)))}
    return subprocess.run(
        [sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=False
    )


def test_a_package_s_costs_are_known_by_its_entry_point(tmp_path):
    (tmp_path / "abacus_costs.py").write_text(COSTS)
    done = asked(tmp_path, "abacus_costs")
    assert (done.returncode, done.stderr) == (0, "")
    assert "vector_flops=7" in done.stdout


def test_a_package_whose_costs_fail_costs_only_its_own_ops(tmp_path):
    (tmp_path / "abacus_costs.py").write_text(COSTS)
    (tmp_path / "broken_costs.py").write_text("1 / 0\n")
    (tmp_path / "taken_costs.py").write_text(COSTS.replace("abacus::add", "aten::mm"))
    done = asked(tmp_path, "abacus_costs", "broken_costs", "absent_costs", "taken_costs")
    assert done.returncode == 0
    assert "vector_flops=7" in done.stdout
    for name, why in (
        ("broken_costs", "division by zero"),
        ("absent_costs", "No module named 'absent_costs'"),
        ("taken_costs", "aten::mm already has a cost model"),
    ):
        assert f"the costs of opscope-abacus ({name}) are left out: {why}" in done.stderr

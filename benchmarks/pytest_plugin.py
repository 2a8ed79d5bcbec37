"""What the pytest plug-in costs a run of pytest that never asks for it: imports, time and modules.

Usage: python benchmarks/pytest_plugin.py [rounds]

Prints, by ``python -X importtime``, how long importing the plug-in's module takes beside that of pytest (medians over
fresh processes), and which modules it loads: opscope's own few, and of no other package but pytest. The command fails
if it loads more. Then a whole run of pytest on one empty test without the plug-in and with it, by turns (A B B A …), in
processor time, which a loaded machine changes less: the median of the ratios of neighbours.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import json, sys
import pytest
before = set(sys.modules)
import opscope.testing.pytest_plugin
print(json.dumps(sorted(set(sys.modules) - before)))
"""
MODULE = "opscope.testing.pytest_plugin"
ROOT = Path(__file__).resolve().parents[1]
#: pytest's options without the plug-in, and with it.
OFF, ON = (), ("-p", MODULE)


def imported() -> tuple[dict[str, int], list[str]]:
    """Return the time (µs, with what it imports) of each module, and the modules that the plug-in loads."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
    )
    times = {}
    for line in done.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[1].strip().isdigit():
            times[parts[2].strip()] = int(parts[1])
    return times, json.loads(done.stdout)


def by_turns(rounds: int) -> list[float]:
    """Return how many times the processor time of pytest without the plug-in it takes with it, per round."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing(): pass\n")
        for number in range(rounds):
            spent = {}
            for options in (OFF, ON) if number % 2 == 0 else (ON, OFF):
                before = os.times()
                subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
                    cwd=folder, capture_output=True, check=True,
                    env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
                )  # fmt: skip
                after = os.times()
                spent[options] = (
                    after.children_user - before.children_user
                    + after.children_system - before.children_system
                )  # fmt: skip
            ratios.append(spent[ON] / spent[OFF])
    return ratios


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    found = [imported() for _ in range(rounds)]
    parents = ("opscope", "opscope.testing", MODULE)
    ours = [sum(times.get(name, 0) for name in parents) for times, _ in found]
    whole = [times["pytest"] for times, _ in found]
    loaded = found[0][1]
    print(f"import pytest    {statistics.median(whole) / 1e3:8.2f} ms")
    print(
        f"the plug-in      {statistics.median(ours) / 1e3:8.2f} ms, {len(loaded)} modules: {', '.join(loaded)}"
    )
    others = [name for name in loaded if name.partition(".")[0] != "opscope"]
    heavy = [
        name
        for name in loaded
        if name.startswith(("opscope.core", "opscope.profile", "opscope.cli"))
    ]
    if others or heavy:
        print(f"it loads more than it needs: {', '.join(others + heavy)}")
        return 1
    ratios = by_turns(rounds)
    print(f"a run of pytest  {statistics.median(ratios):8.3f} times its processor time without")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the pytest plug-in costs a run of pytest that never asks for it: imports, time and modules.

Usage: python benchmarks/pytest_plugin.py [rounds]

Prints, by ``python -X importtime``, how long importing the plug-in's module takes beside that of pytest (medians over
fresh processes), and which modules it loads: opscope's own few, and of no other package but pytest. The command fails
if it loads more.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

PROGRAM = """
import json, sys
import pytest
before = set(sys.modules)
import opscope.testing.pytest_plugin
print(json.dumps(sorted(set(sys.modules) - before)))
"""
MODULE = "opscope.testing.pytest_plugin"


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
    return 0


if __name__ == "__main__":
    sys.exit(main())

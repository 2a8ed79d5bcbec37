"""What ``import opscope`` and ``opscope.init()`` cost a program, whatever frameworks are installed.

Usage: python benchmarks/init_cost.py [rounds]

Prints the median over fresh processes of the CPU time to import opscope and of ``init()``, the number of
modules that each loads, and beside them what importing each installed framework takes. ``init()`` must load none of
them: the command fails if it does. ``python -X importtime -c "import opscope; opscope.init()"`` shows the
same module by module.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import statistics
import subprocess
import sys

FRAMEWORKS = (
    "torch",
    "tensorflow",
    "jax",
    "keras",
    "flax",
    "optax",
    "mindspore",
    "onnxruntime",
    "paddle",
)
MEASURE = """
import json, sys, time
start, before = time.process_time(), set(sys.modules)
import opscope
imported, after = time.process_time(), set(sys.modules)
opscope.init()
ready, now = time.process_time(), set(sys.modules)
print(json.dumps([imported - start, ready - imported, sorted(after - before), sorted(now - after)]))
"""
IMPORT = "import sys, time; start = time.process_time(); __import__(sys.argv[1]); print(time.process_time() - start)"


def measured(program: str, *args: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
    found = [json.loads(measured(MEASURE)) for _ in range(rounds)]
    for what, at in (("import opscope", 0), ("opscope.init()", 1)):
        times = sorted(1e3 * one[at] for one in found)
        print(
            f"{what:16} {statistics.median(times):8.2f} ms  ({times[0]:.2f} to {times[-1]:.2f}),"
            f" {len(found[0][at + 2])} modules"
        )
    loaded = {name.partition(".")[0] for name in found[0][2] + found[0][3]}
    wrong = sorted(loaded & {*FRAMEWORKS, "numpy", "polars", "pandas"})
    distributions = len(list(importlib.metadata.distributions()))
    print(f"frameworks loaded: {', '.join(wrong) or 'none'} of {len(installed)} installed"
          f" ({distributions} distributions in the environment)")  # fmt: skip
    for name in installed:
        try:
            taken = float(measured(IMPORT, name))
        except subprocess.CalledProcessError as error:
            print(f"import {name:11} fails: {error.stderr.strip().splitlines()[-1]}")
        else:
            print(f"import {name:11} {1e3 * taken:8.0f} ms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

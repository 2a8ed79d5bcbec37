"""Compare what Nsight Systems and the recorder record of the same runs, op by op, as tables.

    python scripts/compare_nsight.py [NSYS ...]      (default: those of $OPSCOPE_NSYS, else the one on PATH)

Runs each program of tests/nsight_programs.py whose framework is installed. No GPU is needed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import nsight_programs as programs
from tests import nsight_tool as tool

_PROGRAMS = (
    ("torch", "PyTorch, eager", programs.EAGER),
    ("torch", "PyTorch, compiled", programs.COMPILED),
    ("torch", "PyTorch, data loader's workers and os.fork", programs.FORKED),
    ("torch", "PyTorch, two threads", programs.THREADS),
    ("torch", "PyTorch, texts over 4 KiB", programs.FOREACH),
    ("torch", "PyTorch, torchrun with 2 ranks", programs.RANKS),
    ("tensorflow", "TensorFlow", programs.TENSORFLOW),
    ("jax", "JAX", programs.JAX),
)


def main() -> None:
    """Print the tables."""
    if len(sys.argv) > 1:
        os.environ[tool.VARIABLE] = os.pathsep.join(sys.argv[1:])
    found = tool.installed()
    if not found:
        sys.exit("found no nsys on PATH, in $OPSCOPE_NSYS or among the arguments")
    for framework, title, program in _PROGRAMS:
        if importlib.util.find_spec(framework) is None:
            continue
        for nsys in found:
            print(f"\n== {title}, Nsight Systems {tool.version(nsys)}")
            with tempfile.TemporaryDirectory() as folder:
                ran, recorded = tool.run(
                    nsys, program, Path(folder), ranks=program is programs.RANKS
                )
                # no trace has sequence numbers for ops of graphs; for "step" see test_under_nsight.py
                without = {programs.TENSORFLOW: ("seq",), programs.THREADS: ("step",)}.get(
                    program, ()
                )
                print(tool.compare(ran.sqlite, recorded, without).table(), flush=True)


if __name__ == "__main__":
    main()

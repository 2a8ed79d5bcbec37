"""Run ``opscope run`` and keep the recordings of its processes in FOLDER.

Usage: python gpu_keeping.py FOLDER run … (arguments as of opscope). The separate recordings show a fault of
the merging; in the profile they are already merged.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def main():
    from opscope.cli import main as opscope
    from opscope.cli import run_record

    keep = Path(sys.argv.pop(1))
    collect = run_record.collect_profile

    def keeping(task, *args, **kwargs):
        shutil.rmtree(keep, ignore_errors=True)
        shutil.copytree(task.parts, keep)
        return collect(task, *args, **kwargs)

    run_record.collect_profile = keeping
    opscope()


if __name__ == "__main__":
    main()

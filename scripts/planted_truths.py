"""Plant causes in programs and traces, run opscope on them, and show what it says first of each.

Usage: python scripts/planted_truths.py generate DIR [--only PATTERN]
       python scripts/planted_truths.py run DIR [--only PATTERN] [--live-only | --made-only]
       python scripts/planted_truths.py table DIR [--write docs/programs.md]

``generate`` writes made traces and programs with a ``.truth.json`` beside each. ``run`` records the programs
with ``opscope run`` in the environments below .tox (``--tox DIR``), asks opscope of each, and writes what it
says and whether it is right into ``.said.json``. ``table`` counts and lists.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.planted_truths import live, made, table  # noqa: E402
from tests.planted_truths.truth import Truth, judge, said_of  # noqa: E402


def generate(folder: Path, only: str) -> None:
    """Write all traces, programs and truths whose name matches."""
    folder.mkdir(parents=True, exist_ok=True)
    for cause, size in made.names():
        if re.search(only, cause):
            print(made.make(cause, size, folder).name)
    for truth in live.truths():
        if re.search(only, f"{truth.name} {truth.cause}"):
            truth.write(folder)
            print(truth.name)


def run(folder: Path, only: str, kinds: set[str], tox: Path) -> None:
    """Ask opscope of each, and keep what it says."""
    import opscope

    for path in sorted(folder.glob("*.truth.json")):
        truth = Truth.read(path)
        if truth.made not in kinds or not re.search(only, f"{truth.name} {truth.cause}"):
            continue
        begin = time.monotonic()
        try:
            files = [folder / name for name in truth.what]
            if truth.made == "program":
                truth, profile = live.record(truth, folder, tox)
                files = [profile]
            said = said_of(opscope.load([str(file) for file in files]))
            judged = judge(truth, said)
        except Exception as error:  # noqa: BLE001 - the next ones still run; a failure is a miss with its reason
            traceback.print_exc()
            kept = {"error": f"{type(error).__name__}: {error}"}
        else:
            kept = {"said": asdict(said), "judged": asdict(judged)}
        (folder / f"{truth.name}.said.json").write_text(json.dumps(kept, indent=1) + "\n")
        print(
            f"{truth.name}: {table.line(truth, kept)} ({time.monotonic() - begin:.1f} s)",
            flush=True,
        )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["generate", "run", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a pattern of names or causes")
    parser.add_argument("--live-only", action="store_true")
    parser.add_argument("--made-only", action="store_true")
    parser.add_argument("--tox", type=Path, default=ROOT / ".tox")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.what == "generate":
        generate(given.folder, given.only)
    elif given.what == "run":
        kinds = (
            {"trace"}
            if given.made_only
            else {"program"}
            if given.live_only
            else {"trace", "program"}
        )
        run(given.folder, given.only, kinds, given.tox)
    elif given.write is None:
        print(table.markdown(given.folder))
    else:
        table.write(given.folder, given.write)


if __name__ == "__main__":
    main()

"""Test opscope with the newest release of each framework, and write what came of it to docs/versions.md.

Usage: python scripts/newest.py [NAME …] [--python NAME=PYTHON] [--tests FILE …]   (tox -e newest)

Without names, all. Each framework gets an environment of its own in .tox/newest, unless ``--python`` names one that has
it. ``--tests`` are pytest's arguments in place of the framework's folder; the page says which were run. Results that
are not made again stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import venv
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "scripts" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"
HEAD = """# Versions

Written by `python scripts/newest.py` (`tox -e newest`, on demand): the newest release of each framework that was to be
had on the day, with the tests of its adapter and the programs of [frameworks.md](frameworks.md). Continuous tests run
the versions of `tox.ini`. The oldest is the one that the adapter accepts; an older one is left alone, with a message.

| framework | oldest | newest tested | Python | on | tests | passed | failed | skipped |
|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Stack:
    """A framework, the packages that its tests need, and what is known to break in its newest versions."""

    packages: tuple[str, ...]
    broken: str


STACKS = {
    "torch": Stack(
        ("torch", "keras", "lightning"),
        "2.14 and 2.15 are builds for CUDA alone. 2.15's profiler takes no counters"
        " (`profiler_metrics`): `--counters` takes CUPTI's way. Its traces have no sizes of lists of more than 30"
        " tensors; foreach optimizers' costs are known where their kernels' blocks fit the parameters."
        " Without a GPU Kineto itself writes an error to stderr.",
    ),
    "tensorflow": Stack(
        ("tensorflow-cpu",), "Tested as a prerelease, which brings Keras 3.16 as built every night."
    ),
    "jax": Stack(("jax[cpu]", "flax", "keras", "grain", "optax"), "0.12 needs Python 3.12."),
    "onnxruntime": Stack(("onnxruntime", "onnx"), ""),
    "mindspore": Stack(
        ("mindspore", "numpy<2"), "Needs NumPy 1; no wheels for Python 3.12 and later."
    ),
}
_KERAS = {"torch": "torch", "jax": "jax"}


def environment(name: str) -> Path:
    """Return the Python of a new environment with the newest release and what the tests need."""
    folder = ROOT / ".tox" / "newest" / name
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    wanted = [f"{ROOT}[test]", *STACKS[name].packages]
    subprocess.run([python, "-m", "pip", "install", "-q", "--upgrade", *wanted], check=True)
    return python


def run(name: str, python: Path, tests: list[str]) -> dict[str, object]:
    """Run the tests and return the row of the page."""
    package = STACKS[name].packages[0].partition("[")[0]
    ask = (
        "import importlib.metadata as m, platform as p;"
        f"print(m.version('{package}'), p.python_version())"
    )
    told = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)
    version, of_python = told.stdout.split()
    given = tests or [f"tests/on_{name}", "tests/test_adapter_laws.py"]
    report = ROOT / ".tox" / f"newest-{name}.xml"
    report.parent.mkdir(exist_ok=True)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KERAS_BACKEND": _KERAS.get(name, "tensorflow"),
    }
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        *given,
    ]
    subprocess.run(command, cwd=ROOT, env=environ, check=False)
    cases = list(ET.parse(report).getroot().iter("testcase"))
    if not cases:
        raise SystemExit(f"no test ran: {' '.join(given)}")
    bad = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "version": version,
        "python": of_python,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "tests": [re.sub(r"^tests/", "", test) for test in given],
        "passed": len(cases) - len(bad) - skipped,
        "skipped": skipped,
        "failed": [f"{case.get('classname')}.{case.get('name')}" for case in bad],
    }


def page(rows: dict[str, dict[str, object]]) -> str:
    """Return the page of all results."""
    lines, notes = [HEAD.rstrip("\n")], []
    for name, stack in STACKS.items():
        row = rows.get(name)
        oldest = _oldest(name)
        if row is None:
            lines.append(f"| {name} | {oldest} | not run | | | | | | |")
            continue
        tests, failed = row["tests"], row["failed"]
        assert isinstance(tests, list)
        assert isinstance(failed, list)
        shown = ", ".join(f"`{test}`" for test in tests)
        lines.append(
            f"| {name} | {oldest} | {row['version']} | {row['python']} | {row['date']} | {shown} |"
            f" {row['passed']} | {len(failed)} | {row['skipped']} |"
        )
        if stack.broken or failed:
            notes.append(f"- **{name}**: {stack.broken}".rstrip(": "))
            notes += [f"    - fails: `{test}`" for test in failed]
    return "\n".join([*lines, "", "## What is known to break", "", *notes, ""])


def _oldest(name: str) -> str:
    text = (ROOT / "opscope" / "adapters" / name / "__init__.py").read_text("utf-8")
    found = re.search(r'requires: ClassVar\[str\] = "([^"]+)"', text)
    assert found, name
    return found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*STACKS, []])
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--tests", nargs="+", default=[])
    given = parser.parse_args()
    pythons = dict(text.split("=", 1) for text in given.python)
    rows = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    for name in given.names or STACKS:
        python = Path(pythons[name]) if name in pythons else environment(name)
        rows[name] = run(name, python, given.tests)
        RESULTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n", "utf-8")
        PAGE.write_text(page(rows), "utf-8")
    sys.exit(any(row["failed"] for row in rows.values()))


if __name__ == "__main__":
    main()

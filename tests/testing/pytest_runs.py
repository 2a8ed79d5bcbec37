"""A run of pytest with opscope's plug-in, whether this opscope is installed with its entry point or not."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "opscope.testing.pytest_plugin"


def run_pytest(folder, *options, env=None):
    """Run pytest in the folder; return its status, its output, and the test cases of its JUnit file by name."""
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", PLUGIN]
    report = folder / "junit.xml"
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [*command, f"--junitxml={report}", f"--rootdir={folder}", *options],
        cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **(env or {})},
    )  # fmt: skip
    cases = {}
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            cases[case.get("name")] = case
    return done.returncode, done.stdout + done.stderr, cases


def message(case):
    """Return what a test that failed, or was skipped, says."""
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            return child.get("message") + "\n" + (child.text or "")
    return None


def properties(case):
    return {each.get("name"): each.get("value") for each in case.iter("property")}

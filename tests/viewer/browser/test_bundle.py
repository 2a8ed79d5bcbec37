"""The bundle: what web/ builds, byte for byte, checked by its own tests, with the notices of what it holds."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
from pathlib import Path

import pytest

import opscope.viewer
from tests.viewer.browser.conftest import ROOT

STATIC = Path(opscope.viewer.__file__).parent / "static"
#: Bytes that a page may take before any data.
MOST = 400_000


def run(web, *command):
    done = subprocess.run(command, cwd=web, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_web_rebuilds_to_the_committed_bundle_byte_for_byte(web, tmp_path):
    run(web, "node", "build.mjs", str(tmp_path))
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.is_file()}
    assert sorted(built) == sorted(kept)
    other = [name for name, content in built.items() if kept[name] != content]
    assert not other, f"not what web/ builds: {other}; cd web && npm ci && node build.mjs"


def test_the_types_of_the_script_hold(web):
    run(web, "npx", "--no-install", "tsc", "--noEmit")


def test_the_scripts_own_tests_pass(web):
    assert "test" in json.loads((web / "package.json").read_text())["scripts"]
    run(web, "npm", "test", "--silent")


def test_a_page_is_small_before_any_data():
    page = [path for path in STATIC.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert {"viewer.js", "viewer.css"} <= {path.name for path in page}
    assert sum(path.stat().st_size for path in page) <= MOST


def test_the_notices_of_all_packages_in_the_bundle_ship_with_it(web):
    notices = (STATIC / "THIRD_PARTY.txt").read_text(encoding="utf-8")
    needed = json.loads((web / "package.json").read_text())["dependencies"]
    assert needed
    for name, version in needed.items():
        licence = (web / "node_modules" / name / "LICENSE").read_text(encoding="utf-8")
        assert f"{name} {version} (" in notices
        assert licence.replace("\r\n", "\n").strip() in notices


def test_the_lock_names_every_package_exactly(web):
    given = json.loads((web / "package.json").read_text())
    for versions in (given["dependencies"], given["devDependencies"]):
        assert all(version[0].isdigit() for version in versions.values()), versions
    packages = json.loads((web / "package-lock.json").read_text())["packages"]
    assert all("integrity" in one for name, one in packages.items() if name), "no checksum"


def test_the_wheel_has_the_bundle():
    files = importlib.metadata.files("opscope") or []
    held = {str(path) for path in files if "viewer/static/" in str(path)}
    if Path(opscope.viewer.__file__).parents[2] == ROOT:
        if os.environ.get("OPSCOPE_VIEWER") == "1":
            pytest.fail("tox installs opscope's wheel, but the checkout was imported")
        pytest.skip("opscope runs from its checkout: no wheel is installed")
    assert held >= {f"opscope/viewer/static/{name}" for name in ("viewer.js", "viewer.css", "THIRD_PARTY.txt")}  # fmt: skip

"""Backends that other packages add: found by their entry points, and harmless where they are broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import opscope
from opscope import backends
from opscope.backends import Machine, known
from opscope.core.capture import session

BACKEND = Path(__file__).resolve().parents[1] / "other_package" / "abacus_backend.py"
ROOT = Path(opscope.__file__).resolve().parents[1]
PROGRAM = "import opscope\nfor n in range(3):\n    opscope.step()\n    with opscope.annotate('work'): pass\n"
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """``install(source, name=value)``: a package with these entry points, whose module is ``source``."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def forget() -> None:
        known.available.cache_clear()
        known._loaded.cache_clear()
        sys.modules.pop("abacus_backend", None)

    def make(source: str | None = None, **points: str) -> Path:
        if source is None:
            shutil.copy(BACKEND, site)
        else:
            (site / "abacus_backend.py").write_text(source)
        info = site / "abacus_backend-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: abacus-backend\nVersion: 1.0\n"
        )
        wanted = points or {"abacus": "abacus_backend:ABACUS"}
        lines = [f"{name} = {value}" for name, value in wanted.items()]
        (info / "entry_points.txt").write_text("\n".join(["[opscope.backends]", *lines, ""]))
        forget()
        return site

    yield make
    forget()


def cli(folder: Path, site: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(ROOT))), **more}
    command = [sys.executable, "-m", "opscope", *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_backend_of_another_package_is_chosen_by_its_rank_and_records(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    here = Machine({"ABACUS": "1"}, modules={}, packages=(), gpu=None)
    choice = backends.choose(machine=here)
    assert (choice.name, choice.reason) == ("abacus", "an abacus is on the table")
    without = backends.choose(machine=Machine({}, modules={}, packages=(), gpu=None))
    assert without.name == "recorder"
    assert dict(without.better)["abacus"] == "no abacus is on the table"
    with opscope.capture(tmp_path / "a.opscope", backend="abacus"), session.annotate("work"):
        pass
    profile = opscope.load(tmp_path / "a.opscope")
    assert "an abacus counts along" in profile.notes()["what"].to_list()
    (told,) = profile.trace.origin["backends"]
    assert (told["backend"], told["reason"]) == ("abacus", "requested")


def test_the_command_line_knows_it(install: Install, tmp_path: Path) -> None:
    site = install()
    (tmp_path / "train.py").write_text(PROGRAM)
    words = ("run", "--no-report", "-o", "a", "--", sys.executable, "train.py")
    done = cli(tmp_path, site, *words, ABACUS="1")
    assert done.returncode == 0, done.stderr
    assert "opscope: backend abacus: an abacus is on the table\n" in done.stderr
    told = json.loads((tmp_path / "a.opscope" / "meta.json").read_text())["origin"]["backends"]
    assert [one["backend"] for one in told] == ["abacus"]
    assert (
        "an abacus counts along" in opscope.load(tmp_path / "a.opscope").notes()["what"].to_list()
    )
    refused = cli(tmp_path, site, "run", "--backend", "abacus", "--", sys.executable, "train.py")
    assert refused.returncode == 2
    assert (
        "--backend abacus: no abacus is on the table; set ABACUS to where it is" in refused.stderr
    )


def test_doctor_lists_it_and_tests_it(install: Install, tmp_path: Path) -> None:
    site = install()
    done = cli(tmp_path, site, "doctor", "--json", "--backend", "abacus", ABACUS="1")
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(done.stdout)}
    assert rows["backend abacus"]["state"] == "auto"
    assert rows["auto"]["found"].startswith("abacus: an abacus is on the table")
    assert rows["self-test of abacus"]["state"] == "ok"
    assert rows["self-test of abacus"]["found"].startswith("3 steps and 3 ranges")


BROKEN = {
    "its import fails": ("raise ImportError('no libabacus.so')", "ImportError: no libabacus.so"),
    "it ends the interpreter": ("raise SystemExit(3)", "SystemExit: 3"),
    "it has no such object": ("", "AttributeError"),
    "its object is no backend": ("ABACUS = 7", "is no object of a class derived from Backend"),
    "it has no rank": (
        "from opscope.backends import Availability, Backend\n"
        "class A(Backend):\n"
        "    name = 'abacus'\n"
        "    gives = 'beads'\n"
        "    def available(self, machine): return Availability(True, 'yes')\n"
        "ABACUS = A()\n",
        "has no rank",
    ),
    "it raises when asked": (
        "from opscope.backends import Backend\n"
        "class A(Backend):\n"
        "    name, gives, rank = 'abacus', 'beads', 10\n"
        "    def available(self, machine): raise SystemExit('bead lost')\n"
        "ABACUS = A()\n",
        "it cannot be asked: SystemExit: bead lost",
    ),
    "it answers nonsense": (
        "from opscope.backends import Backend\n"
        "class A(Backend):\n"
        "    name, gives, rank = 'abacus', 'beads', 10\n"
        "    def available(self, machine): return True\n"
        "ABACUS = A()\n",
        "available() returned True",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_backend_is_a_row_and_ends_nothing(install: Install, how: str) -> None:
    source, why = BROKEN[how]
    install(source)
    here = Machine({}, modules={}, packages=(), gpu=None)
    found = {name: found for name, _, found in backends.ranked(here)}
    assert not found["abacus"].works
    assert why in found["abacus"].why
    assert found["abacus"].advice == "mend or remove its package"
    choice = backends.choose(machine=here)
    assert choice.name == "recorder"
    assert why in dict(choice.better)["abacus"]


def test_a_broken_backend_breaks_no_run_and_is_a_row_of_doctor(
    install: Install, tmp_path: Path
) -> None:
    site = install("raise SystemExit(3)")
    (tmp_path / "train.py").write_text(PROGRAM)
    done = cli(tmp_path, site, "run", "--no-report", "-o", "a", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert "opscope: wrote a.opscope" in done.stderr
    seen = cli(tmp_path, site, "doctor", "--no-self-test")
    assert seen.returncode == 0, seen.stderr
    assert "backend abacus" in seen.stdout
    asked = cli(tmp_path, site, "run", "--backend", "abacus", "--", sys.executable, "train.py")
    assert asked.returncode == 2
    assert "SystemExit: 3" in asked.stderr


LATE = """
from opscope.backends import Availability, Backend
from opscope.core.capture.session import SessionError
class A(Backend):
    name, gives, rank = 'abacus', 'beads', 10
    def available(self, machine): return Availability(True, 'it says that it works')
    def capture(self, folder, bounds): raise {error}
ABACUS = A()
"""


@pytest.mark.parametrize("error", ["SessionError('a bead is stuck')", "KeyError('bead')"])
def test_one_that_cannot_start_leaves_the_run_to_the_recorder_which_says_why(
    install: Install, tmp_path: Path, error: str
) -> None:
    site = install(LATE.format(error=error))
    (tmp_path / "train.py").write_text(PROGRAM)
    done = cli(tmp_path, site, "run", "--no-report", "-o", "a", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    bead = "a bead is stuck" if "stuck" in error else "'bead'"
    assert f"opscope: backend recorder: beads are not captured: {bead}\n" in done.stderr
    (told,) = opscope.load(tmp_path / "a.opscope").trace.origin["backends"]
    assert {"backend": "abacus", "why": f"it could not start: {bead}"} in told["better"]


@pytest.mark.parametrize("error", ["SessionError('a bead is stuck')", "KeyError('bead')"])
@pytest.mark.parametrize("when", ["capture", "warmup", "start"])
def test_one_that_cannot_start_leaves_a_capture_in_the_program_to_the_recorder(
    install: Install, tmp_path: Path, error: str, when: str
) -> None:
    source = LATE.format(error=error)
    if when != "capture":
        failing = f"capture(self, folder, bounds): return Failing(folder, {when!r})"
        source = source.replace(f"capture(self, folder, bounds): raise {error}", failing)
        source = f"""
from opscope.backends.recorder import RecorderCapture
class Failing(RecorderCapture):
    def __init__(self, folder, when):
        super().__init__(folder)
        self.when = when
    def warmup(self):
        if self.when == "warmup": raise {error}
    def start(self):
        raise {error}
{source}"""
    install(source)
    with opscope.capture(tmp_path / "a.opscope"), session.annotate("work"):
        pass
    profile = opscope.load(tmp_path / "a.opscope")
    assert profile.trace["ranges"]["text"].cast(str).to_list() == ["work"]
    (told,) = profile.trace.origin["backends"]
    assert told["backend"] == "recorder"
    assert told["reason"].startswith("beads are not captured: ")
    with (
        pytest.raises((KeyError, session.SessionError)),
        opscope.capture(tmp_path / "b.opscope", backend="abacus"),
    ):
        pass
    assert session.capturing() is None


def test_no_package_takes_the_name_of_one_of_ours(install: Install) -> None:
    install(None, recorder="abacus_backend:ABACUS")
    assert known.load("recorder").gives == "ranges"


def test_every_backend_of_ours_is_told_by_its_page() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs", "backends.md").read_text("utf-8")
    ours = [name for name, target in known.available().items() if target.startswith("opscope.")]
    assert len(ours) >= 6
    assert [name for name in ours if f"`{name}`" not in page] == []

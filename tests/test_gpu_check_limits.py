"""gpu_check.py's own logic: programs that hang, crash or are absent, and a check that is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.script import module_at

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
if sys.platform == "win32":
    pytest.skip("process groups are POSIX's", allow_module_level=True)
bounded, check = module_at("scripts/gpu_bounded.py"), module_at("scripts/gpu_check.py")

#: In place of Python, of torch, of opscope: it does as the name of the program says.
STAND_IN = """#!{python} -SE
import json, os, signal, sys, time
words = sys.argv[1:]
line = " ".join(words)
with open({seen!r}, "a") as file:
    file.write(line + "\\n")
if "run --help" in line:
    print("--whole" if {whole} else "--steps")
elif words[0] == "-c":
    if "jax" in line:
        sys.exit(1)
    if "tensorflow" in line:
        time.sleep(1000)
elif words[0].endswith("gpu_results.py"):
    name, folder = words[1:3]
    if name == "uncompared":
        time.sleep(1000)
    found = {{"checks": {{"kernels were captured": name != "wrong"}}, "facts": ["ms a step: alone 1.000"]}}
    with open(f"{{folder}}/{{name}}.checks.json", "w") as file:
        json.dump(found, file)
else:
    program = words[words.index("--") + 1 :] if "--" in words else words
    name = program[1] if program[0].endswith("gpu_programs.py") else program[2]
    if "run" in words:
        made = words[words.index("--output") + 1]
        os.mkdir(made)
        with open(made + "/kernels.parquet", "wb") as file:
            file.write(os.urandom({size}) if name == "large" else b"few")
    if name == "hanging" and "run" in words or name == "hanging alone":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            open({child!r}, "w").write(str(os.getpid()))
        time.sleep(1000)
    if name == "crashing" and "run" in words:
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def gone(pid):
    """Whether a process is no more, or only waits to be noticed by its parent."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat[stat.rindex(")") + 2] == "Z"


def eventually(holds):
    while not holds():
        time.sleep(0.05)
    return True


@pytest.fixture
def stand_in(tmp_path):
    """Makes the stand-in; what it was asked to do is in ``seen``."""

    def make(whole=True, size=0):
        path = tmp_path / "python"
        path.write_text(
            STAND_IN.format(
                python=sys.executable, whole=whole, size=size, seen=str(tmp_path / "seen"),
                child=str(tmp_path / "child"),
            )
        )  # fmt: skip
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def checked(tmp_path, stand_in, monkeypatch):
    """Runs cases of those names; the check, its exit status, and what it wrote."""
    monkeypatch.setattr(bounded, "GRACE", 0.2)
    monkeypatch.setattr(sys.modules["gpu_bounded"], "GRACE", 0.2)

    def run(*cases, budget=3000.0, **options):
        one = check.Check(tmp_path / "out", tmp_path / "scratch", cases, budget,
                          python=stand_in(**options))  # fmt: skip
        status = one.all()
        return one, status, json.loads((tmp_path / "out" / "results.json").read_text())["cases"]

    return run


def case(name, **more):
    return check.Case(name, "core", why="for the test", **{"runs": ("bare", "ours"), **more})


def test_a_program_that_ends_is_not_killed(tmp_path):
    ended = bounded.run([sys.executable, "-c", "print('done')"], tmp_path / "log", 1000)
    assert ended.well
    assert (tmp_path / "log").read_text().splitlines()[1:3] == ["done", "gpu_check: exit status 0"]


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path):
    child = tmp_path / "child"
    program = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"if os.fork() == 0: open({str(child)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(1000)"
    )
    ended = bounded.run([sys.executable, "-c", program], tmp_path / "log", 5, grace=0.1)
    assert ended.killed
    assert not ended.well
    assert "killed after" in (tmp_path / "log").read_text()
    assert eventually(lambda: gone(int(child.read_text())))


def test_a_child_that_outlives_its_program_is_ended(tmp_path):
    child = tmp_path / "child"
    program = (
        "import os, time\n"
        f"if os.fork() == 0: open({str(child)!r}, 'w').write(str(os.getpid())); time.sleep(1000)\n"
        f"while not os.path.exists({str(child)!r}) or not open({str(child)!r}).read(): time.sleep(.01)"
    )
    assert bounded.run([sys.executable, "-c", program], tmp_path / "log", 1000).well
    assert eventually(lambda: gone(int(child.read_text())))


def test_a_crash_and_a_program_that_is_not_there_are_told_apart(tmp_path):
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    ended = bounded.run([sys.executable, "-c", crash], tmp_path / "log", 1000)
    assert (ended.status, str(ended)) == (139, "ended by signal 11")
    assert bounded.run([str(tmp_path / "none")], tmp_path / "log", 1000).status == 127


def test_a_hanging_and_a_crashing_program_cost_no_other_its_result(checked, tmp_path):
    one, status, found = checked(
        case("first"),
        case("hanging", seconds=5, runs=("ours",)),
        case("crashing"),
        case("wrong"),
        case("last"),
    )
    assert status == 1
    assert {name: row["status"] for name, row in found.items()} == {
        "first": "passed", "hanging": "KILLED", "crashing": "FAILED", "wrong": "FAILED",
        "last": "passed",
    }  # fmt: skip
    assert "killed after" in found["hanging"]["why"]
    assert found["crashing"]["why"] == "ours: ended by signal 11"
    assert found["wrong"]["checks"] == {"kernels were captured": False}
    # what the killed one left is compared and kept all the same
    assert found["hanging"]["checks"] == {"kernels were captured": True}
    with tarfile.open(tmp_path / "out" / "traces-1.tar") as tar:
        assert "hanging.tar.gz" in tar.getnames()
    assert eventually(lambda: gone(int((tmp_path / "child").read_text())))
    text = (tmp_path / "out" / "results.txt").read_text()
    assert "FAIL  kernels were captured" in text
    assert text.endswith("2 passed, 1 KILLED, 2 FAILED\n")
    assert not one.unfinished()


def test_a_program_that_hangs_without_opscope_is_no_fault_of_ours(checked):
    _, status, found = checked(case("hanging alone", seconds=2))
    assert status == 1
    (row,) = found.values()
    assert row["status"] == "KILLED"
    assert row["why"].startswith("the program does not run without opscope")
    assert list(row["runs"]) == ["bare"]


def test_a_comparison_that_hangs_is_a_failure(checked, monkeypatch):
    limits = []
    run = check.Check.run

    def brief(self, name, command, seconds, **env):
        limits.append(seconds)
        return run(self, name, command, 2 if "gpu_results" in str(command) else seconds, **env)

    monkeypatch.setattr(check.Check, "run", brief)
    _, status, found = checked(case("uncompared"))
    assert status == 1
    assert found["uncompared"]["status"] == "FAILED"
    assert "killed after" in next(iter(found["uncompared"]["checks"]))
    assert all(one > 0 for one in limits)


def test_when_the_time_is_used_up_the_rest_is_not_run_and_the_check_has_not_passed(
    checked, tmp_path
):
    _, status, found = checked(case("first"), case("last"), budget=check.PACKING + 1.0)
    assert status == 1
    assert [row["status"] for row in found.values()] == ["not run", "not run"]
    assert "gpu_programs.py" not in (tmp_path / "seen").read_text()


def test_a_framework_that_is_not_there_is_told_and_fails_nothing(checked):
    _, status, found = checked(case("other", needs="jax"), case("first"))
    assert status == 0
    assert found["other"]["status"] == "not here"
    assert found["first"]["status"] == "passed"


def test_a_framework_that_hangs_when_asked_is_not_waited_for(checked, monkeypatch):
    run = check.Check.run
    monkeypatch.setattr(
        check.Check,
        "run",
        lambda self, name, command, seconds, **env: run(
            self, name, command, min(seconds, 2), **env
        ),
    )
    _, status, found = checked(case("other", needs="tensorflow"))
    assert status == 0
    assert found["other"]["why"] == "tensorflow does not answer in time"


@pytest.mark.parametrize("whole", [True, False])
def test_only_options_that_this_opscope_has_are_given(checked, tmp_path, whole):
    checked(case("first", options=("--whole", "--memory")), whole=whole)
    (line,) = (
        one for one in (tmp_path / "seen").read_text().splitlines() if "gpu_keeping.py" in one
    )
    assert ("--whole" in line) == whole
    assert "--memory" in line


def test_no_archive_is_larger_than_it_may_be_and_what_has_no_room_is_said(
    checked, tmp_path, monkeypatch
):
    monkeypatch.setattr(check, "ARCHIVE", 3 << 20)
    cases = [case(f"{n}", program="large") for n in range(3)]
    _, _, found = checked(*cases, size=2 << 20)
    out = tmp_path / "out"
    assert sorted(one.name for one in out.iterdir()) == [
        "logs.tar.gz", "results.json", "results.txt", "traces-1.tar", "traces-2.tar",
    ]  # fmt: skip
    assert all(one.stat().st_size <= 3 << 20 for one in out.iterdir())
    said = [fact for row in found.values() for fact in row["facts"] if "no room" in fact]
    assert said == ["2.opscope found no room in the archives"]


def test_an_interrupted_check_has_left_its_results_and_no_program(tmp_path, stand_in):
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import gpu_check as g\n"
        f"sys.executable = {stand_in()!r}\n"
        "g.CASES = tuple(g.Case(n, 'core', runs=('bare', 'ours'), why='x') for n in ('first', 'hanging'))\n"
        "g.Check.__init__.__defaults__ = ('cuda', sys.executable)\n"
        f"sys.exit(g.main([{str(tmp_path / 'out')!r}, '--scratch', {str(tmp_path / 'scratch')!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL) as process:
        child = tmp_path / "child"
        eventually(lambda: child.exists() and child.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    found = json.loads((tmp_path / "out" / "results.json").read_text())["cases"]
    assert {name: row["status"] for name, row in found.items()} == {"first": "passed"}
    assert "not run yet: hanging" in (tmp_path / "out" / "results.txt").read_text()
    assert eventually(lambda: gone(int(child.read_text())))


def test_results_of_an_earlier_check_do_not_pass_for_this_ones(checked, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("results.txt", "results.json", "traces-2.tar", "logs.tar.gz", "kept"):
        (out / name).write_text("old")
    checked(case("first"))
    assert sorted(one.name for one in out.iterdir()) == [
        "kept", "logs.tar.gz", "results.json", "results.txt", "traces-1.tar",
    ]  # fmt: skip
    assert "old" not in (out / "results.txt").read_text()


def test_parts_and_cases_are_chosen_by_name():
    assert [one.name for one in check.chosen(["cost"], ["lenet"])] == ["lenet", "overhead"]
    assert len(check.chosen([], [])) == len(check.CASES)
    with pytest.raises(ValueError, match="no such part or case: none"):
        check.chosen(["none"], [])


def test_the_results_of_several_runs_make_one_table(checked, tmp_path):
    checked(case("first"), case("wrong"))
    lines = check.table([tmp_path / "out"]).splitlines()
    assert lines[2] == "| first | for the test | passed | 1 of 1 | alone 1.000 |"
    assert lines[3] == "| wrong | for the test | FAILED | 0 of 1 | alone 1.000 |"
    assert lines[-1] == "- wrong: kernels were captured"


def test_a_torch_that_is_not_imported_in_time_is_refused(tmp_path):
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nsleep 1000\n")
    hanging.chmod(0o755)
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "gpu_check.sh"), str(tmp_path / "out")],
        env={**os.environ, "PYTHON": str(hanging), "GPU_CHECK_PROBE_SECONDS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"gpu_check: {hanging}: the import of torch exceeds the time limit\n"
    assert not (tmp_path / "out").exists()


def test_wheels_are_installed_beside_the_python_and_removed_afterwards(tmp_path):
    """A Python without opscope's dependencies, and a wheel of one package that it lacks."""
    wheels, seen = tmp_path / "wheels", tmp_path / "seen"
    wheels.mkdir()
    for name in ("nobody_has_this", "pytest"):
        with zipfile.ZipFile(wheels / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "ours = True\n")
            about = f"{name}-1.0.dist-info"
            wheel.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
            )
            wheel.writestr(
                f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{about}/RECORD", "")
    fake = tmp_path / "fake"
    fake.mkdir()
    # a torch that has a GPU: the check itself is then started, and says what it was given
    (fake / "torch.py").write_text("class cuda:\n    is_available = staticmethod(lambda: True)\n")
    (fake / "sitecustomize.py").write_text(
        "import sys, pathlib\n"
        "if sys.argv and any('gpu_check.py' in one for one in sys.orig_argv):\n"
        "    import nobody_has_this, pytest\n"
        f"    pathlib.Path({str(seen)!r}).write_text(nobody_has_this.__file__ + ' ' + str(hasattr(pytest, 'ours')))\n"
        "    raise SystemExit(7)\n"
    )  # fmt: skip
    ended = subprocess.run(
        ["bash", str(ROOT / "scripts" / "gpu_check.sh"), str(tmp_path / "out")],
        env={**os.environ, "PYTHON": sys.executable, "WHEELS": str(wheels), "PYTHONPATH": str(fake)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode != 2, ended.stderr
    place, shadowed = seen.read_text().split()
    assert shadowed == "False"
    assert not Path(place).exists()

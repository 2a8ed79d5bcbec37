"""``opscope try``: copies of the work tree, changes in one of them, and the decision in one line."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from opscope.cli.trial import CANNOT_TELL, SIDES, Options, _try
from opscope.cli.trial_output import LARGEST, Output, difference
from opscope.cli.trial_trees import NotCopied, WorkTree, apply
from opscope.core.analysis.diff.turns import decide
from tests.command import opscope

PROGRAM = """
import os, time, opscope

open("written.txt", "w").close()
for _ in range(6):
    opscope.step()
    with opscope.annotate("work"):
        time.sleep(PAUSE)
opscope.step()
"""
PAUSE = 'float(os.environ.get("PAUSE", "0.001"))'

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", folder, *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def tree(tmp_path):
    """A work tree with a commit, a change since then, a new file and one that git ignores."""
    folder = tmp_path / "tree"
    below = folder / "package"
    below.mkdir(parents=True)
    git(folder, "init", "-q")
    folder.joinpath(".gitignore").write_text("data/\n*.opscope\nwritten.txt\n")
    below.joinpath("train.py").write_text(PROGRAM.replace("PAUSE)", f"{PAUSE})"))
    folder.joinpath("old.txt").write_text("old\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    folder.joinpath("old.txt").write_text("changed\n")
    folder.joinpath("new.txt").write_text("new\n")
    folder.joinpath("data").mkdir()
    folder.joinpath("data", "big.bin").write_text("data")
    return folder


def state(folder):
    """All that a work tree is: its files, what git says of them, and its index."""
    files = {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    return (
        files,
        git(folder, "status", "--porcelain"),
        git(folder, "ls-files", "-s"),
        git(folder, "log", "-1"),
    )


@needs_git
def test_a_copy_has_the_files_as_they_are_now_and_none_that_git_ignores(tree, tmp_path):
    found = WorkTree.of(tree / "package")
    assert (found.top, found.has_git, found.below) == (tree.resolve(), True, Path("package"))
    found.copy(tmp_path / "copy")
    assert (tmp_path / "copy" / "old.txt").read_text() == "changed\n"
    assert (tmp_path / "copy" / "new.txt").exists()
    assert (tmp_path / "copy" / "package" / "train.py").exists()
    assert not (tmp_path / "copy" / "data").exists()
    assert not (tmp_path / "copy" / ".git").exists()
    found.copy(tmp_path / "more", ["data"])
    assert (tmp_path / "more" / "data" / "big.bin").read_text() == "data"
    with pytest.raises(NotCopied, match="--carry nothing"):
        found.copy(tmp_path / "none", ["nothing"])


@needs_git
def test_a_commit_is_written_without_touching_the_tree(tree, tmp_path):
    before = state(tree)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    WorkTree.of(tree).check_out("HEAD", tmp_path / "copy", scratch)
    assert (tmp_path / "copy" / "old.txt").read_text() == "old\n"
    assert not (tmp_path / "copy" / "new.txt").exists()
    with pytest.raises(NotCopied, match="nowhere"):
        WorkTree.of(tree).check_out("nowhere", tmp_path / "other", scratch)
    with pytest.raises(NotCopied):
        WorkTree.of(tree).check_out("--exec=x", tmp_path / "other", scratch)
    assert state(tree) == before


@needs_git
def test_a_patch_changes_the_copy_alone(tree, tmp_path):
    patch = tmp_path / "change.diff"
    patch.write_text(git(tree, "diff", "-R"))  # from the changed file back to the commit's
    before = state(tree)
    copy = tmp_path / "copy"
    WorkTree.of(tree).copy(copy)
    apply(patch, copy)
    assert (copy / "old.txt").read_text() == "old\n"
    assert state(tree) == before
    with pytest.raises(NotCopied, match=r"change\.diff"):
        apply(patch, copy)  # it is applied already
    patch.write_text("no patch")
    with pytest.raises(NotCopied, match=r"change\.diff"):
        apply(patch, copy)


@needs_git
def test_a_patch_cannot_leave_the_copy(tree, tmp_path):
    copy = tmp_path / "copy"
    WorkTree.of(tree).copy(copy)
    patch = tmp_path / "out.diff"
    patch.write_text("--- a/../victim.txt\n+++ b/../victim.txt\n@@ -0,0 +1 @@\n+x\n")
    with pytest.raises(NotCopied):
        apply(patch, copy)
    assert not (tmp_path / "victim.txt").exists()


def test_without_git_a_folder_is_copied_but_for_what_is_no_program(tmp_path):
    folder = tmp_path / "plain"
    (folder / ".venv").mkdir(parents=True)
    folder.joinpath("train.py").write_text("")
    tree = WorkTree(folder, False, Path())
    tree.copy(tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["train.py"]
    with pytest.raises(NotCopied, match="no work tree of git"):
        tree.check_out("HEAD", tmp_path / "other", tmp_path)


def digest(folder):
    """All that lies in a work tree, git's own files too: bytes, modes and times of change."""
    return {
        path.relative_to(folder): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }


def tried(tree, *words, code=""):
    """Run ``opscope try`` on the program, with ``code`` at its end; return what it ended with and said, after
    the tree was seen to be as before."""
    program = tree / "package" / "train.py"
    program.write_text(program.read_text() + code)
    before = digest(tree)
    command = ("--json", "--", sys.executable, "train.py")
    done = opscope("try", *words, *command, cwd=tree / "package")
    assert digest(tree) == before
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


@needs_git
def test_what_is_slower_is_to_be_dropped_and_the_tree_stays(tree):
    code = "import random; print('pause', os.environ.get('PAUSE')); print(random.random())\n"
    status, said = tried(tree, "--env", "PAUSE=0.1", "--runs", "4", code=code)
    assert status == 1, said
    assert said["decision"] == "slower"
    assert said["after"] > 0.1e9 > said["before"]
    assert said["after"] - said["before"] > said["noise"]
    assert said["chance"] <= 0.05
    assert said["said"].startswith("slower: a step took ")
    assert said["said"].endswith(
        ": drop it; its output is another: without it 'pause None', with it 'pause 0.1'"
    )
    assert (said["runs"], said["output"]) == (4, "differs")


@needs_git
def test_a_change_that_breaks_the_program_is_to_be_dropped(tree):
    status, said = tried(tree, "--env", "PAUSE=x")
    assert status == 1
    assert said["said"].startswith("broken: the program fails with the change, status 1 in run 1: ")
    assert "could not convert string to float" in said["said"]


@needs_git
def test_a_program_that_fails_without_the_change_says_nothing_of_the_change(tree):
    status, said = tried(tree, "--env", "FINE=1", code="import os; os.environ['FINE']\n")
    assert status == 2
    assert "the program fails without the change: status 1 in run 1: " in said


@needs_git
def test_a_program_that_records_nothing_is_said_to_and_names_no_copy(tree):
    done = opscope("try", "--env", "A=1", "--", sys.executable, "-c", "pass", cwd=tree)
    assert done.returncode == 2
    assert "without the change: run 1: nothing was recorded" in done.stderr


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6, 8])
def test_no_rhythm_of_the_machine_is_a_gain(capsys, period):
    """Of equal programs every ``period``-th run is slower by a tenth, with noise of 1 %."""
    order: list[str] = []
    trial = SimpleNamespace(
        asked=Options(command=["x"], env=["A=1"], runs=20), copy=lambda: None, run=order.append,
        decide=lambda last: SimpleNamespace(verdict=None), pairs=0, printed={side: Output() for side in SIDES},
    )  # fmt: skip
    assert _try(trial) == CANNOT_TELL
    capsys.readouterr()
    pairs = [order[index : index + 2] for index in range(0, len(order), 2)]
    assert all(sorted(pair) == sorted(SIDES) for pair in pairs)
    drift = [first[0] == second[1] for first, second in zip(pairs[::2], pairs[1::2], strict=True)]
    assert all(drift), "each two pairs are A B B A or B A A B"
    noise = random.Random(period)
    for first in range(period):
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        for index, side in enumerate(order):
            slow = 1.1 if index % period == first else 1.0
            times[side].append(100 * slow * noise.gauss(1, 0.01))
            if index % 2:
                assert decide(*times.values(), 20, False).verdict is None


def test_outputs_are_compared_by_what_each_side_always_prints(tmp_path):
    def side(*runs):
        output = Output()
        for text in runs:
            tmp_path.joinpath("output").write_text(text)
            output.add(tmp_path / "output")
        return output

    same = "a\nb\n"
    assert difference(side(same, same), side(same, same)) == ("same", None)
    assert difference(side("a\n1\n", "a\n2\n"), side("a\n3\n", "a\n4\n")) == ("varies", None)
    assert difference(side("a\n1\n", "a\n2\n"), side("a\n3\n")) == (None, None)
    assert difference(side(), side("a\n", "a\n")) == (None, None)
    assert difference(side(*[""] * 4), side(*["x\x1b\n"] * 4)) == (
        "differs",
        "with it 'x\\\\x1b'",
    )
    assert difference(side(*[""] * 3), side(*["x\n"] * 3)) == (None, None)
    # one of many lines that vary lies so by chance; of lines that do not, and clocks, one is another
    rare = ["01100011", "10010110", "00001111", "11010001", "01011010"]
    runs = ["".join(f"{at} {word[run]}\n" for at, word in enumerate(rare)) for run in range(8)]
    assert difference(side(*runs[:4]), side(*runs[4:])) == (None, None)
    clocks = [f"loss {run // 4}\ntook {run} s\n" for run in range(8)]
    assert difference(side(*clocks[:4]), side(*clocks[4:])) == (
        "differs",
        "without it 'loss 0', with it 'loss 1'",
    )
    long = "x" * LARGEST
    assert difference(side(long + "a", long), side(long + "b", long)) == (None, None)


@needs_git
def test_a_patch_that_does_not_apply_ends_before_anything_runs(tree):
    patch = tree.parent / "change.diff"
    patch.write_text("--- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-other\n+new\n")
    status, said = tried(tree, "--patch", patch, code="open('ran.txt', 'w')\n")
    assert status == 2
    assert "change.diff: patch failed: old.txt:1" in said


@needs_git
def test_submodules_are_those_of_the_commit(tree, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    library.joinpath("size.txt").write_text("1\n")
    git(library, "add", "-A")
    git(library, "commit", "-qm", "first")
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", library, "library")
    git(tree, "commit", "-qm", "with a library")
    tree.joinpath("library", "size.txt").write_text("2\n")
    before = digest(tree)
    WorkTree.of(tree).copy(tmp_path / "copy")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    WorkTree.of(tree).check_out("HEAD", tmp_path / "commit", scratch)
    assert digest(tree) == before
    assert (tmp_path / "copy" / "library" / "size.txt").read_text() == "2\n"
    assert (tmp_path / "commit" / "library" / "size.txt").read_text() == "1\n"
    assert not list((tmp_path / "copy").rglob(".git"))
    git(tree, "update-index", "--cacheinfo", f"160000,{'1' * 40},library")
    git(tree, "commit", "-qm", "a commit that is not there")
    with pytest.raises(NotCopied, match="the submodule library of HEAD"):
        WorkTree.of(tree).check_out("HEAD", tmp_path / "other", scratch)


@needs_git
def test_wrong_commands_are_one_error(tree):
    for words, said in (
        ((), "say what to try"),
        (("--env", "X"), "a variable is KEY=VALUE"),
        (("--git", "nowhere"), "nowhere"),
        (("--patch", "nothing.diff"), "nothing.diff"),
        (("--env", "X=1", "--carry", "/etc"), "a path within the work tree"),
    ):
        done = opscope("try", *words, "--", sys.executable, "train.py", cwd=tree / "package")
        assert done.returncode == 2
        assert said in done.stderr
    inside = tree / "package" / "train.py"
    done = opscope("try", "--env", "X=1", "--", sys.executable, inside, cwd=tree)
    assert done.returncode == 2
    assert "not in its copy" in done.stderr

"""``opscope try``: copies of the work tree, changes in one of them, and the decision in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opscope.cli.trial_trees import NotCopied, WorkTree, apply
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


@needs_git
def test_what_is_slower_is_to_be_dropped_and_the_tree_stays(tree):
    before = state(tree)
    done = opscope(
        "try",
        "--env",
        "PAUSE=0.3",
        "--json",
        "--",
        sys.executable,
        "train.py",
        cwd=tree / "package",
    )
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert said["decision"] == "slower"
    assert said["runs"] >= 3
    assert said["after"] > 0.3e9 > said["before"]
    assert said["after"] - said["before"] > said["noise"]
    assert said["said"].startswith("slower: a step took ")
    assert said["said"].endswith(": drop it")
    assert state(tree) == before


@needs_git
def test_a_change_that_breaks_the_program_is_to_be_dropped(tree):
    done = opscope(
        "try", "--env", "PAUSE=x", "--", sys.executable, "train.py", cwd=tree / "package"
    )
    assert done.returncode == 1
    assert done.stdout.startswith("broken: the program fails with the change, status 1: ")
    assert "could not convert string to float" in done.stdout


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

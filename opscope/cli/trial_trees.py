"""Copies of a work tree to try a program in, without a change and with it; the user's stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: A copy of more bytes is refused: large input data belongs to paths that are named.
LARGEST: Final = 2 << 30
#: Folders that do not belong to a program, used if git is missing.
_APART: Final = frozenset((".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".tox"))
#: The mode of a submodule in git's index.
_SUBMODULE: Final = "160000"


class NotCopied(Exception):
    """The work tree cannot be copied, or the change does not apply; the message says why."""


@dataclass(frozen=True, slots=True)
class WorkTree:
    """A work tree: its top folder, whether git lists its files, and the subfolder where the command was
    typed."""

    top: Path
    has_git: bool
    below: Path

    @classmethod
    def of(cls, folder: Path) -> WorkTree:
        """Return the work tree that contains the folder; without git, the folder itself."""
        folder = folder.resolve()
        try:
            done = subprocess.run(
                ["git", "-C", folder, "rev-parse", "--show-toplevel"],
                capture_output=True,
                text=True,
            )
        except OSError:
            return cls(folder, False, Path())
        if done.returncode:
            return cls(folder, False, Path())
        top = Path(done.stdout.rstrip("\n")).resolve()
        return cls(top, True, folder.relative_to(top))

    def copy(self, to: Path, carried: Sequence[str] = ()) -> None:
        """Copy the files as they are now, and the paths ``carried``, which git may ignore. Raises
        NotCopied."""
        self._copy([*self._files()], to)
        self.carry(carried, to)

    def carry(self, paths: Sequence[str], to: Path) -> None:
        """Copy only these paths. Raises NotCopied, also for a missing path."""
        for path in paths:
            if not os.path.lexists(self.top / path):
                raise NotCopied(f"--carry {path}: no such file or folder in {self.top}")
        self._copy(paths, to)

    def _copy(self, names: Sequence[str], to: Path) -> None:
        size = 0
        for name in names:
            source, target = self.top / name, to / name
            for file in _below(source):
                size += file.lstat().st_size
            if size > LARGEST:
                raise NotCopied(f"{self.top}: a copy has more than {LARGEST >> 30} GiB, at {name}")
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                if source.is_dir() and not source.is_symlink():
                    shutil.copytree(
                        source, target, symlinks=True, dirs_exist_ok=True,
                        ignore=lambda _, names: _APART.intersection(names),
                    )  # fmt: skip
                elif source.is_file() or source.is_symlink():
                    shutil.copy2(source, target, follow_symlinks=False)
            except OSError as error:
                raise NotCopied(f"{source}: {error.strerror or error}") from error

    def _files(self) -> Iterator[str]:
        if not self.has_git:
            yield from (entry.name for entry in os.scandir(self.top) if entry.name not in _APART)
            return
        asked: list[str | Path] = [
            "git",
            "-C",
            self.top,
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        for name in dict.fromkeys(_run(asked).split("\0")):
            if name:
                yield name

    def check_out(self, ref: str, to: Path, scratch: Path) -> None:
        """Write the files of the commit ``ref`` into the folder ``to``. Raises NotCopied.

        It uses its own index, so that the user's index, HEAD and files stay as they are.
        """
        if not self.has_git:
            raise NotCopied(f"{self.top} is no work tree of git, so it has no {ref}")
        environment = {"GIT_INDEX_FILE": os.fspath(scratch / "index")}
        _run(
            ["git", "-C", self.top, "read-tree", "--end-of-options", f"{ref}^{{tree}}"], environment
        )
        to.mkdir(parents=True, exist_ok=True)
        _run(["git", "-C", self.top, "checkout-index", "-a", f"--prefix={to}/"], environment)
        staged = _run(["git", "-C", self.top, "ls-files", "--stage", "-z"], environment)
        for entry in staged.split("\0"):
            about, _, name = entry.partition("\t")
            inner = WorkTree(self.top / name, True, Path())
            if about.startswith(_SUBMODULE) and (inner.top / ".git").exists():
                try:
                    inner.check_out(about.split()[1], to / name, scratch)
                except NotCopied as error:
                    raise NotCopied(f"the submodule {name} of {ref}: {error}") from error


def apply(patch: Path, to: Path) -> None:
    """Apply the patch to the copy ``to``. Raises NotCopied if it does not apply."""
    environment = {"GIT_CEILING_DIRECTORIES": os.fspath(to.parent)}
    try:
        _run(["git", "-C", to, "apply", "--whitespace=nowarn", patch.resolve()], environment)
    except NotCopied as error:
        raise NotCopied(f"--patch {patch}: {error}") from error


def _run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> str:
    """Return the output of a git command. Raises NotCopied with the first line of its error."""
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GIT_DIR", "GIT_WORK_TREE")
    }
    try:
        done = subprocess.run(command, capture_output=True, env=own | (environment or {}))
    except OSError as error:
        raise NotCopied(f"git: {error.strerror}") from error
    if done.returncode:
        lines = os.fsdecode(done.stderr).strip().splitlines() or ["it failed"]
        raise NotCopied(lines[0].removeprefix("fatal: ").removeprefix("error: "))
    return os.fsdecode(done.stdout)


def _below(source: Path) -> Iterator[Path]:
    if source.is_dir() and not source.is_symlink():
        for folder, folders, names in os.walk(source):
            folders[:] = [name for name in folders if name not in _APART]
            yield from (Path(folder, name) for name in names)
    elif os.path.lexists(source):
        yield source

"""A folder of baselines, local or at a URL: save a run under a name, list the names, open one."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Final

from opscope.core.analysis.diff.reduced import (
    BY_PART,
    PART_NAMES,
    STEPS,
    TOTALS,
    WHOLE,
    Ending,
    Reduced,
)
from opscope.core.analysis.diff.stretches import in_stretches, joined
from opscope.core.question.suggest import unknown
from opscope.profile import Profile
from opscope.readers.errors import BadInput
from opscope.scale import places

from .stored import LARGEST, Stored, pack, unpack

SUFFIX: Final = ".run"
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
_FILE: Final = re.compile(rf"({_NAME.pattern})\.([0-9a-f]{{12}}){re.escape(SUFFIX)}", re.ASCII)
Place = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Baseline:
    """A baseline: its name, its runs in the order in which they were saved, and all of them as one."""

    name: str
    runs: tuple[Stored, ...]
    reduced: Reduced

    @property
    def commit(self) -> str | None:
        """The commit of its last run, if known."""
        return self.runs[-1].head.get("commit")

    @property
    def saved(self) -> str:
        """When its first run was saved: ISO 8601, UTC."""
        return self.runs[0].head.get("saved") or ""


def save(
    folder: Place, name: str, profile: Profile, source: str, commit: str | None = None
) -> tuple[str, bool, int]:
    """Add a run to the baseline ``name``; return the file's name, whether it is new, and its bytes.

    A run that is in it already is not written again. ``source``: what the run is called. Raises ValueError
    for a name that cannot be a file's; BadInput for what the disk or store refuses.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name a baseline: a name has up to 100 letters, digits, '.', '_' and '-', and"
            " begins with a letter or digit"
        )
    reduced = in_stretches(profile._reducing(STEPS)())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    head = {"saved": now, "commit": commit, "source": source}
    content = hashlib.sha256(pack(Stored({}, reduced))).hexdigest()[:12]
    file = f"{name}.{content}{SUFFIX}"
    data = pack(Stored(head, reduced))
    if len(data) > LARGEST[0]:
        raise BadInput(source, f"its ops do not fit into a baseline: {len(data):,} bytes")
    if places.exists(folder, file):
        return file, False, len(data)
    with places.written(folder, file) as local:
        local.write_bytes(data)
    return file, True, len(data)


def files_of(folder: Place) -> dict[str, list[str]]:
    """Return the files of each baseline in the folder. Raises BadInput if there is no such folder."""
    files: dict[str, list[str]] = {}
    for file in places.names(folder):
        match = _FILE.fullmatch(file)
        if match is not None:
            files.setdefault(match[1], []).append(file)
    return files


def open_baseline(folder: Place, name: str) -> Baseline:
    """Return the baseline ``name``. Raises BadInput: there is none, a file is damaged, or its runs do not go
    together."""
    files = files_of(folder)
    if name not in files:
        raise BadInput(
            folder, unknown("baseline", name, sorted(files)) if files else "it has no baselines"
        )
    return _opened(folder, name, files[name])


def open_all(folder: Place, names: Sequence[str] = ()) -> list[Baseline]:
    """Return the baselines, or those of ``names`` in their order; else by when each was first saved."""
    if names:
        return [open_baseline(folder, name) for name in names]
    every = [_opened(folder, name, files) for name, files in files_of(folder).items()]
    return sorted(every, key=lambda baseline: (baseline.saved, baseline.name))


def _opened(folder: Place, name: str, files: Sequence[str]) -> Baseline:
    runs = []
    for file in files:
        place = places.join(folder, file)
        with places.at_hand(place) as local:
            if local.stat().st_size > LARGEST[0]:
                raise BadInput(place, f"a run of a baseline has {LARGEST[0]:,} bytes at the most")
            runs.append(unpack(local.read_bytes(), place))
    runs.sort(key=lambda run: (run.head.get("saved") or "", run.head.get("source") or ""))
    try:
        return Baseline(name, tuple(runs), joined([run.reduced for run in runs]))
    except ValueError as error:
        raise BadInput(places.join(folder, name), str(error)) from error


def reducing(baseline: Baseline, how: str) -> Ending:
    """Return a function that gives the stored reduction of a baseline; see ``Profile._reducing``. Raises
    BadInput for a ``how`` that a baseline does not keep: the whole run, or other parts."""
    if how in (WHOLE, BY_PART):
        kept = (
            "light mode's steps" if baseline.reduced.parts != PART_NAMES else baseline.reduced.unit
        )
        raise BadInput(
            baseline.name,
            f"the baseline keeps {kept}{'s' if kept == baseline.reduced.unit else ''}, and the other run has"
            " none: compare their files (opscope diff A B)",
        )
    reduced = baseline.reduced
    return lambda: replace(reduced, has_ops=False) if how == TOTALS else reduced


def commit_here() -> str | None:
    """Return the commit of this folder's work tree, with ``+`` where files differ from it; None without."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()

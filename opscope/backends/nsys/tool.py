"""Find out what an ``nsys`` can do: from its version, its own help, or else the nearest known version."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .asked import ASKING_S, asked
from .versions import OLDEST, Release, Version, nearest, version_of

_DECLARED: Final = re.compile(r"^\s+(?:\([^)]*\)\s+)?(?:-\w,\s+)?--([a-z][\w-]*)", re.MULTILINE)


class NoTool(ValueError):
    """Nsight Systems is missing, does not run, or is too old; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Tool:
    """An ``nsys`` that runs here. ``note`` says which of its abilities are assumed; empty if none are."""

    path: str
    version: Version
    full: str
    can: Release
    note: str = ""


def ask(path: str, environ: Mapping[str, str] = os.environ) -> Tool:
    """Return the abilities of the ``nsys`` at ``path``. Raises NoTool."""
    said = _output(path, environ, "--version")
    version = version_of(said)
    if version is None:
        first = next(iter(said.split("\n")), "").strip()
        raise NoTool(f"{path} --version does not name a version of Nsight Systems: {first[:200]!r}")
    full = said.split("version", 1)[1].split()[0]
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise NoTool(
            f"Nsight Systems {full} ({path}) is too old: opscope needs {oldest} or later; install a newer "
            "one, or choose another backend (opscope doctor lists them)"
        )
    row = nearest(version)
    if row.measured and row.version == version:
        return Tool(path, version, full, row)
    try:
        tool_options = by_help(_output(path, environ, "profile", "--help"), row)
    except NoTool:
        tool_options = None
    if tool_options is None:
        note = (
            f"Nsight Systems {full} is unknown to opscope and its help cannot be read: it is taken for "
            f"{row.name}"
        )
        return Tool(path, version, full, row, note)
    return Tool(path, version, full, replace(tool_options, version=version))


def by_help(text: str, row: Release) -> Release | None:
    """Return ``row`` with the options and values that the text of ``nsys profile --help`` names.

    None if the text is no such help.
    """
    options = frozenset(_DECLARED.findall(text))
    if "usage: nsys profile" not in text or not {"trace", "output"} <= options:
        return None
    traces = _values(text, "trace") or row.traces
    ends = {end.partition("[")[0].partition(":")[0] for end in _values(text, "capture-range-end")}
    return replace(
        row,
        options=options,
        traces=frozenset(traces),
        ends=frozenset(ends) if "capture-range-end" in options else frozenset(),
        source="its own profile --help",
    )


def _values(text: str, option: str) -> set[str]:
    """Return the quoted words of the paragraph about the option, up to the sentence that lists them."""
    declared = list(_DECLARED.finditer(text))
    for number, declaration in enumerate(declared):
        if declaration[1] == option:
            end = declared[number + 1].start() if number + 1 < len(declared) else len(text)
            about = text[declaration.end() : end]
            listed = re.search(r"Possible values are\s+(.*?)\.\s", about, re.DOTALL)
            return set() if listed is None else set(re.findall(r"'([^']+)'", listed[1]))
    return set()


def _output(path: str, environ: Mapping[str, str], *words: str) -> str:
    """Return what ``nsys`` prints. Raises NoTool if it does not run."""
    try:
        done = asked(path, environ, *words)
    except subprocess.TimeoutExpired:
        raise NoTool(f"{path} {' '.join(words)} did not answer within {ASKING_S} s") from None
    except OSError as error:
        raise NoTool(f"{path} does not run: {error.strerror or error}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        why = lines[-1][:300] if lines else f"it ended with status {done.returncode}"
        raise NoTool(f"{path} does not run: {why}")
    return done.stdout
